"""A small dataset with every kind of feature, written by the project's own functions."""

from __future__ import annotations

import io
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestRejects,
    ManifestShard,
    ManifestSplit,
)
from recordmill.schemas.names import shard_file_name
from recordmill.schemas.options import Payload
from recordmill.schemas.ranges import RejectTotals, ShardResult
from recordmill.transforms.dataset.tfds import metadata_files
from recordmill.transforms.encode.payloads import encode_payload
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import HEAD_BYTES, TAIL_BYTES, frame_records

SCHEMA = Schema(
    (
        FeatureSpec("image/encoded", Kind.BYTES, dtype="uint8", shape=(None,) * 3, content=Content.IMAGE),
        FeatureSpec("image/class/label", Kind.INT64, class_names=("cat", "dog [red]")),
        FeatureSpec("pixels", Kind.BYTES, dtype="uint8", shape=(2, 3), content=Content.ARRAY),
        FeatureSpec("count", Kind.INT64),
        FeatureSpec("score", Kind.FLOAT),
        FeatureSpec("sure", Kind.INT64, dtype="bool"),
        FeatureSpec("text", Kind.BYTES, dtype="string"),
        FeatureSpec("raw", Kind.BYTES),
        FeatureSpec("age", Kind.INT64, optional=True),
        FeatureSpec("weight", Kind.FLOAT, optional=True),
        FeatureSpec("note", Kind.BYTES, dtype="string", optional=True),
        FeatureSpec("box", Kind.FLOAT, shape=(4,)),
        FeatureSpec("tags", Kind.BYTES, dtype="string", shape=(None,)),
    )
)  # fmt: skip
SPLITS = {"train": (3, 4), "test": (2,)}  # records of every shard
TEXTS = ("goat", "Ziege \x1b[31m", "山羊", "", "a\nb", "x" * 500, "t", "u", "v")

REJECT = b'{"uri":"a.csv","position":3,"reason":"broken","raw":"eA=="}\n'


def image(format_name: str, mode: str) -> bytes:
    pixels = np.arange(8 * 6 * 4, dtype=np.uint8).reshape(8, 6, 4)
    file = io.BytesIO()
    Image.fromarray(pixels, "RGBA").convert(mode).save(file, format_name)
    return file.getvalue()


IMAGES = [
    image("JPEG", "RGB"), image("PNG", "RGBA"), image("JPEG", "L"),
    image("PNG", "L"), image("PNG", "RGB"), image("PNG", "LA"),
    image("BMP", "RGB"), image("PNG", "P"), image("JPEG", "CMYK"),
]  # fmt: skip


def rows(start: int, stop: int) -> pa.RecordBatch:
    """Rows of SCHEMA; in every second one the optional features are missing."""
    numbers = list(range(start, stop))
    odd = [bool(n % 2) for n in numbers]
    return pa.RecordBatch.from_pydict(
        {
            "image/encoded": pa.array([IMAGES[n] for n in numbers], pa.binary()),
            "image/class/label": pa.array([n % 2 for n in numbers], pa.int64()),
            "pixels": pa.array([bytes(range(n, n + 6)) for n in numbers], pa.binary()),
            "count": pa.array([10**n for n in numbers], pa.int64()),
            "score": pa.array([n / 8 for n in numbers], pa.float32()),
            "sure": pa.array(odd, pa.bool_()),
            "text": pa.array([TEXTS[n] for n in numbers], pa.string()),
            "raw": pa.array([b"\xff\x00\x1b" * 10 * n for n in numbers], pa.binary()),
            "age": pa.array([n if n % 2 else None for n in numbers], pa.int64()),
            "weight": pa.array([n / 2 if n % 2 else None for n in numbers], pa.float32()),
            "note": pa.array(["ok" if n % 2 else None for n in numbers], pa.string()),
            "box": pa.array([[n, 1.0, 2.0, 3.0] for n in numbers], pa.list_(pa.float32())),
            "tags": pa.array([["a"] * n for n in numbers], pa.list_(pa.string())),
        }
    )  # fmt: skip


def write_dataset(folder: Path, compression: str = "none") -> Manifest:
    """Writes the splits of SPLITS to a folder; gives their manifest, written too."""
    stops = iter(accumulate(size for sizes in SPLITS.values() for size in sizes))
    parts = {
        split: [
            rows(stop - size, stop) for size, stop in zip(sizes, stops, strict=False)
        ]
        for split, sizes in SPLITS.items()
    }
    return write_parts(folder, SCHEMA, parts, compression=compression)


def write_parts(
    folder: Path,
    schema: Schema,
    parts: dict[str, list[pa.RecordBatch]],
    payload: Payload = "example",
    compression: str = "none",
) -> Manifest:
    """Writes a shard of each batch, by split; gives the manifest, written too."""
    folder.mkdir(parents=True)
    results = []
    room = {"head_room": HEAD_BYTES, "tail_room": TAIL_BYTES}
    for split, batches in parts.items():
        for index, batch in enumerate(batches):
            framed = encode_payload(batch, schema, payload, **room)
            frame_records(framed)
            file = shard_file_name("zoo", split, index, len(batches), compression)
            facts = write_records(folder / file, [framed], compression)
            results.append(
                ShardResult(
                    *(split, index, file, facts.records, facts.bytes),
                    *(facts.example_bytes, facts.crc32c),
                )
            )
    if payload == "example":
        for file, data in metadata_files("zoo", "1.0.0", schema, results).items():
            if compression == "none" or file.endswith(".labels.txt"):
                (folder / file).write_bytes(data)
    (folder / "rejects").mkdir()
    (folder / "rejects" / "range-000000.jsonl").write_bytes(REJECT)
    splits = {}
    for split in parts:
        shards = [result for result in results if result.split == split]
        splits[split] = ManifestSplit(
            records=sum(shard.records for shard in shards),
            bytes=sum(shard.bytes for shard in shards),
            shards=tuple(
                ManifestShard(
                    file=shard.file,
                    records=shard.records,
                    bytes=shard.bytes,
                    crc32c=f"{shard.crc32c:08x}",
                )
                for shard in shards
            ),
        )
    manifest = Manifest(
        name="zoo",
        version="1.0.0",
        fingerprint="f" * 32,
        seed=7,
        shuffle=True,
        compression=compression,
        payload=payload,
        features=schema.features,
        rows_read=sum(result.records for result in results) + 1,
        rows_rejected=1,
        rejects=ManifestRejects.from_totals(RejectTotals.from_content(REJECT)),
        splits=splits,
    )
    (folder / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest
