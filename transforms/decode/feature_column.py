"""What the keys of one feature hold in many records -> one Arrow column.

scalar                           a plain column of the feature's dtype
at most one unknown dimension    list<value>, all dimensions row by row
more unknown dimensions          lists nested as far as recordmill.transforms.encode.shapes needs them
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
from recordmill.schemas.features.feature import Content, FeatureSpec, Kind
from recordmill.transforms.arrow import I64, U8, offsets_of
from recordmill.transforms.cast.cast_result import ARROW_TYPES
from recordmill.transforms.decode.ragged import join_ragged
from recordmill.transforms.decode.tensors import read_tensors
from recordmill.transforms.decode.value_lists import Lists, read_lists, read_scalars
from recordmill.transforms.decode.wire import Mask, Spans, validity
from recordmill.transforms.encode.arrow_types import list_depths, shape_text
from recordmill.transforms.encode.nested import rows_of


@dataclass(slots=True)
class Findings:
    """What is wrong with single records, as far as one batch was read.

    Attributes:
      odd: records to read in another way: not laid out as the encoder does.
      reasons: by record, the first thing that its features cannot be.
    """

    odd: Mask
    reasons: dict[int, str] = field(default_factory=dict)

    def refuse(
        self,
        feature: FeatureSpec,
        rows: npt.NDArray[np.intp],
        say: Callable[[int], str],
    ) -> None:
        """Notes these records.

        Args:
          feature: the feature that is wrong.
          rows: record indices; may repeat.
          say: what was found, by index into `rows`.
        """
        for index, row in enumerate(rows.tolist()):
            if row not in self.reasons:
                self.reasons[row] = f"feature {feature.name!r}: {say(index)}"


def check_feature(feature: FeatureSpec) -> None:
    """Makes sure that there is a column for the feature.

    Raises:
      SchemaError: its kind cannot hold its dtype.
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
            f"feature {feature.name!r}: {feature.kind} holds no {feature.content} of "
            f"{feature.dtype}"
        )


def read_column(
    data: U8, feature: FeatureSpec, spans: Sequence[Spans], found: Findings
) -> pa.Array:
    """The feature's column.

    Args:
      data: the records, as recordmill.transforms.decode.entry_walk has them.
      feature: what to read.
      spans: where the payload of each of the feature's keys lies.
      found: gets what is wrong; rows noted there may hold anything.
    """
    if feature.is_ragged:
        return _read_ragged(data, feature, spans, found)
    (span,) = spans
    if feature.content is Content.TENSOR:
        lists, dims = read_tensors(data, span, feature)
        found.odd |= lists.odd
        leaf = _leaf(lists, feature, found)
        if not feature.shape:
            return _spread(leaf, lists)
        return nest(leaf, _levels_of(dims, feature), lists.present)
    if not feature.shape or feature.content is not Content.VALUES:
        lists = read_scalars(data, span, feature.kind)
        found.odd |= lists.odd
        if feature.content is Content.ARRAY:
            _check_array(span, feature, found)
        return _spread(_leaf(lists, feature, found), lists)
    lists = read_lists(data, span, feature.kind)
    found.odd |= lists.odd
    _check_counts(lists, feature, found)
    return nest(_leaf(lists, feature, found), [lists.offsets], lists.present)


def _leaf(lists: Lists, feature: FeatureSpec, found: Findings) -> pa.Array:
    """All values, of the type that the feature's column has for them."""
    values = lists.values
    if feature.dtype == "string":
        try:
            return values.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        # Value by value only where there is text that cannot be.
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
    cast, invalid_rows = _cast(values, np.dtype(feature.dtype))
    if invalid_rows is not None and invalid_rows.any():
        where = np.flatnonzero(invalid_rows)
        found.refuse(
            feature,
            rows_of(where, lists.offsets),
            lambda index: f"{values[where[index]]!s} is no {feature.dtype}",
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
    """The values in their dtype, and which of them it cannot hold; None if all fit."""
    widens = values.dtype == np.float32 and dtype == np.float64
    if widens or values.dtype == dtype:
        return values.astype(dtype, copy=False), None
    if dtype == np.float16:
        with np.errstate(over="ignore", invalid="ignore"):
            cast = values.astype(np.float16)
        return cast, (cast != values) & ~np.isnan(values)
    low, high = (0, 1) if dtype == np.bool_ else _limits(dtype)
    if values.dtype == np.float32:
        # The highest integers have no float32: below the next power of two is right.
        bad = ~((values >= np.float32(low)) & (values < np.float32(high + 1)))
        with np.errstate(invalid="ignore"):  # a NaN that signals
            bad |= values != np.trunc(values)
        return np.where(bad, np.float32(0), values).astype(dtype), bad
    bad = (values < low) | (values > min(high, np.iinfo(np.int64).max))
    return values.astype(dtype), bad


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _spread(leaf: pa.Array, lists: Lists) -> pa.Array:
    """One value a row: null where the record has none."""
    if len(leaf) == len(lists.present):
        return leaf
    return leaf.take(pa.array(lists.offsets[:-1], mask=lists.counts == 0))


def nest(leaf: pa.Array, levels: list[I64], present: Mask) -> pa.Array:
    """Lists around the values.

    Args:
      leaf: the values.
      levels: for every level of lists, outermost first, where each list's items start
        (lists + 1).
      present: which of the outermost lists are not null.
    """
    array = leaf
    for place, offsets in reversed(list(enumerate(levels))):
        bitmap = validity(present) if place == 0 else None
        array = pa.Array.from_buffers(
            pa.list_(array.type),
            len(offsets) - 1,
            [bitmap, pa.py_buffer(offsets.astype(np.int32))],
            children=[array],
        )
    return array


def _check_counts(lists: Lists, feature: FeatureSpec, found: Findings) -> None:
    """Whether each record's values fill the shape, one unknown dimension at most."""
    counts = lists.counts
    wrong = lists.present & _misfits(counts, feature.shape)
    rows = np.flatnonzero(wrong)
    found.refuse(
        feature,
        rows,
        lambda index: (
            f"{counts[rows[index]]} values do not fit shape {shape_text(feature)}"
        ),
    )


def _check_array(span: Spans, feature: FeatureSpec, found: Findings) -> None:
    item_bytes = np.dtype(feature.dtype).itemsize
    wrong = span.lengths % item_bytes != 0
    wrong |= _misfits(span.lengths // item_bytes, feature.shape)
    rows = np.flatnonzero(span.present & wrong)
    found.refuse(
        feature,
        rows,
        lambda index: (
            f"{span.lengths[rows[index]]} bytes are no array of {feature.dtype} of "
            f"shape {shape_text(feature)}"
        ),
    )


def _misfits(counts: I64, shape: tuple[int | None, ...]) -> Mask:
    """Which counts of values do not fill the shape."""
    known = math.prod(size for size in shape if size is not None)
    left = counts - known if None not in shape else counts
    if None in shape and known:
        left = counts % known
    invalid_rows: Mask = left != 0
    return invalid_rows


def _levels_of(dims: I64, feature: FeatureSpec) -> list[I64]:
    """Offsets of the nested lists that hold tensors of these dimensions."""
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
        found.odd |= lists.odd
    flat, levels, problems = join_ragged(flat, row_lengths, feature)
    for rows, say in problems:
        found.refuse(feature, rows, say)
    return nest(_leaf(flat, feature, found), levels, flat.present)
