"""Text cells as numbers, booleans, times, bytes and labels, against plain Python."""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cast_tools import REFUSED, check, rounded, same
from hypothesis import example, given
from hypothesis import strategies as st

from recordmill.transforms.cast.text_values import (
    MISSING_WORDS,
    parse_times,
    read_times,
    trim,
)

WHITE = " \t\n\v\f\r"
INT_DTYPES = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOAT_DTYPES = ["float16", "float32", "float64"]

EDGES = [
    str(edge + step)
    for bits in (7, 8, 15, 16, 31, 32, 63, 64)
    for edge in (1 << bits, -(1 << bits))
    for step in (-1, 0, 1)
]
ODD = [
    *("007", "-007", "+5", "+-5", "--5", "-0", "0x10", "-0X1f", "1_000", "1e3", "1.5"),
    *("", " ", " 7", "7\t", "\n7 ", "7 7", "\u00a07", "٣", "１", "-", "+", ".", "1,5"),
    *("0" * 30 + "7", "9" * 25, "-" + "9" * 25, "9" * 5000, "+" + "1" * 19, "7\0"),
    *("1.0", "-7.00", "+7.", "007.0", " 8.0 ", ".0", "1.0.0", "1.0e0", "0.0000001"),
    *("127.0", "128.0", "9223372036854775807.0", "9223372036854775808.0"),
    *("0" * 40 + ".",),
    *("1.", ".5", "-.5", "+.5e+3", "1e", "e5", "1e400", "-1e400", "1e-400", "1d5"),
    *("inf", "-INF", "+Infinity", "infinit", "nan", "-NaN", "nan(1)", "0x1p3", "1f"),
    *("true", "FALSE", " tRuE ", "falſe", "t", "yes", "1", "0", "01", "65504", "65520"),
    *("3.4028235e38", "3.4028236e38", "1.00000005960464477539062500000000000000001"),
]
NUMBERS = st.one_of(
    st.integers(-300, 300).map(str),
    st.integers(-(1 << 66), 1 << 66).map(str),
    st.floats(allow_nan=False).map(repr),
    st.from_regex(
        r"[+-]?[0-9]{0,3}\.?[0-9]{0,22}([eE][+-]?[0-9]{1,3})?", fullmatch=True
    ),
)
PADS = st.text(WHITE, max_size=2)
CELLS = st.one_of(
    st.none(),
    NUMBERS,
    st.sampled_from(ODD + EDGES),
    st.tuples(PADS, NUMBERS, PADS).map("".join),
    st.text(max_size=4),
)
COLUMNS = st.one_of(
    st.lists(CELLS, max_size=8),
    st.lists(NUMBERS, max_size=8),
    st.lists(st.integers(-128, 127).map(str), max_size=8),
)


def naive(text: str | None, dtype: str) -> Any:
    """A cell by the rules, one at a time."""
    text = None if text is None else text.strip(WHITE)
    if not text or text in MISSING_WORDS:
        return None
    if dtype == "bool":
        known = {"true": True, "1": True, "false": False, "0": False}
        return known.get(text.lower(), REFUSED) if text.isascii() else REFUSED
    if dtype.startswith("float"):
        return naive_float(text, dtype)
    if not re.fullmatch(r"[+-]?[0-9]+(\.0*)?", text):
        return REFUSED
    text = text.partition(".")[0]
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 4000:
        return REFUSED
    value = int(digits or "0") * (-1 if text[0] == "-" else 1)
    limits = np.iinfo(dtype)
    return value if limits.min <= value <= limits.max else REFUSED


def naive_float(text: str, dtype: str) -> Any:
    if not text.isascii() or "_" in text:
        return REFUSED
    try:
        value = float(text)
    except ValueError:
        return REFUSED
    if np.isinf(value) and "i" not in text.lower():
        return REFUSED
    return rounded(value, dtype)


@pytest.mark.parametrize("dtype", ["bool", *INT_DTYPES, *FLOAT_DTYPES])
@given(COLUMNS)
@example(ODD + EDGES)
def test_numbers_equal_python(dtype: str, texts: list[str | None]) -> None:
    check(texts, [naive(text, dtype) for text in texts], dtype=dtype)


@given(st.lists(st.integers(-128, 127), min_size=2, max_size=9))
def test_slices_of_larger_arrays(values: list[int]) -> None:
    texts = [f"{value}" for value in values]
    whole = pa.array(["0x1", *texts, "x"])
    check(whole.slice(1, len(texts)), values, dtype="int8")
    check(whole.slice(1, len(texts)), list(map(float, values)), dtype="float32")


