"""Makes the inputs that lines of cases.txt name: pictures, archives, arrays, typed tables."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
import zlib  # noqa: F401 - for lines of cases.txt, as the next ones
from datetime import date, datetime, timedelta  # noqa: F401
from decimal import Decimal  # noqa: F401
from random import Random
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

Array = np.ndarray[Any, Any]


def packed_gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def packed_zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


PACKERS = {"gz": packed_gzip, "bz2": bz2.compress, "xz": lzma.compress}
PACKERS |= {"zst": packed_zstd}


def random_table(number: int) -> tuple[bytes, str]:
    """Returns a table of some dialect, which may be damaged, and options."""
    random = Random(f"csv {number}")
    delimiter = random.choice(",,;\t|")
    cells = ["1", "2.5", "NA", " 7 ", "a", "'", '"x\ny"', '"a""b"', "", "1;2", "x,y"]
    cells += ["\\N", '\\"', '"a\\"', "\\\n", '"1,5"', "1.234,5", "true", "2026-01-05"]
    width = random.choice([1, 2, 3, 3, 5])
    rows = [random.choices(cells, k=width) for _ in range(random.randrange(1, 40))]
    lines = [delimiter.join(f"h{n}" for n in range(width)), *map(delimiter.join, rows)]
    for _ in range(random.randrange(3)):
        at = random.randrange(len(lines) + 1)
        lines.insert(at, random.choice(["#", '# a "b', ""]))
    ends = random.choice(["\n", "\n", "\r\n", "\r"])
    data = (ends.join(lines) + random.choice(["\n", ""])).encode()
    for _ in range(random.choice([0, 0, 1, 3])):
        at = random.randrange(len(data))
        byte = bytes([random.randrange(256)])
        data = data[:at] + byte + data[at + random.randrange(3) :]
    options = """--delimiter semicolon|--quote "'"|--quote none|--skip-rows 1|--header first
