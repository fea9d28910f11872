"""recordmill inspect: what it shows of a dataset of each payload."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_dataset import IMAGES, write_dataset, write_parts

from recordmill.beam_jobs.cli.main import run
from recordmill.beam_jobs.report.dataset_report import show_dataset
from recordmill.beam_jobs.report.tables import show_verify
from recordmill.schemas.errors import CorruptRecordError, OutputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.schemas.text import format_bytes
from recordmill.transforms.dataset.examples import Selection
from recordmill.transforms.dataset.verify import Problem, VerifyResult, verify_dataset
from recordmill.transforms.decode.readable import format_value, to_json_value
from recordmill.transforms.decode.tf_code import parsing_spec


def entry(kind: Kind = Kind.BYTES, **facts: Any) -> FeatureSpec:
    return FeatureSpec("f", kind, **facts)


INT = entry(kind=Kind.INT64, dtype="int64")
INTS = entry(kind=Kind.INT64, dtype="int64", shape=(None,))
BOOL = entry(kind=Kind.INT64, dtype="bool")
FLOAT = entry(kind=Kind.FLOAT, dtype="float32")
TEXT = entry(dtype="string")
BYTES = entry()
IMAGE = entry(dtype="uint8", content=Content.IMAGE, shape=(None, None, None))
ARRAY = entry(dtype="uint8", content=Content.ARRAY, shape=(2, 3))
ARRAYS = entry(dtype="float32", content=Content.ARRAY, shape=(None, 2))


MANY = list(range(1000))
ZEROS = {"hex": "00" * 12, "bytes": 5000}
PNG_FACTS = {
    "image": "png",
    "height": 8,
    "width": 6,
    "depth": 4,
    "bytes": len(IMAGES[1]),
}
ARRAY_FACTS = {"array": "uint8", "shape": [2, 3], "mean": 3.5, "bytes": 6}
ARRAYS_FACTS = {"array": "float32", "shape": [3, 2], "mean": 0.0, "bytes": 24}


@pytest.fixture(autouse=True)
def plain_console(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def inspected(folder: Path, **options: Any) -> str:
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_dataset(str(folder), **options)
    return stream.getvalue()


def facts_of(folder: Path, examples: int) -> Any:
    return json.loads(inspected(folder, selection=Selection(examples), as_json=True))


@pytest.mark.parametrize(
    ("value", "feature", "names", "line", "facts"),
    [
        (7, INT, (), "7", 7),
        ([], INTS, (), "[]", []),  # an empty list is not a missing feature
        ([7], INTS, (), "[7]", [7]),
        (MANY, INTS, (), "[0, 1, 2, 3, 4, 5, ... 1,000 in total]", MANY),
        (True, BOOL, (), "true", True),
        (1, INT, ("cat", "dog"), "1 (dog)", {"index": 1, "name": "dog"}),
        (2, INT, ("cat", "dog"), "2", 2),  # beyond the names
        (-1, INT, ("cat", "dog"), "-1", -1),  # not the last of them
        (0.1 + 0.2, FLOAT, (), "0.3", 0.1 + 0.2),
        (1e30, FLOAT, (), "1e+30", 1e30),
        (float("nan"), FLOAT, (), "nan", "nan"),
        (float("-inf"), FLOAT, (), "-inf", "-inf"),
        ("山羊", TEXT, (), '"山羊"', "山羊"),
        ("a\nb\x1b[31m", TEXT, (), r'"a\nb\x1b[31m"', "a\nb\x1b[31m"),
        ("x" * 300, TEXT, (), f'"{"x" * 200}"... (300 characters)', "x" * 300),
        (b"plain", BYTES, (), "706c61696e (5 B)", {"hex": "706c61696e", "bytes": 5}),
        (b"", BYTES, (), "0 B", {"hex": "", "bytes": 0}),
        (bytes(5000), BYTES, (), f"{'00' * 12}... (5.0 kB)", ZEROS),
        (IMAGES[1], IMAGE, (), f"PNG 6x8x4, {len(IMAGES[1])} B", PNG_FACTS),
        (bytes(range(1, 7)), ARRAY, (), "uint8 2x3, mean 3.5", ARRAY_FACTS),
        (bytes(24), ARRAYS, (), "float32 3x2, mean 0", ARRAYS_FACTS),
    ],
)
def test_value(
    value: Any, feature: FeatureSpec, names: tuple[str, ...], line: str, facts: object
) -> None:
    assert format_value(value, feature, names) == line
    assert to_json_value(value, feature, names) == facts
    json.dumps(to_json_value(value, feature, names), allow_nan=False)


def test_an_image_that_is_none() -> None:
    line = r"not an image: starts with b'abc' \(expected JPEG.*616263 \(3 B\)"
    assert re.match(line, format_value(b"abc", IMAGE))


def test_human_bytes() -> None:
    sizes = (0, 999, 1000, 23_400, 999_949, 999_950, 3 * 10**18)
    assert [format_bytes(size) for size in sizes] == [
        *("0 B", "999 B", "1.0 kB", "23.4 kB", "999.9 kB", "1.0 MB", "3000.0 PB")
    ]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_tables(tmp_path: Path, compression: str) -> None:
    write_dataset(tmp_path / "zoo", compression)
    text = inspected(tmp_path / "zoo")
    assert "\x1b" not in text
    assert max(len(line) for line in text.splitlines()[2:]) <= 80
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert words[0] == "zoo 1.0.0"
    assert f"compression {compression}, shuffled with seed 7" in words[2]
    assert words[3] == "10 rows read, 1 rejected"
    for line in [
        "image/class/label int64, 2 classes int64_list",
        "image/encoded uint8 image, any x any x any bytes_list",
        "pixels uint8 array, 2 x 3 bytes_list",
        "age int64, optional int64_list",
        "sure bool int64_list",
        "tags string, any bytes_list",
        "image/class/label 1 (dog [red])",
        f"image/encoded PNG 6x8x4, {len(IMAGES[1])} B",
        "pixels uint8 2x3, mean 2.5",
        "age -",
        'text "goat"',
        r'text "Ziege \x1b[31m"',
        "raw ff001bff001bff001bff001b... (30 B)",
        "score 0.125",
    ]:
        assert line in words
    assert sum(line.startswith("train: record ") for line in words) == 3
    (train,) = [line for line in words if line.startswith("train ")]
    assert train.split()[1] == "7"


def test_examples_go_on_in_the_next_shard(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    facts = facts_of(tmp_path / "zoo", 100)
    shards = {"train.tfrecord-00000-of-00002": 3, "train.tfrecord-00001-of-00002": 4}
    shards["test.tfrecord-00000-of-00001"] = 2
    assert [(found["file"], found["record"]) for found in facts["examples"]] == [
        (f"zoo-{shard}", record)
        for shard, records in shards.items()
        for record in range(records)
    ]


def test_json(tmp_path: Path) -> None:
    manifest = write_dataset(tmp_path / "zoo")
    facts = facts_of(tmp_path / "zoo", 1)
    sizes = [shard.bytes for shard in manifest.splits["train"].shards]
    assert facts["splits"]["train"] == {
        "records": 7,
        "bytes": sum(sizes),
        "shards": 2,
        "smallest_shard": min(sizes),
        "largest_shard": max(sizes),
    }
    (label,) = [f for f in facts["features"] if f["name"] == "image/class/label"]
    assert label["class_names"] == ["cat", "dog [red]"]
    (example,) = facts["examples"]
    assert example["features"]["image/class/label"] == {"index": 0, "name": "cat"}
    assert example["features"]["text"] == "goat"
    assert "age" not in example["features"]
    assert (facts["seed"], facts["shuffle"], facts["rows_read"]) == (7, True, 10)


@pytest.mark.parametrize("labels", [None, b"cat\n", b"\xff\n\xff\n"])
def test_without_fitting_labels(tmp_path: Path, labels: bytes | None) -> None:
    write_dataset(tmp_path / "zoo")
    file = tmp_path / "zoo" / "image.class.label.labels.txt"
    file.unlink()
    if labels is not None:
        file.write_bytes(labels)
    facts = facts_of(tmp_path / "zoo", 1)
    assert facts["examples"][0]["features"]["image/class/label"] == 0


def test_no_examples_wanted(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    assert ": record " not in inspected(tmp_path / "zoo", selection=Selection(0))


def test_damaged_first_record(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    file = tmp_path / "zoo" / "zoo-train.tfrecord-00000-of-00002"
    file.write_bytes(b"\xff" + file.read_bytes()[1:])
    stream = io.StringIO()
    problem = pytest.raises(CorruptRecordError, match="record 0 at byte 0")
    with problem, redirect_stdout(stream):
        show_dataset(str(tmp_path / "zoo"))
    assert "splits" in stream.getvalue()  # what is known is shown all the same


def test_missing_first_shard(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    (tmp_path / "zoo" / "zoo-train.tfrecord-00000-of-00002").unlink()
    with pytest.raises(OutputError, match="00000-of-00002: is missing, the manifest"):
        inspected(tmp_path / "zoo", as_json=True)


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"no manifest\.json"):
        inspected(tmp_path)


def verified(result: VerifyResult, *, as_json: bool = False) -> str:
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_verify(result, as_json=as_json)
    return stream.getvalue()


def test_show_verify_of_a_whole_dataset(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    result = verify_dataset(str(tmp_path / "zoo"))
    assert verified(result).startswith(
        "zoo: every checksum, count and size is right (3 shards, 9 records, "
    )
    facts = json.loads(verified(result, as_json=True))
    assert facts["ok"] is True
    assert facts["problems"] == []


def test_show_verify_of_a_quick_look(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    result = verify_dataset(str(tmp_path / "zoo"), full=False)
    assert verified(result).startswith("zoo: all sizes are right (3 shards, ")


def test_show_verify_with_problems() -> None:
    problems = (
        Problem("zoo-train.tfrecord-00000-of-00002", "record 3 [bold] at byte 7: bad"),
        Problem("a\x1b[31m.tfrecord", "not in the manifest"),
    )
    result = VerifyResult("/out", "zoo", True, False, 0, 1, 1, 1000, "", 0, problems)
    text = verified(result)
    assert text.startswith("zoo: 2 problems (1 shard, 1 record found, 1.0 kB)\n")
    assert "\x1b" not in text
    assert "record 3 [bold] at byte 7: bad" in text
    assert r"a\x1b[31m.tfrecord" in text
    facts = json.loads(verified(result, as_json=True))
    assert facts["ok"] is False
    assert facts["problems"][0]["message"] == "record 3 [bold] at byte 7: bad"


LABEL = FeatureSpec("label", Kind.INT64)
TOKENS = FeatureSpec("tokens", Kind.INT64, shape=(None, None))
GRID = FeatureSpec(
    "grid", Kind.BYTES, dtype="int8", shape=(None, 2), content=Content.TENSOR
)
WORDS = FeatureSpec(
    "words", Kind.BYTES, dtype="string", shape=(None,), content=Content.TENSOR
)
FRAMES = FeatureSpec("frames", Kind.FLOAT, shape=(2,), is_sequence=True, optional=True)
ROWS: dict[str, list[Any]] = {
    "label": [7, 8],
    "tokens": [[[1, 2], [], [3]], [[n] for n in range(9)]],
    "grid": [[1, -2, 3, 4], list(range(20))],
    "words": [["ß", "a\nb"], []],
    "frames": [[[0.5, 1.5]] * 5, None],
}


def write(folder: Path, features: list[FeatureSpec], payload: Payload) -> Schema:
    """A dataset with one shard of ROWS; gives its schema."""
    schema = Schema(tuple(features))
    batch = pa.RecordBatch.from_pydict({f.name: ROWS[f.name] for f in features})
    write_parts(folder, schema, {"train": [batch]}, payload)
    assert verify_dataset(str(folder), deep=True).is_undamaged
    return schema


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the tables, with single spaces."""
    monkeypatch.setenv("COLUMNS", "100")
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_dataset(str(folder))
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


