"""Reads the keys of one feature of many records as one Arrow column.

scalar                           a plain column of the feature's dtype
at most one unknown dimension    list<value>, all dimensions row by row
more unknown dimensions          nested lists (see encode/columns.py)
image, array                     binary
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, format_shape
from recordmill.schemas.proto.example_pb2 import BytesList
from recordmill.schemas.proto.tensor_pb2 import TensorProto
from recordmill.transforms.arrow import I64, U8, extract_binary, offsets_of
from recordmill.transforms.cast.text_values import ARROW_TYPES
from recordmill.transforms.decode.wire import (
    Mask,
    Spans,
    extract,
    gather,
    gather_words,
    read_int64,
    read_varints,
    unpack_varints,
)
from recordmill.transforms.encode.columns import list_depths, nest_values, wrong_counts
from recordmill.transforms.encode.row_errors import rows_of
from recordmill.transforms.encode.tensors import DATA_TYPES, tensor_head

_VALUE_TAG = 0x0A  # field 1, length-delimited: the values of a BytesList
# With so few records left, a loop over them is faster than array steps.
_FEW_RECORDS = 16


@dataclass(slots=True)
class DecodeErrors:
    """The records of one batch that are irregular or do not fit the schema."""

    # mask of the records that are damaged or not in the encoder's layout; their values
    # are undefined
    irregular: Mask
    # the first error of each invalid record, by record
    reasons: dict[int, str] = field(default_factory=dict)

    def add_errors(
        self, feature: FeatureSpec, rows: npt.NDArray[np.intp], problems: Iterable[str]
    ) -> None:
        """Adds problems with a feature's values, one for each of the rows.

        Rows may repeat; the first error of each record stays.
        """
        for row, problem in zip(rows.tolist(), problems, strict=True):
            self.reasons.setdefault(row, f"feature {feature.name!r}: {problem}")


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The values of one key in many records."""

    # the values of all records, concatenated: int64, float32 or, for bytes, an Arrow
    # binary array
    values: Any
    offsets: I64  # start of each record's values, and the end; int64, records + 1
    present: Mask  # mask of the records that have the key

    @property
    def counts(self) -> I64:
        """Returns the number of values in each record."""
        return np.diff(self.offsets)

    def drop_values(self, records: Mask) -> KeyValues:
        """Returns the same lists without the values of these records."""
        if not records.any():
            return self
        counts = self.counts
        kept_mask = np.repeat(~records, counts)
        if isinstance(self.values, pa.Array):
            values = self.values.filter(pa.array(kept_mask))
        else:
            values = self.values[kept_mask]
        offsets = offsets_of(np.where(records, 0, counts))
        return KeyValues(values, offsets, self.present)


def read_scalars(
    data: U8, spans: Spans, kind: Kind, findings: DecodeErrors
) -> KeyValues:
    """Reads payloads of exactly one value; all others are irregular."""
    present = spans.present
    if kind is Kind.BYTES:
        starts, lengths = spans.starts, spans.lengths
        if not present.all():
            starts, lengths = starts[present], lengths[present]
        values = extract_binary(data, starts, lengths)
        return KeyValues(values, offsets_of(present.astype(np.int64)), present)
    if kind is Kind.FLOAT:
        numbers = gather(data, spans.starts, 4).view("<f4").ravel()
        single = spans.lengths == 4
    else:
        numbers, lengths = read_int64(data, spans.starts)
        single = spans.lengths == lengths
    findings.irregular |= present & ~single
    with_value = present & single
    if not with_value.all():
        numbers = numbers[with_value]
    return KeyValues(numbers, offsets_of(with_value.astype(np.int64)), present)


