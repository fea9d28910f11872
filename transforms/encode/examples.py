"""Serializes Arrow batches as tf.train.Example, without Python per row.

    Example   0a len Features
    Features  entry*                         sorted by key
    entry     0a len | 0a len key | 12 len Feature
    Feature   0a len BytesList | 12 len FloatList | 1a len Int64List
    BytesList (0a len bytes)*    FloatList, Int64List  0a len packed values

The bytes equal protobuf's SerializeToString(deterministic=True).
Source: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.transforms import compiled
from recordmill.transforms.arrow import require_fit
from recordmill.transforms.encode.cells import (
    Cells,
    Fixed,
    RowCells,
    cells_of,
    fixed_array,
)
from recordmill.transforms.encode.compiled_encode import encode_compiled
from recordmill.transforms.encode.feature_map import Entry, load_entries
from recordmill.transforms.encode.wide_cells import pays_off, wide_cells
from recordmill.transforms.encode.wire import field_header, header_cells

_KIND_TAG = {Kind.BYTES: b"\x0a", Kind.FLOAT: b"\x12", Kind.INT64: b"\x1a"}


def encode(
    batch: pa.RecordBatch, schema: Schema, *, head_room: int = 0, tail_room: int = 0
) -> pa.BinaryArray:
    """Serializes every row as a tf.train.Example.

    Args:
      batch: the columns that the schema's features name.
      schema: features; a null cell leaves its feature out of the example.
      head_room: zero bytes to leave before each example (for a record's frame).
      tail_room: zero bytes to leave behind each example.

    Returns:
      A binary array of batch.num_rows rows, its buffers fresh and writable.

    Raises:
      SchemaError: a column is missing or its type does not fit the feature.
      RowsError: rows with a value that a feature cannot hold.
      RecordmillError: the examples together are beyond 2 GiB.
    """
    if compiled.loops is not None:
        return encode_compiled(compiled.loops, batch, schema, head_room, tail_room)
    features = features_cells(batch, schema.features)
    return _join_examples(features, head_room, tail_room)


def encode_entries(
    entries: Sequence[Entry], num_rows: int, *, head_room: int, tail_room: int
) -> pa.BinaryArray:
    """Serializes features that are loaded already; see `encode`, but for the loops.

    Args:
      entries: the features, sorted by key.
      num_rows: of each.
      head_room: see `encode`.
      tail_room: see `encode`.
    """
    features = _entries_cells(iter(entries), num_rows, len(entries))
    return _join_examples(features, head_room, tail_room)


def _join_examples(
    features: RowCells, head_room: int, tail_room: int
) -> pa.BinaryArray:
    outer, outer_lengths = header_cells(
        partial(field_header, bytes(head_room) + b"\x0a"), features.lengths
    )
    # The join would end in an Arrow error without a word on what is too big.
    require_fit(int((outer_lengths + features.lengths + tail_room).sum()))
    return join_cells([outer, *features.arrays], tail_room)


def features_cells(batch: pa.RecordBatch, features: Sequence[FeatureSpec]) -> RowCells:
    """Makes the cells of a Features message: the entries of its map, sorted by key.

    Raises:
      SchemaError, RowsError: see `encode`.
    """
    entries = load_entries(batch, features)
    return _entries_cells(entries, batch.num_rows, len(features))


def _entries_cells(
    entries: Iterator[Entry], num_rows: int, num_features: int
) -> RowCells:
    """Makes the cells of entries, which may be loaded one after the other."""
    cells = RowCells(num_rows)
    if pays_off(num_rows, num_features):
        for has_lists, group in groupby(entries, lambda e: e.column.lists is not None):
            if has_lists:
                for entry in group:
                    cells.add(_cells_of_entry(entry))
            else:
                cells.add(wide_cells(list(group), num_rows, _scalar_header))
    else:
        for entry in entries:
            cells.add(_cells_of_entry(entry))
    cells.flush()
    return cells


def _cells_of_entry(entry: Entry) -> Fixed | Cells:
    make_header = partial(entry_header, entry.key.encode(), entry.kind)
    return cells_of(entry.kind, entry.column, make_header)


def _scalar_header(key: str, kind: Kind, payload_length: int) -> bytes:
    name = key.encode()
    before, behind = _around_key(len(name), kind, payload_length)
    return before + name + behind


@lru_cache(maxsize=1 << 16)
def _around_key(
    key_length: int, kind: Kind, payload_length: int
) -> tuple[bytes, bytes]:
    """Returns the parts of an entry's header before and behind its key."""
    header = entry_header(bytes(key_length), kind, payload_length, delimited=True)
    value = feature_header(kind, payload_length, delimited=True)
    behind = len(header) - len(value) - 1  # 1: the tag of the value
    return header[: behind - key_length], header[behind:]


def join_cells(arrays: list[pa.BinaryArray], tail_room: int) -> pa.BinaryArray:
    """Joins the arrays' cells row by row, and adds zero bytes behind each row."""
    if tail_room:
        tails = np.zeros((len(arrays[0]), tail_room), np.uint8)
        arrays = [*arrays, fixed_array(tails)]
    return pc.binary_join_element_wise(*arrays, b"")


# The same few lengths come again in every batch: a tenth of the encoder's time.
@lru_cache(maxsize=1 << 16)
def entry_header(
    key: bytes, kind: Kind, payload_length: int, *, delimited: bool
) -> bytes:
    """Returns everything of a feature's map entry that stands before its payload."""
    value = b"\x12" + feature_header(kind, payload_length, delimited=delimited)
    entry = field_header(b"\x0a", len(key)) + key + value
    return field_header(b"\x0a", len(entry) + payload_length) + entry


def feature_header(kind: Kind, payload_length: int, *, delimited: bool) -> bytes:
    """Returns a Feature's length and list header: what is between its tag and payload.

    Args:
      kind: which list holds the payload.
      payload_length: bytes.
      delimited: whether the payload is one length-delimited field of the list
        (packed numbers, one bytes value) and not a series of such fields.
    """
    # An empty packed field is left out by protobuf, an empty bytes value is not.
    inner = b""
    if delimited and (payload_length or kind is Kind.BYTES):
        inner = field_header(b"\x0a", payload_length)
    listed = field_header(_KIND_TAG[kind], len(inner) + payload_length) + inner
    return field_header(b"", len(listed) + payload_length) + listed
