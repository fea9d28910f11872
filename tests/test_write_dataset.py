"""WriteDataset: the same bytes from the same rows, published whole or not at all."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from interop_tools import ask
from job_tools import assert_unpublished, assert_whole, contents, manifest_of, shards_of
from rows_tools import (
    RUNNERS,
    SCHEMA,
    error_of,
    in_chunks,
    make_rows,
    pipeline,
    read,
    read_back,
    same_rows,
    write,
)
from store_servers import Place
from store_tools import local_files, published

from beam_jobs import rows_steps
from beam_jobs.write_dataset import WriteDataset
from schemas.errors import RejectLimitError, SchemaError, UsageError
from schemas.proto.example_pb2 import Example, SequenceExample
from schemas.schema_file import load_schema
from transforms.dataset.verify import verify_dataset
from transforms.rows import encode, work
from transforms.run.clean import clean
from transforms.run.publish import switch
from transforms.stores import LocalStore
from transforms.stores.lease import acquire

ROWS = make_rows(120)
EXCHANGES = ["scratch", "engine"]
JOB: dict[str, Any] = {
    "name": "same",
    "shards": 3,
    "splits": {"train": "3/4", "test": 0.25},
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs to stores work meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ROWS as a dataset. Never change it."""
    output = tmp_path_factory.mktemp("model") / "out"
    write(ROWS, output, **JOB)
    return output


