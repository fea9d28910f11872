"""The input of the sources' contract: for each source several files, with their rows."""

from __future__ import annotations

import gzip
import io
import json
import struct
import wave
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from archive_tools import tar_of
from frames import frame
from PIL import Image
from pixel_zoo import IMAGES

from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.images.pixel_rules import PixelRules, Resize
from recordmill.transforms.sources.arrays.fixed_records import CifarSource, find_records
from recordmill.transforms.sources.arrays.headers import find_idx, find_numpy
from recordmill.transforms.sources.arrays.source import ArraysSource
from recordmill.transforms.sources.audio.options import AudioOptions
from recordmill.transforms.sources.audio.source import AudioSource
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.rows import RangeRows
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.sources.json_lines import JsonLinesSource
from recordmill.transforms.sources.lines import TextSource
from recordmill.transforms.sources.partitions import Partitions
from recordmill.transforms.sources.registry import (
    BinaryOptions,
    IdxOptions,
    NumpyOptions,
    Records,
)
from recordmill.transforms.sources.tables import ColumnarSource, TableFormat
from recordmill.transforms.sources.text_files.options import TextOptions
from recordmill.transforms.sources.text_files.source import TextFilesSource
from recordmill.transforms.sources.tfrecord.source import TfrecordSource
from recordmill.transforms.sources.webdataset.source import WebDatasetSource

JPEG, _ = IMAGES["rgb.jpg"]
GRAY, PALETTE = IMAGES["gray.png"][0], IMAGES["palette.png"][0]
Rows = list[tuple[str, int, bytes]]  # path, byte position and raw bytes of each


def make_images(folder: Path) -> Rows:
    rows = []
    for number in range(7):
        path = f"{'ab'[number % 2]}/{number}.jpg"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        data = JPEG + bytes([number])  # behind the image's end: all differ
        (folder / path).write_bytes(data)
        rows.append((path, 0, data))
    return sorted(rows)


def make_sounds(folder: Path) -> Rows:
    """Makes stereo WAV files, of which no two are equal."""
    rows = []
    for number in range(7):
        path = f"{'ab'[number % 2]}/{number}.wav"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(folder / path), "wb") as out:
            out.setparams((2, 2, 8000, 0, "NONE", "NONE"))
            out.writeframes(bytes(range(8 * number, 8 * number + 80)))
        rows.append((path, 0, (folder / path).read_bytes()))
    return sorted(rows)


def make_documents(folder: Path) -> Rows:
    """Makes a text file for each row, in two classes."""
    rows = []
    for path in (f"{label}/{n}.txt" for label in "ab" for n in range(4)):
        text = f"words of {path}, gr\u00fcn".encode()
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(text)
        rows.append((path, 0, text))
    return rows


def make_labelled(folder: Path) -> Rows:
    """Makes images, and a table with their labels, splits and boxes."""
    rows = make_images(folder)
    lines = [
        {
            "path": path,
            "label": ["x", "y"][: n % 3],
            "split": f"s{n % 2}",
            "box": [n, 0.5],
        }
        for n, (path, _, _) in enumerate(rows)
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "labels.jsonl").write_text(text)
    return rows[0::2] + rows[1::2]  # a split after the other


def make_masked(folder: Path) -> Rows:
    """Makes images, and a mask of each in other folders."""
    rows = make_images(folder)
    for number, (path, _, _) in enumerate(rows):
        mask = folder / "masks" / Path(path).with_suffix(".png")
        mask.parent.mkdir(parents=True, exist_ok=True)
        mask.write_bytes(PALETTE if number % 2 else GRAY)
    return rows


def make_boxed(folder: Path) -> Rows:
    """Makes images, and a file of COCO with their boxes."""
    rows = make_images(folder)
    with Image.open(io.BytesIO(JPEG)) as opened:
        width, height = opened.size
    whole = {
        "images": [
            {"id": n, "file_name": path, "width": width, "height": height}
            for n, (path, _, _) in enumerate(rows)
        ],
        "categories": [{"id": 3, "name": "dog"}],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 3, "bbox": [n, 1, 2, 3]}
            for n in range(5)
        ],
    }
    (folder / "boxes.json").write_text(json.dumps(whole))
    return rows