def facts(folder: Path) -> list[Any]:
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_dataset(str(folder), as_json=True)
    examples: list[Any] = json.loads(stream.getvalue())["examples"]
    return examples


def test_tensors_and_ragged_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "zoo", [LABEL, TOKENS, GRID, WORDS], "example")
    lines = shown(tmp_path / "zoo", monkeypatch)
    for line in [
        "grid int8 tensor, any x 2 bytes_list",
        "tokens int64, any x any int64_list",
        "grid int8 2x2, mean 1.5",
        "grid int8 10x2, mean 9.5",
        "tokens [[1, 2], [], [3]]",
        "tokens [[0], [1], [2], [3], [4], [5], ... 9 in total]",
        r'words ["ß", "a\nb"]',
        "words []",
    ]:
        assert line in lines
    assert not any("ragged_flat" in line for line in lines)
    first = facts(tmp_path / "zoo")[0]["features"]
    assert first == {
        "grid": {"array": "int8", "shape": [2, 2], "mean": 1.5, "bytes": 4},
        "label": 7,
        "tokens": [[1, 2], [], [3]],
        "words": ["ß", "a\nb"],
    }


def test_sequence_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "zoo", [LABEL, FRAMES], "sequence_example")
    lines = shown(tmp_path / "zoo", monkeypatch)
    for line in [
        "frames steps of float32, 2, optional float_list",
        "frames 5 steps: [0.5, 1.5], [0.5, 1.5], [0.5, 1.5], ...",
        "frames -",
        "label 7",
    ]:
        assert line in lines
    assert any("payload sequence_example, compression none" in line for line in lines)
    first, second = facts(tmp_path / "zoo")
    assert first["features"] == {"frames": [[0.5, 1.5]] * 5, "label": 7}
    assert second["features"] == {"label": 8}


