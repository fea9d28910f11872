"""Runs the tests of bytes twice: by the native extension, and by NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops

WAYS = ["native", "numpy"]
# What the native functions do not take part in is tried once.
ONE_WAY = {
    "test_columns": ["native"],
    "test_packed_values": ["native"],
    "test_record_sizes": ["native"],
    "test_waiting_rows": ["native"],
    "test_wire": ["native"],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    ways = ONE_WAY.get(metafunc.module.__name__, WAYS)
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
