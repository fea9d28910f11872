"""Runs the tests of bytes twice: by the compiled loops, and by Arrow and NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recordmill.transforms import compiled

WAYS = ["compiled", "arrow"]
# What the compiled loops do not take part in is tried once.
ONE_WAY = {
    "test_columns": ["compiled"],
    "test_compiled_loops": ["compiled"],
    "test_packed_values": ["compiled"],
    "test_payloads": ["arrow"],  # sequence examples, JSON
    "test_record_sizes": ["compiled"],
    "test_unwritten_records": ["compiled"],
    "test_wide_cells": ["arrow"],
    "test_wire": ["arrow"],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    ways = ONE_WAY.get(metafunc.module.__name__, WAYS)
    metafunc.parametrize("loops", ways, indirect=True, scope="module")


@pytest.fixture(autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled":
        assert compiled.loops is not None, compiled.describe()
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "loops", None)
        yield
