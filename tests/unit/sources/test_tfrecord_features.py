"""What features TFRecord files are found to have, and what is said where they fit not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frames import frame
from pixel_zoo import IMAGES
from small_dataset import SCHEMA, write_dataset
from source_tools import prepare
from tfrecord_tools import example, write_examples

from recordmill.schemas.declared import DeclaredSchema
from recordmill.schemas.errors import InputError, SchemaError, UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema, Shape
from recordmill.schemas.job import JobSpec
from recordmill.transforms.dataset.tfds import metadata_files
from recordmill.transforms.sources.file_splits import NO_SPLITS
from recordmill.transforms.sources.registry import TfrecordOptions, make_source
from recordmill.transforms.sources.tfrecord import source as tfrecord_source
from recordmill.transforms.sources.tfrecord.source import TfrecordSource
from recordmill.transforms.storage import LocalStore

JPEG, _ = IMAGES["rgb.jpg"]
BYTES, INT64 = Kind.BYTES, Kind.INT64
JOB = JobSpec(source="tfrecord", name="a")


def source_of(folder: Path, **fields: Any) -> TfrecordSource:
    source = make_source(JOB.model_copy(update=fields))
    found = prepare(source, [folder]).source
    assert isinstance(found, TfrecordSource)
    return found


def image_of(name: str, shape: Shape) -> FeatureSpec:
    return FeatureSpec(name, BYTES, dtype="uint8", shape=shape, content=Content.IMAGE)


def test_features_are_inferred_from_a_sample(tmp_path: Path) -> None:
    rows = [
        {"n": n, "x": n / 2, "three": [n] * 3, "many": [1] * (n + 1), "image": JPEG}
        for n in range(5)
    ]
    write_examples(tmp_path / "a.tfrecord", [*rows, {"n": 5}])
    source = source_of(tmp_path)
    image = image_of("image", (None, None, None))
    others = (
        FeatureSpec("x", Kind.FLOAT),
        FeatureSpec("three", INT64, shape=(3,)),
        FeatureSpec("many", INT64, shape=(None,)),
        image,
    )
    optional = (replace(feature, optional=True) for feature in others)
    assert source.schema() == Schema((FeatureSpec("n", INT64), *optional))
    assert dict(source.input_report().fields) == {
        "records": "kept unchanged, not decoded",
        "features": "inferred from 6 records",
    }


def test_a_dataset_of_recordmill_tells_its_features(tmp_path: Path) -> None:
    """With class names; what a dead run left beside its shards is no input."""
    tmp_path /= "dataset"
    write_dataset(tmp_path)
    write_examples(tmp_path / "orphan-train.tfrecord-00000-of-00001", [{"n": 1}])
    source = source_of(tmp_path)
    assert source.schema() == SCHEMA
    assert "not a shard of the dataset" in str(source.input_report().skipped_files)
    Path(prepare(source, [tmp_path]).ranges[0].uri).unlink()
    with pytest.raises(InputError, match=r"is missing, but manifest.json"):
        source_of(tmp_path)


TFDS = Schema(
    (
        FeatureSpec("label", INT64, class_names=("cat", "dog")),
        FeatureSpec("flag", INT64, dtype="bool"),
        FeatureSpec("name", BYTES, dtype="string"),
        FeatureSpec("box", Kind.FLOAT, shape=(4,)),
        FeatureSpec("many", INT64, shape=(None,)),
        replace(image_of("pixels", (2, 2)), content=Content.ARRAY),
        image_of("deep/image", (None, None, 3)),
    )
)
ROW = {"label": 1, "flag": 1, "name": b"x", "many": [1, 2], "pixels": bytes(4)}
ROW["deep/image"] = JPEG


def write_tfds(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Files as TFDS has them; its boxes are lists of floats."""
    for name, data in metadata_files("my_ds", "1.0.0", TFDS, []).items():
        (folder / name).write_bytes(data)
    info = {"name": "my_ds", "splits": [{"name": "train"}, {"name": "train-extra"}]}
    (folder / "dataset_info.json").write_text(json.dumps(info))
    write_examples(folder / "my_ds-train-extra.tfrecord-00000-of-00001", rows)
    write_examples(folder / "my_ds-train.tfrecord-00000-of-00001", rows)


