from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_dataset import SCHEMA, write_dataset

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.names import format_labels, parse_labels
from recordmill.schemas.ranges import ShardResult
from recordmill.transforms.dataset.tfds import metadata_files

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "tfds" / "golden" / "1.0.0"
PREFIX = "tensorflow_datasets.core.features."

# TFDS reads both files with protobuf's strict JSON parser: these keys, no others.
INFO_KEYS = {
    "name": str,
    "description": str,
    "version": str,
    "fileFormat": str,
    "moduleName": str,
    "citation": str,
    "releaseNotes": dict,
    "splits": list,
    "supervisedKeys": dict,
}
SPLIT_KEYS = {
    "name": str,
    "filepathTemplate": str,
    "shardLengths": list,
    "numBytes": str,
}
LEAVES = {
    "scalar.Scalar": ("tensor", {"shape", "dtype", "encoding"}),
    "tensor_feature.Tensor": ("tensor", {"shape", "dtype", "encoding"}),
    "text_feature.Text": ("text", set()),
    "image_feature.Image": ("image", {"shape", "dtype", "encodingFormat"}),
    "class_label_feature.ClassLabel": ("classLabel", {"numClasses"}),
    "sequence_feature.Sequence": ("sequence", {"feature", "length"}),
}

IMAGE = FeatureSpec(
    "image", Kind.BYTES, dtype="uint8", shape=(None,) * 3, content=Content.IMAGE
)
ARRAY = FeatureSpec(
    "image", Kind.BYTES, dtype="uint8", shape=(32, 32, 3), content=Content.ARRAY
)
LABEL = FeatureSpec("label", Kind.INT64, class_names=("cat", "dog"))


def shard(split: str, index: int, records: int, example_bytes: int) -> ShardResult:
    return ShardResult(split, index, "", records, example_bytes * 2, example_bytes, 0)


def files_of(*features: FeatureSpec) -> dict[str, bytes]:
    return metadata_files(
        "golden", "1.0.0", Schema(features), [shard("train", 0, 1, 897)]
    )


def feature_json(feature: FeatureSpec) -> dict[str, Any]:
    found = json.loads(files_of(feature)["features.json"])
    leaf: dict[str, Any] = found["featuresDict"]["features"][feature.name]
    check_leaf(leaf)
    return leaf


def check_leaf(leaf: dict[str, Any]) -> None:
    """Fails on what TFDS's parser would not take."""
    assert leaf["pythonClassName"].startswith(PREFIX)
    key, allowed = LEAVES[leaf["pythonClassName"].removeprefix(PREFIX)]
    assert set(leaf) == {"pythonClassName", key}
    assert set(leaf[key]) <= allowed
    shape = leaf[key].get("shape", {})
    assert set(shape) <= {"dimensions"}
    assert all(isinstance(size, str) for size in shape.get("dimensions", []))
    if "length" in leaf[key]:
        assert isinstance(leaf[key]["length"], str)
        check_leaf(leaf[key]["feature"])


def check_info(info: dict[str, Any]) -> None:
    for key, value in info.items():
        assert isinstance(value, INFO_KEYS[key]), key
    for split in info["splits"]:
        for key, value in split.items():
            assert isinstance(value, SPLIT_KEYS[key]), key
        assert all(isinstance(length, str) for length in split["shardLengths"])
    if "supervisedKeys" in info:
        assert list(info["supervisedKeys"]) == ["tuple"]
        assert list(info["supervisedKeys"]["tuple"]) == ["items"]
        for item in info["supervisedKeys"]["tuple"]["items"]:
            assert list(item) == ["featureKey"]


def tensor(dtype: str, *sizes: int, encoding: str = "none") -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in sizes]}
    return {
        "pythonClassName": f"{PREFIX}tensor_feature.Tensor",
        "tensor": {"shape": shape, "dtype": dtype, "encoding": encoding},
    }


def scalar(dtype: str) -> dict[str, Any]:
    return {
        "pythonClassName": f"{PREFIX}scalar.Scalar",
        "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"},
    }