def read_lists(data: U8, spans: Spans, kind: Kind, findings: DecodeErrors) -> KeyValues:
    """Reads payloads of any number of values."""
    if kind is Kind.BYTES:
        return _read_byte_lists(data, spans, findings)
    lengths = spans.lengths
    if kind is Kind.FLOAT:
        irregular = lengths % 4 != 0
        if irregular.any():
            findings.irregular |= irregular
            lengths = np.where(irregular, 0, lengths)
        packed, offsets = extract(data, spans.starts, lengths)
        values = packed[: int(offsets[-1])].view("<f4")
        return KeyValues(values, offsets // 4, spans.present)
    packed, offsets = extract(data, spans.starts, lengths)
    values, lists, irregular = unpack_varints(packed, offsets)
    if irregular.any():
        findings.irregular |= irregular
        lengths = np.where(irregular, 0, lengths)
        packed, offsets = extract(data, spans.starts, lengths)
        values, lists, _ = unpack_varints(packed, offsets)
    return KeyValues(values, lists, spans.present)


def _read_byte_lists(data: U8, spans: Spans, findings: DecodeErrors) -> KeyValues:
    """Reads the values of BytesLists; each step reads the next value of all records.

    Two records with the values "a", "bc" and "d", tag 0a:

        bytes     0a 01 61 0a 02 62 63 | 0a 01 64      starts [0, 7], ends [7, 10]
        step 1    rows [0, 1], value starts [2, 9], lengths [1, 1], positions [3, 10]
        step 2    rows [0],    value starts [5],    lengths [2],    positions [7]

    Sorted by record, the values are "a", "bc", "d". If only a few records have more
    values, the protobuf runtime reads these.
    """
    positions, ends = spans.starts.copy(), spans.starts + spans.lengths
    irregular = np.zeros(len(positions), np.bool_)
    rows = np.flatnonzero(positions < ends)
    row_parts: list[npt.NDArray[np.intp]] = []
    parts: list[pa.Array] = []
    while len(rows) > _FEW_RECORDS:
        words = gather_words(data, positions[rows]).ravel()
        lengths, sizes = read_varints(words >> np.uint64(8))
        starts = positions[rows] + 1 + sizes
        fits = (words & np.uint64(0xFF)) == _VALUE_TAG
        fits &= (starts <= ends[rows]) & (
            lengths <= (ends[rows] - starts).view(np.uint64)
        )
        irregular[rows[~fits]] = True
        rows, starts, sizes = rows[fits], starts[fits], lengths[fits].view(np.int64)
        row_parts.append(rows)
        parts.append(extract_binary(data, starts, sizes))
        positions[rows] = starts + sizes
        rows = rows[positions[rows] < ends[rows]]
    for row in rows.tolist():
        try:
            remaining_list = BytesList.FromString(
                data[positions[row] : ends[row]].tobytes()
            )
        except DecodeError:
            irregular[row] = True
            continue
        row_parts.append(np.full(len(remaining_list.value), row))
        parts.append(pa.array(remaining_list.value, pa.binary()))
    findings.irregular |= irregular
    of_row = np.concatenate([np.zeros(0, np.intp), *row_parts])
    values = pa.concat_arrays([pa.array([], pa.binary()), *parts])
    if len(row_parts) > 1:
        order = np.argsort(of_row, kind="stable")
        values, of_row = values.take(pa.array(order)), of_row[order]
    offsets = np.searchsorted(of_row, np.arange(len(positions) + 1))
    return KeyValues(values, offsets, spans.present).drop_values(irregular)


# The inverse of encode/columns.py, which describes the storage. Two records with
# the values [1, 2, 3] and [4], and the row lengths [2, 1] and [1]: the first one is
# [[1, 2], [3]], the second [[4]]. The list offsets are [0, 2, 3] at the outer level and
# [0, 2, 3, 4] at the inner one, over the flat values [1, 2, 3, 4].

_MAX_ROW = (1 << 31) - 1


def _join_ragged(
    flat: KeyValues,
    row_lengths: Sequence[KeyValues],
    feature: FeatureSpec,
    findings: DecodeErrors,
) -> tuple[KeyValues, list[I64]]:
    """Returns the flat values, and the offsets of the lists at every level.

    The outermost level comes first. Records whose keys contradict each other are empty in
    both.
    """
    invalid = np.zeros(len(flat.present), np.bool_)
    # The values in one element of the innermost ragged dimension.
    row_values = math.prod(
        size or 0 for size in feature.shape[feature.ragged_rank + 1 :]
    )
    shape = format_shape(feature.shape)

    def refuse(rows: npt.NDArray[np.intp], problems: Iterable[str]) -> None:
        findings.add_errors(feature, rows, problems)
        invalid[rows] = True

    def refuse_counts(rows: npt.NDArray[np.intp], counts: I64) -> None:
        refuse(
            rows, (f"a list of {size} does not fit shape {shape}" for size in counts)
        )

    for lists in row_lengths:
        lacking = np.flatnonzero(lists.present != flat.present)
        missing = f"some of its keys {list(feature.keys)} are missing"
        refuse(lacking, [missing] * len(lacking))
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
        sums_and_counts = zip(sums[rows], counts[rows], strict=True)
        text = f"row lengths {level} sum to {{}}, but there are {{}}"
        refuse(rows, [text.format(*sum_and_count) for sum_and_count in sums_and_counts])
    # Emptied, so that the offsets of all other records are correct.
    flat = flat.drop_values(invalid)
    row_lengths = [lists.drop_values(invalid) for lists in row_lengths]
    levels = [row_lengths[0].offsets]
    levels += [offsets_of(lists.values) for lists in row_lengths]
    levels[-1] = levels[-1] * row_values
    return flat, levels


# The output of tf.io.serialize_tensor for int16 [7, 8]:
#
#     08 05 | 12 04  12 02 08 02 | 22 04  07 00 08 00
#     dtype   shape: one Dim of 2  content of 4 bytes
#
# The head before the content has type and shape. Each distinct head is parsed once by the
# protobuf runtime. A tensor with a known head and the same length is not parsed.

_DTYPES = {number: name for name, number in DATA_TYPES.items() if name != "bytes"}


def _read_tensors(
    lists: KeyValues, feature: FeatureSpec, findings: DecodeErrors
) -> tuple[KeyValues, I64]:
    """Reads serialized tensors; returns their values and dimensions, (records, rank)."""
    is_text = feature.dtype in ("string", "bytes")
    item_dtype = np.dtype("u1" if is_text else feature.dtype).newbyteorder("<")
    rows: list[int] = []
    shapes: list[tuple[int, ...]] = []
    texts: list[bytes] = []
    contents: list[bytes] = []
    heads: dict[int, tuple[bytes, tuple[int, ...]]] = {}  # the last one, by length
    for row, data in zip(
        np.flatnonzero(lists.present).tolist(), lists.values.to_pylist(), strict=True
    ):
        head, shape = heads.get(len(data), (b"", ()))
        if head and data.startswith(head):
            contents.append(data[len(head) :])
        else:
            try:
                tensor = _read_tensor(data)
                problem = _tensor_problem(tensor, feature)
            except ValueError as error:
                problem = f"not a valid tensor: {error}"
            if problem:
                findings.add_errors(feature, np.array([row]), [problem])
                continue
            shape = tensor.shape
            if isinstance(tensor.values, list):
                texts += tensor.values
            else:
                content = tensor.values.astype(item_dtype).tobytes()
                contents.append(content)
                head = tensor_head(tensor.dtype, shape)
                if data == head + content:
                    heads[len(data)] = head, shape
        rows.append(row)
        shapes.append(shape)
    counts = np.zeros(len(lists.present), np.int64)
    dims = np.zeros((len(counts), len(feature.shape)), np.int64)
    if rows:
        dims[rows] = shapes
        counts[rows] = dims[rows].prod(axis=1)
    values: Any = pa.array(texts, pa.binary())
    if not is_text:
        values = np.frombuffer(b"".join(contents), item_dtype)
        values = values != 0 if feature.dtype == "bool" else values
    return KeyValues(values, offsets_of(counts), lists.present), dims


def _tensor_problem(tensor: _Tensor, feature: FeatureSpec) -> str:
    """Returns the problem of a tensor of the wrong type or shape, or ""."""
    fits = len(tensor.shape) == len(feature.shape) and all(
        expected in (None, actual)
        for expected, actual in zip(feature.shape, tensor.shape, strict=True)
    )
    if fits and tensor.dtype == feature.dtype.replace("bytes", "string"):
        return ""
    return (
        f"tensor of {tensor.dtype} of shape {list(tensor.shape)}, expected "
        f"{feature.dtype} of shape {format_shape(feature.shape)}"
    )


class _Tensor(NamedTuple):
    """One tensor."""

    dtype: str  # NumPy's name of its type, or "string"
    shape: tuple[int, ...]  # its dimensions
    values: npt.NDArray[Any] | list[bytes]  # its flat values


def _read_tensor(data: bytes) -> _Tensor:
    """Reads a TensorProto in the form of tf.io.serialize_tensor.

    Raises:
      ValueError: the tensor is invalid; the message has the reason.
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
        if len(proto.string_val) != size:
            raise ValueError(
                f"it has {len(proto.string_val)} values in string_val, but shape "
                f"{list(shape)} needs {size}"
            )
        return _Tensor(dtype, shape, list(proto.string_val))
    item_dtype = np.dtype(dtype).newbyteorder("<")
    if len(proto.tensor_content) != size * item_dtype.itemsize:
        raise ValueError(
            f"it has {len(proto.tensor_content)} bytes in tensor_content, but shape "
            f"{list(shape)} of {dtype} needs {size * item_dtype.itemsize}"
        )
    # A view as bool would keep bytes other than 0 and 1.
    if dtype == "bool":
        return _Tensor(dtype, shape, np.frombuffer(proto.tensor_content, "u1") != 0)
    return _Tensor(dtype, shape, np.frombuffer(proto.tensor_content, item_dtype))


def has_single_value(feature: FeatureSpec) -> bool:
    """Checks whether the feature has exactly one stored value."""
    return not feature.shape or feature.content is not Content.VALUES


def check_feature(feature: FeatureSpec) -> None:
    """Raises SchemaError if a feature's kind cannot store its dtype."""
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
    data: U8, feature: FeatureSpec, spans: Sequence[Spans], findings: DecodeErrors
) -> pa.Array:
    """Reads a feature's column from the padded bytes of records.

    `spans` has the spans of each of the feature's keys. Errors are added to `findings`;
    the content of rows with an error is undefined.
    """
    if feature.is_ragged:
        flat = read_lists(data, spans[0], feature.kind, findings)
        rows = [read_lists(data, span, Kind.INT64, findings) for span in spans[1:]]
        flat, levels = _join_ragged(flat, rows, feature, findings)
        return nest_values(_cast_leaf(flat, feature, findings), levels, flat.present)
    (span,) = spans
    if feature.content is Content.TENSOR:
        lists = read_scalars(data, span, feature.kind, findings)
        lists, dims = _read_tensors(lists, feature, findings)
        leaf = _cast_leaf(lists, feature, findings)
        if not feature.shape:
            return _scalar_column(leaf, lists)
        return nest_values(leaf, _list_offsets(dims, feature), lists.present)
    if has_single_value(feature):
        lists = read_scalars(data, span, feature.kind, findings)
        if feature.content is Content.ARRAY:
            problem = f"bytes are not an array of {feature.dtype} of shape"
            item_bytes = np.dtype(feature.dtype).itemsize
            _check_sizes(
                span.lengths, item_bytes, problem, span.present, feature, findings
            )
        return _scalar_column(_cast_leaf(lists, feature, findings), lists)
    lists = read_lists(data, span, feature.kind, findings)
    problem = "values do not fit shape"
    _check_sizes(lists.counts, 1, problem, lists.present, feature, findings)
    return nest_values(
        _cast_leaf(lists, feature, findings), [lists.offsets], lists.present
    )