def make_cifar(folder: Path) -> Rows:
    rows = []
    for path, count in (("data_batch_1.bin", 5), ("test_batch.bin", 2)):
        records = [bytes([n]) + bytes([n + count] * 3072) for n in range(count)]
        (folder / path).write_bytes(b"".join(records))
        rows += [(path, n * 3073, record) for n, record in enumerate(records)]
    return rows


def in_lines(path: str, lines: list[bytes], position: int) -> Rows:
    """Rows that follow each other, the first one at this position."""
    rows = []
    for line in lines:
        rows.append((path, position, line))
        position += len(line) + 1
    return rows


def make_csv(folder: Path) -> Rows:
    (folder / "sub").mkdir()
    head = b"id,text\n"
    rows = []
    for path, count in (("1.csv", 20), ("sub/2.csv", 3)):
        lines = [b'%d%d,"line\n""%d"""' % (count, n, n) for n in range(count)]
        (folder / path).write_bytes(head + b"\n".join(lines) + b"\n")
        rows += in_lines(path, lines, len(head))
    return rows


def make_parted(folder: Path) -> Rows:
    """Makes tables in folders that are columns."""
    rows = []
    for path, count in (("k=01/of=a%20b/1.csv", 20), ("k=007/of=c/2.csv", 3)):
        (folder / path).parent.mkdir(parents=True)
        lines = [b'%d%d,"li\nne"' % (count, n) for n in range(count)]
        (folder / path).write_bytes(b"id,text\n" + b"\n".join(lines) + b"\n")
        rows += in_lines(path, lines, 8)
    return sorted(rows)


def make_semicolons(folder: Path) -> Rows:
    """Makes tables in another dialect, with lines before the header."""
    head = b"'made\nby us\nid;text\n"
    rows = []
    for path, count in (("1.txt", 20), ("2.txt", 3)):
        lines = [b"%d%d;'line\n;''%d'" % (count, n, n) for n in range(count)]
        (folder / path).write_bytes(head + b"\n".join(lines) + b"\n")
        rows += in_lines(path, lines, len(head))
    return rows


def make_marked(folder: Path) -> Rows:
    """Makes tables with escapes, and comments before, between and behind the rows."""
    head = b'# made "by us\nid,text\n'
    rows = []
    for path, count in (("1.csv", 20), ("2.csv", 3)):
        text, lines = head, []
        for n in range(count):
            text += b'# before "%d\n' % n if n % 3 == 0 else b""
            lines.append((path, len(text), b'%d%d,"li\\"ne\n# \\\\"' % (count, n)))
            text += lines[-1][2] + b"\n"
        (folder / path).write_bytes(text + b"# end")
        rows += lines
    return rows


def make_packed(folder: Path) -> Rows:
    """Makes three compressed tables; the rows are those of the text."""
    head = b"id,text\n"
    rows = []
    for path in ("1.csv.gz", "2.csv.gz", "3.csv.gz"):
        lines = [b'%d,"line\n""%d"""' % (n * 7919, n**5) for n in range(5)]
        text = head + b"\n".join(lines) + b"\n"
        (folder / path).write_bytes(gzip.compress(text, mtime=0))
        rows += in_lines(path, lines, len(head))
    return rows


def make_json_lines(folder: Path) -> Rows:
    (folder / "sub").mkdir()
    rows = []
    for path, count in (("1.jsonl", 20), ("sub/2.jsonl", 3)):
        lines = [b'{"id": %d%d, "text": ["a", "b"]}' % (count, n) for n in range(count)]
        (folder / path).write_bytes(b"\n".join(lines) + b"\n")
        rows += in_lines(path, lines, 0)
    return rows


def make_text(folder: Path) -> Rows:
    """Makes lines of text, of which some are blank."""
    (folder / "sub").mkdir()
    rows = []
    for path, count in (("1.txt", 20), ("sub/2.txt", 3)):
        lines = [b"" if n % 7 == 3 else b"line %02d \xc3\xbc" % n for n in range(count)]
        (folder / path).write_bytes(b"\n".join(lines) + b"\n")
        rows += in_lines(path, lines, 0)
    return rows


def make_packed_lines(folder: Path) -> Rows:
    rows = []
    for path in ("1.jsonl.gz", "2.jsonl.gz", "3.jsonl.gz"):
        lines = [b'{"id": %d, "text": "%d"}' % (n * 7919, n**5) for n in range(5)]
        packed = gzip.compress(b"\n".join(lines) + b"\n", mtime=0)
        (folder / path).write_bytes(packed)
        rows += in_lines(path, lines, 0)
    return rows


