"""Figures of whole datasets, beside plain Python over their rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from job_tools import GOLDEN, convert, shards_of
from small_dataset import SPLITS, write_dataset

from recordmill import read_rows
from recordmill.schemas.errors import CorruptRecordError, OutputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.statistics import column_summary, dataset_statistics
from recordmill.transforms.statistics.column_summary import ColumnSummary
from recordmill.transforms.statistics.dataset_statistics import DatasetStatistics
from recordmill.transforms.storage import open_store

SOURCES = {"csv": "tutorial.csv", "cifar": "cifar10.bin", "images": "images"}


def figures_of(folder: Path) -> DatasetStatistics:
    store = open_store(str(folder))
    return dataset_statistics.gather_statistics(
        store, read_manifest(store), lambda done, total: None
    )


def flat(value: Any) -> Iterator[Any]:
    """All numbers or texts in a row's value."""
    if isinstance(value, np.ndarray):
        yield from value.ravel().tolist()
    elif isinstance(value, list):
        for item in value:
            yield from flat(item)
    elif value is not None:
        yield value


def check(figures: DatasetStatistics, folder: Path) -> None:
    """Compares figures with those of plain Python over all rows."""
    manifest = read_manifest(open_store(str(folder)))
    rows = {split: list(read_rows(folder, split)) for split in manifest.splits}
    every = [row for of_split in rows.values() for row in of_split]
    assert [f.feature.name for f in figures.columns] == [
        f.name for f in manifest.features
    ]
    for found in figures.columns:
        name = found.feature.name
        missing = [sum(row[name] is None for row in rs) for rs in rows.values()]
        assert list(found.num_missing) == missing, name
        assert found.num_rows == len(every) - sum(missing)
        check_values(found, [v for row in every for v in flat(row[name])])
    for label, classes in figures.class_counts.items():
        for split, counted in classes.items():
            oracle = Counter(row[label] for row in rows[split])
            assert [*counted.values()] == [oracle[n] for n in range(len(counted))]


def check_values(found: ColumnSummary, values: list[Any]) -> None:
    name = found.feature.name
    if found.numbers is not None:
        assert found.numbers.num_values == len(values), name
        assert (found.numbers.minimum, found.numbers.maximum) == (
            min(values),
            max(values),
        )
        assert found.numbers.mean == pytest.approx(math.fsum(values) / len(values))
    if found.common_values is not None:
        oracle = Counter(values)
        assert found.common_values.total == len(values)
        for value, number in found.common_values.values:
            assert oracle[value] == number, name
    if found.images is not None:
        assert found.images.bytes.num_values == len(values)
        assert found.images.kinds.commonest(1).total == len(values)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_every_kind_of_feature(tmp_path: Path, compression: str) -> None:
    write_dataset(tmp_path / "zoo", compression)
    figures = figures_of(tmp_path / "zoo")
    check(figures, tmp_path / "zoo")
    by_name = {found.feature.name: found for found in figures.columns}
    tags = by_name["tags"].lengths
    assert tags is not None
    assert (tags.minimum, tags.maximum, by_name["tags"].num_empty) == (0, 8, 1)
    assert by_name["text"].num_empty == 1
    (sheet,) = [s for s in figures.sheets.values() if s.feature == "image/encoded"]
    assert sheet.label == "image/class/label"
    assert [len(row) for _, row in sheet.rows] == [5, 4]
    assert all(t.mime for _, row in sheet.rows for t in row)
    (reject,) = figures.rejects
    assert (reject.kind, reject.num_rows) == ("broken", 1)


def test_nested_lists_tensors_and_arrays(rows_dataset: Path) -> None:
    figures = figures_of(rows_dataset)
    check(figures, rows_dataset)
    (sheet,) = figures.sheets.values()  # of an array that is pixels
    assert sheet.feature == "image"


@pytest.mark.parametrize("source", SOURCES)
def test_datasets_of_each_source(tmp_path: Path, source: str) -> None:
    convert(source, GOLDEN / SOURCES[source], tmp_path / "out")
    check(figures_of(tmp_path / "out"), tmp_path / "out")


@pytest.mark.parametrize("payload", ["sequence_example", "json"])
def test_other_payloads(tmp_path: Path, payload: str) -> None:
    convert("csv", GOLDEN / "tutorial.csv", tmp_path / "out", "--payload", payload)
    check(figures_of(tmp_path / "out"), tmp_path / "out")


