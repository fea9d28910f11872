"""JSON with a few hostile changes, for fuzzers of files that are read back."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NASTY = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            0,
            -1,
            1 << 31,
            1 << 63,
            1 << 64,
            10**30,
            10**400,
            0.5,
            float("inf"),
            float("-inf"),
            float("nan"),
            1e308,
            "",
            "0",
            "1e999",
            "inf",
            "../x",
            "a\\b",
            "a\0b",
            "\ud800",
            "x" * 300,
            [],
            {},
            [[]],
            [None],
            {"": 1},
            "9" * 5000,
        ]
    ),
    st.text(max_size=5),
    st.integers(),
    st.floats(),
)


def mutate(draw: st.DrawFn, value: Any) -> Any:
    """Replaces, removes or adds something, somewhere in a JSON value."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 9)) == 0:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: mutate(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], mutate(draw, value[at]), *value[at + 1 :]]
    return draw(NASTY)


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> bytes:
    """The JSON of a value with one to three changes, sometimes damaged as text, too."""
    for _ in range(draw(st.integers(1, 3))):
        value = mutate(draw, value)
    data = json.dumps(value).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 7)) == 0:
        at = draw(st.integers(0, len(data)))
        junk = draw(st.sampled_from([b"", b"\xff", b"[" * 5000, b"{" * 9, b"NaN,"]))
        data = data[:at] + junk
    return data
