"""The names that `recordmill` offers: imported when they are used, and listed."""

from __future__ import annotations

import pytest

import recordmill


@pytest.mark.parametrize("name", recordmill.__all__)
def test_each_is_what_it_is_called(name: str) -> None:
    assert name in dir(recordmill)
    if name != "TorchRows":  # which needs PyTorch
        assert getattr(recordmill, name).__name__ == name


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Recordmill'"):
        _ = recordmill.Recordmill
