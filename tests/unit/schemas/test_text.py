"""JSON is that of the standard library, made faster."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.text import json_bytes

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
KEYS = st.text() | st.integers() | st.booleans() | st.none()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner)
    ),
)


@given(VALUES)
def test_json_is_that_of_the_standard_library(value: Any) -> None:
    expected = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    assert json_bytes(value) == expected.encode(errors="surrogatepass") + b"\n"


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("inf")]}])
def test_never_nan(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_bytes(value)
