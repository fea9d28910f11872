"""The compiled loop splits rows as Arrow does, or leaves them to it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from example_counts import fuzzed
from hypothesis import event, example, given
from hypothesis import strategies as st

from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.interface import _load
from recordmill.transforms.sources.csv.quotes import RFC_4180, Dialect
from recordmill.transforms.sources.csv.rows import split_cells, split_plain_cells

pytestmark = pytest.mark.fuzz

_loops = _load()
DIALECTS = [
    RFC_4180,
    Dialect(delimiter=b"\t", quote=b""),
    Dialect(delimiter=b";", quote=b"'"),
    Dialect(delimiter=b" "),
]
TOKENS = ['"', "'", '""', ",", ";", "\t", " ", "\n", "\r", "\r\n", "\0", "a", "ß\ufeff"]
ENDS = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"])
# Cells that a writer would write, and what only a hand or a damage does.
PLAIN = st.sampled_from(["", "1", "-2.5", "word", "é", "x" * 31, "x" * 32, "x" * 70])
ODD = st.lists(st.sampled_from(TOKENS), max_size=5).map("".join)


@st.composite
def tables(draw: st.DrawFn) -> tuple[bytes, int, Dialect]:
    dialect = draw(st.sampled_from(DIALECTS))
    delimiter, quote = dialect.delimiter.decode(), dialect.quote.decode()
    columns = draw(st.integers(1, 5))
    some_odd = draw(st.booleans())
    quoted = ODD.map(lambda text: quote + text.replace(quote, 2 * quote) + quote)
    cells = st.one_of(PLAIN, *[quoted] * bool(quote), *[ODD] * some_odd)
    rows = draw(st.lists(st.tuples(*[cells] * columns), max_size=8))
    if rows and some_odd and draw(st.booleans()):
        rows[-1] = rows[-1][:-1]  # or a row of another width
    text = "".join(delimiter.join(row) + draw(ENDS) for row in rows)
    if draw(st.booleans()):
        text = text[:-1]
    return text.encode(), columns, dialect


def is_the_same(body: bytes, columns: int, dialect: Dialect = RFC_4180) -> bool | None:
    """Returns None if the loop leaves the rows to Arrow."""
    names = [f"c{index}" for index in range(columns)]
    plain = split_plain_cells(body, names, dialect)
    if plain is None:
        return None
    plain.validate(full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", numpy_loops)
        table, wrong = split_cells(body, names, dialect)
    return not wrong and plain.equals(table)


@fuzzed()
@given(tables())
@example((b'"a""b",""\n,\n', 2, RFC_4180))
@example((b"a,b\n" * 40, 2, RFC_4180))
def test_cells_are_those_of_arrow(drawn: tuple[bytes, int, Dialect]) -> None:
    found = is_the_same(*drawn)
    event(f"split: {found}")
    assert found is not False


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_are_split(seed: int) -> None:
    """Over many steps of 64 bytes, with quotes, row ends and delimiters at each place."""
    seeded = random.Random(seed)
    cells = ["", "7", '""', '","', '"\n"', '"""a"""', "b" * 40, '"' + "é" * 20 + '"']
    rows = [",".join(seeded.choices(cells, k=3)) for _ in range(500)]
    assert is_the_same("\r\n".join(rows).encode(), 3)


@pytest.mark.parametrize(
    "body",
    [
        b"1,2\n3\n",
        b"1,2,3\n",
        b'1,"2" \n',
        b'1,"2\n',
        b'1,"2"\n3,""4\n',
        b"1,2\n" + b"3,4\n" * 99 + b"5",
    ],
)
def test_rows_that_are_not_plain_are_left_to_arrow(body: bytes) -> None:
    assert is_the_same(body, 2) is None


@pytest.mark.parametrize(
    "dialect", [Dialect(b",", escape=b"\\"), Dialect(b",", null_values=("NA",))]
)
def test_dialects_that_are_not_plain_are_left_to_arrow(dialect: Dialect) -> None:
    assert is_the_same(b"1,2\n", 2, dialect) is None


@pytest.mark.parametrize(
    ("change", "to"),
    [
        ("delimiter", 256),
        ("delimiter", ord('"')),
        ("quote", -1),
        ("max_rows", -1),
        ("max_rows", 9),
        ("offsets", np.zeros(2 * 9 - 1, np.int32)),
        ("valid", np.zeros(1, np.uint8)),
        ("facts", np.zeros(1, np.int64)),
        ("facts", np.zeros(6, np.int64)),
        ("target", np.zeros(4 + 2 * _loops.CELL_SLACK - 1, np.uint8)),
    ],
)
def test_places_that_are_too_small_are_refused(change: str, to: object) -> None:
    given = {
        "text": b"1,2\n",
        "delimiter": ord(","),
        "quote": ord('"'),
        "max_rows": 8,
        "offsets": np.zeros(2 * 9, np.int32),
        "valid": np.zeros(2, np.uint8),
        "facts": np.zeros(4, np.int64),
        "target": np.zeros(4 + 2 * _loops.CELL_SLACK, np.uint8),
    }
    assert _loops.split_cells(*given.values()) == 1
    with pytest.raises(ValueError, match="no place"):
        _loops.split_cells(*(given | {change: to}).values())


def test_more_rows_than_there_is_place_for() -> None:
    offsets, valid = np.zeros(3, np.int32), np.zeros(1, np.uint8)
    facts, target = np.zeros(2, np.int64), np.zeros(6 + _loops.CELL_SLACK, np.uint8)
    comma, quote = ord(","), ord('"')
    found = _loops.split_cells(
        b"1\n2\n3\n", comma, quote, 2, offsets, valid, facts, target
    )
    assert found == -1
