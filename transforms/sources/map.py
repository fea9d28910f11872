"""Reads what another source reads, and gives the rows that a user's function makes (`map`).

    def tokenise(batch):                 # as many rows: row i is made from row i
        return batch.append_column("ids", ...)

    def only_long(batch):                # other rows: it says which they come from
        rows = pc.indices_nonzero(pc.greater(batch["length"], 9))
        return batch.take(rows), rows

A row for which it raises is found by halving: the batch is cut in two until the row is
alone, and all other rows go on.

The rows of the other source are as it infers or knows their types, never by a declared
schema: that one describes what the function makes. Where types are inferred, they may
widen while rows are read; then the function may make other types, too. So the columns it
makes are learned from the first rows, read with the types in question. These are given
once together and once in parts: a function that takes the mean of its batch, or draws
random numbers, would give other values for other batches.
"""

from __future__ import annotations

import importlib
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from types import ModuleType
from typing import Any, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import (
    InputError,
    RecordmillError,
    SchemaError,
    UsageError,
)
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.job import MapFunction, load_map
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags, merge_type_flags
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.columns import is_list, plain
from recordmill.transforms.exchange.keys import copy_origins
from recordmill.transforms.sources.base import (
    Rows,
    RowSink,
    RowSource,
    Source,
    missing_required,
)
from recordmill.transforms.sources.plain_types import (
    merged_type,
    plain_columns,
    plain_schema,
)
from recordmill.transforms.sources.tables import flat_batch

Function = Callable[..., Any]

_REASON_CHARACTERS = 500  # of what an exception says


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """What a function made of a batch."""

    batch: pa.RecordBatch
    rows: I64  # that each one comes from, rising
    invalid_rows: tuple[tuple[int, str], ...] = ()  # (row, reason), ascending

    def dropped(self, num_rows: int) -> int:
        """Returns how many of so many rows became none, and are not invalid."""
        return num_rows - len(self.invalid_rows) - len(np.unique(self.rows))

    @property
    def added(self) -> int:
        """Returns how many rows there are beside the first that comes from each."""
        return len(self.rows) - len(np.unique(self.rows))


def map_batch(function: Function, batch: pa.RecordBatch, label: str) -> MappedBatch:
    """Calls the function with a batch, and with parts of it where it raises.

    Raises:
      UsageError: what it returns is not a batch, or does not say where rows come from.
      SchemaError: its results for parts of the batch have different columns.
    """
    invalid: list[tuple[int, str]] = []
    nothing = pa.RecordBatch.from_pylist([]), np.zeros(0, np.int64)
    parts = list(_call_parts(function, batch, 0, label, invalid)) or [nothing]
    batches, rows = zip(*parts, strict=True)
    return MappedBatch(_joined(batches, label), np.concatenate(rows), tuple(invalid))


def _call_parts(
    function: Function,
    batch: pa.RecordBatch,
    start: int,
    label: str,
    invalid: list[tuple[int, str]],
) -> Iterator[tuple[pa.RecordBatch, I64]]:
    """Yields results for parts of a batch; `invalid` gets rows for which it raises."""
    try:
        returned = function(batch)
    except (MemoryError, RecordmillError):
        raise
    except ImportError as error:
        raise UsageError(
            f"`map` {label}: {type(error).__name__}: {error}. Install what it imports, "
            "on each worker too"
        ) from error
    except Exception as error:  # whatever a person's function raises
        if batch.num_rows == 1:
            text = f"{type(error).__name__}: {error}"
            # Without the file, whose name does not belong to the fingerprint.
            name = label.rpartition(":")[2]
            invalid.append((start, f"map {name}: {text[:_REASON_CHARACTERS]}"))
            return
        half = batch.num_rows // 2
        for part, first in ((batch.slice(0, half), 0), (batch.slice(half), half)):
            yield from _call_parts(function, part, start + first, label, invalid)
        return
    made, rows = _checked(returned, batch.num_rows, label)
    yield made, rows + start


