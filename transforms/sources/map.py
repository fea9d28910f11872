"""Applies a user's function to batches of the rows that another source reads (`map`).

    def tokenise(batch):                 # as many rows: row i is computed from row i
        return batch.append_column("ids", ...)

    def only_long(batch):                # other rows: also returns their input rows
        rows = pc.indices_nonzero(pc.greater(batch["length"], 9))
        return batch.take(rows), rows

If the function raises, the row that causes it is found by bisection: the batch is halved
until that row is alone. All other rows are converted.

The function receives rows with the types that the inner source infers or reads, never
with the types of a declared schema, because that schema describes the function's output.
Inferred types may widen while rows are read, and the output types may then change. The
output columns are therefore determined by calling the function on the first rows, with
the types in question. It is called once on all of these rows and once on each half. The
results must be equal, which rejects a function that uses the mean of its batch or random
numbers: its output would depend on how rows are batched.
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
from recordmill.schemas.input_summary import InputReport
from recordmill.schemas.job import MapFunction, load_map
from recordmill.schemas.ranges import InputRange, TypeFlags, merge_type_flags
from recordmill.schemas.text import format_count
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.columns import is_list, unwrap_array
from recordmill.transforms.exchange.keys import copy_origins
from recordmill.transforms.sources.base import (
    InputFindings,
    RangeFindings,
    Rows,
    RowTransform,
    Source,
    missing_required,
    read_sample_ranges,
)
from recordmill.transforms.sources.plain_types import (
    flatten_batch,
    merge_types,
    plain_columns,
    plain_schema,
)
from recordmill.transforms.sources.text_columns import TypeFlag

_REASON_CHARACTERS = 500  # maximum length of an exception in the reason of a reject
# Sums of many numbers may differ in the last digits if the order of addition differs.
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5
_TRIAL_ROWS = 256
_MAX_TRIAL_RANGES = 32  # maximum number of ranges whose first rows are tried
_INSTALL_HINT = "Install the modules that it imports, also on each worker"


@dataclass(frozen=True, slots=True)
class MappedBatch:
    """The output of a user's function for one batch."""

    batch: pa.RecordBatch
    input_rows: I64  # for each output row, the index of its input row, ascending
    invalid_rows: tuple[tuple[int, str], ...] = ()  # (input row, reason), ascending

    def num_dropped(self, num_rows: int) -> int:
        """Returns the number of valid input rows without an output row."""
        return num_rows - len(self.invalid_rows) - len(np.unique(self.input_rows))

    @property
    def num_added(self) -> int:
        """Returns the number of output rows after the first of each input row."""
        return len(self.input_rows) - len(np.unique(self.input_rows))


@dataclass(frozen=True, slots=True)
class Trial:
    """The properties of a user's function that a trial on the first rows determined."""

    columns: pa.Schema  # the output columns, with plain types
    unchanged_columns: frozenset[str] = (
        frozenset()
    )  # columns that were returned unchanged
    rows_per_input_row: int = 1  # number of output rows per input row, rounded up
    has_rows: bool = True  # False if the trial had no rows, so only types are known