def make_tfrecords(folder: Path) -> Rows:
    """Makes TFRecord files; a row's raw bytes are its frame."""
    (folder / "sub").mkdir()
    rows = []
    for path, count in (("1.tfrecord", 20), ("sub/2.tfrecord", 3)):
        position = 0
        for number in range(count):
            example = Example()
            example.features.feature["id"].int64_list.value.append(100 * count + number)
            example.features.feature["text"].bytes_list.value.append(
                b"a" * (number % 3)
            )
            framed = frame([example.SerializeToString(deterministic=True)])
            rows.append((path, position, framed))
            position += len(framed)
        files = [raw for name, _, raw in rows if name == path]
        (folder / path).write_bytes(b"".join(files))
    return rows


def make_typed(kind: TableFormat, folder: Path) -> Rows:
    """Makes tables of typed columns in several groups; a row stands at its number."""
    (folder / "sub").mkdir()
    rows = []
    for path, count in (("1", 20), ("sub/2", 3)):
        values = [{"id": n * count, "text": f"text {n}"} for n in range(count)]
        write_typed(pa.Table.from_pylist(values), kind, folder / f"{path}.{kind}", 3)
        rows += [
            (f"{path}.{kind}", number, json.dumps(row).encode())
            for number, row in enumerate(values)
        ]
    return rows


def make_shards(folder: Path) -> Rows:
    """Makes shards; a sample stands where the data of its first file does."""
    rows = []
    for path, count in (("0.tar", 5), ("1.tar", 3), ("2.tar", 1)):
        members = {}
        for n in range(count):
            members[f"{n}.json"] = b'{"n": %d, "of": "%d"}' % (n, count)
            members[f"{n}.cls"] = b"%d" % n
        data = tar_of(members)
        for n in range(count):
            start = n * 2048 + 512
            rows.append((path, start, data[start : start + 1024 + 1]))
        (folder / path).write_bytes(data)
    return rows


def make_records(folder: Path) -> Rows:
    """Makes records of 11 bytes behind a header of 5, with names of classes."""
    (folder / "names.txt").write_text("cat\ndog\n")
    rows = []
    for path, count in (("eval_1.bin", 20), ("test_2.bin", 3)):
        records = [struct.pack(">BHd", n % 2, n, n / 4) for n in range(count)]
        (folder / path).write_bytes(b"HEAD\n" + b"".join(records))
        rows += [(path, 5 + n * 11, record) for n, record in enumerate(records)]
    return rows


