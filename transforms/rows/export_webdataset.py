"""Writes a dataset as tar shards, which the package webdataset and recordmill can read.

    {split}-000000.tar        a file for each shard; its samples, in the order of its rows:

    00000000.jpg              an image or an audio file; the ending is its format
    00000000.cls              the only class label
    00000000.json             all other values
    00000000.{name}           bytes, and text or numbers with such a name: txt, npy

Names from a converted WebDataset are preserved: `left.png`, `mp4`, `json/box/x`. The key
of a sample is the value of the feature `key` if it is unique in the shard, else the
number of the row in its split.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.foreign_text import is_parsable
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import check_file_name
from recordmill.transforms.audio.header import audio_format
from recordmill.transforms.dataset.export import OnProgress, audio_files, export_shards
from recordmill.transforms.dataset.files import schema_of_dataset
from recordmill.transforms.dataset.reader import ReadableShard
from recordmill.transforms.dataset.tfds import labels_files
from recordmill.transforms.images.header import read_header
from recordmill.transforms.rows.read_rows import to_dicts
from recordmill.transforms.sources.webdataset.source import (
    MemberKind,
    member_kind,
    split_key,
)
from recordmill.transforms.storage import Store

KEY = "key"
_JSON = "json/"
_OTHER_ENDINGS = {"jpeg": "jpg", "id3": "mp3"}  # endings that differ from the format
_ENDINGS = {"array": "npy", "bytes": "bin"}  # used if the name has no known ending
_WAY_OUT = "Rename it, or use `recordmill export parquet`"


def export_webdataset(
    store: Store, manifest: Manifest, target: Store, on_progress: OnProgress
) -> list[str]:
    """Writes tar shards and labels files to a new target; see `export_shards`.

    Raises:
      UsageError: a feature cannot be stored in a file of a sample.
    """
    schema = schema_of_dataset(store, manifest)
    layout = SampleLayout(schema)
    numbers = {split: count() for split in manifest.splits}

    def write(shard: ReadableShard, path: Path) -> None:
        used_keys = set[str]()
        with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
            for batch in shard.batches():
                # A loop over rows: tarfile creates headers one by one.
                for row in to_dicts(batch, schema):
                    number = f"{next(numbers[shard.split]):08d}"
                    key, files = layout.sample(row, number, used_keys)
                    for ending, data in files.items():
                        name = check_file_name(f"{key}.{ending}", shard.uri)
                        member = tarfile.TarInfo(name)
                        member.size = len(data)
                        tar.addfile(member, io.BytesIO(data))

    names = export_shards(
        *(store, manifest, target),
        lambda split, number, _: f"{split}-{number:06d}.tar",
        *(write, on_progress),
    )
    labels = labels_files(layout.as_read(schema))
    for name, data in labels.items():
        target.put_bytes(data, name)
    return [*names, *labels]


class SampleLayout:
    """The assignment of features to files of a sample."""

    def __init__(self, schema: Schema) -> None:
        images = [s for s in schema.features if s.content is Content.IMAGE]
        self._audio = audio_files(schema)
        labels = [s for s in schema.features if s.class_names and not s.shape]
        # prefix of the file name, for features whose bytes determine the ending
        self._prefix_by_feature: dict[str, str] = {}
        self._ending_by_feature: dict[str, str] = {}  # ending of the file, by feature
        self._json_features = list[str]()  # features that are in JSON
        for spec in schema.features:
            name = spec.name.replace("/", ".").lower()
            has_list = spec.shape and spec.content is not Content.IMAGE
            if _is_bytes(spec) and (has_list or spec.is_sequence):
                raise UsageError(
                    f"feature {spec.name!r}: lists of bytes cannot be stored as a file "
                    f"of a sample. {_WAY_OUT}"
                )
            if spec.content is Content.IMAGE and member_kind(name) != "image":
                self._prefix_by_feature[spec.name] = (
                    "" if len(images) == 1 else f"{name}."
                )
            elif spec.name in self._audio:
                self._prefix_by_feature[spec.name] = (
                    "" if len(self._audio) == 1 else f"{name}."
                )
            elif labels == [spec]:
                self._ending_by_feature[spec.name] = "cls"
            elif (kind := _file_kind(spec)) is None:
                self._json_features.append(spec.name)
            else:
                is_said = member_kind(name) == kind
                self._ending_by_feature[spec.name] = (
                    name if is_said else f"{name}.{_ENDINGS[kind]}"
                )

    def as_read(self, schema: Schema) -> Schema:
        """Returns a schema with the column names that a reader of the samples uses."""
        names = {
            name: f"{_JSON}{name}" for name in self._json_features
        } | self._ending_by_feature
        return Schema(
            tuple(
                replace(spec, name=spec.name if spec.name.startswith(_JSON) else new)
                for spec in schema.features
                if (new := names.get(spec.name))
            )
        )

    def sample(
        self, row: Mapping[str, Any], number: str, used_keys: set[str]
    ) -> tuple[str, dict[str, bytes]]:
        """Returns the key and the files of a row; adds the key to `used_keys`."""
        row_key = row.get(KEY)
        key = number
        if isinstance(row_key, str) and row_key not in used_keys and _is_key(row_key):
            key = row_key
        while key in used_keys:
            key += "-"
        used_keys.add(key)
        files: dict[str, bytes] = {}
        known_values: dict[str, Any] = {
            KEY: key
        }  # values that readers find without JSON

        def add_file(name: str, ending: str, data: bytes) -> None:
            if ending in (*files, "json"):
                raise UsageError(
                    f"feature {name!r} would be the file KEY.{ending} of a sample, but "
                    f"another feature already is. {_WAY_OUT}"
                )
            files[ending] = data

        for name, ending in (
            *self._ending_by_feature.items(),
            *self._prefix_by_feature.items(),
        ):
            value = row[name]
            if value is None:
                continue
            if name in self._audio:
                form = audio_format(value[:16]) or "bin"  # if the format is unknown
                ending += _OTHER_ENDINGS.get(form, form)
            elif name in self._prefix_by_feature:
                form = read_header(value).format
                ending += _OTHER_ENDINGS.get(form, form)
            if member_kind(ending) == "image":
                header = read_header(value)
                known_values |= {
                    f"{name}/height": header.height,
                    f"{name}/width": header.width,
                }
            add_file(name, ending, _encode_file(name, value, ending))
        values = {
            name: row[name]
            for name in self._json_features
            if row[name] is not None and not _is_same(known_values.get(name), row[name])
        }
        if values or not files:
            files["json"] = _json_of(values)
        return key, files


def _is_key(text: str) -> bool:
    """Returns whether a text can be the key of a sample and is a safe path."""
    is_below = is_parsable(partial(check_file_name, text))
    return is_below and split_key(f"{text}.x") == (text, "x")


def _is_same(left: Any, right: Any) -> bool:
    return isinstance(right, str | int) and left == right


def _is_bytes(spec: FeatureSpec) -> bool:
    """Returns whether values are bytes that are neither text nor numbers."""
    return spec.content is Content.IMAGE or (
        spec.kind is Kind.BYTES
        and (spec.content is Content.VALUES or spec.dtype == "bytes")
        and spec.dtype != "string"
    )


def _file_kind(spec: FeatureSpec) -> MemberKind | None:
    """Returns the kind of a feature's file; None if the feature is stored in JSON."""
    if spec.name.startswith(_JSON) or spec.is_sequence:
        return None
    if spec.content is Content.IMAGE:
        return "image"
    if _is_bytes(spec):
        return "bytes"
    name_kind, is_text = member_kind(spec.name), spec.dtype == "string"
    is_array = spec.content in (Content.ARRAY, Content.TENSOR) or name_kind == "array"
    if is_array and not is_text:
        return "array"
    is_fit = (name_kind == "text" and is_text) or (
        name_kind == "integer" and spec.kind is Kind.INT64
    )
    return name_kind if is_fit and not spec.shape else None


def _encode_file(name: str, value: Any, ending: str) -> bytes:
    """Returns the bytes of the file that contains only this value."""
    if isinstance(value, bytes):
        return value
    if member_kind(ending) != "array":
        return str(int(value) if isinstance(value, bool) else value).encode()
    file = io.BytesIO()
    try:
        np.save(file, np.asarray(value), allow_pickle=False)
    except ValueError as error:
        raise UsageError(f"feature {name!r}: {error}. {_WAY_OUT}") from error
    return file.getvalue()


def _json_of(values: Mapping[str, Any]) -> bytes:
    """Returns values as a JSON object; names like json/box/x become nested objects."""
    root: dict[str, Any] = {}
    for name, value in values.items():
        parent, last = root, name.removeprefix(_JSON)
        while name.startswith(_JSON) and "/" in last:
            folder, _, tail = last.partition("/")
            inner = parent.setdefault(folder, {})
            if not isinstance(inner, dict):  # a value and an object with one name
                break
            parent, last = inner, tail
        parent[last] = value
    return json.dumps(root, ensure_ascii=False, default=np.ndarray.tolist).encode()
