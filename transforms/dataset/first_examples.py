"""Reads the first examples of a finished dataset, whatever its records hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from recordmill.schemas.dataset.manifest import Manifest, schema_of
from recordmill.schemas.errors import OutputError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.transforms.dataset.files import open_file
from recordmill.transforms.decode.decode_batch import decode_records
from recordmill.transforms.decode.readable import (
    FeatureValues,
    decode_example,
    decode_sequence_example,
)
from recordmill.transforms.encode.payloads import raw_feature
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import open_stream, read_records


@dataclass(frozen=True, slots=True)
class ExamplePreview:
    """One example, with the shard and index that it was read from.

    Attributes:
      split: name of its split.
      file: name of its shard.
      record_index: zero-based index in the shard.
      values: values by feature; empty for JSON.
      json_text: the indented text of a JSON record; empty for other payloads.
    """

    split: str
    file: str
    record_index: int
    values: dict[str, FeatureValues]
    json_text: str = ""


def first_examples(
    store: Store, manifest: Manifest, num_examples: int
) -> Iterator[ExamplePreview]:
    """Yields the first examples, in the order of splits and shards.

    Raises:
      OutputError: a shard cannot be opened, or a record is not a valid example.
      CorruptRecordError: one of the first records is damaged.
    """
    left = num_examples
    schema = schema_of(manifest)
    for split, entry in manifest.splits.items():
        for shard in entry.shards:
            if left <= 0:
                return
            try:
                file = open_file(store, shard.file)
            except OSError as error:
                raise OutputError(
                    f"{store.uri}: {shard.file} cannot be read: {error.strerror}; "
                    "run `recordmill verify` to see what else is missing"
                ) from error
            with file:
                stream = open_stream(file, manifest.compression)
                for index, data in enumerate(read_records(stream, shard.file)):
                    values, text = _contents(bytes(data), schema, manifest.payload)
                    yield ExamplePreview(split, shard.file, index, values, text)
                    left -= 1
                    if left <= 0:
                        return


def _contents(
    data: bytes, schema: Schema, payload: Payload
) -> tuple[dict[str, FeatureValues], str]:
    """Returns (values of a record's features, its JSON text); one of them is empty."""
    if payload == "json":
        return {}, _indent_json(data)
    if payload == "raw":
        return {raw_feature(schema).name: [_text_or_bytes(data)]}, ""
    if payload == "sequence_example":
        return decode_sequence_example(data), ""
    values = decode_example(data)
    _join_ragged(values, data, schema)
    return dict(sorted(values.items())), ""


def _text_or_bytes(data: bytes) -> str | bytes:
    """Returns a raw record as text if it is printable, otherwise as bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text if "".join(text.split()).isprintable() else data


def _join_ragged(values: dict[str, FeatureValues], data: bytes, schema: Schema) -> None:
    """Replaces the keys of each ragged feature by its lists, if they are valid."""
    for feature in schema.features:
        if not feature.is_ragged:
            continue
        decoded = decode_records(pa.array([data], pa.binary()), Schema((feature,)))
        joined = decoded.batch[0][0].as_py()
        if joined is not None and not decoded.row_errors:
            for key in feature.keys:
                del values[key]
            values[feature.name] = joined


def _indent_json(data: bytes) -> str:
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except ValueError as error:
        raise OutputError(
            f"a record of {len(data)} bytes, {data[:24]!r}..., is not valid JSON: {error}"
        ) from error
