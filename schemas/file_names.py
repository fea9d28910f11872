r"""Checks names of files that a listing, a manifest, a job or an inventory gave.

Nothing becomes a path, or a key in a store, before this one function has seen it:

    data/x.tfrecord                              ok
    ../x   a/../b   /etc/x   a//b   a\b   ""     refused
"""

from __future__ import annotations

from recordmill.schemas.errors import OutputRefusedError

_NOT_IN_NAMES = ("\\", "\0")
_MAX_SHOWN = 100


class UnsafeNameError(OutputRefusedError, ValueError):
    """A name that could lead out of the folder it belongs to."""


def check_file_name(name: str, where: str = "", *, plain: bool = False) -> str:
    """Checks that a name stays below the folder that it is joined to; returns it.

    Args:
      name: with `/` between folders, in every kind of store.
      where: the folder or file that has the name, for the message.
      plain: whether it has to be a file's own name, without folders.

    Raises:
      UnsafeNameError: it does not.
    """
    parts = name.split("/")
    outside = any(part in ("", ".", "..") for part in parts)
    if outside or any(mark in name for mark in _NOT_IN_NAMES):
        expected = "a relative path like a/b"
    elif plain and len(parts) > 1:
        expected = "the name of a file without a folder"
    else:
        return name
    shown = repr(name[:_MAX_SHOWN]) + ("..." if len(name) > _MAX_SHOWN else "")
    raise UnsafeNameError(
        f"{where}{': ' if where else ''}name {shown}: expected {expected}"
    )