class _RaisedForAllError(UsageError):
    """An error because the function raised for each of the first rows."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A user's function that transforms batches."""

    call: Callable[[pa.RecordBatch], Any]
    label: str  # the name of the function in messages
    as_declared: bool = False  # True if a declared schema defines the features

    def _usage_error(
        self, text: str, kind: type[RecordmillError] = UsageError
    ) -> RecordmillError:
        """Returns an error whose message names the function."""
        return kind(f"`map` {self.label}: {text}")

    def __call__(self, batch: pa.RecordBatch) -> MappedBatch:
        """Returns the output for a batch; if the function raises, for parts of the batch.

        Raises:
          UsageError: the function does not return a batch, or the numbers of input rows
            are missing or invalid.
          SchemaError: the outputs for parts of the batch have different columns.
        """
        invalid: list[tuple[int, str]] = []
        nothing = pa.RecordBatch.from_pylist([]), np.zeros(0, np.int64)
        parts = list(self._call_parts(batch, 0, invalid)) or [nothing]
        batches, rows = zip(*parts, strict=True)
        return MappedBatch(
            self._join_batches(batches), np.concatenate(rows), tuple(invalid)
        )

    def _call_parts(
        self, batch: pa.RecordBatch, start: int, invalid: list[tuple[int, str]]
    ) -> Iterator[tuple[pa.RecordBatch, I64]]:
        """Yields pairs (output, input rows) for parts of a batch.

        `invalid` collects the rows for which the function raises, with the reasons;
        `start` is the index of the first row of the batch.
        """
        try:
            returned = self.call(batch)
        except (MemoryError, RecordmillError):
            raise
        except ImportError as error:
            text = f"{type(error).__name__}: {error}. {_INSTALL_HINT}"
            raise self._usage_error(text) from error
        except Exception as error:  # a user's function can raise any exception
            if batch.num_rows == 1:
                text = f"{type(error).__name__}: {error}"
                # Without the file name, which is not part of the fingerprint.
                name = self.label.rpartition(":")[2]
                invalid.append((start, f"map {name}: {text[:_REASON_CHARACTERS]}"))
                return
            half = batch.num_rows // 2
            yield from self._call_parts(batch.slice(0, half), start, invalid)
            yield from self._call_parts(batch.slice(half), start + half, invalid)
            return
        returned_batch, rows = self._check_returned(returned, batch.num_rows)
        yield returned_batch, rows + start

    def _check_returned(
        self, returned: Any, num_rows: int
    ) -> tuple[pa.RecordBatch, I64]:
        """Returns the batch in the function's return value, and its input rows."""
        rows: Any = None
        if isinstance(returned, tuple) and len(returned) == 2:
            returned, rows = returned
        if not isinstance(returned, pa.RecordBatch):
            kind = "nothing" if returned is None else f"a {type(returned).__qualname__}"
            raise self._usage_error(
                f"returned {kind}, expected a pyarrow.RecordBatch, or a pair of it and "
                "the number of the row that each row comes from"
            )
        num_returned = returned.num_rows
        if rows is not None:
            return returned, self._row_numbers(rows, num_returned, num_rows)
        if num_returned != num_rows:
            raise self._usage_error(
                f"got {num_rows:,} rows and returned {num_returned:,}. Return a second value "
                "with the row that each row comes from: `return batch.take(rows), "
                "rows`; for a mask use pyarrow.compute.indices_nonzero(mask)"
            )
        return returned, np.arange(num_rows, dtype=np.int64)

    def _row_numbers(self, rows: Any, num_made: int, num_rows: int) -> I64:
        """Returns the row numbers that the function returned, as ascending int64."""
        try:
            if isinstance(rows, pa.Array | pa.ChunkedArray):
                rows = rows.to_numpy(zero_copy_only=False)
            numbers = np.asarray(rows)
        except (ValueError, pa.ArrowException) as error:
            text = f"the row numbers that it returned are not an array: {error}"
            raise self._usage_error(text) from error
        actual = f"an array of {numbers.dtype}, shape {numbers.shape}"
        if numbers.shape == (0,) and num_made == 0:
            return np.zeros(0, np.int64)
        if numbers.dtype.kind in "iu" and numbers.shape == (num_made,):
            row_numbers = numbers.astype(np.int64)
            outside_numbers = row_numbers[(row_numbers < 0) | (row_numbers >= num_rows)]
            if not len(outside_numbers) and (np.diff(row_numbers) >= 0).all():
                return row_numbers
            problem = (
                f"row {int(outside_numbers[0])}"
                if len(outside_numbers)
                else "rows not in order"
            )
            actual = f"{problem}, of the {num_rows:,} that it got"
        raise self._usage_error(
            f"the second value must name the row that each of the {num_made:,} "
            "returned rows comes from: expected ascending row numbers from 0 to "
            f"{num_rows - 1:,}, found {actual}. For a mask use "
            "pyarrow.compute.indices_nonzero(mask)"
        )

    def _join_batches(self, parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Joins batches; a column of type null gets its type from the other batches."""
        names = parts[0].schema.names
        for part in parts[1:]:
            if sorted(part.schema.names) != sorted(names):
                different_names = sorted({*part.schema.names} ^ {*names}) or sorted(
                    names
                )
                raise self._usage_error(
                    f"returns column {different_names[0]!r} for some rows only. It must return "
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
                raise self._type_error(name, *kinds[:2])
            arrays.append(
                pa.concat_arrays([column.cast(kinds[0]) for column in columns])
            )
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def _type_error(
        self,
        column: str,
        left_type: pa.DataType,
        right_type: pa.DataType,
        location: str = "",
    ) -> RecordmillError:
        """Returns the error for a column whose type differs between rows."""
        return SchemaError(
            f"{location}`map` {self.label}: column {column!r} is {left_type} for some rows and "
            f"{right_type} for others. Convert it to one type in the function, for example "
            "with pyarrow.array(values, type) or cast, or declare the features in a "
            "file (`schema`)"
        )

    def _require_row_by_row(self, batch: pa.RecordBatch, whole: MappedBatch) -> None:
        """Checks that the outputs for two halves of a batch equal the output for it."""
        half = batch.num_rows // 2
        starts = (0, half) if half else (0,)
        parts = [
            self(batch.slice(start, half if start < half else None)) for start in starts
        ]
        rows = [
            part.input_rows + start for start, part in zip(starts, parts, strict=True)
        ]
        difference = (
            ""
            if np.array_equal(np.concatenate(rows), whole.input_rows)
            else "other rows"
        )
        start = 0
        for part in [] if difference else [mapped_part.batch for mapped_part in parts]:
            expected = whole.batch.slice(start, part.num_rows)
            start += part.num_rows
            for name in expected.schema.names if part.num_rows else ():
                if name not in part.schema.names or not same_values(
                    expected[name], part[name]
                ):
                    difference = difference or f"other values in column {name!r}"
        if difference:
            raise self._usage_error(
                f"returns {difference} for the same rows in smaller batches, or at the "
                "second call. Compute each row only from its input row and from "
                "constants, not from the mean or maximum of the batch, random numbers, "
                "or the time"
            )

    def try_on_rows(self, batch: pa.RecordBatch) -> Trial:
        """Returns the result of a trial on some rows.

        Raises:
          UsageError: the function raises for each row, or the output depends on how rows
            are batched.
          SchemaError: the type of an output column is unknown or cannot be a feature.
        """
        mapped_batch = self(batch)
        rows = batch.num_rows
        first = (
            "the first row" if rows == 1 else f"the first {format_count(rows, 'row')}"
        )
        if len(mapped_batch.invalid_rows) == rows:
            columns = ", ".join(
                f"{input_column.name} {input_column.type}"
                for input_column in batch.schema
            )
            raise self._usage_error(
                f"raised for {'each of ' if rows > 1 else ''}{first}: "
                f"{mapped_batch.invalid_rows[0][1]}. The columns are {columns}",
                _RaisedForAllError,
            )
        if not mapped_batch.invalid_rows:
            self._require_row_by_row(batch, mapped_batch)
        mapped_columns = self._plain_columns(mapped_batch.batch)
        names_before, names_after = batch.schema.names, mapped_batch.batch.schema.names
        kept_columns = frozenset(
            name
            for name in names_after
            if names_before.count(name) == names_after.count(name) == 1
            and mapped_batch.batch[name].equals(
                batch[name].take(pa.array(mapped_batch.input_rows))
            )
        )
        for column in mapped_columns:
            if pt.is_null(column.type) and not (
                column.name in kept_columns or self.as_declared
            ):
                raise self._usage_error(
                    f"column {column.name!r} has no value in {first}, so its type is "
                    "unknown. Set it in the function, for example with "
                    "pyarrow.array(values, type), or declare the features in a file "
                    "(`schema`)",
                    SchemaError,
                )
        return Trial(
            mapped_columns,
            kept_columns,
            max(1, -(-mapped_batch.batch.num_rows // rows)),
        )

    def try_without_rows(self, columns: pa.Schema) -> Trial:
        """Returns the result of a trial on a batch without rows."""
        try:
            returned = self.call(pa.RecordBatch.from_pylist([], schema=columns))
        except Exception as error:  # a user's function can raise any exception
            raise InputError(
                f"the input has no row, and `map` {self.label} cannot take a batch "
                f"without rows: {type(error).__name__}: {error}"
            ) from error
        returned_batch, _ = self._check_returned(returned, 0)
        return Trial(self._plain_columns(returned_batch), has_rows=False)

    def _plain_columns(self, batch: pa.RecordBatch) -> pa.Schema:
        """Returns the plain columns of a batch that the function returned."""
        location = f"`map` {self.label}"
        try:
            columns = plain_columns(
                batch.schema, location, as_declared=self.as_declared
            )
        except InputError as error:
            raise SchemaError(str(error)) from error
        return pa.schema(list(columns.items()))

    def flatten_batch(
        self, batch: pa.RecordBatch, tried: pa.Schema, location: str
    ) -> pa.RecordBatch:
        """Returns a batch with plain columns of the types that the trial determined.

        Args:
          batch: the output of the function.
          tried: the columns from the trial on the first rows.
          location: the input range, for messages.
        """
        columns = self._plain_columns(batch)
        if self.as_declared:
            return flatten_batch(batch, columns)
        if different_names := sorted({*columns.names} ^ {*tried.names}):
            raise SchemaError(
                f"{location}: `map` {self.label}: the function returned the columns "
                f"{', '.join(columns.names)}, but {', '.join(tried.names)} for the first "
                f"rows; they differ in {', '.join(different_names)}. It must return the same "
                "columns for all rows"
            )
        for name, kind in zip(columns.names, columns.types, strict=True):
            expected = tried.field(name).type
            merged = merge_types(kind, expected)
            if merged is None or not merged.equals(expected):
                raise self._type_error(name, expected, kind, f"{location}: ")
        return flatten_batch(batch, tried)


def same_values(left: pa.Array, right: pa.Array) -> bool:
    """Returns True if arrays have equal values; floats may differ by rounding of sums."""
    left, right = unwrap_array(left), unwrap_array(right)
    if pt.is_null(left.type) or pt.is_null(right.type):
        return bool(left.null_count == right.null_count == len(left) == len(right))
    if left.type != right.type or not left.is_null().equals(right.is_null()):
        return False
    if pt.is_struct(left.type):
        return all(map(same_values, left.flatten(), right.flatten()))
    if is_list(left.type):
        sizes = [pc.list_value_length(array) for array in (left, right)]
        has_same_sizes = bool(sizes[0].equals(sizes[1]))
        return has_same_sizes and same_values(left.flatten(), right.flatten())
    if not pt.is_floating(left.type):
        return bool(left.equals(right))
    first, second = (
        array.drop_null().cast(pa.float64()).to_numpy(zero_copy_only=False)
        for array in (left, right)
    )
    return np.allclose(first, second, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)


_load_lock = Lock()  # tasks in one process may load the function at the same time


def load_function(map_function: MapFunction) -> Callable[..., Any]:
    """Returns the user's function; runs its module once in each process.

    Raises:
      UsageError: the module cannot be run, differs from the module at the start of the
        job, or has no such function.
    """
    with _load_lock:
        try:
            module = (
                _import_module(map_function)
                if map_function.module
                else _run_module(map_function)
            )
        except UsageError:
            raise
        except Exception as error:  # a user's module can raise any exception
            hint = f". {_INSTALL_HINT}" if isinstance(error, ImportError) else ""
            if isinstance(error, NameError) and error.name == "__file__":
                hint = (
                    ". A file is run without the files next to it: put their code into "
                    "the file, or install both as a module"
                )
            raise UsageError(
                f"`map` {map_function.label}: the module cannot be run: "
                f"{type(error).__name__}: {error}{hint}"
            ) from error
    function: Callable[..., Any] | None = getattr(module, map_function.function, None)
    if function is None or not callable(function):
        functions = [
            name
            for name, attribute in vars(module).items()
            if callable(attribute)
            and getattr(attribute, "__module__", "") == module.__name__
        ]
        raise UsageError(
            f"`map` {map_function.label}: the module has no function {map_function.function!r}; "
            f"expected one. It has {', '.join(functions) or 'none'}"
        )
    return function


def _import_module(map_function: MapFunction) -> ModuleType:
    """Imports a module; raises UsageError if its text changed since the job began."""
    local_function = load_map(
        f"{map_function.module}:{map_function.function}", lambda _: b""
    )
    if local_function.checksum != map_function.checksum:
        raise UsageError(
            f"`map` {map_function.label}: the source of the module differs here (checksum "
            f"{local_function.checksum[:8]}) from where the job began ({map_function.checksum[:8]}). "
            "Install the same version on each worker, or name its file: the source of "
            "a file is sent with the job"
        )
    return importlib.import_module(map_function.module)


def _run_module(map_function: MapFunction) -> ModuleType:
    """Runs the text of a file as a module; returns the same module for the same text."""
    name = f"recordmill_map_{map_function.checksum}"
    if name in sys.modules:
        return sys.modules[name]
    # The module has no __file__, because files next to it do not exist on workers.
    module = ModuleType(name)
    file_name = f"<{map_function.file} of the job, {map_function.checksum[:8]}>"
    lines = map_function.text.splitlines(keepends=True)
    # Tracebacks read the lines from this cache.
    linecache.cache[file_name] = (len(map_function.text), None, lines, file_name)
    sys.modules[name] = module
    try:
        exec(compile(map_function.text, file_name, "exec"), module.__dict__)
    except Exception:
        del sys.modules[name]
        raise
    return module


@dataclass(frozen=True)
class MappedRows(RowTransform):
    """The rows that a user's function creates; instances compare by `key` alone."""

    inner_source: Source = field(compare=False)
    map_function: MapFunction = field(compare=False)
    # True if a declared schema defines the features
    as_declared: bool = field(compare=False)
    # the schema of the dataset appended to, unless the job declares the schema
    fixed_schema: Schema | None = field(compare=False)
    # the ranges of the first rows, and the type flags of these rows
    trial_ranges: tuple[InputRange, ...] = field(compare=False)
    trial_types: TypeFlags = field(compare=False)
    # the trial with `trial_types`; trials with other type flags run when needed
    trial: Trial = field(compare=False)
    # a unique key, so that a process caches the trials of this instance
    cache_key: str = field(default_factory=lambda: uuid4().hex)

    @property
    def _function(self) -> UserFunction:
        return UserFunction(
            load_function(self.map_function), self.map_function.label, self.as_declared
        )

    def _with_trial_types(self, flags: TypeFlags) -> TypeFlags:
        """Returns type flags merged with the flags of the first rows.

        The flags of columns whose type is decided are unchanged: odd cells in the first
        rows are then rejects.
        """
        if not self.infers_types:
            return flags
        merged = merge_type_flags(flags, self.trial_types)
        filled_flags = flags or (0,) * len(merged)
        return tuple(
            flag if flag & TypeFlag.DECIDED else merged_flag
            for flag, merged_flag in zip(filled_flags, merged, strict=True)
        )

    def _trial_for(self, types: TypeFlags) -> Trial:
        """Returns the trial of the function on columns with these type flags."""
        types = self._with_trial_types(types)
        if not self.infers_types or types == self.trial_types:
            return self.trial
        return self._try_again(types)

    @lru_cache(maxsize=256)  # noqa: B019 (cached by `key`: once in each process)
    def _try_again(self, types: TypeFlags) -> Trial:
        return self._function.try_on_rows(
            _read_first_rows(self.inner_source, self.trial_ranges, types)[0]
        )

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        observed: TypeFlags = ()
        if input_findings is not None:
            observed = input_findings.type_flags
            input_findings = input_findings._replace(
                schema=self.inner_source.schema(self._with_trial_types(observed))
            )
        inner_report = self.inner_source.input_report(input_findings)
        tried = self._trial_for(observed)
        features = () if self.as_declared else self.schema(observed).features
        kept_names = [
            feature.name
            for feature in features
            if feature.column in tried.unchanged_columns
        ]
        column_names = {feature.column for feature in features} or {
            *tried.columns.names
        }
        created_columns = ", ".join(
            f"{created_column.name} {created_column.type}"
            for created_column in tried.columns
            if created_column.name in column_names
        )
        label = f"{self.map_function.label} (checksum {self.map_function.checksum[:8]})"
        facts = [("map", f"{label} makes {created_columns}")]
        if kept_names:
            facts.append(("kept by map", ", ".join(kept_names)))
        return replace(inner_report, fields=(*inner_report.fields, *facts))

    def columns(self) -> pa.Schema:
        return self.trial.columns

    def sample_type_flags(self, input_range: InputRange) -> TypeFlags:
        return self._with_trial_types(self.inner_source.sample_type_flags(input_range))

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner_source.estimated_bytes(files) * self.trial.rows_per_input_row

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        tried = self._trial_for(observed)
        if not tried.has_rows and self.fixed_schema is not None:
            return self.fixed_schema
        inner_features = self.inner_source.schema(
            self._with_trial_types(observed)
        ).features
        feature_by_column = {feature.column: feature for feature in inner_features}
        features = []
        for mapped_feature in plain_schema(tried.columns, nulls).features:
            if mapped_feature.name not in tried.unchanged_columns:
                features.append(self._match_fixed_feature(mapped_feature))
            elif mapped_feature.name in feature_by_column:
                # An unchanged column keeps its class names, or remains an image. Columns
                # that are no feature of the inner source become no feature.
                kept_feature = replace(
                    feature_by_column[mapped_feature.name],
                    optional=mapped_feature.optional,
                )
                features.append(self._match_fixed_feature(kept_feature, mapped_feature))
        return Schema(tuple(features))

    def _match_fixed_feature(self, *choices: FeatureSpec) -> FeatureSpec:
        """Returns the choice that matches a feature of the dataset, else the first."""
        for fixed_feature in self.fixed_schema.features if self.fixed_schema else ():
            for choice in choices:
                candidate = replace(choice, optional=fixed_feature.optional)
                if candidate.as_stored() == fixed_feature.as_stored():
                    return candidate
        return choices[0]

    def input_schema(self, observed: TypeFlags) -> Schema:
        inner_features = self.inner_source.schema(
            self._with_trial_types(observed)
        ).features
        # Optional, because the function has to handle missing values.
        return Schema(
            tuple(replace(feature, optional=True) for feature in inner_features)
        )

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        # The function may also have computed output from a column without values.
        return bool(observed) and self.inner_source.needs_reencode(final, used, final)

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        function, types = self._function, self._with_trial_types(expected)
        # A copy, because its nulls count the missing values of the input columns.
        inner_findings = replace(range_findings)
        if not self.as_declared:
            range_findings.add_batch_findings(
                nulls=(0,) * len(self._trial_for(types).columns)
            )
        for rows in self.inner_source.read(input_range, types, inner_findings):
            self._copy_findings(inner_findings, range_findings)
            types = merge_type_flags(types, range_findings.type_flags)
            if not rows.batch.num_rows:
                continue
            tried = self._trial_for(types).columns
            mapped_batch = function(rows.batch)
            range_findings.reject_rows(
                rows, dict(mapped_batch.invalid_rows), input_range, "map"
            )
            range_findings.num_dropped_rows += mapped_batch.num_dropped(
                rows.batch.num_rows
            )
            range_findings.num_added_rows += mapped_batch.num_added
            if not mapped_batch.batch.num_columns:
                continue
            batch = function.flatten_batch(
                mapped_batch.batch, tried, input_range.location
            )
            mapped = replace(
                rows.take_rows(mapped_batch.input_rows, batch), planned_bytes=None
            )
            if mapped_batch.num_added:
                mapped.group_hashes = mapped.origins
                mapped.origins = copy_origins(
                    mapped.origins, _copy_numbers(mapped_batch.input_rows)
                )
            required = self.fixed_schema and self.schema(range_findings.type_flags)
            missing = missing_required(batch, required)
            mapped = range_findings.reject_rows(mapped, missing, input_range)
            if not self.as_declared:
                range_findings.add_batch_findings(
                    nulls=[column.null_count for column in mapped.batch.columns]
                )
            yield mapped
        self._copy_findings(inner_findings, range_findings)

    def _copy_findings(
        self, inner_findings: RangeFindings, range_findings: RangeFindings
    ) -> None:
        """Copies issues and type flags of the inner source to `range_findings`.

        The lists of rejects and checksums are shared by both.
        """
        range_findings.issues = inner_findings.issues
        range_findings.type_flags = (
            self._with_trial_types(inner_findings.type_flags)
            if inner_findings.type_flags
            else ()
        )

    def read_as_text(self, input_range: InputRange) -> Iterator[Rows]:
        return self.read(input_range, (), RangeFindings())


def _copy_numbers(rows: I64) -> I64:
    """Numbers the output rows of each input row from 0.

    >>> _copy_numbers(np.array([3, 3, 5])).tolist()
    [0, 1, 0]
    """
    _, starts, counts = np.unique(rows, return_index=True, return_counts=True)
    return np.arange(len(rows), dtype=np.int64) - np.repeat(starts, counts)


def _read_first_rows(
    source: Source, ranges: Sequence[InputRange], types: TypeFlags = ()
) -> tuple[pa.RecordBatch, TypeFlags]:
    """Returns the first rows of several ranges in one batch, and their type flags."""
    ranges = ranges[:_MAX_TRIAL_RANGES]

    def read(input_range: InputRange) -> tuple[pa.RecordBatch | None, TypeFlags]:
        range_findings = RangeFindings()
        row_batches = source.read(input_range, types, range_findings)
        batch = next((rows.batch for rows in row_batches if rows.batch.num_rows), None)
        return batch, range_findings.type_flags if source.infers_types else ()

    batches, merged_types = [], types
    for batch, observed in read_sample_ranges(read, ranges):
        if batch is not None:
            batches.append(batch.slice(0, -(-_TRIAL_ROWS // len(ranges))))
            merged_types = merge_type_flags(merged_types, observed)
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=source.columns()), types
    if merged_types != types:  # read again: parts read earlier may have narrower types
        return _read_first_rows(source, ranges, merged_types)
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0], types


def map_rows(
    source: Source,
    files: Sequence[InputFile],
    map_function: MapFunction,
    *,
    as_declared: bool,
    is_appended: bool = False,
    fixed_schema: Schema | None = None,
) -> MappedRows:
    """Returns the rows of a prepared source after `map`; tries the function on some rows.

    Args:
      source: the prepared source.
      files: the input files.
      map_function: the function of the job.
      as_declared: whether a declared schema defines the features.
      is_appended: whether the rows are appended to rows of the same function.
      fixed_schema: the schema of the dataset appended to, unless it is declared.

    Raises:
      InputError: the input has no row for the trial.
      UsageError, SchemaError: the function cannot be used.
    """
    ranges = source.cut_ranges(files)
    sample_ranges = tuple(source.sample_ranges(ranges)) if ranges else ()
    batch, types = _read_first_rows(source, sample_ranges)
    if not batch.num_rows:  # a row may be larger than a sampled range
        sample_ranges = tuple(ranges[:1])
        batch, types = _read_first_rows(source, sample_ranges)
    function = UserFunction(
        load_function(map_function), map_function.label, as_declared
    )
    if not is_appended and not batch.num_rows:
        raise InputError(
            f"the input has no row on which `map` {map_function.label} could be tried"
        )
    try:
        if batch.num_rows:
            tried = function.try_on_rows(batch)
        else:
            tried = function.try_without_rows(source.columns())
    except _RaisedForAllError as error:
        if not is_appended:
            raise
        try:  # all new rows may be invalid
            tried = function.try_without_rows(source.columns())
        except InputError:
            raise error from None
    return MappedRows(
        source, map_function, as_declared, fixed_schema, sample_ranges, types, tried
    )
