"""Damage of a dataset: what verify finds, and that the ways out it names work."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from job_tools import (
    GOLDEN,
    IRIS,
    SAMPLES,
    Ran,
    assert_whole,
    contents,
    convert,
    manifest_of,
    recordmill,
    shards_of,
)
from same_dataset import dataset_of
from small_dataset import SCHEMA, rows, write_dataset

from recordmill.beam_jobs.report.tables import show_verify
from recordmill.beam_jobs.service import run as run_job
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.commit import commit as committing
from recordmill.transforms.dataset import reader
from recordmill.transforms.dataset.deep_check import DeepCheck, check_values
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.payloads import encode_payload
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.storage.lease import LEASE_NAME, Lease, acquire
from recordmill.transforms.storage.shard_file import write_records
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    frame_records,
)

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
    frame_records(framed)
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
    assert verify_dataset(str(folder)).is_undamaged
    result = verify_dataset(str(folder), deep=True)
    assert {problem.file for problem in result.problems} <= {FIRST}
    return [problem.message for problem in result.problems]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_whole_dataset(tmp_path: Path, compression: str) -> None:
    write_dataset(tmp_path / "zoo", compression)
    result = verify_dataset(str(tmp_path / "zoo"), full=False, deep=True)
    assert (result.is_undamaged, result.full, result.deep, result.records) == (
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
    steps = FeatureSpec("s", Kind.INT64, is_sequence=True, maximum=5)
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


def test_names_are_whole_where_there_is_no_terminal(tmp_path: Path) -> None:
    """Programs search the lines for them."""
    name = "long_" * 24 + "name"
    output = tmp_path / "iris"
    assert recordmill("convert", "csv", IRIS, output, "--name", name).status == 0
    (shard,) = output.glob(f"{name}-*")
    shard.unlink()
    assert shard.name in recordmill("verify", output).out


JOB = ("images", SAMPLES / "images")
OPTIONS = ("--shards", 2, "--name", "zoo")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("whole") / "zoo"
    convert(*JOB, output, *OPTIONS)
    return output


@pytest.fixture
def zoo(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "zoo"))


def lose(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def change(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


DAMAGES = [lose, cut, change]


def problem_files(folder: Path, *, full: bool = True) -> set[str]:
    found = verify_dataset(str(folder), full=full).problems
    assert {problem.kind for problem in found} <= {"damage"}
    return {problem.file for problem in found}


def convert_again(folder: Path, *options: str) -> Ran:
    return recordmill("convert", *JOB, folder, *OPTIONS, *options)


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_is_looked_at(zoo: Path, damage: Callable[[Path], None]) -> None:
    """All but the manifest itself, and what differs from run to run."""
    unnamed = {"manifest.json", "run.json", "inventory.jsonl.gz"}
    files = {file.name for file in zoo.iterdir()} - unnamed
    assert len(files) == 2 + 5
    for name in sorted(files):
        kept = (zoo / name).read_bytes()
        damage(zoo / name)
        assert problem_files(zoo) == {name}
        assert problem_files(zoo, full=False) == (set() if damage is change else {name})
        (zoo / name).write_bytes(kept)
    assert not problem_files(zoo)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["shard", "metadata"])
def test_overwrite_makes_a_damaged_dataset_anew(
    whole: Path, zoo: Path, which: str, damage: Callable[[Path], None]
) -> None:
    names = (
        [shards_of(zoo)[1].name]
        if which == "shard"
        else list(manifest_of(zoo)["files"])
    )
    for name in names:
        damage(zoo / name)
    ran = recordmill("verify", zoo)
    assert ran.status == 1
    assert "is damaged. Convert again with --overwrite to rebuild it" in ran.out
    ran = convert_again(zoo, "--overwrite", "--json")
    assert json.loads(ran.out)["status"] == "done", ran.err
    assert dataset_of(zoo) == dataset_of(whole)
    assert_whole(zoo)


def test_overwrite_leaves_a_whole_dataset(zoo: Path) -> None:
    (zoo / "zoo-train.tfrecord-00007-of-00009").write_bytes(b"not ours")
    before = {file: file.stat().st_ino for file in zoo.iterdir()}
    ran = convert_again(zoo, "--overwrite", "--json")
    assert json.loads(ran.out)["status"] == "unchanged", ran.err
    assert {file: file.stat().st_ino for file in zoo.iterdir()} == before


def test_plan_says_that_it_is_replaced(zoo: Path) -> None:
    cut(shards_of(zoo)[0])
    ran = convert_again(zoo, "--overwrite", "--plan", "--json")
    assert json.loads(ran.out)["verdict"] == "replace"


def test_a_manifest_that_contradicts_itself(whole: Path, zoo: Path) -> None:
    facts = manifest_of(zoo)
    facts["rows_read"] += 1
    (zoo / "manifest.json").write_text(json.dumps(facts))
    assert recordmill("verify", zoo).status == 1
    assert convert_again(zoo, "--overwrite").status == 0
    assert dataset_of(zoo) == dataset_of(whole)


def test_killed_while_it_is_made_anew(
    whole: Path, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are moved, but not the manifest."""
    lose(shards_of(zoo)[0])
    with monkeypatch.context() as patch:
        patch.setattr(committing, "require_stored", _fail)
        assert convert_again(zoo, "--overwrite").status == 1
    ran = convert_again(zoo, "--overwrite")
    assert ran.status == 0, ran.err
    assert dataset_of(zoo) == dataset_of(whole)
    assert_whole(zoo)


def _fail(*_: object, **__: object) -> None:
    raise OSError("killed")


