"""convert with --schema, --expect-schema and --payload, end to end by the command."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    GOLDEN,
    SAMPLES,
    assert_unpublished,
    assert_whole,
    contents,
    convert,
    examples_of,
    manifest_of,
    payloads,
    recordmill,
    shards_of,
)

pytestmark = pytest.mark.usefixtures("without_beam")

ROWS = [
    "name,age,boxes,matrix,blob,kind,note",
    'ann,7,0.5;0.25,"[[1,2],[3,4]]",aGk=,cat,hello',
    'bob,8,,"[[5,6],[7,8]]",aG8=,dog,',
    'cyd,9,1,"[[0,0],[0,1]]",,cat,x',
    'dan,400,1,"[[0,0],[0,1]]",,cat,too old',
    'eve,5,1,"[[0,0],[0,1]]",,cow,no such class',
    'fay,5,1.5,"[[0,0],[0,1]]",,cat,box out of range',
    'gus,5,1,"[[0,0],[0]]",,cat,matrix of three',
]
SCHEMA = """\
features:
  person: {column: name, dtype: string}
  age: uint8
  boxes/x: {column: boxes, dtype: float32, shape: [null], separator: ";",
            min: 0, max: 1, optional: true}
  matrix: {dtype: int32, shape: [2, 2], cell: json, stored: tensor}
  blob: {dtype: bytes, cell: base64, default: ""}
  kind: {classes: [cat, dog]}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def values(example: Any, name: str) -> list[Any]:
    if name not in example.features.feature:  # looking it up would add it
        return []
    feature = example.features.feature[name]
    return list(getattr(feature, feature.WhichOneof("kind")).value)


