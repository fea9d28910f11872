"""What a source understood: its forms for people and machines, and what is found later."""

from __future__ import annotations

import json
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.input_summary import (
    EMPTY_REPORT,
    InputReport,
    InputWarning,
    SkippedFiles,
    WarningCode,
)

WORDS = st.text(max_size=5)
UNDERSTOOD = st.builds(
    InputReport,
    st.dictionaries(WORDS, WORDS, max_size=3).map(lambda facts: tuple(facts.items())),
    st.lists(
        st.builds(InputWarning, st.sampled_from(get_args(WarningCode)), WORDS),
        max_size=3,
        unique=True,
    ).map(tuple),
    st.lists(st.builds(SkippedFiles, WORDS, st.integers(1, 9), WORDS), max_size=2).map(
        tuple
    ),
)


@given(UNDERSTOOD)
def test_json_form_is_whole(understood: InputReport) -> None:
    kept = json.loads(json.dumps(understood.to_dict()))
    assert InputReport.from_dict(kept) == understood
    assert InputReport.from_dict({}) == EMPTY_REPORT


@given(UNDERSTOOD)
def test_nothing_new_changes_nothing(understood: InputReport) -> None:
    assert (
        understood.merged_with(EMPTY_REPORT)
        == understood
        == EMPTY_REPORT.merged_with(understood)
    )


def test_what_is_found_later_replaces_facts_and_adds_warnings() -> None:
    a, b, c = (InputWarning("odd-cells", name) for name in "abc")
    first = InputReport((("types", "so far"), ("header", "line 1")), (a, b))
    later = InputReport((("types", "of all rows"),), (b, c))
    assert first.merged_with(later) == InputReport(
        (("types", "of all rows"), ("header", "line 1")), (a, b, c)
    )
    assert first.with_warnings([b, c, b]).warnings == (a, b, c)


def test_options_are_spelled_in_warnings() -> None:
    warning = InputWarning("long-numbers", "use `schema`")
    understood = InputReport((("`x`", "`x`"),), (warning,))
    spelled = understood.with_spelling(
        lambda text: text.replace("`schema`", "--schema")
    )
    assert spelled == InputReport(
        (("`x`", "`x`"),), (InputWarning("long-numbers", "use --schema"),)
    )


def test_files_passed_over_are_counted_by_reason() -> None:
    found = [("empty", "a"), ("not an image", "b"), ("not an image", "c")]
    counted = SkippedFiles.count_by_reason(found)
    assert counted == (
        SkippedFiles("not an image", 2, "b"),
        SkippedFiles("empty", 1, "a"),
    )
    assert InputReport((("delimiter", "comma"),), (), counted).to_lines() == [
        "delimiter: comma",
        "skipped: 2 files (not an image), such as b",
        "skipped: 1 file (empty), such as a",
    ]
