"""Rows that cannot be converted: where they go, how they are kept, shown and counted."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from http_receiver import file_server
from job_tools import (
    IRIS,
    SAMPLES,
    assert_unpublished,
    assert_whole,
    convert,
    manifest_of,
    recordmill,
)
from killed_runs import failing
from same_dataset import dataset_of

from recordmill.beam_jobs.report.tables import BYTE_POSITIONS
from recordmill.schemas.dataset_text import parse_reject
from recordmill.schemas.errors import OutputError
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.progress_reader import TaskMonitor, run_progress
from recordmill.transforms.tasks.rejects import (
    MAX_KINDS,
    NOT_COUNTED,
    OTHER_KINDS,
    UNKNOWN_INPUT,
    count_kinds,
    kind_lines,
)
from recordmill.transforms.tasks.workspace import Workspace


@dataclass(frozen=True)
class Spoilt:
    """An input with one row that cannot be converted.

    Attributes:
      source: the format.
      path: what to convert.
      rows: rows in it, the wrong one included.
      uri: the wrong row's file below the input.
      position: byte offset of the wrong row in it.
      reason: part of the reason expected.
      raw: the wrong row's bytes.
    """

    source: str
    path: Path
    rows: int
    uri: str
    position: int
    reason: str
    raw: bytes


def truncated_cifar(folder: Path) -> Spoilt:
    folder.mkdir()
    whole = (SAMPLES / "cifar" / "data_batch_1.bin").read_bytes()
    (folder / "data_batch_1.bin").write_bytes(whole[:-73])
    start = 159 * 3073
    return Spoilt(
        source="cifar",
        path=folder,
        rows=160,
        uri="data_batch_1.bin",
        position=start,
        reason="3,000 bytes at the end of the file, expected a whole cifar10 record",
        raw=whole[start:-73],
    )


def wrong_column_count(folder: Path) -> Spoilt:
    folder.mkdir()
    lines = IRIS.read_bytes().splitlines(keepends=True)
    wrong = b'6.0,"two\nlines",3.0,4.0,"wr""ong",1\n'
    lines[100:100] = [wrong]
    (folder / "iris.csv").write_bytes(b"".join(lines))
    return Spoilt(
        source="csv",
        path=folder,
        rows=151,
        uri="iris.csv",
        position=len(b"".join(lines[:100])),
        reason="6",
        raw=wrong.rstrip(b"\n"),
    )


def text_named_jpg(folder: Path) -> Spoilt:
    shutil.copytree(SAMPLES / "images", folder)
    for number in range(90):
        shutil.copy(folder / "animals" / "horse.png", folder / f"animals/{number}.png")
    wrong = b"this is no image\n"
    (folder / "medicine" / "wrong.jpg").write_bytes(wrong)
    return Spoilt(
        source="images",
        path=folder,
        rows=101,
        uri="medicine/wrong.jpg",
        position=0,
        reason="",
        raw=wrong,
    )


MAKERS: list[Callable[[Path], Spoilt]] = [
    truncated_cifar,
    wrong_column_count,
    text_named_jpg,
]


def rejects_in(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.open(encoding="utf-8")]


def assert_reject(reject: dict[str, Any], spoilt: Spoilt) -> None:
    assert list(reject) == ["uri", "position", "code", "reason", "raw"]
    assert reject["uri"] == spoilt.uri
    assert reject["position"] == spoilt.position
    assert spoilt.reason in reject["reason"]
    assert reject["reason"]
    assert base64.b64decode(reject["raw"], validate=True) == spoilt.raw


@pytest.mark.parametrize("make", MAKERS)
def test_no_reject_by_default(tmp_path: Path, make: Callable[[Path], Spoilt]) -> None:
    """And the way out: as many as are allowed."""
    spoilt = make(tmp_path / "in")
    output = tmp_path / "out"
    job = ("convert", spoilt.source, spoilt.path, output)
    ran = recordmill(*job)
    assert (ran.status, ran.out) == (65, "")
    assert_unpublished(output)
    (folder,) = output.glob(".recordmill/*/rejects")
    assert f"1 of {spoilt.rows} rows rejected (limit 0):\n  1 x " in ran.err
    where = "line 101" if spoilt.source == "csv" else f"byte {spoilt.position:,}"
    assert f"first at {spoilt.uri} {where}: " in ran.err
    assert "--max-rejects" in ran.err
    (reject,) = rejects_in(folder)
    assert_reject(reject, spoilt)

    told = convert(*job[1:], "--max-rejects", "1%").err
    assert f"1 row rejected, kept in {output / 'rejects'}" in told
    assert re.search(rf"    1 x .*; first at {spoilt.uri} {where}: ", told)
    manifest = manifest_of(output)
    assert (manifest["rows_read"], manifest["rows_rejected"]) == (spoilt.rows, 1)
    records = sum(split["records"] for split in manifest["splits"].values())
    assert records == spoilt.rows - 1
    (reject,) = rejects_in(output / "rejects")
    assert_reject(reject, spoilt)
    assert_whole(output)
    ran = convert(*job[1:], "--max-rejects", "1%", "--overwrite", "--seed=1", "--json")
    facts = json.loads(ran.out)
    assert facts["rejects"] == str(output / "rejects")
    assert [reason["rows"] for reason in facts["reasons"]] == [1]


@pytest.mark.parametrize(
    ("limit", "wrong_rows", "status"),
    [
        ("1", 1, 0),  # a count
        ("1", 2, 65),
        ("2%", 2, 0),  # exactly the share of 100 rows
        ("1.99%", 2, 65),  # a share is not rounded up
        ("0%", 1, 65),
        ("100%", 100, 65),  # no record to write
    ],
)
def test_limit(tmp_path: Path, limit: str, wrong_rows: int, status: int) -> None:
    rows = ["1,2"] * (100 - wrong_rows) + ["1"] * wrong_rows
    (tmp_path / "in.csv").write_text("\n".join(["a,b", *rows, ""]))
    output = tmp_path / "out"
    options = ["--max-rejects", limit]
    ran = recordmill("convert", "csv", tmp_path / "in.csv", output, *options)
    assert ran.status == status, ran.err
    if status:
        assert_unpublished(output)
    else:
        assert len(rejects_in(output / "rejects")) == wrong_rows


def test_a_log_tells_the_reasons(tmp_path: Path) -> None:
    spoilt = wrong_column_count(tmp_path / "in")
    options = ["--max-rejects", "1", "--log-format", "json"]
    ran = convert("csv", spoilt.path, tmp_path / "out", *options)
    events = [json.loads(line) for line in ran.err.splitlines()]
    [event] = [each for each in events if each["event"] == "rows_rejected"]
    assert event["reasons"] == [
        {"code": "row", "reason": "expected # columns, found #", "rows": 1}
    ]


@pytest.mark.parametrize("first", ["scratch", "reference"])
@pytest.mark.parametrize("make", [truncated_cifar, text_named_jpg])
def test_counted_once_when_the_exchange_changes(
    tmp_path: Path, make: Callable[[Path], Spoilt], first: str
) -> None:
    """A run that failed goes on with another exchange, which rejects in other tasks."""
    spoilt = make(tmp_path / "in")
    output = tmp_path / "out"
    job = ["convert", spoilt.source, str(spoilt.path), str(output), "--max-rejects=1"]
    with failing("stage"):
        assert recordmill(*job, "--exchange", first).status == 1
    other = "reference" if first == "scratch" else "scratch"
    ran = recordmill(*job, "--exchange", other)
    assert ran.status == 0, ran.err
    assert len(rejects_in(output / "rejects")) == 1
    assert manifest_of(output)["rows_rejected"] == 1
    assert_whole(output)


ROWS = "a,b\n1,2\n3\n4,5,6\n7,8\n9\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "in" / "x.csv"
    file.parent.mkdir()
    file.write_text(ROWS)
    return file


def test_of_a_dataset(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    options = ("--rows", 1, "--input-root", table.parent)
    ran = recordmill("rejects", tmp_path / "out", *options)
    assert ran.status == 0
    assert "3 rows rejected\n" in ran.out
    assert "byte offsets" not in ran.out
    assert "#" not in ran.out  # a real reason
    assert re.search(r" 3 +expected 2 columns, found 1 +x.csv line 3", ran.out)
    assert "x.csv line 3: expected 2 columns, found 1" in ran.out
    assert '"3"' in ran.out
    assert '"4,5,6"' not in ran.out


def test_of_a_run_that_failed(table: Path, tmp_path: Path) -> None:
    assert recordmill("convert", "csv", table, tmp_path / "out").status == 65
    root = ("--input-root", table.parent)
    ran = recordmill("rejects", tmp_path / "out", "--json", *root)
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


def test_in_a_store(table: Path) -> None:
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
    assert set(lines_of(tmp_path / "out", table.parent)) == {None}


def test_the_command_that_an_error_names(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    table.write_text(ROWS + "10\n")
    output: list[str | Path] = [tmp_path / "out", "--overwrite"]
    remote = ["memory://rejects-message/out", "--scratch", tmp_path / "scratch"]
    for arguments in (output, remote):
        ran = recordmill("convert", "csv", table, *arguments)
        [line] = [
            line for line in ran.err.splitlines() if "To list all of them: " in line
        ]
        command = line.strip().removeprefix("To list all of them: recordmill ")
        ran = recordmill(*command.partition(". ")[0].split(), "--json")
        assert json.loads(ran.out)["rows_rejected"] == 4


def test_nothing_there(tmp_path: Path) -> None:
    ran = recordmill("rejects", tmp_path / "out")
    assert ran.status == 65
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
    assert (kinds[0].kind, kinds[0].num_rows) == (OTHER_KINDS, 2_000 - MAX_KINDS)


@pytest.mark.parametrize("line", [b"", b"[]", b"{}", b'{"uri": 1}', b"\xff"])
def test_a_line_that_is_no_reject(line: bytes) -> None:
    with pytest.raises(OutputError, match=r"file: line 3: not a valid reject: "):
        parse_reject(line, "file: line 3")


def lines_of(output: Path, root: Path | str) -> list[int | None]:
    """The lines of the rejects, by the inputs below a root."""
    ran = recordmill("rejects", output, "--json", "--input-root", root)
    assert ran.status == 0, ran.err
    return [row["line"] for row in json.loads(ran.out)["rows"]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_numbers(tmp_path: Path, end: str) -> None:
    """Lines of the file, not rows: a quoted cell may have several."""
    table = tmp_path / "x.csv"
    text = 'a,b\n1,"two\nlines"\n3\n4,5,6\n7,8\n9\n'
    table.write_bytes(text.replace("\n", end).encode())
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    assert lines_of(tmp_path / "out", tmp_path) == [4, 5, 7]


def test_no_line_numbers_of_an_input_that_changed(table: Path, tmp_path: Path) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    assert lines_of(tmp_path / "out", table.parent) == [3, 4, 6]
    table.write_text(ROWS.replace("4,5,6", "40,5"))
    assert lines_of(tmp_path / "out", table.parent) == [3, None, None]
    root = ("--input-root", table.parent)
    ran = recordmill("rejects", tmp_path / "out", *root)
    assert f"No line number: {table}: the rejected row is not at byte 10; " in ran.out
    table.unlink()
    assert lines_of(tmp_path / "out", table.parent) == [None, None, None]
    ran = recordmill("rejects", tmp_path / "out", *root)
    assert "x.csv byte 8: expected" in ran.out
    assert f"No line number: {table}: cannot be read: No such file" in ran.out
    (tmp_path / "out" / "run.json").unlink()
    assert lines_of(tmp_path / "out", table.parent) == [None, None, None]


def test_the_inputs_are_read_only_below_a_root_that_the_user_names(
    table: Path, tmp_path: Path
) -> None:
    convert("csv", table, tmp_path / "out", "--max-rejects", 3)
    ran = recordmill("rejects", tmp_path / "out")
    assert "x.csv byte 8: expected 2 columns, found 1\n" in ran.out
    assert ran.out.endswith(f"{BYTE_POSITIONS}\n")
    found = json.loads(recordmill("rejects", tmp_path / "out", "--json").out)
    assert [row["line"] for row in found["rows"]] == [None] * 3
    assert found["notes"] == [BYTE_POSITIONS]
    page = tmp_path / "page.html"
    for options, shown in (
        ([], BYTE_POSITIONS),
        (["--input-root", table.parent], "x.csv line 3"),
    ):
        assert recordmill("report", tmp_path / "out", "-o", page, *options).status == 0
        assert (shown in page.read_text()) == bool(shown)
        assert ("byte offsets" in page.read_text()) == (not options)


def name_in_rejects(output: Path, uri: str) -> None:
    [file] = (output / "rejects").iterdir()
    file.write_bytes(file.read_bytes().replace(b"x.csv", uri.encode()))


def make_fifo(folder: Path) -> None:
    os.mkfifo(folder / "y.csv")


def make_link_to_fifo(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "y.csv").symlink_to("pipe")


def make_link_outside(folder: Path) -> None:
    (folder.parent / "outside.csv").write_text(ROWS)
    (folder / "y.csv").symlink_to("../outside.csv")


def make_folder_link_outside(folder: Path) -> None:
    (folder.parent / "other").mkdir()
    (folder.parent / "other" / "y.csv").write_text(ROWS)
    (folder / "z").symlink_to("../other")


def make_link_inside(folder: Path) -> None:
    (folder / "y.csv").symlink_to("x.csv")


@pytest.mark.parametrize(
    ("make", "uri", "problem"),
    [
        (make_fifo, "y.csv", "y.csv: not a regular file, so it is not read"),
        (make_link_to_fifo, "y.csv", "y.csv: not a regular file, so it is not read"),
        (make_link_outside, "y.csv", "outside.csv, which is not below"),
        (make_folder_link_outside, "z/y.csv", "other/y.csv, which is not below"),
        (make_link_outside, "../outside.csv", "expected a relative path like a/b"),
        (make_link_outside, "/dev/zero", "expected a relative path like a/b"),
        (make_link_inside, "y.csv", ""),
    ],
)
def test_what_a_reject_names_elsewhere_is_not_read(
    table: Path, tmp_path: Path, make: Callable[[Path], None], uri: str, problem: str
) -> None:
    output = tmp_path / "out"
    convert("csv", table, output, "--max-rejects", 3)
    make(table.parent)
    name_in_rejects(output, uri)
    ran = recordmill("rejects", output, "--input-root", table.parent)
    assert (ran.status, ran.err) == (0, "")
    assert f"{uri} {'byte 8' if problem else 'line 3'}: expected" in ran.out
    assert ("No line number: " in ran.out) == bool(problem)
    assert problem in ran.out


@pytest.mark.parametrize("path", ["whole", "unsized"])
def test_a_root_that_is_a_url(table: Path, tmp_path: Path, path: str) -> None:
    """One server sends no Content-Length, so no part of its files can be read."""
    output = tmp_path / "out"
    convert("csv", table, output, "--max-rejects", 3)
    with file_server(table.read_bytes()) as url:
        ran = recordmill("rejects", output, "--input-root", f"{url}/{path}")
    assert ran.status == 0, ran.err
    assert ("x.csv line 3: expected" in ran.out) == (path == "whole")
    assert ("the server sends no Content-Length" in ran.out) == (path == "unsized")


def test_a_root_with_a_secret(tmp_path: Path) -> None:
    ran = recordmill("rejects", tmp_path, "--input-root", "http://u:SECRET@h/x")
    assert ran.status == 2
    assert "the URL contains a secret" in ran.err
    assert "SECRET" not in ran.err


def test_rejects_beyond_those_that_are_counted() -> None:
    rejects = [Reject("x", n, "bad", b"") for n in range(5)]
    assert [(k.kind, k.num_rows) for k in count_kinds(rejects, 12)] == [
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


OPTIONS = ("--shards", 2, "--max-rejects", "50%")


@pytest.fixture(scope="module")
def hundred_rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("in") / "t.csv"
    lines = [f"{n},{n}" if n % 10 else f"{n}" for n in range(1, 101)]
    file.write_text("\n".join(["a,b", *lines, ""]))
    return file


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in") / "images"
    shutil.copytree(SAMPLES / "images", folder)
    for name in ("one.jpg", "two.jpg"):
        (folder / "medicine" / name).write_text(f"{name} is no image\n")
    return folder


def lose(file: Path) -> None:
    file.unlink()


def change(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b'"position": ', b'"position":1'))


def lose_a_line(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))


DAMAGES = [lose, change, lose_a_line]


@pytest.mark.parametrize("damage", DAMAGES)
def test_lost_ones_are_seen_and_made_anew(
    hundred_rows: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    output = tmp_path / "out"
    convert("csv", hundred_rows, output, *OPTIONS)
    assert manifest_of(output)["rejects"]["rows"] == 10
    before = dataset_of(output)
    [file] = (output / "rejects").iterdir()
    damage(file)
    found = verify_dataset(str(output)).problems
    assert [(problem.file, problem.kind) for problem in found] == [
        ("rejects", "damage")
    ]
    assert verify_dataset(str(output), full=False).is_undamaged == (damage is change)
    if damage is not change:
        ran = recordmill("rejects", output)
        lost = 1 if damage is lose_a_line else 10
        assert f"{lost} of the 10 rejects " in ran.err
        assert "Convert again with --overwrite" in ran.err
    ran = convert("csv", hundred_rows, output, *OPTIONS, "--overwrite", "--json")
    assert json.loads(ran.out)["status"] == "done"
    assert dataset_of(output) == before
    assert_whole(output)
    assert recordmill("rejects", output).err == ""


def test_made_anew_with_another_exchange(images: Path, tmp_path: Path) -> None:
    """Its rejects are in files of other names; the old ones are not counted again."""
    output = tmp_path / "out"
    job = ("images", images, output, *OPTIONS)
    convert(*job, "--exchange", "reference")
    before = dataset_of(output)
    old = {file.name for file in (output / "rejects").iterdir()}
    next((output / "rejects").iterdir()).write_bytes(b"")
    convert(*job, "--exchange", "scratch", "--overwrite", "--grace", "0")
    assert_whole(output)
    assert not old & {file.name for file in (output / "rejects").iterdir()}
    after = dataset_of(output)
    assert {n: after[n] for n in after if not n.startswith("rejects")} == {
        n: before[n] for n in before if not n.startswith("rejects")
    }


def test_every_exchange_gives_the_same_manifest(
    images: Path, hundred_rows: Path, tmp_path: Path
) -> None:
    for source, inputs, exchanges in (
        ("images", images, ("scratch", "reference", "engine")),
        ("csv", hundred_rows, ("scratch", "engine")),
    ):
        manifests = []
        for exchange in exchanges:
            output = tmp_path / exchange / source
            convert(source, inputs, output, *OPTIONS, "--exchange", exchange)
            manifests.append((output / "manifest.json").read_bytes())
            assert_whole(output)
        assert set(manifests) == {manifests[0]}
        assert json.loads(manifests[0])["rejects"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("exchange", ["scratch", "reference", "engine"])
def test_a_resumed_run_makes_lost_ones_anew(
    images: Path, tmp_path: Path, exchange: str, damage: Callable[[Path], None]
) -> None:
    output = tmp_path / "out"
    job = ["convert", "images", images, output, *OPTIONS, "--exchange", exchange]
    with failing("stage"):
        assert recordmill(*job).status == 1
    for file in output.glob(".recordmill/*/rejects/*.jsonl"):
        damage(file)
    ran = recordmill(*job)
    assert ran.status == 0, ran.err
    assert_whole(output)
    assert manifest_of(output)["rejects"]["rows"] == 2


def test_lost_between_the_last_range_and_the_commit(
    hundred_rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published; the same command mends it, as the message says."""
    from recordmill.transforms.commit import staging

    build = staging.build_manifest

    def lose_and_build(context, *arguments):  # type: ignore[no-untyped-def]
        for file in tmp_path.glob("out/.recordmill/*/rejects/*.jsonl"):
            file.unlink()
        return build(context, *arguments)

    job = ["convert", "csv", hundred_rows, tmp_path / "out", *OPTIONS]
    with monkeypatch.context() as patch:
        patch.setattr(staging, "build_manifest", lose_and_build)
        ran = recordmill(*job)
    assert ran.status == 1
    assert "rejects: 0 bytes, expected" in ran.err
    assert "run again to rewrite them" in ran.err
    assert recordmill(*job).status == 0
    assert_whole(tmp_path / "out")


