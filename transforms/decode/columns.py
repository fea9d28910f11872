"""Reads the keys of one feature in many records as one Arrow column.

scalar                           a plain column of the feature's dtype
at most one unknown dimension    list<value>, all dimensions row by row
more unknown dimensions          nested lists (see encode/arrow_types.py)
image, array                   binary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, shape_text
from recordmill.schemas.proto.tensor_pb2 import TensorProto
from recordmill.transforms.arrow import I64, U8, offsets_of
from recordmill.transforms.cast.text_values import ARROW_TYPES
from recordmill.transforms.decode.wire import (
    Mask,
    Spans,
    extract,
    extract_binary,
    gather,
    gather_words,
    read_int64,
    read_varints,
    unpack_varints,
    validity,
)
from recordmill.transforms.encode.column_types import list_depths
from recordmill.transforms.encode.row_errors import rows_of
from recordmill.transforms.encode.tensors import DATA_TYPES

VALUE_TAG = 0x0A  # field 1, length-delimited: the values of a BytesList
# With so few records left, a loop over them is faster than array steps.
_FEW_RECORDS = 16


@dataclass(slots=True)
class Findings:
    """The records of one batch that are irregular or do not fit the schema.

    Attributes:
      irregular: mask of the records that are damaged or not in the encoder's layout;
        their values are undefined.
      reasons: the first error of each invalid record, by record.
    """

    irregular: Mask
    reasons: dict[int, str] = field(default_factory=dict)

    def refuse(
        self,
        feature: FeatureSpec,
        rows: npt.NDArray[np.intp],
        describe: Callable[[int], str],
    ) -> None:
        """Adds errors of these records, except of those that have one.

        Args:
          feature: the feature with invalid values.
          rows: record indices; may repeat.
          describe: returns what was found, given an index into `rows`.
        """
        for index, row in enumerate(rows.tolist()):
            if row not in self.reasons:
                self.reasons[row] = f"feature {feature.name!r}: {describe(index)}"


@dataclass(frozen=True, slots=True)
class Lists:
    """The values of one key in many records.

    Attributes:
      values: the values of all records, concatenated: int64, float32 or, for bytes, an
        Arrow binary array.
      offsets: where each record's values start, and the end; int64, records + 1.
      present: mask of the records that have the key.
    """

    values: Any
    offsets: I64
    present: Mask

    @property
    def counts(self) -> I64:
        """Returns the number of values in each record."""
        return np.diff(self.offsets)

    def without(self, records: Mask) -> Lists:
        """Returns the same lists without the values of these records."""
        if not records.any():
            return self
        counts = self.counts
        kept = np.repeat(~records, counts)
        if isinstance(self.values, pa.Array):
            values = self.values.filter(pa.array(kept))
        else:
            values = self.values[kept]
        offsets = offsets_of(np.where(records, 0, counts))
        return Lists(values, offsets, self.present)


def read_scalars(data: U8, spans: Spans, kind: Kind, found: Findings) -> Lists:
    """Reads payloads of exactly one value; all others are irregular."""
    present = spans.present
    if kind is Kind.BYTES:
        starts, lengths = spans.starts, spans.lengths
        if not present.all():
            starts, lengths = starts[present], lengths[present]
        values = extract_binary(data, starts, lengths)
        return Lists(values, offsets_of(present.astype(np.int64)), present)
    if kind is Kind.FLOAT:
        numbers = gather(data, spans.starts, 4).view("<f4").ravel()
        single = spans.lengths == 4
    else:
        numbers, lengths = read_int64(data, spans.starts)
        single = spans.lengths == lengths
    found.irregular |= present & ~single
    with_value = present & single
    if not with_value.all():
        numbers = numbers[with_value]
    return Lists(numbers, offsets_of(with_value.astype(np.int64)), present)


def read_lists(data: U8, spans: Spans, kind: Kind, found: Findings) -> Lists:
    """Reads payloads of any number of values."""
    if kind is Kind.BYTES:
        return read_byte_values(data, spans, VALUE_TAG, found)
    lengths = spans.lengths
    if kind is Kind.FLOAT:
        irregular = lengths % 4 != 0
        if irregular.any():
            found.irregular |= irregular
            lengths = np.where(irregular, 0, lengths)
        packed, offsets = extract(data, spans.starts, lengths)
        values = packed[: int(offsets[-1])].view("<f4")
        return Lists(values, offsets // 4, spans.present)
    packed, offsets = extract(data, spans.starts, lengths)
    values, lists, irregular = unpack_varints(packed, offsets)
    if irregular.any():
        found.irregular |= irregular
        lengths = np.where(irregular, 0, lengths)
        packed, offsets = extract(data, spans.starts, lengths)
        values, lists, _ = unpack_varints(packed, offsets)
    return Lists(values, lists, spans.present)


def read_byte_values(data: U8, spans: Spans, tag: int, found: Findings) -> Lists:
    """Reads payloads that are a series of length-delimited fields with one tag.

    Each step reads the next value of all records that have one. Two records with the
    values "a", "bc" and "d", tag 0a:

        bytes     0a 01 61 0a 02 62 63 | 0a 01 64      starts [0, 7], ends [7, 10]
        step 1    rows [0, 1], value starts [2, 9], lengths [1, 1], positions [3, 10]
        step 2    rows [0],    value starts [5],    lengths [2],    positions [7]

    Counts are [2, 1], offsets [0, 2, 3], values "a", "bc", "d". The last few records
    are read by a loop instead of steps.
    """
    positions = spans.starts.copy()
    ends = spans.starts + spans.lengths
    irregular = np.zeros(len(positions), np.bool_)
    counts = np.zeros(len(positions), np.int64)
    rows = np.flatnonzero(positions < ends)
    taken: list[tuple[npt.NDArray[np.intp], I64, I64, I64]] = []
    while len(rows) > _FEW_RECORDS:
        words = gather_words(data, positions[rows]).ravel()
        lengths, sizes = read_varints(words >> np.uint64(8))
        starts = positions[rows] + 1 + sizes
        fits = (words & np.uint64(0xFF)) == tag
        fits &= (starts <= ends[rows]) & (
            lengths <= (ends[rows] - starts).view(np.uint64)
        )
        irregular[rows[~fits]] = True
        rows, starts = rows[fits], starts[fits]
        value_lengths = lengths[fits].view(np.int64)
        taken.append((rows, counts[rows], starts, value_lengths))
        counts[rows] += 1
        positions[rows] = starts + value_lengths
        rows = rows[positions[rows] < ends[rows]]
    for row in rows.tolist():
        starts, value_lengths = _scan(data, int(positions[row]), int(ends[row]), tag)
        irregular[row] = (
            int(starts[-1] + value_lengths[-1]) != ends[row] if len(starts) else True
        )
        nth = counts[row] + np.arange(len(starts))
        taken.append((np.full(len(starts), row), nth, starts, value_lengths))
        counts[row] += len(starts)
    counts[irregular] = 0
    offsets = offsets_of(counts)
    starts = np.empty(int(offsets[-1]), np.int64)
    value_lengths = np.empty(int(offsets[-1]), np.int64)
    for rows, nth, some_starts, some_lengths in taken:
        kept = ~irregular[rows]
        index = (offsets[rows] + nth)[kept]
        starts[index] = some_starts[kept]
        value_lengths[index] = some_lengths[kept]
    found.irregular |= irregular
    values = extract_binary(data, starts, value_lengths)
    return Lists(values, offsets, spans.present)


def _scan(data: U8, position: int, end: int, tag: int) -> tuple[I64, I64]:
    """Returns starts and lengths of one record's values, until an irregular one."""
    starts, lengths = [], []
    view = data.data
    while position < end and view[position] == tag:
        position, shift, length = position + 1, 0, 0
        while position < end and shift <= 28:
            byte = view[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        else:
            break
        if length > end - position:
            break
        starts.append(position)
        lengths.append(length)
        position += length
    return np.array(starts, np.int64), np.array(lengths, np.int64)


# The inverse of encode/ragged.py, which describes how they are stored. Two records with
# the values [1, 2, 3] and [4], and the row lengths [2, 1] and [1]: the first one is
# [[1, 2], [3]], the second [[4]]. The list offsets are [0, 2, 3] at the outer level and
# [0, 2, 3, 4] at the inner one, over the flat values [1, 2, 3, 4].

_MAX_ROW = (1 << 31) - 1


def _join_ragged(
    flat: Lists, row_lengths: Sequence[Lists], feature: FeatureSpec, found: Findings
) -> tuple[Lists, list[I64]]:
    """Joins the values and the row lengths of every record.

    Returns:
      The flat values, and the offsets of the lists at every level, outermost first.
      Records whose keys contradict each other are empty in both.
    """
    invalid = np.zeros(len(flat.present), np.bool_)
    # Of one item of the innermost ragged dimension.
    row_values = math.prod(
        size or 0 for size in feature.shape[feature.ragged_rank + 1 :]
    )

    def refuse(rows: npt.NDArray[np.intp], describe: Callable[[int], str]) -> None:
        found.refuse(feature, rows, describe)
        invalid[rows] = True

    def refuse_counts(rows: npt.NDArray[np.intp], counts: I64) -> None:
        shape = shape_text(feature.shape)
        refuse(rows, lambda i: f"a list of {counts[i]} does not fit shape {shape}")

    for lists in row_lengths:
        lacking = np.flatnonzero(lists.present != flat.present)
        refuse(lacking, lambda _: f"some of its keys {list(feature.keys)} are missing")
    counts = row_lengths[0].counts
    if feature.shape[0] is not None:
        rows = np.flatnonzero(flat.present & (counts != feature.shape[0]))
        refuse_counts(rows, counts[rows])
    for level, lists in enumerate(row_lengths):
        size = feature.shape[level + 1]
        wrong = (lists.values < 0) | (lists.values > _MAX_ROW)
        if size is not None:
            wrong |= lists.values != size
        indices = np.flatnonzero(wrong)
        refuse_counts(rows_of(indices, lists.offsets), lists.values[indices])
        total = offsets_of(np.where(wrong, 0, lists.values))
        sums = total[lists.offsets[1:]] - total[lists.offsets[:-1]]
        if level + 1 < len(row_lengths):
            counts = row_lengths[level + 1].counts
        else:
            counts, sums = flat.counts, sums * row_values
        rows = np.flatnonzero(sums != counts)
        refuse(
            rows,
            partial(_describe_sum, sums[rows], counts[rows], level),
        )
    # Emptied, so that the offsets of all other records are correct.
    flat = flat.without(invalid)
    row_lengths = [lists.without(invalid) for lists in row_lengths]
    levels = [row_lengths[0].offsets]
    levels += [offsets_of(lists.values) for lists in row_lengths]
    levels[-1] = levels[-1] * row_values
    return flat, levels


def _describe_sum(sums: I64, counts: I64, level: int, index: int) -> str:
    return f"row lengths {level} sum to {sums[index]}, but there are {counts[index]}"


#     TensorProto       08 dtype | 12 len TensorShapeProto | 22 len content
#                       strings: 42 len bytes for each, instead of the content
#     TensorShapeProto  (12 len Dim)*       Dim  08 varint size, omitted if 0
#
# This is what tf.io.serialize_tensor writes. For example, int16 [7, 8]:
#
#     08 05 | 12 04  12 02 08 02 | 22 04  07 00 08 00
#     dtype   shape: one Dim of 2  content of 4 bytes
#
# Other layouts, as tf.make_tensor_proto uses for few values, are read by `read_tensor`,
# one tensor at a time.
#
# Source: tensorflow/core/framework/{tensor,tensor_shape,types}.proto.

_DTYPES = {number: name for name, number in DATA_TYPES.items() if name != "bytes"}
_MAX_FILLED = 1 << 24  # limit of values that a (damaged) shape may repeat from one
_STRING_TAG = 0x42
_CONTENT_TAG = 0x22


def _read_tensors(
    data: U8, spans: Spans, feature: FeatureSpec, found: Findings
) -> tuple[Lists, I64]:
    """Reads the tensors of a feature, as tf.io.serialize_tensor writes them.

    Those of another type, rank or layout are irregular.

    Returns:
      The values, and the dimensions as an array of shape (records, rank).
    """
    own = Findings(np.zeros(len(spans.starts), np.bool_))
    dims, spans = _read_header(data, spans, feature, own)
    if feature.dtype in ("string", "bytes"):
        lists = read_byte_values(data, spans, _STRING_TAG, own)
    else:
        lists = _read_content(data, spans, feature.dtype, own)
    # As floats: a product beyond 64 bits must not wrap around to a small number.
    num_values = dims.astype(np.float64).prod(axis=1)
    irregular = own.irregular | (spans.present & (lists.counts != num_values))
    if irregular.any():
        found.irregular |= irregular
        dims[irregular] = 0
        lists = lists.without(irregular)
    return lists, dims


def _read_header(
    data: U8, spans: Spans, feature: FeatureSpec, found: Findings
) -> tuple[I64, Spans]:
    """Returns the dimensions, and the spans after them."""
    ends = spans.starts + spans.lengths
    words = gather_words(data, spans.starts).ravel()
    head = 0x12_00_08 | (DATA_TYPES[feature.dtype] << 8)
    shape_lengths, sizes = read_varints(words >> np.uint64(24))
    positions = spans.starts + 3 + sizes
    fits = spans.present & ((words & np.uint64(0xFFFFFF)) == head) & (sizes <= 5)
    shape_ends = positions + shape_lengths.view(np.int64)
    fits &= shape_ends <= ends
    dims = np.zeros((len(positions), len(feature.shape)), np.int64)
    for axis in range(len(feature.shape)):
        positions = np.where(fits, positions, spans.starts)
        words = gather_words(data, positions).ravel()
        dim_lengths = ((words >> np.uint64(8)) & np.uint64(0xFF)).view(np.int64)
        values, sizes = read_varints(words >> np.uint64(24))
        known = dim_lengths > 0
        fits &= (words & np.uint64(0xFF)) == 0x12
        fits &= ~known | (
            (((words >> np.uint64(16)) & np.uint64(0xFF)) == 0x08)
            & (dim_lengths == sizes + 1)
            & (sizes <= 5)
        )
        positions = positions + 2 + dim_lengths
        fits &= positions <= shape_ends
        dims[:, axis] = np.where(fits & known, values, np.uint64(0))
        if feature.shape[axis] is not None:
            fits &= dims[:, axis] == feature.shape[axis]
    fits &= positions == shape_ends
    found.irregular |= spans.present & ~fits
    starts = np.where(fits, positions, ends)
    return dims, Spans(starts, ends - starts, spans.present)


def _read_content(data: U8, spans: Spans, dtype: str, found: Findings) -> Lists:
    """Reads the content field after the dimensions; an empty tensor has none."""
    words = gather_words(data, spans.starts).ravel()
    lengths, sizes = read_varints(words >> np.uint64(8))
    filled = spans.lengths > 0
    starts = spans.starts + np.where(filled, 1 + sizes, 0)
    content = np.where(filled, lengths.view(np.int64), 0)
    item = np.dtype(dtype).newbyteorder("<")
    irregular = starts + content != spans.starts + spans.lengths
    irregular |= filled & ((words & np.uint64(0xFF)) != _CONTENT_TAG)
    irregular |= content % item.itemsize != 0
    starts = np.where(irregular, spans.starts, starts)
    packed, offsets = extract(data, starts, np.where(irregular, 0, content))
    numbers = packed[: int(offsets[-1])]
    values = numbers != 0 if dtype == "bool" else numbers.view(item)
    found.irregular |= irregular
    return Lists(values, offsets // item.itemsize, spans.present)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor.

    Attributes:
      dtype: NumPy's name of its type, or "string".
      shape: its dimensions.
      values: its flat values.
    """

    dtype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any] | list[bytes]

    def to_bytes(self) -> bytes:
        """Serializes the tensor as tf.io.serialize_tensor does."""
        proto = TensorProto(dtype=DATA_TYPES[self.dtype])
        proto.tensor_shape.SetInParent()
        for size in self.shape:
            proto.tensor_shape.dim.add(size=size)
        if isinstance(self.values, list):
            proto.string_val.extend(self.values)
        else:
            little = self.values.dtype.newbyteorder("<")
            proto.tensor_content = self.values.astype(little).tobytes()
        return proto.SerializeToString(deterministic=True)


def read_tensor(data: bytes) -> Tensor:
    """Reads any TensorProto of a type that a feature can have.

    Raises:
      ValueError: it is not a valid tensor; the message says why.
    """
    try:
        proto = TensorProto.FromString(data)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    dtype = _DTYPES.get(proto.dtype)
    if dtype is None:
        raise ValueError(f"tensorflow.DataType {proto.dtype} is not supported")
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise ValueError("its shape has unknown dimensions")
    size = math.prod(shape)
    if dtype == "string":
        return Tensor(dtype, shape, _strings(proto, size))
    if not proto.tensor_content:
        return Tensor(dtype, shape, _loose_values(proto, dtype, size))
    item = np.dtype(dtype).newbyteorder("<")
    if len(proto.tensor_content) != size * item.itemsize:
        raise ValueError(
            f"it has {len(proto.tensor_content)} bytes, but shape {list(shape)} of "
            f"{dtype} needs {size * item.itemsize}"
        )
    # A view as NumPy's bool would keep bytes other than 0 and 1.
    if dtype == "bool":
        return Tensor(dtype, shape, np.frombuffer(proto.tensor_content, "u1") != 0)
    return Tensor(dtype, shape, np.frombuffer(proto.tensor_content, item))


def _strings(proto: TensorProto, size: int) -> list[bytes]:
    if proto.tensor_content:
        raise ValueError("its strings are in tensor_content, expected string_val")
    return _fill(list(proto.string_val), size, b"")


def _loose_values(proto: TensorProto, dtype: str, size: int) -> npt.NDArray[Any]:
    """Reads the values of a tensor that stores them one by one, not as content."""
    values = _fill(list(getattr(proto, _VALUE_FIELDS[dtype])), size, 0)
    if dtype == "float16":  # stored as the 16 bits of each value
        return np.array(values, np.int64).astype(np.uint16).view(np.float16)
    wide = {"f": np.float64, "b": np.bool_}.get(np.dtype(dtype).kind, np.int64)
    return np.array(values, np.uint64 if dtype == "uint64" else wide).astype(dtype)


def _fill(values: list[Any], size: int, default: Any) -> list[Any]:
    """Repeats the last value for all omitted ones, as TensorFlow does."""
    if size > max(len(values), _MAX_FILLED):
        raise ValueError(f"it has {len(values)} values, but its shape needs {size}")
    last = values[-1] if values else default
    return values[:size] + [last] * (size - len(values))


_VALUE_FIELDS = {
    **dict.fromkeys(("int32", "int16", "int8", "uint16", "uint8"), "int_val"),
    "float32": "float_val",
    "float64": "double_val",
    "float16": "half_val",
    "int64": "int64_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
}


def check_feature(feature: FeatureSpec) -> None:
    """Checks that the feature's kind can store its dtype.

    Raises:
      SchemaError: it cannot.
    """
    text = feature.dtype in ("string", "bytes")
    in_bytes = feature.kind is Kind.BYTES
    if feature.content is not Content.VALUES:
        fits = in_bytes
    elif feature.kind is Kind.INT64:
        fits = feature.dtype == "bool" or "int" in feature.dtype
    else:
        fits = text == in_bytes
    if feature.dtype not in ARROW_TYPES or not fits:
        raise SchemaError(
            f"feature {feature.name!r}: {feature.kind} cannot store {feature.content} of "
            f"{feature.dtype}"
        )


def read_column(
    data: U8, feature: FeatureSpec, spans: Sequence[Spans], found: Findings
) -> pa.Array:
    """Reads a feature's column.

    Args:
      data: the padded bytes of the records.
      feature: the feature to read.
      spans: the payload's span for each of the feature's keys.
      found: collects errors; the content of rows with an error is undefined.
    """
    if feature.is_ragged:
        flat = read_lists(data, spans[0], feature.kind, found)
        rows = [read_lists(data, span, Kind.INT64, found) for span in spans[1:]]
        flat, levels = _join_ragged(flat, rows, feature, found)
        return nest(_leaf(flat, feature, found), levels, flat.present)
    (span,) = spans
    if feature.content is Content.TENSOR:
        lists, dims = _read_tensors(data, span, feature, found)
        leaf = _leaf(lists, feature, found)
        if not feature.shape:
            return _one_per_row(leaf, lists)
        return nest(leaf, _list_offsets(dims, feature), lists.present)
    if not feature.shape or feature.content is not Content.VALUES:
        lists = read_scalars(data, span, feature.kind, found)
        if feature.content is Content.ARRAY:
            _check_array(span, feature, found)
        return _one_per_row(_leaf(lists, feature, found), lists)
    lists = read_lists(data, span, feature.kind, found)
    _check_counts(lists, feature, found)
    return nest(_leaf(lists, feature, found), [lists.offsets], lists.present)


def _leaf(lists: Lists, feature: FeatureSpec, found: Findings) -> pa.Array:
    """Returns all values in the type of the feature's column."""
    values = lists.values
    if feature.dtype == "string":
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        # A loop over the values only if some text is not UTF-8.
        texts = [_text(value) for value in values.to_pylist()]
        bad = np.flatnonzero([text is None for text in texts])
        samples = [values[index].as_py() for index in bad.tolist()]
        found.refuse(
            feature,
            rows_of(bad, lists.offsets),
            lambda index: f"{samples[index][:24]!r} is not UTF-8",
        )
        return pa.array([text or "" for text in texts], pa.string())
    if isinstance(values, pa.Array):
        return values
    arrow_type = ARROW_TYPES[feature.dtype]
    cast, invalid = _cast(values, np.dtype(feature.dtype))
    if invalid is not None and invalid.any():
        indices = np.flatnonzero(invalid)
        found.refuse(
            feature,
            rows_of(indices, lists.offsets),
            lambda index: f"{values[indices[index]]!s} is not a valid {feature.dtype}",
        )
    return pa.array(cast, arrow_type)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _cast(
    values: npt.NDArray[Any], dtype: np.dtype[Any]
) -> tuple[npt.NDArray[Any], Mask | None]:
    """Returns the values in this dtype, and a mask of the invalid ones (None: none)."""
    widens = values.dtype == np.float32 and dtype == np.float64
    if widens or values.dtype == dtype:
        return values.astype(dtype, copy=False), None
    if dtype == np.float16:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = values.astype(np.float16)
        return cast, (cast != values) & ~np.isnan(values)
    low, high = (0, 1) if dtype == np.bool_ else _limits(dtype)
    if values.dtype == np.float32:
        # `high` itself has no float32, but high + 1 is a power of two, so it has one.
        bad = ~((values >= np.float32(low)) & (values < np.float32(high + 1)))
        with np.errstate(invalid="ignore"):  # a signalling NaN
            bad |= values != np.trunc(values)
        return np.where(bad, np.float32(0), values).astype(dtype), bad
    bad = (values < low) | (values > min(high, np.iinfo(np.int64).max))
    return values.astype(dtype), bad


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _one_per_row(leaf: pa.Array, lists: Lists) -> pa.Array:
    """Returns one value for each row; null where the record has none."""
    if len(leaf) == len(lists.present):
        return leaf
    return leaf.take(pa.array(lists.offsets[:-1], mask=lists.counts == 0))


def nest(leaf: pa.Array, levels: list[I64], present: Mask) -> pa.Array:
    """Wraps the values in lists.

    Args:
      leaf: the values.
      levels: offsets of each level of lists (lists + 1), outermost first.
      present: mask of the outermost lists that are not null.
    """
    array = leaf
    for level, offsets in reversed(list(enumerate(levels))):
        bitmap = validity(present) if level == 0 else None
        array = pa.Array.from_buffers(
            pa.list_(array.type),
            len(offsets) - 1,
            [bitmap, pa.py_buffer(offsets.astype(np.int32))],
            children=[array],
        )
    return array


def _check_counts(lists: Lists, feature: FeatureSpec, found: Findings) -> None:
    """Checks that each record's values fill a shape with at most one unknown size."""
    counts = lists.counts
    wrong = lists.present & _wrong_counts(counts, feature.shape)
    rows = np.flatnonzero(wrong)
    found.refuse(
        feature,
        rows,
        lambda index: (
            f"{counts[rows[index]]} values do not fit shape {shape_text(feature.shape)}"
        ),
    )


def _check_array(span: Spans, feature: FeatureSpec, found: Findings) -> None:
    item_bytes = np.dtype(feature.dtype).itemsize
    wrong = span.lengths % item_bytes != 0
    wrong |= _wrong_counts(span.lengths // item_bytes, feature.shape)
    rows = np.flatnonzero(span.present & wrong)
    found.refuse(
        feature,
        rows,
        lambda index: (
            f"{span.lengths[rows[index]]} bytes are not an array of {feature.dtype} of "
            f"shape {shape_text(feature.shape)}"
        ),
    )


def _wrong_counts(counts: I64, shape: tuple[int | None, ...]) -> Mask:
    """Returns a mask of the counts of values that do not fill the shape."""
    known = math.prod(size for size in shape if size is not None)
    rest = counts - known if None not in shape else counts
    if None in shape and known:
        rest = counts % known
    wrong: Mask = rest != 0
    return wrong


def _list_offsets(dims: I64, feature: FeatureSpec) -> list[I64]:
    """Returns the offsets of the nested lists for tensors of these dimensions."""
    depth, _ = list_depths(feature, of_bytes=False)
    levels = []
    num_lists = np.ones(len(dims), np.int64)  # of each record, at this level
    for level in range(depth):
        sizes = dims[:, level] if level < depth - 1 else dims[:, level:].prod(axis=1)
        levels.append(offsets_of(np.repeat(sizes, num_lists)))
        num_lists = num_lists * sizes
    return levels
