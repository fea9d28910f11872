"""Datasets of eight kinds, with the rows of their inputs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from job_tools import Argument, convert, manifest_of, recordmill
from PIL import Image

from recordmill import open_dataset
from recordmill.schemas.feature_spec import FeatureSpec

Row = dict[str, Any]

TABLE_SCHEMA = """\
features:
  id: int64
  name: string
  kind: {classes: [cat, dog, "山"]}
  price: {dtype: float32, optional: true}
  count: {dtype: int32, optional: true}
  note: {dtype: string, optional: true}
  sure: bool
  day: {dtype: int64, unit: d}
"""
LISTS_SCHEMA = """\
features:
  id: int64
  tags: {dtype: string, shape: [null], separator: ";"}
  point: {dtype: float32, shape: [2], separator: " "}
  sizes: {dtype: uint8, shape: [null], separator: " "}
  boxes: {dtype: float32, shape: [null, 4], cell: json}
  words: {dtype: int64, shape: [null, null], cell: json}
"""
TENSORS_SCHEMA = """\
features:
  id: int64
  exact: {dtype: float64, stored: tensor}
  weights: {dtype: float64, shape: [2, 3], cell: json, stored: tensor}
  grid: {dtype: uint8, shape: [2, 2], cell: json, stored: bytes_list}
  wide: {dtype: float64, shape: [3], separator: " ", stored: bytes_list}
