"""From source columns to features: reasons, defaults, files, and on to the records."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cast_tools import PREFIX, Outcome, Refusal, check, declare, outcome
from declared_zoo import declared_features
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.declared import DeclaredFeature, DeclaredSchema
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.proto import example_pb2
from recordmill.transforms.cast import cast_batch as conform_module
from recordmill.transforms.cast.cast_batch import CastBatch, cast, check_columns
from recordmill.transforms.cast.cell_lists import feature_type
from recordmill.transforms.cast.side_files import SidecarFileError, SidecarFiles
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.sources.csv.rows import split_cells

GOLDEN = Path(__file__).parents[2] / "data" / "golden"

CLASSES: dict[str, Any] = {"classes": ["cat", "dog"]}
JSON_INTEGERS: dict[str, Any] = {"dtype": "int8", "shape": [None], "cell": "json"}
JSON_FLOATS: dict[str, Any] = {**JSON_INTEGERS, "dtype": "float32"}
JSON_PAIRS: dict[str, Any] = {**JSON_FLOATS, "shape": [None, 2]}


def int64_in(unit: str) -> dict[str, Any]:
    return {"dtype": "int64", "unit": unit}


def separated(*shape: int | None, **fields: Any) -> dict[str, Any]:
    return {"dtype": "int8", "shape": [*shape], "separator": ";", **fields}


REASONS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"dtype": "int8"}, "300", "300 is beyond int8 (-128 to 127)"),
    ({"dtype": "int8"}, " 1.5", "'1.5' is not a valid int8"),
    (
        *({"dtype": "int64"}, "9" * 50),
        f"{'9' * 40}... is beyond int64 (-9223372036854775808 to 9223372036854775807)",
    ),
    ({"dtype": "float32"}, "1,5", "'1,5' is not a valid float32"),
    ({"dtype": "float64"}, "1e400", "1e400 is beyond float64 (at most 1.8e308)"),
    ({"dtype": "float32"}, "1e39", "1e+39 is beyond float32 (at most 3.4e38)"),
    ({"dtype": "float16"}, "7e4", "70000.0 is beyond float16 (at most 65504)"),
    ({"dtype": "bool"}, "yes", "'yes' is not a valid bool (true, false, 1 or 0)"),
    ({"dtype": "int8", "min": 1, "max": 5}, "7", "7 is out of range (min 1, max 5)"),
    ({"dtype": "float32", "max": 1}, "nan", "nan is out of range (max 1)"),
    (
        int64_in("s"),
        "31.1.2024",
        "'31.1.2024' is not a date or time in ISO 8601 (like 2024-01-31 or "
        "2024-01-31T10:20:30Z)",
    ),
    (
        int64_in("d"),
        "2024-01-31T10:20",
        "'2024-01-31T10:20' is not a whole number of d",
    ),
    (int64_in("ns"), "9999-12-31", "'9999-12-31' is beyond int64 in ns"),
    (CLASSES, "dgo", "'dgo' is not a class name; did you mean 'dog'?"),
    (CLASSES, "1", "'1' is not a class name; the names are 'cat', 'dog'"),
    (
        *({"classes": list("abcdefghijkl")}, "?"),
        "'?' is not a class name; the names are 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', "
        "'i', 'j' and 2 more",
    ),
    (
        *({"dtype": "bytes", "cell": "hex"}, "0x41"),
        "'0x41' is not valid hex (two digits per byte, 0-9 and a-f)",
    ),
    (
        *({"dtype": "bytes", "cell": "base64"}, "-_8="),
        "'-_8=' is not valid base64 (four digits A-Z a-z 0-9 + / for three bytes, = at the "
        "end)",
    ),
    (separated(3), "1;2", "length 2 in dimension 0, expected 3 (shape [3])"),
    (separated(2, 2), "1;2;3", "3 values, expected 4 (shape [2, 2])"),
    (separated(None, 2), "1", "1 value, expected a multiple of 2 (shape [null, 2])"),
    (
        separated(2, sequence=True),
        "1;2;3",
        "3 values, expected a multiple of 2 (steps of [2])",
    ),
    (separated(None), "1;;x", "a list contains an empty or null value"),
    (
        JSON_INTEGERS,
        "[1, 2",
        "'[1, 2' is not valid JSON: Expecting ',' delimiter: line 1 column 6 (char 5)",
    ),
    (
        JSON_INTEGERS,
        "[" * 100_000,
        "'[[[[[[[[[[[[[[[[[[[[[[[[[[[...[[[[[[[[[[[[[[[[[[[[[[[[[[[[' nests too many "
        "lists",
    ),
    (JSON_INTEGERS, '[1, "2"]', "'2' instead of a whole number (int8)"),
    (JSON_INTEGERS, "[true]", "true instead of a whole number (int8)"),
    (*({"dtype": "bool", "cell": "json"}, "1"), "1 instead of true or false"),
    (JSON_FLOATS, "[1, [2]]", "a list instead of a number (float32)"),
    (JSON_PAIRS, "[1, 2]", "1.0 instead of a list"),
    (
        JSON_PAIRS,
        "[[1, 2], [3]]",
        "length 1 in dimension 1, expected 2 (shape [null, 2])",
    ),
    (
        *({"dtype": "float32", "shape": [2, None], "cell": "json"}, "[[1, 2], [3]]"),
        "length 1 in dimension 1, expected 2 (shape [2, null])",
    ),
    (JSON_FLOATS, "[1e400]", "'1e400' is beyond float64 (at most 1.8e308)"),
    (JSON_INTEGERS, "[300, 1000]", "300 is beyond int8 (-128 to 127)"),
    (
        *({"dtype": "string", "cell": "json"}, '"\\ud800"'),
        "'\\ud800' has an unpaired surrogate",
    ),
    (
        *({"dtype": "int64", "unit": "d", "cell": "json"}, "19000"),
        "19000 instead of a date or time as a string",
    ),
    (
        *({"classes": ["cat"], "shape": [None], "cell": "json"}, '["cat", 1]'),
        "1 is not a class index (0 to 0)",
    ),
    ({"dtype": "int8"}, None, "missing; it is neither optional nor has a default"),
    ({"dtype": "int8"}, " ", "missing; it is neither optional nor has a default"),
]


@pytest.mark.parametrize(("fields", "cell", "reason"), REASONS)
def test_reasons(fields: dict[str, Any], cell: str | None, reason: str) -> None:
    check([cell], [Refusal(reason)], optional=False, **fields)


TYPED_REASONS: list[tuple[dict[str, Any], pa.Array, str]] = [
    (
        {"dtype": "string"},
        pa.array([b"a\xff"]),
        "not UTF-8: b'\\xff' at byte 1 of the value",
    ),
    ({"dtype": "bool"}, pa.array([2]), "2 is not a valid bool (1 or 0)"),
    ({"dtype": "uint8"}, pa.array([-1]), "-1 is beyond uint8 (0 to 255)"),
    (
        *({"dtype": "float32"}, pa.array([2**24 + 1])),
        "16777217 would be rounded in float32: declare an integer dtype",
    ),
    ({"classes": ["a"]}, pa.array([1]), "1 is not a class index (0 to 0)"),
    (
        *({"dtype": "int64", "unit": "s"}, pa.array([1500], pa.timestamp("ms", "UTC"))),
        "'1970-01-01 00:00:01.500' is not a whole number of s",
    ),
    (
        *({"dtype": "int64", "unit": "ns"}, pa.array([1 << 60], pa.duration("s"))),
        "1152921504606846976 s is beyond int64 in ns",
    ),
    (
        *({"dtype": "int16", "shape": [None]}, pa.array([b"abc"])),
        "3 bytes are not a whole number of int16 values (2 bytes each)",
    ),
]


@pytest.mark.parametrize(("fields", "column", "reason"), TYPED_REASONS)
def test_reasons_of_typed_values(
    fields: dict[str, Any], column: pa.Array, reason: str
) -> None:
    check(column, [Refusal(reason)], **fields)


def test_closest_names_have_a_limit() -> None:
    """Comparing names is slow: many unknown labels must not hold up a batch."""
    classes = [f"class {i}" for i in range(5000)]
    found = outcome([f"klass {i}" for i in range(200)], classes=classes)
    assert found[0] == "'klass 0' is not a class name; did you mean 'class 0'?"
    assert found[199].startswith(
        "'klass 199' is not a class name; the names are 'class 0'"
    )


def table(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def features(**features: Any) -> DeclaredSchema:
    return DeclaredSchema.model_validate({"features": features})


def test_first_reason_in_declared_order() -> None:
    declared = features(b={"dtype": "int8"}, a={"dtype": "int8"})
    batch = table(a=["x", "1", "2", "x"], b=["x", "1", "y", "0"], other=[None] * 4)
    (made,) = cast(batch, declared)
    assert made.batch.to_pydict() == {"b": [1], "a": [1]}
    assert made.row_indices.tolist() == [1]
    assert made.invalid_rows == [
        (0, "feature 'b': 'x' is not a valid int8"),
        (2, "feature 'b': 'y' is not a valid int8"),
        (3, "feature 'a': 'x' is not a valid int8"),
    ]


def test_several_features_of_one_column() -> None:
    declared = features(
        text={"column": "c", "dtype": "string"}, number={"column": "c", "dtype": "int8"}
    )
    (made,) = cast(table(c=["7"]), declared)
    assert made.batch.to_pydict() == {"text": ["7"], "number": [7]}


def test_no_rows() -> None:
    (made,) = cast(table(c=pa.array([], pa.string())), declare(dtype="int8"))
    assert (made.batch.num_rows, made.row_indices.tolist(), made.invalid_rows) == (
        0,
        [],
        [],
    )


DEFAULTS: list[tuple[dict[str, Any], Any, Any]] = [
    ({"dtype": "int8"}, 7, 7),
    ({"dtype": "int8"}, "7", 7),
    ({"dtype": "float32"}, 1, 1.0),
    ({"dtype": "float32"}, 0.5, 0.5),
    ({"dtype": "bool"}, True, True),
    ({"dtype": "string"}, "", ""),
    ({"dtype": "bytes"}, "é", "é".encode()),
    ({"dtype": "bytes", "cell": "hex"}, "00ff", b"\0\xff"),
    ({"dtype": "bytes", "cell": "hex"}, b"00ff", b"00ff"),
    (CLASSES, "dog", 1),
    (CLASSES, 1, 1),
    (int64_in("d"), "1970-01-02", 1),
    (separated(None), "1;2", [1, 2]),
    (separated(None), [1, 2], [1, 2]),
    (JSON_PAIRS, [[1, 2]], [1.0, 2.0]),
    (
        {"dtype": "float32", "shape": [None, None], "cell": "json"},
        [[1], []],
        [[1.0], []],
    ),
    ({"dtype": "float32", "shape": [None, None], "cell": "json"}, [], []),
    (JSON_INTEGERS, [], []),
    ({"dtype": "string", "cell": "json"}, "none", "none"),
    ({"classes": ["cat"], "shape": [None], "cell": "json"}, ["cat"], [0]),
]


@pytest.mark.parametrize(("fields", "default", "expected"), DEFAULTS)
def test_defaults(fields: dict[str, Any], default: Any, expected: Any) -> None:
    check([None, None], [expected] * 2, default=default, **fields)


def test_a_refused_value_does_not_become_the_default() -> None:
    check(["x", None], [Refusal("'x' is not a valid int8"), 5], dtype="int8", default=5)


WRONG_DEFAULTS: list[tuple[dict[str, Any], Any, str]] = [
    ({"dtype": "int8"}, 300, "300: 300 is beyond int8 (-128 to 127)"),
    ({"dtype": "int8"}, "x", "'x': 'x' is not a valid int8"),
    ({"dtype": "int8", "max": 5}, 7, "7: 7 is out of range (max 5)"),
    ({"dtype": "int8"}, "", "'': no value"),
    (
        *({"dtype": "int8"}, 1.0),
        "1.0: double cannot become int8: 1.0 is not an integer; declare a float dtype",
    ),
    (
        *({"dtype": "int8", "shape": [3], "cell": "json"}, [1]),
        "[1]: length 1 in dimension 0, expected 3 (shape [3])",
    ),
]


@pytest.mark.parametrize(("fields", "default", "reason"), WRONG_DEFAULTS)
def test_defaults_that_do_not_fit(
    fields: dict[str, Any], default: Any, reason: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        check_columns(
            pa.schema([("c", pa.string())]), declare(default=default, **fields)
        )
    assert str(caught.value) == f"{PREFIX}default {reason}"


def test_columns_that_are_not_there_are_named_all() -> None:
    declared = features(label="int64", x={"column": "twice"})
    columns = pa.schema([(name, pa.string()) for name in ("labels", "twice", "twice")])
    with pytest.raises(SchemaError) as caught:
        check_columns(columns, declared)
    assert str(caught.value).splitlines() == [
        "feature 'label': no column 'label' among labels, twice, twice; did you mean "
        "'labels'?",
        "  feature 'x': two columns 'twice'",
    ]


def test_columns_that_fit() -> None:
    columns = pa.schema([("c", pa.string()), ("unused", pa.struct([]))])
    check_columns(columns, declare(dtype="int8", default=1))
    check_columns(columns, declare(dtype="bytes", bytes_from="path"))


def test_files_without_a_place() -> None:
    with pytest.raises(SchemaError, match="no such files"):
        list(cast(table(c=["a"]), declare(bytes_from="path")))


# Images and files


def golden_images() -> list[bytes]:
    return [
        (GOLDEN / "images" / name).read_bytes() for name in ("cat/a.jpg", "dog/c.png")
    ]


def test_images_by_their_header() -> None:
    jpeg, png = golden_images()
    height, width = Image.open(io.BytesIO(png)).size[::-1]
    images = [jpeg, png, b"no image", None]
    wanted = {"format": "png", "height": height, "width": width + 1}
    found: Outcome = outcome(pa.array(images), dtype="bytes", picture=wanted)
    assert found[0].startswith("image of format jpeg, expected png")
    assert found[1:] == [
        f"image of width {width}, expected {width + 1}",
        "not an image: starts with b'no image' (expected JPEG, PNG, GIF, BMP, WebP "
        "or TIFF)",
        None,
    ]
    assert outcome(pa.array(images[:2]), dtype="bytes", picture={}) == images[:2]


def test_images_of_a_sequence() -> None:
    jpeg, png = golden_images()
    rows = [[jpeg, jpeg], None, [], [jpeg, png, b""]]
    wrong = Refusal("image of format png, expected jpeg")
    fields: dict[str, Any] = {"picture": {"format": "jpeg"}, "sequence": True}
    check(
        pa.array(rows, pa.list_(pa.binary())),
        [*rows[:3], wrong],
        dtype="bytes",
        **fields,
    )


def test_images_in_base64() -> None:
    jpeg, png = golden_images()
    texts = [base64.b64encode(data).decode() for data in (jpeg, png)]
    fields: dict[str, Any] = {"cell": "base64", "picture": {"format": "jpeg"}}
    expected = [jpeg, Refusal("image of format png, expected jpeg")]
    check(texts, expected, dtype="bytes", **fields)


@pytest.fixture
def side_files(tmp_path: Path) -> SidecarFiles:
    (tmp_path / "tables").mkdir()
    for name, size in (("a", 40), ("b", 50), ("c", 30), ("d", 200), ("e", 10)):
        (tmp_path / "tables" / name).write_bytes(name.encode() * size)
    return SidecarFiles(str(tmp_path), str(tmp_path / "tables"))


def test_file_bytes_come_in_parts(
    side_files: SidecarFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conform_module, "FILE_BYTES", 100)
    names = ["a", "b", "gone", "c", "d", None, "e", "b"]
    batch = table(
        path=names, number=["0", "1", "2", "x", "4", "5", "6", "7"], unused=names
    )
    declared = features(
        data={"column": "path", "bytes_from": "path", "optional": True}, number="int8"
    )
    parts = list(cast(batch, declared, side_files))
    assert [
        (p.row_indices.tolist(), [row for row, _ in p.invalid_rows]) for p in parts
    ] == [
        ([0, 1, 4], [2, 3]),  # 290 bytes; c is not read, as its row is refused
        ([5, 6, 7], []),
    ]
    assert parts[0].invalid_rows == [
        (2, "feature 'data': 'gone': no such file"),
        (3, "feature 'number': 'x' is not a valid int8"),
    ]
    rows = [row for part in parts for row in part.batch.to_pylist()]
    assert [row["number"] for row in rows] == [0, 1, 4, 5, 6, 7]
    assert [row["data"] for row in rows] == [
        None if name is None else name.encode() * size
        for name, size in zip("ab", (40, 50), strict=True)
    ] + [b"d" * 200, None, b"e" * 10, b"b" * 50]


def test_images_from_files(tmp_path: Path) -> None:
    for name, data in zip(("a.jpg", "b.png"), golden_images(), strict=True):
        (tmp_path / name).write_bytes(data)
    (tmp_path / "c.jpg").write_text("no image")
    declared = features(
        image={"column": "path", "bytes_from": "path", "picture": {"format": "jpeg"}},
        mask={"column": "mask", "bytes_from": "path", "default": "b.png"},
    )
    batch = table(
        path=["b.png", "a.jpg", "c.jpg"], mask=pa.array([None] * 3, pa.string())
    )
    (made,) = cast(batch, declared, SidecarFiles(str(tmp_path), str(tmp_path)))
    jpeg, png = golden_images()
    assert made.batch.to_pylist() == [{"image": jpeg, "mask": png}]
    assert made.invalid_rows == [
        (0, "feature 'image': image of format png, expected jpeg"),
        (
            2,
            "feature 'image': not an image: starts with b'no image' (expected JPEG, "
            "PNG, GIF, BMP, WebP or TIFF)",
        ),
    ]


def test_a_row_of_two_files_of_which_one_is_gone(side_files: SidecarFiles) -> None:
    declared = features(
        a={"column": "a", "bytes_from": "path"}, b={"column": "b", "bytes_from": "path"}
    )
    (made,) = cast(table(a=["a", "b"], b=["gone", "e"]), declared, side_files)
    assert made.invalid_rows == [(0, "feature 'b': 'gone': no such file")]
    assert made.batch.to_pylist() == [{"a": b"b" * 50, "b": b"e" * 10}]


# Whatever is declared

ODD_CELLS = st.one_of(
    st.none(),
    st.sampled_from(["1", "a", "1;2", "[1]", "[[1, 2]]", "[]", "1.5", "2024-01-01"]),
    st.sampled_from(["ff", "YQ==", "null", '["a"]', '[[["a"]]]', " ", "true"]),
    st.text(max_size=4),
)
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), ODD_CELLS),
    (pa.int64(), st.none() | st.integers(0, 3)),
    (pa.float64(), st.none() | st.floats()),
    (pa.binary(), st.none() | st.binary(max_size=4)),
    (pa.list_(pa.int64()), st.none() | st.lists(st.integers(0, 3))),
    (
        pa.list_(pa.list_(pa.string())),
        st.none() | st.lists(st.none() | st.lists(ODD_CELLS, max_size=2), max_size=2),
    ),
]


class AnyFiles:
    """A file for every path that is not empty."""

    def size(self, path: str) -> int:
        if not path:
            raise SidecarFileError("'' is not a valid path")
        return len(path)

    def read(self, path: str) -> bytes:
        return path.encode()


@examples(400)
@given(declared_features(), st.sampled_from(COLUMNS), st.data())
def test_what_passes_the_check_never_fails(
    feature: DeclaredFeature,
    column: tuple[pa.DataType, st.SearchStrategy[Any]],
    data: st.DataObject,
) -> None:
    """Every row is kept or refused, and what is kept is of the feature's type."""
    feature = feature.model_copy(update={"column": "c"})
    declared = DeclaredSchema(features={"f": feature})
    arrow_type, cells = column
    array = pa.array(data.draw(st.lists(cells, max_size=4)), arrow_type)
    batch = pa.RecordBatch.from_arrays([array], ["c"])
    try:
        check_columns(batch.schema, declared)
    except SchemaError:
        return
    (made,) = cast(batch, declared, AnyFiles())
    made.batch.validate(full=True)
    assert made.batch["f"].type == feature_type(feature)
    assert feature.optional or not made.batch["f"].null_count
    rows = [*made.row_indices.tolist(), *(row for row, _ in made.invalid_rows)]
    assert sorted(rows) == list(range(len(array)))