def sequence(leaf: dict[str, Any], length: int) -> dict[str, Any]:
    return {
        "pythonClassName": f"{PREFIX}sequence_feature.Sequence",
        "sequence": {"feature": leaf, "length": str(length)},
    }


def image(*sizes: int, dtype: str = "uint8") -> dict[str, Any]:
    shape = {"dimensions": [str(size) for size in sizes]}
    return {
        "pythonClassName": f"{PREFIX}image_feature.Image",
        "image": {"shape": shape, "dtype": dtype},
    }


TEXT = {"pythonClassName": f"{PREFIX}text_feature.Text", "text": {}}
CLASSES = {
    "pythonClassName": f"{PREFIX}class_label_feature.ClassLabel",
    "classLabel": {"numClasses": "2"},
}


def spec(kind: Kind, **facts: Any) -> FeatureSpec:
    return FeatureSpec("f", kind, **facts)


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (spec(Kind.INT64), scalar("int64")),
        (spec(Kind.INT64, dtype="bool"), scalar("bool")),
        (spec(Kind.FLOAT), scalar("float32")),
        (spec(Kind.BYTES), scalar("string")),
        (spec(Kind.BYTES, dtype="string"), TEXT),
        # Missing values are empty tensors.
        (spec(Kind.INT64, optional=True), tensor("int64", -1)),
        (spec(Kind.FLOAT, optional=True), tensor("float32", -1)),
        (spec(Kind.BYTES, optional=True), tensor("string", -1)),
        (spec(Kind.BYTES, dtype="string", optional=True), tensor("string", -1)),
        (spec(Kind.FLOAT, shape=(4,), optional=True), tensor("float32", -1, 4)),
        (spec(Kind.FLOAT, shape=(None, 4), optional=True), tensor("float32", -1, 4)),
        # Lists.
        (spec(Kind.FLOAT, shape=(4,)), tensor("float32", 4)),
        (spec(Kind.INT64, shape=(2, None)), tensor("int64", 2, -1)),
        # Ragged: a Sequence for each dimension up to the last unknown one.
        (spec(Kind.INT64, shape=(None, None)), sequence(sequence(scalar("int64"), -1), -1)),
        (spec(Kind.FLOAT, shape=(None, None, 4)), sequence(sequence(tensor("float32", 4), -1), -1)),
        (spec(Kind.INT64, shape=(None, 2, None)), sequence(sequence(sequence(scalar("int64"), -1), 2), -1)),
        (spec(Kind.BYTES, dtype="string", shape=(None, None)), sequence(sequence(TEXT, -1), -1)),
        (spec(Kind.INT64, class_names=("a", "b"), shape=(None, None)), sequence(sequence(CLASSES, -1), -1)),
        (spec(Kind.INT64, shape=(None, None), optional=True), sequence(sequence(scalar("int64"), -1), -1)),
        # Numbers that lie in a float_list.
        (spec(Kind.FLOAT, dtype="float16"), scalar("float16")),
        (spec(Kind.FLOAT, dtype="uint8"), scalar("float32")),
        (spec(Kind.FLOAT, dtype="int64", class_names=("a", "b")), scalar("float32")),
        # Tensors: TFDS cannot parse them.
        (spec(Kind.BYTES, dtype="int8", shape=(2,), content=Content.TENSOR), scalar("string")),
        (spec(Kind.BYTES, dtype="int8", shape=(None, None), content=Content.TENSOR), scalar("string")),
        (spec(Kind.BYTES, dtype="int8", content=Content.TENSOR, optional=True), sequence(scalar("string"), -1)),
        (spec(Kind.BYTES, dtype="string", shape=(None,)), tensor("string", -1)),
        # Class labels.
        (spec(Kind.INT64, class_names=("a", "b")), CLASSES),
        (spec(Kind.INT64, class_names=("a", "b"), optional=True), sequence(CLASSES, -1)),
        (spec(Kind.INT64, class_names=("a", "b"), shape=(3,)), sequence(CLASSES, 3)),
        (spec(Kind.INT64, class_names=("a", "b"), shape=(None,)), sequence(CLASSES, -1)),
        (spec(Kind.INT64, class_names=("a", "b"), shape=(2, 2)), tensor("int64", 2, 2)),
        # Images: always three channels, unless the schema knows better.
        (spec(Kind.BYTES, dtype="uint8", shape=(None,) * 3, content=Content.IMAGE), image(-1, -1, 3)),
        (spec(Kind.BYTES, dtype="uint8", content=Content.IMAGE), image(-1, -1, 3)),
        (spec(Kind.BYTES, dtype="uint16", shape=(8, 6, 1), content=Content.IMAGE), image(8, 6, 1, dtype="uint16")),
        (spec(Kind.BYTES, dtype="bytes", shape=(None,) * 3, content=Content.IMAGE), scalar("string")),
        (spec(Kind.BYTES, dtype="uint8", content=Content.IMAGE, optional=True), sequence(image(-1, -1, 3), -1)),
        (spec(Kind.BYTES, dtype="uint8", shape=(8, 6, 2), content=Content.IMAGE), image(8, 6, 3)),
        # Arrays.
        (spec(Kind.BYTES, dtype="uint32", shape=(4,), content=Content.ARRAY), scalar("string")),
        (spec(Kind.BYTES, dtype="uint8", shape=(32, 32, 3), content=Content.ARRAY), tensor("uint8", 32, 32, 3, encoding="bytes")),
        (spec(Kind.BYTES, dtype="float32", shape=(None, 2), content=Content.ARRAY), tensor("float32", -1, 2, encoding="bytes")),
        (spec(Kind.BYTES, dtype="uint8", shape=(None, None), content=Content.ARRAY), scalar("string")),
        (spec(Kind.BYTES, dtype="uint8", shape=(4,), content=Content.ARRAY, optional=True), sequence(tensor("uint8", 4, encoding="bytes"), -1)),
        (spec(Kind.FLOAT, shape=(2, 2), content=Content.ARRAY), tensor("float32", 2, 2)),
    ],
)  # fmt: skip
def test_feature(feature: FeatureSpec, expected: dict[str, Any]) -> None:
    assert feature_json(feature) == expected


