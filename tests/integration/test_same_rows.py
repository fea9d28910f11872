"""Every reader finds the same rows in a dataset: those of its input.

One process for each framework reads datasets of eight kinds (tests/integration/same_rows).
What a reader cannot read it refuses, by the error that docs/reading-datasets.md tells.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from interop_tools import run_in_interop
from job_tools import GOLDEN, convert, payloads, recordmill, shards_of
from reader_tools import run_reader
from same_rows_cases import KnownDataset, make_all

from recordmill import ReadDataset, open_dataset, read_batches, read_rows
from recordmill.transforms.rows.read_rows import to_dicts

SCRIPTS = Path(__file__).with_name("same_rows")
sys.path.insert(0, str(SCRIPTS))

from row_digest import digested, unbatched  # noqa: E402

Json = dict[str, Any]
Answers = dict[str, dict[str, Json]]  # by dataset and reader

NO_TFDS = "dataset_info.json"
NO_NUMBERS = "compressed with gzip, so single records cannot be read"
NO_INDEX = {
    "gzip": "readers cannot seek to a record",
    "array_record": "which contain an index",
}
# Readers that refuse a dataset, and what their error says.
REFUSED = {
    ("appended", "tfds"): NO_TFDS,
    ("gzip", "tfds"): NO_TFDS,
    ("gzip", "torch, by number, 0 workers"): NO_NUMBERS,
    ("gzip", "torch, by number, 2 workers"): NO_NUMBERS,
    ("gzip", "torch, shuffled"): NO_NUMBERS,
    ("gzip", "grain"): NO_NUMBERS,
    ("gzip", "grain, threads"): NO_NUMBERS,
    ("gzip", "grain, 2 workers"): NO_NUMBERS,
    ("gzip", "tfrecord, index"): ".idx not found",
    ("gzip", "tfrecord, torch, 2 workers"): ".idx not found",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("same_rows")


@pytest.fixture(scope="module")
def known(folder: Path) -> list[KnownDataset]:
    datasets = make_all(folder)
    for dataset in datasets:
        ran = recordmill("index", dataset.output)
        if dataset.name in NO_INDEX:
            assert ran.status != 0
            assert NO_INDEX[dataset.name] in ran.err.replace("\n", " ")
        else:
            assert ran.status == 0, ran.err
    facts = [dataset.facts() for dataset in datasets]
    (folder / "cases.json").write_text(json.dumps(facts))
    return datasets


def check(
    known: list[KnownDataset], printed: str, readers: int, *, array_record: bool
) -> None:
    """Compares what readers print with the rows of the inputs.

    Args:
      known: the datasets.
      printed: a line of JSON for each dataset and reader.
      readers: how many there are.
      array_record: whether they read ArrayRecord files, too.
    """
    answers: Answers = defaultdict(dict)
    for line in printed.splitlines():
        answer = json.loads(line)
        answers[answer.pop("dataset")][answer.pop("reader")] = answer
    assert len({reader for found in answers.values() for reader in found}) == readers
    names = {dataset.name for dataset in known}
    assert set(answers) == names - (set() if array_record else {"array_record"})
    for dataset in known:
        expected = digested(dataset.rows, dataset.features())
        assert expected["rows"] == len(dataset.rows) > 10
        for reader, found in answers.get(dataset.name, {}).items():
            refusal = REFUSED.get((dataset.name, reader))
            if refusal is None:
                assert found == expected, (dataset.name, reader, found)
            else:
                assert refusal in found["error"], (dataset.name, reader, found)


@pytest.mark.parametrize(
    ("script", "readers"), [("by_tensorflow.py", 3), ("by_beam.py", 1)]
)
def test_tensorflow_tfds_and_beam(
    folder: Path, known: list[KnownDataset], script: str, readers: int
) -> None:
    printed = run_in_interop(folder, SCRIPTS / script, folder / "cases.json")
    check(known, printed, readers, array_record=False)


@pytest.mark.parametrize(
    ("script", "readers"),
    [
        ("by_torch.py", 8),
        ("by_hugging_face.py", 2),
        ("by_grain.py", 4),
        ("by_tfrecord.py", 3),
    ],
)
def test_frameworks_for_training(
    folder: Path, known: list[KnownDataset], script: str, readers: int
) -> None:
    printed = run_reader(folder, SCRIPTS / script, folder / "cases.json")
    check(known, printed, readers, array_record=script != "by_tfrecord.py")


def test_grain_reads_array_records(tmp_path: Path) -> None:
    """TFDS: tests/interop/test_array_record_interop.py."""
    job = [GOLDEN / "cifar10.bin", tmp_path / "array_record", "--shards", 3]
    convert("cifar", *job, "--container", "array_record")
    convert("cifar", job[0], tmp_path / "plain", *job[2:])
    files = shards_of(tmp_path / "array_record")
    printed = run_reader(tmp_path, SCRIPTS / "array_records_by_grain.py", *files)
    shards = shards_of(tmp_path / "plain")
    records = [record for shard in shards for record in payloads(shard)]
    assert printed.split() == [sha256(record).hexdigest() for record in records]


def by_number(output: Path) -> Iterator[Json]:
    data = open_dataset(output)
    for number in np.random.default_rng(1).permutation(len(data)):
        yield data[int(number)]


def by_batches(output: Path, **order: Any) -> Iterator[Json]:
    data = open_dataset(output)
    for batch in data.batches(7, **order):
        yield from to_dicts(batch, data.schema)


def by_workers(output: Path) -> Iterator[Json]:
    for worker in range(3):
        yield from by_batches(output, seed=5, epoch=2, worker=worker, num_workers=3)


def by_numpy(output: Path) -> Iterable[Json]:
    return unbatched(open_dataset(output).numpy_batches(7, seed=1))


def by_arrow(output: Path) -> Iterator[Json]:
    schema = open_dataset(output).schema
    for batch in read_batches(output):
        yield from to_dicts(batch, schema)


OURS: dict[str, Callable[[Path], Iterable[Json]]] = {
    "by number": by_number,
    "batches": by_batches,
    "batches of 3 workers": by_workers,
    "numpy_batches": by_numpy,
    "in order": lambda output: iter(open_dataset(output)),
    "stream": lambda output: open_dataset(output).stream(seed=1, buffer=9),
    "read_batches": by_arrow,
    "read_rows": read_rows,
}
ONLY_IN_ORDER = ("in order", "stream", "read_batches", "read_rows")


@pytest.mark.parametrize("reader", OURS)
def test_readers_without_a_framework(known: list[KnownDataset], reader: str) -> None:
    for dataset in known:
        if dataset.name == "gzip" and reader not in ONLY_IN_ORDER:
            with pytest.raises(Exception, match=NO_NUMBERS):
                list(OURS[reader](dataset.output))
            continue
        features = dataset.features()
        found = digested(OURS[reader](dataset.output), features)
        assert found == digested(dataset.rows, features), dataset.name


_collected: dict[str, list[Json]] = defaultdict(list)  # threads of this process fill it


def keep(row: Json, name: str) -> None:
    _collected[name].append(row)


def test_read_dataset(known: list[KnownDataset]) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        for dataset in known:
            name = dataset.name
            rows = pipeline | name >> ReadDataset(dataset.output, as_="dict")
            rows | f"keep {name}" >> beam.Map(keep, name)
    for dataset in known:
        features = dataset.features()
        found = digested(_collected[dataset.name], features)
        assert found == digested(dataset.rows, features), dataset.name
