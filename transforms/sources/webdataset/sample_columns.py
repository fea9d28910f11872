"""Finds the columns of samples and their types, and makes columns of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.features.feature import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.ranges import TypeFlags
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.sources.images.decodability import all_decodable
from recordmill.transforms.sources.jsonl.json_values import (
    ObservedColumn,
    column_of,
    fits,
    is_text,
)
from recordmill.transforms.sources.plain_types import SEPARATOR, plain_schema
from recordmill.transforms.sources.webdataset.array_columns import (
    Array,
    array_column,
    array_type,
    misfit_of,
)
from recordmill.transforms.sources.webdataset.members import MemberKind, Values, kind_of

KEY = "key"
Types = Mapping[str, pa.DataType]
_UNDECODED = ("webp", "gif")
_LEAVES: dict[MemberKind, pa.DataType] = {
    "picture": pa.binary(),
    "integer": pa.int64(),
    "text": pa.string(),
    "bytes": pa.binary(),
}


def member_of(column: str) -> str:
    """Returns the name of the files that a column comes from.

    >>> member_of("left.jpg/height"), member_of("json/box/x"), member_of("cls")
    ('left.jpg', 'json', 'cls')
    """
    return column.partition(SEPARATOR)[0]


def pictures_of(names: Sequence[str]) -> list[str]:
    """Returns the columns that are pictures."""
    return [name for name in names if name != KEY and is_picture(name)]


def is_picture(name: str) -> bool:
    """Tells whether a column is a picture, not its height or width."""
    return SEPARATOR not in name and kind_of(name) == "picture"


@dataclass(slots=True)
class ObservedSamples:
    """What the values of some samples are.

    Attributes:
      names: of the columns, in the order in which they were found.
      json: what the values of columns of JSON are.
      arrays: type and shape of those of columns of arrays, without their values.
    """

    names: dict[str, None] = field(default_factory=dict)
    json: dict[str, ObservedColumn] = field(default_factory=dict)
    arrays: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, values: Values) -> None:
        """Adds a sample."""
        self.names.update(dict.fromkeys(values))
        for name, value in values.items():
            kind = kind_of(member_of(name))
            if kind == "json":
                self.json.setdefault(name, ObservedColumn()).add([value])
            elif kind == "array":
                zero = np.zeros((), value.dtype)
                self.arrays.setdefault(name, []).append(
                    np.broadcast_to(zero, value.shape)
                )

    def types(self, wanted: Sequence[str] | None, uri: str) -> dict[str, pa.DataType]:
        """Returns the type of each column.

        Args:
          wanted: the columns that are used, or None for all.
          uri: of a shard, for messages.

        Raises:
          InputError: values can be no feature.
        """
        types: dict[str, pa.DataType] = {KEY: pa.string()}
        for name in self.names:
            if wanted is not None and name not in wanted:
                continue
            if name == KEY or not is_text(name):  # samples with any other are rejects
                continue
            found = self._type(name)
            if found is None:
                raise InputError(
                    f"{uri}: {name!r}: lists of objects, or of values of several types, "
                    "can be no feature. Declare the other columns in a schema file "
                    "(`schema`)"
                )
            types[name] = found
        if wanted is not None and KEY not in wanted:
            del types[KEY]
        return types

    def _type(self, name: str) -> pa.DataType | None:
        if name in self.json:
            return self.json[name].arrow_type
        if name in self.arrays:
            return array_type(self.arrays[name])
        if SEPARATOR in name:  # height or width
            return pa.int64()
        return _LEAVES[kind_of(name)]


def misfit_in(values: Values, types: Types, whose: str, *, only_arrays: bool) -> str:
    """Returns which value of a sample is not of its column's type, or "".

    Args:
      values: of the sample.
      types: of the columns.
      whose: type it is, for messages.
      only_arrays: whether to look at arrays alone.
    """
    for name, wanted in types.items():
        value = values.get(name)
        if value is None:
            continue
        kind = kind_of(member_of(name))
        if kind == "array":
            if misfit := misfit_of(value, wanted):
                return f"{name}: {misfit} is not {wanted}, its type {whose}"
        elif kind == "json" and not only_arrays and not fits(value, wanted):
            return f"{name}: {shown(value)} is not {wanted}, its type {whose}"
    return ""


def batch_of(rows: Sequence[Values], types: Types) -> pa.RecordBatch | None:
    """Returns samples as columns, or None if a value of JSON does not fit."""
    arrays = []
    for name, wanted in types.items():
        values: list[Any] = [row.get(name) for row in rows]
        kind = kind_of(member_of(name))
        if name != KEY and kind == "array":
            column = array_column(values, wanted)
        elif name != KEY and kind == "json":
            column = column_of(values, wanted)
        else:
            column = pa.array(values, wanted)
        if column is None:
            return None
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(types.items())))


def sample_schema(
    columns: pa.Schema, observed: TypeFlags, nulls: Sequence[int]
) -> Schema:
    """Returns the features of samples.

    Args:
      columns: with their types.
      observed: whether readers decode the pictures of each column, as far as is known.
      nulls: missing values of each column, or ().
    """
    flags = dict(zip(pictures_of(columns.names), observed, strict=False))
    return Schema(tuple(_with_pictures(plain_schema(columns, nulls).features, flags)))


def _with_pictures(
    features: Sequence[FeatureSpec], flags: Mapping[str, int]
) -> Iterator[FeatureSpec]:
    for feature in features:
        if feature.name == KEY or not is_picture(feature.name):
            yield feature
            continue
        seen = (flags[feature.name],) if feature.name in flags else ()
        found = all_decodable(seen)
        decodable = not feature.name.endswith(_UNDECODED) if found is None else found
        yield replace(
            feature,
            kind=Kind.BYTES,
            dtype="uint8" if decodable else "bytes",
            shape=(None, None, None) if decodable else (),
            content=Content.PICTURE,
        )
