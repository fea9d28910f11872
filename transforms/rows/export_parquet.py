"""Writes a dataset as Parquet files, with metadata for Hugging Face `datasets`.

    data/{split}-00000-of-00004.parquet      a file for each shard, with rows in its order

Images and audio files are structs of bytes and path, and class labels are int64.
`datasets` and `recordmill convert parquet` read them as Image, Audio and ClassLabel,
according to the schema metadata `huggingface`. Arrays, and values with a shape, are
nested lists.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema, Shape
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.arrow import I64, array_parts, offsets_of
from recordmill.transforms.dataset.export import OnProgress, audio_files, export_shards
from recordmill.transforms.dataset.files import schema_of_dataset
from recordmill.transforms.dataset.reader import ReadableShard
from recordmill.transforms.encode.columns import nest_values
from recordmill.transforms.storage import Store

_GROUP_BYTES = 32 << 20  # approximate size of a row group in Arrow's memory format
_FILE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def export_parquet(
    store: Store, manifest: Manifest, target: Store, on_progress: OnProgress
) -> list[str]:
    """Writes Parquet files to a new target; see `export_shards`."""
    schema = schema_of_dataset(store, manifest)

    def write(shard: ReadableShard, path: Path) -> None:
        nothing = shard.decode_records(pa.array([], pa.binary()), shard.schema, [])
        metadata = {"info": {"features": _features(schema)}}
        meta = {"huggingface": json.dumps(metadata, ensure_ascii=False)}
        kinds = to_table(nothing, schema).schema.with_metadata(meta)
        with pq.ParquetWriter(path, kinds) as file:
            for batches in _groups(shard.batches()):
                table = pa.Table.from_batches(
                    to_table(batch, schema) for batch in batches
                )
                file.write_table(table.replace_schema_metadata(meta))

    return export_shards(
        *(store, manifest, target),
        lambda split, number, total: (
            f"data/{split}-{number:05d}-of-{total:05d}.parquet"
        ),
        *(write, on_progress),
    )


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yields the batches of each row group."""
    group, size = list[pa.RecordBatch](), 0
    for batch in batches:
        group.append(batch)
        size += batch.nbytes
        if size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def to_table(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Returns a decoded batch with the column types of the Parquet file."""
    audio = audio_files(schema)
    columns = [
        _file_struct(batch[spec.name])
        if spec.name in audio
        else _column(batch[spec.name], spec)
        for spec in schema.features
    ]
    names = [spec.name for spec in schema.features]
    return pa.RecordBatch.from_arrays(columns, names)


def _column(column: pa.Array, spec: FeatureSpec) -> pa.Array:
    present = column.is_valid().to_numpy(zero_copy_only=False)
    if spec.is_sequence:
        steps = _column(column.flatten(), replace(spec, is_sequence=False))
        return nest_values(steps, [offsets_of(_lengths(column))], present)
    if spec.content is Content.IMAGE:
        return _file_struct(column)
    if spec.content is Content.ARRAY:
        return _array(column, spec, present)
    if spec.class_names and not spec.shape:
        return column.cast(pa.int64())
    if len(spec.shape) > 1 and spec.shape.count(None) < 2:
        return _nested(column.flatten(), _lengths(column), spec.shape, present)
    return column


def _file_struct(column: pa.Array) -> pa.Array:
    paths = pa.nulls(len(column), pa.string())
    mask = column.is_null()
    return pa.StructArray.from_arrays([column, paths], fields=[*_FILE], mask=mask)


def _lengths(lists: pa.Array) -> I64:
    lengths: I64 = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _array(column: pa.Array, spec: FeatureSpec, present: Any) -> pa.Array:
    """Returns arrays as nested lists; with several unknown sides, as flat lists."""
    offsets, data = array_parts(column)
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    values = data[offsets[0] : offsets[-1]].view(dtype).astype(spec.dtype, copy=False)
    shape = spec.shape if spec.shape.count(None) < 2 else (None,)
    lengths = np.diff(offsets) // dtype.itemsize
    return _nested(pa.array(values), lengths, shape, present)


def _nested(values: pa.Array, lengths: I64, shape: Shape, present: Any) -> pa.Array:
    """Returns the values of each row as nested lists; at most one side is unknown."""
    known_size = math.prod(side for side in shape if side is not None)
    unknown = lengths // known_size if known_size else np.zeros_like(lengths)
    sides = [np.where(present, unknown if side is None else side, 0) for side in shape]
    levels, lists = list[I64](), np.ones_like(lengths)  # lists of a level in each row
    for side in sides:
        levels.append(offsets_of(np.repeat(side, lists)))
        lists = lists * side
    return nest_values(values, levels, present)


def _features(schema: Schema) -> dict[str, Any]:
    """Returns the features of columns that `datasets` cannot infer from Parquet types."""
    features, audio = {}, audio_files(schema)
    for spec in schema.features:
        feature: dict[str, Any] = {}
        depth = int(spec.is_sequence)
        if spec.content is Content.IMAGE:
            feature = {"_type": "Image"}
        elif spec.name in audio:
            feature = {"_type": "Audio"}
        elif spec.class_names:
            feature = {"names": list(spec.class_names), "_type": "ClassLabel"}
            depth += len(spec.shape)
        elif 2 <= len(spec.shape) <= 5 and None not in spec.shape and not depth:
            if spec.dtype not in ("string", "bytes"):
                kind = f"Array{len(spec.shape)}D"
                shape = list(spec.shape)
                feature = {"shape": shape, "dtype": spec.dtype, "_type": kind}
        for _ in range(depth if feature else 0):
            feature = {"feature": feature, "_type": "Sequence"}
        if feature:
            features[spec.name] = feature
    return features
