"""Runs the tests of bytes twice: by the compiled loops, and by Arrow and NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recordmill.transforms import compiled


@pytest.fixture(scope="module", autouse=True, params=["compiled", "arrow"])
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled":
        assert compiled.loops is not None, compiled.describe()
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "loops", None)
        yield
