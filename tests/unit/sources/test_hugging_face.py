"""What `datasets` says of the tables that it writes: images, classes, shapes of arrays."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from job_tools import command, examples_of, manifest_of
from PIL import Image
from sounds import sound
from source_cases import write_typed
from source_tools import Reading, read

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content
from recordmill.transforms.sources.hugging_face import read_column_metadata
from recordmill.transforms.sources.listing import list_inputs, remove_documents
from recordmill.transforms.sources.tables import ColumnarSource, TableFormat

FILE = pa.struct({"bytes": pa.binary(), "path": pa.string()})
LABEL = {"names": ["cat", "dog"], "_type": "ClassLabel"}
IMAGE = {"_type": "Image"}


def png(seed: int = 0, width: int = 4) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (3, width, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def table(features: dict[str, Any], **columns: pa.Array) -> pa.Table:
    """A table with the metadata of `Features.arrow_schema`."""
    told = json.dumps({"info": {"features": features}})
    return pa.table(columns).replace_schema_metadata({"huggingface": told})


def read_table(
    folder: Path, made: pa.Table, kind: TableFormat = "parquet", name: str = "a"
) -> Reading:
    file = folder / f"{name}.{kind}"
    write_typed(made, kind, file, 2)
    return read(ColumnarSource(format_name=kind), file)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_images_are_checked_and_labels_have_names(
    tmp_path: Path, kind: TableFormat
) -> None:
    whole, cut = png(1), png(2)[:-20]
    images = [
        {"bytes": whole, "path": "a.png"},
        {"bytes": cut, "path": "b.png"},
        {"bytes": None, "path": "c.png"},
        None,
        {"bytes": png(3, 7), "path": None},
        {"bytes": whole, "path": "d.png"},
    ]
    made = table(
        {"image": IMAGE, "label": LABEL},
        image=pa.array(images, FILE),
        label=pa.array([0, 1, 1, None, -1, 2]),
    )
    reading = read_table(tmp_path, made, kind)
    assert reading.rows == [
        {"image": whole, "image/path": "a.png", "label": 0, "image/height": 3, "image/width": 4},
        {"image": None, "image/path": None, "label": None, "image/height": None, "image/width": None},
        {"image": png(3, 7), "image/path": None, "label": -1, "image/height": 3, "image/width": 7},
    ]  # fmt: skip
    assert [(each.position, each.reason.split(":")[0]) for each in reading.rejects] == [
        (1, "image"),
        (2, "image"),
        (5, "label"),
    ]
    assert "only the path 'c.png'" in reading.rejects[1].reason
    assert "2 is not a class index (0 to 1)" in reading.rejects[2].reason
    (issue,) = [each for part in reading.parts for each in part.issues]
    assert (issue.code, issue.column, issue.count) == ("no label", "label", 1)
    schema = reading.source.schema((0,), (1,) * 5)
    assert schema["label"].class_names == ("cat", "dog")
    assert schema["image"].content is Content.IMAGE
    assert schema["image"].optional


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_audio_is_checked(tmp_path: Path, kind: TableFormat) -> None:
    """What only other packages read stays, without numbers."""
    whole, aiff = sound("16.flac", 300, 2), b"FORM\0\0\0\4AIFF"
    audio = [
        {"bytes": whole, "path": "a.flac"},
        {"bytes": whole[:-10], "path": "b.flac"},
        {"bytes": None, "path": "c.flac"},
        None,
        {"bytes": aiff, "path": None},
        {"bytes": b"prose", "path": None},
    ]
    made = table({"audio": {"_type": "Audio"}}, audio=pa.array(audio, FILE))
    reading = read_table(tmp_path, made, kind)
    numbers = {"audio/sample_rate": 8000, "audio/channels": 2, "audio/frames": 300}
    none = dict.fromkeys(numbers)
    assert reading.rows == [
        {"audio": whole, "audio/path": "a.flac", **numbers},
        {"audio": None, "audio/path": None, **none},
        {"audio": aiff, "audio/path": None, **none},
    ]
    assert [(each.position, each.reason[:27]) for each in reading.rejects] == [
        (1, "audio: FLAC is cut short: 1"),
        (2, "audio: the table has only t"),
        (5, "audio: not audio: starts wi"),
    ]
    assert ("by metadata", "audio audio") in reading.source.input_report().fields


def test_an_inferred_schema_takes_rows_without_labels(tmp_path: Path) -> None:
    """Labels -1, as test sets have them: `min` says so."""
    made = table({"label": LABEL}, label=pa.array([0, 1, -1]))
    write_typed(made, "parquet", tmp_path / "a.parquet", 2)
    told = command("schema", "infer", "parquet", tmp_path / "a.parquet").out
    assert "label: {dtype: int64, classes: [cat, dog], min: -1}" in told
    (tmp_path / "s.yaml").write_text(told)
    out = tmp_path / "out"
    given = ("parquet", tmp_path / "a.parquet", out, "--schema", tmp_path / "s.yaml")
    ran = command("convert", *given)
    assert ran.status == 0, ran.err
    assert command("verify", "--deep", out).status == 0
    (tmp_path / "s.yaml").write_text(told.replace(", min: -1", ""))
    ran = command("convert", *given, "--overwrite")
    assert "-1 is not a class index (0 to 1)" in ran.err


def test_sizes_that_nobody_expects_are_left_out(tmp_path: Path) -> None:
    """With the other columns that are."""
    images = pa.array([{"bytes": png(n), "path": "a.png"} for n in range(3)], FILE)
    made = table(
        {"image": IMAGE, "label": LABEL}, image=images, label=pa.array([0] * 3)
    )
    write_typed(made, "parquet", tmp_path / "a.parquet", 2)
    expected = "features: {image: {picture: {}}, label: {dtype: int64}}"
    (tmp_path / "s.yaml").write_text(expected)
    given = ("--expect-schema", tmp_path / "s.yaml", "--extra-columns", "ignore")
    ran = command(
        "convert", "parquet", tmp_path / "a.parquet", tmp_path / "out", *given
    )
    assert ran.status == 0, ran.err
    assert {f["name"] for f in manifest_of(tmp_path / "out")["features"]} == {
        *("image", "label")
    }


WEBP = {"_type": "Image", "mode": "RGB"}


def test_one_image_that_readers_cannot_decode_makes_all_encoded(tmp_path: Path) -> None:
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "WEBP")
    images = [{"bytes": data, "path": None} for data in (png(), file.getvalue())]
    made = table({"image": WEBP}, image=pa.array(images, FILE))
    reading = read_table(tmp_path, made)
    (part,) = reading.parts
    assert part.observed == (1,)
    assert reading.source.schema(part.observed)["image"].dtype == "bytes"


OBJECTS = {
    "box": {
        "feature": {"feature": {"dtype": "float32", "_type": "Value"}, "_type": "List"},
        "_type": "List",
    },
    "kind": {"feature": LABEL, "_type": "List"},
}


def test_lists_structs_and_arrays(tmp_path: Path) -> None:
    """Also as versions before 4 wrote them: a list of one, a Sequence of a dict."""
    objects = pa.struct(
        {"box": pa.list_(pa.list_(pa.float32())), "kind": pa.list_(pa.int64())}
    )
    features = {
        "new": OBJECTS,
        "old": {"feature": {"kind": LABEL}, "length": -1, "_type": "Sequence"},
        "one": [LABEL],
        "grid": {"shape": [2, 2], "dtype": "float32", "_type": "Array2D"},
        "photos": {"feature": IMAGE, "_type": "LargeList"},
        "sound": {"_type": "Video"},
    }  # fmt: skip
    made = table(
        features,
        new=pa.array([{"box": [[0, 1]], "kind": [1]}], objects),
        old=pa.array([{"kind": [0, 1]}], pa.struct({"kind": pa.list_(pa.int64())})),
        one=pa.array([[1, 0]]),
        grid=pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.float32()))),
        photos=pa.array([[{"bytes": b"x", "path": None}]], pa.list_(FILE)),
        sound=pa.array([{"bytes": b"RIFF", "path": "a.wav"}], FILE),
    )
    reading = read_table(tmp_path, made)
    assert reading.rows == [
        {
            "new/box": [[0, 1]],
            "new/kind": [1],
            "old/kind": [0, 1],
            "one": [1, 0],
            "grid": [[1, 2], [3, 4]],
            "photos": [b"x"],
            "sound": b"RIFF",
            "sound/path": "a.wav",
        }
    ]
    schema = reading.source.schema()
    assert schema["grid"].shape == (2, 2)
    for name in ("new/kind", "old/kind", "one"):
        assert schema[name].class_names == ("cat", "dog"), name
        assert schema[name].shape == (None,)
    assert not reading.source.input_report().warnings


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        ({"_type": "Hologram"}, "column a: Hologram of int64"),
        ({"_type": "ClassLabel", "names": ["x"]}, ""),
        (IMAGE, "column a: Image of int64"),
        ([LABEL, LABEL], "column a: "),
        ({"_type": "Array2D"}, "column a: Array2D of int64"),
        ({"_type": "Array2D", "shape": [1, 1]}, "column a: Array2D of int64"),
    ],
)
def test_metadata_that_columns_do_not_agree_with_is_told(
    tmp_path: Path, feature: Any, told: str
) -> None:
    made = table({"a": feature}, a=pa.array([0, 0], pa.int64()))
    reading = read_table(tmp_path, made)
    assert reading.rows == [{"a": 0}, {"a": 0}]
    assert str(reading.source.input_report().warnings).count(told) == 1 or not told


@pytest.mark.parametrize("shape", [["x"], [None, 2], [-1], [0.5], [1 << 70], 2])
def test_shapes_that_are_none_are_told(tmp_path: Path, shape: Any) -> None:
    lists = pa.array([[1], [2, 3]], pa.list_(pa.int64()))
    feature = {"_type": "Array2D", "shape": shape, "dtype": "int64"}
    reading = read_table(tmp_path, table({"a": feature}, a=lists))
    assert reading.rows == [{"a": [1]}, {"a": [2, 3]}]
    assert "column a: Array2D of list" in str(reading.source.input_report().warnings)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"info": {"features": 3}}'])
def test_damaged_metadata_is_told(text: str) -> None:
    schema = pa.schema({"a": pa.int64()}, {"huggingface": text})
    (told,) = read_column_metadata(schema).unused_metadata
    assert told.startswith("the metadata 'huggingface'")


def test_files_that_number_classes_otherwise_are_refused(tmp_path: Path) -> None:
    one = table({"y": LABEL}, y=pa.array([0]))
    other = table({"y": {**LABEL, "names": ["dog", "cat"]}}, y=pa.array([0]))
    for name, made in (("a", one), ("b", other)):  # the way out: one by one
        assert len(read_table(tmp_path, made, name=name).rows) == 1
    with pytest.raises(InputError, match=r"'y' are dog, cat; expected cat, dog"):
        read(ColumnarSource(), tmp_path)


def test_dataset_has_names_and_appended_files_must_have_them(tmp_path: Path) -> None:
    file, out = tmp_path / "in" / "a.parquet", tmp_path / "out"
    file.parent.mkdir()
    images = pa.array([{"bytes": png(i), "path": f"{i}.png"} for i in range(3)], FILE)
    labels = pa.array([0, 1, 1])
    write_typed(table({"image": IMAGE, "y": LABEL}, image=images, y=labels), "parquet", file, 2)  # fmt: skip
    ran = command("convert", "parquet", file.parent, out)
    assert ran.status == 0, ran.err
    assert "by metadata: image images, y 2 classes" in ran.err
    assert (out / "y.labels.txt").read_text() == "cat\ndog\n"
    features = {each["name"]: each for each in manifest_of(out)["features"]}
    assert features["image"]["content"] == "picture"
    found = [example.features.feature for example in examples_of(out)]
    assert sorted(
        (each["image/path"].bytes_list.value[0], each["y"].int64_list.value[0])
        for each in found
    ) == [(b"0.png", 0), (b"1.png", 1), (b"2.png", 1)]
    others = {"image": IMAGE, "y": {**LABEL, "names": ["cat", "cow"]}}
    write_typed(table(others, image=images, y=labels), "parquet", file.with_name("b.parquet"), 2)  # fmt: skip
    ran = command("convert", "parquet", file.parent, out, "--append")
    assert ran.status != 0
    assert "cat, cow" in ran.err
    write_typed(table({"image": IMAGE, "y": LABEL}, image=images, y=labels), "parquet", file.with_name("b.parquet"), 2)  # fmt: skip
    ran = command("convert", "parquet", file.parent, out, "--append")
    assert ran.status == 0, ran.err
    assert len([*examples_of(out)]) == 6


def test_tables_that_state_json_does_not_list_are_left_out(tmp_path: Path) -> None:
    made = table({"y": LABEL}, y=pa.array([0, 1]))
    for name in ("data-00000-of-00001.arrow", "cache-12ab.arrow", "more.arrow"):
        write_typed(made, "arrow", tmp_path / name, 9)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    kept, told, _ = remove_documents(list_inputs([str(tmp_path)])[1], "arrow")
    assert [file.path for file in kept] == ["data-00000-of-00001.arrow"]
    assert "cache-12ab.arrow" in dict(told.fields)["left out, no tables"]
    state["_indices_data_files"] = [{"filename": "more.arrow"}]
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match="an index file chooses the rows"):
        remove_documents(list_inputs([str(tmp_path)])[1], "arrow")


def test_labels_of_appended_files_without_metadata_are_checked(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    job = ["convert", "parquet", tmp_path / "in", tmp_path / "out"]
    write_typed(table({"y": LABEL}, y=pa.array([0, 1])), "parquet", tmp_path / "in/a.parquet", 9)  # fmt: skip
    assert command(*job).status == 0
    write_typed(pa.table({"y": [1, 7]}), "parquet", tmp_path / "in/b.parquet", 9)
    ran = command(*job, "--append")
    assert ran.status != 0
    assert "7 is not a class index (0 to 1)" in ran.err


def test_other_files_than_images_have_not_their_path_alone(tmp_path: Path) -> None:
    sounds = [{"bytes": b"RIFF", "path": "a"}, {"bytes": None, "path": "b.wav"}, None]
    made = table({"s": {"_type": "Video"}}, s=pa.array(sounds, FILE))
    reading = read_table(tmp_path, made)
    assert [row["s"] for row in reading.rows] == [b"RIFF", None]
    (reject,) = reading.rejects
    assert "only the path 'b.wav'" in reject.reason


@pytest.mark.parametrize(
    "feature",
    [
        {"_type": ["a"]},
        {"_type": "ClassLabel"},
        {"_type": "ClassLabel", "names": 5},
        {"_type": "ClassLabel", "names": ["a", "a"]},
        {"_type": "ClassLabel", "num_classes": "a"},
    ],
)
def test_classes_that_cannot_be_used_are_told(tmp_path: Path, feature: Any) -> None:
    made = table({"a": feature}, a=pa.array([0, 5], pa.int64()))
    reading = read_table(tmp_path, made)
    assert reading.rows == [{"a": 0}, {"a": 5}]
    assert len(reading.source.input_report().warnings) == 1


def test_lists_of_arrays_have_their_shape(tmp_path: Path) -> None:
    grid = {"shape": [2, 2], "dtype": "float32", "_type": "Array2D"}
    cells = pa.list_(pa.list_(pa.list_(pa.float32())))
    made = table(
        {"g": {"feature": grid, "_type": "List"}},
        g=pa.array([[[[1, 2], [3, 4]]], []], cells),
    )
    reading = read_table(tmp_path, made)
    assert reading.source.schema()["g"].shape == (None, 2, 2)
    assert [row["g"] for row in reading.rows] == [[[[1, 2], [3, 4]]], []]


def test_a_schema_says_what_classes_and_columns_are(tmp_path: Path) -> None:
    """The way out of files that number classes otherwise; images that it leaves out."""
    (tmp_path / "in").mkdir()
    images = pa.array([{"bytes": b"no image", "path": "x"}], FILE)
    for name, names in (("a", ["cat", "dog"]), ("b", ["dog", "cat"])):
        made = table(
            {"y": {**LABEL, "names": names}, "image": IMAGE},
            y=pa.array([2]),
            image=images,
        )
        write_typed(made, "parquet", tmp_path / "in" / f"{name}.parquet", 9)
    (tmp_path / "s.yaml").write_text(
        "features:\n  y: {dtype: int64, classes: [cat, dog, emu]}\n"
    )
    ran = command("convert", "parquet", tmp_path / "in", tmp_path / "out", "--schema", tmp_path / "s.yaml")  # fmt: skip
    assert ran.status == 0, ran.err
