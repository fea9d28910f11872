"""WriteDataset: the same bytes from the same rows, whatever brings them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from interop_tools import ask
from job_tools import assert_whole, contents, manifest_of, recordmill, shards_of
from row_keys import same_rows
from rows_tools import (
    EXCHANGES,
    JOB,
    ROWS,
    RUNNERS,
    SCHEMA,
    pipeline,
    read,
    read_back,
    write,
)
from store_servers import Place
from store_tools import local_files, published

from recordmill.beam_jobs.pipelines import write_dataset as rows_steps
from recordmill.beam_jobs.pipelines.write_dataset import (
    WriteDataset,
    choose_rows_exchange,
    is_embedded,
)
from recordmill.transforms.dataset.verify import verify_dataset
from recordmill.transforms.rows import encode_rows as encode


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs to stores work meanwhile."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_dataset_holds_the_rows(rows_dataset: Path) -> None:
    assert_whole(rows_dataset)
    assert verify_dataset(str(rows_dataset), deep=True).problems == ()
    assert same_rows(read(rows_dataset, as_="dict"), map(read_back, ROWS))
    manifest = manifest_of(rows_dataset)
    assert (manifest["rows_read"], manifest["rows_rejected"]) == (120, 0)
    assert [len(shards_of(rows_dataset, split)) for split in ("train", "test")] == [
        3,
        3,
    ]
    assert json.loads((rows_dataset / "run.json").read_bytes())["exchange"] == "scratch"


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_index_files(tmp_path: Path, exchange: str) -> None:
    output = tmp_path / "out"
    write(ROWS, output, exchange=exchange, index=True, **JOB)
    written = {path.name: path.read_bytes() for path in output.glob("*.idx")}
    assert len(written) == 6
    assert verify_dataset(str(output)).problems == ()
    assert recordmill("index", output).status == 0
    assert {path.name: path.read_bytes() for path in output.glob("*.idx")} == written


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("runner", RUNNERS)
def test_same_bytes_on_every_runner(
    tmp_path: Path,
    rows_dataset: Path,
    monkeypatch: pytest.MonkeyPatch,
    runner: str,
    exchange: str,
) -> None:
    """In another order, in other bundles, in small blocks, runs and pieces."""
    monkeypatch.setattr(encode, "_BATCH_ROWS", 7)
    monkeypatch.setattr(rows_steps, "_SORTED_RUN_BYTES", 3000)
    monkeypatch.setattr(rows_steps, "_CUT_BYTES", 3000)
    rows = random.Random(runner).sample(ROWS, len(ROWS))
    write(rows, tmp_path / "out", runner=runner, exchange=exchange, **JOB)
    assert_whole(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(rows_dataset)


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_repeated_bundles_do_no_harm(
    tmp_path: Path, rows_dataset: Path, exchange: str
) -> None:
    """Every bundle three times, as if its results had been lost twice."""
    write(ROWS, tmp_path / "out", bundle_repeat=2, exchange=exchange, **JOB)
    assert_whole(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(rows_dataset)


@pytest.mark.parametrize(
    ("runner", "exchange"), [("one", "engine"), ("portable", "scratch")]
)
def test_same_bytes_in_every_store(
    store_place: Place, rows_dataset: Path, cache: Path, runner: str, exchange: str
) -> None:
    """Runs lie in the store, too, where workers may be elsewhere."""
    options = {"storage": store_place.options.to_dict(), "exchange": exchange}
    write(ROWS, store_place.root, runner=runner, **options, **JOB)
    assert published(store_place) == local_files(rows_dataset)
    assert not [path for path in cache.rglob("*") if path.is_file()]
    storage = store_place.options.to_dict()
    found = read(store_place.root, as_="dict", storage=storage, runner=runner)
    assert same_rows(found, map(read_back, ROWS))


def test_the_exchange_hangs_on_the_runner(tmp_path: Path) -> None:
    for runner, exchange in (("one", "scratch"), ("portable", "engine")):
        write(ROWS[:3], tmp_path / runner, runner=runner)
        facts = json.loads((tmp_path / runner / "run.json").read_bytes())
        assert facts["exchange"] == exchange


def test_repeated_rows_stay(tmp_path: Path) -> None:
    rows = [{"a": number % 3} for number in range(30)]
    for exchange in EXCHANGES:
        output = tmp_path / exchange
        write(rows, output, {"a": "int64"}, exchange=exchange, name="x", shards=4)
        assert same_rows(read(output, as_="dict"), rows)
        assert_whole(output)
    assert contents(tmp_path / "scratch") == contents(tmp_path / "engine")


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


def test_tensorflow_reads_it(rows_dataset: Path) -> None:
    (found,) = ask("read_dataset.py", "tfds", rows_dataset)
    counts = {split: entry["read"] for split, entry in found.items()}
    wanted = {n: s["records"] for n, s in manifest_of(rows_dataset)["splits"].items()}
    assert counts == wanted
    features = found["train"]["features"]
    assert features["image"] == ["uint8", [4, 4, 1]]
    assert features["boxes"] == ["float32", [None, 4]]


@pytest.mark.parametrize(
    ("runner", "exchange", "embedded"),
    [
        ("DirectRunner", "scratch", True),
        (f"{FnApiRunner.__module__}.FnApiRunner", "scratch", True),
        ("FlinkRunner", "scratch", False),
        ("PortableRunner", "engine", False),
        ("PrismRunner", "engine", False),
    ],
)
def test_exchange_by_runner(runner: str, exchange: str, embedded: bool) -> None:
    pipeline = beam.Pipeline(runner=runner)
    assert choose_rows_exchange(pipeline) == exchange
    assert is_embedded(pipeline) == embedded
