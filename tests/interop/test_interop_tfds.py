"""TFDS reads every kind of feature from the records and files of a dataset.

The records are written by protobuf's runtime, not by the project's encoder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from frames import frame
from interop_tools import ask

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.names import shard_file_name
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.ranges import ShardResult
from recordmill.transforms.dataset.tfds import metadata_files

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


def ints(name: str, *shape: int | None, **facts: Any) -> FeatureSpec:
    return FeatureSpec(name, Kind.INT64, shape=shape, **facts)


def floats(name: str, *shape: int | None, **facts: Any) -> FeatureSpec:
    return FeatureSpec(name, Kind.FLOAT, shape=shape, **facts)


def texts(name: str, *shape: int | None, **facts: Any) -> FeatureSpec:
    return FeatureSpec(name, Kind.BYTES, dtype="string", shape=shape, **facts)


def blob(
    name: str, dtype: str, *shape: int | None, content: Content, **facts: Any
) -> FeatureSpec:
    return FeatureSpec(
        name, Kind.BYTES, dtype=dtype, shape=shape, content=content, **facts
    )


# Feature, what lies in each of its keys, TFDS's dtype and shape, what it reads.
Case = tuple[FeatureSpec, list[list[Any]], list[Any], Any]
CASES: list[Case] = [
    # Ragged: values in one key, the lengths of rows in others.
    (floats("ragged", None, None), [[1, 2, 3], [2, 0, 1]], ["float32", [None, None]], [[1, 2], [], [3]]),
    (floats("ragged/boxes", None, None, 2), [[1, 2, 3, 4, 5, 6], [2, 1]], ["float32", [None, None, 2]], [[[1, 2], [3, 4]], [[5, 6]]]),
    (ints("ragged_inside", None, 2, None), [[1, 2, 3, 4], [2], [3, 1]], ["int64", [None, 2, None]], [[[1, 2, 3], [4]]]),
    (ints("ragged_below", 2, None, None), [[1, 2, 3], [1, 1], [2, 1]], ["int64", [2, None, None]], [[[1, 2]], [[3]]]),
    (ints("ragged_deep", None, None, None, dtype="uint8"), [[7, 8], [1, 1], [2, 0]], ["uint8", [None, None, None]], [[[7, 8]], [[]]]),
    (texts("ragged_text", None, None), [[b"a", "山".encode(), b"c"], [1, 2]], ["string", [None, None]], [["a"], ["山", "c"]]),
    (ints("ragged_labels", None, None, class_names=("cat", "dog")), [[1, 0], [2]], ["int64", [None, None]], [[1, 0]]),
    (floats("ragged_or_none", None, None, optional=True), [[1, 2], [1, 1]], ["float32", [None, None]], [[1], [2]]),
    # Every dtype comes back as it was; a missing value is an empty tensor.
    *((ints(d, dtype=d), [[3]], [d, []], 3) for d in INTS),
    *((ints(f"{d}/list", 2, 3, dtype=d), [[1, 2, 3, 4, 5, 6]], [d, [2, 3]], [[1, 2, 3], [4, 5, 6]]) for d in INTS),
    *((ints(f"{d}/none", dtype=d, optional=True), [[3]], [d, [None]], [3]) for d in INTS),
    *((floats(d, dtype=d), [[0.5]], [d, []], 0.5) for d in FLOATS),
    *((floats(f"{d}/list", None, 2, dtype=d), [[1, 2, 3, 4]], [d, [None, 2]], [[1, 2], [3, 4]]) for d in FLOATS),
    *((floats(f"{d}/none", 2, dtype=d, optional=True), [[1, 2]], [d, [None, 2]], [[1, 2]]) for d in FLOATS),
    (ints("bool/list", 2, dtype="bool"), [[1, 0]], ["bool", [2]], [True, False]),
    (ints("bool/none", dtype="bool", optional=True), [[1]], ["bool", [None]], [True]),
    (floats("whole_in_floats", dtype="int8"), [[3]], ["float32", []], 3),
    (floats("bool_in_floats", 2, dtype="bool"), [[1, 0]], ["float32", [2]], [1, 0]),
    # Arrays as bytes. TensorFlow makes no uint32 of bytes.
    *(
        (blob(f"{d}/array", d, 2, 2, content=Content.ARRAY), [[np.arange(4).astype(d).tobytes()]], [d, [2, 2]], [[0, 1], [2, 3]])
        for d in (*INTS, *FLOATS)
        if d != "uint32"
    ),
    (blob("uint32/array", "uint32", 1, content=Content.ARRAY), [[b"abcd"]], ["string", []], "abcd"),
    (blob("array/none", "int8", None, content=Content.ARRAY, optional=True), [[b"\1\2"]], ["int8", [None, None]], [[1, 2]]),
    # TensorProtos stay bytes.
    (blob("tensor", "float32", 2, content=Content.TENSOR), [[b"proto"]], ["string", []], "proto"),
    (blob("tensor/none", "float32", None, None, content=Content.TENSOR, optional=True), [[b"proto"]], ["string", [None]], ["proto"]),
]  # fmt: skip


def example(cases: list[Case], *, full: bool) -> bytes:
    message = Example()
    for spec, values, _, _ in cases:
        if full or not spec.optional:
            for key, content in zip(spec.keys, values, strict=True):
                kind = spec.kind if key == spec.keys[0] else Kind.INT64
                feature = message.features.feature[key]
                getattr(feature, str(kind)).value.extend(content)
    return message.SerializeToString(deterministic=True)


def test_tfds_reads_every_kind(tmp_path: Path) -> None:
    folder = tmp_path / "zoo" / "1.0.0"
    folder.mkdir(parents=True)
    shards = []
    for split, full in (("full", True), ("sparse", False)):
        data = example(CASES, full=full)
        file = shard_file_name("zoo", split, 0, 1, "none")
        (folder / file).write_bytes(frame([data]))
        shards.append(ShardResult(split, 0, file, 1, len(data) + 16, len(data), 0))
    schema = Schema(tuple(spec for spec, *_ in CASES))
    for name, content in metadata_files("zoo", "1.0.0", schema, shards).items():
        (folder / name).write_bytes(content)
    (found,) = ask("read_dataset.py", "tfds", folder)
    assert found["full"]["features"] == {spec.name: info for spec, _, info, _ in CASES}
    assert found["full"]["first"] == {spec.name: value for spec, _, _, value in CASES}
    assert found["sparse"]["first"] == {
        spec.name: [] if spec.optional else value for spec, _, _, value in CASES
    }


def test_tfds_reads_objects_as_its_own(tmp_path: Path) -> None:
    """The same features and the same values as of a dataset that TFDS has written."""

    def nested(name: str, kind: Kind, *shape: int, **facts: Any) -> FeatureSpec:
        whole = (None, *shape)
        return FeatureSpec(
            f"objects/{name}", kind, shape=whole, is_nested=True, **facts
        )

    schema = Schema(
        (
            nested("bbox", Kind.FLOAT, 4),
            nested("label", Kind.INT64, class_names=("cat", "dog")),
            nested("is_crowd", Kind.INT64, dtype="bool"),
            nested("area", Kind.FLOAT),
            nested("pose", Kind.BYTES, dtype="string"),
            nested("keypoints", Kind.FLOAT, 2, 3),
        )
    )
    folder = tmp_path / "ours" / "1.0.0"
    folder.mkdir(parents=True)
    (told,) = ask("nested_tfds.py", tmp_path / "theirs")
    for file in Path(told["folder"]).iterdir():
        if ".tfrecord" in file.name:
            (folder / shard_file_name("ours", "train", 0, 1)).write_bytes(
                file.read_bytes()
            )
    records = told["records"]
    shards = [ShardResult("train", 0, "", records, 0, 0, 0)]
    for name, content in metadata_files("ours", "1.0.0", schema, shards).items():
        (folder / name).write_bytes(content)
    (ours,) = ask("nested_tfds.py", folder, "read")
    assert ours["rows"] == told["rows"]
    assert ours["features"] == told["features"]
    assert ours["names"] == told["names"] == ["cat", "dog"]
