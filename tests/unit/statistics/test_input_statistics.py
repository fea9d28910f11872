"""Schemas inferred from whole inputs: what convert finds, and what is said of it."""

from __future__ import annotations

import csv
import io
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from csv_cases import COLUMNS, holds_of_all, quoted
from hypothesis import given
from hypothesis import strategies as st
from infer_tools import TRICKY, features_of, inferred, renamed, write_tricky
from job_tools import IRIS, SAMPLES, convert, manifest_of
from pixel_zoo import IMAGES
from source_tools import FileWriter

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.schema_file import dump_yaml, load_schema
from recordmill.transforms.cast.cast_batch import cast
from recordmill.transforms.sources.arrays.fixed_records import CifarSource
from recordmill.transforms.sources.base import RangeFindings, Source
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.sources.text_columns import TypeFlag, column_dtype
from recordmill.transforms.statistics.input_statistics import (
    feature_comments,
    header_lines,
    infer_schema,
    stats_json,
)


@pytest.mark.parametrize("repeat", [1, 4000])  # 4000: two input ranges
def test_schema_is_that_of_a_conversion(tmp_path: Path, repeat: int) -> None:
    write_tricky(tmp_path / "in.csv", repeat=repeat)
    convert("csv", tmp_path / "in.csv", tmp_path / "out", "--odd-cells", "widen")

    found = inferred(CsvSource(odd_cells="widen"), tmp_path / "in.csv")

    manifest = manifest_of(tmp_path / "out")
    assert features_of(found.schema) == manifest["features"]
    assert features_of(found.declared.to_schema()) == manifest["features"]
    assert found.stats.num_rows == manifest["rows_read"] == 30 * repeat + 1
    assert list(found.declared.features) == list(TRICKY), "the file's order"


def read_all(source: Source, files: list[InputFile], expected: Any) -> pa.Table:
    batches = [
        r.batch
        for s in source.cut_ranges(files)
        for r in source.read(s, expected, RangeFindings())
    ]
    return pa.Table.from_batches(batches)


def test_schema_file_makes_the_values_of_a_conversion(tmp_path: Path) -> None:
    """The declared features are made of text cells, the others of typed ones."""
    path = tmp_path / "in.csv"
    write_tricky(path)
    found = inferred(CsvSource(), path)
    declared = load_schema(dump_yaml(found.declared).encode(), "it.yaml")
    source, (_, files) = found.source, list_inputs([str(path)])
    bits = tuple(int(found.stats.column(name).flags) for name in TRICKY)
    typed = read_all(source, files, bits)
    text = read_all(source, files, (int(TypeFlag.TEXT),) * len(TRICKY))

    (made,) = cast(text.combine_chunks().to_batches()[0], declared)

    assert made.invalid_rows == []
    for name in TRICKY:
        wanted = typed[name].cast(made.batch[name].type)
        # As text, where NaN equals NaN and -0.0 is not 0.0.
        assert repr(made.batch[name].to_pylist()) == repr(wanted.to_pylist()), name


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        (ImagesSource(), "images"),
        (ImagesSource(ImagesOptions(feature_names="imagenet")), "images"),
        (CifarSource(), "cifar"),
    ],
)
def test_schema_file_refuses_no_row_of_its_input(source: Source, folder: str) -> None:
    found = inferred(source, SAMPLES / folder)
    declared = load_schema(dump_yaml(found.declared).encode(), "it.yaml")
    _, files = list_inputs([str(SAMPLES / folder)])
    table = read_all(found.source, files, ())
    for batch in table.to_batches():
        (made,) = cast(batch, declared)
        assert made.invalid_rows == []
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
    assert (found.stats.num_rows, found.stats.num_rejected) == (1, 4)
    assert manifest["rows_rejected"] == 4
    assert [(r.path, r.position, r.reason) for r in found.stats.rejects] == [
        ("in.csv", 8, "expected 2 columns, found 1"),
        ("in.csv", 10, "not UTF-8: b'\\xff' at byte 2 of the row"),
        ("in.csv", 14, "expected 2 columns, found 3"),
        ("in.csv", 20, "a quoted field is never closed; it opens at line 6"),
    ]


