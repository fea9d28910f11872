"""Keeps what Beam works out anew for each pipeline, with the same outcome each time.

It asks Python for the signatures of a step's methods some hundred times in a run, a
quarter of the processor time of a small pipeline. The tests run thousands of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

_Arguments = tuple[list[str], list[Any]]


def keep_arguments() -> None:
    """Lets Beam look at the arguments of each method once, if it is imported."""
    core: Any = sys.modules.get("apache_beam.transforms.core")
    if core is not None:
        core.get_function_args_defaults = _keeping(core.get_function_args_defaults)


def _keeping(find: Callable[[Any], _Arguments]) -> Callable[[Any], _Arguments]:
    known: WeakKeyDictionary[FunctionType, _Arguments] = WeakKeyDictionary()

    def arguments_of(function: Any) -> _Arguments:
        inner = function.__func__ if isinstance(function, MethodType) else None
        if not isinstance(inner, FunctionType):
            return find(function)
        if inner not in known:
            known[inner] = find(function)
        names, defaults = known[inner]
        return [*names], [*defaults]

    return arguments_of
