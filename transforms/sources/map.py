"""Gives the rows that a user's function makes of those that another source reads (`map`).

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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock
from types import ModuleType
from typing import Any
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
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.schemas.text import count
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.columns import is_list, plain
from recordmill.transforms.exchange.keys import copy_origins
from recordmill.transforms.sources.base import (
    Findings,
    Rows,
    RowSink,
    RowTransform,
    Source,
    map_readable,
    missing_required,
)
from recordmill.transforms.sources.plain_types import (
    flat_batch,
    merged_type,
    plain_columns,
    plain_schema,
)
from recordmill.transforms.sources.text_columns import TypeFlag

_REASON_CHARACTERS = 500  # of what an exception says
# Sums of many numbers may differ in the last digits when they are added otherwise.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
_TRIED_ROWS = 256
_RANGES = 32  # of which the first rows are taken
_INSTALL = "Install what it imports, on each worker too"


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


@dataclass(frozen=True, slots=True)
class Tried:
    """What a function made of the first rows."""

    columns: pa.Schema  # with plain types
    kept: frozenset[str] = frozenset()  # columns that it gave back as they were
    rows_each: int = 1  # that it made of one, rounded up
    has_rows: bool = True  # without, only types are known


class _RaisedForAllError(UsageError):
    """A function that raises for each of the first rows."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the job, by which batches become others."""

    call: Callable[[pa.RecordBatch], Any]
    label: str  # how messages name it
    as_declared: bool = False  # whether a schema says what becomes of the columns

    def _error(
        self, text: str, kind: type[RecordmillError] = UsageError
    ) -> RecordmillError:
        return kind(f"`map` {self.label}: {text}")

    def __call__(self, batch: pa.RecordBatch) -> MappedBatch:
        """Returns what the function makes of a batch, or of parts of it where it raises.

        Raises:
          UsageError: what it returns is not a batch, or does not say where rows come from.
          SchemaError: its results for parts of the batch have different columns.
        """
        invalid: list[tuple[int, str]] = []
        nothing = pa.RecordBatch.from_pylist([]), np.zeros(0, np.int64)
        parts = list(self._call_parts(batch, 0, invalid)) or [nothing]
        batches, rows = zip(*parts, strict=True)
        return MappedBatch(self._joined(batches), np.concatenate(rows), tuple(invalid))

    def _call_parts(
        self, batch: pa.RecordBatch, start: int, invalid: list[tuple[int, str]]
    ) -> Iterator[tuple[pa.RecordBatch, I64]]:
        """Yields results for parts of a batch; `invalid` gets rows for which it raises."""
        try:
            returned = self.call(batch)
        except (MemoryError, RecordmillError):
            raise
        except ImportError as error:
            text = f"{type(error).__name__}: {error}. {_INSTALL}"
            raise self._error(text) from error
        except Exception as error:  # whatever a person's function raises
            if batch.num_rows == 1:
                text = f"{type(error).__name__}: {error}"
                # Without the file, whose name does not belong to the fingerprint.
                name = self.label.rpartition(":")[2]
                invalid.append((start, f"map {name}: {text[:_REASON_CHARACTERS]}"))
                return
            half = batch.num_rows // 2
            yield from self._call_parts(batch.slice(0, half), start, invalid)
            yield from self._call_parts(batch.slice(half), start + half, invalid)
            return
        made, rows = self._checked(returned, batch.num_rows)
        yield made, rows + start

    def _checked(self, returned: Any, num_rows: int) -> tuple[pa.RecordBatch, I64]:
        """Returns the batch that was returned, and the rows that it comes from."""
        rows: Any = None
        if isinstance(returned, tuple) and len(returned) == 2:
            returned, rows = returned
        if not isinstance(returned, pa.RecordBatch):
            kind = "nothing" if returned is None else f"a {type(returned).__qualname__}"
            raise self._error(
                f"returned {kind}, expected a pyarrow.RecordBatch, or a pair of it and "
                "the number of the row that each row comes from"
            )
        made = returned.num_rows
        if rows is not None:
            return returned, self._row_numbers(rows, made, num_rows)
        if made != num_rows:
            raise self._error(
                f"got {num_rows:,} rows and returned {made:,}. Return a second value "
                "that says which row each comes from: `return batch.take(rows), rows`; "
                "of a mask it is pyarrow.compute.indices_nonzero(mask)"
            )
        return returned, np.arange(num_rows, dtype=np.int64)

    def _row_numbers(self, rows: Any, num_made: int, num_rows: int) -> I64:
        try:
            if isinstance(rows, pa.Array | pa.ChunkedArray):
                rows = rows.to_numpy(zero_copy_only=False)
            numbers = np.asarray(rows)
        except (ValueError, pa.ArrowException) as error:
            text = f"the row numbers that it returned are not an array: {error}"
            raise self._error(text) from error
        found = f"an array of {numbers.dtype}, shape {numbers.shape}"
        if numbers.shape == (0,) and num_made == 0:
            return np.zeros(0, np.int64)
        if numbers.dtype.kind in "iu" and numbers.shape == (num_made,):
            made = numbers.astype(np.int64)
            outside = made[(made < 0) | (made >= num_rows)]
            if not len(outside) and (np.diff(made) >= 0).all():
                return made
            what = f"row {int(outside[0])}" if len(outside) else "rows not in order"
            found = f"{what}, of the {num_rows:,} that it got"
        raise self._error(
            f"the second value says where each of the {num_made:,} returned rows comes "
            f"from: expected rising row numbers from 0 to {num_rows - 1:,}, found "
            f"{found}. Of a mask they are pyarrow.compute.indices_nonzero(mask)"
        )

    def _joined(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Joins batches; columns of nulls without a type get that of the others."""
        names = parts[0].schema.names
        for part in parts[1:]:
            if sorted(part.schema.names) != sorted(names):
                differ = sorted({*part.schema.names} ^ {*names}) or sorted(names)
                raise self._error(
                    f"returns column {differ[0]!r} for some rows only. It has to return "
                    "the same columns for all",
                    SchemaError,
                )
        if len(parts) == 1:
            return parts[0]
        arrays = []
        for name in names:
            columns = [part[name] for part in parts]
            types = {column.type: None for column in columns}
            types.pop(pa.null(), None)
            kinds = list(types) or [pa.null()]
            if len(kinds) > 1:
                raise self._different_types(name, *kinds[:2])
            arrays.append(pa.concat_arrays([each.cast(kinds[0]) for each in columns]))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _different_types(
        self, column: str, one: pa.DataType, other: pa.DataType, where: str = ""
    ) -> RecordmillError:
        """Returns the error about a column that has not one type for all rows."""
        return SchemaError(
            f"{where}`map` {self.label}: column {column!r} is {one} for some rows and "
            f"{other} for others. Make it of one type in the function, as by "
            "pyarrow.array(values, type) or cast, or declare the features in a file "
            "(`schema`)"
        )

    def _require_row_by_row(self, batch: pa.RecordBatch, whole: MappedBatch) -> None:
        """Checks that two halves of a batch give what the batch gave."""
        half = batch.num_rows // 2
        starts = (0, half) if half else (0,)
        parts = [self(batch.slice(at, half if at < half else None)) for at in starts]
        rows = [part.rows + at for at, part in zip(starts, parts, strict=True)]
        what = "" if np.array_equal(np.concatenate(rows), whole.rows) else "other rows"
        at = 0
        for part in [] if what else [each.batch for each in parts]:
            expected = whole.batch.slice(at, part.num_rows)
            at += part.num_rows
            for name in expected.schema.names if part.num_rows else ():
                if name not in part.schema.names or not same_values(
                    expected[name], part[name]
                ):
                    what = what or f"other values in column {name!r}"
        if what:
            raise self._error(
                f"gives {what} when it gets the same rows in smaller batches, or again. "
                "Make each row from its own row alone: with numbers that are fixed "
                "before, not with the mean or the largest value of the batch, random "
                "numbers, or the time"
            )

    def try_on(self, batch: pa.RecordBatch) -> Tried:
        """Returns which columns the function makes of some rows, one by one."""
        made = self(batch)
        rows = batch.num_rows
        first = "the first row" if rows == 1 else f"the first {count(rows, 'row')}"
        if len(made.invalid_rows) == rows:
            columns = ", ".join(f"{each.name} {each.type}" for each in batch.schema)
            raise self._error(
                f"raised for {'each of ' if rows > 1 else ''}{first}: "
                f"{made.invalid_rows[0][1]}. The columns are {columns}",
                _RaisedForAllError,
            )
        if not made.invalid_rows:
            self._require_row_by_row(batch, made)
        found = self._plain_columns(made.batch)
        before, after = batch.schema.names, made.batch.schema.names
        kept = frozenset(
            name
            for name in after
            if before.count(name) == after.count(name) == 1
            and made.batch[name].equals(batch[name].take(pa.array(made.rows)))
        )
        for column in found:
            if pt.is_null(column.type) and not (
                column.name in kept or self.as_declared
            ):
                raise self._error(
                    f"column {column.name!r} has no value in {first}, so its type is not "
                    "known. Give it one in the function, as by pyarrow.array(values, "
                    "type), or declare the features in a file (`schema`)",
                    SchemaError,
                )
        return Tried(found, kept, max(1, -(-made.batch.num_rows // rows)))

    def try_without_rows(self, columns: pa.Schema) -> Tried:
        """Returns which columns the function makes of a batch without rows."""
        try:
            returned = self.call(pa.RecordBatch.from_pylist([], schema=columns))
        except Exception as error:  # whatever a person's function raises
            raise InputError(
                f"the input has no row, and `map` {self.label} cannot take a batch "
                f"without rows: {type(error).__name__}: {error}"
            ) from error
        made, _ = self._checked(returned, 0)
        return Tried(self._plain_columns(made), has_rows=False)

    def _plain_columns(self, batch: pa.RecordBatch) -> pa.Schema:
        """Returns the plain columns of what the function made."""
        where = f"`map` {self.label}"
        try:
            found = plain_columns(batch.schema, where, as_declared=self.as_declared)
        except InputError as error:
            raise SchemaError(str(error)) from error
        return pa.schema(list(found.items()))

    def flat(
        self, batch: pa.RecordBatch, tried: pa.Schema, where: str
    ) -> pa.RecordBatch:
        """Returns a batch with plain columns, those of the first rows."""
        found = self._plain_columns(batch)
        if self.as_declared:
            return flat_batch(batch, found)
        if differ := sorted({*found.names} ^ {*tried.names}):
            raise SchemaError(
                f"{where}: `map` {self.label}: the function returned the columns "
                f"{', '.join(found.names)}, but {', '.join(tried.names)} for the first "
                f"rows; they differ in {', '.join(differ)}. It has to return the same "
                "columns for all rows"
            )
        for name, kind in zip(found.names, found.types, strict=True):
            expected = tried.field(name).type
            merged = merged_type(kind, expected)
            if merged is None or not merged.equals(expected):
                raise self._different_types(name, expected, kind, f"{where}: ")
        return flat_batch(batch, tried)


def same_values(one: pa.Array, other: pa.Array) -> bool:
    """Tells whether arrays hold the same values; floats as nearly as sums can be."""
    one, other = plain(one), plain(other)
    if pt.is_null(one.type) or pt.is_null(other.type):
        return bool(one.null_count == other.null_count == len(one) == len(other))
    if one.type != other.type or not one.is_null().equals(other.is_null()):
        return False
    if pt.is_struct(one.type):
        return all(map(same_values, one.flatten(), other.flatten()))
    if is_list(one.type):
        sizes = [pc.list_value_length(array) for array in (one, other)]
        alike = bool(sizes[0].equals(sizes[1]))
        return alike and same_values(one.flatten(), other.flatten())
    if not pt.is_floating(one.type):
        return bool(one.equals(other))
    first, second = (
        array.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
        for array in (one, other)
    )
    return np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)


_lock = Lock()  # two tasks of one process begin at the same time


def load_function(named: MapFunction) -> Callable[..., Any]:
    """Returns the function, whose module is run once in each process.

    Raises:
      UsageError: the module cannot be run, is another one here, or has no such function.
    """
    with _lock:
        try:
            module = _import(named) if named.module else _run(named)
        except UsageError:
            raise
        except Exception as error:  # whatever a person's module raises
            more = f". {_INSTALL}" if isinstance(error, ImportError) else ""
            if isinstance(error, NameError) and error.name == "__file__":
                more = (
                    ". The text of a file is run by itself: what lies beside it is not "
                    "there; put it into the file, or make a module of both and install "
                    "that"
                )
            raise UsageError(
                f"`map` {named.label}: the module cannot be run: "
                f"{type(error).__name__}: {error}{more}"
            ) from error
    found: Callable[..., Any] | None = getattr(module, named.function, None)
    if found is None or not callable(found):
        functions = [
            name
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        raise UsageError(
            f"`map` {named.label}: the module has no function {named.function!r}; "
            f"expected one. It has {', '.join(functions) or 'none'}"
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
    return importlib.import_module(named.module)


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
    except Exception:
        del sys.modules[name]
        raise
    return module


@dataclass(frozen=True)
class MappedRows(RowTransform):
    """The rows that a function makes from others; equal to those of the same key."""

    inner: Source = field(compare=False)
    named: MapFunction = field(compare=False)
    # whether a schema says what becomes of the columns
    as_declared: bool = field(compare=False)
    # of the dataset appended to, if that is not declared
    fixed_schema: Schema | None = field(compare=False)
    # where the first rows are, and their type flags
    tried_ranges: tuple[InputRange, ...] = field(compare=False)
    tried_types: TypeFlags = field(compare=False)
    tried: Tried = field(compare=False)  # of other type flags it is learned later
    # of these rows, among all of a process
    key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def _function(self) -> UserFunction:
        return UserFunction(
            load_function(self.named), self.named.label, self.as_declared
        )

    def _types(self, flags: TypeFlags) -> TypeFlags:
        """Returns type flags with those of the first rows, which are rows, too.

        Where a type is decided, the first rows may hold odd cells, which are rejects.
        """
        if not self.infers_types:
            return flags
        merged = merge_type_flags(flags, self.tried_types)
        own = flags or (0,) * len(merged)
        return tuple(
            flag if flag & TypeFlag.DECIDED else both
            for flag, both in zip(own, merged, strict=True)
        )

    def _tried_with(self, types: TypeFlags) -> Tried:
        """Returns what the function makes of columns with these type flags."""
        types = self._types(types)
        if not self.infers_types or types == self.tried_types:
            return self.tried
        return self._try_again(types)

    @lru_cache(maxsize=256)  # noqa: B019 (by the key: once in each process)
    def _try_again(self, types: TypeFlags) -> Tried:
        return self._function.try_on(
            _first_rows(self.inner, self.tried_ranges, types)[0]
        )

    def understood(self, found: Findings | None = None) -> InputSummary:
        observed: TypeFlags = ()
        if found is not None:
            observed = found.observed
            found = found._replace(schema=self.inner.schema(self._types(observed)))
        before = self.inner.understood(found)
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
        function, types = self._function, self._types(expected)
        found = replace(sink)  # its nulls are not those of the columns that are made
        if not self.as_declared:
            sink.add(nulls=(0,) * len(self._tried_with(types).columns))
        for rows in self.inner.read(input_range, types, found):
            self._pass_on(found, sink)
            types = merge_type_flags(types, sink.observed)
            if not rows.batch.num_rows:
                continue
            tried = self._tried_with(types).columns
            made = function(rows.batch)
            sink.reject(rows, dict(made.invalid_rows), input_range, "map")
            sink.dropped += made.dropped(rows.batch.num_rows)
            sink.added += made.added
            if not made.batch.num_columns:
                continue
            batch = function.flat(made.batch, tried, input_range.where)
            mapped = replace(rows.taken(made.rows, batch), planned_bytes=None)
            if made.added:
                mapped.groups = mapped.origins
                mapped.origins = copy_origins(mapped.origins, _copies(made.rows))
            required = self.fixed_schema and self.schema(sink.observed)
            missing = missing_required(batch, required)
            mapped = sink.reject(mapped, missing, input_range)
            if not self.as_declared:
                sink.add(nulls=[column.null_count for column in mapped.batch.columns])
            yield mapped
        self._pass_on(found, sink)

    def _pass_on(self, found: RowSink, sink: RowSink) -> None:
        """Passes on what the other source found; its lists are the same."""
        sink.issues = found.issues
        sink.observed = self._types(found.observed) if found.observed else ()

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        return self.read(input_range, (), RowSink())


def _copies(rows: I64) -> I64:
    """Numbers the rows that come from one row.

    >>> _copies(np.array([3, 3, 5])).tolist()
    [0, 1, 0]
    """
    _, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    return np.arange(len(rows), dtype=np.int64) - np.repeat(starts, counts)


def _first_rows(
    source: Source, ranges: Sequence[InputRange], types: TypeFlags = ()
) -> tuple[pa.RecordBatch, TypeFlags]:
    """Returns a few rows of several ranges, with the types that they need together."""
    ranges = ranges[:_RANGES]

    def read(input_range: InputRange) -> tuple[pa.RecordBatch | None, TypeFlags]:
        sink = RowSink()
        found = source.read(input_range, types, sink)
        batch = next((rows.batch for rows in found if rows.batch.num_rows), None)
        return batch, sink.observed if source.infers_types else ()

    parts, seen = [], types
    for batch, observed in map_readable(read, ranges):
        if batch is not None:
            parts.append(batch.slice(0, -(-_TRIED_ROWS // len(ranges))))
            seen = merge_type_flags(seen, observed)
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=source.columns()), types
    if seen != types:  # again, as the first parts may have narrower types
        return _first_rows(source, ranges, seen)
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0], types


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
    function = UserFunction(load_function(named), named.label, as_declared)
    if not is_appended and not batch.num_rows:
        raise InputError(
            f"the input has no row on which `map` {named.label} could be tried"
        )
    try:
        if batch.num_rows:
            tried = function.try_on(batch)
        else:
            tried = function.try_without_rows(source.columns())
    except _RaisedForAllError as error:
        if not is_appended:
            raise
        try:  # new rows may all be bad
            tried = function.try_without_rows(source.columns())
        except InputError:
            raise error from None
    return MappedRows(source, named, as_declared, fixed_schema, chosen, types, tried)
