from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.ranges import NO_REJECTS, RejectTotals

LINES = st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")))


def file_of(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


@given(lines=LINES, seed=st.integers(), cuts=st.lists(st.integers(0, 20)))
def test_totals_do_not_depend_on_files_and_order(
    lines: list[bytes], seed: int, cuts: list[int]
) -> None:
    whole = RejectTotals.from_content(file_of(lines))
    assert (whole.rows, whole.bytes) == (len(lines), len(file_of(lines)))
    mixed = random.Random(seed).sample(lines, len(lines))
    bounds = [0, *sorted(min(cut, len(mixed)) for cut in cuts), len(mixed)]
    files = [file_of(mixed[a:b]) for a, b in pairwise(bounds)]
    assert sum(map(RejectTotals.from_content, files), NO_REJECTS) == whole


@given(lines=LINES, other=st.binary(max_size=20))
def test_a_changed_line_changes_them(lines: list[bytes], other: bytes) -> None:
    other = other.replace(b"\n", b"")
    if not lines or lines[0] == other:
        return
    changed = file_of([other, *lines[1:]])
    assert RejectTotals.from_content(changed) != RejectTotals.from_content(
        file_of(lines)
    )
