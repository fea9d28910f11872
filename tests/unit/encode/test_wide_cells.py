"""Cells of many columns at once: the same bytes as column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from encoder_cases import Case, batches
from example_counts import examples
from hypothesis import given

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms.encode import examples as encoder
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.encode.wide_cells import pays_off


def encoded(batch: pa.RecordBatch, schema: Schema, *, wide: bool) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "pays_off", lambda _rows, _columns: wide)
        array = encode(batch, schema, head_room=12, tail_room=4)
    array.validate(full=True)
    values: list[Any] = array.to_pylist()
    return values


@examples(300)
@given(batches())
def test_same_bytes(made: tuple[pa.RecordBatch, Schema, list[Case]]) -> None:
    """Of all kinds of features, with nulls, in slices, without rows."""
    batch, schema, _ = made
    assert encoded(batch, schema, wide=True) == encoded(batch, schema, wide=False)


def test_a_wide_batch() -> None:
    """Integers of all lengths, floats and text beside each other, some missing."""
    random = np.random.default_rng(1)
    arrays, features = [], []
    for at in range(300):
        kind, dtype = [
            (Kind.INT64, "int64"), (Kind.FLOAT, "float32"), (Kind.BYTES, "string")
        ][at % 3]  # fmt: skip
        values: list[Any] = (
            random.integers(-(1 << 62), 1 << 62, 7) >> (at % 60)
        ).tolist()
        if kind is Kind.BYTES:
            values = ["x" * (abs(value) % 200) for value in values]
        if kind is Kind.FLOAT:
            values = [float(value) for value in values]
        if at % 7 == 0:
            values[at % 5] = None
        arrays.append(
            pa.array(
                values,
                {"int64": pa.int64(), "float32": pa.float64()}.get(dtype, pa.string()),
            )
        )
        features.append(FeatureSpec(f"column {at}", kind, dtype=dtype, optional=True))
    names = [feature.name for feature in features]
    batch = pa.RecordBatch.from_arrays(arrays, names).slice(1, 5)
    schema = Schema(tuple(features))
    assert pays_off(batch.num_rows, len(features))
    assert encoded(batch, schema, wide=True) == encoded(batch, schema, wide=False)