def test_the_dataset_holds_the_rows(model: Path) -> None:
    assert_whole(model)
    assert verify_dataset(str(model), deep=True).problems == ()
    assert same_rows(read(model, as_="dict"), map(read_back, ROWS))
    manifest = manifest_of(model)
    assert (manifest["rows_read"], manifest["rows_rejected"]) == (120, 0)
    assert [len(shards_of(model, split)) for split in ("train", "test")] == [3, 3]
    assert json.loads((model / "run.json").read_bytes())["exchange"] == "scratch"


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("runner", RUNNERS)
def test_same_bytes_on_every_runner(
    tmp_path: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
    exchange: str,
) -> None:
    """In another order, in other bundles, in small blocks, runs and pieces."""
    monkeypatch.setattr(encode, "_BATCH_ROWS", 7)
    monkeypatch.setattr(rows_steps, "_RUN_BYTES", 3000)
    monkeypatch.setattr(rows_steps, "_PIECES_BYTES", 3000)
    rows = random.Random(runner).sample(ROWS, len(ROWS))
    write(rows, tmp_path / "out", runner=runner, exchange=exchange, **JOB)
    assert_whole(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(model)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_repeated_bundles_do_no_harm(
    tmp_path: Path, model: Path, exchange: str
) -> None:
    """Every bundle three times, as if its results had been lost twice."""
    write(ROWS, tmp_path / "out", bundle_repeat=2, exchange=exchange, **JOB)
    assert_whole(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(model)


@pytest.mark.parametrize("runner", ["one", "portable"])
def test_same_bytes_in_every_store(
    store_place: Place, model: Path, cache: Path, runner: str
) -> None:
    """Runs lie in the store, too, where workers may be elsewhere."""
    options: dict[str, Any] = {"storage": store_place.options.to_dict()}
    for exchange in EXCHANGES:  # the second time it is there already
        options["exchange"] = exchange
        write(ROWS, store_place.root, runner=runner, **options, **JOB)
        assert published(store_place) == local_files(model)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    storage = store_place.options.to_dict()
    found = read(store_place.root, as_="dict", storage=storage, runner=runner)
    assert same_rows(found, map(read_back, ROWS))


def test_the_exchange_hangs_on_the_runner(tmp_path: Path) -> None:
    for runner, exchange in (("one", "scratch"), ("portable", "engine")):
        write(ROWS[:3], tmp_path / runner, runner=runner)
        facts = json.loads((tmp_path / runner / "run.json").read_bytes())
        assert facts["exchange"] == exchange


def columns_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows as Arrow has them; arrays are flat there."""
    flat = [
        {
            name: value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
            for name, value in row.items()
        }
        for row in rows
    ]
    names = sorted({name for row in rows for name in row})
    return pa.RecordBatch.from_pylist([{n: row.get(n) for n in names} for row in flat])


@pytest.mark.parametrize(
    "kind", ["batch", "table", "example", "bytes", "bytearray", "mixed"]
)
def test_same_bytes_from_every_kind_of_element(
    tmp_path: Path, model: Path, kind: str
) -> None:
    batches = [columns_of(chunk) for chunk in in_chunks(ROWS, 50)]
    examples = read(model, as_="example")
    elements = {
        "batch": batches,
        "table": [pa.Table.from_batches(batches[:1]), *batches[1:]],
        "example": examples,
        "bytes": [bytes(record) for record in read(model)],
        "bytearray": [bytearray(record) for record in read(model)],
    }
    rows = elements.get(kind, [])
    if kind == "mixed":
        last = tmp_path / "last"
        write(ROWS[100:], last, name="last")
        rows = [*ROWS[:50], batches[1], *read(last, as_="example")]
    write(rows, tmp_path / "out", **JOB)
    assert contents(tmp_path / "out") == contents(model)


def test_every_way_to_give_a_schema(tmp_path: Path, model: Path) -> None:
    text = json.dumps({"features": SCHEMA})  # JSON is YAML
    (tmp_path / "schema.yaml").write_text(text)
    declared = load_schema(text.encode(), "schema.yaml")
    schemas = [str(tmp_path / "schema.yaml"), tmp_path / "schema.yaml", declared]
    for number, schema in enumerate([*schemas, str(model / "schema.pbtxt")]):
        rows = ROWS if number < 3 else read(model)  # default and classes are resolved
        write(rows, tmp_path / f"{number}", schema, **JOB)
        shards = {
            f: d for f, d in contents(tmp_path / f"{number}").items() if "-of" in f
        }
        assert shards == {f: d for f, d in contents(model).items() if "-of" in f}


def test_repeated_rows_stay(tmp_path: Path) -> None:
    rows = [{"a": number % 3} for number in range(30)]
    for exchange in EXCHANGES:
        output = tmp_path / exchange
        write(rows, output, {"a": "int64"}, exchange=exchange, name="x", shards=4)
        assert same_rows(read(output, as_="dict"), rows)
        assert_whole(output)
    assert contents(tmp_path / "scratch") == contents(tmp_path / "engine")


def example(**features: Any) -> Example:
    made = Example()
    for name, values in features.items():
        kind = {int: "int64_list", float: "float_list", bytes: "bytes_list"}
        if values:
            chosen = getattr(made.features.feature[name], kind[type(values[0])])
            chosen.value.extend(values)
        else:
            made.features.feature[name].int64_list.SetInParent()
    return made


def test_examples_without_a_schema_tell_their_features(tmp_path: Path) -> None:
    examples = [
        example(a=[1], b=[b"x"], c=[0.5, 1.5], d=[1, 2, 3], e=[7], empty=[]),
        example(a=[2], b=[b"y"], c=[2.5, 3.5], d=[], empty=[]),
        example(a=[3], b=[b"z"], c=[4.5, 5.5], d=[1], empty=[]),
    ]
    for exchange in EXCHANGES:
        rows = [examples[0], examples[1].SerializeToString(), examples[2]]
        write(rows, tmp_path / exchange, None, exchange=exchange, name="x")
    assert contents(tmp_path / "scratch") == contents(tmp_path / "engine")
    output = tmp_path / "scratch"
    assert verify_dataset(str(output), deep=True).problems == ()
    found = {
        feature["name"]: (feature["dtype"], feature["shape"], feature["optional"])
        for feature in manifest_of(output)["features"]
    }
    assert found == {
        "a": ("int64", [], False),
        "b": ("bytes", [], False),
        "c": ("float32", [2], False),
        "d": ("int64", [None], False),
        "e": ("int64", [], True),
        "empty": ("int64", [None], False),
    }
    back = read(output, as_="example")
    assert sorted(map(str, back)) == sorted(map(str, examples))


def test_examples_that_contradict_each_other(tmp_path: Path) -> None:
    rows = [example(a=[1]), example(a=[b"x"], b=[1])]
    error = error_of(lambda: write(rows, tmp_path / "out", None))
    assert (
        "feature 'a' is bytes_list in some examples and int64_list in others" in error
    )
    assert_unpublished(tmp_path / "out")


def test_raw_records_are_written_unseen(tmp_path: Path) -> None:
    rows = [b"one", b"\0\xff", b"", b"one"]
    write(rows, tmp_path / "out", payload="raw", schema=None)
    assert sorted(read(tmp_path / "out")) == sorted(rows)
    assert sorted(
        row["record"] for row in read(tmp_path / "out", as_="dict")
    ) == sorted(rows)
    (feature,) = manifest_of(tmp_path / "out")["features"]
    assert (feature["name"], feature["dtype"]) == ("record", "bytes")
    assert verify_dataset(str(tmp_path / "out"), deep=True).problems == ()


@pytest.mark.parametrize("payload", ["sequence_example", "json", "raw"])
def test_other_payloads(tmp_path: Path, payload: str) -> None:
    schema = {"raw": {"text": "string"}}.get(
        payload, {"text": "string", "n": {"dtype": "int64", "shape": [None]}}
    )
    if payload == "sequence_example":
        schema["n"] = {"dtype": "int64", "sequence": True}
    rows = [{"text": f"row {n}", "n": [n, 2]} for n in range(20)]
    write(rows, tmp_path / "dicts", schema, payload=payload, name="x")
    assert verify_dataset(str(tmp_path / "dicts"), deep=True).problems == ()
    found = read(tmp_path / "dicts", as_="dict")
    assert sorted(row["text"] for row in found) == sorted(r["text"] for r in rows)
    # The same from finished records.
    as_ = "example" if payload == "sequence_example" else "bytes"
    records = read(tmp_path / "dicts", as_=as_)
    assert isinstance(records[0], SequenceExample if as_ == "example" else bytes)
    write(records, tmp_path / "again", schema, payload=payload, name="x")
    assert contents(tmp_path / "again") == contents(tmp_path / "dicts")


def test_a_row_keeps_its_split(tmp_path: Path, model: Path) -> None:
    job = JOB | {"shards": 1}
    write([*ROWS[:60], *make_rows(40, seed=1)], tmp_path / "other", **job)
    for split in ("train", "test"):
        first, second = read(model, split), read(tmp_path / "other", split)
        other = "test" if split == "train" else "train"
        assert len(set(first) & set(second)) > 5
        assert not set(first) & set(read(tmp_path / "other", other))


def test_another_seed_gives_another_order(tmp_path: Path, model: Path) -> None:
    write(ROWS, tmp_path / "out", seed=1, **JOB)
    assert sorted(read(tmp_path / "out")) == sorted(read(model))
    assert contents(tmp_path / "out").keys() == contents(model).keys()
    assert sorted(read(tmp_path / "out", "test")) != sorted(read(model, "test"))


@pytest.mark.parametrize("kind", ["dict", "batch", "example", "bytes"])
def test_rows_with_the_same_value_never_part(tmp_path: Path, kind: str) -> None:
    rows = [{"user": f"u{n % 20}", "n": n} for n in range(200)]
    schema: Any = {"user": "string", "n": "int64"}
    elements: list[Any] = list(rows)
    if kind == "batch":
        elements = [pa.RecordBatch.from_pylist(rows[start::3]) for start in range(3)]
    elif kind != "dict":
        elements = [example(user=[r["user"].encode()], n=[r["n"]]) for r in rows]
        schema = schema if kind == "bytes" else None
    if kind == "bytes":
        elements = [element.SerializeToString() for element in elements]
    splits = {"a": 0.5, "b": 0.5}
    write(elements, tmp_path / "out", schema, split_by="user", splits=splits)
    users = [
        {row["user"] for row in read(tmp_path / "out", split, as_="dict")}
        for split in splits
    ]
    assert all(users)
    assert not users[0] & users[1]
    assert len(users[0] | users[1]) == 20


BAD_ROWS: list[Any] = [
    {"label": "lion"},
    {"label": 7},
    {"label": 1.5},
    {"label": None},
    {"label": "cat", "size": object()},
    {"label": "cat", "size": 2**70},
    {"label": b"\xff"},
    {},
]


def test_rejects_are_kept_the_same_in_every_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"label": {"classes": ["cat", "dog"]}, "size": "int64?"}
    good = [{"label": "cat", "size": n} for n in range(40)]
    rows = [*good, *BAD_ROWS, example(label=[5]), b"nothing"]
    monkeypatch.setattr(encode, "_BATCH_ROWS", 5)
    found = []
    for exchange, runner in (("scratch", "one"), ("engine", "two")):
        output = tmp_path / exchange
        job = {"max_rejects": "20%", "exchange": exchange, "name": "x"}
        shuffled = random.Random(exchange).sample(rows, len(rows))
        write(shuffled, output, schema, runner=runner, **job)
        assert_whole(output)
        assert manifest_of(output)["rows_rejected"] == 10
        found.append(contents(output))
    assert found[0] == found[1]
    lines = [
        json.loads(line)
        for file in (tmp_path / "engine" / "rejects").iterdir()
        for line in file.read_text().splitlines()
    ]
    reasons = {base64.b64decode(line["raw"]): line["reason"] for line in lines}
    assert len(lines) == len(reasons) == 10
    assert "'lion'" in reasons[b'{"label": "lion"}']
    assert "double cannot become int64" in reasons[b'{"label": 1.5}']
    assert "of type object" in reasons[b'{"label": "cat", "size": "<object>"}']
    assert (
        "beyond 64 bits" in reasons[b'{"label": "cat", "size": 1180591620717411303424}']
    )
    assert "missing" in reasons[b"{}"]
    assert "5" in reasons[example(label=[5]).SerializeToString()]


def test_too_many_rejects_show_one(tmp_path: Path) -> None:
    schema = {"a": "int64"}
    rows = [{"a": 1}, {"a": "x"}, {"a": 2}]
    error = error_of(lambda: write(rows, tmp_path / "out", schema))
    assert "rows or more were rejected, allowed are 0" in error
    assert """column 'a'""" in error or "feature 'a'" in error
    assert '{"a": "x"}' in error
    assert "allow more with max_rejects" in error
    error = error_of(lambda: write(rows, tmp_path / "out", schema, max_rejects="10%"))
    assert "1 of 3 rows were rejected, allowed are 10%" in error
    assert_unpublished(tmp_path / "out")
    clean(LocalStore(str(tmp_path / "out")))  # what the two left
    write(rows, tmp_path / "out", schema, max_rejects=1)
    assert_whole(tmp_path / "out")


def test_the_same_rows_again_change_nothing(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ROWS, tmp_path / "out", **JOB)
    before = {
        p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (tmp_path / "out").iterdir()
    }
    monkeypatch.setattr(rows_steps, "write_shard", None)  # not even made again
    write(ROWS[::-1], tmp_path / "out", **JOB)
    after = {
        p: (p.stat().st_ino, p.stat().st_mtime_ns) for p in (tmp_path / "out").iterdir()
    }
    assert after == before


def test_another_dataset_is_replaced_only_if_asked(tmp_path: Path, model: Path) -> None:
    output = tmp_path / "out"
    write(ROWS[:10], output, **JOB | {"shards": 5})
    before = contents(output)
    error = error_of(lambda: write(ROWS, output, **JOB))
    assert "holds another dataset" in error
    assert "replace it with overwrite=True" in error
    assert {
        f: d for f, d in contents(output).items() if ".recordmill" not in f
    } == before
    clean(LocalStore(str(output)))  # what the one that was refused left
    write(ROWS, output, overwrite=True, **JOB)
    assert_whole(output)
    assert contents(output) == contents(model)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("years of work")
    error = error_of(lambda: write(ROWS[:3], tmp_path / "out", overwrite=True))
    assert "is not empty (thesis.txt) and holds no dataset" in error
    assert [p.name for p in (tmp_path / "out").iterdir() if p.is_file()] == [
        "thesis.txt"
    ]


def test_goes_on_from_what_is_finished(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are named by what they will hold, so the next pipeline finds them."""
    output = tmp_path / "out"

    def broken(*_: object) -> None:
        raise OSError("the power went")

    for exchange in EXCHANGES:
        with monkeypatch.context() as patch:
            patch.setattr(work, "stage", broken)
            assert "the power went" in error_of(
                lambda e=exchange: write(ROWS, output, exchange=e, **JOB)  # type: ignore[misc]
            )
    assert_unpublished(output)
    # As if one shard had never been finished.
    (gone,) = output.glob(".recordmill/*/facts/shard-train-00001.json")
    gone.unlink()
    sent = []

    def noting(*arguments: Any) -> Any:
        for number, piece in cut_block(*arguments):
            sent.append(number)
            yield number, piece

    cut_block = rows_steps.cut_block
    monkeypatch.setattr(rows_steps, "cut_block", noting)
    write(ROWS, output, exchange="engine", **JOB)
    assert contents(output).keys() >= contents(model).keys()
    left = {path.parent.name for path in output.glob(".recordmill/*/runs")}
    assert all(name.startswith("rows-") for name in left)
    clean(LocalStore(str(output)))
    assert_whole(output)
    assert contents(output) == contents(model)


def test_a_switch_that_was_broken_off_is_repeated(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the runner tries the last step again, or the whole pipeline is run."""
    moved = []

    def breaking(scratch: Any) -> Any:
        if not moved:
            moved.append(scratch)
            shard = next(iter(scratch.store.list(scratch.in_store("staging"))))
            scratch.store.move(shard, shard.rpartition("/")[2])
            raise OSError("the power went")
        return switch(scratch)

    monkeypatch.setattr(work, "switch", breaking)
    assert "the power went" in error_of(lambda: write(ROWS, tmp_path / "out", **JOB))
    assert not (tmp_path / "out" / "manifest.json").exists()
    write(ROWS, tmp_path / "out", **JOB)
    clean(LocalStore(str(tmp_path / "out")))
    assert contents(tmp_path / "out") == contents(model)


def test_an_output_that_another_run_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LEASE_TRIES", 2)
    monkeypatch.setattr(work, "LEASE_PAUSE_SECONDS", 0.1)
    with acquire(LocalStore(str(tmp_path / "out"))):
        error = error_of(lambda: write(ROWS[:3], tmp_path / "out"))
    assert "another run is writing here" in error
    assert_unpublished(tmp_path / "out")


def test_the_last_step_waits_for_a_lease_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = acquire(LocalStore(str(tmp_path / "out")))
    monkeypatch.setattr(work.time, "sleep", lambda _: lease.release())
    write(ROWS[:3], tmp_path / "out")
    assert_whole(tmp_path / "out")


def test_gives_the_manifest(tmp_path: Path) -> None:
    with pipeline() as p:
        manifest = p | beam.Create(ROWS[:9]) | WriteDataset(tmp_path / "words", SCHEMA)
        counts = manifest | beam.Map(lambda m: f"{m.name} {m.records}")
        counts | beam.io.WriteToText(str(tmp_path / "told"), shard_name_template="")
    assert (tmp_path / "told").read_text() == "words 9\n"


def test_two_in_one_pipeline(tmp_path: Path) -> None:
    with pipeline("two") as p:
        rows = p | beam.Create([{"a": n} for n in range(20)])
        for name, low in (("low", True), ("high", False)):
            own = rows | f"Take {name}" >> beam.Filter(
                lambda row, low=low: (row["a"] < 9) == low
            )
            own | f"Write {name}" >> WriteDataset(tmp_path / name, {"a": "int64"})
    found = {row["a"] for row in read(tmp_path / "low", as_="dict")}
    assert found == set(range(9))
    assert manifest_of(tmp_path / "high")["rows_read"] == 11


def test_in_a_window_of_its_own(tmp_path: Path) -> None:
    """Rows with timestamps in small windows make one dataset all the same."""
    with pipeline() as p:
        (
            p
            | beam.Create([{"a": n} for n in range(10)])
            | beam.Map(lambda row: beam.window.TimestampedValue(row, row["a"] * 100))
            | beam.WindowInto(beam.window.FixedWindows(10))
            | WriteDataset(tmp_path / "out", {"a": "int64"})
        )
    assert_whole(tmp_path / "out")
    assert manifest_of(tmp_path / "out")["rows_read"] == 10


def test_gzip_and_sizes(tmp_path: Path) -> None:
    rows = [{"text": f"row {n} " * 10} for n in range(2000)]
    for exchange in EXCHANGES:
        output = tmp_path / exchange
        job = {"compression": "gzip", "shard_size": "40K", "name": "x"}
        write(rows, output, {"text": "string"}, exchange=exchange, **job)
        assert_whole(output)
        assert 4 <= len(shards_of(output)) <= 8
        assert same_rows(read(output, as_="dict"), rows)
    assert contents(tmp_path / "scratch") == contents(tmp_path / "engine")


def test_tensorflow_reads_it(model: Path) -> None:
    (found,) = ask("read_dataset.py", "tfds", model)
    counts = {split: entry["read"] for split, entry in found.items()}
    wanted = {n: s["records"] for n, s in manifest_of(model)["splits"].items()}
    assert counts == wanted
    features = found["train"]["features"]
    assert features["image"] == ["uint8", [4, 4, 1]]
    assert features["boxes"] == ["float32", [None, 4]]


SEQUENCE = SequenceExample()


@pytest.mark.parametrize(
    ("rows", "schema", "options", "expected"),
    [
        ([{"a": 1}], None, {}, "a dict needs a schema to become a record"),
        (["text"], None, {}, "takes dicts, pyarrow.RecordBatch, tf.train.Example or"),
        ([SEQUENCE], None, {}, "SequenceExample is no record of payload 'example'"),
        (
            [pa.RecordBatch.from_pydict({"b": [1]})],
            {"a": "int64"},
            {},
            "no column 'a' among b",
        ),
        (
            [pa.RecordBatch.from_pydict({"a": [1.5]})],
            {"a": "int64"},
            {},
            "double cannot become int64",
        ),
        ([b"\xff"], None, {}, "are no tf.train.Example; other records need payload"),
        ([b"x"], {"a": "int64"}, {}, "are no tf.train.Example"),
        ([], {"a": "int64"}, {}, "no record to write: 0 rows read"),
        (
            [{"a": 1}],
            {"a": "int64"},
            {"split_by": "b"},
            "a row has no such key; it has",
        ),
        (
            [{"a": [1]}],
            {"a": "int64[]"},
            {"split_by": "a"},
            "told apart by single values",
        ),
        (
            [pa.RecordBatch.from_pydict({"a": [1]})],
            {"a": "int64"},
            {"split_by": "b"},
            "split_by 'b': a batch has no such column",
        ),
        (
            [pa.RecordBatch.from_pydict({"a": [[1]]})],
            {"a": "int64[]"},
            {"split_by": "a"},
            "cannot be told apart by values of type list",
        ),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, rows: list[Any], schema: Any, options: dict[str, Any], expected: str
) -> None:
    error = error_of(lambda: write(rows, tmp_path / "out", schema, **options))
    assert expected in error
    assert_unpublished(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "kind", "expected"),
    [
        ({"exchange": "reference"}, UsageError, "exchange is auto, scratch or engine"),
        (
            {"splits": {"a": 0.5}},
            UsageError,
            "splits: the splits' fractions must add up",
        ),
        ({"shards": 0}, UsageError, "greater than or equal to 1"),
        ({"name": "1x"}, UsageError, "name: a dataset name starts with a letter"),
        ({"max_rejects": "some"}, UsageError, "give a count like 10"),
        ({"payload": "json"}, UsageError, "payload 'json' needs a schema"),
        ({"storage": {"secret": "x"}}, UsageError, "looks like a secret"),
        ({"scratch": "s3://b/x"}, UsageError, "scratch: expected a local folder"),
        ({"shard_size": "big"}, UsageError, "give a size like 128MiB"),
        ({"schema": 7}, UsageError, "schema is a path, a mapping of features"),
        ({"schema": {"a": "int65"}}, SchemaError, "int65"),
        ({"schema": {"a": {"bytes_from": "path"}}}, SchemaError, "stand beside none"),
        (
            {"schema": {"a": "int64"}, "payload": "raw"},
            SchemaError,
            "no feature has one bytes value",
        ),
    ],
)
def test_arguments_that_cannot_be(
    arguments: dict[str, Any], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=expected.replace("(", r"\(")):
        WriteDataset("out", **arguments)


def test_an_unbounded_collection(tmp_path: Path) -> None:
    p = beam.Pipeline()
    rows = p | beam.Create([1])
    rows.is_bounded = False
    with pytest.raises(UsageError, match="the collection is unbounded"):
        rows | WriteDataset(tmp_path / "out", {"a": "int64"})


def test_a_schema_file_that_is_not_there(tmp_path: Path) -> None:
    error = error_of(lambda: write([{"a": 1}], tmp_path / "out", "no.yaml"))
    assert "no.yaml: cannot be read" in error


def test_constructing_touches_no_storage(tmp_path: Path) -> None:
    WriteDataset(tmp_path / "deep" / "out", tmp_path / "no schema yet.yaml")
    assert not list(tmp_path.iterdir())


def test_reject_limit_error_is_one() -> None:
    error = encode.too_many_rejects(
        "1 rows", "0", encode._reject_line("no", b"x" * 400)
    )
    assert isinstance(error, RejectLimitError)
    assert str(error).count("x") < 350