def test_tfds_tells_its_features_and_splits(tmp_path: Path) -> None:
    write_tfds(tmp_path, [ROW, {**ROW, "many": [1]}])
    source = source_of(tmp_path)
    kept = {feature.name: feature for feature in TFDS.features if feature.name != "box"}
    assert {feature.name: feature for feature in source.schema().features} == kept
    assert source.input_splits() == ("train", "train-extra")
    assert "6 of 6 as in features.json" in str(source.input_report().fields)


def test_what_features_json_says_wrongly_is_told(tmp_path: Path) -> None:
    write_tfds(tmp_path, [{**ROW, "name": 3, "pixels": bytes(5)}])
    source = source_of(tmp_path)
    assert source.schema()["name"] == FeatureSpec("name", Kind.INT64)
    assert source.schema()["pixels"].content is Content.VALUES
    (warning,) = source.input_report().warnings
    assert "describes name, pixels differently" in warning.message
    for text in ('{"pythonClassName": 7}', "[" * 100_000):
        (tmp_path / "features.json").write_text(text)
        assert source_of(tmp_path).schema()["label"].num_classes is None


def write_classes(folder: Path, *names: str) -> None:
    """A dataset as TFDS has it, with one label."""
    folder.mkdir()
    schema = Schema((FeatureSpec("label", Kind.INT64, class_names=names),))
    for name, data in metadata_files("my_ds", "1.0.0", schema, []).items():
        (folder / name).write_bytes(data)
    write_examples(folder / "my_ds-train.tfrecord-00000-of-00001", [{"label": 1}])


def test_a_number_means_one_class_in_all_folders(tmp_path: Path) -> None:
    write_classes(tmp_path / "a", "cat", "dog")
    write_classes(tmp_path / "b", "cat", "dog")
    assert source_of(tmp_path).schema()["label"].class_names == ("cat", "dog")
    write_classes(tmp_path / "c", "dog", "cat")
    with pytest.raises(InputError, match="are cat, dog in a, and dog, cat in c: one"):
        source_of(tmp_path)


NAMES = [
    ("train-00000-of-01024", ""),  # the split of all files by itself
    ("validation-00000-of-00128", "validation"),
    ("mnist-test.tfrecord-00000-of-00001", "test"),
    ("coco_val.record-00001-of-00010", "val"),
    ("data.tfrecord", ""),
    ("latest.tfrecord", ""),
    ("trainer.tfrecord", ""),
    ("test/part-0.tfrecord", "test"),
    ("a/eval2.tfrec", "eval"),
]


@pytest.mark.parametrize(("name", "split"), NAMES)
def test_names_of_files_tell_splits(tmp_path: Path, name: str, split: str) -> None:
    write_examples(tmp_path / name, [{"n": 1}])
    reading = prepare(TfrecordSource(), [tmp_path])
    assert [each.split for each in reading.ranges] == [split]
    none = prepare(TfrecordSource(splits=NO_SPLITS), [tmp_path])
    assert [each.split for each in none.ranges] == [""]


def test_content_tells_what_is_a_tfrecord_file(tmp_path: Path) -> None:
    write_examples(tmp_path / "noending", [{"n": 1}])
    (tmp_path / "readme").write_text("a text that is no record")
    (tmp_path / "empty.tfrecord").touch()
    (tmp_path / "labels.txt").write_text("cat")
    source = source_of(tmp_path)
    told = {each.reason: each.example for each in source.input_report().skipped_files}
    assert told == {
        "not a TFRecord file, by its content": "readme",
        "empty": "empty.tfrecord",
        "not a TFRecord file, by its name": "labels.txt",
    }
    (tmp_path / "noending").unlink()
    with pytest.raises(InputError, match="no TFRecord file among 3 input files"):
        source_of(tmp_path)


def declared(**features: Any) -> DeclaredSchema:
    return DeclaredSchema.model_validate({"features": features})


def test_a_schema_says_what_records_hold(tmp_path: Path) -> None:
    write_examples(tmp_path / "a.tfrecord", [{"n": 1, "l": [1, 2]}])
    source_of(tmp_path, declared=declared(n="uint8", l="int64[2]"))
    for schema, told in (
        (declared(n="float32"), "at byte 0 .*'n': int64_list, expected float"),
        (declared(m="int64"), "feature 'm': missing"),
        (declared(m={"dtype": "int64", "column": "n"}), "its declaration changes it"),
    ):
        with pytest.raises((InputError, SchemaError), match=told):
            source_of(tmp_path, declared=schema)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"\xff\xff", "is not a tf.train.Example"),
        (b"", "is empty"),
        (b"\x12\x00", "has no feature"),
        (b'{"a": 1}', "is not a tf.train.Example"),
    ],
)
def test_records_that_are_no_examples(
    tmp_path: Path, record: bytes, reason: str
) -> None:
    good = example({"n": 1})
    (tmp_path / "a.tfrecord").write_bytes(frame([good, record]))
    at = len(frame([good]))
    with pytest.raises(InputError, match=f"the record at byte {at} {reason}"):
        source_of(tmp_path)
    raw = source_of(tmp_path, payload="raw")
    assert raw.schema() == Schema((FeatureSpec("record", Kind.BYTES),))
    decoded = prepare(TfrecordSource(records="decode"), [tmp_path]).source
    assert decoded.schema() == Schema((FeatureSpec("n", Kind.INT64),))