def _checked(returned: Any, num_rows: int, label: str) -> tuple[pa.RecordBatch, I64]:
    """Returns the batch that a function returned, and the rows that it comes from."""
    rows: Any = None
    if isinstance(returned, tuple) and len(returned) == 2:
        returned, rows = returned
    if not isinstance(returned, pa.RecordBatch):
        kind = "nothing" if returned is None else f"a {type(returned).__qualname__}"
        raise UsageError(
            f"`map` {label}: returned {kind}, expected a "
            "pyarrow.RecordBatch, or a pair of it and the number of the row that each "
            "row comes from"
        )
    if rows is None:
        if returned.num_rows != num_rows:
            raise UsageError(
                f"`map` {label}: got {num_rows:,} rows and returned "
                f"{returned.num_rows:,}. Return a second value that says which row each "
                "comes from: `return batch.take(rows), rows`; of a mask it is "
                "pyarrow.compute.indices_nonzero(mask)"
            )
        return returned, np.arange(num_rows, dtype=np.int64)
    return returned, _row_numbers(rows, returned.num_rows, num_rows, label)


def _row_numbers(rows: Any, num_made: int, num_rows: int, label: str) -> I64:
    try:
        if isinstance(rows, pa.Array | pa.ChunkedArray):
            rows = rows.to_numpy(zero_copy_only=False)
        numbers = np.asarray(rows)
    except (ValueError, pa.ArrowException) as error:
        raise UsageError(
            f"`map` {label}: the row numbers that it returned are not an array: {error}"
        ) from error
    found = f"an array of {numbers.dtype}, shape {numbers.shape}"
    if len(numbers) == 0 and numbers.ndim == 1 and num_made == 0:
        return np.zeros(0, np.int64)
    if numbers.dtype.kind in "iu" and numbers.shape == (num_made,):
        made = numbers.astype(np.int64)
        outside = (made < 0) | (made >= num_rows)
        if not outside.any() and (np.diff(made) >= 0).all():
            return made
        what = f"row {int(made[outside][0])}" if outside.any() else "rows not in order"
        found = f"{what}, of the {num_rows:,} that it got"
    raise UsageError(
        f"`map` {label}: the second value says where each of the {num_made:,} returned "
        f"rows comes from: expected rising row numbers from 0 to {num_rows - 1:,}, found "
        f"{found}. Of a mask they are pyarrow.compute.indices_nonzero(mask)"
    )


