"""Damaged TFRecord, CIFAR and image files, against readers written by the book.

RECORDMILL_FUZZ_EXAMPLES says how many inputs are tried of each kind.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from example_counts import FUZZ
from frames import frame, read_bytes
from mutations import damaged, try_all
from pixel_zoo import IMAGES
from source_tools import read

from recordmill.schemas.errors import CorruptRecordError
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeaderError
from recordmill.transforms.sources.arrays.fixed_records import CifarSource
from recordmill.transforms.sources.registry import CifarOptions
from recordmill.transforms.tfrecord import crc32c, mask

pytestmark = pytest.mark.fuzz
CIFAR_BYTES = 3073


def by_the_book(data: bytes) -> tuple[list[bytes], int | None]:
    """Reads the records of a file, and gives the offset of the first damaged one."""
    records = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        end = at + 12 + size
        parts = [(data[at : at + 8], at + 8), (data[at + 12 : end], end)]
        for part, crc_at in parts:
            crc = data[crc_at : crc_at + 4]
            if len(crc) < 4 or int.from_bytes(crc, "little") != mask(crc32c(part)):
                return records, at
        records.append(data[at + 12 : end])
        at = end + 4
    return records, None


def test_tfrecord() -> None:
    broken = 0
    for number in range(FUZZ):
        random = Random(number)
        examples = [random.randbytes(random.choice((0, 1, 9, 300))) for _ in range(4)]
        data = damaged(frame(examples), number)
        expected, offset = by_the_book(data)
        found: list[bytes] = []
        try:
            found.extend(read_bytes(data))
            at = None
        except CorruptRecordError as error:
            at = error.offset
        assert (found, at) == (expected, offset), number
        broken += offset is not None
    assert broken > FUZZ // 2


def test_cifar(tmp_path: Path) -> None:
    """A row is kept or rejected by its own bytes, and none is lost."""
    file = tmp_path / "data_batch_1.bin"
    for number in range(FUZZ):
        random = Random(number)
        records = random.randrange(1, 6)
        # A whole number of records, as the layout is told by the size, or a few bytes
        # more or less.
        size = records * CIFAR_BYTES
        data = bytearray(random.randbytes(size))
        for row in range(records):
            data[row * CIFAR_BYTES] = random.randrange(14)
        file.write_bytes(data)
        reading = read(CifarSource(options=CifarOptions(variant="cifar10")), file)
        rows = [data[row * CIFAR_BYTES] for row in range(records)]
        assert [row["label"] for row in reading.rows] == [r for r in rows if r < 10]
        bad = [row * CIFAR_BYTES for row, label in enumerate(rows) if label >= 10]
        assert [reject.position for reject in reading.rejects] == bad
        for row, start in enumerate(range(0, size, CIFAR_BYTES)):
            if rows[row] < 10:
                planes = data[start + 1 : start + CIFAR_BYTES]
                image = reading.rows[sum(r < 10 for r in rows[:row])]["image"]
                assert image[:3] == bytes([planes[0], planes[1024], planes[2048]])


def test_cifar_of_any_length(tmp_path: Path) -> None:
    """Any bytes are rows and rejects, or are refused by the name of the file."""
    file = tmp_path / "data_batch_1.bin"
    sample = bytes(CIFAR_BYTES * 3)

    def attempt(number: int) -> bool:
        file.write_bytes(damaged(sample, number))
        reading = read(CifarSource(), file)
        kept = len(reading.rows) * CIFAR_BYTES
        assert kept + sum(len(r.raw) for r in reading.rejects) == file.stat().st_size
        return True

    try_all(attempt, "data_batch_1.bin")


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_images(name: str) -> None:
    """Refused for a reason, or a header within the limits; nothing else is raised.

    What decoders make of a flipped bit among the pixels differs from one to the next.
    """
    data, _ = IMAGES[name]
    for number in range(max(5, FUZZ // len(IMAGES))):
        changed = damaged(data, number)
        try:
            header = check_image(changed, level="structure", max_pixels=10_000)
        except ImageHeaderError:
            continue
        assert 0 < header.width * header.height <= 10_000, number
        assert header.depth in range(1, 5), number