def test_sequence_examples_need_a_schema(tmp_path: Path) -> None:
    from recordmill.schemas.proto.example_pb2 import SequenceExample

    made = SequenceExample()
    made.context.feature["n"].int64_list.value.append(1)
    steps = made.feature_lists.feature_list["steps"]
    for number in range(3):
        steps.feature.add().int64_list.value.append(number)
    (tmp_path / "a.tfrecord").write_bytes(frame([made.SerializeToString()]))
    with pytest.raises(InputError, match=r"is a tf\.train\.SequenceExample"):
        source_of(tmp_path)
    with pytest.raises(InputError, match="are not inferred: declare them"):
        source_of(tmp_path, payload="sequence_example")
    source_of(
        tmp_path,
        payload="sequence_example",
        declared=declared(n="int64", steps={"dtype": "int64", "sequence": True}),
    )


def test_features_of_several_kinds_are_refused(tmp_path: Path) -> None:
    write_examples(tmp_path / "a.tfrecord", [{"n": 1}, {"n": 0.5}])
    told = r"(?s)'n' is float_list in some.*`payload=raw`"
    with pytest.raises(SchemaError, match=told):
        source_of(tmp_path)


def test_the_first_records_of_all_files_are_looked_at(tmp_path: Path) -> None:
    for number in range(40):
        write_examples(tmp_path / f"{number:02}.tfrecord", [{"n": np.int64(7).item()}])
    facts = dict(source_of(tmp_path).input_report().fields)
    assert facts["features"] == "inferred from 8 records"


@pytest.mark.parametrize(
    "option", ["label", "split_column", "split_by", "split_by_time", "stratify_by"]
)
def test_columns_of_records_that_are_not_read(option: str) -> None:
    job = JOB.model_copy(update={option: "n"})
    with pytest.raises(UsageError, match=f"`{option}` n: .* use `records=decode`"):
        make_source(job)
    options = TfrecordOptions(records="decode")
    make_source(job.model_copy(update={"source_options": options}))


def test_workers_get_the_files_only_where_they_need_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        write_examples(tmp_path / f"{name}.tfrecord", [{"n": 1}])
    source = source_of(tmp_path)
    store = LocalStore(tmp_path / "workspace")
    assert source.supports_references
    assert source.spill_inventory(store, "files").supports_references
    monkeypatch.setattr(tfrecord_source, "MAX_REFERENCED_FILES", 2)
    assert not source.supports_references
    spilled = source.spill_inventory(store, "files")
    assert spilled.prepared_input is not None
    assert spilled.prepared_input.files == ()
    assert not spilled.supports_references
    assert spilled.schema() == source.schema()


@pytest.mark.parametrize(("size", "is_preferred"), [(10, False), (5000, True)])
def test_tiny_records_do_not_go_by_reference(
    tmp_path: Path, size: int, is_preferred: bool
) -> None:
    write_examples(tmp_path / "a.tfrecord", [{"x": bytes(size)}])
    assert source_of(tmp_path).prefers_reference([]) is is_preferred


def test_one_odd_feature_costs_itself_only(tmp_path: Path) -> None:
    write_tfds(tmp_path, [ROW])
    file = tmp_path / "features.json"
    found = json.loads(file.read_text())
    found["featuresDict"]["features"]["name"] = {"pythonClassName": "a.Tensor"}
    file.write_text(json.dumps(found))
    source = source_of(tmp_path)
    assert source.schema()["label"].num_classes is not None
    (warning,) = source.input_report().warnings
    assert "features.json: name cannot be interpreted" in str(warning)
    file.write_text("[" * 100_000)
    (warning,) = source_of(tmp_path).input_report().warnings
    assert "features.json: the whole file cannot be interpreted" in str(warning)
