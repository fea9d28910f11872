"""Loads a person's function: runs the text of its file, or imports its module."""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Callable
from threading import Lock
from types import ModuleType
from typing import Any

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import MapFunction, load_map

Function = Callable[..., Any]

_lock = Lock()  # two tasks of one process begin at the same time


def load_function(named: MapFunction) -> Function:
    """Returns the function, whose module is run once in each process.

    Raises:
      UsageError: the module raises, has no such function, or is another one here than
        where the job began.
    """
    with _lock:
        module = _import(named) if named.module else _run(named)
    found: Function | None = getattr(module, named.function, None)
    if found is None or not callable(found):
        raise UsageError(
            f"`map` {named.label}: the module has no function {named.function!r}; "
            f"expected one. It has {', '.join(_functions(module)) or 'none'}"
        )
    return found


def _import(named: MapFunction) -> ModuleType:
    """Imports a module whose text has to be that which the job began with."""
    here = load_map(f"{named.module}:{named.function}", lambda _: b"")
    if here.checksum != named.checksum:
        raise UsageError(
            f"`map` {named.label}: the module has another text here (checksum "
            f"{here.checksum[:8]}) than where the job began ({named.checksum[:8]}). "
            "Install the same version on each worker, or name its file: the text of a "
            "file goes with the job"
        )
    try:
        return importlib.import_module(named.module)
    except Exception as error:
        raise _broken(named, error) from error


def _run(named: MapFunction) -> ModuleType:
    """Runs the text of a file as a module; of the same text it is the same module."""
    name = f"recordmill_map_{named.checksum}"
    if name in sys.modules:
        return sys.modules[name]
    # It has no __file__: what lies beside it is not on the workers.
    module = ModuleType(name)
    shown = f"<{named.file} of the job, {named.checksum[:8]}>"
    lines = named.text.splitlines(keepends=True)
    linecache.cache[shown] = (len(named.text), None, lines, shown)  # for tracebacks
    sys.modules[name] = module
    try:
        exec(compile(named.text, shown, "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        raise _broken(named, error) from error
    return module


def _broken(named: MapFunction, error: Exception) -> UsageError:
    more = ""
    if isinstance(error, ImportError):
        more = ". Install what it imports, on each worker too"
    if isinstance(error, NameError) and error.name == "__file__":
        more = (
            ". The text of a file is run by itself: what lies beside it is not there; "
            "put it into the file, or make a module of both and install that"
        )
    return UsageError(
        f"`map` {named.label}: the module cannot be run: {type(error).__name__}: "
        f"{error}{more}"
    )


def _functions(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module.__name__
    ]