def test_json_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "zoo", [LABEL], "json")
    assert "label 7" in shown(tmp_path / "zoo", monkeypatch)
    assert facts(tmp_path / "zoo")[0]["features"] == {"label": 7}


def test_a_record_that_does_not_fit(tmp_path: Path) -> None:
    write(tmp_path / "zoo", [LABEL], "example")
    change = json.loads((tmp_path / "zoo" / "manifest.json").read_bytes())
    change["features"][0].update(kind="float_list", dtype="float32")
    (tmp_path / "zoo" / "manifest.json").write_text(json.dumps(change))
    with pytest.raises(OutputError, match="record 0 does not fit the dataset's schema"):
        show_dataset(str(tmp_path / "zoo"))


@pytest.mark.parametrize(
    ("values", "content", "line"),
    [
        ([b"some text", b""], Content.VALUES, 'f "some text"'),
        ([b"\x1b[31m", b""], Content.VALUES, "f 1b5b33316d (5 B)"),
        ([b"\xff\0", b""], Content.VALUES, "f ff00 (2 B)"),
        ([b"AAAA"] * 2, Content.ARRAY, "f uint8 4, mean 65"),
        ([IMAGES[1]] * 2, Content.IMAGE, f"f PNG 6x8x4, {len(IMAGES[1])} B"),
    ],
)
def test_raw(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: list[bytes],
    content: Content,
    line: str,
) -> None:
    feature = FeatureSpec("f", Kind.BYTES, content=content)
    if content is not Content.VALUES:
        shape = (4,) if content is Content.ARRAY else ()
        feature = FeatureSpec(
            "f", Kind.BYTES, dtype="uint8", shape=shape, content=content
        )
    monkeypatch.setitem(ROWS, "f", values)
    write(tmp_path / "zoo", [feature], "raw")
    assert line in shown(tmp_path / "zoo", monkeypatch)


@pytest.mark.parametrize("payload", ["example", "sequence_example", "json"])
def test_tensorflow_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], payload: Payload
) -> None:
    schema = write(tmp_path / "zoo", [LABEL], payload)
    assert run(["inspect", "--tf", str(tmp_path / "zoo")]) == 0
    code = capsys.readouterr().out
    assert parsing_spec(schema, payload) in code
    assert run(["inspect", "--tf", "--json", str(tmp_path / "zoo")]) == 0
    assert json.loads(capsys.readouterr().out) == {"tf": code}
