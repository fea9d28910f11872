"""Damages binary files where their formats keep lengths, offsets and counts."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from mutations import damaged
from pixel_zoo import big_endian_tiff, encode
from sounds import sound

from recordmill.transforms.tfrecord import crc32c

_ODD_INTEGERS = (
    *(0, 1, 2, 0x7F, 0x80, 0xFF, (1 << 15) - 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1),
    *((1 << 32) + 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 8),
)
_ODD_SHAPES = (
    *("(1152921504606846976,)", "(-1,)", "(4294967296, 4294967296)", "(3, 0)", "()"),
    *(
        "(9223372036854775807,)",
        "(3, 1 << 40)",
        "None",
        "(True,)",
        "(1e3,)",
        "(3,)" * 9,
    ),
)
_ODD_DTYPES = (
    *(
        "'|O'",
        "'|O8'",
        "'<i8'",
        "'|V0'",
        "'|S0'",
        "'<U2147483647'",
        "'<f16'",
        "'<M8[ns]'",
    ),
    *("[('a', '|O')]", "[('a', '<i4', (1152921504606846976,))]", "[]", "'x'", "b'<i4'"),
    "[" * 300 + "]" * 300,
)


@dataclass(frozen=True)
class Field:
    """An integer in a file."""

    offset: int
    width: int = 4
    order: str = "<"


def with_odd_integer(data: bytes, fields: Sequence[Field], random: Random) -> bytes:
    """Returns a file in which one of the integers is another one."""
    field = random.choice(fields)
    old = data[field.offset : field.offset + field.width]
    number = int.from_bytes(old, "little" if field.order == "<" else "big")
    near = (number + random.choice((-1, 1, 7)), number * 2, number ^ 0x80)
    new = random.choice((*_ODD_INTEGERS, *near)) % (1 << 8 * field.width)
    changed = new.to_bytes(field.width, "little" if field.order == "<" else "big")
    return data[: field.offset] + changed[: len(old)] + data[field.offset + len(old) :]


def spliced(data: bytes, other: bytes, random: Random) -> bytes:
    """Returns the start of a file and the end of another one."""
    at = random.randrange(len(data) + 1)
    return data[:at] + other[random.choice((at, random.randrange(len(other) + 1))) :]


def _words(start: int, stop: int, width: int = 4) -> list[Field]:
    return [Field(at, width) for at in range(start, stop - width + 1, 4)]


def _table(number: int) -> pa.Table:
    random = Random(number)
    rows = random.randrange(1, 40)
    texts = random.choices(["a", "caf\xe9", "", None, "x" * 30], k=rows)
    lists = [[1.5] * (n % 4) for n in range(rows)]
    pairs = [None if n == 3 else {"s": str(n), "y": [n] * (n % 3)} for n in range(rows)]
    return pa.table(
        {
            "n": random.choices([1, None, 1 << 40], k=rows),
            "t": pa.array(texts, pa.string()),
            "d": pa.array(texts, pa.string()).dictionary_encode(),
            "w": pa.array(
                [bytes([n]) * (n % 20) for n in range(rows)], pa.large_binary()
            ),
            "v": pa.array([text and text * 2 for text in texts], pa.string_view()),
            "l": lists,
            "b": pairs,
            "f": pa.array([bytes(3)] * rows, pa.binary(3)),
            "u": _beside_odd_text(rows),
        }
    )


def _beside_odd_text(rows: int) -> pa.StructArray:
    """Text of which one is not UTF-8, and lists behind it with offsets to damage."""
    offsets = pa.py_buffer(np.arange(rows + 1, dtype=np.int32))
    text = pa.Array.from_buffers(
        pa.string(), rows, [None, offsets, pa.py_buffer(b"\xff" + b"a" * rows)]
    )
    lists = pa.array([["x", "yy"][: n % 3] for n in range(rows)], pa.list_(pa.string()))
    return pa.StructArray.from_arrays([text, lists], ["s", "y"])


def _parquet(number: int) -> bytes:
    file = io.BytesIO()
    table = _table(number).drop_columns(["v"])
    compression = ("none", "snappy", "zstd", "gzip")[number % 4]
    pages = {"data_page_version": ("1.0", "2.0")[number % 2], "row_group_size": 16}
    pq.write_table(table, file, compression=compression, data_page_size=64, **pages)
    return file.getvalue()


def _parquet_fields(data: bytes) -> list[Field]:
    """The footer's length, twice as often; its bytes; those of all page headers."""
    (size,) = struct.unpack("<I", data[-8:-4])
    footer = range(len(data) - 8 - size, len(data) - 8)
    fields = [Field(len(data) - 8)] * 20
    fields += [Field(at, width) for at in footer for width in (1, 2)]
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            for start in {column.data_page_offset, column.dictionary_page_offset or 4}:
                fields += [Field(start + at, 1) for at in range(60)]
    return fields


