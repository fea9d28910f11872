from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from decode_cases import (
    decode_batch,
    plain,
    stored,
    tells_dimensions,
    with_odd_payloads,
    written,
)
from decode_oracle import NotReadableError, read_row
from encoder_cases import batches
from example_counts import examples, fuzzed
from hypothesis import assume, example, given
from hypothesis import strategies as st

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.transforms.decode import examples as module
from recordmill.transforms.decode.examples import decode_records
from recordmill.transforms.encode.examples import TAGS, encode
from recordmill.transforms.native.numpy_loops import entry_header, varint


def as_example(entries: bytes) -> bytes:
    return b"\x0a" + varint(len(entries)) + entries


def with_payload(kind: Kind, payload: bytes, *, delimited: bool = True) -> bytes:
    return as_example(
        entry_header(b"f", TAGS[kind], len(payload), delimited=delimited) + payload
    )


INT = FeatureSpec("f", Kind.INT64)
INTS = FeatureSpec("f", Kind.INT64, shape=(None,))


def check(schema: Schema, records: list[bytes]) -> None:
    """decode_records reads what the oracle reads, and refuses what it refuses."""
    # Several times over: few values are read one by one, many in steps.
    for times in (1, 9):
        decoded = decode_records(pa.array(records * times, pa.binary()), schema)
        decoded.batch.validate(full=True)
        row_errors = dict(decoded.row_errors)
        rows = decoded.batch.to_pylist()
        assert len(rows) == len(records) * times
        for index, data in enumerate(records * times):
            try:
                wanted = read_row(data, schema)
            except NotReadableError:
                assert index in row_errors
                continue
            assert index not in row_errors, row_errors[index]
            for name, value in wanted.items():
                assert plain(rows[index][name]) == plain(value), name


@examples(300)
@given(written(others=False))
def test_reads_what_protobuf_wrote(made: tuple[Schema, list[bytes]]) -> None:
    check(*made)


@examples(300)
@given(written(others=True))
def test_reads_what_others_wrote(made: tuple[Schema, list[bytes]]) -> None:
    check(*made)


@pytest.mark.fuzz
@fuzzed(0.3)
@given(written(others=False), st.data())
def test_flipped_bytes(made: tuple[Schema, list[bytes]], data: st.DataObject) -> None:
    schema, records = made
    for index, record in enumerate(records):
        damaged = bytearray(record)
        for _ in range(data.draw(st.integers(0, 2)) if record else 0):
            place = data.draw(st.integers(0, len(record) - 1))
            damaged[place] = data.draw(st.integers(0, 255))
        records[index] = bytes(damaged)
        if data.draw(st.integers(0, 9)) == 0:
            records[index] = records[index][: data.draw(st.integers(0, len(record)))]
    check(schema, records)


def unfinished_before_too_long() -> tuple[Schema, list[bytes]]:
    """A record that ends inside a varint, and one whose varint has 11 bytes."""
    payloads = [b"\x80", b"\xff" * 10 + b"\x00"]
    return Schema((INTS,)), [with_payload(Kind.INT64, each) for each in payloads]


@pytest.mark.fuzz
@fuzzed(0.7)
@given(with_odd_payloads())
@example(unfinished_before_too_long())
def test_odd_payloads(made: tuple[Schema, list[bytes]]) -> None:
    check(*made)


@examples(300)
@given(batches())
def test_takes_back_what_the_encoder_wrote(made: tuple[Any, ...]) -> None:
    batch, schema, _ = made
    assume(tells_dimensions(schema))
    records = encode(batch, schema)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "rewrite_example", None)  # no record goes one by one
        decoded = decode_batch(records, schema)
    assert decoded.schema.names == [feature.name for feature in schema.features]
    assert encode(decoded, schema).to_pylist() == records.to_pylist()


FLOATS = FeatureSpec("f", Kind.FLOAT, shape=(2,))
TEXT = FeatureSpec("f", Kind.BYTES, dtype="string")
TEXTS = FeatureSpec("f", Kind.BYTES, dtype="string", shape=(None,))
RAGGED = FeatureSpec("f", Kind.INT64, shape=(None, None))
TENSOR = FeatureSpec(
    "f", Kind.BYTES, dtype="int8", shape=(None, 2), content=Content.TENSOR
)
ARRAY = FeatureSpec("f", Kind.BYTES, dtype="int16", shape=(2, 2), content=Content.ARRAY)
BROKEN = r"\d+ bytes that start with '[0-9a-f]+' are not a valid tf.train.Example"


