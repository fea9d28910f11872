"""Columns that lost digits: counts of parts are added, long lists are shortened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.rounded import (
    Rounded,
    exact_error,
    merge_rounded,
    rounded_warnings,
)

FOUND = st.lists(
    st.builds(
        Rounded,
        st.sampled_from("abc"),
        st.integers(1, 9),
        st.text(max_size=2),
        st.just("0"),
    )
)


@given(FOUND, st.integers(0, 9))
def test_parts_may_be_merged_first(found: list[Rounded], cut: int) -> None:
    whole = merge_rounded(found)
    halves = (*merge_rounded(found[:cut]), *merge_rounded(found[cut:]))
    assert merge_rounded(halves) == whole
    for each in whole:
        own = [one for one in found if one.column == each.column]
        assert each.values == sum(one.values for one in own)
        assert each.written == own[0].written


def test_many_columns() -> None:
    found = [Rounded(f"c{n}", 1, "16777217", "16777216") for n in range(20)]
    warnings = rounded_warnings(found)
    assert len(warnings) == 6
    assert warnings[-1] == (
        "float32 loses digits of 15 more columns: 'c5', 'c6', 'c7', 'c8', 'c9', ..."
    )
    assert "  and 15 more columns\n" in exact_error(found)
    assert len(rounded_warnings(found[:5])) == 5
    assert rounded_warnings([]) == []