def test_features_of_the_golden_dataset() -> None:
    files = files_of(
        FeatureSpec("box", Kind.FLOAT, shape=(4,)),
        IMAGE,
        LABEL,
        FeatureSpec("name", Kind.BYTES, dtype="string"),
        FeatureSpec("score", Kind.FLOAT),
    )
    found = json.loads(files["features.json"])
    golden = json.loads((GOLDEN / "features.json").read_bytes())
    del golden["featuresDict"]["features"]["tags"]  # a Sequence of Text there
    del golden["featuresDict"]["features"]["image"]["image"]["encodingFormat"]
    assert found == golden
    assert files["label.labels.txt"] == (GOLDEN / "label.labels.txt").read_bytes()


def test_info_of_the_golden_dataset() -> None:
    found = json.loads(files_of(IMAGE, LABEL)["dataset_info.json"])
    golden = json.loads((GOLDEN / "dataset_info.json").read_bytes())
    check_info(golden)
    check_info(found)
    del golden["description"]
    assert found == golden | {"moduleName": "recordmill"}


def test_splits_do_not_depend_on_the_shards_order() -> None:
    shards = [
        shard("train", 0, 10, 100),
        shard("train", 1, 11, 110),
        shard("train", 2, 12, 120),
        shard("test", 0, 3, 30),
    ]
    files = metadata_files("x", "1.2.3", Schema((LABEL,)), shards)
    assert files == metadata_files("x", "1.2.3", Schema((LABEL,)), shards[::-1])
    info = json.loads(files["dataset_info.json"])
    check_info(info)
    template = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
    assert info["splits"] == [
        {
            "name": "test",
            "filepathTemplate": template,
            "shardLengths": ["3"],
            "numBytes": "30",
        },
        {
            "name": "train",
            "filepathTemplate": template,
            "shardLengths": ["10", "11", "12"],
            "numBytes": "330",
        },
    ]