|--header none|--null-values 'NA,2.5'|--escape backslash|--comment '#'|--decimal comma
|--exchange engine|--exchange reference|--split train=0.5 --split test=0.5|--shards 2
|--memory 0|--label h0|--input-compression auto|--no-shuffle|--index"""
    some = options.replace("\n", "").split("|")
    return data, " ".join(random.sample(some, random.choice([0, 1, 2, 3])))


def picture(name: str, mode: str = "RGB", kind: str = "png") -> bytes:
    image = Image.frombytes("RGB", (20, 14), Random(name).randbytes(20 * 14 * 3))
    if mode in ("I;16", "F", "LA"):
        image = image.convert("L")
    return saved(image.convert(mode), kind)


def saved(image: Image.Image, kind: str, **more: Any) -> bytes:
    held = io.BytesIO()
    image.save(held, kind, **more)
    return held.getvalue()


def animated() -> bytes:
    frames = [Image.new("P", (6, 5), n) for n in range(3)]
    return saved(frames[0], "gif", save_all=True, append_images=frames[1:])


def turned() -> bytes:
    image = Image.new("RGB", (9, 5), "red")
    exif = image.getexif()
    exif[0x112] = 6
    return saved(image, "jpeg", exif=exif)


def folder(names: str) -> dict[str, bytes]:
    return {f"in/{name}": picture(name) for name in names.split()}


def without(data: bytes, how: str) -> bytes:
    """Returns a picture that is damaged in some way."""
    ways = {"cut": data[: len(data) // 2], "head": data[:12], "more": data + b"behind"}
    return (ways | {"flip": data[:60] + b"\xff\x00" + data[62:]})[how]


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    data = held.getvalue()
    return data[:4] + bytes(4) + data[8:] if mode == "w:gz" else data  # no time


def zip_of(files: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", packing) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, packing)
    return held.getvalue()


def idx(array: Array, code: int = 8) -> bytes:
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


def npy(array: Any, **more: Any) -> bytes:
    held = io.BytesIO()
    np.save(held, array, **more)
    return held.getvalue()


def npz(packed: bool = False, **arrays: Any) -> bytes:
    held = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(held, **arrays)
    return held.getvalue()


def frame(data: bytes) -> bytes:
    def crc(part: bytes) -> bytes:
        value = crc32c.crc32c(part)
        turned = (value >> 15 | value << 17) + 0xA282EAD8
        return struct.pack("<I", turned & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)


def arrow_of(table: pa.Table, stream: bool = False) -> bytes:
    held = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(held, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return held.getvalue()


def parquet_of(table: pa.Table, **more: Any) -> bytes:
    held = io.BytesIO()
    pq.write_table(table, held, **more)
    return held.getvalue()


def column(values: Any) -> pa.Table:
    return pa.table({"n": [1, 2, 3], "x": values})


def typed(kind: str, table: pa.Table) -> bytes:
    return parquet_of(table) if kind == "parquet" else arrow_of(table)


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


# Inputs of several sections.
random = Random("arrays")
TEN = b"".join(bytes([n % 10]) + random.randbytes(3072) for n in range(12))
HUNDRED = b"".join(bytes([n % 20, n]) + random.randbytes(3072) for n in range(12))
STL = {
    f"in/{s}_X.bin": random.randbytes(82_944) for s in ("train", "test", "unlabeled")
}
STL |= {"in/train_y.bin": bytes([1, 10, 3]), "in/test_y.bin": bytes([2, 4, 7])}
STL |= {"in/class_names.txt": "".join(f"class{n}\n" for n in range(10)).encode()}
ROWS = np.arange(20)
IMAGES, LABELS = np.arange(120, dtype=np.uint8).reshape(20, 3, 2), ROWS.astype("u1") % 4
PAIR = {"in/train-images-idx3-ubyte": idx(IMAGES)}
PAIR |= {"in/train-labels-idx1-ubyte": idx(LABELS)}
TWO = folder("cat/1.png cat/2.png dog/3.png dog/4.png")
INNER = {path.removeprefix("in/"): data for path, data in TWO.items()}
TEXT = "".join(f"{n},{n / 8},text {n % 7}\n" for n in range(5_000))
TEXT_BYTES = f"id,share,kind\n{TEXT}".encode()
MANY = {f"in/{n:03}.csv": f"n,t\n{n},t{n % 3}\n".encode() for n in range(300)}
DAYS = [f"2026-{1 + n % 12:02}-{1 + n % 28:02},{n},{'ab'[n % 2]}\n" for n in range(200)]
TABLE = pa.table({"n": list(range(50)), "t": [f"t{n % 5}" for n in range(50)]})
WHOLE = {"parquet": parquet_of(TABLE, row_group_size=9), "arrow": arrow_of(TABLE)}
LINES = [{"id": n, "x": n / 8, "tags": ["a", "b"][: n % 3]} for n in range(2000)]
JSON_LINES = lines_of(LINES)
PLACES = (("cat", 1), ("cat", 2), ("dog", 3), ("dog", 4))
LABELLED = [
    {"path": f"{d}/{n}.png", "labels": ["x", "y"][: n % 3], "box": [[n, 0.5]] * (n % 2)}
    | {"deep": {"a": n}}
    for d, n in PLACES
]
RECORDS = b"".join(frame(f"record {n}".encode()) for n in range(20))
BINARY = b"HEAD" + b"".join(struct.pack(">BHd", n % 3, n, n / 4) for n in range(20))
SAMPLE = tar_of({"a.txt": b"x", "a.cls": b"1", "b.txt": b"y", "b.cls": b"2"})


def shard(n: int) -> bytes:
    """Returns a shard of WebDataset with four samples."""
    files: dict[str, bytes] = {}
    for m in range(4):
        files[f"{n}{m}.cls"] = b"%d" % m
        files[f"{n}{m}.json"] = b'{"n": %d, "of": "t"}' % n
        files |= {f"{n}{m}.png": picture(f"{n}{m}"), f"{n}{m}.txt": b"hello"}
    return tar_of(files)


SHARDS = {f"in/{n}.tar": shard(n) for n in range(3)}

# Programs and texts.
META = "".join(f"c{n}\n" for n in range(10))


def relabel(fields: list[str], label: str) -> str:
    """Returns options with another column as label."""
    text = "".join(fields).replace("label label", f"label {label}")
    return text.replace("-by label", f"-by {label}").replace(
        "-column label", f"-column {label}"
    )


def in_labelled(fields: list[str]) -> str:
    return "".join(fields).replace("{L}", "../../samples/labelled")


def map_name(fields: list[str]) -> str:
    if "json" in fields[0]:
        return "map.json"
    return "map.csv" if "," in "".join(fields[1:]) else "map.txt"


WRITE = """
import apache_beam as beam
from recordmill import ReadDataset, WriteDataset, open_dataset, read_rows
rows = [{"text": f"text {i}", "label": ("low", "high")[i % 2], "marks": [i, i * i], "x": i / 3} for i in range(60)]
schema = {"text": "string", "label": {"classes": ["low", "high"]}, "marks": "int64[]"}
with beam.Pipeline("FnApiRunner") as p:
    p | beam.Create(rows) | WriteDataset("out", schemaMORE)
for row in list(open_dataset("out"SPLIT))[:3]:
    print(row)
with beam.Pipeline("FnApiRunner") as p:
    p | ReadDataset("out", as_="dict") | beam.Map(lambda row: str(sorted(row))) | beam.combiners.Count.PerElement() | beam.Map(print)
"""
EXAMPLES = """
import apache_beam as beam
from recordmill import WriteDataset
raw = [bytes.fromhex(each) for each in RAW]
with beam.Pipeline("FnApiRunner") as p:
    p | beam.Create(raw) | WriteDataset("out"MORE)
"""
READ = """
import recordmill
print(sorted(recordmill.__all__))
rows = recordmill.open_dataset("out"MORE)
print(len(rows), type(rows).__name__)
for row in [rows[0], rows[len(rows) - 1], rows[-1]]: print(row)
for row in list(rows)[:4]: print(row)
for row in list(recordmill.read_rows("out"))[:2]: print(row)
for batch in list(recordmill.read_batches("out"))[:1]: print(batch.schema, len(batch))
"""
MAP = """
import pyarrow as pa

def double(batch):
    rows = pa.array([row for row in range(len(batch)) for _ in (0, 1)], pa.int64())
    return batch.take(rows), rows

def few(batch):
    rows = [n for n, row in enumerate(batch.to_pylist()) if len(str(row)) % 3]
    rows = pa.array(rows, pa.int64())
    return batch.take(rows), rows

def fails(batch):
    raise ValueError("not so")
"""
