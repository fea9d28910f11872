"""Reads what another source reads, and gives the rows that a user's function makes (`map`).

The rows of the other source are as it infers or knows their types, never by a declared
schema: that one describes what the function makes. Where types are inferred, they may
widen while rows are read; then the function may make other types, too. So the columns it
makes are learned from the first rows, read with the types in question.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from types import ModuleType
from typing import Self
from uuid import uuid4

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError, SchemaError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.job import MapFunction, load_map
from recordmill.schemas.ranges import (
    InputRange,
    RowIssue,
    TypeFlags,
    merge_type_flags,
)
from recordmill.transforms.arrow import I64
from recordmill.transforms.exchange.keys import copy_origins
from recordmill.transforms.sources.base import (
    Rows,
    RowSink,
    RowSource,
    Source,
    missing_required,
)
from recordmill.transforms.sources.map_check import (
    Function,
    MappedBatch,
    RaisedForAllError,
    Tried,
    different_types,
    first_rows,
    map_batch,
    plain_columns_of,
    try_function,
    try_without_rows,
)
from recordmill.transforms.sources.plain_types import (
    merged_type,
    plain_schema,
)
from recordmill.transforms.sources.tables import flat_batch

_lock = Lock()  # two tasks of one process begin at the same time


def load_function(named: MapFunction) -> Function:
    """Returns the function, whose module is run once in each process."""
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


def _copies(rows: I64) -> I64:
    """Numbers the rows that come from one row.

    >>> _copies(np.array([3, 3, 5])).tolist()
    [0, 1, 0]
    """
    _, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    return np.arange(len(rows), dtype=np.int64) - np.repeat(starts, counts)


@dataclass(frozen=True, eq=False)
class MappedRows(RowSource):
    """The rows that a function makes from others; equal to those of the same key."""

    inner: Source
    named: MapFunction
    as_declared: bool  # whether a schema says what becomes of the columns
    fixed_schema: Schema | None  # of the dataset appended to, if that is not declared
    tried_ranges: tuple[InputRange, ...]  # where the first rows are,
    tried_types: TypeFlags  # and their type flags
    key: str  # of these rows, among all of a process
    tried: Tried  # of other type flags it is learned later

    sizes_unknown = "the function of `map` makes the rows"

    @property
    def input(self) -> Source:
        return self.inner

    def on(self, source: Source) -> Self:
        return replace(self, inner=source)

    def _tried_with(self, types: TypeFlags) -> Tried:
        """Returns what the function makes of columns with these type flags."""
        types = self._types(types)
        if not self.infers_types or types == self.tried_types:
            return self.tried
        return self._try_again(types)

    @lru_cache(maxsize=256)  # noqa: B019 (by the key: once in each process)
    def _try_again(self, types: TypeFlags) -> Tried:
        batch, _ = first_rows(self.inner, self.tried_ranges, types)
        function, label = load_function(self.named), self.named.label
        return try_function(function, batch, label, as_declared=self.as_declared)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MappedRows) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def _types(self, flags: TypeFlags) -> TypeFlags:
        """Returns type flags with those of the first rows, which are rows, too."""
        return merge_type_flags(flags, self.tried_types) if self.infers_types else flags

    def understood(self) -> InputSummary:
        return self._with_function(self.inner.understood(), ())

    def understood_at_end(
        self,
        schema: Schema,
        issues: tuple[RowIssue, ...] = (),
        observed: TypeFlags = (),
    ) -> InputSummary:
        inner = self.inner.schema(self._types(observed))
        found = self.inner.understood_at_end(inner, issues, observed)
        return self._with_function(found, observed)

    def _with_function(self, before: InputSummary, observed: TypeFlags) -> InputSummary:
        """Returns what is known of the input, with the columns made and kept."""
        tried = self._tried_with(observed)
        features = () if self.as_declared else self.schema(observed).features
        kept = [each.name for each in features if each.column in tried.kept]
        left = {each.column for each in features} or {*tried.columns.names}
        made = ", ".join(f"{f.name} {f.type}" for f in tried.columns if f.name in left)
        label = f"{self.named.label} (checksum {self.named.checksum[:8]})"
        facts = [("map", f"{label} makes {made}")]
        if kept:
            facts.append(("kept by map", ", ".join(kept)))
        return replace(before, facts=(*before.facts, *facts))

    def columns(self) -> pa.Schema:
        return self.tried.columns

    def sample(self, input_range: InputRange) -> TypeFlags:
        return self._types(self.inner.sample(input_range))

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner.estimated_bytes(files) * self.tried.rows_each

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        tried = self._tried_with(observed)
        if not tried.has_rows and self.fixed_schema is not None:
            return self.fixed_schema
        before = self.inner.schema(self._types(observed)).features
        own = {each.column: each for each in before}
        made = []
        for plain in plain_schema(tried.columns, nulls).features:
            if plain.name not in tried.kept:
                made.append(self._as_fixed(plain))
            elif plain.name in own:  # else it is no feature without the function either
                # One that is given back as it was stays what it is: class names, an image.
                kept = replace(own[plain.name], optional=plain.optional)
                made.append(self._as_fixed(kept, plain))
        return Schema(tuple(made))

    def _as_fixed(self, *choices: FeatureSpec) -> FeatureSpec:
        """Returns the first choice, or one that the dataset has like it."""
        for fixed in self.fixed_schema.features if self.fixed_schema else ():
            for choice in choices:
                alike = replace(choice, optional=fixed.optional)
                if alike.as_stored() == fixed.as_stored():
                    return alike
        return choices[0]

    def input_schema(self, observed: TypeFlags) -> Schema:
        own = self.inner.schema(self._types(observed)).features
        # A value that is missing is the function's affair.
        return Schema(tuple(replace(feature, optional=True) for feature in own))

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        # A column without values may have put something into the records here.
        return bool(observed) and self.inner.needs_reencode(final, used, final)

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        function = load_function(self.named)
        types = self._types(expected)
        found = replace(sink)  # its nulls are not those of the columns that are made
        if not self.as_declared:
            sink.add(nulls=(0,) * len(self._tried_with(types).columns))
        for rows in self.inner.read(input_range, types, found):
            self._pass_on(found, sink)
            types = merge_type_flags(types, sink.observed)
            if not rows.batch.num_rows:
                continue
            tried = self._tried_with(types)
            made = map_batch(function, rows.batch, self.named.label)
            required = self.fixed_schema and self.schema(sink.observed)
            mapped = self._rows_made(rows, made, tried, input_range, required, sink)
            if mapped is not None:
                yield mapped
        self._pass_on(found, sink)

    def _rows_made(
        self,
        rows: Rows,
        made: MappedBatch,
        tried: Tried,
        input_range: InputRange,
        required: Schema | None,
        sink: RowSink,
    ) -> Rows | None:
        """Returns the rows that the function made of others; None if there are none."""
        sink.reject(rows, dict(made.invalid_rows), input_range)
        sink.dropped += made.dropped(rows.batch.num_rows)
        sink.added += made.added
        if not made.batch.num_columns:
            return None
        batch = self._flat(made.batch, tried, input_range)
        found = replace(rows.taken(made.rows, batch), planned_bytes=None)
        if made.added:
            found.groups = found.origins
            found.origins = copy_origins(found.origins, _copies(made.rows))
        found = sink.reject(found, missing_required(batch, required), input_range)
        if not self.as_declared:
            sink.add(nulls=[column.null_count for column in found.batch.columns])
        return found

    def _flat(
        self, batch: pa.RecordBatch, tried: Tried, input_range: InputRange
    ) -> pa.RecordBatch:
        """Returns a batch with plain columns, those of the first rows."""
        label = self.named.label
        found = plain_columns_of(batch, label, as_declared=self.as_declared)
        if self.as_declared:
            return flat_batch(batch, found)
        expected = {field.name: field.type for field in tried.columns}
        if differ := sorted({*found.names} ^ expected.keys()):
            raise SchemaError(
                f"{input_range.where}: `map` {label}: the function returned the columns "
                f"{', '.join(found.names)}, but {', '.join(expected)} for the first rows; "
                f"they differ in {', '.join(differ)}. It has to return the same columns "
                "for all rows"
            )
        for name, kind in zip(found.names, found.types, strict=True):
            merged = merged_type(kind, expected[name])
            if merged is None or not merged.equals(expected[name]):
                text = different_types(label, name, str(expected[name]), str(kind))
                raise SchemaError(f"{input_range.where}: {text}")
        return flat_batch(batch, tried.columns)

    def _pass_on(self, found: RowSink, sink: RowSink) -> None:
        """Passes on what the other source found; its lists are the same."""
        sink.issues = found.issues
        sink.observed = self._types(found.observed) if found.observed else ()

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        return self.read(input_range, (), RowSink())


def map_rows(
    source: Source,
    files: Sequence[InputFile],
    named: MapFunction,
    *,
    as_declared: bool,
    is_appended: bool = False,
    fixed_schema: Schema | None = None,
) -> MappedRows:
    """Returns the rows that a function makes of a prepared source's; tries it on some.

    Args:
      source, files, named, as_declared, fixed_schema: see `MappedRows`.
      is_appended: whether they are appended to rows that it made.

    Raises:
      InputError: there is no row to try it on.
      UsageError, SchemaError: it cannot be used.
    """
    ranges = source.cut(files)
    chosen = tuple(source.sample_ranges(ranges)) if ranges else ()
    batch, types = first_rows(source, chosen)
    if not batch.num_rows:  # rows may be larger than what is sampled
        chosen = tuple(ranges[:1])
        batch, types = first_rows(source, chosen)
    function, label = load_function(named), named.label
    if not is_appended and not batch.num_rows:
        raise InputError(f"the input has no row on which `map` {label} could be tried")

    def try_empty() -> Tried:
        columns = source.columns()
        return try_without_rows(function, columns, label, as_declared=as_declared)

    try:
        if batch.num_rows:
            tried = try_function(function, batch, label, as_declared=as_declared)
        else:
            tried = try_empty()
    except RaisedForAllError as error:
        if not is_appended:
            raise
        try:
            tried = try_empty()  # new rows may all be bad
        except InputError:
            raise error from None
    key = uuid4().hex
    return MappedRows(
        source, named, as_declared, fixed_schema, chosen, types, key, tried
    )