@pytest.mark.parametrize("arrow_type", [pa.large_string(), pa.string_view()])
def test_other_types_of_text(arrow_type: pa.DataType) -> None:
    check(pa.array(["7", None, "x"], arrow_type), [7, None, REFUSED], dtype="int64")
    check(pa.array(["ä", "", None], arrow_type), ["ä", "", None], dtype="string")


def test_dictionaries_of_text() -> None:
    labels = pa.array(["b", "a", None, "b"]).dictionary_encode()
    check(labels, [1, 0, None, 1], classes=["a", "b"])


# Times

UNITS = {"d": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

CLOCKS = st.one_of(
    st.times().map(lambda t: t.isoformat()),
    st.times().map(lambda t: t.isoformat("minutes")),
    st.times().map(lambda t: f"{t:%H:%M:%S}.{t.microsecond // 1000:03}"),
    st.builds(
        "{:02}:{:02}:{:02}.{:09}".format,
        *(st.integers(0, top) for top in (23, 59, 59, 999_999_999)),
    ),
    st.sampled_from(["00:00", "10:20:30.500000", "24:00", "10:60", "10:20:60", "9:00"]),
)
DATES = st.one_of(
    st.dates().map(str),
    st.sampled_from(
        [
            *("2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2024-13-01"),
            *("2024-00-10", "2024-01-00", "2024-04-31", "1677-09-21", "2262-04-11"),
            *("0001-01-01", "9999-12-31", "20240131", "2024-1-1", "24-01-01"),
        ]
    ),
)
ZONES = st.sampled_from(
    [
        *("", "", "Z", "+00:00", "+02:00", "-0530", "+14", "-23:59", "+24:00"),
        *("+01:60", "z"),
        *("+1", " Z", "+02:00:00"),
    ]
)
TIMES = st.one_of(
    DATES,
    st.tuples(DATES, st.sampled_from("T  t"), CLOCKS, ZONES).map("".join),
    st.tuples(DATES, st.sampled_from("T "), CLOCKS).map("".join),
    st.tuples(DATES, st.just("T"), st.integers(0, 24).map("{:02}".format)).map("".join),
    CLOCKS,
    st.sampled_from(["now", "12", "", " 2024-01-31 ", "2024-01-31T", "2024-01-31Z"]),
    st.sampled_from(
        [
            *("1677-09-21T00:12:43.145224192", "1677-09-21T00:12:43.145224191"),
            *("2262-04-11T23:47:16.854775807", "2262-04-11T23:47:16.854775808"),
        ]
    ),
)
_FORM = re.compile(
    r"(\d{4}-\d\d-\d\d)?(?:(^|[T ])(\d\d(?::\d\d(?::\d\d)?)?)(?:\.(\d{1,9}))?(.*))?",
    re.ASCII,
)


def naive_time(text: str | None, unit: str) -> Any:
    """By way of Python's datetime, and the fraction apart."""
    text = None if text is None else text.strip(WHITE)
    if not text:
        return None
    match = _FORM.fullmatch(text)
    if match is None or (match[4] and match[3].count(":") < 2):
        return REFUSED
    day, _, clock, fraction, zone = match.groups()
    if day is None and (zone or not clock or ":" not in clock):
        return REFUSED
    if zone and not re.fullmatch(r"Z|[+-]\d\d(:?\d\d)?", zone, re.ASCII):
        return REFUSED
    try:
        moment = datetime.fromisoformat(f"{day or '1970-01-01'}T{clock or '00'}")
    except ValueError:
        return REFUSED
    offset = timedelta(0)
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
        if hours > 23 or minutes > 59:
            return REFUSED
        offset = timedelta(hours=hours, minutes=minutes)
        offset = -offset if zone[0] == "-" else offset
    # Not moment - offset: that may leave the years of datetime.
    seconds = (moment.replace(tzinfo=UTC) - EPOCH - offset) // timedelta(seconds=1)
    count, rest = divmod(
        seconds * 10**9 + int((fraction or "0").ljust(9, "0")), UNITS[unit]
    )
    return count if not rest and -(1 << 63) <= count < 1 << 63 else REFUSED


@pytest.mark.parametrize("unit", UNITS)
@given(st.one_of(st.lists(TIMES, max_size=6), st.lists(DATES, max_size=4)))
def test_times_equal_python(unit: str, texts: list[str]) -> None:
    expected = [naive_time(text, unit) for text in texts]
    check(texts, expected, dtype="int64", unit=unit)


@pytest.mark.parametrize("unit", UNITS)
@given(TIMES | st.text("0123456789-:.TZ+ ", max_size=24))
@example("0000-01-01")
@example("2024-01-31T10:20:30.")
def test_what_arrow_casts_is_what_is_read(unit: str, text: str) -> None:
    """The quick way takes no form that the careful one refuses, or reads otherwise."""
    cells = pa.array([text])
    quick = parse_times(cells, unit)
    if not quick.errors:
        assert read_times(trim(cells), unit).array.equals(quick.array)


# Bytes

HEX_CELLS = st.one_of(
    st.none(),
    st.binary(max_size=5).map(bytes.hex),
    st.binary(max_size=5).map(lambda data: f" {data.hex().upper()}\n"),
    st.text("0123456789abcdefgXx ", max_size=6),
    st.text(max_size=3),
)
PLAIN_BASE64 = st.binary(max_size=7).map(lambda data: base64.b64encode(data).decode())
BASE64_CELLS = st.one_of(
    st.none(),
    PLAIN_BASE64,
    PLAIN_BASE64.map(lambda text: text.rstrip("=")),
    PLAIN_BASE64.map(lambda text: f"\t{text} "),
    st.text("AQ+/-_= ", max_size=9),
    st.text(max_size=5),
)


def naive_hex(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return binascii.unhexlify(text.strip(WHITE))
    except ValueError:
        return REFUSED


def naive_base64(text: str | None) -> Any:
    if text is None:
        return None
    text = text.strip(WHITE)
    if "=" not in text:
        text += "=" * (-len(text) % 4)
    if not re.fullmatch(r"[A-Za-z0-9+/]*=?=?", text) or len(text) % 4:
        return REFUSED
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return REFUSED


@given(st.lists(HEX_CELLS, max_size=6))
def test_hex_equals_python(texts: list[str | None]) -> None:
    check(texts, list(map(naive_hex, texts)), dtype="bytes", cell="hex")


@given(
    st.one_of(st.lists(BASE64_CELLS, max_size=6), st.lists(PLAIN_BASE64, max_size=6))
)
@example(["", "QQ==", "QUI=", "QUJD", ""])
@example(["Q=Q=", "====", "AA="])
@example(["AA="])
@example(["QR=="])  # bits behind the last byte: as Python, not minded
def test_base64_equals_python(texts: list[str | None]) -> None:
    check(texts, list(map(naive_base64, texts)), dtype="bytes", cell="base64")


@given(st.lists(st.one_of(st.none(), st.binary(max_size=4)), max_size=5))
def test_binary_columns_that_hold_hex(values: list[bytes | None]) -> None:
    texts = [None if value is None else value.hex().encode() for value in values]
    check(pa.array(texts, pa.binary()), values, dtype="bytes", cell="hex")


# Text and labels

RAW = st.one_of(st.none(), st.text(max_size=5).map(str.encode), st.binary(max_size=5))


def naive_text(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return REFUSED


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
@given(values=st.lists(RAW, max_size=6))
def test_utf8_of_binary(arrow_type: pa.DataType, values: list[bytes | None]) -> None:
    column = pa.array(values, arrow_type)
    check(column, list(map(naive_text, values)), dtype="string")
    check(column, values, dtype="bytes")


def test_utf8_of_text_that_is_not_what_it_says() -> None:
    """Arrow's strings may hold anything if whoever made them did not look."""
    broken = pa.array([b"a", b"\xff\xfe", b"c"]).view(pa.string())
    check(broken, ["a", REFUSED, "c"], dtype="string")
    check(broken, [REFUSED] * 3, dtype="int64")


CLASSES = ["cat", "dog", "3", " x", ""]


@given(st.lists(st.none() | st.sampled_from([*CLASSES, "ca", "Cat", "2", "x"])))
def test_labels_equal_python(labels: list[str | None]) -> None:
    known = {name: index for index, name in enumerate(CLASSES)}
    expected = [None if x is None else known.get(x, REFUSED) for x in labels]
    check(labels, expected, classes=CLASSES, dtype="int16")


def test_the_oracles_themselves() -> None:
    assert same(naive(" 007", "int8"), 7)
    assert same(naive("128", "int8"), REFUSED)
    assert same(naive("-0", "float32"), -0.0)
    assert same(naive_time("1970-01-02T00:00:00.5Z", "ms"), 86_400_500)
    assert same(naive_time("00:01", "s"), 60)
    assert same(naive_base64("QUI"), b"AB")