def _joined(parts: Sequence[pa.RecordBatch], label: str) -> pa.RecordBatch:
    """Joins batches; columns of nulls without a type get that of the others."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].schema.names
    for part in parts[1:]:
        if sorted(part.schema.names) != sorted(names):
            differ = sorted(set(part.schema.names) ^ set(names)) or sorted(names)
            raise SchemaError(
                f"`map` {label}: returns column {differ[0]!r} for some rows only. It has "
                "to return the same columns for all"
            )
    arrays = []
    for name in names:
        columns = [part[name] for part in parts]
        types = {column.type: None for column in columns}
        types.pop(pa.null(), None)
        if len(types) > 1:
            one, other = map(str, list(types)[:2])
            raise SchemaError(_different_types(label, name, one, other))
        kind = next(iter(types), pa.null())
        arrays.append(pa.concat_arrays([column.cast(kind) for column in columns]))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _different_types(label: str, column: str, one: str, other: str) -> str:
    """Returns the message about a column that has not one type for all rows."""
    return (
        f"`map` {label}: column {column!r} is {one} for some rows and {other} for others. "
        "Make it of one type in the function, as by pyarrow.array(values, type) or "
        "cast, or declare the features in a file (`schema`)"
    )


# Sums of many numbers may differ in the last digits when they are added otherwise.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5


def require_row_by_row(
    function: Function, batch: pa.RecordBatch, whole: MappedBatch, label: str
) -> None:
    """Checks that two halves of a batch give what the batch gave."""
    half = batch.num_rows // 2
    starts = (0, half) if half else (0,)
    parts = [
        map_batch(function, batch.slice(start, half if start < half else None), label)
        for start in starts
    ]
    rows = [
        row + start
        for start, part in zip(starts, parts, strict=True)
        for row in part.rows.tolist()
    ]
    if rows != whole.rows.tolist():
        raise UsageError(_message(label, "other rows"))
    at = 0
    for part in parts:
        expected = whole.batch.slice(at, part.batch.num_rows)
        at += part.batch.num_rows
        for name in whole.batch.schema.names if part.batch.num_rows else ():
            if name not in part.batch.schema.names or not same_values(
                expected[name], part.batch[name]
            ):
                raise UsageError(_message(label, f"other values in column {name!r}"))


def _message(label: str, what: str) -> str:
    return (
        f"`map` {label}: gives {what} when it gets the same rows in smaller batches, or "
        "again. Make each row from its own row alone: with numbers that are fixed "
        "before, not with the mean or the largest value of the batch, random numbers, or "
        "the time"
    )


def same_values(one: pa.Array, other: pa.Array) -> bool:
    """Tells whether arrays hold the same values; floats as nearly as sums can be."""
    one, other = plain(one), plain(other)
    if pt.is_null(one.type) or pt.is_null(other.type):
        counts = {len(one), len(other), one.null_count, other.null_count}
        return len(counts) == 1
    if one.type != other.type or len(one) != len(other):
        return bool(one.equals(other))
    if not one.is_null().equals(other.is_null()):
        return False
    if pt.is_struct(one.type):
        pairs = zip(one.flatten(), other.flatten(), strict=True)
        return all(same_values(*pair) for pair in pairs)
    if is_list(one.type):
        sizes = [pc.list_value_length(array) for array in (one, other)]
        return bool(sizes[0].equals(sizes[1])) and same_values(
            one.flatten(), other.flatten()
        )
    if not pt.is_floating(one.type):
        return bool(one.equals(other))
    first, second = (
        array.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
        for array in (one, other)
    )
    return bool(
        np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    )


TRIED_ROWS = 256
_RANGES = 32  # of which the first rows are taken


class RaisedForAllError(UsageError):
    """A function that raises for each of the first rows."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a function made of the first rows."""

    columns: pa.Schema  # with plain types
    kept: frozenset[str] = frozenset()  # columns that it gave back as they were
    rows_each: int = 1  # that it made of one, rounded up
    has_rows: bool = True  # without, only types are known


