"""Facts of a column, whole and in parts, against Python's own count of every cell."""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from hashlib import blake2b

import pyarrow as pa
import pytest
from csv_cases import COLUMNS, holds_of, holds_of_all
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.transforms.sources.text_types import TypeFlag, column_dtype, is_huge
from recordmill.transforms.statistics import column_summary as column_facts
from recordmill.transforms.statistics.column_summary import ColumnStats, column_stats

Texts = list[str | None]


def column(texts: Texts) -> pa.StringArray:
    return pa.array(texts, pa.string())


def facts_of(texts: Texts) -> ColumnStats:
    return column_stats(column(texts))


def merged(parts: list[ColumnStats]) -> ColumnStats:
    return functools.reduce(ColumnStats.merge, parts, ColumnStats())


def summary(stats: ColumnStats) -> dict[str, object]:
    """All that a person or a program is told."""
    return {
        "dtype": stats.dtype,
        "rows": stats.rows,
        "missing": stats.missing,
        "limits": repr(stats.limits),  # tells 1 from 1.0 and 0.0 from -0.0
        "lengths": (stats.shortest, stats.longest),
        "values": stats.values,
        "huge": is_huge(stats.flags),
    }


def naive_summary(texts: Texts) -> dict[str, object]:
    there = [text for text in texts if text is not None]
    dtype = column_dtype(holds_of_all(texts))
    valued = there
    if dtype != "string":
        valued = [text for text in there if holds_of(text) is not TypeFlag.MISSING]
    limits = None
    if dtype in ("int64", "float32"):
        read = whole_number if dtype == "int64" else float
        numbers = [number for text in valued if not math.isnan(number := read(text))]
        if numbers:
            limits = (min(numbers) or read("0"), max(numbers) or read("0"))
    lengths = [len(text.encode()) for text in there]
    return {
        "dtype": dtype,
        "rows": len(texts),
        "missing": len(texts) - len(valued),
        "limits": repr(limits),
        "lengths": (min(lengths, default=None), max(lengths, default=None)),
        "values": Counter(map(kept_of, there)),
        "huge": is_huge(holds_of_all(texts)),
    }


def whole_number(text: str) -> int:
    return int(text.partition(".")[0])


def kept_of(text: str) -> bytes:
    """What is kept of a value."""
    data = text.encode()
    if len(data) <= 64:
        return data
    return b"\xff" + blake2b(data, digest_size=16).digest()


@st.composite
def columns_in_parts(draw: st.DrawFn) -> list[Texts]:
    texts = draw(COLUMNS)
    cuts = sorted(draw(st.lists(st.integers(0, len(texts)), max_size=4)))
    edges = zip([0, *cuts], [*cuts, len(texts)], strict=True)
    return [texts[start:stop] for start, stop in edges]


@given(columns_in_parts(), st.data())
@example([["9007199254740993"], ["1.5"]], None)  # an integer that no float64 holds
@example([["-0.0"], ["0"], ["0.0"]], None)
@example([["nan"], ["1"]], None)
@example([["NA", " 7"], ["x"], ["NA"]], None)
@example([["NA"], [" 7", ""], ["null"]], None)
@example([["true"], ["1"], ["1.5"]], None)
@example([["2.0"], ["3"], ["-0.0"]], None)
@example([["1e39"], ["x"], ["1.5"]], None)
@example([["true"], ["1"], ["1e39"]], None)
def test_parts_in_any_order_give_the_facts_of_the_whole(
    parts: list[Texts], data: st.DataObject | None
) -> None:
    """Each part is looked at with what is known of any others by then."""
    order = data.draw(st.permutations(range(len(parts)))) if data else range(len(parts))
    found: list[ColumnStats] = []
    for index in order:
        count = data.draw(st.integers(0, len(found))) if data else len(found)
        known = merged(found[:count])
        found.append(column_stats(column(parts[index]), known.flags))
    whole = [text for part in parts for text in part]
    assert summary(merged(found)) == naive_summary(whole)


SOME_VALUES = st.sets(st.integers(0, 9))


@given(st.lists(SOME_VALUES, max_size=5), st.randoms())
def test_limit_of_distinct_values_whatever_the_order(
    parts: list[set[int]], random: object
) -> None:
    texts: list[Texts] = [[str(value) for value in part] for part in parts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_facts, "MAX_DISTINCT", 4)
        patch.setattr(column_facts, "_FIRST_ROWS", 6)
        found = [facts_of(part) for part in texts]
        random.shuffle(found)  # type: ignore[attr-defined]
        distinct = merged(found).distinct
    exact = len(functools.reduce(operator.or_, parts, set()))
    assert distinct == (exact if exact <= 4 else None)


@pytest.mark.parametrize(
    ("num_values", "nulls", "distinct"),
    [
        (1000, 0, 1000),  # the last that is counted
        (1001, 0, None),
        (1000, 3, 1000),  # null is no value
        (1001, 3, None),
    ],
)
@pytest.mark.parametrize("times", [1, 5])
def test_limit(num_values: int, nulls: int, distinct: int | None, times: int) -> None:
    texts: Texts = [f"v{n}" for n in range(num_values)]
    stats = facts_of([*[None] * nulls, *texts * times])
    assert stats.distinct == distinct
    if stats.values is not None:
        assert set(stats.values.values()) == {times}


def test_values_that_come_late_are_counted() -> None:
    texts: Texts = [*["a"] * 5000, *(f"v{n}" for n in range(999))]
    assert facts_of(texts).distinct == 1000
    assert facts_of([*texts, "one more"]).distinct is None


def test_long_values_are_kept_as_digests() -> None:
    long, longer = "é" * 33, "é" * 33 + "!"
    stats = facts_of([long, longer, long, "short"])
    assert stats.distinct == 3
    assert stats.values is not None
    assert sorted(stats.values.values()) == [1, 1, 2]
    assert max(map(len, stats.values)) == 17
    assert stats.texts() is None
    assert facts_of(["short", "é" * 32]).texts() == {"short": 1, "é" * 32: 1}


def test_values_past_the_limit_elsewhere_are_not_counted() -> None:
    stats = column_stats(column(["a"]), counted=False)
    assert stats.distinct is None
    assert stats.merge(facts_of(["b"])).distinct is None


@pytest.mark.parametrize(
    ("texts", "limits"),
    [
        (["1", "-3"], "(-3, 1)"),
        (
            ["9223372036854775807", "-9223372036854775808"],
            f"({-(1 << 63)}, {2**63 - 1})",
        ),
        (["1", "0.5"], "(0.5, 1.0)"),
        (["nan", "2.5", "-inf"], "(-inf, 2.5)"),
        (["nan"], "None"),  # nothing but NaN
        (["-0.0"], "(0.0, 0.0)"),
        (["1", "x"], "None"),  # text
        (["true"], "None"),
        ([None], "None"),
        (["007", "008"], "None"),  # text: the zeros would be lost
    ],
)
def test_limits(texts: Texts, limits: str) -> None:
    assert repr(facts_of(texts).limits) == limits
    assert repr(merged([facts_of([text]) for text in texts]).limits) == limits
