"""Defines a file that a listing of a local folder or of a store found."""

from __future__ import annotations

from typing import NamedTuple


class FoundFile(NamedTuple):
    """A file that a listing found.

    Attributes:
      uri: where it is read from.
      size: in bytes.
      version: the store's etag, or mtime in nanoseconds.
      given: uri of the input folder that it was found below.
      problem: why it cannot be read, or "".
      is_named: whether the input or its glob names this file, not a folder above it.
    """

    uri: str
    size: int
    version: str
    given: str
    problem: str = ""
    is_named: bool = False
