"""Schemas inferred from whole inputs: what convert finds, whatever the ranges."""

from __future__ import annotations

import csv
import io
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_tools import IRIS, SAMPLES, convert, manifest_of, python
from pixel_zoo import PICTURES
from source_tools import FileWriter, file_writer
from test_csv_source import quoted
from test_csv_types import COLUMNS, holds_of_all

from schemas.declared_of import declared_of
from schemas.errors import InputError
from schemas.features import Content, FeatureSpec, Kind, Schema
from schemas.ranges import InputFile
from schemas.schema_file import dump_yaml, load_schema
from transforms.conform import conform
from transforms.facts_text import comments_of, facts_json, head_of
from transforms.infer import Inferred, Place, infer
from transforms.sources.base import Source
from transforms.sources.csv import CsvSource
from transforms.sources.csv_types import Holds, cell_type
from transforms.sources.fixed_length import FixedLengthSource
from transforms.sources.images import ImagesSource
from transforms.storage import list_inputs


@pytest.fixture(scope="module")
def write_csv(tmp_path_factory: pytest.TempPathFactory) -> FileWriter:
    return file_writer(tmp_path_factory)


def inferred(source: Source, *inputs: Path, workers: int = 2) -> Inferred:
    _, files = list_inputs([str(path) for path in inputs])
    return infer(source, files, workers)


def features_of(schema: Schema) -> list[dict[str, Any]]:
    """The features as a manifest states them."""
    return [{"num_classes": None, **feature.to_json()} for feature in schema.features]


# Columns of CSV that are easily taken for something else.
TRICKY: dict[str, list[str]] = {
    "late decimal": [*["1"] * 30, "2.5"],
    "late text": [*["1"] * 30, "x"],
    "late boolean": [*["1"] * 30, "true"],
    "late missing": [*["1"] * 30, ""],
    "zip code": ["01234", "98765"] * 16,
    "beyond int64": [*["1"] * 30, "9223372036854775808"],
    "the last int64": ["9223372036854775807"] * 31,
    "beyond float64": [*["1.5"] * 30, "1e400"],
    "plus": ["+1"] * 31,
    "minus zero": ["-0"] * 31,
    "boolean": ["true", "FALSE"] * 16,
    "infinity": ["inf", "-Infinity", "nan", "1"] * 8,
    "empty": [""] * 31,
    "mostly empty": [*[""] * 30, "7"],
    "quoted": ["line\nbreak", 'a "quote"', "a,comma"] * 11,
    "naïve, ☃": ["1"] * 31,
    "null": ["no", "1.0", "yes"] * 11,
}


def write_tricky(path: Path, *, repeat: int = 1) -> None:
    """The tricky columns; with `repeat`, their first 30 rows so many times."""
    rows = [[cells[row] for cells in TRICKY.values()] for row in range(31)]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(TRICKY)
        for _ in range(repeat):
            writer.writerows(rows[:30])
        writer.writerow(rows[30])


@pytest.mark.parametrize("repeat", [1, 4000])  # 4000: two input ranges
def test_schema_is_that_of_a_conversion(tmp_path: Path, repeat: int) -> None:
    write_tricky(tmp_path / "in.csv", repeat=repeat)
    convert("csv", tmp_path / "in.csv", tmp_path / "out")

    found = inferred(CsvSource(), tmp_path / "in.csv")

    manifest = manifest_of(tmp_path / "out")
    assert features_of(found.schema) == manifest["features"]
    assert features_of(found.declared.to_schema()) == manifest["features"]
    assert found.facts.rows == manifest["rows_read"] == 30 * repeat + 1
    assert list(found.declared.features) == list(TRICKY), "the file's order"