def _arrow(number: int, *, is_stream: bool) -> bytes:
    file = io.BytesIO()
    table = _table(number)
    make = pa.ipc.new_stream if is_stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(
        compression=(None, None, "lz4", "zstd")[number % 4]
    )
    with make(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=16)
    return file.getvalue()


def _npz(number: int) -> bytes:
    file = io.BytesIO()
    save = np.savez_compressed if number % 2 else np.savez
    random = np.random.default_rng(number)
    rows = 1 + number % 9
    images = random.integers(0, 256, (rows, 4, 3), np.uint8)
    save(file, x=images, y=np.arange(rows), t=np.array(["caf\xe9", "x"] * rows)[:rows])
    return file.getvalue()


def _zip_fields(data: bytes) -> list[Field]:
    fields = []
    for mark, widths in (
        (b"PK\3\4", (2, 2, 2, 2, 2, 4, 4, 4, 2, 2)),
        (b"PK\1\2", (2, 2, 2, 2, 2, 2, 4, 4, 4, 2, 2, 2, 2, 2, 4, 4)),
        (b"PK\5\6", (2, 2, 2, 2, 4, 4, 2)),
    ):
        at = data.find(mark)
        while at >= 0:
            offset = at + 4
            for width in widths:
                fields.append(Field(offset, width))
                offset += width
            at = data.find(mark, at + 4)
    return fields


def _npy(header: str, body: bytes) -> bytes:
    text = header.encode("latin-1", "replace")
    return b"\x93NUMPY\2\0" + struct.pack("<I", len(text)) + text + body


