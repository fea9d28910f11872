"""Damaged JSON Lines: each line that is not blank is a row or a reject."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from random import Random

import pytest
from mutations import ODD_VALUES, damaged, try_all
from source_tools import read

from recordmill.transforms.sources import json_lines as jsonl
from recordmill.transforms.sources.json_lines import JsonLinesSource

pytestmark = pytest.mark.fuzz


def lines(random: Random) -> bytes:
    rows = [
        {"n": n, "t": f"caf\xe9 {n}", "l": [n / 4] * (n % 3), "o": {"x": n, "y": None}}
        for n in range(random.randrange(2, 9))
    ]
    row = random.choice(rows)
    row[random.choice([*row, "new"])] = random.choice(ODD_VALUES)
    return b"\n".join(json.dumps(row).encode() for row in rows)


def test_damaged_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "in.jsonl"

    def attempt(number: int) -> bool:
        random = Random(number)
        data = damaged(lines(random), number)
        path.write_bytes(data)
        monkeypatch.setattr(jsonl, "BATCH_BYTES", random.choice([50, 1 << 20]))
        source = JsonLinesSource(range_bytes=random.choice([80, 1 << 20]))
        reading = read(source, path)
        found = sorted(
            [raw for part in reading.parts for raw in part.raws]
            + [(each.position, each.raw) for each in reading.rejects]
        )
        assert [raw for _, raw in found] == [
            line.removesuffix(b"\r") for line in data.split(b"\n") if line.strip()
        ]
        assert all(data[at:].startswith(raw) for at, raw in found)
        assert all(each.reason.encode() for each in reading.rejects)
        return len(reading.rows) > 0

    try_all(attempt, str(path), "input file")


def test_damaged_compressed_lines(tmp_path: Path) -> None:
    """Give the rows and rejects of plain ones, or an error."""
    path = tmp_path / "in.jsonl"

    def attempt(number: int) -> bool:
        data = damaged(lines(Random(number)), number)
        packed = (gzip.compress, bz2.compress, lzma.compress)[number % 3](data)
        path.write_bytes(damaged(packed, number) if number % 2 else packed)
        reading = read(JsonLinesSource(), path)
        if number % 2 == 0:
            path.write_bytes(data)
            plain = read(JsonLinesSource(), path)
            assert repr(reading.rows) == repr(plain.rows)  # NaN equals none
            assert reading.rejects == plain.rejects
        return True

    try_all(attempt, str(path), "input file")
