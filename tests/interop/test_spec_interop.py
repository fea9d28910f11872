"""TensorFlow parses every kind of feature with the printed code, and gets its values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from decode_cases import plain
from example_counts import thinned
from interop_tools import ask
from spec_cases import every_feature, images, labels, several_unknown

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.options import Payload
from recordmill.transforms.cast.text_values import ARROW_TYPES
from recordmill.transforms.decode.tf_code import parsing_spec
from recordmill.transforms.encode.payloads import encode_payload

NUM_ROWS = 5


def parsed(schema: Schema, payload: Payload, batch: pa.RecordBatch) -> list[Any]:
    """Returns what TensorFlow finds in records with the code for their schema."""
    records = encode_payload(batch, schema, payload).to_pylist()
    case = {
        "code": parsing_spec(schema, payload),
        "records": [record.hex() for record in records],
    }
    (rows,) = ask("answers.py", "parse", given=[case])
    return list(rows)


def draw_leaf(rng: np.random.Generator, feature: FeatureSpec) -> Any:
    dtype = feature.dtype
    if dtype == "string":
        return ["", "a", "ß漢😀", "x" * 200][rng.integers(4)]
    if dtype == "bytes" or feature.content is Content.IMAGE:
        return [b"", b"\0\xff", b"\x0a" * 130][rng.integers(3)]
    if dtype.startswith("float"):
        return float(np.dtype("float16").type(rng.normal() * 100))
    if dtype == "bool":
        return bool(rng.integers(2))
    if feature.kind is Kind.FLOAT:
        return int(rng.integers(0, 100))
    high = int(np.iinfo(dtype).max)
    if feature.kind is Kind.INT64:
        high = min(high, (1 << 63) - 1)
    low = int(np.iinfo(dtype).min)
    return [low, high, 0, 1, high // 3][rng.integers(5)]


def draw(rng: np.random.Generator, feature: FeatureSpec) -> Any:
    """A value as lists nested to the shape's full depth."""
    even = [int(rng.integers(4)) if size is None else size for size in feature.shape]
    if feature.content is Content.IMAGE:
        even = []

    def nest(place: int) -> Any:
        if place == len(even):
            return draw_leaf(rng, feature)
        size = even[place]
        if feature.is_ragged and feature.shape[place] is None:
            size = int(rng.integers(4))
        return [nest(place + 1) for _ in range(size)]

    return nest(0)


def column(feature: FeatureSpec, values: list[Any]) -> pa.Array:
    kind = ARROW_TYPES[feature.dtype]
    if feature.content is Content.IMAGE:
        kind = pa.binary()
    else:
        for _ in feature.shape:
            kind = pa.list_(kind)
    return pa.array(values, pa.list_(kind) if feature.is_sequence else kind)


def expected(feature: FeatureSpec, value: Any) -> Any:
    """The value that the code gives: what stands for a missing one as tf_spec says."""
    shape = feature.shape
    if feature.is_sequence:
        return [] if value is None else hexed(value)
    image = feature.content is Content.IMAGE
    either = False
    if feature.optional and not feature.is_ragged:
        marked = feature.content is Content.VALUES and (
            feature.dtype.startswith("float") or bool(feature.class_names)
        )
        either = image or not (None in shape or 0 in shape or marked)
        if value is None and marked and None not in shape and 0 not in shape:
            marker = -1 if feature.class_names else math.nan
            return nested(marker, [size or 0 for size in shape])
    if either:
        return [] if value is None else [hexed(value)]
    if value is None and feature.is_ragged:
        return []
    if value is None:  # empty: nothing, in as many dimensions as are known outside
        return nested(None, [size or 0 for size in shape])
    return hexed(value)


def nested(value: Any, sides: list[int]) -> Any:
    if not sides:
        return value
    return [nested(value, sides[1:]) for _ in range(sides[0])]


def hexed(value: Any) -> Any:
    if isinstance(value, list):
        return [hexed(item) for item in value]
    if isinstance(value, str):
        value = value.encode()
    return value.hex() if isinstance(value, bytes) else value


def tf_dtype(feature: FeatureSpec) -> str:
    if feature.content is Content.IMAGE or feature.dtype == "bytes":
        return "string"
    return feature.dtype


def check(features: list[FeatureSpec], payload: Payload) -> None:
    rng = np.random.default_rng(11)
    rows: dict[str, list[Any]] = {}
    for feature in features:
        values: list[Any] = []
        for row in range(NUM_ROWS):
            if feature.optional and row % 2:
                values.append(None)
            elif feature.is_sequence:
                steps = [draw(rng, feature) for _ in range(row and rng.integers(4))]
                values.append(steps)
            else:
                values.append(draw(rng, feature))
        rows[feature.name] = values
    columns = [column(feature, rows[feature.name]) for feature in features]
    batch = pa.RecordBatch.from_arrays(columns, [f.name for f in features])
    found = parsed(Schema(tuple(features)), payload, batch)
    assert len(found) == NUM_ROWS
    for row, facts in enumerate(found):
        assert facts.keys() == rows.keys()
        for feature in features:
            fact, value = facts[feature.name], rows[feature.name][row]
            wanted = expected(feature, value)
            assert plain(fact["value"]) == plain(wanted), (feature, value)
            assert fact["dtype"] == tf_dtype(feature), feature
            sides = fact["shape"]
            if feature.content is not Content.IMAGE and value is not None:
                known = (size for size in feature.shape)
                sides = sides[len(sides) - len(feature.shape) :]
                for side, size in zip(sides, known, strict=True):
                    assert size is None or side in (size, None), feature


def test_examples() -> None:
    features = every_feature(sequence=False)
    assert len(features) > 400
    check([*thinned(features), *images(sequence=False), *labels()], "example")


def test_json() -> None:
    features = [
        feature
        for feature in every_feature(sequence=False)
        if feature.dtype in ("bool", "int64", "float32", "bytes")
    ]
    check([*thinned(features), *images(sequence=False), *labels()], "json")


def test_sequence_examples() -> None:
    features = every_feature(sequence=True)
    assert len(features) > 250
    others = [*several_unknown(), *images(sequence=True), *labels()]
    check([*thinned(features), *others], "sequence_example")


def test_only_context_or_only_lists() -> None:
    context = FeatureSpec("a", Kind.INT64)
    steps = FeatureSpec("b", Kind.INT64, is_sequence=True)
    for features in ([context], [steps]):
        check(features, "sequence_example")
