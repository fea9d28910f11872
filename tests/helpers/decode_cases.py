"""Random schemas, examples that fit them, and what others or chance make of those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from encoder_cases import batches, example_of
from hypothesis import strategies as st

from recordmill.schemas.feature_spec import Content, Kind, Schema, map_sort_key
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.decode.examples import decode_records
from recordmill.transforms.encode.examples import TAGS
from recordmill.transforms.native.numpy_loops import entry_header, varint

Made = tuple[Schema, list[Example]]


@st.composite
def examples(draw: st.DrawFn) -> Made:
    """A schema, and rows that fit it as the protobuf runtime has them."""
    batch, schema, cases = draw(
        batches().filter(lambda made: tells_dimensions(made[1]))
    )
    return schema, [example_of(cases, row) for row in range(batch.num_rows)]


def pieces(example: Example) -> list[bytes]:
    """Each feature as an example of its own; joined, they make the example again."""
    found = []
    for name, feature in example.features.feature.items():
        one = Example()
        one.features.feature[name].CopyFrom(feature)
        found.append(one.SerializeToString())
    return found


@st.composite
def written_by_others(draw: st.DrawFn, example: Example) -> bytes:
    """The example as other writers may lay it out, or with what they add."""
    data = example.SerializeToString(deterministic=True)
    way = draw(
        st.sampled_from(["as it is", "order", "twice", "field", "feature", "no kind"])
    )
    if way == "order":
        return b"".join(draw(st.permutations(pieces(example))))
    if way == "twice":  # the last one counts
        return b"".join(draw(st.permutations(pieces(example)))) + data
    if way == "field":
        return data + bytes.fromhex("9a0603616263")  # field 99, bytes
    if way == "feature":
        kind = draw(st.sampled_from(list(Kind)))
        getattr(example.features.feature["zz/other"], kind).SetInParent()
        return example.SerializeToString(deterministic=True)
    if way == "no kind":
        example.features.feature["zz"].SetInParent()
        return example.SerializeToString(deterministic=True)
    return data


@st.composite
def written(draw: st.DrawFn, *, others: bool) -> tuple[Schema, list[bytes]]:
    schema, made = draw(examples())
    records = []
    for example in made:
        if others and draw(st.booleans()):
            records.append(draw(written_by_others(example)))
        else:
            records.append(example.SerializeToString(deterministic=True))
    return schema, records


# Bytes that mean something on the wire: tags, lengths, varints that go on, text.
TELLING = st.sampled_from(
    list(bytes.fromhex("00 01 02 03 04 05 07 08 0a 0c 12 1a 22 42 7f 80 81 ff 2c 35"))
)


@st.composite
def odd_payloads(draw: st.DrawFn, good: bytes) -> bytes:
    way = draw(st.sampled_from(["good", "any", "changed", "longer", "cut", "varints"]))
    if way == "any":
        return bytes(draw(st.lists(TELLING, max_size=12)))
    if way == "changed" and good:
        changed = bytearray(good)
        changed[draw(st.integers(0, min(len(good), 24) - 1))] = draw(TELLING)
        return bytes(changed)
    if way == "longer":
        return good + bytes(draw(st.lists(TELLING, min_size=1, max_size=3)))
    if way == "cut":
        return good[: draw(st.integers(0, len(good)))]
    if way == "varints":  # of 8 to 12 bytes, the last of them larger or smaller
        sizes = draw(st.lists(st.integers(7, 11), max_size=3))
        return b"".join(b"\xff" * size + bytes([draw(TELLING)]) for size in sizes)
    return good


@st.composite
def with_odd_payloads(draw: st.DrawFn) -> tuple[Schema, list[bytes]]:
    """Records whose headers are the encoder's, with payloads that may be anything."""
    schema, made = draw(examples())
    owners = {key: feature for feature in schema.features for key in feature.keys}
    records = []
    for example in made:
        stored = example.features.feature
        entries = b""
        for key in sorted(stored, key=map_sort_key):
            feature, message = owners[key], stored[key]
            kind = Kind(message.WhichOneof("kind"))
            values = getattr(message, kind)
            single = not feature.shape or feature.content is not Content.VALUES
            good = values.SerializeToString()
            if kind is not Kind.BYTES:
                good = good[2:] if len(good) < 130 else good[3:]
            elif single:
                good = values.value[0]
            payload = draw(odd_payloads(good))
            delimited = kind is not Kind.BYTES or single
            name = key.encode()
            entries += entry_header(name, TAGS[kind], len(payload), delimited=delimited)
            entries += payload
        if draw(st.integers(0, 9)) == 0:
            entries = entries[: draw(st.integers(0, len(entries)))]
        records.append(b"\x0a" + varint(len(entries)) + entries)
    return schema, records


def stored(**values: tuple[Kind, list[Any]]) -> bytes:
    """An example by the protobuf runtime; "__" in a name is "/"."""
    message = Example()
    for name, (kind, items) in values.items():
        feature = message.features.feature[name.replace("__", "/")]
        getattr(feature, kind).value.extend(items)
        getattr(feature, kind).SetInParent()
    return message.SerializeToString(deterministic=True)


def plain(value: Any) -> str:
    """Comparable also for NaN, and telling 0.0 from -0.0."""
    if isinstance(value, list):
        return f"[{', '.join(map(plain, value))}]"
    return (
        repr(float(value)) if isinstance(value, (float, np.floating)) else repr(value)
    )


def tells_dimensions(schema: Schema) -> bool:
    """Rows of nothing, laid flat, do not tell how many there are."""
    return not any(None in f.shape and 0 in f.shape for f in schema.features)


def decode_batch(examples: pa.BinaryArray, schema: Schema) -> pa.RecordBatch:
    """Decodes examples, all of which must fit the schema."""
    decoded = decode_records(examples, schema)
    assert decoded.row_errors == []
    return decoded.batch
