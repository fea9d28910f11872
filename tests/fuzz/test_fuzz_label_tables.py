"""Damaged tables of labels: each image, and each row without one, is counted once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from mutations import ODD_VALUES, damaged, try_all
from pixel_zoo import IMAGES
from source_tools import read

from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.source import ImagesSource

pytestmark = pytest.mark.fuzz

JPEG, _ = IMAGES["rgb.jpg"]
NAMES = tuple(f"{n}.jpg" for n in range(5))


def csv_table(random: Random) -> bytes:
    rows = [f"{name},c{random.randrange(3)},{n},t {n}" for n, name in enumerate(NAMES)]
    return "\n".join(["file,label,n,note", *rows]).encode()


def json_table(random: Random) -> bytes:
    rows = [
        {"file": name, "label": ["a", "b"][: n % 3], "box": [n / 2] * (n % 2)}
        for n, name in enumerate(NAMES)
    ]
    row = random.choice(rows)
    row[random.choice([*row, "new"])] = random.choice(ODD_VALUES)
    return b"\n".join(json.dumps(row).encode() for row in rows)


def vertex_csv(random: Random) -> bytes:
    uses = "TRAIN", "VALIDATION", "TEST", "UNASSIGNED", ""
    rows = [f"{random.choice(uses)},gs://b/{name},c{len(name)}" for name in NAMES]
    return "\n".join(rows).encode()


def vertex_json(random: Random) -> bytes:
    rows = [
        {
            "imageGcsUri": f"gs://b/{name}",
            "classificationAnnotation": {"displayName": "ab"[n % 2]},
            "dataItemResourceLabels": {"aiplatform.googleapis.com/ml_use": "test"},
        }
        for n, name in enumerate(NAMES)
    ]
    random.choice(rows)[random.choice([*rows[0]])] = random.choice(ODD_VALUES)  # type: ignore[assignment]
    return b"\n".join(json.dumps(row).encode() for row in rows)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("t.csv", csv_table),
        ("t.jsonl", json_table),
        ("t.csv", vertex_csv),
        ("t.jsonl", vertex_json),
    ],
)
def test_damaged_tables(
    tmp_path: Path, name: str, make: Callable[[Random], bytes]
) -> None:
    for image in NAMES:
        (tmp_path / image).write_bytes(JPEG)
    table = tmp_path / name

    def attempt(number: int) -> bool:
        random = Random(number)
        data = damaged(make(random), number)
        table.write_bytes(data)
        source = ImagesSource(ImagesOptions(label_table=name))
        reading = read(source, tmp_path)
        made = [row["filename"] for row in reading.rows]
        of_images = [each.path for each in reading.rejects if each.path != name]
        assert sorted(made + of_images) == sorted(NAMES)
        for each in reading.rejects:
            assert each.reason.encode()
            if each.path == name:
                assert data[each.position :].startswith(each.raw)
        return len(made) > 0

    try_all(attempt)