def test_appended_ones_are_added(hundred_rows: Path, tmp_path: Path) -> None:
    folder, output = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    shutil.copyfile(hundred_rows, folder / "a.csv")
    job = ("csv", folder, output, *OPTIONS)
    convert(*job)
    shutil.copyfile(hundred_rows, folder / "b.csv")
    convert(*job, "--append")
    facts = manifest_of(output)
    assert facts["rows_rejected"] == 20
    assert facts["rejects"]["rows"] == 20
    assert_whole(output)
    next((output / "rejects").iterdir()).unlink()
    [problem] = verify_dataset(str(output)).problems
    assert problem.message == "10 rejects, expected 20"


@pytest.mark.parametrize("exchange", ["scratch", "reference", "engine"])
def test_counted_while_the_run_goes_on(
    images: Path, tmp_path: Path, exchange: str
) -> None:
    """Once each, whether a range, a shard or a second reading finds them."""
    output = tmp_path / "out"
    with failing("stage"):
        job = ["convert", "images", images, output, *OPTIONS, "--exchange", exchange]
        assert recordmill(*job).status == 1
    [folder] = output.glob(".recordmill/[0-9a-f]*")
    workspace = Workspace.for_run(LocalStore(str(output)), folder.name)
    finished = TaskMonitor(workspace)
    finished.poll(at_once=True)
    ranges = [InputRange(0, "", "", 0, 0, 0, 0)] * 100
    readings = 2 if exchange == "engine" else 1
    assert run_progress(finished, ranges, readings).rejected == 2
    assert run_progress(finished, ranges, readings).rejected == 2
