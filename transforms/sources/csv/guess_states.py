"""Guesses in which state of the quotes a range in the middle of a file begins."""

from __future__ import annotations

from dataclasses import replace

from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.states import (
    FIELD_START,
    QUOTED,
    UNQUOTED,
    first_state,
    unpack_map,
)

LOOKED_AT_BYTES = 1 << 18


def guess_states(rows: RangeRows, input_range: InputRange, survey: int) -> InputRange:
    """Returns the range with the states of quotes that give the fewest rejects.

    To know them would take reading the file from its start.

    Args:
      rows: of the file.
      input_range: a sample of the file.
      survey: the transition map of its bytes.
    """
    start = input_range.start
    ends = unpack_map(survey)
    if start == 0:
        state = ends[first_state(rows.dialect) - FIELD_START]
        return replace(input_range, quoted=(0, int(state)))
    before = rows.of_file(input_range)(start - 1, start)
    state = FIELD_START if before in rows.dialect.field_ends else UNQUOTED
    if before in (b"\r", b"\n"):
        state = first_state(rows.dialect)
    states = (state, QUOTED)
    guesses = [
        replace(input_range, quoted=(int(state), int(ends[state - FIELD_START])))
        for state in states
    ]
    return min(guesses, key=lambda guess: _share_rejected(rows, guess))


def _share_rejected(rows: RangeRows, input_range: InputRange) -> float:
    """Returns the share of rows that cannot be split into the columns.

    One half if no row starts there, as in the middle of a long text.
    """
    parsed = rows.sample(input_range, LOOKED_AT_BYTES)
    if parsed is None or not parsed.num_rows:
        return 0.5
    return len(parsed.rejects) / parsed.num_rows
