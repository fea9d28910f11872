"""The encoder's bytes beside those of TensorFlow and TFDS for the same values."""

from __future__ import annotations

import base64
import math

import numpy as np
import pyarrow as pa
from encoder_cases import NUMBERS
from interop_tools import ask

from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.encode.examples import encode, load_feature
from recordmill.transforms.encode.payloads import encode_payload

SCRIPT = "answers.py"

TENSOR_SHAPES = [
    (),
    (1,),
    (0,),
    (127,),
    (300,),
    (2, 3),
    (5, 0),
    (2, 0, 3),
    (1, 1, 1, 1),
    (130, 2),
    (2, 3, 4, 5, 6),
]
TEXTS = [b"", b"a", "ß漢😀".encode(), b"\0\xff", b"x" * 127, b"y" * 128, b"z" * 20_000]


def encoded_tensor(array: pa.Array, dtype: str, shape: tuple[int | None, ...]) -> str:
    feature = FeatureSpec(
        "t", Kind.BYTES, dtype=dtype, shape=shape, content=Content.TENSOR
    )
    (column,) = load_feature(array, feature)
    tensor: bytes = column.values[0].as_py()
    return tensor.hex()


def test_tensors() -> None:
    """Random bits of every dtype, so also NaNs that differ and numbers at the limits."""
    rng = np.random.default_rng(7)
    cases, found = [], []
    for shape in TENSOR_SHAPES:
        size = math.prod(shape)
        for dtype in NUMBERS:
            bits = rng.integers(0, 256, size * np.dtype(dtype).itemsize, np.uint8)
            values = (bits % 2 if dtype == "bool" else bits).view(dtype)
            data = base64.b64encode(values.tobytes()).decode()
            cases.append({"dtype": dtype, "shape": shape, "data": data})
            flat = pa.array(values)
            found.append((flat, dtype, shape))
        texts = [TEXTS[i] for i in rng.integers(0, len(TEXTS), size)]
        coded = [base64.b64encode(text).decode() for text in texts]
        cases.append({"dtype": "string", "shape": shape, "values": coded})
        found.append((pa.array(texts, pa.binary()), "bytes", shape))
    answers = ask(SCRIPT, "tensors", given=cases)
    assert len(answers) == len(cases) == 13 * 11
    for (flat, dtype, shape), wanted in zip(found, answers, strict=True):
        column = flat
        if shape:
            offsets = pa.array([0, len(flat)], pa.int32())
            column = pa.ListArray.from_arrays(offsets, flat)
        assert encoded_tensor(column, dtype, shape) == wanted, (dtype, shape)
        if len(flat):  # and with a dimension to find out
            unknown = (None, *shape[1:]) if shape else ()
            assert encoded_tensor(column, dtype, unknown) == wanted, (dtype, unknown)


# None is subnormal: TensorFlow's kernels take such numbers for 0.
FLOATS = [0.0, -0.0, 1.5, 1e20, 3.4028235e38, 1.1754944e-38, 0.1, 16_777_216.0, -7.0]
NOT_FINITE = [math.nan, math.inf, -math.inf]


def test_json() -> None:
    """TensorFlow decodes each JSON text to the example of payload `example`."""
    bits = np.random.default_rng(8).integers(0, 1 << 32, 2000, np.uint32)
    drawn = bits.view(np.float32)
    drawn = drawn[np.isfinite(drawn) & (np.abs(drawn) > 1.2e-38)].tolist()
    batch = pa.RecordBatch.from_pydict(
        {
            'key "ß"\n': pa.array([7, -(1 << 63), (1 << 63) - 1, None]),
            "floats": pa.array([FLOATS, NOT_FINITE, [], drawn], pa.list_(pa.float32())),
            "bytes": pa.array(
                [[b"", b"a", b"ab", b"abc", b"\0\xff" * 9], [], None, [b""]]
            ),
            "score": pa.array([None, 0.1, math.inf, -0.0], pa.float32()),
        }
    )
    schema = Schema(
        (
            FeatureSpec('key "ß"\n', Kind.INT64),
            FeatureSpec("floats", Kind.FLOAT, shape=(None,)),
            FeatureSpec("bytes", Kind.BYTES, shape=(None,)),
            FeatureSpec("score", Kind.FLOAT),
        )
    )
    texts = encode_payload(batch, schema, "json").to_pylist()
    found = ask(SCRIPT, "json", given=[text.decode() for text in texts])
    assert found == [example.hex() for example in encode(batch, schema).to_pylist()]


