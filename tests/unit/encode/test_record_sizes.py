"""Batches are cut where their records would be large, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.job import JobSpec
from recordmill.transforms.arrow import value_lengths
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.waiting_rows import lengths_of, payloads_of
from recordmill.transforms.tasks.frame_records import frame_rows, slices_of

CELLS = st.lists(st.binary(max_size=60), min_size=1, max_size=40)


def table(cells: list[bytes], name: str) -> tuple[pa.RecordBatch, Schema]:
    columns = {name: pa.array(cells, pa.binary()), "n": pa.array(range(len(cells)))}
    features = (FeatureSpec(name, Kind.BYTES), FeatureSpec("n", Kind.INT64))
    return pa.RecordBatch.from_pydict(columns), Schema(features)


@given(CELLS, st.text(min_size=2, max_size=30), st.integers(1, 3000), st.integers(0, 3))
def test_slices_are_all_rows_in_order_and_bounded(
    cells: list[bytes], name: str, max_bytes: int, skipped: int
) -> None:
    batch, schema = table([b"x"] * skipped + cells, name)
    batch = batch.slice(skipped)
    slices = list(slices_of(batch, schema, max_bytes))
    starts, stops = zip(*slices, strict=True)
    assert starts == (0, *stops[:-1])
    assert stops[-1] == batch.num_rows
    sizes = value_lengths(encode(batch, schema))
    for start, stop in slices:
        assert stop > start
        assert sizes[start:stop].sum() <= max_bytes or stop == start + 1


def test_an_empty_batch_is_one_slice() -> None:
    assert list(slices_of(*table([], "a"))) == [(0, 0)]


@pytest.mark.parametrize("max_bytes", [1, 150, 10_000])
def test_records_and_rejects_are_the_same(
    max_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [b"a", b"\xff", b"ccc", b"", b"\xfe", b"f" * 200]
    batch, _ = table(cells, "text")
    schema = Schema(
        (FeatureSpec("text", Kind.BYTES, dtype="string"), FeatureSpec("n", Kind.INT64))
    )
    job = JobSpec(source="csv", name="a")
    (whole,) = frame_rows(batch, schema, job)
    monkeypatch.setattr(slices_of, "__defaults__", (max_bytes,))
    parts = list(frame_rows(batch, schema, job))
    assert (len(parts) > 1) == (max_bytes < 10_000)
    assert pa.concat_arrays([payloads_of(part.rows) for part in parts]) == payloads_of(
        whole.rows
    )
    kept = np.concatenate([part.row_indices for part in parts])
    assert kept.tolist() == whole.row_indices.tolist() == [0, 2, 3, 5]
    assert [row for part in parts for row in part.invalid_rows] == whole.invalid_rows


def test_long_names_take_bounded_memory() -> None:
    """Records of 2.6 GB in all, which no Arrow array holds: the run failed."""
    rows, names = 50_000, [f"{i:02}" * 600 for i in range(40)]
    column = pa.array(np.zeros(rows, np.int64))
    batch = pa.RecordBatch.from_arrays([column] * len(names), names)
    schema = Schema(tuple(FeatureSpec(name, Kind.INT64) for name in names))
    first = next(iter(frame_rows(batch, schema, JobSpec(source="csv", name="a"))))
    assert 50 << 20 < lengths_of(first.rows).sum() < 70 << 20
