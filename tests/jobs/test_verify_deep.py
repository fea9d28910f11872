"""Records that are whole, with checksums that are right, and yet do not fit."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from job_tools import GOLDEN, IRIS, SAMPLES, convert, recordmill
from small_dataset import SCHEMA, rows, write_dataset

from recordmill.beam_jobs.cli.main import run
from recordmill.beam_jobs.report.tables import show_verify
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.dataset import reader
from recordmill.transforms.dataset.deep_check import DeepCheck, check_values
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.payloads import encode_payload
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import FRAME_BYTES, HEAD_BYTES, TAIL_BYTES, seal

FIRST = "zoo-train.tfrecord-00000-of-00002"


def changed(schema: Schema, **columns: list[Any]) -> list[bytes]:
    """The dataset's first three records, some of their columns changed."""
    batch = rows(0, 3)
    for name, values in columns.items():
        index = batch.schema.get_field_index(name)
        array = pa.array(values, batch.schema.field(index).type)
        batch = batch.set_column(index, name, array)
    records: list[bytes] = encode(batch, schema).to_pylist()
    return records


def rewrite(folder: Path, records: list[bytes]) -> None:
    """Puts records into the first shard, and their facts into the manifest."""
    room = [bytes(HEAD_BYTES) + record + bytes(TAIL_BYTES) for record in records]
    joined = b"".join(room)
    offsets = [0]
    for record in room:
        offsets.append(offsets[-1] + len(record))
    framed = pa.BinaryArray.from_buffers(
        pa.binary(),
        len(room),
        [
            None,
            pa.py_buffer(pa.array(offsets, pa.int32()).buffers()[1]),
            pa.py_buffer(bytearray(joined)),
        ],
    )
    seal(framed)
    facts = write_records(folder / FIRST, [framed], "none")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    split = manifest["splits"]["train"]
    shard = split["shards"][0]
    split["bytes"] += facts.bytes - shard["bytes"]
    split["records"] += facts.records - shard["records"]
    manifest["rows_read"] += facts.records - shard["records"]
    shard.update(bytes=facts.bytes, records=facts.records, crc32c=f"{facts.crc32c:08x}")
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "zoo")
    return tmp_path / "zoo"


def messages(folder: Path) -> list[str]:
    """What is wrong with the first shard, and nothing else may be."""
    assert verify_dataset(str(folder)).ok
    result = verify_dataset(str(folder), deep=True)
    assert {problem.file for problem in result.problems} <= {FIRST}
    return [problem.message for problem in result.problems]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_whole_dataset(tmp_path: Path, compression: str) -> None:
    write_dataset(tmp_path / "zoo", compression)
    result = verify_dataset(str(tmp_path / "zoo"), full=False, deep=True)
    assert (result.ok, result.full, result.deep, result.records) == (
        True,
        True,
        True,
        9,
    )
    stream = io.StringIO()
    with redirect_stdout(stream):
        show_verify(result)
    assert stream.getvalue().startswith(
        "zoo: every checksum, count and size is right, every record fits the schema ("
    )


def test_damaged_example_with_a_right_checksum(dataset: Path) -> None:
    records = changed(SCHEMA)
    records[1] = b"\xff" + records[1][1:]
    rewrite(dataset, records)
    (message,) = messages(dataset)
    offset = len(records[0]) + FRAME_BYTES
    assert message.startswith(
        f"record 1 at byte {offset}: {len(records[1])} bytes that start with 'ff"
    )
    assert message.endswith("are not a valid tf.train.Example")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"count": [1, None, 3]}, "feature 'count': missing, but not optional"),
        (
            {"image/class/label": [0, 2, 1]},
            "feature 'image/class/label': 2 is not a class index (0 to 1)",
        ),
        (
            {"image/encoded": [b"no image", b"?", b"?"]},
            "feature 'image/encoded': not an image: starts with b'no image'",
        ),
    ],
)
def test_values_that_the_schema_does_not_allow(
    dataset: Path, columns: dict[str, list[Any]], reason: str
) -> None:
    rewrite(dataset, changed(SCHEMA, **columns))
    assert reason in messages(dataset)[0]


def test_other_kind_and_other_features(dataset: Path) -> None:
    records = changed(SCHEMA)
    example = Example.FromString(records[0])
    example.features.feature["count"].float_list.value.append(1.0)
    records[0] = example.SerializeToString(deterministic=True)
    example = Example.FromString(records[2])
    example.features.feature["zz"].SetInParent()
    records[2] = example.SerializeToString(deterministic=True)
    rewrite(dataset, records)
    third = len(records[0]) + len(records[1]) + 2 * FRAME_BYTES
    assert messages(dataset) == [
        "record 0 at byte 0: feature 'count': float_list, expected int64_list",
        f"record 2 at byte {third}: feature 'zz' is not in the schema",
    ]


def test_many_are_counted(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "WINDOW_RECORDS", 7)
    good = changed(SCHEMA)[0]
    rewrite(dataset, [good, *[b"\xff"] * 1000, good, b"\xfe"])
    first = len(good) + FRAME_BYTES
    found = messages(dataset)
    assert [message.partition(": ")[0] for message in found[:3]] == [
        f"record {n + 1} at byte {first + n * (FRAME_BYTES + 1)}" for n in range(3)
    ]
    assert found[3:] == ["998 more records do not fit the schema, 1,001 in all"]