def test_sequence_examples() -> None:
    rows = [
        {
            "label": 3,
            "name": "first",
            "frame": [[0.5, 1.5], [2.5, 3.5]],
            "token": [[5, 6], [], [7]],
            "word": ["a", "", "ß"],
        },
        {"label": -1, "name": None, "frame": [], "token": [], "word": []},
        {"label": 0, "name": "", "frame": None, "token": None, "word": None},
    ]
    schema = Schema(
        (
            FeatureSpec("label", Kind.INT64),
            FeatureSpec("name", Kind.BYTES, dtype="string", optional=True),
            FeatureSpec(
                "frame", Kind.FLOAT, shape=(2,), is_sequence=True, optional=True
            ),
            FeatureSpec("token", Kind.INT64, shape=(None,), is_sequence=True),
            FeatureSpec("word", Kind.BYTES, dtype="string", is_sequence=True),
        )
    )
    batch = pa.RecordBatch.from_pylist(
        rows,
        pa.schema(
            [
                ("label", pa.int64()),
                ("name", pa.string()),
                ("frame", pa.list_(pa.list_(pa.float32()))),
                ("token", pa.list_(pa.list_(pa.int64()))),
                ("word", pa.list_(pa.string())),
            ]
        ),
    )
    records = encode_payload(batch, schema, "sequence_example").to_pylist()
    missing = {"frame": [], "token": [], "word": []}
    assert ask(SCRIPT, "sequences", given=[record.hex() for record in records]) == [
        rows[0],
        {**rows[1], "name": "(none)"},
        {**rows[2], **missing},
    ]


RAGGED = [
    ("int64", [None, None], [], [[[1, 2, 3], [], [4, 5]], [[]], [], [[7]]]),
    ("float32", [None, None, None], [], [[[[0.5], []], [], [[1.5, 2.5]]], [], [[]]]),
    ("int64", [None, None], [4], [[[[1, 2, 3, 4]], []], [[[5] * 4, [6] * 4]], []]),
    ("int64", [None, 2, None], [], [[[[1], [2, 3]], [[], []]], []]),
    ("int64", [2, None, None], [], [[[[1], [2, 3]], []]]),
    ("str", [None, None], [], [[["a", "ß"], [], [""]], []]),
    ("bool", [None, None], [], [[[True, False], [True]]]),
]


def test_ragged() -> None:
    """Every key and value of a ragged feature as TFDS' own serializer has them."""
    cases, found = [], []
    for dtype, outer, inner, rows in RAGGED:
        cases += [
            {"dtype": dtype, "outer": outer, "inner": inner, "value": row}
            for row in rows
        ]
        leaf = pa.string() if dtype == "str" else pa.from_numpy_dtype(dtype)
        for _ in (*outer, *inner):
            leaf = pa.list_(leaf)
        kind = {"str": Kind.BYTES, "float32": Kind.FLOAT}.get(dtype, Kind.INT64)
        feature = FeatureSpec("f", kind, shape=(*outer, *inner))
        batch = pa.RecordBatch.from_arrays([pa.array(rows, leaf)], ["f"])
        found += encode(batch, Schema((feature,))).to_pylist()
    for case, mine, theirs in zip(
        cases, found, ask(SCRIPT, "ragged", given=cases), strict=True
    ):
        wanted = Example.FromString(bytes.fromhex(theirs))
        assert Example.FromString(mine) == wanted, case
