"""recordmill rejects: what was left out and why, published or not, in any store."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from uuid import uuid4

import pytest
from job_tools import convert, recordmill

from recordmill.schemas.errors import OutputError
from recordmill.schemas.ranges import Reject
from recordmill.transforms.tasks.rejects import (
    MAX_KINDS,
    NOT_COUNTED,
    OTHER_KINDS,
    UNKNOWN_INPUT,
    count_kinds,
    kind_lines,
    parse_reject,
)

ROWS = "a,b\n1,2\n3\n4,5,6\n7,8\n9\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "in" / "x.csv"
    file.parent.mkdir()
    file.write_text(ROWS)
    return file


def test_of_a_dataset(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    ran = recordmill("rejects", tmp_path / "out", "--rows", 1)
    assert ran.status == 0
    assert "3 rows rejected\n" in ran.out
    assert "#" not in ran.out  # a real reason
    assert re.search(r" 3 +expected 2 columns, found 1 +x.csv line 3", ran.out)
    assert "x.csv line 3: expected 2 columns, found 1" in ran.out
    assert '"3"' in ran.out
    assert '"4,5,6"' not in ran.out


def test_of_a_run_that_failed(table: Path, tmp_path: Path) -> None:
    assert recordmill("convert", "csv", table, tmp_path / "out").status == 65
    ran = recordmill("rejects", tmp_path / "out", "--json")
    found = json.loads(ran.out)
    assert (found["published"], found["rows_rejected"]) == (False, 3)
    [reason] = found["reasons"]
    assert reason["rows"] == 3
    assert [row["position"] for row in found["rows"]] == [8, 10, 20]
    assert [row["line"] for row in found["rows"]] == [3, 4, 6]  # as the error told
    raw = [base64.b64decode(row["raw_base64"]) for row in found["rows"]]
    assert all(row in table.read_bytes().splitlines() for row in raw)


def test_of_a_run_that_failed_over_a_dataset(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    table.write_text(ROWS + "10\n")
    assert recordmill("convert", "csv", table, tmp_path / "out").status == 73
    ran = recordmill("rejects", tmp_path / "out", "--json")
    assert json.loads(ran.out)["rows_rejected"] == 3


def test_by_reason(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    ran = recordmill("rejects", tmp_path / "out", "--json", "--reason", "found 3")
    assert [row["raw"] for row in json.loads(ran.out)["rows"]] == ['"4,5,6"']


def test_in_a_store(table: Path, tmp_path: Path) -> None:
    output = f"memory://rejects-{uuid4().hex}/out"  # no run of another day left any
    assert recordmill("convert", "csv", table, output).status == 65
    ran = recordmill("rejects", output, "--json")
    assert json.loads(ran.out)["rows_rejected"] == 3
    convert("csv", table, output, "--max-rejects", 3)
    ran = recordmill("rejects", output, "--json")
    found = json.loads(ran.out)
    assert (found["published"], found["rows_rejected"]) == (True, 3)


def test_of_runs_with_several_inputs(table: Path, tmp_path: Path) -> None:
    """No line is told that might be another file's."""
    other = tmp_path / "other" / "x.csv"
    other.parent.mkdir()
    other.write_text(ROWS.replace("\n", "\n\n"))
    for file in (table, other):
        assert recordmill("convert", "csv", file, tmp_path / "out").status == 65
    assert set(lines_of(tmp_path / "out")) == {None}


def test_the_command_that_an_error_names(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    table.write_text(ROWS + "10\n")
    output: list[str | Path] = [tmp_path / "out", "--overwrite"]
    remote = ["memory://rejects-message/out", "--scratch", tmp_path / "scratch"]
    for arguments in (output, remote):
        ran = recordmill("convert", "csv", table, *arguments)
        [line] = [line for line in ran.err.splitlines() if "All of them: " in line]
        command = line.removeprefix("Error: ").removeprefix("All of them: recordmill ")
        ran = recordmill(*command.partition(". ")[0].split(), "--json")
        assert json.loads(ran.out)["rows_rejected"] == 4


def test_nothing_there(tmp_path: Path) -> None:
    ran = recordmill("rejects", tmp_path / "out")
    assert ran.status == 1
    assert "no dataset and no rejects" in ran.err


def test_nothing_was_rejected(table: Path, tmp_path: Path) -> None:
    table.write_text("a,b\n1,2\n")
    convert("csv", table, tmp_path / "out")
    ran = recordmill("rejects", tmp_path / "out")
    assert (ran.status, ran.out) == (0, "0 rows rejected\n")


def test_kinds_are_bounded() -> None:
    rejects = (Reject("x", 0, "bad " + "a" * number, b"") for number in range(2_000))
    kinds = count_kinds(rejects)
    assert len(kinds) == MAX_KINDS + 1
    assert (kinds[0].kind, kinds[0].rows) == (OTHER_KINDS, 2_000 - MAX_KINDS)


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"uri": 1}', b"\xff"])
def test_a_line_that_is_no_reject(line: bytes) -> None:
    with pytest.raises(OutputError, match=r"file: line 3: .* is not a valid reject"):
        parse_reject(line, "file: line 3")


def lines_of(output: Path) -> list[int | None]:
    found = json.loads(recordmill("rejects", output, "--json").out)
    return [row["line"] for row in found["rows"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_numbers(tmp_path: Path, end: str) -> None:
    """Lines of the file, not rows: a quoted cell may have several."""
    table = tmp_path / "x.csv"
    text = 'a,b\n1,"two\nlines"\n3\n4,5,6\n7,8\n9\n'
    table.write_bytes(text.replace("\n", end).encode())
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    assert lines_of(tmp_path / "out") == [4, 5, 7]


def test_no_line_numbers_of_an_input_that_changed(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    assert lines_of(tmp_path / "out") == [3, 4, 6]
    table.write_text(ROWS.replace("4,5,6", "40,5"))
    assert lines_of(tmp_path / "out") == [3, None, None]
    table.unlink()
    assert lines_of(tmp_path / "out") == [None, None, None]
    assert "x.csv byte 8: expected" in recordmill("rejects", tmp_path / "out").out
    (tmp_path / "out" / "run.json").unlink()
    assert lines_of(tmp_path / "out") == [None, None, None]


def test_rejects_beyond_those_that_are_counted() -> None:
    rejects = [Reject("x", n, "bad", b"") for n in range(5)]
    assert [(k.kind, k.rows) for k in count_kinds(rejects, 12)] == [
        ("bad", 5),
        (NOT_COUNTED, 7),
    ]


def test_further_reasons_are_told() -> None:
    def told(*reasons: str, total: int = 0) -> list[str]:
        rejects = [Reject("x", 0, reason, b"") for reason in reasons]
        return kind_lines(count_kinds(rejects, total))

    assert len(told("a", "b", "c")) == 3
    assert told("a", "b", "c", "d")[3:] == ["and 1 more reason (1 row)"]
    assert told("a", "b", "c", "d", "e", "e", "e", "d")[3:] == [
        "and 2 more reasons (2 rows)"
    ]
    assert told("a", total=3)[1:] == ["and 2 rows: not counted"]
    many = told(*("bad " + "a" * number for number in range(MAX_KINDS + 5)))
    assert many[3:] == ["and 997 more reasons (997 rows)", "and 5 rows: other reasons"]


def test_rows_of_a_pipeline() -> None:
    line = b'{"uri": null, "position": null, "reason": "bad", "raw": "eA=="}'
    assert UNKNOWN_INPUT.describe(parse_reject(line, "")) == "a row of the pipeline"