@pytest.mark.parametrize(
    ("feature", "data", "reason"),
    [
        (INT, b"\xff", "1 bytes that start with 'ff' are not a valid tf.train.Example"),
        (INT, with_payload(Kind.INT64, b"\xff" * 9 + b"\x80"), BROKEN),
        (INT, with_payload(Kind.INT64, b"\xff" * 10 + b"\x00"), BROKEN),
        (INT, with_payload(Kind.INT64, b"\x80"), BROKEN),
        (INTS, with_payload(Kind.INT64, b"\x01" + b"\x80" * 10 + b"\x01"), BROKEN),
        (FLOATS, with_payload(Kind.FLOAT, b"abc"), BROKEN),
        (TEXTS, with_payload(Kind.BYTES, b"\x0a\x05abc", delimited=False), BROKEN),
        (INT, with_payload(Kind.INT64, b"\1\2"), "feature 'f': 2 values, expected 1"),
        (INT, with_payload(Kind.INT64, b""), "feature 'f': 0 values, expected 1"),
        (
            INT,
            with_payload(Kind.FLOAT, bytes(4)),
            "feature 'f': float_list, expected int64_list",
        ),
        (
            FLOATS,
            with_payload(Kind.FLOAT, bytes(12)),
            r"feature 'f': 3 values do not fit shape \[2\]",
        ),
        (
            FeatureSpec("f", Kind.INT64, dtype="uint8"),
            with_payload(Kind.INT64, b"\xac\x02"),
            "feature 'f': 300 is not a valid uint8",
        ),
        (
            FeatureSpec("f", Kind.INT64, dtype="bool"),
            with_payload(Kind.INT64, b"\x02"),
            "feature 'f': 2 is not a valid bool",
        ),
        (
            FeatureSpec("f", Kind.INT64, dtype="uint64"),
            with_payload(Kind.INT64, b"\xff" * 9 + b"\x01"),
            "feature 'f': -1 is not a valid uint64",
        ),
        (
            FeatureSpec("f", Kind.FLOAT, dtype="float16"),
            with_payload(Kind.FLOAT, np.float32(0.1).tobytes()),
            r"feature 'f': 0\.1 is not a valid float16",
        ),
        (
            FeatureSpec("f", Kind.FLOAT, dtype="int64"),
            with_payload(Kind.FLOAT, np.float32(2.0**63).tobytes()),
            r"feature 'f': 9\.22\d+e\+18 is not a valid int64",
        ),
        (
            TEXT,
            with_payload(Kind.BYTES, b"a\xff"),
            r"feature 'f': b'a\\xff' is not UTF-8",
        ),
        (
            ARRAY,
            with_payload(Kind.BYTES, bytes(6)),
            r"feature 'f': 6 bytes are not an array of int16 of shape \[2, 2\]",
        ),
        (
            TENSOR,
            with_payload(Kind.BYTES, bytes.fromhex("08091204120208032203010203")),
            r"feature 'f': tensor of int64 .* 3 bytes|feature 'f': not a valid tensor: it "
            r"has 3 bytes in tensor_content, but shape \[3\] of int64 needs 24",
        ),
        (
            TENSOR,
            with_payload(Kind.BYTES, bytes.fromhex("08061204120208032203010203")),
            r"feature 'f': tensor of int8 of shape \[3\], expected int8 of shape "
            r"\[null, 2\]",
        ),
        (
            TENSOR,
            with_payload(Kind.BYTES, bytes.fromhex("0864")),
            "feature 'f': not a valid tensor: tensorflow.DataType 100 is not supported",
        ),
        (
            TENSOR,
            with_payload(Kind.BYTES, b"\xff"),
            "feature 'f': not a valid tensor: ",
        ),
    ],
)
def test_refuses(feature: FeatureSpec, data: bytes, reason: str) -> None:
    records = pa.array([b"", data, b""], pa.binary())
    ((row, found),) = decode_records(records, Schema((feature,))).row_errors
    assert row == 1
    assert re.match(reason, found)


@pytest.mark.parametrize(
    ("values", "lengths", "reason"),
    [
        ([1, 2], [1, 2], "row lengths 0 sum to 3, but there are 2"),
        ([1, 2], [3, -1], r"a list of -1 does not fit shape \[null, null\]"),
        ([1, 2], None, "some of its keys"),
    ],
)
def test_refuses_ragged(
    values: list[int], lengths: list[int] | None, reason: str
) -> None:
    parts = {"f__ragged_flat_values": (Kind.INT64, values)}
    if lengths is not None:
        parts["f__ragged_row_lengths_0"] = (Kind.INT64, lengths)
    good = stored(
        f__ragged_flat_values=(Kind.INT64, [5]),
        f__ragged_row_lengths_0=(Kind.INT64, [0, 1]),
    )
    records = pa.array([good, stored(**parts), good], pa.binary())
    decoded = decode_records(records, Schema((RAGGED,)))
    ((row, found),) = decoded.row_errors
    assert row == 1
    assert reason.replace("\\", "") in found
    column = decoded.batch["f"]
    assert [column[0].as_py(), column[2].as_py()] == [[[], [5]], [[], [5]]]


