"""Standard input as an input: a file of its own for the time of the run."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from job_tools import Ran, convert, examples_of, recordmill

ROWS = b"id,name\n" + b"".join(b"%d,n%d\n" % (n, n) for n in range(300))


class Pipe(io.BytesIO):
    """What stands before the command in a pipe; gives a few bytes at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.buffer = self

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 100, 100))


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: str | Path) -> Ran:
    monkeypatch.setattr("sys.stdin", Pipe(data))
    return recordmill(*arguments)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pipe_is_converted_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes are the same dataset, others are another one; no file is left."""
    (folder / "in.csv").write_bytes(ROWS)
    convert("csv", "in.csv", "file")
    command = ("convert", "csv", "-", "out")
    assert piped(monkeypatch, ROWS, *command, "--plan").status == 0
    assert not (folder / "out").exists()
    assert piped(monkeypatch, ROWS, *command).status == 0
    assert sorted(map(str, examples_of(folder / "out"))) == sorted(
        map(str, examples_of(folder / "file"))
    )
    assert "nothing to do" in piped(monkeypatch, ROWS, *command).err
    other = piped(monkeypatch, ROWS + b"8,x\n", *command)
    assert (other.status, "1 new (stdin-" in other.err) == (73, True)
    packed = gzip.compress(ROWS)
    assert piped(monkeypatch, packed, "convert", "csv", "-", "packed").status == 0
    lines = b'{"a": 1}\n' * 3
    assert piped(monkeypatch, lines, "convert", "jsonl", "-", "lines").status == 0
    assert len([*examples_of(folder / "packed")]) == 300
    names = {path.name for path in folder.iterdir()}
    assert names == {"in.csv", "file", "out", "packed", "lines"}


def test_what_a_killed_process_left_is_removed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = folder / ".recordmill-stdin-1"
    left.mkdir()
    (left / "lock").touch()
    (left / "stdin").write_bytes(ROWS)
    assert piped(monkeypatch, b"", "convert", "csv", "-", "out").status == 65
    assert not left.exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-", "in.csv", "out"), "has to be the only input"),
        (("-", "out", "--append"), "write each into a file of one folder"),
        (
            ("-", "out", "--", "--runner=FlinkRunner"),
            "write it to a file that they can",
        ),
    ],
)
def test_what_cannot_be_read_twice_is_refused(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    problem: str,
) -> None:
    ran = piped(monkeypatch, ROWS, "convert", "csv", *arguments)
    assert ran.status == 2, ran.err
    assert problem in ran.err
    assert not [*folder.iterdir()]


def test_an_empty_pipe_is_an_error_and_a_file_may_have_this_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = piped(monkeypatch, b"", "convert", "csv", "-", "out")
    assert (ran.status, "standard input is empty" in ran.err) == (65, True)
    ran = recordmill("schema", "infer", "csv", "-")
    assert "a file of this name is ./-" in ran.err
    (folder / "-").write_bytes(ROWS)
    convert("csv", "./-", "out")