def make_idx(folder: Path) -> Rows:
    """Makes images and labels in two files each, one of them compressed."""
    rows = []
    for split, count in (("t10k", 3), ("train", 20)):
        images = np.arange(count * 6, dtype=np.uint8).reshape(count, 3, 2)
        labels = np.arange(count, dtype=np.uint8) % 4
        path = f"{split}-images-idx3-ubyte"
        (folder / path).write_bytes(idx_bytes(images))
        packed = gzip.compress(idx_bytes(labels), mtime=0)
        if split == "t10k":
            (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(packed)
        else:
            (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
        rows += [
            (path, n, images[n].tobytes() + labels[n].tobytes()) for n in range(count)
        ]
    return rows


def idx_bytes(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """An array of uint8 as an IDX file."""
    head = bytes([0, 0, 8, array.ndim])
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def make_arrays(folder: Path) -> Rows:
    """Makes arrays in two files, one of them in Fortran order, and in an archive."""
    images = np.arange(20 * 6, dtype=np.uint8).reshape(20, 3, 2)
    values = np.arange(20 * 2, dtype=">f4").reshape(20, 2)
    np.save(folder / "images_train.npy", images)
    np.save(folder / "values_train.npy", np.asfortranarray(values))
    np.savez_compressed(
        folder / "test.npz", images=images[:3] + 100, values=values[:3] * 2
    )
    rows = [
        ("images_train.npy", n, images[n].tobytes() + values[n].tobytes())
        for n in range(20)
    ]
    packed = [
        ("test.npz", n, (images[n] + 100).tobytes() + (values[n] * 2).tobytes())
        for n in range(3)
    ]
    return [*rows, *packed]


def make_streams(folder: Path) -> Rows:
    rows = []
    for path in ("1.arrows", "2.arrows", "3.arrows"):
        values = [{"id": n, "text": f"text {n} of {path}"} for n in range(5)]
        table = pa.Table.from_pylist(values)
        with pa.ipc.new_stream(folder / path, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
        rows += [(path, at, json.dumps(row).encode()) for at, row in enumerate(values)]
    return rows


def write_typed(
    table: pa.Table, kind: TableFormat, path: Path, group_rows: int
) -> None:
    """Writes a table in groups of so many rows."""
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=group_rows)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=group_rows)


@dataclass(frozen=True)
class Case:
    """One source and an input of several files and ranges.

    Attributes:
      source: as the job builds it.
      make: writes the input; returns path, byte position and raw bytes of its rows.
      cut_short: a file to truncate and how many of its bytes stay: less than a row.
      reason: why what is left is rejected.
      empty: an empty file that may lie among the others.
      empty_reason: why that file's row is rejected; "" if it holds no row.
      pack, unpack: of the bytes of a file, in which rows have their positions. A packed
        file that is cut short is an error.
      unit: what the positions of rows count. A file whose rows are counted has its
        types at its end, so one that is cut short is an error.
    """

    source: Source
    make: Callable[[Path], Rows]
    cut_short: tuple[str, int]
    reason: str
    empty: str
    empty_reason: str = ""
    pack: Callable[[bytes], bytes] = bytes
    unpack: Callable[[bytes], bytes] = bytes
    unit: Literal["byte", "row"] = "byte"


def images_case(
    source: ImagesSource,
    make: Callable[[Path], Rows] = make_images,
    empty_reason: str = "not an image: has no bytes",
) -> Case:
    reason = "JPEG ends inside its header after 50 bytes"
    return Case(source, make, ("a/0.jpg", 50), reason, "b/empty.jpg", empty_reason)


def audio_case(audio: Literal["encoded", "raw"]) -> Case:
    source = AudioSource(AudioOptions(audio=audio))
    reason = "WAV is cut short: 50 bytes (expected 124: 80 of samples from 44 on)"
    empty = ("b/empty.wav", "not audio: has no bytes")
    return Case(source, make_sounds, ("a/0.wav", 50), reason, *empty)


def packed_case(source: Source, make: Callable[[Path], Rows], ending: str) -> Case:
    return Case(
        source,
        make,
        cut_short=(f"1.{ending}.gz", 50),
        reason="cannot be decompressed",
        empty=f"0.{ending}",
        pack=partial(gzip.compress, mtime=0),
        unpack=gzip.decompress,
    )


def tfrecord_case(records: Records) -> Case:
    return Case(
        TfrecordSource(records, whole_bytes=100, step_bytes=200),
        make_tfrecords,
        cut_short=("1.tfrecord", 310),
        reason="the file ends ",
        empty="0.tfrecord",
    )


def binary_case(record: str) -> Case:
    options = BinaryOptions(
        record=record, byte_order="big", header_bytes=5, class_names="names.txt"
    )
    return Case(
        ArraysSource(find_records, options, range_bytes=50),
        make_records,
        cut_short=("eval_1.bin", 5 + 4 * 11 + 10),
        reason="10 bytes at the end of the file, expected a whole record of 11",
        empty="readme.html",
    )


CASES = {
    "images": images_case(ImagesSource()),
    "images, scaled": images_case(
        ImagesSource(rules=PixelRules(resize=Resize(shorter=4), transforms_all=True))
    ),
    "images with a table": images_case(
        ImagesSource(ImagesOptions(label_table="labels.jsonl")),
        make_labelled,
        empty_reason="no row of labels.jsonl names it",
    ),
    "images with boxes": images_case(
        ImagesSource(), make_boxed, empty_reason="no row of boxes.json names it"
    ),
    "audio": audio_case("encoded"),
    "text files": Case(
        TextFilesSource(TextOptions(whole_files=True)),
        make_documents,
        cut_short=("a/0.txt", 21),
        reason=r"is not UTF-8: b'\xc3' at byte 20",
        empty="b/none.html",
    ),
    "audio, samples": audio_case("raw"),
    "images with masks": images_case(
        ImagesSource(),
        make_masked,
        empty_reason="has no 'masks': expected a file 'masks/b/empty.*'",
    ),
    "images with masks, scaled": images_case(
        ImagesSource(rules=PixelRules(resize=Resize(shorter=4), transforms_all=True)),
        make_masked,
        empty_reason="has no 'masks': expected a file 'masks/b/empty.*'",
    ),
    "cifar": Case(
        CifarSource(range_bytes=7000),
        make_cifar,
        cut_short=("data_batch_1.bin", 4 * 3073 + 100),
        reason="100 bytes at the end of the file, expected a whole cifar10 record",
        empty="readme.html",
    ),
    "csv": Case(
        CsvSource(range_bytes=50),
        make_csv,
        cut_short=("1.csv", 8 + 4 * 17 + 10),
        reason="a quoted field is never closed",
        empty="0.csv",
    ),
    "csv in folders": Case(
        CsvSource(range_bytes=50, rows=RangeRows(partitions=Partitions(are_read=True))),
        make_parted,
        cut_short=("k=01/of=a%20b/1.csv", 8 + 4 * 12 + 8),
        reason="a quoted field is never closed",
        empty="k=01/of=a%20b/0.csv",
    ),
    "csv in another dialect": Case(
        CsvSource(requested_dialect=Dialect(quote=b"'", skip_rows=2), range_bytes=50),
        make_semicolons,
        cut_short=("1.txt", 20 + 4 * 16 + 10),
        reason="a quoted field is never closed",
        empty="0.txt",
    ),
    "csv with escapes and comments": Case(
        CsvSource(
            requested_dialect=Dialect(escape=b"\\", comment=b"#"), range_bytes=50
        ),
        make_marked,
        cut_short=("1.csv", 22 + 13 + 10),
        reason="a quoted field is never closed",
        empty="0.csv",
    ),
    "csv, compressed": packed_case(CsvSource(range_bytes=50), make_packed, "csv"),
    "jsonl": Case(
        JsonLinesSource(range_bytes=50),
        make_json_lines,
        cut_short=("1.jsonl", 3 * 33 + 10),
        reason="not JSON: ",
        empty="0.jsonl",
    ),
    "text": Case(
        TextSource(range_bytes=50),
        make_text,
        cut_short=("1.txt", 3 * 11 + 1 + 9),
        reason=r"not UTF-8: b'\xc3' at byte 8 of the line",
        empty="0.txt",
    ),
    "text, compressed": packed_case(
        TextSource(range_bytes=50), make_packed_lines, "jsonl"
    ),
    "jsonl, compressed": packed_case(
        JsonLinesSource(range_bytes=50), make_packed_lines, "jsonl"
    ),
    "tfrecord": tfrecord_case("keep"),
    "tfrecord, decoded": tfrecord_case("decode"),
    "parquet": Case(
        ColumnarSource(format_name="parquet", range_bytes=1),
        partial(make_typed, "parquet"),
        cut_short=("1.parquet", 300),
        reason="cannot be read as a Parquet file",
        empty="_SUCCESS",
        unit="row",
    ),
    "arrow, streams": Case(
        ColumnarSource(format_name="arrow", range_bytes=1),
        make_streams,
        cut_short=("1.arrows", 300),
        reason="the stream has no end-of-stream marker",
        empty="0.arrows",
        unit="row",
    ),
    "arrow": Case(
        ColumnarSource(format_name="arrow", range_bytes=1),
        partial(make_typed, "arrow"),
        cut_short=("1.arrow", 300),
        reason="cannot be read as an Arrow IPC file",
        empty="0.arrow",
        unit="row",
    ),
    "binary": binary_case("label:u8,n:u16,x:f64"),
    "binary, by reference": binary_case("label:u8,n:bytes[2],x:f64"),
    "idx": Case(
        ArraysSource(find_idx, IdxOptions(), range_bytes=50),
        make_idx,
        cut_short=("train-images-idx3-ubyte", 50),
        reason="its header declares 20 x 3 x 2 values of 1 bytes, 136 bytes with the "
        "header, but the file has 50",
        empty="readme.html",
        unit="row",
    ),
    "numpy": Case(
        ArraysSource(find_numpy, NumpyOptions(), range_bytes=50),
        make_arrays,
        cut_short=("images_train.npy", 200),
        reason="20 x 3 x 2 values of 1 bytes, 248 bytes with the header, but the file has 200",
        empty="readme.html",
        unit="row",
    ),
    "webdataset": Case(
        WebDatasetSource(),
        make_shards,
        cut_short=("0.tar", 2 * 2048 + 512 + 10),
        reason="the shard ends at byte 4,618 without an end-of-archive marker",
        empty="3.tar",
    ),
}
