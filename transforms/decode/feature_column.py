"""Reads the keys of one feature in many records as one Arrow column.

scalar                           a plain column of the feature's dtype
at most one unknown dimension    list<value>, all dimensions row by row
more unknown dimensions          nested lists (see encode/arrow_types.py)
picture, array                   binary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.feature import Content, FeatureSpec, Kind, shape_text
from recordmill.transforms.arrow import I64, U8, offsets_of
from recordmill.transforms.cast.cast_result import ARROW_TYPES
from recordmill.transforms.decode.ragged import join_ragged
from recordmill.transforms.decode.tensors import read_tensors
from recordmill.transforms.decode.value_lists import Lists, read_lists, read_scalars
from recordmill.transforms.decode.wire import Mask, Spans, validity
from recordmill.transforms.encode.arrow_types import list_depths
from recordmill.transforms.encode.row_errors import rows_of


@dataclass(slots=True)
class Findings:
    """The records of one batch that are irregular or do not fit the schema.

    Attributes:
      irregular: mask of the records that are not in the encoder's layout.
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
        return _read_ragged(data, feature, spans, found)
    (span,) = spans
    if feature.content is Content.TENSOR:
        lists, dims = read_tensors(data, span, feature)
        found.irregular |= lists.irregular
        leaf = _leaf(lists, feature, found)
        if not feature.shape:
            return _one_per_row(leaf, lists)
        return nest(leaf, _list_offsets(dims, feature), lists.present)
    if not feature.shape or feature.content is not Content.VALUES:
        lists = read_scalars(data, span, feature.kind)
        found.irregular |= lists.irregular
        if feature.content is Content.ARRAY:
            _check_array(span, feature, found)
        return _one_per_row(_leaf(lists, feature, found), lists)
    lists = read_lists(data, span, feature.kind)
    found.irregular |= lists.irregular
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


def _read_ragged(
    data: U8, feature: FeatureSpec, spans: Sequence[Spans], found: Findings
) -> pa.Array:
    flat = read_lists(data, spans[0], feature.kind)
    row_lengths = [read_lists(data, span, Kind.INT64) for span in spans[1:]]
    for lists in (flat, *row_lengths):
        found.irregular |= lists.irregular
    flat, levels, problems = join_ragged(flat, row_lengths, feature)
    for rows, describe in problems:
        found.refuse(feature, rows, describe)
    return nest(_leaf(flat, feature, found), levels, flat.present)
