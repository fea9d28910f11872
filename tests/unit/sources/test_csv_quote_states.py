"""Transition maps of blocks against an automaton that goes byte by byte."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.transforms.sources.csv import quotes
from recordmill.transforms.sources.csv.quotes import (
    FIELD_START,
    QUOTED,
    ROW_START,
    UNQUOTED,
    Dialect,
    QuoteState,
    compose,
    end_state,
    end_states,
    next_state,
    pack_map,
    unpack_map,
)

BLOCKS = st.lists(st.sampled_from([*b'"""",\r\na\xef\0']), max_size=40).map(bytes)


def slow_end_state(block: bytes, state: QuoteState) -> QuoteState:
    for byte in block:
        if byte == ord('"'):
            closed = FIELD_START if state is QUOTED else UNQUOTED
            state = QUOTED if state in (FIELD_START, ROW_START) else closed
        elif state is not QUOTED:
            state = FIELD_START if byte == ord(",") else UNQUOTED
            state = ROW_START if byte in b"\r\n" else state
    return state


def slow_map(block: bytes) -> tuple[QuoteState, ...]:
    """Returns the end states of the states that RFC 4180 has."""
    return tuple(slow_end_state(block, state) for state in QuoteState if state <= 5)


@given(block=BLOCKS, tail=st.integers(1, 50))
def test_maps_are_those_of_a_loop_over_the_bytes(block: bytes, tail: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_TAIL_BYTES", tail)
        patch.setattr(quotes, "_MAX_PIECE_BYTES", 2 * tail)
        found = end_states(block)
    assert found[:4] == slow_map(block)
    assert unpack_map(pack_map(found)) == found
    assert pack_map(found) > 0


@given(BLOCKS, BLOCKS)
def test_maps_compose(first: bytes, second: bytes) -> None:
    assert compose(end_states(first), end_states(second)) == end_states(first + second)


@given(st.lists(st.sampled_from([*b'",\na']), max_size=30).map(bytes))
def test_a_quoted_field_is_open_where_python_says_so(block: bytes) -> None:
    """A row of one cell more is swallowed by a field that is open."""
    rows = list(csv.reader(io.StringIO((block + b"\nlast").decode(), newline="")))
    assert (end_state(block + b"\n") is QUOTED) == (rows[-1] != ["last"])


@pytest.mark.parametrize("escape", ["\\", ""])
@pytest.mark.parametrize("quote", ['"', ""])
@given(
    block=st.lists(st.sampled_from([*b'"",\\\\\r\n\n##a']), max_size=40).map(bytes),
    tail=st.integers(1, 50),
)
def test_maps_of_escapes_and_comments(
    escape: str, quote: str, block: bytes, tail: int
) -> None:
    dialect = Dialect(b",", quote=quote.encode(), escape=escape.encode(), comment=b"#")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "_TAIL_BYTES", tail)
        patch.setattr(quotes, "_MAX_PIECE_BYTES", 2 * tail)
        found = end_states(block, dialect=dialect)
    expected = []
    for state in QuoteState:
        for byte in block:
            state = next_state(state, bytes([byte]), dialect)
        expected.append(state)
    assert found == tuple(expected)
    assert unpack_map(pack_map(found)) == found


def test_many_quotes_in_all_pieces() -> None:
    """More quotes than one step pairs, in more than one piece."""
    for block in (b'"",' * 100_001, b'"' * 300_001, b'a""' * 70_000 + b',"'):
        assert end_states(block)[:4] == slow_map(block)
