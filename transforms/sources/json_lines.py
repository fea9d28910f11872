"""Reads rows that are objects with keys, and JSON Lines, which has one object per line.

Each key becomes a column; a key `b` of a nested object `a` becomes the column `a/b`. The
type of a column is the type of most of its values in the rows that `prepare` reads. A row
that does not match the types is a reject. A file of lines is cut at line ends.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputReport, SkippedFiles
from recordmill.schemas.ranges import (
    InputRange,
    Reject,
    RejectCode,
    RowIssue,
    TypeFlags,
)
from recordmill.schemas.source_options import IGNORE_COLUMNS_HINT
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count, is_utf8
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import read_plain, shorten
from recordmill.transforms.encode.columns import inside_lists, lists_of
from recordmill.transforms.encode.row_errors import bytes_are_utf8, utf8_reason
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    InputFindings,
    RangeFindings,
    Rows,
    Source,
    cut_blocks,
    missing_required,
)
from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits
from recordmill.transforms.sources.lines import (
    find_compression,
    open_lines,
    read_blocks,
)
from recordmill.transforms.sources.partitions import NO_PARTITIONS, Partitions
from recordmill.transforms.sources.plain_types import (
    SEPARATOR,
    report_left_out_columns,
    require_features,
    types_to_append,
)
from recordmill.transforms.sources.registry import OddCells
from recordmill.transforms.sources.text_columns import (
    ODD_CELLS,
    columns_with_examples,
    format_row_location,
    format_sortable_example,
    odd_columns,
    odd_problem,
)
from recordmill.transforms.storage.input_stream import UNPACKED_TIMES, InputStream
from recordmill.transforms.storage.reading import read_range

Row = dict[str, Any]
OddCell = tuple[str, Any, int]  # column, value, and the position of its row
Array = npt.NDArray[Any]


class RowPositions(NamedTuple):
    """The positions of rows in their file."""

    starts: I64  # byte offset of each row, ascending
    raw_row: Callable[[int], bytes]  # row index -> the bytes of the row


FEATURE_BYTES = 24  # of a feature in a record, without its name and its value
SAMPLE_BYTES = 64 << 20  # of all files, from which columns and types are inferred
_MAX_DEPTH = 8  # of nested lists
_EXTRA = "extra_columns"  # issue code: rows with keys that the first rows do not have
_TYPES: dict[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
}
_ALLOWED: dict[pa.DataType, set[type]] = {
    pa.bool_(): {bool},
    pa.int64(): {int},
    pa.float32(): {int, float},
    pa.float64(): {int, float},
    pa.string(): {str},
    pa.binary(): {bytes},
}
# The types of columns that may have odd cells, with the word for their cells.
_ODD_KINDS = {pa.bool_(): "boolean", pa.int64(): "number", pa.float64(): "number"}
_SCALARS = {(0, arrow_type) for arrow_type in (*_ODD_KINDS, pa.string())}
_DTYPES = {"bool": "?", "int64": "i8", "uint64": "u8", "float": "f4", "double": "f8"}


def flatten_row(row: Row) -> Row | str:
    """Returns an object with nested objects flattened, or the reason why it cannot be."""
    if dict not in set(map(type, row.values())):
        return row
    flat: Row = {}
    problem = _flatten("", row, flat)
    return problem or flat


def _flatten(prefix: str, nested_row: Mapping[str, Any], flat: Row) -> str:
    """Adds the cells of an object to `flat`; returns the reason if a name is repeated."""
    for key, cell in nested_row.items():
        name = prefix + key
        if isinstance(cell, dict):
            if problem := _flatten(name + SEPARATOR, cell, flat):
                return problem
        elif name in flat:
            return f"{shorten(name)}: there twice, as a key and within an object"
        else:
            flat[name] = cell
    return ""


@dataclass(slots=True)
class ObservedColumn:
    """The types of the values that were observed in a column."""

    # (depth of lists, type inside them) -> number of values. The type is null for empty
    # lists, and None for objects and for lists of several types.
    type_counts: Counter[tuple[int, pa.DataType | None]] = field(
        default_factory=Counter
    )
    arrays: list[Array] = field(default_factory=list)  # only dtype and shape matter

    def add_cells(self, cells: Sequence[Any]) -> None:
        """Adds the types of values; None is a missing value."""
        counts = Counter(map(type, cells))
        if list in counts and len(counts.keys() - {type(None)}) > 1:
            # One by one: `most_common` prefers the type that was added first.
            for cell in cells:
                self.add_cells([cell])
            return
        for value_type, number in counts.items():
            if value_type is list:
                lists = [cell for cell in cells if type(cell) is list]
                self.type_counts.update(map(_kind_of, lists))
            elif value_type is np.ndarray:
                self.arrays += [
                    np.broadcast_to(np.zeros((), array.dtype), array.shape)
                    for array in cells
                    if array is not None
                ]
            elif value_type is not type(None):
                self.type_counts[0, _TYPES.get(value_type)] += number

    def add_column(self, column: pa.Array) -> None:
        """Adds the types of the values of an Arrow column."""
        leaf, shape = inside_lists(column.type)
        num_present = len(column) - column.null_count
        if len(shape) > 1 or (shape and column.flatten().null_count):
            self.add_cells(column.to_pylist())
            return
        filled_lists = (
            pc.sum(pc.greater(pc.list_value_length(column), 0)) if shape else None
        )
        num_filled = num_present if filled_lists is None else filled_lists.as_py() or 0
        counts = {
            (len(shape), leaf): num_filled,
            (1, pa.null()): num_present - num_filled,
        }
        self.type_counts.update({kind: n for kind, n in counts.items() if n})

    def widen_to_text(self) -> None:
        """Treats all values as text if numbers, booleans and text are mixed."""
        observed_kinds = set(self.type_counts)
        numbers = {(0, pa.int64()), (0, pa.float64())}
        if (
            len(observed_kinds) > 1
            and observed_kinds <= _SCALARS
            and observed_kinds != numbers
        ):
            self.type_counts = Counter({(0, pa.string()): self.type_counts.total()})

    @property
    def arrow_type(self) -> pa.DataType | None:
        """Returns the type that most values fit; None if a feature cannot have it."""
        if self.arrays:
            return array_type(self.arrays)
        filled: Counter[tuple[int, pa.DataType | None]] = Counter()
        for (depth, leaf), number in self.type_counts.items():
            if leaf != pa.null():  # empty lists fit any type
                filled[depth, pa.float64() if leaf == pa.int64() else leaf] += number
        if not filled:
            depth = max((depth for depth, _ in self.type_counts), default=0)
            return lists_of(pa.string(), (None,) * depth) if depth else pa.null()
        ((depth, leaf), _), *_ = filled.most_common()
        if leaf == pa.float64() and not self.type_counts[depth, leaf]:
            leaf = pa.int64()
        return None if leaf is None else lists_of(leaf, (None,) * depth)


def _kind_of(nested_list: list[Any]) -> tuple[int, pa.DataType | None]:
    """Returns the depth of nested lists and the type inside them; None if mixed."""
    try:
        leaf, shape = inside_lists(pa.array([nested_list]).type)
    except (pa.ArrowException, OverflowError, ValueError):
        return 1, None
    is_known = leaf == pa.null() or leaf in _ALLOWED
    return len(shape), leaf if is_known and len(shape) <= _MAX_DEPTH else None


def build_column(cells: list[Any], arrow_type: pa.DataType) -> pa.Array | None:
    """Returns values as a column of a type that `ObservedColumn` inferred.

    Returns None if a value does not fit the type. A missing value is None and fits.
    """
    types = set(map(type, cells)) - {type(None)}
    if np.ndarray in types:
        fit = not any(
            describe_misfit(array, arrow_type) for array in cells if array is not None
        )
        return array_column(cells, arrow_type) if fit else None
    leaf, shape = inside_lists(arrow_type)
    inner: Iterable[Any] = cells
    for _ in shape:
        if types - {list}:
            return None
        inner = [
            element
            for inner_list in inner
            if inner_list is not None
            for element in inner_list
        ]
        types = set(map(type, inner)) - {type(None)}
    if not types <= _ALLOWED.get(leaf, set()):
        return None
    try:
        return pa.array(cells, arrow_type)
    except (pa.ArrowException, OverflowError, ValueError):
        return None


def array_type(arrays: Sequence[Array]) -> pa.DataType:
    """Returns the list type of the arrays that have the most frequent number of axes.

    The lists have fixed sizes if all of these arrays have one shape. Arrays with another
    number of axes do not fit the type.
    """
    ranks = [array.ndim for array in arrays]
    rank = max(set(ranks), key=lambda num_axes: (ranks.count(num_axes), -num_axes))
    chosen_arrays = [array for array in arrays if array.ndim == rank]
    leaf_type = pa.from_numpy_dtype(np.result_type(*chosen_arrays))
    if pa.types.is_floating(leaf_type):
        leaf_type = pa.float64() if pa.types.is_float64(leaf_type) else pa.float32()
    elif pa.types.is_boolean(leaf_type) and any(
        array.dtype != bool for array in chosen_arrays
    ):
        leaf_type = pa.int64()
    shapes = {array.shape for array in chosen_arrays}
    is_fixed = len(shapes) == 1 and all(next(iter(shapes)))
    return lists_of(leaf_type, chosen_arrays[0].shape if is_fixed else (None,) * rank)


def describe_misfit(array: Array, arrow_type: pa.DataType) -> str:
    """Returns a description of an array that does not fit a column; "" if it fits."""
    leaf, sides = inside_lists(arrow_type)
    if len(sides) != array.ndim or any(
        side not in (None, length)
        for side, length in zip(sides, array.shape, strict=True)
    ):
        return f"an array of shape {list(array.shape)}"
    if not np.can_cast(array.dtype, _dtype(leaf), "same_kind"):
        return f"an array of {array.dtype}"
    return ""


def array_column(arrays: Sequence[Array | None], arrow_type: pa.DataType) -> pa.Array:
    """Returns arrays as a column that all of them fit; None is a missing array."""
    leaf, sides = inside_lists(arrow_type)
    dtype = _dtype(leaf)
    missing = np.array([array is None for array in arrays], np.bool_)
    blank = np.zeros([side or 0 for side in sides], dtype)
    filled_arrays = [blank if array is None else array for array in arrays]
    flat = [array.astype(dtype, copy=False).reshape(-1) for array in filled_arrays]
    joined_array = np.concatenate([np.zeros(0, dtype), *flat])
    column = pa.array(joined_array, leaf, mask=None if sides else missing)
    for level in reversed(range(len(sides))):
        mask = None if level else pa.array(missing)
        if (side := sides[level]) is not None:
            column = pa.FixedSizeListArray.from_arrays(column, side, mask=mask)
            continue
        lengths = [
            array.shape[level]
            for array in filled_arrays
            for _ in range(math.prod(array.shape[:level]))
        ]
        offsets = pa.array(offsets_of(np.array(lengths, np.int64)), pa.int32())
        column = pa.ListArray.from_arrays(offsets, column, mask=mask)
    return column


def _dtype(leaf: pa.DataType) -> Any:
    """Returns the NumPy dtype for the innermost Arrow type of a column."""
    return np.dtype(_DTYPES[str(leaf)])


@dataclass(frozen=True)
class ObjectsSource(Source):
    """A source of rows that are objects; the first rows determine columns and types.

    Attributes:
      row_name: the word for a row in messages.
      min_sample_bytes: minimum bytes of each sampled file from which columns are inferred.
    """

    as_declared: bool = False  # True if a declared schema defines the features
    requested_columns: tuple[str, ...] = ()  # the columns of that schema
    # True if rows may have other columns (`extra_columns`)
    ignores_extra_columns: bool = False
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    storage: StorageOptions = NO_OPTIONS
    # The following describe the whole input, after `prepare`.
    splits: FileSplits = NO_SPLITS
    partitions: Partitions = NO_PARTITIONS
    types: tuple[tuple[str, pa.DataType], ...] = ()  # of the keys of objects
    num_sampled_rows: int = 0  # number of rows from which the columns were inferred
    is_sampled: bool = False  # True if the input has more rows than these
    left_out_columns: tuple[
        str, ...
    ] = ()  # columns of these rows that become no feature
    skipped_files: tuple[SkippedFiles, ...] = ()

    reports_checksums = True
    row_name = "row"
    min_sample_bytes = 1 << 16

    @abstractmethod
    def _first_rows(
        self, file: InputFile, num_bytes: int, observed: Mapping[str, ObservedColumn]
    ) -> Iterator[tuple[int, Iterable[Row | str], pa.RecordBatch | None]]:
        """Yields the first rows of a file as tuples (byte reached, objects, batch).

        An object that cannot be read is a string with the reason. The batch has further
        rows; it is None if all rows are in the objects.

        Args:
          file: the file.
          num_bytes: the number of bytes to read, at most.
          observed: the columns of the rows so far; a batch only has columns of them.
        """

    def _shard_files(self, files: Sequence[InputFile]) -> list[InputFile]:
        """Returns the files that can have rows."""
        return [file for file in files if file.size]

    @abstractmethod
    def _no_rows_error(self, files: Sequence[InputFile], problem: str) -> InputError:
        """Returns the error for files without any row; `problem` is of the first row."""

    def _prepare_columns(
        self,
        files: Sequence[InputFile],
        skipped: Iterable[tuple[str, str]],
        append: Append | None,
    ) -> Self:
        """Returns the source with columns and types from the first rows of some files.

        Args:
          files: the files that can have rows.
          skipped: pairs (reason, path) of the other files.
          append: the dataset to which the files are appended, if any.

        Raises:
          InputError: no row can be read, or a column cannot become a feature.
        """
        existing_files = (
            self._shard_files(append.existing_inventory) if append is not None else ()
        )
        splits = self.splits.find_rule(files, existing_files)
        partitions = self.partitions.find_columns(files, splits, existing_files)
        observed: dict[str, ObservedColumn] = {}
        owners: dict[str, str] = {}  # the first file that has a column
        share = max(self.min_sample_bytes, SAMPLE_BYTES // len(files))
        sampled_files = files[:: -(-len(files) * self.min_sample_bytes // SAMPLE_BYTES)]
        sampled, problem, is_sampled = 0, "", len(sampled_files) < len(files)
        for file in sampled_files:
            for position, first_rows, batch in self._first_rows(file, share, observed):
                parsed = [*first_rows]
                rows = [row for row in parsed if not isinstance(row, str)]
                reject_reasons = [row for row in parsed if isinstance(row, str)]
                problem = problem or (
                    f"{file.uri}: {reject_reasons[0]}" if reject_reasons else ""
                )
                sampled += len(rows)
                for name in dict.fromkeys(chain.from_iterable(rows)):
                    owners.setdefault(name, file.uri)
                    column = observed.setdefault(name, ObservedColumn())
                    column.add_cells([row.get(name) for row in rows])
                if batch is not None:
                    sampled += batch.num_rows
                    for name in batch.schema.names:
                        observed[name].add_column(batch[name])
                if position > share:
                    is_sampled = True
                    break
        if not sampled:
            raise self._no_rows_error(sampled_files, problem)
        fixed_schema = append.schema if append is not None else None
        left_out, requested_columns = set[str](), self.requested_columns
        if fixed_schema is not None:
            requested_columns = tuple(feature.name for feature in fixed_schema.features)
        if self.as_declared or (requested_columns and self.ignores_extra_columns):
            partitions, left_out = partitions.select(requested_columns)
            left_out |= observed.keys() - {*requested_columns}
            observed = {
                name: observed[name] for name in observed if name in requested_columns
            }
        for name in observed:
            partitions.require_apart(owners[name], [name])
        types = self._types_of(observed, files[0].uri)
        if fixed_schema is not None:
            names, keys = (*types, *partitions.keys), partitions.keys
            require_features(names, fixed_schema, folders=keys, may_lack=True)
            types = types_to_append(fixed_schema)
            types = {
                name: arrow_type
                for name, arrow_type in types.items()
                if name not in partitions.keys
            }
        return replace(
            self,
            types=tuple(types.items()),
            fixed_schema=fixed_schema,
            left_out_columns=tuple(left_out),
            splits=splits,
            partitions=partitions,
            num_sampled_rows=sampled,
            is_sampled=is_sampled,
            skipped_files=SkippedFiles.count_by_reason(skipped),
        )

    def _types_of(
        self, observed: Mapping[str, ObservedColumn], uri: str
    ) -> dict[str, pa.DataType]:
        types, problems = {}, []
        for name, column in observed.items():
            arrow_type = column.arrow_type
            if arrow_type is None:
                problems.append(name)
            elif name and is_utf8(name):  # rows with other keys are rejects
                types[name] = arrow_type
        if problems:
            raise InputError(
                f"{uri}: {', '.join(map(repr, problems))}: lists of objects, or of "
                "values of several types, cannot be features. Declare the other "
                "columns in a schema file (`schema`)"
            )
        if not types and not self.as_declared and not self.ignores_extra_columns:
            raise InputError(f"{uri}: its objects have no keys")
        return types

    def columns(self) -> pa.Schema:
        return pa.schema([*self.types, *self.partitions.types])

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.columns())
        basis = (
            "the first"
            if self.is_sampled
            else "all"
            if self.num_sampled_rows > 1
            else "the"
        )
        basis = f"by {basis} {format_count(self.num_sampled_rows, self.row_name)}"
        facts = (
            ("columns", columns),
            ("types", basis),
            *self._left_out_lines(input_findings),
        )
        facts = (*facts, *self.splits.report_lines, *self.partitions.report_lines)
        return InputReport(facts, (), self.skipped_files)

    def _left_out_lines(
        self, input_findings: InputFindings | None
    ) -> tuple[tuple[str, str], ...]:
        issues = input_findings.issues if input_findings is not None else ()
        [extra_text] = [
            f"others in {format_count(issue.count, 'row')}, such as {issue.example}"
            for issue in issues
            if issue.code == _EXTRA
        ] or [""]
        return report_left_out_columns(self.left_out_columns, extra_text)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.types)

    def _unknown_key_reason(self, row: Row) -> str:
        """Returns why a row with unknown keys cannot be converted; "" if it can be."""
        if shared_key := next((key for key in self.partitions.keys if key in row), ""):
            return (
                f"{shared_key}: is a key of the row, and also a folder {shared_key}=... of its "
                "file; expected one of them. Rename the folders, or use "
                "`partitions=none` and move such a row to the start of the first file"
            )
        if self.as_declared or self.ignores_extra_columns or row.keys() <= self._names:
            return ""
        name = shorten(next(name for name in row if name not in self._names))
        if self.fixed_schema is not None:
            return f"{name}: is not a feature of the dataset; {IGNORE_COLUMNS_HINT}"
        return (
            f"{name}: is not in the {format_count(self.num_sampled_rows, self.row_name)} from which "
            f"the columns were inferred; {IGNORE_COLUMNS_HINT}, or move such a {self.row_name} "
            "to the start of the first file"
        )

    def _count_extra_rows(
        self, rows: Iterable[Row], range_findings: RangeFindings
    ) -> None:
        """Counts the rows with keys that none of the first rows has."""
        if self.as_declared or not self.ignores_extra_columns:
            return
        known_keys = self._names.union(self.left_out_columns)
        if extra_keys := [names for row in rows if (names := row.keys() - known_keys)]:
            example = shorten(min(map(min, extra_keys)))
            range_findings.add_batch_findings(
                issues=[RowIssue(_EXTRA, "", len(extra_keys), example)]
            )

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch | None:
        """Returns rows as a batch, or None if a value does not fit its column."""
        arrays = []
        for name, arrow_type in self.types:
            column = build_column([row.get(name) for row in rows], arrow_type)
            if column is None:
                return None
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*self.types]))

    def _find_misfit(self, row: Row) -> tuple[str, str]:
        """Returns the first column that a value does not fit, and the reason.

        Both are "" if all values fit.
        """
        type_owner = "the dataset" if self.fixed_schema else f"most {self.row_name}s"
        for name, arrow_type in self.types:
            cell = row.get(name)
            if build_column([cell], arrow_type) is None:
                actual = shorten(cell)
                if isinstance(cell, np.ndarray):
                    actual = describe_misfit(cell, arrow_type)
                return (
                    name,
                    f"{name}: {actual} is not {arrow_type}, its type in {type_owner}",
                )
        return "", ""

    def _count_odd_cells(
        self,
        odd_cells: Sequence[OddCell],
        input_range: InputRange,
        range_findings: RangeFindings,
    ) -> None:
        """Counts values that do not fit their columns."""

    def _create_rows(
        self,
        parsed: Mapping[int, Row | str],
        places: RowPositions,
        input_range: InputRange,
        stream: InputStream,
        range_findings: RangeFindings,
        plain: tuple[pa.RecordBatch, I64] | None = None,
    ) -> tuple[Rows, I64]:
        """Creates rows from objects; rejects objects that do not fit the columns.

        Args:
          parsed: row index -> the object of the row, or the reason why it has none.
          places: the positions of all rows.
          input_range: the range of the rows.
          stream: the bytes of that range.
          range_findings: collects the rejects.
          plain: the remaining rows as a batch, and the index of each.

        Returns:
          The rows, and the index of each.
        """
        reasons = {
            row_index: row for row_index, row in parsed.items() if isinstance(row, str)
        }
        row_by_index = {
            row_index: row
            for row_index, row in parsed.items()
            if not isinstance(row, str)
        }
        self._count_extra_rows(row_by_index.values(), range_findings)
        plain_only = plain if plain is not None and not row_by_index else None
        batch = plain_only[0] if plain_only else self._batch([*row_by_index.values()])
        if batch is None:  # check the rows one by one; usually few do not fit
            misfits = {
                row_index: self._find_misfit(row)
                for row_index, row in row_by_index.items()
            }
            reasons |= {
                row_index: reason
                for row_index, (_, reason) in misfits.items()
                if reason
            }
            odd_cells = [
                (name, row_by_index[row_index][name], int(places.starts[row_index]))
                for row_index, (name, reason) in misfits.items()
                if reason
            ]
            self._count_odd_cells(odd_cells, input_range, range_findings)
            row_by_index = {
                row_index: row
                for row_index, row in row_by_index.items()
                if not misfits[row_index][1]
            }
            batch = self._batch([*row_by_index.values()])
            if batch is None:
                raise ValueError("values fit one by one only")
        row_indices = (
            plain_only[1] if plain_only else np.array([*row_by_index], np.int64)
        )
        if plain is not None and plain_only is None:
            row_indices = np.concatenate((plain[1], row_indices))
            order = np.argsort(row_indices)
            joined_batch = pa.Table.from_batches([plain[0], batch]).combine_chunks()
            batch, row_indices = (
                joined_batch.to_batches()[0].take(pa.array(order)),
                row_indices[order],
            )
        batch = self.partitions.add_columns(batch, input_range.path)
        if missing := missing_required(batch, self.fixed_schema):
            reasons |= {
                int(row_indices[batch_row]): reason
                for batch_row, reason in missing.items()
            }
            remaining_rows = np.delete(np.arange(len(row_indices)), [*missing])
            batch, row_indices = (
                batch.take(pa.array(remaining_rows)),
                row_indices[remaining_rows],
            )
        path = input_range.path
        for row_index in sorted(reasons):
            code: RejectCode = (
                "row" if isinstance(parsed.get(row_index), str) else "value"
            )
            start, raw = int(places.starts[row_index]), places.raw_row(row_index)
            range_findings.rejects.append(
                Reject(path, start, reasons[row_index], raw, code)
            )
        range_findings.add_batch_findings(
            nulls=[column.null_count for column in batch.columns]
        )
        starts = places.starts[row_indices]
        rows = Rows(
            batch=batch,
            origins=origins_in(path, 0, starts),
            positions=stream.positions.file_offsets(starts)
            if stream.is_packed
            else starts - input_range.start,
            raw_row=lambda row: (
                int(starts[row]),
                places.raw_row(int(row_indices[row])),
            ),
        )
        return rows, row_indices


# Bytes that are read and encoded at once; as Python objects they take ten times as much.
BATCH_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"  # at the start of a file, or of each file that was joined to it
_raw_decode = json.JSONDecoder().raw_decode


def parse_line(line: bytes) -> Row | str:
    """Returns the object of a line, flattened, or the reason why it has none.

    A line of 90 bytes takes 2 us, so only lines that `_split_plain_lines` cannot read are
    parsed here.
    """
    try:
        parsed_json = _parse_json(line.removeprefix(_BOM).decode())
    except UnicodeDecodeError:
        return utf8_reason(line, "line")
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos} of the line"
    except (ValueError, RecursionError) as error:  # 5,000 digits; nested too deep
        return f"not JSON that can be read: {error}"
    if not isinstance(parsed_json, dict):
        return f"expected a JSON object, found {shorten(parsed_json)}"
    return flatten_row(parsed_json)


def _parse_json(text: str) -> Any:
    """Parses JSON; twice as fast as json.loads for an object without outer blanks."""
    if text.startswith("{"):
        parsed_json, end = _raw_decode(text)
        if end == len(text):
            return parsed_json
    return json.loads(text)


class SplitBlock(NamedTuple):
    """A block of lines, split into plain objects and odd lines."""

    batch: pa.RecordBatch | None  # the columns of the plain objects
    # the index of each plain object among all lines that are not blank
    plain_indices: I64
    odd_lines: Mapping[int, bytes]  # the odd lines, by index
    positions: RowPositions  # of all lines that are not blank


Types = tuple[tuple[str, pa.DataType], ...]
_TYPE_LETTERS = {
    pa.string(): "s",
    pa.int64(): "i",
    pa.float64(): "d",
    pa.bool_(): "b",
    pa.null(): "n",
}
_DTYPE_NAMES = {pa.int64(): "int64", pa.float64(): "float64"}
_ANY_TYPE, _ONLY_OBJECTS = "*", "o"
_INTS_PER_CACHE_LINE = 16  # number of int32 in a cache line of the processor
# per byte of a block; with more cells, most of them are missing
_MAX_CELLS_PER_BYTE = 2


@lru_cache(maxsize=8)
def _object_paths(
    types: Types, left_out_columns: tuple[str, ...]
) -> tuple[bytes, Array, Array, bytes]:
    """Returns the arguments names, ends, paths and holds of `native.loops.split_objects`.

    `names` has the JSON spellings of all keys, joined, and `ends` the end of each.
    `paths` has the path index of each key. `holds` has a type letter for each path.
    """
    holds = {name: _TYPE_LETTERS.get(kind, _ANY_TYPE) for name, kind in types}
    holds |= dict.fromkeys(left_out_columns, _ANY_TYPE)
    ordered: dict[str, None] = {}  # an object comes before its fields
    for name in holds:
        parts = name.split(SEPARATOR)
        nested_names = (
            SEPARATOR.join(parts[:size]) for size in range(1, len(parts) + 1)
        )
        ordered |= dict.fromkeys(nested_names)
    holds |= {name: _ONLY_OBJECTS for name in ordered if name not in holds}
    path_of = {name: path for path, name in enumerate(holds)}
    names = [
        (spelled[1:-1].encode(), path_of[name])
        for name in ordered
        for spelled in dict.fromkeys(
            json.dumps(name, ensure_ascii=is_ascii) for is_ascii in (False, True)
        )
        if is_utf8(spelled)
    ]
    ends = offsets_of(np.array([len(name) for name, _ in names], np.int64))
    paths = np.array([path for _, path in names], np.int32)
    joined_names = b"".join(name for name, _ in names)
    return joined_names, ends.astype(np.int32), paths, "".join(holds.values()).encode()


def _split_plain_lines(
    block: bytes, types: Types, left_out_columns: tuple[str, ...]
) -> tuple[pa.RecordBatch, I64, I64] | None:
    """Splits lines with the native extension; None if `json` has to read all of them.

    Returns:
      The plain rows, the byte offset of each, and the byte offsets of the odd lines.
    """
    columns, max_rows = len(types), native.loops.count_row_ends(block)
    if not columns or columns * max_rows > _MAX_CELLS_PER_BYTE * len(block) + (1 << 16):
        return None
    if not bytes_are_utf8(block):
        return None
    # Columns at a distance of a power of two would share cache lines.
    max_rows = (max_rows // _INTS_PER_CACHE_LINE + 1 | 1) * _INTS_PER_CACHE_LINE - 1
    names, ends, paths, holds = _object_paths(types, left_out_columns)
    places = np.empty(max_rows, np.int64)
    valid_bytes = (max_rows + 7) // 8
    offsets = pa.allocate_buffer(columns * (max_rows + 1) * 4)
    valid = np.zeros(columns * valid_bytes, np.uint8)
    target = pa.allocate_buffer(len(block) + columns * native.loops.CELL_SLACK)
    facts = np.zeros((2, columns), np.int64)
    num_rows, num_odd = native.loops.split_objects(
        block, names, ends, paths, holds, np.zeros(len(holds), np.int64),
        np.empty((max_rows * columns, 2), np.int32), places, offsets, valid, facts, target,
    )  # fmt: skip
    if num_rows < 1:
        return None
    arrays, bits = [], pa.py_buffer(valid)
    for column, (start, missing) in enumerate(facts.T.tolist()):
        buffers = [
            bits.slice(column * valid_bytes, valid_bytes) if missing else None,
            offsets.slice(column * (max_rows + 1) * 4, (num_rows + 1) * 4),
            target.slice(start),
        ]
        cells = pa.Array.from_buffers(pa.string(), num_rows, buffers, missing)
        if (array := _cells_as_column(cells, types[column][1])) is None:
            return None
        arrays.append(array)
    batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in types])
    return batch, places[:num_rows], places[max_rows - num_odd :][::-1]


def _cells_as_column(cells: pa.StringArray, arrow_type: pa.DataType) -> pa.Array | None:
    """Returns cells of `native.loops.split_objects` as a column; None if one does not fit."""
    if arrow_type not in _TYPE_LETTERS:
        json_cells = ",".join(
            "null" if cell is None else cell for cell in cells.to_pylist()
        )
        return build_column(json.loads(f"[{json_cells}]"), arrow_type)
    if pa.types.is_null(arrow_type):
        return pa.nulls(len(cells))
    plain = read_plain(cells, _DTYPE_NAMES.get(arrow_type, ""))
    return cells.cast(arrow_type) if plain is None else plain


def split_block(
    start: int, block: bytes, types: Types, left_out_columns: tuple[str, ...]
) -> SplitBlock:
    """Splits a block of lines into plain objects and odd lines.

    Args:
      start: the byte offset of the block in its file.
      block: the lines.
      types: the columns.
      left_out_columns: keys that are skipped without making a line odd.
    """
    lines_text = block if block.endswith(b"\n") else block + b"\n"
    split = _split_plain_lines(lines_text, types, left_out_columns)
    if split is None:
        begins = np.flatnonzero(np.frombuffer(lines_text, np.uint8) == ord("\n")) + 1
        split = None, np.zeros(0, np.int64), np.append(0, begins[:-1])
    batch, plain, odd_starts = split

    def line_at(begin: int) -> bytes:
        return lines_text[begin : lines_text.index(b"\n", begin)].removesuffix(b"\r")

    odd_starts = np.array(
        [
            line_start
            for line_start in odd_starts.tolist()
            if line_at(line_start).strip()
        ],
        np.int64,
    )
    starts = np.sort(np.concatenate((plain, odd_starts)))
    lines = {
        index: line_at(line_start)
        for index, line_start in zip(
            np.searchsorted(starts, odd_starts).tolist(),
            odd_starts.tolist(),
            strict=True,
        )
    }
    places = RowPositions(starts + start, lambda row: line_at(int(starts[row])))
    return SplitBlock(batch, np.searchsorted(starts, plain), lines, places)


@dataclass(frozen=True)
class JsonLinesSource(ObjectsSource):
    """A source of lines that are JSON objects."""

    compression: str = ""  # of all files, as in `Packing`
    odd_cells: OddCells = "refuse"  # treatment of the few values of another type

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        nonempty_files = self._shard_files(files)
        if not nonempty_files:
            raise InputError(
                "every input file is empty; expected JSON objects in lines"
            )
        source = replace(
            self, compression=find_compression(nonempty_files[0], self.storage)
        )
        skipped_files = (("empty", file.path) for file in files if not file.size)
        return source._prepare_columns(nonempty_files, skipped_files, append)

    def _types_of(
        self, observed: Mapping[str, ObservedColumn], uri: str
    ) -> dict[str, pa.DataType]:
        if self.odd_cells == "widen":
            for column in observed.values():
                column.widen_to_text()
        return super()._types_of(observed, uri)

    def _count_odd_cells(
        self,
        odd_cells: Sequence[OddCell],
        input_range: InputRange,
        range_findings: RangeFindings,
    ) -> None:
        uri, storage, stat = input_range.uri, self.storage, input_range.stat

        def line_at(position: int) -> int:
            return read_range(uri, 0, position, storage, stat).count(b"\n") + 1

        types = dict(self.types)
        for name, cell, position in odd_cells:
            cell_class = _ODD_KINDS.get(types[name], "")
            is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
            # A number in a column of numbers is outside int64, or 2.5 among integers.
            if (
                not cell_class
                or isinstance(cell, list)
                or (is_number and cell_class == "number")
            ):
                continue
            example = ""
            if name not in columns_with_examples(range_findings.issues):
                line = None if self.compression else partial(line_at, position)
                location = format_row_location(input_range.path, position, line)
                input_position = input_range.first_position + position
                example = format_sortable_example(
                    input_position, f"{location}: {shorten(cell)}"
                )
            fits = RowIssue(ODD_CELLS, name, 0, "", (cell_class,))
            range_findings.add_batch_findings(
                issues=[fits, RowIssue(ODD_CELLS, name, 1, example, ("text",))]
            )

    def issue_problem(self, input_findings: InputFindings) -> str:
        if self.odd_cells != "refuse" or self.as_declared or self.fixed_schema:
            return ""
        # The rows of these values were already rejected.
        cells = {
            issue.column: input_findings.num_rows + issue.count
            for issue in input_findings.issues
        }
        return odd_problem(odd_columns(input_findings.issues, cells))

    def _first_rows(
        self, file: InputFile, num_bytes: int, observed: Mapping[str, ObservedColumn]
    ) -> Iterator[tuple[int, Iterable[Row | str], pa.RecordBatch | None]]:
        part = 0, min(num_bytes, file.size)
        stream = open_lines(file, part, self.compression, self.storage)
        for start, block in read_blocks(stream, BATCH_BYTES):
            types = {name: column.arrow_type for name, column in observed.items()}
            are_types_known = all(
                name and is_utf8(name) and types[name] for name in types
            )
            lines = split_block(
                start, block, (*types.items(),) if are_types_known else (), ()
            )
            if len(lines.positions.starts):
                last_start = int(lines.positions.starts[-1])
                yield last_start, map(parse_line, lines.odd_lines.values()), lines.batch
        if not self.compression:
            yield file.size, (), None

    def _no_rows_error(self, files: Sequence[InputFile], problem: str) -> InputError:
        problem = problem or f"{files[0].uri}: only blank lines"
        return InputError(
            f"no line of {format_count(len(files), 'input file')} is a JSON object: {problem}"
        )

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        file = ("file", self.compression)
        input_report = super().input_report(input_findings)
        return (
            replace(input_report, fields=(file, *input_report.fields))
            if self.compression
            else input_report
        )

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        size = None if self.compression else self.range_bytes
        return cut_blocks(files, size, self.splits)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # Each line repeats the keys; short values become longer.
        unpacked = UNPACKED_TIMES if self.compression else 1
        growth = 2 * unpacked * sum(file.size for file in files)
        return growth + FEATURE_BYTES * len(self.columns())

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        part = input_range.start, input_range.stop
        stream = open_lines(input_range, part, self.compression, self.storage)
        range_findings.add_batch_findings(nulls=(0,) * len(self.columns()))
        for start, block in read_blocks(stream, BATCH_BYTES):
            lines = split_block(start, block, self.types, self.left_out_columns)
            parsed = {
                index: self._parse(line) for index, line in lines.odd_lines.items()
            }
            plain = None if lines.batch is None else (lines.batch, lines.plain_indices)
            yield self._create_rows(
                parsed, lines.positions, input_range, stream, range_findings, plain
            )[0]
        range_findings.checksums.append(
            FileChecksum(input_range.path, *part, stream.checksum_of_part())
        )

    def _parse(self, line: bytes) -> Row | str:
        """Returns the object of a line, or the reason why it cannot be converted."""
        row = parse_line(line)
        if isinstance(row, str):
            return row
        if self.odd_cells == "widen":
            for name in self._texts & row.keys():
                if isinstance(row[name], bool | int | float):
                    row[name] = json.dumps(row[name])
        return self._unknown_key_reason(row) or row

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(name for name, kind in self.types if kind == pa.string())
