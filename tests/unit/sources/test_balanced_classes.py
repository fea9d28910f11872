"""Balanced classes against a sampler that sorts the rows of each class in Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

from recordmill.beam_jobs.service.sampling import add_sampling
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.exchange import exact_splits
from recordmill.transforms.exchange.keys import mix_bits, sample_hashes
from recordmill.transforms.sources.base import RangeFindings, Rows, RowSource, Source


@dataclass(frozen=True)
class ListedRows(Source):
    """Rows of given classes; their origins are hashes of their numbers."""

    classes: tuple[str, ...]
    storage: StorageOptions = NO_OPTIONS

    def columns(self) -> pa.Schema:
        return pa.schema({"id": pa.int64(), "kind": pa.string()})

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RangeFindings
    ) -> Iterator[Rows]:
        numbers = np.arange(input_range.start, input_range.stop, dtype=np.int64)
        for own in np.array_split(numbers, 2):
            kinds = pa.array([self.classes[n] for n in own], pa.string())
            batch = pa.record_batch([pa.array(own), kinds], ["id", "kind"])
            origins = mix_bits(own.astype(np.uint64) + np.uint64(1))
            yield Rows(batch, origins, own - input_range.start, lambda _: (0, b""))


def ranges_of(total: int, size: int) -> list[InputRange]:
    return [
        InputRange(index, "a", "a", start, min(start + size, total), start, total)
        for index, start in enumerate(range(0, total, size))
    ]


def read_all(source: RowSource, ranges: list[InputRange]) -> tuple[pa.Table, int]:
    sink = RangeFindings()
    found = [rows.batch for each in ranges for rows in source.read(each, (), sink)]
    return pa.Table.from_batches(found, source.columns()), sink.num_sampled_out_rows


@given(
    st.lists(st.sampled_from(["a", "a", "a", "b", "c", ""]), min_size=1, max_size=80),
    st.integers(1, 30),
    st.integers(0, (1 << 64) - 1),
    st.booleans(),
    st.sampled_from([None, "1/2", "9/10"]),
)
@examples(150)
def test_the_smallest_draws_of_each_class_are_kept(
    classes: list[str], size: int, seed: int, narrow: bool, sample: str | None
) -> None:
    """Whatever the cut, and where windows of draws are narrow and must be widened."""
    source, ranges = ListedRows(tuple(classes)), ranges_of(len(classes), size)
    job = JobSpec(source="csv", name="n", balance="kind=undersample", seed=seed)
    job = job.model_copy(update={"sample": sample})
    draws = sample_hashes(
        mix_bits(np.arange(1, len(classes) + 1, dtype=np.uint64)), seed
    )
    by_class = defaultdict[str, list[tuple[int, int]]](list)
    for number, (name, draw) in enumerate(zip(classes, draws.tolist(), strict=True)):
        if draw < Fraction(sample or 1) * 2**64:
            by_class[name].append((draw, number))
    if not by_class:
        return
    with pytest.MonkeyPatch.context() as patch:
        if narrow:
            patch.setattr(exact_splits, "MAX_ROWS_WITHOUT_WINDOW", 1)
        table, left_out = read_all(add_sampling(job, source, ranges, 2), ranges)
    least = min(map(len, by_class.values()))
    expected = {n for rows in by_class.values() for _, n in sorted(rows)[:least]}
    assert table["id"].to_pylist() == sorted(expected)
    assert left_out == len(classes) - len(expected)


def test_weights_are_the_inverse_of_shares() -> None:
    source, ranges = ListedRows(("a", "b", "b", "c", "b")), ranges_of(5, 2)
    job = JobSpec(source="csv", name="n", balance="kind=weights")
    table, left_out = read_all(add_sampling(job, source, ranges, 1), ranges)
    third = np.float32(5 / 9)
    weights = np.array([5 / 3, third, third, 5 / 3, third], np.float32)
    assert table["sample_weight"].to_pylist() == weights.tolist()
    assert left_out == 0
