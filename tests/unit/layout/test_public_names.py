"""The names that `recordmill` offers: imported when they are used, and listed."""

from __future__ import annotations

import pytest
from job_tools import python
from job_tools import recordmill as command

import recordmill


@pytest.mark.parametrize("name", recordmill.__all__)
def test_each_is_what_it_is_called(name: str) -> None:
    assert name in dir(recordmill)
    assert getattr(recordmill, name).__name__ == name


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Recordmill'"):
        _ = recordmill.Recordmill


_WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "torch" else found(name, *more)
import pydoc, recordmill
from recordmill import *
print(open_dataset.__name__, recordmill.__version__)
print(pydoc.render_doc(recordmill, renderer=pydoc.plaintext))
"""


def test_help_and_a_star_without_pytorch() -> None:
    ran = python(_WITHOUT_TORCH)
    assert ran.status == 0, ran.err
    first, text = ran.out.split("\n", 1)
    assert first == f"open_dataset {recordmill.__version__}"
    assert first.split()[1] in command("--version").out
    assert "class WriteDataset" in text