def test_types_of_the_tricky_columns(tmp_path: Path) -> None:
    write_tricky(tmp_path / "in.csv")
    declared = inferred(CsvSource(), tmp_path / "in.csv").declared
    assert {
        name: f"{feature.dtype}{'?' * feature.optional}"
        for name, feature in declared.features.items()
    } == {
        "late decimal": "float32",
        "late text": "string",
        "late boolean": "string",
        "late missing": "int64?",
        "zip code": "string",
        "beyond int64": "string",
        "the last int64": "int64",
        "beyond float64": "string",
        "plus": "string",
        "minus zero": "float32",
        "boolean": "bool",
        "infinity": "float32",
        "empty": "string?",
        "mostly empty": "int64?",
        "quoted": "string",
        "naïve, ☃": "int64",
        "null": "string",
    }


def read_all(source: Source, files: list[InputFile], expected: Any) -> pa.Table:
    batches = [r.batch for s in source.cut(files) for r in source.read(s, expected)]
    return pa.Table.from_batches(batches)


def test_schema_file_makes_the_values_of_a_conversion(tmp_path: Path) -> None:
    """The declared features are made of text cells, the others of typed ones."""
    path = tmp_path / "in.csv"
    write_tricky(path)
    found = inferred(CsvSource(), path)
    declared = load_schema(dump_yaml(found.declared).encode(), "it.yaml")
    source, (_, files) = found.source, list_inputs([str(path)])
    bits = tuple(int(found.facts.column(name).holds) for name in TRICKY)
    typed = read_all(source, files, bits)
    text = read_all(source, files, (int(Holds.TEXT),) * len(TRICKY))

    (made,) = conform(text.combine_chunks().to_batches()[0], declared)

    assert made.refused == []
    for name in TRICKY:
        wanted = typed[name].cast(made.batch[name].type)
        # As text, where NaN equals NaN and -0.0 is not 0.0.
        assert repr(made.batch[name].to_pylist()) == repr(wanted.to_pylist()), name


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        (ImagesSource(), "images"),
        (ImagesSource(feature_names="imagenet"), "images"),
        (FixedLengthSource(), "cifar"),
    ],
)
def test_schema_file_refuses_no_row_of_its_input(source: Source, folder: str) -> None:
    found = inferred(source, SAMPLES / folder)
    declared = load_schema(dump_yaml(found.declared).encode(), "it.yaml")
    _, files = list_inputs([str(SAMPLES / folder)])
    table = read_all(found.source, files, ())
    for batch in table.to_batches():
        (made,) = conform(batch, declared)
        assert made.refused == []
        for name in declared.features:
            values = made.batch[name].to_pylist()
            if name == "image" and folder == "cifar":
                values = [bytes(pixels) for pixels in values]
            assert values == batch[declared.column_of(name)].to_pylist(), name


def test_rows_that_cannot_be_read_count_for_nothing(tmp_path: Path) -> None:
    """As in a conversion, where they are rejects."""
    path = tmp_path / "in.csv"
    lines = [b"a,b", b"1,2", b"x", b"3,\xff", b"4,5,6", b'7,"8']
    path.write_bytes(b"\n".join(lines))
    convert("csv", path, tmp_path / "out", "--max-rejects", "4")

    found = inferred(CsvSource(), path)

    manifest = manifest_of(tmp_path / "out")
    assert features_of(found.schema) == manifest["features"]
    assert (found.facts.rows, found.facts.rejected) == (1, 4)
    assert manifest["rows_rejected"] == 4
    assert found.facts.places == (
        Place(0, 8, "in.csv", "1 columns, expected 2"),
        Place(0, 10, "in.csv", "not UTF-8: b'\\xff' at byte 2 of the row"),
        Place(0, 14, "in.csv", "3 columns, expected 2"),
        Place(0, 20, "in.csv", "a quoted field is never closed"),
    )


