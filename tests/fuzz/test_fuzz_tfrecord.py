"""Damaged TFRecord files: each byte is in a record that is kept, or in a reject."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from random import Random

import pytest
from example_counts import FUZZ
from frames import frame
from mutations import try_all
from source_tools import read
from tfrecord_tools import example, hurt, whole_file

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.transforms.sources.tfrecord.source import TfrecordSource
from recordmill.transforms.tfrecord import crc32c, read_frames

pytestmark = pytest.mark.fuzz


def test_damaged_frames(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for number in range(FUZZ):
        random = Random(number)
        sizes = [random.choice([0, 1, 5, 20, 200]) for _ in range(random.randrange(8))]
        records = [random.randbytes(size) for size in sizes]
        clean = frame(records)
        data = hurt(clean, random) if random.random() < 0.7 else clean
        pack = random.choice([bytes, gzip.compress, zlib.compress])
        path.write_bytes(pack(data))
        file = whole_file(path)
        if not file.is_packed:  # as the first record of a packed file is damaged, too
            data = path.read_bytes()
        parts, kept = [], []
        stop = None if file.is_packed else len(data)
        for window in read_frames(
            file.part, 0, stop, random.choice([1, 16, 40, 1 << 20])
        ):
            kept += window.frames().to_pylist()
            parts += [window.raw(row) for row in range(len(window.starts))]
            parts += [(lost.offset, lost.raw) for lost in window.lost]
        assert b"".join(raw for _, raw in sorted(parts)) == data, number
        assert data != clean or kept == [frame([each]) for each in records]
        assert file.checksum_of_part() == crc32c(path.read_bytes())


def test_damaged_examples(tmp_path: Path) -> None:
    """Frames that are whole around examples that are damaged, and packed files."""
    path = tmp_path / "a.tfrecord"

    def attempt(number: int) -> bool:
        random = Random(number)
        examples = [
            example({"n": n, "t": random.randbytes(n % 3), "l": [n] * (n % 4)})
            for n in range(random.randrange(2, 9))
        ]
        place = random.randrange(len(examples))
        examples[place] = hurt(examples[place], random)
        data = frame(examples)
        if random.random() < 0.3:
            data = hurt(gzip.compress(data), random)
        path.write_bytes(data)
        decodes = random.random() < 0.7
        source = TfrecordSource(
            records="decode" if decodes else "keep",
            window_bytes=random.choice([60, 999]),
        )
        reading = read(source, path)
        if data == frame(examples):
            found = [raw for part in reading.parts for raw in part.raws]
            found += [(each.position, each.raw) for each in reading.rejects]
            assert b"".join(raw for _, raw in sorted(found)) == data
        return len(reading.rows) > 0

    try_all(attempt, path.name, refused=(InputError, SchemaError))