def reasons(folder: Path) -> dict[int, str]:
    """The reasons of the rejects, by the row's first byte in the file."""
    lines = [
        json.loads(line)
        for file in (folder / "rejects").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    return {line["position"]: line["reason"] for line in lines}


def test_csv_by_a_declared_schema(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "\n".join(ROWS) + "\n")
    schema = write(tmp_path, "schema.yaml", SCHEMA)
    out = tmp_path / "out"
    convert("csv", rows, out, "--schema", schema, "--no-shuffle", "--max-rejects", 4)
    assert_whole(out)
    ann, bob, cyd = examples_of(out)
    assert values(ann, "person") == [b"ann"]
    assert [values(e, "age") for e in (ann, bob, cyd)] == [[7], [8], [9]]
    assert [values(e, "boxes/x") for e in (ann, bob, cyd)] == [[0.5, 0.25], [], [1.0]]
    assert "boxes/x" not in bob.features.feature
    assert [values(e, "blob") for e in (ann, bob, cyd)] == [[b"hi"], [b"ho"], [b""]]
    assert [values(e, "kind") for e in (ann, bob, cyd)] == [[0], [1], [0]]
    assert "note" not in ann.features.feature
    # tf.io.serialize_tensor([[1, 2], [3, 4]], int32): dtype 3, two dims, content
    header = bytes.fromhex("08031208120208021202080222" + "10")
    content = b"".join(n.to_bytes(4, "little") for n in (1, 2, 3, 4))
    assert values(ann, "matrix") == [header + content]
    starts = [sum(len(row) + 1 for row in ROWS[:n]) for n in range(len(ROWS))]
    found = reasons(out)
    assert sorted(found) == starts[4:]
    for start, word in zip(starts[4:], ("400", "cow", "1.5", "matrix"), strict=True):
        assert word in found[start]


def test_a_dataset_carries_the_schema_that_makes_it_again(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "\n".join(ROWS[:4]) + "\n")
    schema = write(tmp_path, "schema.yaml", SCHEMA)
    convert("csv", rows, tmp_path / "out", "--schema", schema)
    kept = tmp_path / "out" / "schema.pbtxt"
    assert kept.is_file()
    convert("csv", rows, tmp_path / "plain")
    again = tmp_path / "again"
    convert("csv", rows, again, "--schema", tmp_path / "plain" / "schema.pbtxt")
    plain = manifest_of(tmp_path / "plain")
    assert manifest_of(again)["features"] == plain["features"]
    assert [shard.read_bytes() for shard in shards_of(again)] == [
        shard.read_bytes() for shard in shards_of(tmp_path / "plain")
    ]


IMAGES = """\
features:
  image: {picture: {format: png}}
  label: {classes: [cat, dog]}
"""


CIFAR = """\
features:
  pixels: {column: image, dtype: uint8, shape: [32, 32, 3], stored: bytes_list}
  class: {column: label, dtype: int8, max: 8}
"""
FILES = """\
features:
  image/encoded: {column: path, bytes_from: path}
  image/path: {column: path, dtype: string}
  text: string
"""


def test_images_that_are_not_as_declared_are_rejects(tmp_path: Path) -> None:
    schema = write(tmp_path, "schema.yaml", IMAGES)
    outs = []
    for exchange in ("reference", "scratch"):
        out = tmp_path / exchange / "out"
        job = ("images", GOLDEN / "images", out, "--schema", schema)
        convert(*job, "--max-rejects", "50%", "--exchange", exchange)
        assert_whole(out)
        assert manifest_of(out)["rows_rejected"] == 2
        assert all("jpeg" in reason for reason in reasons(out).values())
        outs.append({k: v for k, v in contents(out).items() if "rejects" not in k})
        assert [values(e, "label") for e in examples_of(out)] == [[1], [1]]
    assert outs[0] == outs[1]


def test_cifar_by_a_declared_schema(tmp_path: Path) -> None:
    schema = write(tmp_path, "schema.yaml", CIFAR)
    out, job = tmp_path / "out", ("cifar", GOLDEN / "cifar10.bin")
    convert(*job, out, "--schema", schema, "--max-rejects", "90%")
    raw = (GOLDEN / "cifar10.bin").read_bytes()
    labels = [raw[start] for start in range(0, len(raw), 3073)]
    found = sorted(values(e, "class")[0] for e in examples_of(out))
    assert found == sorted(label for label in labels if label <= 8)
    assert all(len(values(e, "pixels")[0]) == 3072 for e in examples_of(out))
    options = ("--schema", schema, "--exchange", "reference")
    by_reference = recordmill("convert", *job, tmp_path / "other", *options)
    assert by_reference.status == 2
    assert "Use --exchange auto or --exchange scratch" in by_reference.err


def test_cells_that_name_files(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    for name, content in (("a.jpg", b"A" * 9), ("b.jpg", b"B")):
        (data / "images" / name).write_bytes(content)
    write(tmp_path, "secret", "not for this dataset")
    rows = write(
        data,
        "rows.csv",
        "path,text\nimages/a.jpg,first\nimages/b.jpg,second\n"
        "images/c.jpg,lost\n../secret,outside\n",
    )
    schema = write(tmp_path, "schema.yaml", FILES)
    out = tmp_path / "out"
    job = ("csv", rows, out, "--schema", schema, "--max-rejects", 2, "--no-shuffle")
    convert(*job)
    found = [
        values(e, "image/encoded") + values(e, "image/path") for e in examples_of(out)
    ]
    assert found == [[b"A" * 9, b"images/a.jpg"], [b"B", b"images/b.jpg"]]
    assert len(reasons(out)) == 2
    unchanged = json.loads(convert(*job, "--json").out)
    assert unchanged["status"] == "unchanged"
    (data / "images" / "a.jpg").write_bytes(b"other bytes")
    changed = recordmill("convert", *job)
    assert changed.status != 0, "a file that a cell names is input too"


def test_expected_schema_holds_back_what_differs(tmp_path: Path) -> None:
    old = write(tmp_path, "old.csv", "id,score,name\n1,0.5,a\n2,0.7,b\n")
    new = write(tmp_path, "new.csv", "id,score,extra\n1,high,3\n2,low,4\n")
    convert("csv", old, tmp_path / "old")
    out = tmp_path / "new"
    ran = recordmill("convert", "csv", new, out, "--expect-schema", tmp_path / "old")
    assert ran.status == 65
    for feature in ("extra", "score", "name"):
        assert feature in ran.err
    assert "id" not in ran.err.replace("is not", "").split()
    assert_unpublished(out)
    same = convert("csv", old, tmp_path / "same", "--expect-schema", tmp_path / "old")
    assert same.status == 0


def test_expected_ranges_hold_back_what_is_outside(tmp_path: Path) -> None:
    schema = write(
        tmp_path, "schema.yaml", "features:\n  id: {dtype: int64, min: 0, max: 5}\n"
    )
    inside = write(tmp_path, "inside.csv", "id\n1\n5\n")
    outside = write(tmp_path, "outside.csv", "id\n1\n6\n")
    convert("csv", inside, tmp_path / "one", "--expect-schema", schema)
    job = ("convert", "csv", outside, tmp_path / "two")
    ran = recordmill(*job, "--expect-schema", schema)
    assert ran.status == 65
    assert "6" in ran.err
    assert "id" in ran.err
    assert_unpublished(tmp_path / "two")


def test_payload_json(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "id,name\n1,a\n2,b\n")
    out = tmp_path / "out"
    convert("csv", rows, out, "--payload", "json", "--no-shuffle")
    assert_whole(out)
    found = [json.loads(data) for shard in shards_of(out) for data in payloads(shard)]
    assert [one["features"]["feature"]["id"] for one in found] == [
        {"int64List": {"value": ["1"]}},
        {"int64List": {"value": ["2"]}},
    ]
    name = found[1]["features"]["feature"]["name"]["bytesList"]["value"]
    assert [base64.b64decode(text) for text in name] == [b"b"]
    assert manifest_of(out)["payload"] == "json"
    assert not (out / "features.json").exists(), "TFDS cannot read these records"


def test_payload_raw_of_images_is_their_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    convert("images", SAMPLES / "images", out, "--payload", "raw")
    files = sorted(
        path.read_bytes()
        for path in (SAMPLES / "images").rglob("*")
        if path.suffix in (".jpg", ".png")
    )
    assert sorted(d for shard in shards_of(out) for d in payloads(shard)) == files


def test_payload_raw_needs_one_column_of_bytes(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "a,b\nx,y\n")
    ran = recordmill("convert", "csv", rows, tmp_path / "out", "--payload", "raw")
    assert ran.status == 65
    assert "a" in ran.err
    assert "--schema" in ran.err
    assert_unpublished(tmp_path / "out")


def test_schemas_that_cannot_be(tmp_path: Path) -> None:
    rows = write(tmp_path, "rows.csv", "name\nx\n")
    for schema, status, words in (
        ("features:\n  nam: string\n", 65, ["nam", "name"]),  # no such column
        ("features:\n  name: strin\n", 2, ["name", "strin"]),
        ("features: [\n", 2, ["schema.yaml", "line"]),
        ("", 2, ["schema.yaml"]),
    ):
        file = write(tmp_path, "schema.yaml", schema)
        ran = recordmill("convert", "csv", rows, tmp_path / "out", "--schema", file)
        assert ran.status == status, ran.err
        assert all(word in ran.err for word in words)
        assert_unpublished(tmp_path / "out")


def test_decimal_commas_beside_a_schema(tmp_path: Path) -> None:
    """`--decimal comma` is what the schema file could say of each number."""
    table = tmp_path / "in.csv"
    table.write_text("id;price;rate;name\n1;1,5;2.5;a\n2;2,25;3.5;b\n")
    short = "features: {id: int64, price: float32, name: string, RATE}"
    rate = "rate: {dtype: float32, decimal: point}"
    full = short.replace("float32", "{dtype: float32, decimal: comma}")
    full = full.replace("id: int64", "id: {dtype: int64, decimal: comma}")
    for name, text, more in (("one", short, ["--decimal", "comma"]), ("two", full, [])):
        schema = tmp_path / f"{name}.yaml"
        schema.write_text(text.replace("RATE", rate))
        output = tmp_path / name / "data"
        convert("csv", table, output, "--schema", schema, *more)
    assert contents(tmp_path / "one" / "data") == contents(tmp_path / "two" / "data")