def test_a_stray_file_is_named_and_deleted(zoo: Path) -> None:
    stray = zoo / "zoo-train.tfrecord-00007-of-00009"
    stray.write_bytes(b"")
    ran = recordmill("verify", zoo)
    assert ran.status == 1
    assert "Delete the files that the table names" in ran.out
    assert "--overwrite" not in ran.out
    stray.unlink()
    assert recordmill("verify", zoo).status == 0


def test_files_of_a_run_that_lost_its_lease_are_cleaned(
    zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had moved its shards; a file of somebody else needs another way out."""
    before, held = contents(zoo), list[Lease]()

    def acquire_noted(*arguments: Any, **options: Any) -> Lease:
        held.append(acquire(*arguments, **options))
        return held[-1]

    def lose_lease(store: Store, *_: object, **__: object) -> None:
        store.delete([LEASE_NAME])
        assert not held[-1].is_held()  # as its next renewal finds out

    monkeypatch.setattr(run_job, "acquire", acquire_noted)
    with monkeypatch.context() as patch:
        patch.setattr(committing, "require_stored", lose_lease)
        ran = convert_again(zoo, "--overwrite", "--seed", 2)
    assert ran.status == 75
    assert "lost its lease" in ran.err
    moved = {name for name in contents(zoo).keys() - before if ".tfrecord" in name}
    assert moved
    ran = recordmill("verify", zoo)
    assert ran.status == 1
    assert all(f"{name} " in ran.out for name in moved)
    assert f"`recordmill clean {zoo}` removes them" in ran.out
    assert "Delete the files" not in ran.out
    report = json.loads(recordmill("verify", zoo, "--json").out)
    assert {(p["file"], p["kind"]) for p in report["problems"]} == {
        (name, "leftover") for name in moved
    }
    stray = zoo / "zoo-train.tfrecord-00007-of-00009"
    stray.write_bytes(b"")
    assert "Delete the files that the table names" in recordmill("verify", zoo).out
    stray.unlink()
    assert recordmill("clean", zoo).status == 0
    assert recordmill("verify", zoo).status == 0
    after = contents(zoo)
    assert {name for name in after if ".tfrecord" in name} <= before.keys()
    assert_whole(zoo)


@pytest.mark.parametrize("way", ["--overwrite", "remove"])
def test_the_ways_out_of_a_lost_shard(zoo: Path, way: str) -> None:
    lose(shards_of(zoo)[0])
    ran = convert_again(zoo)
    assert ran.status == 73
    assert (
        "The dataset is damaged: convert again with --overwrite, or remove its folder "
        "and convert again"
    ) in ran.err
    if way == "remove":
        shutil.rmtree(zoo)
    assert convert_again(zoo, *([way] if way != "remove" else [])).status == 0
    assert_whole(zoo)


def test_the_way_out_where_versions_are_chosen(tmp_path: Path) -> None:
    job = ("csv", IRIS, tmp_path / "out", "--dataset-version", "auto")
    convert(*job)
    lose(shards_of(tmp_path / "out" / "1.0.0")[0])
    ran = recordmill("verify", tmp_path / "out" / "1.0.0")
    assert "If --dataset-version auto chose its version, remove its folder" in ran.out
    shutil.rmtree(tmp_path / "out" / "1.0.0")
    convert(*job)
    assert_whole(tmp_path / "out" / "1.0.0")
    assert (
        json.loads((tmp_path / "out" / "latest.json").read_bytes())["path"] == "1.0.0"
    )


def test_an_append_keeps_the_entries(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copyfile(IRIS, folder / "a.csv")
    job = ("csv", folder, tmp_path / "out")
    convert(*job)
    first: dict[str, Any] = manifest_of(tmp_path / "out")["files"]
    shutil.copyfile(IRIS, folder / "b.csv")
    convert(*job, "--append")
    files = manifest_of(tmp_path / "out")["files"]
    assert files.keys() == (first.keys() | {"inputs-a00001.jsonl.gz"}) - {
        "dataset_info.json",  # TFDS reads one part only
        "features.json",
    }
    assert files["inputs.jsonl.gz"] == first["inputs.jsonl.gz"]
    for name in files:
        assert (tmp_path / "out" / name).exists()
    assert_whole(tmp_path / "out")
    lose(tmp_path / "out" / "inputs.jsonl.gz")
    assert problem_files(tmp_path / "out") == {"inputs.jsonl.gz"}
    assert recordmill("convert", *job, "--append").status == 73
    convert(*job, "--overwrite")
    assert_whole(tmp_path / "out")


def test_in_a_store() -> None:
    output = f"memory://repair-{uuid4().hex}/zoo"
    convert(*JOB, output, *OPTIONS)
    store = open_store(output)
    shard = next(name for name in store.list() if ".tfrecord" in name)
    store.delete([shard])
    store.put_bytes(b"", "features.json")
    files = {problem.file for problem in verify_dataset(output, full=False).problems}
    assert files == {shard, "features.json"}
    convert(*JOB, output, *OPTIONS, "--overwrite")
    assert verify_dataset(output).is_undamaged


def test_records_that_were_written_so(tmp_path: Path) -> None:
    """Only other inputs help: the same ones would be written in the same way."""
    folder = Path(shutil.copytree(SAMPLES / "images", tmp_path / "in"))
    whole = next(folder.rglob("*.jpg"))
    cut_one = whole.parent / "cut.jpg"
    cut_one.write_bytes(whole.read_bytes()[:-500])
    job = ("images", folder, tmp_path / "out", "--check-images", "header")
    convert(*job)
    ran = recordmill("verify", tmp_path / "out", "--deep")
    assert ran.status == 1
    assert "Fix the inputs or the schema, and convert again with --overwrite" in ran.out
    assert "is damaged" not in ran.out
    cut_one.write_bytes(whole.read_bytes())
    convert(*job, "--overwrite")
    assert recordmill("verify", tmp_path / "out", "--deep").status == 0
