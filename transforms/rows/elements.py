"""Identifies the elements of a pipeline's collection and converts them to batches."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.declared import DeclaredFeature, DeclaredSchema
from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import format_shape
from recordmill.schemas.job import JobSpec, parse_fraction, parse_split_times
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import Example, Feature
from recordmill.transforms.arrow import U64, offsets_of
from recordmill.transforms.cast.cell_lists import feature_type
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.encode.columns import (
    inside_lists,
    is_list,
    lists_of,
    unwrap_array,
)
from recordmill.transforms.exchange.keys import assign_splits, text_hash, value_hashes
from recordmill.transforms.sources.label_split import SplitRole, TimeRole

ElementKind = Literal["dict", "batch", "message", "bytes"]

_PAYLOADS: dict[str, Payload] = {}
for _package in ("tensorflow", Example.DESCRIPTOR.file.package):
    _PAYLOADS[f"{_package}.Example"] = "example"
    _PAYLOADS[f"{_package}.SequenceExample"] = "sequence_example"


@runtime_checkable
class Message(Protocol):
    """A protobuf message of any library."""

    DESCRIPTOR: Any

    def SerializeToString(self, *, deterministic: bool) -> bytes: ...  # noqa: N802


def element_kind(element: object, job: JobSpec) -> ElementKind:
    """Returns the kind of an element; raises UsageError if it cannot become a record."""
    if isinstance(element, Mapping | pa.RecordBatch | pa.Table):
        kind: ElementKind = "dict" if isinstance(element, Mapping) else "batch"
        if job.declared is None:
            raise UsageError(
                f"a {type(element).__name__} needs a schema to become a record. Use "
                "WriteDataset(output, schema) with a schema file or {name: dtype}"
            )
        return kind
    if isinstance(element, bytes | bytearray | memoryview):
        return "bytes"
    if isinstance(element, Message):
        name = element.DESCRIPTOR.full_name
        payload = _PAYLOADS.get(name)
        if job.payload in ("raw", payload):
            return "message"
        raise UsageError(
            f"a {name} is not a valid record of payload {job.payload!r}. Use "
            f"payload={payload or 'raw'!r}"
        )
    raise UsageError(
        "WriteDataset: expected dicts, pyarrow.RecordBatch, tf.train.Example or bytes, "
        f"got {shorten(element)} of type {type(element).__name__}"
    )


def parse_example(element: object, data: bytes) -> Example | None:
    """Parses an element as an example; returns None if its bytes are not one."""
    if isinstance(element, Message):
        # TensorFlow's class or recordmill's: both have the same fields.
        return element  # type: ignore[return-value]
    try:
        return Example.FromString(data)
    except DecodeError:
        return None


def size_of(value: Any) -> int:
    """Returns the estimated size of a value in bytes."""
    if isinstance(value, str | bytes | bytearray):
        return len(value)
    if isinstance(value, np.ndarray | memoryview):
        return value.nbytes
    if isinstance(value, list | tuple) and value:
        return len(value) * size_of(value[0])
    return 8


def row_as_json(row: Mapping[str, Any]) -> bytes:
    """Returns a rejected row as JSON; bytes become {"base64": ...}."""
    return json.dumps(_as_json_value(row), sort_keys=True, ensure_ascii=False).encode(
        errors="backslashreplace"
    )


def _as_json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _as_json_value(inner) for name, inner in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, np.ndarray | np.generic):
        return _as_json_value(value.tolist())
    if isinstance(value, list | tuple):
        return [_as_json_value(element) for element in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dt.date | dt.time | dt.timedelta | Decimal):
        return str(value)
    return f"<{type(value).__name__}>"  # repr() may contain an address


# Rows are processed one by one, so the split of a row depends only on the row and the
# job.

_MAX_CACHED_VALUES = 1 << 12  # most values of examples whose splits are cached


@dataclass(frozen=True, slots=True)
class SplitRule:
    """The rule that determines the split of each row."""

    job: JobSpec  # the job of the rows
    option: str = ""  # the option that names the column, or ""
    # a column, or a feature of examples; None if the whole record determines the split
    column: str | None = None
    # role of the column if its values name splits; None if rows with equal values share a
    # split by a hash
    role: SplitRole | None = None
    _split_by_value: dict[tuple[type, Any], int | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, job: JobSpec) -> SplitRule:
        """Returns the rule of a job."""
        if job.split_column is not None:
            names = tuple(split.name for split in job.splits)
            role = SplitRole(job.split_column, names, has_given_names=True)
            return cls(job, "split_column", job.split_column, role)
        if job.split_by_time is not None:
            times = parse_split_times(job.split_by_time)
            return cls(job, "split_by_time", times.column, TimeRole.from_times(times))
        return cls(job, "split_by" if job.split_by is not None else "", job.split_by)

    def splits_or_hashes(self, values: pa.Array) -> pa.Array:
        """Returns the split index, or its hash, for each value of the column.

        It is null for a row whose value names no split; see `reason`.
        """
        try:
            if self.role is None:
                return pa.array(value_hashes(values))
            values = unwrap_array(values)
            if is_list(values.type):
                raise pa.ArrowTypeError("expected a single value in each row")
            return self.role.name_indices(values)
        except pa.ArrowException as error:
            raise UsageError(
                f"{self.option}={self.column!r}: values of type {values.type} cannot "
                f"be compared: {error}"
            ) from error

    def split_or_hash_of_example(self, example: Example) -> tuple[int | None, Any]:
        """Returns the split index or hash of an example, and its value or values.

        The first is None if the value names no split.
        """
        assert self.column is not None  # otherwise it is not called
        features = example.features.feature
        feature = features[self.column] if self.column in features else Feature()
        if self.role is None:
            return text_hash(feature.SerializeToString(deterministic=True)), None
        values = _values_of(feature)
        if len(values) > 1:
            return None, values
        value = values[0] if values else None
        # A single value takes 25 to 40 us, and many rows have the same value.
        key = type(value), value
        if key not in self._split_by_value:
            if len(self._split_by_value) >= _MAX_CACHED_VALUES:
                self._split_by_value.clear()
            self._split_by_value[key] = self.splits_or_hashes(pa.array([value]))[
                0
            ].as_py()
        return self._split_by_value[key], value

    def reason(self, value: Any) -> str:
        """Returns why a row with this value cannot be converted."""
        assert self.role is not None  # hashes assign every row to a split
        if isinstance(value, list):
            return (
                f"{self.column}: {len(value):,} values; each row needs one that names "
                "its split"
            )
        return self.role.reject_reason(None if value is None else str(value))

    def assign(
        self, origins: U64, splits_or_hashes: U64 | None
    ) -> npt.NDArray[np.uint8]:
        """Returns the index of each row's split.

        `splits_or_hashes` is the result of `find`, without nulls; if None, the hashes of
        the records, `origins`, determine the splits.
        """
        if self.role is not None and splits_or_hashes is not None:
            return splits_or_hashes.astype(np.uint8)
        fractions = [parse_fraction(split.fraction) for split in self.job.splits]
        groups = origins if splits_or_hashes is None else splits_or_hashes
        return assign_splits(groups, fractions, self.job.seed)


def _values_of(feature: Feature) -> list[str | int | float]:
    """Returns the values of a feature, bytes as text."""
    kind = feature.WhichOneof("kind")
    values: list[bytes | int | float] = (
        list(getattr(feature, kind).value) if kind else []
    )
    return [
        value.decode(errors="replace") if isinstance(value, bytes) else value
        for value in values
    ]


# The runner decides which rows share a bundle, so the record of a row must depend only on
# that row. Each value has a form: the depth of its nested lists, and the type inside.
# Values of the same form are converted to one array of one type:
#
#     bool, int, float, str, bytes     bool, int64 (uint64 beyond), float64, string, binary
#     numpy scalars and arrays         the same; arrays keep their dtype
#     datetime, date, time, timedelta  microseconds (UTC if there is a time zone), days
#     Decimal                          decimal
#     lists and tuples                 lists; integers among floats are floats
#     an empty list                    the type of the feature

Form = tuple[int, str]
"""(depth of lists, type inside): a name in _TYPES, a NumPy dtype, or "" if empty."""

_TYPES: dict[str, pa.DataType | None] = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float": pa.float64(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "datetime": pa.timestamp("us"),
    "instant": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "duration": pa.duration("us"),
    "decimal": None,  # Arrow infers precision and scale
}
_LEAVES: dict[type, str] = {
    bool: "bool",
    np.bool_: "bool",
    int: "int64",
    np.integer: "int64",
    float: "float",
    np.floating: "float",
    str: "text",
    bytes: "bytes",
    bytearray: "bytes",
    memoryview: "bytes",
    dt.datetime: "datetime",
    dt.date: "date",
    dt.time: "time",
    dt.timedelta: "duration",
    Decimal: "decimal",
}
_INT64 = range(-(1 << 63), 1 << 63)
_ARRAY_KINDS = "biufMm"  # booleans, numbers, times


class InvalidCellError(Exception):
    """The error for a value that cannot be converted; its message is the reason."""


def plain_value(value: Any, features: Sequence[DeclaredFeature]) -> Any:
    """Returns a NumPy array as a value that Arrow accepts, and other values unchanged.

    Raises:
      InvalidCellError: the array does not match the shape of one of the features.
    """
    if not isinstance(value, np.ndarray):
        return value
    if value.ndim == 0:
        return value.item()
    for feature in features:
        fits = value.ndim == len(feature.shape) and all(
            declared_side in (None, side)
            for declared_side, side in zip(feature.shape, value.shape, strict=True)
        )
        if value.ndim > 1 and not (feature.sequence or fits):
            raise InvalidCellError(
                f"an array of shape {list(value.shape)} does not fit shape "
                f"{format_shape(feature.shape)}"
            )
    nested = any(f.sequence or f.shape.count(None) > 1 for f in features)
    if nested or value.dtype.kind not in _ARRAY_KINDS:
        return value.tolist()
    return np.ascontiguousarray(value).reshape(-1)  # row-major


def form_of(value: Any) -> Form | None:
    """Returns the form of a value from `plain_value`; None if it is missing.

    Raises:
      InvalidCellError: a value of another type, or a list with several types.
    """
    if value is None:
        return None
    kind: type = type(value)
    leaf = _leaf_of(kind)
    if leaf is not None:
        return 0, _BY_VALUE[leaf]((value,)) if leaf in _BY_VALUE else leaf
    if isinstance(value, np.ndarray):
        return 1, value.dtype.newbyteorder("=").str
    if isinstance(value, list | tuple):
        depth, leaf = _form_inside(value)
        return depth + 1, leaf
    raise InvalidCellError(
        f"a value of type {type(value).__name__}; expected a bool, a number, text, "
        "bytes, a date or time, a list or a NumPy array"
    )


def array_of(values: Sequence[Any], form: Form, feature: DeclaredFeature) -> pa.Array:
    """Returns an array of plain values of one form; missing values are null.

    Empty lists have the type of the feature. Errors of Arrow about values are raised.
    """
    depth, leaf = form
    if not leaf:  # nested as deep as the values and at least as the feature
        inner, shape = inside_lists(feature_type(feature))
        return pa.array(values, lists_of(inner, (None,) * max(depth, len(shape))))
    if leaf not in _TYPES:
        return _lists_of_arrays(values, np.dtype(leaf))
    kind = _TYPES[leaf]
    if kind is None:
        return pa.array(values)
    return pa.array(values, lists_of(kind, (None,) * depth))


def _lists_of_arrays(values: Sequence[Any], dtype: np.dtype[Any]) -> pa.Array:
    arrays = [value for value in values if value is not None]
    inner = pa.array(np.concatenate(arrays).astype(dtype, copy=False))
    lengths = np.fromiter((0 if v is None else len(v) for v in values), np.int64)
    missing = pa.array([value is None for value in values])
    offsets = pa.array(offsets_of(lengths).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, inner, mask=missing)


@cache
def _leaf_of(kind: type) -> str | None:
    return next((_LEAVES[base] for base in kind.__mro__ if base in _LEAVES), None)


def _form_inside(values: Sequence[Any]) -> Form:
    """Returns the form that all elements of a list share."""
    if not values:
        return 0, ""
    kind: type = type(values[0])
    leaf = _leaf_of(kind)
    if leaf is not None and set(map(type, values)) == {kind}:  # fast path
        return 0, _BY_VALUE[leaf](values) if leaf in _BY_VALUE else leaf
    elements = (
        element.tolist() if isinstance(element, np.ndarray) else element
        for element in values
    )
    forms = {form for form in map(form_of, elements) if form is not None}
    depths = {depth for depth, leaf in forms}
    if len(depths) > 1:
        raise InvalidCellError(f"{shorten(values)} mixes lists and single values")
    leaves = {leaf for _, leaf in forms if leaf}
    return max(depths, default=0), _common_type(leaves, values)


def _common_type(leaves: set[str], values: Sequence[Any]) -> str:
    if len(leaves) < 2:
        return next(iter(leaves), "")
    if leaves <= {"int64", "uint64"}:
        return "uint64"
    if leaves <= {"int64", "uint64", "float"}:
        return "float"
    raise InvalidCellError(
        f"{shorten(values)} mixes values of type {', '.join(sorted(leaves))}"
    )


def _integers(values: Sequence[Any]) -> str:
    lowest, highest = int(min(values)), int(max(values))
    if lowest in _INT64 and highest in _INT64:
        return "int64"
    if lowest >= 0 and highest < 1 << 64:
        return "uint64"
    raise InvalidCellError(
        f"{shorten(highest if lowest >= 0 else lowest)} does not fit into 64 bits"
    )


def _datetimes(values: Iterable[dt.datetime]) -> str:
    has_zone, *mixed = {value.tzinfo is not None for value in values}
    if mixed:
        raise InvalidCellError("the list mixes times with and without a time zone")
    return "instant" if has_zone else "datetime"


_BY_VALUE: Mapping[str, Callable[[Sequence[Any]], str]] = {
    "int64": _integers,
    "datetime": _datetimes,
}


Row = Mapping[str, Any]

# The feature of a column that is used only for the split.
_SPLIT_FEATURE = DeclaredFeature.model_validate("string")


RowGroup = tuple[list[int], pa.RecordBatch | str]
"""Indices of rows with the same forms, and their batch, or the reason of a reject."""


class TableBuilder:
    """A converter of dicts to batches, each independent of the others."""

    def __init__(self, declared: DeclaredSchema, rule: SplitRule) -> None:
        self._features: dict[str, list[DeclaredFeature]] = {}
        for name, feature in declared.features.items():
            self._features.setdefault(declared.column_of(name), []).append(feature)
        self._rule = rule
        if rule.column is not None:
            self._features.setdefault(rule.column, [_SPLIT_FEATURE])

    def build(self, rows: Sequence[Row]) -> Iterator[RowGroup]:
        """Yields batches of the rows, with the columns of features and the split rule."""
        columns: dict[str, list[Any]] = {}
        forms: dict[str, list[Form | None]] = {}
        invalid_rows: dict[int, str] = {}
        for name, features in self._features.items():
            columns[name], forms[name] = [], []
            for index, row in enumerate(rows):
                try:
                    value = plain_value(row.get(name), features)
                    form = form_of(value)
                except InvalidCellError as error:
                    invalid_rows.setdefault(index, f"column {name!r}: {error}")
                    value = form = None
                columns[name].append(value)
                forms[name].append(form)
        self._require_groups(rows, forms)
        yield from (([index], invalid_rows[index]) for index in sorted(invalid_rows))
        for members, shared_forms in _group_by_form(forms, len(rows), invalid_rows):
            yield from self._tables(columns, members, shared_forms)

    def _tables(
        self,
        columns: Mapping[str, Sequence[Any]],
        members: list[int],
        forms: Mapping[str, Form],
    ) -> Iterator[RowGroup]:
        arrays = {}
        for name, features in self._features.items():
            values = [columns[name][index] for index in members]
            try:
                arrays[name] = (
                    array_of(values, forms[name], features[0])
                    if any(value is not None for value in values)
                    else pa.nulls(len(values))
                )
            except (ValueError, TypeError, OverflowError) as error:
                if len(members) == 1:
                    yield members, f"column {name!r}: {error}"
                    return
                for index in members:  # one by one, to find the rows that Arrow rejects
                    yield from self._tables(columns, [index], forms)
                return
        yield members, pa.RecordBatch.from_pydict(arrays)

    def _require_groups(
        self, rows: Sequence[Row], forms: Mapping[str, Sequence[Form | None]]
    ) -> None:
        rule = self._rule
        if rule.column is None:
            return
        for row, form in zip(rows, forms[rule.column], strict=True):
            # With a role, a row without a value for its split is a reject.
            if rule.role is None and rule.column not in row:
                raise UsageError(
                    f"{rule.option}={rule.column!r}: a row has no such key; it has "
                    f"{', '.join(map(repr, row))}"
                )
            if form is not None and form[0]:
                raise UsageError(
                    f"{rule.option}={rule.column!r}: a row has a list; expected a "
                    "single value"
                )


def _group_by_form(
    forms: Mapping[str, Sequence[Form | None]],
    num_rows: int,
    invalid_rows: Mapping[int, str],
) -> Iterator[tuple[list[int], dict[str, Form]]]:
    """Yields (row indices, form of each column) for rows that can share a batch.

    A missing value matches any form.
    """
    shared: dict[str, Form] = {}
    mixed: list[str] = []
    for name, column_forms in forms.items():
        kinds = {form for form in column_forms if form is not None}
        if len(kinds) == 1:
            shared[name] = kinds.pop()
        elif kinds:
            mixed.append(name)
    groups: dict[tuple[Form | None, ...], list[int]] = {}
    for index in range(num_rows):
        if index not in invalid_rows:
            key = tuple(forms[name][index] for name in mixed)
            groups.setdefault(key, []).append(index)
    for key, members in groups.items():
        mixed_forms = {
            n: form for n, form in zip(mixed, key, strict=True) if form is not None
        }
        yield members, shared | mixed_forms
