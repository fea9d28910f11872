"""What is said of an input that was looked at: comments and JSON."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from infer_tools import inferred, renamed
from job_tools import IRIS, SAMPLES
from pixel_zoo import IMAGES

from recordmill.schemas.schema_file import dump_yaml, load_schema
from recordmill.transforms.sources.arrays.fixed_records import CifarSource
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images.source import ImagesSource
from recordmill.transforms.statistics.input_statistics import (
    feature_comments,
    header_lines,
    stats_json,
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
        "huge": [
            "6 bytes, 1 distinct",
            "numbers beyond float32 (at most 3.4e38), so they stay text; to store them: "
            "{dtype: float64, stored: tensor}",
        ],
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
    assert (found.stats.rows, found.stats.rejected) == (3, 1)
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
        f"to reject other sizes: picture: {{height: {height}, width: {width}, channels: 3}}",
    ]


def test_cifar() -> None:
    found = inferred(CifarSource(), SAMPLES / "cifar")
    assert found.stats.rows == 200
    assert feature_comments(found)["label"][0].startswith(
        "rows of each: {eight: 19, five: 20"
    )
    assert found.declared.to_schema() == found.schema
