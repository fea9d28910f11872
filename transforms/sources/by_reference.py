"""Defines what a source offers whose rows can be read again by reference.

Then rows need not be kept until their shard is written: `list_references` tells which there
are, and the writer of a shard reads its own by `read_references`. Pictures and records of
a fixed size can, as their sizes are known before they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.source_rows import ReferencedRows, Rows

REFERENCE = "reference"  # the column of references


class ByReference:
    """The part of a source that reads rows by reference; by default there are none.

    Attributes:
      supports_references: whether `list_references` and `read_references` can be called.
      lists_rows: whether `list_references` tells which rows there are, although they are
        not exchanged so; then nothing is read to count them.
      sizes_known_upfront: whether the plan counts file sizes, known without reading.
      sizes_unknown: why record sizes are not known before reading because of an option,
        as a clause that follows "because", or "".
      reference_rate: input bytes that one worker lists and reads by reference in a
        second; for the estimate of a run's time only.
    """

    supports_references = False
    lists_rows = False
    sizes_known_upfront = False
    sizes_unknown = ""
    reference_rate = 1e9

    @property
    def refuses_roles(self) -> bool:
        """Tells whether labels and splits are those of files, not of columns."""
        return self.supports_references

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        """Tells whether exchange by reference is the fastest for these files."""
        return False

    def list_references(self, input_range: InputRange) -> Iterator[Rows]:
        """Lists references to a range's rows instead of the rows, in column REFERENCE.

        The other columns are those that are known without reading a row. Only where
        `supports_references` or `lists_rows`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no references")

    def read_references(self, references: pa.BinaryArray) -> ReferencedRows:
        """Reads the rows that references of `list_references` stand for."""
        raise NotImplementedError(f"{type(self).__name__} has no references")

    def read_windows(
        self, windows: Iterable[pa.BinaryArray]
    ) -> Iterator[ReferencedRows]:
        """Reads the rows of windows of references, one after the other.

        A source that waits for a store asks for the next ones while the caller works.
        """
        return map(self.read_references, windows)
