"""Makes TFRecord files by the book, and reads them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from frames import frame

from recordmill.schemas.input_files import FileStat
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.sources.tfrecord.frames import open_range
from recordmill.transforms.storage.input_stream import InputStream

Value = bytes | int | float | Sequence[int]


def example(values: Mapping[str, Value]) -> bytes:
    """Returns a serialized example."""
    made = Example()
    for name, value in values.items():
        feature = made.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif isinstance(value, float):
            feature.float_list.value.append(value)
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.int64_list.value.extend(value)
    return made.SerializeToString(deterministic=True)


def write_examples(path: Path, rows: Sequence[Mapping[str, Value]]) -> list[bytes]:
    """Writes a TFRecord file of examples; returns them."""
    examples = [example(row) for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(frame(examples))
    return examples


def whole_file(path: Path) -> InputStream:
    """Opens a file as one range."""
    stat = path.stat()
    seen = FileStat(stat.st_size, str(stat.st_mtime_ns))
    size = stat.st_size
    return open_range(
        InputRange(0, path.name, str(path), 0, size, 0, size, stat=seen), NO_OPTIONS
    )


def hurt(data: bytes, random_: random.Random) -> bytes:
    """Returns bytes with some changed, cut out, or cut off."""
    made = bytearray(data)
    for _ in range(random_.randrange(1, 3)):
        if not made:
            break
        at = random_.randrange(len(made))
        way = random_.randrange(3)
        if way == 0:
            made[at] ^= 1 << random_.randrange(8)
        elif way == 1:
            del made[at:]
        else:
            del made[at : at + random_.randrange(1, 30)]
    return bytes(made)
