"""Finds where a reject is in its input: its line, its byte, or its row in a table."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import lru_cache

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.input_files import MEMBER_MARK, Seen, is_archive_name
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import printable
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.sources.registry import load_format
from recordmill.transforms.storage.reading import read_range

MAX_READ_BYTES = 256 << 20  # of a file, to count its lines
_COMPARED_BYTES = 1 << 16  # of a row


@dataclass(frozen=True, slots=True)
class RejectLocator:
    """What finds the lines of rejects; without a root, or if the input changed, none.

    Attributes:
      root: the folder below which all inputs are, or "" if it is not known.
      source: name of the input format, which tells whether its rows are lines.
      storage: options of the inputs' storage.
    """

    root: str = ""
    source: str = ""
    storage: StorageOptions = NO_OPTIONS

    def line(self, reject: Reject) -> int | None:
        """Returns the number of the line that a reject begins in, or None.

        Reads the file up to there, which is why it is done for few rejects.
        """
        if not self.root or not reject.path:
            return None
        try:
            line_of = load_format(self.source).line_of
        except UsageError:  # of a package that is not installed here
            return None
        if line_of is None:
            return None
        if reject.position > MAX_READ_BYTES or not reject.raw:
            return None
        uri = posixpath.join(self.root, reject.path)
        wanted = reject.raw[:_COMPARED_BYTES]

        def read(start: int, stop: int) -> bytes:
            return read_range(uri, start, stop, self.storage, seen)

        try:
            seen = _seen_in_archive(uri, self.storage)
            if read(reject.position, reject.position + len(wanted)) != wanted:
                return None  # the file has changed since
            return line_of(read, reject.position)
        except InputError:
            return None  # it is gone

    def describe(self, reject: Reject) -> str:
        """Returns "a.csv line 3", or "a.csv byte 17" if the line is not known."""
        if not reject.path:
            return "a row of the pipeline"
        line = self.line(reject)
        unit = self._unit() if line is None else "line"
        where = f"{unit} {reject.position if line is None else line:,}"
        return f"{printable(reject.path)} {where}"

    def _unit(self) -> str:
        """Returns what the positions of rejects count."""
        try:
            return load_format(self.source).position_unit if self.source else "byte"
        except UsageError:  # of a package that is not installed here
            return "byte"


@lru_cache(maxsize=64)
def _seen_in_archive(uri: str, storage: StorageOptions) -> Seen | None:
    """Returns where a member of an archive lies; None of a file that is in none."""
    archive, is_inside, _ = uri.partition(f"{MEMBER_MARK}/")
    if not is_inside or not is_archive_name(archive):
        return None
    _, files = list_inputs([archive], storage, keep_unreadable=True)
    return next((file.seen for file in files if file.uri == uri), None)


UNKNOWN_INPUT = RejectLocator()
