"""Reads what another source reads, and gives the rows that a person's function makes.

The rows of the other source are as it infers or knows their types, never by a declared
schema: that one describes what the function makes. Where types are inferred, they may
widen while rows are read; then the function may make other types, too. So the columns it
makes are learned from the first rows, read with the types in question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self
from uuid import uuid4

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.job import MapFunction
from recordmill.schemas.ranges import InputRange, OddRows, TypeFlags, merge_type_flags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.map_rows.call_function import map_batch
from recordmill.transforms.map_rows.load_function import load_function
from recordmill.transforms.map_rows.made_features import facts_of_map, made_schema
from recordmill.transforms.map_rows.made_rows import RowMaker
from recordmill.transforms.map_rows.try_function import (
    NOTHING_TRIED,
    RaisedForAllError,
    Tried,
    first_rows,
    try_function,
    try_without_rows,
)
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.named_files import NamedFile
from recordmill.transforms.sources.source_on_source import SourceOnSource
from recordmill.transforms.sources.source_rows import Rows

# What was learned in this process, by source and type flags.
_tried: dict[tuple[str, TypeFlags], Tried] = {}


def map_source(inner: Source, named: MapFunction, *, as_declared: bool) -> Source:
    """Returns the source of the rows that a function makes.

    Args:
      inner: the source of the rows that the function gets.
      named: the function.
      as_declared: whether a declared schema says what becomes of its columns.
    """
    return MappedSource(
        inner=inner,
        named=named,
        as_declared=as_declared,
        storage=inner.storage,
        files_root=inner.files_root,
        named_files=inner.named_files,
        handles_unreadable=inner.handles_unreadable,
        reads_archives=inner.reads_archives,
        tells_checksums=inner.tells_checksums,
        has_positions=inner.has_positions,
        read_rate=inner.read_rate,
    )


@dataclass(frozen=True)
class MappedSource(SourceOnSource):
    """The rows that a function makes from those of another source.

    Attributes:
      named: the function.
      as_declared: whether a declared schema says what becomes of the columns.
      like: the features of the other source's rows in the dataset that rows are
        appended to, or None.
      fixed_schema: that dataset's own, where it is not declared, or None.
      tried_ranges: where the first rows are, on which the function is tried.
      tried_types: the type flags of those rows.
      key: of this prepared source, among all of a process.
      tried: the columns of the first rows; of other type flags it is learned later.
      storage, files_root: see `Source`, as the following.
    """

    named: MapFunction
    as_declared: bool = False
    like: Schema | None = None
    fixed_schema: Schema | None = None
    tried_ranges: tuple[InputRange, ...] = ()
    tried_types: TypeFlags = ()
    key: str = ""
    tried: Tried = NOTHING_TRIED
    storage: StorageOptions = NO_OPTIONS
    files_root: str = ""
    named_files: tuple[NamedFile, ...] = ()
    handles_unreadable: bool = False
    reads_archives: bool = False
    tells_checksums: bool = False
    has_positions: bool = True
    read_rate: float = 100e6

    sizes_unknown = "the function of `map` makes the rows"

    def prepare(self, files: Sequence[InputFile]) -> Self:
        return self._on(self.inner.prepare(files), files)

    def appending_to(self, inputs: Schema | None) -> Self:
        return replace(self, like=inputs)

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        inner = self.inner.prepare_append(kept, new, self.like)
        return replace(self, fixed_schema=schema)._on(inner, new)

    def _on(self, inner: Source, files: Sequence[InputFile]) -> Self:
        """Returns the source on a prepared one, with the function tried."""
        ranges = inner.cut(files)
        chosen = tuple(inner.sample_ranges(ranges)) if ranges else ()
        batch, types = first_rows(inner, chosen)
        if not batch.num_rows:  # rows may be larger than what is sampled
            chosen = tuple(ranges[:1])
            batch, types = first_rows(inner, chosen)
        if self.like is None:
            tried = self._try(batch)
        else:
            tried = self._try_appended(batch, inner.columns())
        if not tried.columns:
            raise InputError(
                f"the input has no row on which `map` {self.named.label} could be tried"
            )
        return replace(
            self,
            inner=inner,
            tried_ranges=chosen,
            tried_types=types,
            tried=tried,
            key=uuid4().hex,
        )

    def _try(self, batch: pa.RecordBatch) -> Tried:
        function, label = load_function(self.named), self.named.label
        return try_function(function, batch, label, as_declared=self.as_declared)

    def _try_appended(self, batch: pa.RecordBatch, columns: pa.Schema) -> Tried:
        """Tries the function on new rows, of which there may be none or only bad ones."""
        function, label = load_function(self.named), self.named.label
        as_declared = self.as_declared
        if not batch.num_rows:
            return try_without_rows(function, columns, label, as_declared=as_declared)
        try:
            return self._try(batch)
        except RaisedForAllError:
            with suppress(InputError):
                return try_without_rows(
                    function, columns, label, as_declared=as_declared
                )
            raise

    def _tried_with(self, types: TypeFlags) -> Tried:
        """Returns what the function makes of columns with these type flags."""
        types = self._types(types)
        if types == self.tried_types:
            return self.tried
        found = _tried.get((self.key, types))
        if found is None:
            if len(_tried) > 256:
                _tried.clear()
            batch, _ = first_rows(self.inner, self.tried_ranges, types)
            found = self._try(batch)
            _tried[self.key, types] = found
        return found

    def _types(self, flags: TypeFlags) -> TypeFlags:
        """Returns type flags with those of the first rows, which are rows, too."""
        if not self.infers_types:
            return ()
        return merge_type_flags(flags, self.tried_types)

    def naming_files(self) -> Self:
        return replace(self, inner=self.inner.naming_files())

    def understood(self) -> Understood:
        return self._with_function(self.inner.understood(), ())

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: TypeFlags = (),
    ) -> Understood:
        inner = self.inner.schema(self._inner_flags(observed))
        found = self.inner.understood_at_end(inner, odd, observed)
        return self._with_function(found, observed)

    def _with_function(self, told: Understood, observed: TypeFlags) -> Understood:
        tried = self._tried_with(observed)
        features = () if self.as_declared else self.schema(observed).features
        facts = facts_of_map(self.named, tried, features)
        return replace(told, facts=(*told.facts, *facts))

    def columns(self) -> pa.Schema:
        return self.tried.arrow_schema()

    def sample(self, input_range: InputRange) -> TypeFlags:
        return self._types(self.inner.sample(input_range))

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner.estimated_bytes(files) * self.tried.rows_each

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        tried = self._tried_with(observed)
        if not tried.has_rows and self.fixed_schema is not None:
            return self.fixed_schema
        own = self.inner.schema(self._inner_flags(observed))
        return made_schema(tried, nulls, own, self.fixed_schema)

    def _inner_flags(self, observed: TypeFlags) -> TypeFlags:
        # Those of a source that infers no types are not merged: () has seen nothing.
        return self._types(observed) if self.infers_types else observed

    def input_schema(self, observed: TypeFlags) -> Schema:
        own = self.inner.schema(self._inner_flags(observed)).features
        # A value that is missing is the function's affair.
        return Schema(tuple(replace(feature, optional=True) for feature in own))

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        # A column without values may have put something into the records here.
        return bool(observed) and self.inner.needs_reencode(final, used, final)

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        function = load_function(self.named)
        types = self._types(expected) if self.infers_types else expected
        for rows in self.inner.read(input_range, types):
            if self.infers_types and rows.observed:
                rows.observed = self._types(rows.observed)
                types = merge_type_flags(types, rows.observed)
            tried = self._tried_with(types)
            maker = RowMaker(self.named.label, tried, self.as_declared)
            if not rows.batch.num_rows:
                yield maker.without_rows(rows)
                continue
            made = map_batch(function, rows.batch, self.named.label)
            required = self.fixed_schema and self.schema(rows.observed)
            yield maker.rows_made(rows, made, input_range, required)

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        return self.read(input_range, ())  # the function gets types, never text

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        return self.read(input_range, ())