# To the record

ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "score": st.none() | st.floats(width=32, allow_nan=False),
        "label": st.sampled_from(["cat", "dog", "bird"]),
        "name": st.none() | st.text('aé,"\n;漢', min_size=1, max_size=5),
        "sizes": st.lists(st.integers(0, 300), min_size=1, max_size=4),
        "boxes": st.lists(
            st.lists(st.floats(0, 1, width=32), min_size=4, max_size=4), max_size=2
        ),
        "words": st.lists(st.lists(st.integers(-9, 9), max_size=2), max_size=3),
        "digest": st.binary(min_size=1, max_size=4),
        "day": st.dates(),
        "flag": st.none() | st.booleans(),
    }
)
DECLARED = features(
    id="int64",
    score="float32?",
    label={"classes": ["cat", "dog"]},
    name={"dtype": "string", "default": "nobody"},
    sizes={"dtype": "uint8", "shape": [None], "separator": ";"},
    boxes={"dtype": "float32", "shape": [None, 4], "cell": "json"},
    words={"dtype": "int8", "shape": [None, None], "cell": "json"},
    digest={"dtype": "bytes", "cell": "base64"},
    day={"dtype": "int64", "unit": "d"},
    flag="bool?",
)


def as_cells(row: dict[str, Any]) -> list[Any]:
    return [
        row["id"],
        "" if row["score"] is None else repr(row["score"]),
        row["label"],
        row["name"],
        "; ".join(map(str, row["sizes"])),
        json.dumps(row["boxes"]),
        json.dumps(row["words"]),
        base64.b64encode(row["digest"]).decode(),
        row["day"],
        row["flag"],
    ]


