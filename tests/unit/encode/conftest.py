"""Runs the tests of bytes twice: by the native extension, and by NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops

# What the native functions do not take part in is tried once.
ONE_WAY = {"test_columns", "test_record_sizes", "test_waiting_rows", "test_wire"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    once = metafunc.module.__name__ in ONE_WAY
    ways = ["native"] if once else ["native", "numpy"]
    metafunc.parametrize("loops", ways, indirect=True, scope="module")


@pytest.fixture(autouse=True)
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "native":
        assert native.loops is not numpy_loops, native.describe()
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "loops", numpy_loops)
        yield