def _first_rows(
    source: Source, ranges: Sequence[InputRange], types: TypeFlags = ()
) -> tuple[pa.RecordBatch, TypeFlags]:
    """Returns a few rows of several ranges, with the types that they need together.

    Of ranges that cannot be read on their own, the others are enough.
    """
    ranges = ranges[:_RANGES]
    parts, seen, problems = [], types, []
    for input_range in ranges:
        sink = RowSink()
        try:
            found = source.read(input_range, types, sink)
            batch = next((r.batch for r in found if r.batch.num_rows), None)
        except InputError as error:
            problems.append(error)  # a range that begins inside a quoted field
            continue
        if batch is not None:
            parts.append(batch.slice(0, -(-TRIED_ROWS // len(ranges))))
            if source.infers_types:
                seen = merge_type_flags(seen, sink.observed)
    if problems and len(problems) == len(ranges):
        raise problems[-1]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=source.columns()), types
    if seen != types:  # again, as the first parts may have narrower types
        return _first_rows(source, ranges, seen)
    return _joined(parts, "first rows"), types


def _try_function(
    function: Function, batch: pa.RecordBatch, label: str, *, as_declared: bool
) -> Tried:
    """Calls a function with some rows, and learns which columns it makes."""
    made = map_batch(function, batch, label)
    if len(made.invalid_rows) == batch.num_rows:
        raise RaisedForAllError(
            f"`map` {label}: raised for {'each of ' if batch.num_rows > 1 else ''}"
            f"{_first(batch.num_rows)}: "
            f"{made.invalid_rows[0][1]}. The columns are "
            f"{', '.join(f'{f.name} {f.type}' for f in batch.schema)}"
        )
    if not made.invalid_rows:
        require_row_by_row(function, batch, made, label)
    found = _plain_columns_of(made.batch, label, as_declared=as_declared)
    kept = _unchanged(batch, made)
    for column in found:
        if pt.is_null(column.type) and column.name not in kept and not as_declared:
            raise SchemaError(
                f"`map` {label}: column {column.name!r} has no value in "
                f"{_first(batch.num_rows)}, so its type is not known. Give it one in the "
                "function, as by pyarrow.array(values, type), or declare the features "
                "in a file (`schema`)"
            )
    return Tried(found, kept, max(1, -(-made.batch.num_rows // batch.num_rows)))


def _first(rows: int) -> str:
    """Returns "the first 3 rows" or "the first row"."""
    return "the first row" if rows == 1 else f"the first {count(rows, 'row')}"


def _try_without_rows(
    function: Function, columns: pa.Schema, label: str, *, as_declared: bool
) -> Tried:
    """Tries a function with a batch without rows, as `_try_function` does with rows."""
    batch = pa.RecordBatch.from_pylist([], schema=columns)
    try:
        returned = function(batch)
    except Exception as error:  # whatever a person's function raises
        raise InputError(
            f"the input has no row, and `map` {label} cannot take a batch without rows: "
            f"{type(error).__name__}: {error}"
        ) from error
    made, _ = _checked(returned, 0, label)
    found = _plain_columns_of(made, label, as_declared=as_declared)
    return Tried(found, has_rows=False)


def _plain_columns_of(
    batch: pa.RecordBatch, label: str, *, as_declared: bool
) -> pa.Schema:
    """Returns the plain columns of what a function made."""
    where = f"`map` {label}"
    try:
        found = plain_columns(batch.schema, where, as_declared=as_declared)
    except InputError as error:
        raise SchemaError(str(error)) from error
    return pa.schema(list(found.items()))


def _unchanged(batch: pa.RecordBatch, made: MappedBatch) -> frozenset[str]:
    """Returns the columns that a function gave back as it got them."""
    rows = pa.array(made.rows)
    before, after = batch.schema.names, made.batch.schema.names
    return frozenset(
        name
        for name in after
        if before.count(name) == after.count(name) == 1
        and made.batch[name].equals(batch[name].take(rows))
    )


# The rows of the other source are as it infers or knows their types, never by a declared
# schema: that one describes what the function makes. Where types are inferred, they may
# widen while rows are read; then the function may make other types, too. So the columns it
# makes are learned from the first rows, read with the types in question.

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
        batch, _ = _first_rows(self.inner, self.tried_ranges, types)
        function, label = load_function(self.named), self.named.label
        return _try_function(function, batch, label, as_declared=self.as_declared)

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
        own = {feature.column: feature for feature in before}
        made = []
        for each in plain_schema(tried.columns, nulls).features:
            if each.name not in tried.kept:
                made.append(self._as_fixed(each))
            elif each.name in own:  # else it is no feature without the function either
                # One that is given back as it was stays what it is: class names, an image.
                kept = replace(own[each.name], optional=each.optional)
                made.append(self._as_fixed(kept, each))
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
        found = _plain_columns_of(batch, label, as_declared=self.as_declared)
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
                text = _different_types(label, name, str(expected[name]), str(kind))
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
    batch, types = _first_rows(source, chosen)
    if not batch.num_rows:  # rows may be larger than what is sampled
        chosen = tuple(ranges[:1])
        batch, types = _first_rows(source, chosen)
    function, label = load_function(named), named.label
    if not is_appended and not batch.num_rows:
        raise InputError(f"the input has no row on which `map` {label} could be tried")

    def try_empty() -> Tried:
        columns = source.columns()
        return _try_without_rows(function, columns, label, as_declared=as_declared)

    try:
        if batch.num_rows:
            tried = _try_function(function, batch, label, as_declared=as_declared)
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