def _cast_leaf(
    lists: KeyValues, feature: FeatureSpec, findings: DecodeErrors
) -> pa.Array:
    """Returns all values in the type of the feature's column."""
    values = lists.values
    if feature.dtype == "string":
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        # A loop over the values, only if some text is not UTF-8.
        texts = [value.decode(errors="replace") for value in values.to_pylist()]
        texts_and_bytes = zip(texts, values.to_pylist(), strict=True)
        bad = np.flatnonzero(
            [text.encode() != value for text, value in texts_and_bytes]
        )
        samples = (values[index].as_py()[:24] for index in bad.tolist())
        problems = (f"{sample!r} is not UTF-8" for sample in samples)
        findings.add_errors(feature, rows_of(bad, lists.offsets), problems)
        return pa.array(texts, pa.string())
    if isinstance(values, pa.Array):
        return values
    arrow_type = ARROW_TYPES[feature.dtype]
    cast, invalid = _cast(values, np.dtype(feature.dtype))
    if invalid is not None and invalid.any():
        bad = np.flatnonzero(invalid)
        problems = (
            f"{value!s} is not a valid {feature.dtype}" for value in values[bad]
        )
        findings.add_errors(feature, rows_of(bad, lists.offsets), problems)
    return pa.array(cast, arrow_type)


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
    low, high = 0, 1
    if dtype != np.bool_:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if values.dtype == np.float32:
        # float32 cannot represent `high`, but it can represent high + 1, a power of two.
        bad = ~((values >= np.float32(low)) & (values < np.float32(high + 1)))
        with np.errstate(invalid="ignore"):  # a signalling NaN
            bad |= values != np.trunc(values)
        return np.where(bad, np.float32(0), values).astype(dtype), bad
    bad = (values < low) | (values > min(high, np.iinfo(np.int64).max))
    return values.astype(dtype), bad


def _scalar_column(leaf: pa.Array, lists: KeyValues) -> pa.Array:
    """Returns one value for each row; null if the record has none."""
    if len(leaf) == len(lists.present):
        return leaf
    return leaf.take(pa.array(lists.offsets[:-1], mask=lists.counts == 0))


def _check_sizes(
    sizes: I64,
    item_size: int,
    problem: str,
    present: Mask,
    feature: FeatureSpec,
    findings: DecodeErrors,
) -> None:
    """Adds errors for sizes that do not fit a shape with at most one unknown side."""
    shape = feature.shape
    rows = np.flatnonzero(present & wrong_counts(sizes, shape, item_size))
    problems = (f"{size} {problem} {format_shape(shape)}" for size in sizes[rows])
    findings.add_errors(feature, rows, problems)


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