def test_without_class_names(dataset: Path) -> None:
    (dataset / "image.class.label.labels.txt").unlink()
    (problem,) = verify_dataset(str(dataset), deep=True).problems
    assert problem.file == "image.class.label.labels.txt"
    assert "expected the 2 class names of 'image/class/label'" in problem.message


def test_damage_is_told_as_well(dataset: Path) -> None:
    records = changed(SCHEMA)
    rewrite(dataset, [b"\xff", *records])
    data = bytearray((dataset / FIRST).read_bytes())
    data[-1] ^= 1
    (dataset / FIRST).write_bytes(data)
    found = verify_dataset(str(dataset), deep=True).problems
    assert [problem.message[:9] for problem in found] == ["record 0 ", "record 3 "]


def one(values: list[Any], kind: pa.DataType, feature: FeatureSpec) -> dict[int, str]:
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], ["f"])
    return check_values(batch, Schema((feature,)))


@pytest.mark.parametrize(
    ("kind", "values", "facts", "wrong"),
    [
        (pa.int64(), [0, 1, 2, 9, 10], {"minimum": 1, "maximum": 9}, {0: 0, 4: 10}),
        (pa.int64(), [1, 2, 3], {"minimum": 1.5, "maximum": 2.5}, {0: 1, 2: 3}),
        (pa.int64(), [1, None], {"minimum": 1, "optional": True}, {}),
        (
            pa.int64(),
            [(1 << 53) + 1, 1 << 53],
            {"maximum": (1 << 53)},
            {0: (1 << 53) + 1},
        ),
        (
            pa.float32(),
            [0.1, float("nan"), 0.2],
            {"maximum": 0.1},
            {1: "nan", 2: "0.2"},
        ),
        # Stored as float32, which is above 0.1.
        (pa.float64(), [0.10000000149011612], {"maximum": 0.1, "kind": Kind.FLOAT}, {}),
        (
            pa.list_(pa.int64()),
            [[1, 2], [], [3, 0, -1]],
            {"minimum": 0, "shape": (None,)},
            {2: -1},
        ),
        (
            pa.list_(pa.list_(pa.int64())),
            [[[1], []], [[2, 7]], [], [[7]]],
            {"maximum": 6, "shape": (None, None)},
            {1: 7, 3: 7},
        ),
        (
            pa.binary(),
            [b"\1\2", b"", b"\3\4"],
            {
                "kind": Kind.BYTES,
                "dtype": "uint8",
                "content": Content.ARRAY,
                "shape": (None,),
                "maximum": 3,
            },
            {2: 4},
        ),
    ],
)
def test_bounds(
    kind: pa.DataType, values: list[Any], facts: dict[str, Any], wrong: dict[int, Any]
) -> None:
    facts = {"kind": Kind.INT64, **facts}
    found = one(values, kind, FeatureSpec("f", facts.pop("kind"), **facts))
    assert found.keys() == wrong.keys()
    for row, value in wrong.items():
        assert found[row].startswith(f"feature 'f': {value} is out of range (")


def test_size_of_images() -> None:
    data = (GOLDEN / "images/cat/a.jpg").read_bytes()  # 40 x 30 x 3
    shapes = [
        (None, None, None),
        (40, 30, 3),
        (None, 30, None),
        (40, 30, 1),
        (30, 40, 3),
    ]
    wrong = [
        one(
            [data],
            pa.binary(),
            FeatureSpec(
                "f", Kind.BYTES, dtype="uint8", content=Content.IMAGE, shape=shape
            ),
        )
        for shape in shapes
    ]
    assert wrong[:3] == [{}, {}, {}]
    assert wrong[3] == {
        0: "feature 'f': an image of shape [40, 30, 3], expected [40, 30, 1]"
    }
    assert wrong[4]


@pytest.mark.parametrize("payload", ["sequence_example", "json", "raw"])
def test_other_payloads(payload: Payload) -> None:
    feature = FeatureSpec("f", Kind.BYTES, dtype="string")
    steps = FeatureSpec("s", Kind.INT64, sequence=True, maximum=5)
    features = (feature, steps) if payload == "sequence_example" else (feature,)
    schema = Schema(features)
    batch = pa.RecordBatch.from_pydict({"f": ["a", "b"], "s": [[1, 2], [3, 9]]})
    check = DeepCheck(schema, payload, is_framed=True)
    check.add(encode_payload(batch, schema, payload).cast(pa.binary()))
    check.add(pa.array([b"\xff"]))
    found = [message.partition(" at byte ")[0] for message in check.problems()]
    if payload == "sequence_example":
        assert found == ["record 1", "record 2"]
        assert "feature 's': 9 is out of range (max 5)" in check.problems()[0]
    else:
        assert found == ["record 2"]


@pytest.mark.parametrize(
    ("source", "folder"), [("csv", "iris"), ("cifar", "cifar"), ("images", "images")]
)
def test_what_convert_writes_fits(tmp_path: Path, source: str, folder: str) -> None:
    convert(source, SAMPLES / folder, tmp_path / "out", "--shards", 2)
    assert run(["verify", "--deep", str(tmp_path / "out")]) == 0
    assert run(["verify", "--deep", "--quick", str(tmp_path / "out")]) == 2


def test_names_are_whole_where_there_is_no_terminal(tmp_path: Path) -> None:
    """Programs search the lines for them."""
    name = "long_" * 24 + "name"
    output = tmp_path / "iris"
    assert recordmill("convert", "csv", IRIS, output, "--name", name).status == 0
    (shard,) = output.glob(f"{name}-*")
    shard.unlink()
    assert shard.name in recordmill("verify", output).out
