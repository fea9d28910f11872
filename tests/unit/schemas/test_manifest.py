from __future__ import annotations

import json

import pytest

from recordmill.schemas.errors import OutputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.manifest import (
    Manifest,
    ManifestShard,
    ManifestSplit,
    schema_of,
)
from recordmill.schemas.text import format_json

LABEL = FeatureSpec("label", Kind.INT64, class_names=("cat", "dog"))
IMAGE = FeatureSpec(
    "image",
    Kind.BYTES,
    dtype="uint8",
    shape=(None, None, 3),
    content=Content.IMAGE,
    optional=True,
)


def split(**shards: int) -> ManifestSplit:
    """Returns a split whose shards have so many records, of ten bytes each."""
    entries = [
        ManifestShard(file=name, records=records, bytes=10 * records, crc32c="ffffffff")
        for name, records in shards.items()
    ]
    records = sum(shards.values())
    return ManifestSplit(records=records, bytes=10 * records, shards=tuple(entries))


MANIFEST = Manifest(
    name="größe",
    version="1.0.0",
    fingerprint="00ff",
    seed=(1 << 64) - 1,
    shuffle=True,
    compression="none",
    features=(IMAGE, LABEL),
    rows_read=12,
    rows_rejected=2,
    splits={"train": split(a=5, b=4), "test": split(c=1)},
)


def test_manifest_round_trip() -> None:
    data = MANIFEST.to_bytes()
    assert Manifest.from_bytes(data, "m") == MANIFEST
    assert Manifest.from_bytes(data, "m").to_bytes() == data
    assert data.endswith(b"\n}\n")
    assert "größe".encode() in data
    assert (MANIFEST.records, MANIFEST.num_shards, MANIFEST.num_bytes) == (10, 3, 100)


def test_manifest_keys_and_their_order() -> None:
    stored = json.loads(MANIFEST.to_bytes())
    assert list(stored) == [
        *("manifest_version", "name", "version", "fingerprint", "seed", "shuffle"),
        *("compression", "payload", "features", "rows_read", "rows_rejected", "splits"),
    ]
    assert list(stored["splits"]) == ["train", "test"], "the job's order"
    shard = {"file": "c", "records": 1, "bytes": 10, "crc32c": "ffffffff"}
    assert stored["splits"]["test"] == {"records": 1, "bytes": 10, "shards": [shard]}


STATED = [
    (IMAGE, '"image", "bytes_list", "uint8", [null, null, 3], "picture", true, null', {}),
    (LABEL, '"label", "int64_list", "int64", [], "values", false, 2', {}),
    (
        FeatureSpec("s", Kind.FLOAT, shape=(None,), minimum=-0.5, maximum=0, is_sequence=True),
        '"s", "float_list", "float32", [null], "values", false, null',
        {"minimum": -0.5, "maximum": 0, "sequence": True},
    ),
    (
        FeatureSpec("o/x", Kind.FLOAT, shape=(None, 4), is_nested=True),
        '"o/x", "float_list", "float32", [null, 4], "values", false, null',
        {"nested": True},
    ),
    (
        FeatureSpec("t", Kind.BYTES, dtype="int8", content=Content.TENSOR),
        '"t", "bytes_list", "int8", [], "tensor", false, null',
        {},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "values", "more"), STATED)
def test_what_is_stated_of_a_feature(
    spec: FeatureSpec, values: str, more: dict[str, object]
) -> None:
    manifest = MANIFEST.model_copy(update={"features": (spec.as_stored(),)})
    data = manifest.to_bytes()
    assert Manifest.from_bytes(data, "m") == manifest
    keys = ("name", "kind", "dtype", "shape", "content", "optional", "num_classes")
    stated = dict(zip(keys, json.loads(f"[{values}]"), strict=True)) | more
    assert json.loads(data)["features"] == [stated]
    assert schema_of(manifest) == Schema((spec.as_stored(),))


def test_manifest_without_a_payload_is_one_of_examples() -> None:
    stored = json.loads(MANIFEST.to_bytes())
    assert stored.pop("payload") == "example"
    assert Manifest.from_bytes(format_json(stored), "m") == MANIFEST


def test_schema_of_a_manifest() -> None:
    found = schema_of(MANIFEST, {"label": ("cat", "dog")})
    assert found == Schema((IMAGE, LABEL))
    assert schema_of(MANIFEST)["label"].class_names == ()


def changed(**fields: object) -> bytes:
    return format_json({**json.loads(MANIFEST.to_bytes()), **fields})


def feature(**fields: object) -> bytes:
    return changed(features=[{**LABEL.manifest_fields(), **fields}])


JUNK = [
    (b"", "not valid JSON: ", "empty, as after a crash"),
    (b"\xff\xfe", "not valid JSON: ", "no UTF-8"),
    (MANIFEST.to_bytes()[:-9], "not valid JSON: ", "cut off"),
    (b"[]\n", "expected a mapping", "no object"),
    (b"{}\n", "name: not given", "an object of something else"),
    (changed(manifest_version=2), "manifest_version: expected 1, found 2", "a later one"),
    (changed(extra=1), "extra: unknown field", "unknown key"),
    (changed(rows_read="many"), "rows_read: expected a whole number", "a text"),
    (changed(splits={"train": {"records": 1, "bytes": 1, "shards": [{}]}}), "splits.train.shards.0.file: not given", "the place is named"),
    (changed(features=[{"name": "x", "kind": "int64_list"}]), "features.0: lacks dtype, shape, content, optional", "half a feature"),
    (feature(class_names=["cat"]), "features.0: unknown keys: class_names", "class names stand in files of their own"),
    (feature(kind="text_list"), "features.0.kind: expected 'bytes_list', 'float_list' or 'int64_list'", "a kind that no reader knows"),
    (feature(name=""), "features: a feature needs a name, got an empty one", "what a feature does not allow"),
    (changed(features=[LABEL.manifest_fields()] * 2), "features: feature names must differ, got 'label' twice", "what a schema does not allow"),
    (changed(features=[]), "features: a schema needs at least one feature, got none", "no feature"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "what", "reason"), JUNK)
def test_junk_is_no_manifest(data: bytes, what: str, reason: str) -> None:
    with pytest.raises(OutputError) as caught:
        Manifest.from_bytes(data, "gs://b/manifest.json")
    prefix = "gs://b/manifest.json: not a recordmill manifest: "
    assert str(caught.value).startswith(prefix + what), reason


def test_json_never_holds_nan() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        format_json({"x": float("nan")})


def test_features_by_name_and_their_defaults() -> None:
    schema = Schema((LABEL, IMAGE))
    assert len(schema) == 2
    assert schema["label"] is LABEL
    with pytest.raises(KeyError, match="nothing"):
        schema["nothing"]
    for kind, dtype in zip(Kind, ("bytes", "float32", "int64"), strict=True):
        feature = FeatureSpec("x", kind)
        assert (feature.column, feature.dtype, feature.shape) == ("x", dtype, ())
