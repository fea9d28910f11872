"""Finds the split of each row by the time, or the number, in one of its columns."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.job.split_times import SplitTimes
from recordmill.transforms.arrow import U64
from recordmill.transforms.cast.decimal_commas import swap_points
from recordmill.transforms.sources.class_keys import texts_of

_MICROSECONDS = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HIGHEST = np.uint64(1 << 63)
Missing = npt.NDArray[np.bool_]


def split_by_time(
    values: pa.Array, times: SplitTimes, *, decimal_comma: bool = False
) -> pa.Int64Array:
    """Returns the index of each row's split; null where the value is missing or no time.

    Args:
      values: times or numbers, or text that tells them.
      times: where the splits begin.
      decimal_comma: whether numbers in text have a comma before their places.

    >>> from recordmill.schemas.job.split_times import parse_split_times
    >>> times = parse_split_times("d=a,2026-01-01,b")
    >>> split_by_time(pa.array(["2025-12-31", "2026-01-01", "?"]), times).to_pylist()
    [0, 1, None]
    """
    found = _found_in(values, are_times=times.are_times, decimal_comma=decimal_comma)
    if found is None:
        return pa.nulls(len(values), pa.int64())
    missing = found.is_null().to_numpy(zero_copy_only=False)
    if pt.is_floating(found.type):
        missing = missing | pc.is_nan(found).fill_null(True).to_numpy(
            zero_copy_only=False
        )
    numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(values), np.int64)
    for bound in times.bounds:
        start = _microseconds(bound) if isinstance(bound, datetime) else bound
        splits += numbers >= start
    return pa.array(splits, pa.int64(), mask=missing)


def order_of(
    values: pa.Array, *, are_times: bool, decimal_comma: bool = False
) -> tuple[U64, Missing]:
    """Returns numbers that are in the order of the times or numbers, and what has none.

    Whatever type the column came out with, the same value has the same number: a first
    reading of a table has text where the one that converts has integers or decimals.

    >>> order_of(pa.array(["2", "1.5", "x"]), are_times=False)[1].tolist()
    [False, False, True]
    """
    found = _found_in(values, are_times=are_times, decimal_comma=decimal_comma)
    if found is None:
        found = pa.nulls(len(values))
    found = found.cast(pa.int64() if are_times else pa.float64(), safe=False)
    missing = found.is_null().to_numpy(zero_copy_only=False)
    numbers = found.fill_null(0).to_numpy(zero_copy_only=False)
    if are_times:
        return numbers.view(np.uint64) ^ _HIGHEST, missing
    missing = missing | np.isnan(numbers)
    bits = (numbers + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return np.where(bits & _HIGHEST, ~bits, bits | _HIGHEST), missing


def time_text(number: int, *, are_times: bool) -> str:
    """Returns the time or number that one of `order_of` stands for, to be shown."""
    bits = np.array([number], np.uint64)
    if are_times:
        since = int((bits ^ _HIGHEST).view(np.int64)[0])  # 1970, in UTC
        return str(np.datetime64(since, "us")).removesuffix(".000000")
    value = np.where(bits & _HIGHEST, bits ^ _HIGHEST, ~bits).view(np.float64)[0]
    return f"{value:.12g}"


def _microseconds(time: datetime) -> int:
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _found_in(
    values: pa.Array, *, are_times: bool, decimal_comma: bool
) -> pa.Array | None:
    """Returns microseconds since 1970 in UTC, or numbers; None if there can be none."""
    if are_times:
        return _times_in(values)
    if pt.is_integer(values.type) or pt.is_floating(values.type):
        return values
    if not pt.is_string(values.type):
        return None
    if decimal_comma:
        values = swap_points(values)
    return _of_texts(values, _number_in, pa.float64())


def _times_in(values: pa.Array) -> pa.Array | None:
    """Returns microseconds since 1970; None if the column can hold no times."""
    if pt.is_timestamp(values.type) or pt.is_date(values.type):
        return pc.cast(values, _MICROSECONDS, safe=False).cast(pa.int64())
    if not pt.is_string(values.type):
        return None
    try:  # all at once, where no cell has a zone and all are times
        return pc.cast(values, _MICROSECONDS).cast(pa.int64())
    except pa.ArrowInvalid:
        return _of_texts(values, _microseconds_in, pa.int64())


def _of_texts(values: pa.Array, parse: Any, wanted: pa.DataType) -> pa.Array:
    """Parses each different text once."""
    texts, indices = texts_of(values)
    parsed = pa.array([parse(text) if text else None for text in texts], wanted)
    return parsed.take(pa.array(indices))


def _microseconds_in(text: str) -> int | None:
    if (
        text.strip().isdecimal()
    ):  # 20260101: a column of such texts comes out as numbers
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return _microseconds(found.replace(tzinfo=UTC) if found.tzinfo is None else found)


def _number_in(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number