def test_features_that_the_schema_does_not_name() -> None:
    records = pa.array(
        [
            stored(
                a=(Kind.BYTES, [b"x", b"y"]), f=(Kind.INT64, [1]), z=(Kind.FLOAT, [])
            ),
            stored(f=(Kind.INT64, [2])),
            stored(b=(Kind.INT64, [3]), f=(Kind.INT64, [3])),
        ],
        pa.binary(),
    )
    schema = Schema((INT,))
    assert decode_batch(records, schema).to_pydict() == {"f": [1, 2, 3]}
    assert decode_records(records, schema, unknown="error").row_errors == [
        (0, "feature 'a' is not in the schema"),
        (2, "feature 'b' is not in the schema"),
    ]


def test_strangers_in_all_records_cost_no_detour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "rewrite_example", None)
    record = stored(a=(Kind.BYTES, [b"x", b"y"]), f=(Kind.INT64, [7]))
    records = pa.array([record] * 3, pa.binary())
    assert decode_batch(records, Schema((INT,))).to_pydict() == {"f": [7, 7, 7]}


def test_with_too_many_unknown_keys_records_are_rewritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MAX_UNKNOWN", 2)
    record = stored(
        **{name: (Kind.INT64, [1]) for name in ("a", "b", "c")}, f=(Kind.INT64, [7])
    )
    long = stored(f=(Kind.INT64, [8]), **{"z" * 300: (Kind.INT64, [1])})
    records = pa.array([record, long], pa.binary())
    assert decode_batch(records, Schema((INT,))).to_pydict() == {"f": [7, 8]}


def test_types_by_shape() -> None:
    schema = Schema(
        (
            FeatureSpec("a", Kind.INT64, dtype="bool"),
            FeatureSpec("b", Kind.FLOAT, dtype="float64", shape=(2, 2)),
            FeatureSpec("c", Kind.BYTES, dtype="string", shape=(None,)),
            FeatureSpec("d", Kind.INT64, dtype="uint8", shape=(None, None)),
            FeatureSpec("e", Kind.BYTES, dtype="float16", content=Content.TENSOR),
            FeatureSpec("g", Kind.BYTES, dtype="uint8", content=Content.IMAGE),
            FeatureSpec("h", Kind.INT64, shape=(2, None, 3, None, 4)),
        )
    )
    nothing = decode_batch(pa.array([b"", b"\x0a\x00"], pa.binary()), schema)
    assert nothing.schema.types == [
        pa.bool_(),
        pa.list_(pa.float64()),
        pa.list_(pa.string()),
        pa.list_(pa.list_(pa.uint8())),
        pa.float16(),
        pa.binary(),
        pa.list_(pa.list_(pa.list_(pa.list_(pa.int64())))),
    ]
    assert [column.null_count for column in nothing.columns] == [2] * 7
    no_rows = decode_batch(pa.array([], pa.binary()), schema)
    assert (no_rows.num_rows, no_rows.schema) == (0, nothing.schema)


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (
            FeatureSpec("f", Kind.INT64, dtype="float32"),
            "feature 'f': int64_list cannot store values of float32",
        ),
        (
            FeatureSpec("f", Kind.BYTES, dtype="int64"),
            "feature 'f': bytes_list cannot store values of int64",
        ),
        (
            FeatureSpec("f", Kind.INT64, is_sequence=True),
            "feature 'f': only sequence examples have feature lists",
        ),
    ],
)
def test_schema_that_has_no_columns(feature: FeatureSpec, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        decode_batch(pa.array([b""], pa.binary()), Schema((feature,)))


def test_a_slice() -> None:
    values = [7, 1 << 40, 5, 6, 7, 8, 300, 9]
    records = pa.array([stored(f=(Kind.INT64, [v])) for v in values], pa.binary())
    records = pa.concat_arrays([pa.array([b"x"]), records]).slice(1)
    assert decode_batch(records, Schema((INT,)))["f"].to_pylist() == values
    damaged = pa.concat_arrays([records, pa.array([b"\xff"])])
    ((row, found),) = decode_records(damaged, Schema((INT,))).row_errors
    assert (row, found[:7]) == (8, "1 bytes")


def test_many_values_in_few_records() -> None:
    texts = [[b"t" * (n % 200) for n in range(count)] for count in [500, 0, *[3] * 40]]
    records = pa.array([stored(f=(Kind.BYTES, row)) for row in texts], pa.binary())
    schema = Schema((FeatureSpec("f", Kind.BYTES, shape=(None,)),))
    assert decode_batch(records, schema)["f"].to_pylist() == texts