def _odd_npz(data: bytes, random: Random) -> bytes:
    """Returns an archive whose arrays have headers that were written to do harm."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", random.choice((0, 8))) as archive:
        shape = random.choice(("(3,)", *_ODD_SHAPES))
        dtype = random.choice(("'<i4'", *_ODD_DTYPES))
        header = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}}}\n"
        header = random.choice((header, header, header, "9" * 70_000, "{" * 9_000))
        archive.writestr(
            random.choice(("x.npy", "x", "../x.npy")), _npy(header, data[:90])
        )
        archive.writestr("y.npy", _npy_of(np.arange(3)))
    return file.getvalue()


def _npy_of(array: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _framed(payload: bytes, length: int | None = None) -> bytes:
    size = struct.pack("<Q", len(payload) if length is None else length)
    return b"".join((size, _masked(crc32c(size)), payload, _masked(crc32c(payload))))


def _masked(crc: int) -> bytes:
    rotated = ((crc >> 15) | (crc << 17)) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


def _payloads(number: int) -> list[bytes]:
    pairs = {"n": b"\x1a\x03\x0a\x01\x05", "t": b"\x0a\x06\x0a\x04caf\xc3"}
    pairs["f"] = b"\x12\x06\x0a\x04\0\0\0\x40"
    payloads = []
    for row in range(1 + number % 5):
        entries = b""
        for name, feature in list(pairs.items())[: 1 + row % 3]:
            entry = (
                b"\x0a\x01" + name.encode() + b"\x12" + bytes([len(feature)]) + feature
            )
            entries += b"\x0a" + bytes([len(entry)]) + entry
        payloads.append(b"\x0a" + bytes([len(entries)]) + entries)
    return payloads


def _tfrecord(number: int) -> bytes:
    return b"".join(map(_framed, _payloads(number)))


def _odd_tfrecord(_: bytes, random: Random) -> bytes:
    """Returns records with right checksums around wrong lengths and examples."""
    frames = []
    for payload in _payloads(random.randrange(9)):
        action = random.randrange(4)
        if action == 0:
            frames.append(_framed(payload, random.choice(_ODD_INTEGERS)))
        elif action == 1:
            fields = [Field(at, 1) for at in range(len(payload))]
            frames.append(_framed(with_odd_integer(payload, fields, random)))
        else:
            frames.append(_framed(damaged(payload, random.randrange(1 << 30))))
    return b"".join(frames)


def _wav(number: int) -> bytes:
    forms = ("u8.wav", "16.wav", "24.wav", "float.wav", "extensible.wav", "rf64.wav")
    return sound(forms[number % len(forms)], 400, 1 + number % 2)


def _tiff(number: int) -> bytes:
    if number % 5 == 0:
        return big_endian_tiff()
    mode = ("RGB", "L", "RGBA", "I;16", "1")[number % 5]
    return encode(mode, "TIFF", (20, 15))


def _tiff_fields(data: bytes) -> list[Field]:
    """All integers of the first directory, and the place of the next one."""
    order = "<" if data[:2] == b"II" else ">"
    (start,) = struct.unpack(f"{order}I", data[4:8])
    (count,) = struct.unpack(f"{order}H", data[start : start + 2])
    fields = [Field(4, 4, order), Field(start, 2, order)]
    for at in range(start + 2, start + 2 + 12 * count, 12):
        fields += [Field(at, 2, order), Field(at + 2, 2, order)]
        fields += [Field(at + 4, 4, order), Field(at + 8, 4, order)]
    return [*fields, Field(start + 2 + 12 * count, 4, order)]


@dataclass(frozen=True)
class Kind:
    """A kind of file: how one is made, and what is changed in it."""

    format: str  # of `recordmill convert`
    path: str  # below the input
    make: Callable[[int], bytes]
    fields: Callable[[bytes], list[Field]]
    options: tuple[tuple[str, ...], ...] = ((),)
    odd: Callable[[bytes, Random], bytes] | None = None  # made to do harm

    def file(self, number: int) -> bytes:
        """Returns a damaged file, the same for each number."""
        random = Random(number)
        data = self.make(number % 24)
        action = random.randrange(10)
        if action < 2:
            return damaged(data, number)
        if action == 2:
            return spliced(data, self.make((number + 1) % 24), random)
        if action < 6 and self.odd is not None:
            return self.odd(data, random)
        for _ in range(random.choice((1, 1, 2))):
            data = with_odd_integer(data, self.fields(self.make(number % 24)), random)
        return data


KINDS = {
    "parquet": Kind("parquet", "in.parquet", _parquet, _parquet_fields),
    "arrow": Kind(
        "arrow",
        "in.arrow",
        lambda number: _arrow(number, is_stream=False),
        lambda data: _words(8, len(data)),
    ),
    "arrow-stream": Kind(
        "arrow",
        "in.arrows",
        lambda number: _arrow(number, is_stream=True),
        lambda data: _words(0, len(data)),
    ),
    "npz": Kind("numpy", "in.npz", _npz, _zip_fields, odd=_odd_npz),
    "tfrecord": Kind(
        "tfrecord",
        "in.tfrecord",
        _tfrecord,
        lambda data: [Field(0, 8), *_words(0, len(data))],
        odd=_odd_tfrecord,
    ),
    "wav": Kind(
        "audio",
        "dog/in.wav",
        _wav,
        lambda data: [*_words(4, 80), *(Field(at, 2) for at in range(20, 60, 2))],
        options=(
            ("--check-audio", "structure"),
            ("--check-audio", "decode"),
            ("--audio", "raw"),
        ),
    ),
    "tiff": Kind(
        "images",
        "dog/in.tiff",
        _tiff,
        _tiff_fields,
        options=(
            (),
            ("--check-images", "decode"),
            ("--resize", "8x8"),
            ("--pixels", "raw"),
        ),
    ),
}
