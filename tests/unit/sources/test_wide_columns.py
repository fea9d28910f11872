"""Columns that are put together give what each gives for itself."""

from __future__ import annotations

import pyarrow as pa
import pytest
from csv_cases import CELLS, COLUMNS
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.transforms.sources import text_types
from recordmill.transforms.sources.text_types import (
    TypeFlag,
    classify,
    classify_columns,
    convert,
    convert_columns,
)

TABLES = st.lists(COLUMNS | CELLS, max_size=6)


def columns_of(table: list[list[str | None]]) -> list[pa.StringArray]:
    """Some of them as slices, as parts of a table are."""
    return [pa.array(["0", *cells], pa.string()).slice(1) for cells in table]


@given(TABLES)
@example([[None, None], [], ["1", None, "x"], ["1.5"]])
def test_classify(table: list[list[str | None]]) -> None:
    columns = columns_of(table)
    assert classify_columns(columns) == list(map(classify, columns))


@given(TABLES, st.data())
@example([["1", "2"], ["3", "007"], [None]], TypeFlag.INTEGER)
@example([["x"], ["007"]], TypeFlag.MISSING)
def test_convert(table: list[list[str | None]], data: st.DataObject | TypeFlag) -> None:
    columns = columns_of(table)
    if isinstance(data, TypeFlag):
        flags = [int(data)] * len(columns)
    else:
        other = st.sampled_from([0, *map(int, TypeFlag)])
        own = [int(classify(cells)) for cells in columns]
        flags = [data.draw(st.just(flag) | other) for flag in own]
    each = [convert(cells, flag) for cells, flag in zip(columns, flags, strict=True)]
    converted, observed = convert_columns(columns, flags)
    assert observed == [int(seen) for _, seen in each]
    for ours, (theirs, _) in zip(converted, each, strict=True):
        assert ours.type == theirs.type
        assert repr(ours.to_pylist()) == repr(theirs.to_pylist())  # nan and -0.0, too


def test_steps_do_not_grow_with_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand columns of integers take as many casts as one."""
    casts = []
    cast = text_types.read_as

    def counted(cells: pa.StringArray, dtype: str) -> pa.Array | None:
        casts.append(len(cells))
        return cast(cells, dtype)

    monkeypatch.setattr(text_types, "read_as", counted)
    convert_columns(columns_of([["1", "22"]] * 1000), [int(TypeFlag.INTEGER)] * 1000)
    assert casts == [2000]