@pytest.mark.parametrize(
    ("features", "keys"),
    [
        ([IMAGE, LABEL], ["image", "label"]),
        ([ARRAY, LABEL], ["image", "label"]),
        ([ARRAY, LABEL, FeatureSpec("coarse_label", Kind.INT64)], ["image", "label"]),
        (
            [
                replace(IMAGE, name="image/encoded"),
                replace(LABEL, name="image/class/label"),
            ],
            ["image/encoded", "image/class/label"],
        ),
        ([IMAGE, FeatureSpec("label", Kind.INT64)], ["image", "label"]),  # no names
        ([IMAGE], None),
        ([LABEL], None),
        ([IMAGE, replace(ARRAY, name="mask"), LABEL], None),  # which one?
        ([IMAGE, LABEL, replace(LABEL, name="image/class/label")], None),
        ([IMAGE, FeatureSpec("label", Kind.BYTES, dtype="string")], None),
        ([IMAGE, replace(LABEL, name="label", optional=True)], None),
    ],
)
def test_supervised_keys(features: list[FeatureSpec], keys: list[str] | None) -> None:
    info = json.loads(files_of(*features)["dataset_info.json"])
    check_info(info)
    items = info.get("supervisedKeys", {}).get("tuple", {}).get("items")
    assert items == (keys and [{"featureKey": key} for key in keys])


def test_files_of_a_dataset_with_everything(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    folder = tmp_path / "zoo"
    info = json.loads((folder / "dataset_info.json").read_bytes())
    check_info(info)
    assert info["splits"][1]["shardLengths"] == ["3", "4"]
    found = json.loads((folder / "features.json").read_bytes())
    assert set(found) == {"pythonClassName", "featuresDict"}
    assert set(found["featuresDict"]) == {"features"}
    leaves = found["featuresDict"]["features"]
    assert list(leaves) == [feature.name for feature in SCHEMA.features]
    for leaf in leaves.values():
        check_leaf(leaf)
    labels = (folder / "image.class.label.labels.txt").read_bytes()
    assert labels == b"cat\ndog [red]\n"


def test_number_of_bytes_is_that_of_the_examples(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "zoo")
    info = json.loads((tmp_path / "zoo" / "dataset_info.json").read_bytes())
    for split in info["splits"]:
        entry = manifest.splits[split["name"]]
        assert int(split["numBytes"]) == entry.bytes - 16 * entry.records


@pytest.mark.parametrize(
    ("name", "shape", "file"),
    [
        ("label", (), "label.labels.txt"),
        ("image/class/label", (), "image.class.label.labels.txt"),
        ("objects/label", (None,), "objects-label.labels.txt"),
        ("image/objects/label", (None,), "image.objects-label.labels.txt"),
    ],
)
def test_labels_file(name: str, shape: tuple[None, ...], file: str) -> None:
    assert (
        FeatureSpec(name, Kind.INT64, shape=shape, is_nested=bool(shape)).labels_file
        == file
    )


@pytest.mark.parametrize(("name", "shape"), [("label", (None,)), ("o/label", (2,))])
def test_what_is_nested_is_a_list_in_a_folder(name: str, shape: Any) -> None:
    with pytest.raises(SchemaError, match=r"has a name like objects/label and a shape"):
        FeatureSpec(name, Kind.INT64, shape=shape, is_nested=True)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("cat", "cat"),
        ("guinea pig", "guinea pig"),
        ("山羊", "山羊"),
        ('6" nail', '6" nail'),
        ("", '""'),  # TFDS would drop the line, and shift all names behind it
        (" cat", '" cat"'),  # TFDS would strip it
        ("a\nb", r'"a\nb"'),
        ("a\rb", r'"a\rb"'),
        ('"cat"', r'"\"cat\""'),
    ],
)
def test_label_line(name: str, line: str) -> None:
    assert format_labels([name]) == f"{line}\n".encode()
    names = ("before", name, "after")
    assert parse_labels(format_labels(names)) == names


def test_labels_of_someone_else() -> None:
    assert parse_labels(b'"quoted\n\n dog \n') == ('"quoted', "dog")
    assert parse_labels(b"\xef\xbb\xbfcat\ndog\n") == ("cat", "dog")  # of Windows