def test_first_rejects_of_many_are_those_of_the_input(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_bytes(b"a,b\n" + b"x\n" * 40 + b"1,2\n")
    found = inferred(CsvSource(range_bytes=7), tmp_path)
    assert (found.facts.rows, found.facts.rejected) == (2, 80)
    assert [(p.path, p.byte) for p in found.facts.places] == [
        ("1.csv", 4 + 2 * row) for row in range(5)
    ]
    assert head_of(found) == [
        "Inferred from the whole input; rows: 2",
        "Rows that cannot be read (convert rejects them): 80",
        *(f"  1.csv, byte {b}: 1 columns, expected 2" for b in (4, 6, 8, 10, 12)),
        "  and 75 more",
    ]


@st.composite
def tables(draw: st.DrawFn) -> list[list[str | None]]:
    """Columns of equal length; no cell is an empty text, which CSV cannot tell."""
    columns = draw(st.lists(COLUMNS, min_size=1, max_size=3))
    num_rows = min(map(len, columns))
    return [[cell or None for cell in column[:num_rows]] for column in columns]


@given(columns=tables(), range_bytes=st.integers(1, 80), workers=st.integers(1, 3))
def test_types_are_those_of_all_cells(
    write_csv: FileWriter,
    columns: list[list[str | None]],
    range_bytes: int,
    workers: int,
) -> None:
    names = [f"c{place}" for place in range(len(columns))]
    rows = [names, *map(list, zip(*columns, strict=True))]
    lines = (b",".join(quoted(cell or "") for cell in row) for row in rows)
    path = write_csv(b"\n".join(lines))

    found = inferred(CsvSource(range_bytes=range_bytes), path, workers=workers)

    assert found.facts.rows == len(rows) - 1
    for name, column in zip(names, columns, strict=True):
        facts = found.facts.column(name)
        assert facts.dtype == cell_type(holds_of_all(column)).dtype
        assert facts.nulls == column.count(None)
        counts = Counter(text for text in column if text is not None)
        assert facts.values is not None
        assert sorted(facts.values.values()) == sorted(counts.values())
        assert facts.texts() in (counts, None)  # None: a long text is among them
    whole = inferred(CsvSource(), path, workers=1)
    assert dump_yaml(found.declared, comments_of(found), head_of(found)) == dump_yaml(
        whole.declared, comments_of(whole), head_of(whole)
    )


def test_comments(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    lines = io.StringIO()
    writer = csv.writer(lines)
    writer.writerow(["n", "x", "ok", "color", "id", "void", "huge", "one"])
    for row in range(2000):
        color = ["red", "light, blue", "no"][row % 3] if row else ""
        writer.writerow(
            [row % 10, row / 4, row % 4 == 0, color, f"#{row:05}", "", 1e300, "same"]
        )
    path.write_text(lines.getvalue())
    found = inferred(CsvSource(), path)
    assert head_of(found) == ["Inferred from the whole input; rows: 2,000"]
    assert comments_of(found) == {
        "n": ["0 to 9, 10 distinct"],
        "x": ["0.0 to 499.75, more than 1,000 distinct"],
        "ok": ["False: 1500, True: 500"],
        "color": [
            "2 to 11 bytes, 3 distinct",
            "missing in 1 of 2,000 rows (0.1 %)",
            "perhaps classes: ['light, blue', 'no', red]",
            "rows of each: {'light, blue': 667, 'no': 666, red: 666}",
        ],
        "id": ["6 bytes, more than 1,000 distinct"],
        "void": [
            "no value in any row: nothing tells its type",
            "missing in 2,000 of 2,000 rows (100.0 %)",
        ],
        "huge": [
            "1e+300, 1 distinct",
            "beyond float32 (at most 3.4e38): convert rejects such rows",
        ],
        "one": ["4 bytes, 1 distinct"],
    }
    text = dump_yaml(found.declared, comments_of(found), head_of(found))
    assert load_schema(text.encode(), "it.yaml") == found.declared


@pytest.mark.parametrize(
    ("nulls", "rows", "said"),
    [
        (1, 3, "missing in 1 of 3 rows (33.3 %)"),
        (1, 3000, "missing in 1 of 3,000 rows (under 0.1 %)"),  # not 0.0
        (2999, 3000, "missing in 2,999 of 3,000 rows (over 99.9 %)"),  # not 100.0
    ],
)
def test_missing_values(tmp_path: Path, nulls: int, rows: int, said: str) -> None:
    lines = ["a,b", *["1,"] * nulls, *["1,2"] * (rows - nulls)]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    assert said in comments_of(inferred(CsvSource(), tmp_path))["b"]


@pytest.mark.parametrize(
    ("texts", "proposed"),
    [
        (["a", "b"] * 2, True),
        (["a", "b", "b"], False),  # hardly comes again
        (["a"] * 9, False),  # one class is none
        ([f"v{n}" for n in range(100)] * 2, True),
        ([f"v{n}" for n in range(101)] * 2, False),  # too many
        (["a", "b" * 65] * 2, False),  # a long text is no name
        (["1", "2"] * 2, False),  # numbers are numbers
    ],
)
def test_proposed_classes(tmp_path: Path, texts: list[str], proposed: bool) -> None:
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["label", *texts]))
    found = inferred(CsvSource(), path)
    lines = comments_of(found)["label"]
    assert any("perhaps classes" in line for line in lines) == proposed
    assert found.declared.features["label"].classes == ()


