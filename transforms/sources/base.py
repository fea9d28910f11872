"""Defines what every input format offers: a Source lists, cuts and reads its input.

A source is a frozen value: building one touches no storage, and it travels to the
workers pickled. `prepare` is the one step that reads of the input before the run. The
order of the calls:

    prepare(files) -> cut(files) -> survey(range) of each, where needed -> resolve_ranges
    -> sample(range) of some -> read(range) of each, or list_references + read_references
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange, OddRows
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.by_reference import ByReference
from recordmill.transforms.sources.named_files import NamedFile
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.text_types import TypeFlag
from recordmill.transforms.storage import Store

FRAMED = "framed record"  # the only column of a source that has whole records already
RANGE_BYTES = 16 << 20  # input of one task; fixes the cut, so never depends on workers


class Source(ByReference, ABC):
    """The input of a run in one format.

    What it offers if its rows can be read by reference is in `ByReference`.

    Attributes:
      storage: options of the inputs' storage.
      files_root: folder that cells name files below; "" for the table's own folder.
      named_files: what options name beside the inputs, and rows depend on.
      role_options: the format's own options that stand for `label` and `split_column`.
      handles_unreadable: whether `prepare` takes files that have a `problem`, too; if
        not, such a file is an error before that.
      reads_archives: whether tar archives and zip files are what it reads; if not, one
        that is an input stands for its members, as a folder for its files.
      tells_checksums: whether rows come with the checksums of all that was read. If
        not, a file that was written again is another one, even with the same bytes.
      has_positions: whether rows have a position in an input; without one, rows with
        equal keys are ordered by their content.
      read_rate: input bytes that one worker reads and encodes in a second; for the
        estimate of a run's time only.
    """

    storage: StorageOptions
    files_root: str = ""
    named_files: tuple[NamedFile, ...] = ()
    role_options: Mapping[str, str] = MappingProxyType({})
    handles_unreadable = False
    reads_archives = False
    tells_checksums = False
    has_positions = True
    read_rate = 100e6

    @property
    def infers_types(self) -> bool:
        """Tells whether column types follow from the cells.

        If so, the type flags of `sample`, `Rows.observed`, `schema` and
        `needs_reencode` are those of `type_flags.TypeFlag`; else they are empty.
        """
        return False

    @property
    def decimal_comma(self) -> bool:
        """Tells whether numbers in text have a comma before their places."""
        return False

    @abstractmethod
    def prepare(self, files: Sequence[InputFile]) -> Self:
        """Returns the source with what it must know of the whole input.

        This is where headers and the names of classes are read.

        Raises:
          InputError: the input cannot be of this format.
        """

    @abstractmethod
    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        """Returns the source that reads new files as if they stood beside the others.

        Args:
          kept: the files that were converted before, as they are still there.
          new: those to convert now; the only ones that `cut` may cut.
          schema: of the dataset that is there; None if the job declares it.

        Raises:
          InputError: the new files cannot be of one dataset with the others.
        """

    def making(self, job: JobSpec) -> Self:
        """Returns the source for a job; for one that may have whole records already.

        Such a source gives framed records in the column FRAMED, which are written as
        they are, and says in `schema` what they hold. Asked before `prepare`.

        Raises:
          UsageError: the job asks for what such a source cannot do.
        """
        return self

    def appending_to(self, inputs: Schema | None) -> Self:
        """Returns the source for a dataset that was made by a function (`map`).

        Asked before `prepare_append`, with what `input_schema` told of its rows.
        """
        return self

    def input_schema(self, observed: tuple[int, ...]) -> Schema | None:
        """Returns the features of rows before a function (`map`); None without one.

        Args:
          observed: the type flags of all rows.
        """
        return None

    def naming_files(self) -> Self:
        """Returns the source of a table whose cells name files, read for its rows."""
        return self

    def expecting(self, columns: Sequence[str]) -> Self:
        """Returns the source of a table that should have these columns.

        Asked before `prepare`, with the columns that a declared schema uses.
        """
        return self

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        """Returns the checksums of what `prepare` read and what rows depend on.

        Only of files that `read` does not read. Asked before `spill_inventory`.
        """
        return ()

    def understood(self) -> Understood:
        """Returns what the source took its input for, once prepared."""
        return Understood()

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> Understood:
        """Returns the same once all rows were read.

        Args:
          schema: the features of the records.
          odd: those of all `Rows` and `ReferencedRows`.
          observed: the type flags of all rows.
        """
        return self.understood()

    def own_splits(self) -> tuple[str, ...]:
        """Returns the splits that all of the input is divided into by itself.

        They take the place of the default split; () where files are in no split.
        """
        return ()

    def own_split_rows(self) -> tuple[int, ...]:
        """Returns the rows of each of `own_splits`, where ranges do not tell them."""
        return ()

    def odd_problem(self, odd: Sequence[OddRows]) -> str:
        """Returns why a dataset may not have rows that are odd in this way, or "".

        Asked once all rows were read, before anything is published.
        """
        return ""

    @abstractmethod
    def columns(self) -> pa.Schema:
        """Returns names and types of the columns that `read` gives, once prepared."""

    @abstractmethod
    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        """Cuts the files into input ranges, by constants alone.

        Files that are not of this format are left out.
        """

    def needs_survey(self, ranges: Sequence[InputRange]) -> bool:
        """Tells whether these ranges can be read only after a survey of each."""
        return False

    def survey(self, input_range: InputRange) -> int:
        """Returns a number that must be known of each range before any can be read."""
        return 0

    def resolve_ranges(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        """Returns the ranges with what the surveys found; both in range order."""
        return list(ranges)

    def sample(self, input_range: InputRange) -> tuple[int, ...]:
        """Returns the type flags of the columns in a few rows of a range."""
        return ()

    @abstractmethod
    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        """Returns the features, given the type flags and missing values of all rows."""

    def needs_reencode(
        self, observed: tuple[int, ...], used: tuple[int, ...], final: tuple[int, ...]
    ) -> bool:
        """Tells whether a range must be encoded again because types came out wider.

        Args:
          observed: the range's own type flags.
          used: those that it was encoded for.
          final: those of the whole input.
        """
        return False

    @abstractmethod
    def read(
        self, input_range: InputRange, expected: tuple[int, ...]
    ) -> Iterator[Rows]:
        """Reads a range in batches.

        Args:
          input_range: the range.
          expected: the type flags to assume for each column; a batch has the types that
            this asks for together with all batches so far.
        """

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads the columns of a range that statistics are made of.

        Columns of text whose types are inferred come as text.
        """
        return self.read(input_range, ())

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        """Reads a range with columns whose types are inferred as text.

        So names of classes are what is written.
        """
        names = self.columns().names if self.infers_types else ()
        return self.read(input_range, (int(TypeFlag.TEXT),) * len(names))

    def spill_inventory(self, store: Store, name: str) -> Self:
        """Writes a large list of files to a file of a store, for workers to read.

        Returns:
          The source without that list, small enough to be sent to each worker.
        """
        return self

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        """Returns small ranges, spread over the input, each readable on its own."""
        return list(ranges[:: -(-len(ranges) // 4)])

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        """Returns an upper estimate of all records' bytes; it sizes the histogram."""
        return sum(file.size for file in files)


def number_ranges(parts: Sequence[tuple[InputFile, int, int, str]]) -> list[InputRange]:
    """Makes input ranges from (file, start, stop, split) in input order."""
    total = sum(stop - start for _, start, stop, _ in parts)
    ranges = []
    position = 0
    for index, (file, start, stop, split) in enumerate(parts):
        ranges.append(
            InputRange(
                index=index,
                path=file.path,
                uri=file.uri,
                start=start,
                stop=stop,
                first_position=position,
                total_positions=total,
                split=split,
                seen=file.seen,
            )
        )
        position += stop - start
    return ranges