def as_example(row: dict[str, Any]) -> dict[str, tuple[str, list[Any]]] | None:
    """What the record must hold; None if the row must be refused."""
    if row["label"] == "bird" or max(row["sizes"]) > 255:
        return None
    example: dict[str, tuple[str, list[Any]]] = {
        "id": ("int64_list", [row["id"]]),
        "label": ("int64_list", [["cat", "dog"].index(row["label"])]),
        "name": ("bytes_list", [(row["name"] or "nobody").encode()]),
        "sizes": ("int64_list", row["sizes"]),
        "boxes": ("float_list", [side for box in row["boxes"] for side in box]),
        "words/ragged_flat_values": (
            "int64_list",
            [x for word in row["words"] for x in word],
        ),
        "words/ragged_row_lengths_0": ("int64_list", list(map(len, row["words"]))),
        "digest": ("bytes_list", [row["digest"]]),
        "day": ("int64_list", [row["day"].toordinal() - 719_163]),
    }
    if row["score"] is not None:
        example["score"] = ("float_list", [row["score"]])
    if row["flag"] is not None:
        example["flag"] = ("int64_list", [int(row["flag"])])
    return example


def csv_cells(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows written by Python's csv module and split as the CSV source does."""
    text = io.StringIO(newline="")
    csv.writer(text).writerows(map(as_cells, rows))
    body = text.getvalue().encode()
    batch, rejects = split_cells(body, list(DECLARED.features))
    assert not rejects
    return batch


@examples(150)
@given(st.lists(ROWS, min_size=1, max_size=8))
def test_csv_to_examples(rows: list[dict[str, Any]]) -> None:
    batch = csv_cells(rows)
    check_columns(batch.schema, DECLARED)
    made: CastBatch
    (made,) = cast(batch, DECLARED)
    expected = list(map(as_example, rows))
    assert made.row_indices.tolist() == [
        i for i, one in enumerate(expected) if one is not None
    ]
    assert [row for row, _ in made.invalid_rows] == [
        i for i, one in enumerate(expected) if one is None
    ]
    records = encode(made.batch, DECLARED.to_schema())
    found = []
    for record in records.to_pylist():
        parsed = example_pb2.Example.FromString(record).features.feature
        kinds = {name: str(parsed[name].WhichOneof("kind")) for name in parsed}
        found.append(
            {
                n: (kind, list(getattr(parsed[n], kind).value))
                for n, kind in kinds.items()
            }
        )
    assert found == [one for one in expected if one is not None]