def test_json_facts_of_iris() -> None:
    facts = facts_json(inferred(CsvSource(), IRIS))
    assert (facts["rows"], facts["rows_rejected"], facts["first_rejects"]) == (
        150,
        0,
        [],
    )
    assert facts["columns"]["species"] == {
        "dtype": "string",
        "rows": 150,
        "nulls": 0,
        "min": None,
        "max": None,
        "shortest_bytes": 6,
        "longest_bytes": 10,
        "distinct": 3,
        "values": {"setosa": 50, "versicolor": 50, "virginica": 50},
    }
    widths = facts["columns"]["petal_width_cm"]
    assert (widths["min"], widths["max"], widths["distinct"]) == (0.1, 2.5, 22)
    assert facts["schema"]["features"]["species"] == {"dtype": "string"}


def write_picture(path: Path, name: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(PICTURES[name][0])


def test_pictures(tmp_path: Path) -> None:
    write_picture(tmp_path / "cat/1.jpg", "rgb.jpg")
    write_picture(tmp_path / "cat/2.png", "rgb.png")
    write_picture(tmp_path / "dog/3.jpg", "rgb.jpg")
    (tmp_path / "dog/4.jpg").write_bytes(b"no picture")
    found = inferred(ImagesSource(), tmp_path)
    assert (found.facts.rows, found.facts.rejected) == (3, 1)
    assert [(place.path, place.byte) for place in found.facts.places] == [
        ("dog/4.jpg", 0)
    ]
    comments = comments_of(found)
    assert comments["label"] == ["rows of each: {cat: 2, dog: 1}"]
    assert comments["image"][0] == "pictures of each format: {jpeg: 2, png: 1}"
    assert found.declared.features["label"].classes == ("cat", "dog")
    assert found.declared.to_schema() == renamed(found.schema)


def test_pictures_of_one_size(tmp_path: Path) -> None:
    write_picture(tmp_path / "cat/1.jpg", "rgb.jpg")
    _, height, width, _ = PICTURES["rgb.jpg"][1]
    lines = comments_of(inferred(ImagesSource(), tmp_path))["image"]
    assert lines[1:] == [
        f"height {height}, width {width}, depth 3",
        f"to reject other sizes: picture: {{height: {height}, width: {width}, channels: 3}}",
    ]


def test_cifar() -> None:
    found = inferred(FixedLengthSource(), SAMPLES / "cifar")
    assert found.facts.rows == 200
    assert comments_of(found)["label"][0].startswith(
        "rows of each: {eight: 19, five: 20"
    )
    assert found.declared.to_schema() == found.schema


def renamed(schema: Schema) -> Schema:
    """The schema as a declared one has it: columns are named as their features."""
    return Schema(
        tuple(
            FeatureSpec(**{field: getattr(feature, field) for field in _FIELDS})
            for feature in schema.features
        )
    )


_FIELDS = [field for field in FeatureSpec.__dataclass_fields__ if field != "column"]


@pytest.mark.parametrize("names", ["default", "tutorial", "imagenet"])
def test_declared_pictures_have_their_features(names: Any) -> None:
    source = ImagesSource(feature_names=names, classes=("a", "b"))
    declared = declared_of(source.schema())
    assert declared.to_schema() == renamed(source.schema())
    for feature in source.schema().features:
        assert declared.column_of(feature.name) == feature.column


@pytest.mark.parametrize(
    "spec",
    [
        FeatureSpec("x", Kind.INT64, dtype="uint8", shape=(2, None)),
        FeatureSpec("x", Kind.INT64, dtype="bool", optional=True),
        FeatureSpec("x", Kind.FLOAT, dtype="float64", shape=(None, None, 3)),
        FeatureSpec("x", Kind.FLOAT, dtype="int64"),  # numbers kept as floats
        FeatureSpec("x", Kind.INT64, minimum=0, maximum=9),
        FeatureSpec("x", Kind.INT64, class_names=("a", "b"), sequence=True),
        FeatureSpec("x", Kind.BYTES, dtype="int16", content=Content.TENSOR),
        FeatureSpec("x", Kind.BYTES, dtype="string", content=Content.TENSOR),
        FeatureSpec(
            "x", Kind.BYTES, "y", dtype="int16", shape=(4,), content=Content.ARRAY
        ),
        FeatureSpec("x", Kind.BYTES),
        FeatureSpec(
            "x", Kind.BYTES, dtype="uint8", shape=(8, None, 3), content=Content.PICTURE
        ),
    ],
)
def test_declared_again(spec: FeatureSpec) -> None:
    declared = declared_of(Schema((spec,)))
    assert declared.to_schema() == renamed(Schema((spec,)))
    assert declared.column_of("x") == spec.column
    assert load_schema(dump_yaml(declared).encode(), "it.yaml") == declared


def test_progress_and_threads(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"a\n" + b"1\n" * 50)
    _, files = list_inputs([str(tmp_path)])
    told: list[tuple[int, int]] = []
    threads = set()

    def note(done: int, total: int) -> None:
        told.append((done, total))
        threads.add(threading.current_thread())

    infer(CsvSource(range_bytes=10), files, 2, note)
    assert told == [(done, 11) for done in range(12)]
    assert threads == {threading.current_thread()}


def test_error_in_one_range_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_bytes(b"a\n" + b"1\n" * 500)
    looked_at = []

    def failing(self: CsvSource, spot: Any, expected: Any) -> Any:
        looked_at.append(spot.index)
        raise InputError("cannot be read")

    monkeypatch.setattr(CsvSource, "read", failing)
    before = threading.active_count()
    with pytest.raises(InputError, match="cannot be read"):
        inferred(CsvSource(range_bytes=10), tmp_path)
    assert len(looked_at) <= 5, "of 101 ranges"
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("source", "data", "message"),
    [
        (CsvSource(), b"", "every input file is empty"),
        (ImagesSource(), b"", "no pictures among the 1 input files"),
        (FixedLengthSource(), b"", "no CIFAR data"),
    ],
)
def test_input_of_another_kind(
    tmp_path: Path, source: Source, data: bytes, message: str
) -> None:
    (tmp_path / "in.csv").write_bytes(data)
    with pytest.raises(InputError, match=message):
        inferred(source, tmp_path)


def test_header_alone(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"a,b\n")
    found = inferred(CsvSource(), tmp_path)
    assert [f.dtype for f in found.declared.features.values()] == ["string", "string"]
    assert (found.facts.rows, comments_of(found)) == (0, {})


def test_does_without_beam() -> None:
    code = (
        "import sys, transforms.infer, transforms.facts_text, schemas.schema_file\n"
        "print('apache_beam' in sys.modules)"
    )
    assert python(code).out == "False\n"