def test_raw_records(tmp_path: Path) -> None:
    convert("images", GOLDEN / "images", tmp_path / "out", "--payload", "raw")
    figures = figures_of(tmp_path / "out")
    (images,) = figures.columns
    manifest = read_manifest(open_store(str(tmp_path / "out")))
    assert figures.num_skipped_features == len(manifest.features) - 1
    assert images.num_rows == manifest.records


def test_rows_of_two_parts_and_an_empty_split(tmp_path: Path) -> None:
    for name, rows in (("a", 30), ("b", 3)):
        lines = [f"{n},{n % 2}" for n in range(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,odd", *lines]))
    splits = ["--split", "train=0.999", "--split", "test=0.001"]
    out = tmp_path / "out"
    convert("csv", tmp_path / "a.csv", out, *splits)
    convert("csv", tmp_path / "a.csv", tmp_path / "b.csv", out, *splits, "--append")
    check(figures_of(out), out)


def test_labels_in_bytes_and_tensors(tmp_path: Path) -> None:
    """And a feature that no row has, half floats, and lists of bytes."""
    from rows_tools import write  # it imports Beam

    classes = ["ant", "bee", "cat"]
    schema = {
        "bytes": {"classes": classes, "shape": [2], "stored": "bytes_list"},
        "tensor": {"classes": classes, "shape": [2], "stored": "tensor"},
        "list": {"classes": classes, "shape": [None]},
        "half": "float16",
        "parts": {"dtype": "bytes", "shape": [None]},
        "never": "float32?",
    }
    labels = ["bee", "cat"]
    row = {"bytes": labels, "tensor": labels, "list": labels}
    row |= {"half": 1.5, "parts": [b"\xff", b""]}
    write([row] * 5, tmp_path / "out", schema, name="labels", shards=1)
    figures = figures_of(tmp_path / "out")
    counts = {"ant": 0, "bee": 5, "cat": 5}
    assert figures.class_counts == {
        name: {"train": counts} for name in ("bytes", "list", "tensor")
    }
    by_name = {found.feature.name: found for found in figures.columns}
    assert by_name["never"].num_missing == [5]
    half, parts = by_name["half"].numbers, by_name["parts"].common_values
    assert half is not None
    assert half.mean == 1.5
    assert parts is not None
    assert parts.values == ((b"", 5), (b"\xff", 5))


def test_a_damaged_and_a_missing_shard(tmp_path: Path) -> None:
    write_dataset(tmp_path / "zoo")
    shard = shards_of(tmp_path / "zoo")[1]
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=shard.name):
        figures_of(tmp_path / "zoo")
    shard.unlink()
    with pytest.raises(OutputError, match="is missing, the manifest records"):
        figures_of(tmp_path / "zoo")


def test_features_beyond_the_limit_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dataset(tmp_path / "zoo")
    monkeypatch.setattr(dataset_statistics, "MAX_FEATURES", 2)
    figures = figures_of(tmp_path / "zoo")
    assert [f.feature.name for f in figures.columns] == ["age", "box"]
    assert figures.num_skipped_features == 11
    assert sum(len(shards) for shards in SPLITS.values()) == 3


@examples(150)
@given(st.lists(st.lists(st.none() | st.lists(st.integers(-3, 3))), max_size=4))
def test_lists_in_batches(batches: list[list[list[int] | None]]) -> None:
    feature = FeatureSpec("x", Kind.INT64, shape=(None,), optional=True)
    found = ColumnSummary(feature, 1)
    for batch in batches:
        found.add(pa.array(batch, pa.list_(pa.int64())), 0)
    rows = [row for batch in batches for row in batch]
    lists = [row for row in rows if row is not None]
    assert found.num_missing == [len(rows) - len(lists)]
    assert found.num_empty == sum(not row for row in lists)
    assert found.numbers is not None
    assert found.numbers.num_values == sum(map(len, lists))
    lengths = set(map(len, lists))
    assert (found.lengths is not None) == (len(lengths) > 1)


def test_of_long_rows_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_summary, "BATCH_NUMBERS", 100)
    feature = FeatureSpec(
        "x", Kind.BYTES, dtype="uint8", shape=(50,), content=Content.ARRAY
    )
    found = ColumnSummary(feature, 1)
    found.add(pa.array([bytes([n] * 50) for n in range(10)], pa.binary()), 0)
    assert found.numbers is not None
    assert (found.num_rows, found.num_sampled_rows, found.numbers.num_values) == (
        10,
        2,
        100,
    )