"""


@dataclass(frozen=True)
class KnownDataset:
    """A dataset, and the rows that any reader must find in it.

    Attributes:
      name: of the kind.
      output: its folder.
      rows: of its input, in any order.
      batch: rows in a batch that frameworks make of rows of one shape; 0 if they differ.
    """

    name: str
    output: Path
    rows: Sequence[Row]
    batch: int = 0

    def facts(self) -> dict[str, Any]:
        """Returns what the readers are told; see same_rows/row_digest.py."""
        manifest = manifest_of(self.output)
        code = self.output.with_suffix(".py")
        code.write_text(recordmill("inspect", self.output, "--tf").out)
        exported = self.output.with_name(f"{self.name}-exported")
        ran = recordmill("export", "tfds", self.output, exported)
        assert ran.status == 0, ran.err
        return {
            "name": self.name,
            "output": str(self.output),
            "exported": str(exported),
            "compression": manifest["compression"],
            "container": manifest.get("container", "tfrecord"),
            "batch": self.batch,
            "code": str(code),
            "files": {
                split: [str(self.output / shard["file"]) for shard in entry["shards"]]
                for split, entry in manifest["splits"].items()
            },
            "features": self.features(),
        }

    def features(self) -> list[dict[str, Any]]:
        return [feature_facts(f) for f in open_dataset(self.output).schema.features]


def feature_facts(feature: FeatureSpec) -> dict[str, Any]:
    return {
        "name": feature.name,
        "kind": str(feature.kind),
        "dtype": feature.dtype,
        "shape": list(feature.shape),
        "content": str(feature.content),
        "optional": feature.optional,
        "label": feature.num_classes is not None,
        "keys": list(feature.keys),
    }


def make_all(folder: Path) -> list[KnownDataset]:
    """Converts an input of each kind."""
    return [
        images(folder),
        cifar(folder),
        table(folder, "table"),
        lists(folder),
        tensors(folder),
        appended(folder),
        table(folder, "gzip", "--compression", "gzip"),
        table(folder, "array_record", "--container", "array_record"),
    ]


def images(folder: Path) -> KnownDataset:
    """PNG files, as all decode these to the same pixels, of several sizes."""
    draw = np.random.default_rng(1)
    rows = []
    for number in range(14):
        label = number % 2
        name = f"{('cat', 'dog')[label]}/{number}.png"
        pixels = draw.integers(0, 256, (20 + number, 30 - number, 3), np.uint8)
        path = folder / "in" / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        height, width, depth = pixels.shape
        size = {"height": height, "width": width, "depth": depth}
        rows.append({"image": pixels, "label": label, "filename": name, **size})
    splits = ["--split", "train=0.7", "--split", "test=0.3", "--shards", 2]
    convert("images", folder / "in" / "images", folder / "images", *splits)
    return KnownDataset("images", folder / "images", rows)


def cifar(folder: Path) -> KnownDataset:
    draw = np.random.default_rng(2)
    rows: list[Row] = []
    (folder / "in" / "cifar").mkdir(parents=True)
    for name, count in (("data_batch_1.bin", 60), ("test_batch.bin", 20)):
        records = draw.integers(0, 256, (count, 3073), np.uint8)
        records[:, 0] %= 10
        records.tofile(folder / "in" / "cifar" / name)
        for record in records:
            image = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
            size = {"height": 32, "width": 32, "depth": 3}
            rows.append({"image": image, "label": int(record[0]), **size})
    convert("cifar", folder / "in" / "cifar", folder / "cifar", "--shards", 2)
    return KnownDataset("cifar", folder / "cifar", rows, batch=16)


def table(folder: Path, name: str, *options: Argument) -> KnownDataset:
    """Numbers, text, classes, and missing values."""
    rows = [
        {
            "id": number - 50,
            "name": f'{number} "a", b\nc' if number % 7 == 0 else f"山 {number}",
            "kind": number % 3,
            "price": None if number % 4 == 0 else number / 8,
            "count": None if number % 5 == 0 else number * 1000,
            "note": None if number % 6 == 0 else f"n{number}",
            "sure": number % 2 == 0,
            "day": 20_000 + number,
        }
        for number in range(100)
    ]
    cells = [
        row
        | {
            "kind": ("cat", "dog", "山")[row["kind"]],
            "day": str(np.datetime64(row["day"], "D")),
        }
        for row in rows
    ]
    write_table(folder, name, cells, TABLE_SCHEMA)
    splits = ["--split", "train=0.8", "--split", "test=0.2", "--shards", 2]
    return converted(folder, name, rows, *splits, *options)


def lists(folder: Path) -> KnownDataset:
    """Lists of any length, none among them, and ragged ones."""
    rows: list[Row] = [
        {
            "id": number,
            "tags": ["a", "bc", "山"][: 1 + number % 3],
            "point": [number / 2, -number],
            "sizes": list(range(1 + number % 4)),
            "boxes": [[box, 0, 0.5, number] for box in range(number % 3)],
            "words": [[number, word] * word for word in range(number % 4)],
        }
        for number in range(50)
    ]
    cells = [
        row
        | {
            "tags": ";".join(row["tags"]),
            "point": " ".join(map(str, row["point"])),
            "sizes": " ".join(map(str, row["sizes"])),
            "boxes": json.dumps(row["boxes"]),
            "words": json.dumps(row["words"]),
        }
        for row in rows
    ]
    write_table(folder, "lists", cells, LISTS_SCHEMA)
    known = [
        row | {"boxes": np.reshape(row["boxes"], (-1, 4)), "words": row["words"]}
        for row in rows
    ]
    return converted(folder, "lists", known, "--shards", 2)


def tensors(folder: Path) -> KnownDataset:
    """Arrays as bytes, and as TensorProtos."""
    draw = np.random.default_rng(3)
    rows: list[Row] = [
        {
            "id": number,
            "exact": float(draw.random()),
            "weights": draw.random((2, 3)),
            "grid": draw.integers(0, 256, (2, 2), np.uint8),
            "wide": draw.random(3),
        }
        for number in range(40)
    ]
    cells = [
        row
        | {
            "weights": json.dumps(row["weights"].tolist()),
            "grid": json.dumps(row["grid"].tolist()),
            "wide": " ".join(map(repr, row["wide"].tolist())),
        }
        for row in rows
    ]
    write_table(folder, "tensors", cells, TENSORS_SCHEMA)
    known = converted(folder, "tensors", rows, "--shards", 2)
    return KnownDataset(known.name, known.output, rows, batch=8)


def appended(folder: Path) -> KnownDataset:
    """A dataset of three parts."""
    rows = [{"id": n, "text": f"t{n}", "half": n / 2} for n in range(90)]
    source, output = folder / "in" / "appended", folder / "appended"
    for part in range(3):
        write_cells(source / f"{part}.csv", rows[part * 30 : part * 30 + 30])
        convert("csv", source, output, "--append", "--shards", 2)
    return KnownDataset("appended", output, rows)


def write_table(folder: Path, name: str, cells: Sequence[Row], schema: str) -> None:
    write_cells(folder / "in" / f"{name}.csv", cells)
    (folder / "in" / f"{name}.yaml").write_text(schema)


def write_cells(path: Path, cells: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *others = cells
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(first))
        writer.writeheader()
        writer.writerows([first, *others])


def converted(
    folder: Path, name: str, rows: Sequence[Row], *options: Argument
) -> KnownDataset:
    schema = ["--schema", folder / "in" / f"{name}.yaml"]
    output = folder / name
    convert("csv", folder / "in" / f"{name}.csv", output, *schema, *options)
    return KnownDataset(name, output, rows)
