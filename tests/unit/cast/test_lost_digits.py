"""Digits that float32 loses, against exact decimals of Python, cell by cell."""

from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from recordmill.transforms.cast.lost_digits import lost_digits, shown_float32

DIGITS = st.from_regex(r"-?(0|[1-9][0-9]{0,9})(\.[0-9]{0,9})?", fullmatch=True)
LONG = st.from_regex(
    r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True
)
NUMBERS = st.one_of(
    DIGITS,
    LONG,
    st.floats(-3.4e38, 3.4e38).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(
        lambda value: str(np.float32(value))
    ),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(
        lambda value: f"{Decimal(value):f}"
    ),
    st.integers(-(1 << 26), 1 << 26).map(str),
    st.sampled_from(["inf", "-Infinity", "nan", "0", "-0.0", "0e5", "1e-400", "3e-46"]),
)


def float32_of(text: str) -> float:
    """The value that is stored."""
    return float(struct.unpack("<f", struct.pack("<f", float(text)))[0])


def share_away(text: str) -> Decimal:
    """How far float32 is from what is written, in halves of the last place."""
    written = Decimal(text)
    if not written.is_finite():
        return Decimal(0)
    last = int(written.as_tuple().exponent)
    value = float(text)
    if len(written.as_tuple().digits) > 15 and 0 < abs(value) < 1 << 53:
        written = Decimal(value)  # what float64 loses does not count
    place = Decimal((0, (1,), last))
    return 2 * abs(Decimal(float32_of(text)) - written) / place


def find(texts: list[str | None]) -> list[str | None]:
    cells = pa.array(["1", *texts, "12345678.9"], pa.string()).slice(1, len(texts))
    return [texts[row] for row in lost_digits(cells, cells.cast(pa.float64()))]


@given(st.lists(st.none() | NUMBERS, max_size=8))
@example(["2097152.2"])  # halfway between two decimals that become equal
@example(["9007199254740993"])  # float64 loses it before float32 could
@example(["1." + "0" * 20 + "1", "0." + "0" * 30])
@example(["1e-400", "0e-400"])
@example(["0.10000000149011612", "0.5000000000000001", "0.00000000000000001"])
@example(["12.25", "83886.08", "83886.09", "99999.99"])
@example(["-123.456789", "1e-7", "16777217", "0.000000000000000000000"])
@example(["1.5", "2", None, "123456789.12"])
@example(["1.500000000000000000e+00", "1.1e-45", "7e+0003"])
def test_lost_is_what_exact_decimals_say(texts: list[str | None]) -> None:
    assume(
        all(
            text is None or abs(float(text)) < 3.4e38 or "n" in text.lower()
            for text in texts
        )
    )
    found = find(texts)
    for text in texts:
        if text is None:
            continue
        share = share_away(text)
        # float64 cannot tell what is so close to half a unit.
        digits = len(Decimal(text).as_tuple().digits)
        blur = Decimal("1e-5") if digits < 12 else Decimal("0.3")
        if abs(share - 1) > blur or share == 1:
            assert (text in found) == (share >= 1), (text, share)


@given(st.integers(0, 9), st.integers(1, 10**9), st.integers(1, 10**9))
def test_numbers_that_become_equal_are_told(places: int, one: int, other: int) -> None:
    """Of two with as many places, one at least is among the lost."""
    texts: list[str | None] = [
        f"{Decimal(value).scaleb(-places):f}" for value in (one, other)
    ]
    if one != other and float32_of(str(texts[0])) == float32_of(str(texts[1])):
        assert find(texts)


@given(st.decimals(-999999, 999999, places=0), st.integers(0, 20))
def test_six_digits_are_never_lost(digits: Decimal, places: int) -> None:
    assert find([str(digits.scaleb(-places)), f"{digits.scaleb(-places):f}"]) == []


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("123456789.12", "123456792"),
        ("16777217", "16777216"),
        ("0.12345678901", "0.12345679"),
        ("-52.5200066", "-52.520008"),
        ("3.40282346e38", "3.4028235e+38"),
    ],
)
def test_the_example_of_a_warning(text: str, stored: str) -> None:
    assert find([text]) == [text]
    assert shown_float32(float(text)) == stored


@pytest.mark.parametrize(
    "text", ["0.1", "19.99", "-273.15", "1234.56", "16777216", "1e10"]
)
def test_ordinary_numbers_are_not_told(text: str) -> None:
    assert find([text, "123456.78901"]) == ["123456.78901"]


def test_no_cells() -> None:
    assert find([]) == find([None, None]) == []
