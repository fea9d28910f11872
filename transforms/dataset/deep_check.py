"""Checks that the records of a dataset fit its schema, decoding a window at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    format_shape,
)
from recordmill.schemas.options import Payload
from recordmill.transforms.arrow import I64, offsets_of, value_lengths, value_offsets
from recordmill.transforms.cast.typed_values import NO_LABEL, index_errors
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.encode.columns import flatten_lists, row_starts
from recordmill.transforms.encode.row_errors import (
    RowErrors,
    bound_errors,
    errors_by_row,
    merge_errors,
    rows_of,
)
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.header import ImageHeaderError
from recordmill.transforms.tfrecord import FRAME_BYTES


def check_values(batch: pa.RecordBatch, schema: Schema) -> RowErrors:
    """Returns the first error of each row with a value that the schema forbids."""
    reasons: dict[int, str] = {}
    for feature in schema.features:
        if feature.name in batch.schema.names:
            for row, reason in _feature_errors(batch[feature.name], feature).items():
                reasons.setdefault(row, f"feature {feature.name!r}: {reason}")
    return dict(sorted(reasons.items()))


def _feature_errors(array: pa.Array, feature: FeatureSpec) -> RowErrors:
    reasons: RowErrors = {}
    if array.null_count and not feature.optional:
        missing = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))
        reasons = dict.fromkeys(missing.tolist(), "missing, but not optional")
    if feature.content is Content.IMAGE:
        return reasons | _image_errors(array, feature)
    bounded = feature.minimum is not None or feature.maximum is not None
    if not bounded and not feature.class_names:
        return reasons
    starts, values = _flatten_column(array, feature)
    errors: RowErrors = {}
    if feature.class_names:
        errors = index_errors(values, feature.class_names, NO_LABEL)
    # A bound is rounded like the stored value: 0.1 is allowed if the maximum is 0.1.
    if values.dtype == np.float64 and feature.kind is Kind.FLOAT:
        values = values.astype(np.float32)
    errors = merge_errors(
        errors, bound_errors(values, feature.minimum, feature.maximum)
    )
    return merge_errors(reasons, errors_by_row(errors, starts))


def _flatten_column(
    array: pa.Array, feature: FeatureSpec
) -> tuple[I64, npt.NDArray[Any]]:
    """Returns (index of each row's first number, all numbers) of a column.

    The rows [1, 2], null, [3] have starts [0, 2, 2, 3] and numbers [1, 2, 3].
    """
    starts, array = _without_lists(array)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        starts = offsets_of(valid.astype(np.int64))[starts]
        array = array.drop_null()
    if feature.content is Content.ARRAY:
        dtype = np.dtype(feature.dtype).newbyteorder("<")
        offsets = value_offsets(array).astype(np.int64)
        data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
        values = data[int(offsets[0]) : int(offsets[-1])].view(dtype)
        return ((offsets - offsets[0]) // dtype.itemsize)[starts], values
    if feature.dtype == "bool":
        array = array.cast(pa.uint8())
    return starts, array.to_numpy(zero_copy_only=False)


def _without_lists(array: pa.Array) -> tuple[I64, pa.Array]:
    """Returns the start of each row's innermost values (rows + 1), and the values."""
    levels, values, _ = flatten_lists(array)
    return row_starts([np.arange(len(array) + 1), *levels]), values


def _image_errors(array: pa.Array, feature: FeatureSpec) -> dict[int, str]:
    """Finds images without a readable header or with another size than the shape."""
    reasons: dict[int, str] = {}
    starts, array = _without_lists(array)
    # One header at a time, because each image may have a different format.
    for index, image in enumerate(array):
        if not image.is_valid:
            continue
        try:
            header = check_image(image.as_py(), level="decode")
        except ImageHeaderError as error:
            reason = str(error)
        else:
            image_shape = header.height, header.width, header.depth
            expected = feature.shape or image_shape
            sides = zip(expected, image_shape, strict=False)
            fits = all(size in (None, side) for size, side in sides)
            if fits and len(expected) == len(image_shape):
                continue
            shape = format_shape(feature.shape)
            reason = f"an image of shape {list(image_shape)}, expected {shape}"
        reasons.setdefault(int(rows_of(np.array([index]), starts)[0]), reason)
    return reasons


_SHOWN = 3  # invalid records described for each shard; the others are counted


class DeepCheck:
    """A check of the records of one shard, window by window."""

    def __init__(self, schema: Schema, payload: Payload, *, is_framed: bool) -> None:
        self._schema, self._payload, self._is_framed = schema, payload, is_framed
        self._shown: list[str] = []
        self._num_invalid = self._num_records = self._offset = 0

    def add(self, records: pa.BinaryArray) -> None:
        """Checks the next records."""
        reasons = invalid_rows(records, self._schema, self._payload)
        self._num_invalid += len(reasons)
        offsets = self._offset + offsets_of(value_lengths(records) + FRAME_BYTES)
        for row in sorted(reasons)[: _SHOWN - len(self._shown)]:
            location = f"record {self._num_records + row}"
            if self._is_framed:
                location += f" at byte {offsets[row]}"
            self._shown.append(f"{location}: {reasons[row]}")
        self._num_records += len(records)
        self._offset = int(offsets[-1])

    def problems(self) -> list[str]:
        """Returns descriptions of the first problems of the added records."""
        more = self._num_invalid - len(self._shown)
        if not more:
            return self._shown
        return [
            *self._shown,
            f"{more:,} more records do not fit the schema, {self._num_invalid:,} in all",
        ]


def invalid_rows(
    records: pa.BinaryArray, schema: Schema, payload: Payload
) -> dict[int, str]:
    """Returns the reasons why records do not fit the schema, by record index."""
    decoded = decode_payload(records, schema, payload, unknown="error")
    reasons = dict(decoded.row_errors)
    batch, rows = decoded.batch, np.arange(len(records))
    if reasons:  # the rows of these records in the batch are undefined: drop them
        mask = np.ones(len(records), np.bool_)
        mask[list(reasons)] = False
        batch, rows = batch.filter(pa.array(mask)), rows[mask]
    for row, reason in check_values(batch, schema).items():
        reasons[int(rows[row])] = reason
    return reasons
