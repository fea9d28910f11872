"""Damaged text: each line, or each file, is a row as Python reads it, or a reject."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from random import Random

import pytest
from mutations import damaged, try_all
from source_tools import read

from recordmill.transforms.sources import lines
from recordmill.transforms.sources.lines import TextSource
from recordmill.transforms.sources.text_files.options import TextOptions
from recordmill.transforms.sources.text_files.source import TextFilesSource

pytestmark = pytest.mark.fuzz
BOM = b"\xef\xbb\xbf"


def text(random: Random) -> bytes:
    words = ["one", "caf\xe9", "", " ", "\u2028", "\x85", "\r", "\U0001f600" * 9]
    ends = ["\n", "\r\n"]
    found = [
        random.choice(words) + random.choice(ends) for _ in range(random.randrange(9))
    ]
    return random.choice([b"", BOM]) + "".join(found).encode() + b"last"


def as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def test_damaged_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.txt"

    def attempt(number: int) -> bool:
        random = Random(number)
        data = damaged(text(random), number)
        packed = (gzip.compress, bz2.compress, bytes, bytes)[number % 4](data)
        path.write_bytes(packed)
        monkeypatch.setattr(lines, "BATCH_BYTES", random.choice([7, 1 << 20]))
        keeps_blank = random.random() < 0.5
        source = TextSource(
            keeps_blank_lines=keeps_blank, range_bytes=random.choice([9, 1 << 20])
        )
        reading = read(source, path)
        every = data.removeprefix(BOM).split(b"\n")
        every = every if every[-1] else every[:-1]
        every = [line.removesuffix(b"\r") for line in every]
        expected = [line for line in every if line or keeps_blank]
        found = [as_text(line) for line in expected]
        assert [row["text"] for row in reading.rows] == [
            line for line in found if line is not None
        ]
        assert [each.raw for each in reading.rejects] == [
            line for line, read in zip(expected, found, strict=True) if read is None
        ]
        return True

    try_all(attempt, str(path), "input file")


def test_damaged_files(tmp_path: Path) -> None:
    """In folders of classes: what is not UTF-8 is a reject."""
    names = [f"{label}/{n}.txt" for label in "ab" for n in range(2)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text(Random(7)))

    def attempt(number: int) -> bool:
        name, data = names[number % 4], damaged(text(Random(number)), number)
        before = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data)
        try:
            reading = read(TextFilesSource(TextOptions(whole_files=True)), tmp_path)
        finally:
            (tmp_path / name).write_bytes(before)
        rows = {row["filename"]: row for row in reading.rows}
        aside = {each.path for each in reading.rejects}
        assert sorted([*rows, *aside]) == names
        if name in rows:
            assert rows[name]["text"] == as_text(data.removeprefix(BOM))
        else:
            assert as_text(data) is None
        assert all(row["label"] == "ab".index(path[0]) for path, row in rows.items())
        return name in rows

    try_all(attempt)
