"""Makes the cases of typed tables and records: Parquet, Arrow, JSON Lines, TFRecord, tar."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from case_lines import section
from cases_arrays import LENIENT, npy
from cases_csv import MAP, PACKERS
from cases_images import picture, tar_of

SAMPLES = "../../samples"
GOLDEN = "../../golden"
SCHEMA = "features:\n  petal_length_cm: {dtype: float64, stored: tensor}\n  kind: {column: species, dtype: string}\n"
COLUMNS: dict[str, list[Any] | pa.Array] = {
    "ints": [1, None, 3], "int8": pa.array([1, -128, None], pa.int8()), "uint64": pa.array([1, 2**64 - 1, 3], pa.uint64()), "bools": [True, None, False], "floats": [1.5, None, 0.1],
    "half": pa.array([1, 2, None], pa.float16()), "text": ["a", None, "ä" * 40], "large": pa.array(["a", "b", None], pa.large_string()), "bytes": [b"\0", b"", None],
    "fixed": pa.array([b"ab", b"cd", None], pa.binary(2)), "dates": [date(2026, 1, 5), None, date(1969, 1, 1)], "times": pa.array([1, None, 3], pa.timestamp("us", "UTC")), "durations": [timedelta(1), None, timedelta(2)],
    "clock": pa.array([1, 2, None], pa.time32("ms")), "decimal": [Decimal("1.50"), None, Decimal("123456789.12")], "lists": [[1, 2], [], None], "fixed-lists": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int32(), 2)),
    "nested": [[[1], [2, 3]], [], [[4]]], "nulls-in-lists": [[1, None], [2], []], "struct": [{"x": 1, "y": [0.5]}, {"x": 2, "y": []}, None], "structs": [[{"x": 1}], [], [{"x": 2}]], "dictionary": pa.array(["a", "b", None]).dictionary_encode(),
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())), "nothing": pa.nulls(3), "view": pa.array(["a", "b" * 30, None], pa.string_view()), "text-lists": [["a", "b"], ["c"], []],
    "stamps": [datetime(2026, 1, 5, 8, 30), None, datetime(1960, 1, 1)], "ree": pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8]),
}  # fmt: skip


def crc(data: bytes) -> bytes:
    import crc32c

    value = crc32c.crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)


def arrow_of(table: pa.Table, stream: bool = False) -> bytes:
    held = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(
        held, table.schema
    ) as writer:
        writer.write_table(table, max_chunksize=2)
    return held.getvalue()


def parquet_of(table: pa.Table, **more: Any) -> bytes:
    held = io.BytesIO()
    pq.write_table(table, held, **more)
    return held.getvalue()


def table_cases() -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    shards = {f"in/{n}.tar": tar_of({f"{n}{m}.{end}": data for m in range(4) for end, data in (("cls", b"%d" % m), ("json", b'{"n": %d, "of": "t"}' % n), ("png", picture(f"{n}{m}")), ("txt", b"hello"))}) for n in range(3)}  # fmt: skip
    old = [
        "convert csv ../../samples/iris/iris.csv old --split train=0.8 --split test=0.2"
    ]
    for source, where, files, before in (
        ("parquet", f"{SAMPLES}/typed/iris.parquet", {}, []),
        ("arrow", f"{SAMPLES}/typed/iris.arrow", {}, []),
        ("jsonl", f"{SAMPLES}/typed/iris.jsonl", {}, []),
        ("tfrecord", "old", {}, old),
        ("webdataset", "in/0.tar in/1.tar in/2.tar", shards, []),
    ):
        label = "json/of" if shards is files else "species"
        tables = [
            "--split-by-time petal_length_cm=a,3,b",
            "--shard-size 4kB",
            "--seed 9",
        ]
        more = [(each,) for each in ("--records decode --label label", *tables)]
        for (common,) in [*section("array options", 1), *more]:
            options = (
                common.replace("label label", f"label {label}")
                .replace("-by label", f"-by {label}")
                .replace("-column label", f"-column {label}")
            )
            name = (
                common.replace("--", "").replace(" ", "-").replace("/", "_")[:40]
                or "plain"
            )
            given = files | {"in/map.py": MAP, "in/s.yaml": SCHEMA}
            infer = [f"schema infer {source} {where}"] if not options else []
            yield (
                source,
                name,
                given,
                [*before, *infer, f"convert {source} {where} out {options}"],
            )
    for name, column in COLUMNS.items():
        table = pa.table({"n": [1, 2, 3], "x": column})
        files: dict[str, Any] = {
            "in/a.arrow": arrow_of(table),
            "in/a.arrows": arrow_of(table, stream=True),
        }
        runs = [
            "convert arrow in/a.arrow out",
            f"convert arrow in/a.arrows out2 {LENIENT}",
        ]
        yield "arrow", f"type-{name}", files, runs
        try:
            data = parquet_of(table, row_group_size=2)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
        yield (
            "parquet",
            f"type-{name}",
            {"in/a.parquet": data},
            [
                "schema infer parquet in",
                "convert parquet in out",
                f"convert parquet in out2 {LENIENT} --exchange engine",
            ],
        )
    table = pa.table({"n": list(range(50)), "t": [f"t{n % 5}" for n in range(50)]})
    for kind, whole in (
        ("parquet", parquet_of(table, row_group_size=9)),
        ("arrow", arrow_of(table)),
    ):
        other = (
            pa.table({"t": ["x"], "n": pa.array([1], pa.int8())}),
            pa.table({"n": [1.5], "t": ["x"]}),
            pa.table({"n": [1]}),
            pa.table({"n": ["x"], "t": ["y"]}),
            table[:0],
        )
        make = parquet_of if kind == "parquet" else arrow_of
        odd = {
            "cut": whole[:-20],
            "middle": whole[: len(whole) // 2],
            "flip": whole[:40] + b"\xff\xff" + whole[42:],
            "text": b"hello",
            "empty": b"",
            **{f"other-{n}": make(each) for n, each in enumerate(other)},
        }
        for name, data in odd.items():
            files = {f"in/1.{kind}": whole, f"in/2.{kind}": data, "in/_SUCCESS": b""}
            yield (
                kind,
                f"two-{name}",
                files,
                [
                    f"convert {kind} in out",
                    f"convert {kind} in out {LENIENT} --shards 2 --overwrite",
                ],
            )
    for packing in ("snappy", "zstd", "gzip", "none"):
        yield (
            "parquet",
            f"packed-{packing}",
            {
                "in/a.parquet": parquet_of(
                    table, compression=packing, use_dictionary=packing != "none"
                )
            },
            ["convert parquet in out"],
        )
    for name, text in section("json lines", 2):
        data = text.encode("utf-16" if name == "not-utf8" else "utf-8")
        yield (
            "jsonl",
            f"lines-{name}",
            {"in/a.jsonl": data},
            [
                "schema infer jsonl in",
                "convert jsonl in out",
                f"convert jsonl in out {LENIENT} --overwrite --exchange engine",
            ],
        )
    lines = "".join(
        json.dumps({"id": n, "x": n / 8, "tags": ["a", "b"][: n % 3]}) + "\n"
        for n in range(2000)
    ).encode()
    for ending, pack in PACKERS.items():
        yield (
            "jsonl",
            f"packed-{ending}",
            {f"in/a.jsonl.{ending}": pack(lines)},
            ["convert jsonl in out --shards 2"],
        )
        yield (
            "jsonl",
            f"cut-{ending}",
            {f"in/a.jsonl.{ending}": pack(lines)[:-7]},
            ["convert jsonl in out"],
        )
    for schema in (
        "id: int64",
        "x: {dtype: float64, stored: tensor}",
        "tags: string[]",
        "tags: {dtype: string, shape: [2]}",
        "nothing: int64",
        "id: {dtype: int64, max: 100}",
        "id: string",
    ):
        yield (
            "jsonl",
            "schema",
            {"in/a.jsonl": lines, "s.yaml": f"features:\n  {schema}\n"},
            [
                f"convert jsonl in/a.jsonl out --schema s.yaml {more}"
                for more in ("", LENIENT + " --overwrite")
            ],
        )
    for name in ("tutorial", "cifar10", "cifar100", "images", "zoo"):
        run = f"convert tfrecord {GOLDEN}/{name}.tfrecord"
        yield (
            "tfrecord",
            f"golden-{name}",
            {},
            [
                f"{run} out",
                f"{run} out2 --records decode --compression gzip",
                f"{run} out3 --exchange reference --shards 2",
                f"schema infer tfrecord {GOLDEN}/{name}.tfrecord",
            ],
        )
    yield (
        "tfrecord",
        "golden-gz",
        {},
        [
            f"convert tfrecord {GOLDEN}/zoo.tfrecord.gz out",
            f"convert tfrecord {GOLDEN}/tfds out2",
        ],
    )
    records = b"".join(frame(f"record {n}".encode()) for n in range(20))
    for name, data in {
        "raw": records,
        "zlib": zlib.compress(records),
        "gzip": gzip.compress(records, mtime=0),
        "cut": records[:-7],
        "data": records[:40] + b"\xff" + records[41:],
        "length": records[:25] + b"\xff" + records[26:],
        "text": b"hello",
        "empty": b"",
        "gzip-cut": gzip.compress(records, mtime=0)[:-9],
    }.items():
        yield (
            "tfrecord",
            f"odd-{name}",
            {"in/a.tfrecord": data},
            [
                "convert tfrecord in out",
                f"convert tfrecord in out --payload raw {LENIENT} --overwrite",
                "convert tfrecord in out2 --payload json",
            ],
        )
    for payload in ("json", "sequence_example", "raw"):
        yield (
            "tfrecord",
            f"payload-{payload}",
            {},
            [
                f"convert csv ../../golden/tutorial.csv old --payload {payload} --schema ../../golden/none.yaml",
                f"convert images ../../samples/images old --payload {payload}",
                "convert tfrecord old out",
                f"convert tfrecord old out2 --payload {payload} --records decode",
            ],
        )
    whole = tar_of({"a.txt": b"x", "a.cls": b"1", "b.txt": b"y", "b.cls": b"2"})
    samples: dict[str, dict[str, bytes]] = {
        "lacks": {"a.txt": b"x", "a.cls": b"1", "b.txt": b"y"}, "not-int": {"a.cls": b"1", "b.cls": b"x"}, "not-json": {"a.json": b"{", "b.json": b'{"a": 1}'}, "types": {"a.json": b'{"a": "x"}', "b.json": b'{"a": 1}', "c.json": b'{"a": 1}'}, "not-picture": {"a.png": b"x", "b.png": picture("b")},
        "npy": {"a.npy": npy([1, 2]), "b.npy": npy([3, 4])}, "npy-shapes": {"a.npy": npy([1.5, 2]), "b.npy": npy([3.5])}, "folders": {"x/a.txt": b"1", "y/a.txt": b"2"}, "dots": {"a.left.txt": b"1", "a.right.txt": b"2"}, "no-dot": {"a": b"1", "b.txt": b"2"}, "hidden": {".a.txt": b"1", "b.txt": b"2", "__c__.txt": b"3"},
        "again": {"a.txt": b"1", "b.txt": b"2", "a.cls": b"3"}, "other": {"a.pth": b"\0\1", "b.pth": b""}, "upper": {"a.TXT": b"x", "b.TXT": b"y"}, "unicode": {"ä.txt": b"x", "b.txt": b"\xff"}, "long": {f"{'n' * 150}.txt": b"x"}, "empty": {},
    }  # fmt: skip
    for name, members in samples.items():
        runs = [
            "convert webdataset in out",
            f"convert webdataset in out {LENIENT} --overwrite --exchange engine",
        ]
        yield "webdataset", f"samples-{name}", {"in/1.tar": tar_of(members)}, runs
    for name, data in {
        "cut": whole[:1300],
        "damaged": whole[:600] + b"\xff" + whole[601:],
        "behind": whole + whole,
        "gz": tar_of({"a.txt": b"x"}, "w:gz"),
        "text": b"hello",
    }.items():
        yield (
            "webdataset",
            f"tar-{name}",
            {"in/1.tar": whole, "in/2.tar": data, "in/x.txt": "x"},
            [
                "convert webdataset in out",
                f"convert webdataset in out {LENIENT} --overwrite",
            ],
        )