def test_first_rejects_of_many_are_those_of_the_input(tmp_path: Path) -> None:
    for name in ("1.csv", "2.csv"):
        (tmp_path / name).write_bytes(b"a,b\n" + b"x\n" * 40 + b"1,2\n")
    found = inferred(CsvSource(range_bytes=7), tmp_path)
    assert (found.stats.num_rows, found.stats.num_rejected) == (2, 80)
    assert [(p.path, p.position) for p in found.stats.rejects] == [
        ("1.csv", 4 + 2 * row) for row in range(5)
    ]
    assert header_lines(found) == [
        "Inferred from the whole input; rows: 2",
        "Rows that cannot be read (convert rejects them): 80",
        *(f"  1.csv, byte {b}: expected 2 columns, found 1" for b in (4, 6, 8, 10, 12)),
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

    assert found.stats.num_rows == len(rows) - 1
    for name, column in zip(names, columns, strict=True):
        stats = found.stats.column(name)
        assert stats.dtype == column_dtype(holds_of_all(column))
        assert stats.num_nulls == column.count(None)
        counts = Counter(text for text in column if text is not None)
        assert stats.values is not None
        assert sorted(stats.values.values()) == sorted(counts.values())
        assert stats.texts() in (counts, None)  # None: a long text is among them
    whole = inferred(CsvSource(), path, workers=1)
    assert dump_yaml(
        found.declared, feature_comments(found), header_lines(found)
    ) == dump_yaml(whole.declared, feature_comments(whole), header_lines(whole))


def test_progress_and_threads(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"a\n" + b"1\n" * 50)
    _, files = list_inputs([str(tmp_path)])
    told: list[tuple[int, int]] = []
    threads = set()

    def note(done: int, total: int) -> None:
        told.append((done, total))
        threads.add(threading.current_thread())

    infer_schema(CsvSource(range_bytes=10), files, 2, note)
    assert told == [(done, 11) for done in range(12)]
    assert threads == {threading.current_thread()}


def test_error_in_one_range_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_bytes(b"a\n" + b"1\n" * 500)
    looked_at = []

    def failing(self: CsvSource, input_range: Any, *_: Any) -> Any:
        looked_at.append(input_range.index)
        raise InputError("cannot be read")

    monkeypatch.setattr(CsvSource, "read", failing)
    before = threading.active_count()
    with pytest.raises(InputError, match="cannot be read"):
        inferred(CsvSource(range_bytes=10), tmp_path)
    assert len(looked_at) <= 5, "of 101 ranges"
    assert threading.active_count() == before


def test_header_alone(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"a,b\n")
    found = inferred(CsvSource(), tmp_path)
    assert [f.dtype for f in found.declared.features.values()] == ["string", "string"]
    assert (found.stats.num_rows, feature_comments(found)) == (0, {})


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
    assert header_lines(found) == ["Inferred from the whole input; rows: 2,000"]
    assert feature_comments(found) == {
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
            "no value in any row, so its type is unknown",
            "missing in 2,000 of 2,000 rows (100.0 %)",
        ],
        "huge": ["6 bytes, 1 distinct"],
        "one": ["4 bytes, 1 distinct"],
    }
    text = dump_yaml(found.declared, feature_comments(found), header_lines(found))
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
    assert said in feature_comments(inferred(CsvSource(), tmp_path))["b"]


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
    lines = feature_comments(found)["label"]
    assert any("perhaps classes" in line for line in lines) == proposed
    assert found.declared.features["label"].classes == ()


def test_json_facts_of_iris() -> None:
    facts = stats_json(inferred(CsvSource(), IRIS))
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


def write_image(path: Path, name: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(IMAGES[name][0])


def test_images(tmp_path: Path) -> None:
    write_image(tmp_path / "cat/1.jpg", "rgb.jpg")
    write_image(tmp_path / "cat/2.png", "rgb.png")
    write_image(tmp_path / "dog/3.jpg", "rgb.jpg")
    (tmp_path / "dog/4.jpg").write_bytes(b"no image")
    found = inferred(ImagesSource(), tmp_path)
    assert (found.stats.num_rows, found.stats.num_rejected) == (3, 1)
    assert [(place.path, place.position) for place in found.stats.rejects] == [
        ("dog/4.jpg", 0)
    ]
    comments = feature_comments(found)
    assert comments["label"] == ["rows of each: {cat: 2, dog: 1}"]
    assert comments["image"][0] == "images of each format: {jpeg: 2, png: 1}"
    assert found.declared.features["label"].classes == ("cat", "dog")
    assert found.declared.to_schema() == renamed(found.schema)


def test_images_of_one_size(tmp_path: Path) -> None:
    write_image(tmp_path / "cat/1.jpg", "rgb.jpg")
    _, height, width, _ = IMAGES["rgb.jpg"][1]
    lines = feature_comments(inferred(ImagesSource(), tmp_path))["image"]
    assert lines[1:] == [
        f"height {height}, width {width}, depth 3",
        f"to reject other sizes: `picture: {{height: {height}, width: {width}, channels: 3}}`",
    ]


def test_cifar() -> None:
    found = inferred(CifarSource(), SAMPLES / "cifar")
    assert found.stats.num_rows == 200
    assert feature_comments(found)["label"][0].startswith(
        "rows of each: {eight: 19, five: 20"
    )
    assert found.declared.to_schema() == found.schema
