"""Converts a manifest and its statistics into the sections of the page."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from itertools import starmap
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from recordmill.beam_jobs.report.page_cards import (
    COLOURS,
    Fact,
    class_card,
    feature_card,
    percent,
    shards_table,
    shown,
)
from recordmill.beam_jobs.report.tables import (
    Table,
    features_table,
    in_all_splits,
    line_notes,
    splits_table,
)
from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_summary import DUPLICATES, NOTHING, InputSummary
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count, human_bytes, printable, printable_lines
from recordmill.transforms.decode.tf_code import loading_code, quoted
from recordmill.transforms.statistics.column_summary import ColumnSummary
from recordmill.transforms.statistics.dataset_statistics import DatasetStatistics
from recordmill.transforms.statistics.thumbnails import ContactSheet, Thumbnail
from recordmill.transforms.storage.local import write_windows
from recordmill.transforms.tasks.rejects import (
    MAX_COUNTED,
    NOT_COUNTED,
    RejectLocator,
    readable_raw,
)


def loading_snippets(
    manifest: Manifest, names: Mapping[str, tuple[str, ...]], folder: str
) -> dict[str, str]:
    """Returns programs that load a split of the dataset, by framework."""
    folder_literal, split_literal = (
        quoted(folder),
        quoted(next(iter(manifest.splits), "train")),
    )
    if manifest.compression == "none":
        snippets = {"NumPy and PyTorch": _ROWS_BY_NUMBER}
    else:
        snippets = {"NumPy": _ROWS_IN_ORDER}
    snippets = {
        k: v.replace("WHERE", f"{folder_literal}, {split_literal}")
        for k, v in snippets.items()
    }
    if manifest.container == "tfrecord":  # tf.data reads no other
        snippets["TensorFlow"] = loading_code(manifest, names, folder)
    is_plain = manifest.compression == "none" and manifest.payload == "example"
    if is_plain and not manifest.appended:
        code = _TFDS if manifest.container == "tfrecord" else _TFDS_DATA_SOURCE
        code = code.replace("SPLIT", split_literal).replace("FOLDER", folder_literal)
        snippets["TensorFlow Datasets"] = code
    return snippets


_ROWS_BY_NUMBER = """\
from recordmill import open_dataset

data = open_dataset(WHERE)  # also for a PyTorch DataLoader
print(len(data), data.class_names.keys())
for batch in data.numpy_batches(32, seed=1, epoch=0):
    print({name: values.shape for name, values in batch.items()})
    break
"""
_ROWS_IN_ORDER = """\
from recordmill import read_batches

for batch in read_batches(WHERE):  # pyarrow.RecordBatch
    print(batch.num_rows, batch.schema.names)
    break
"""
_TFDS = """\
import tensorflow_datasets as tfds

builder = tfds.builder_from_directory(FOLDER)
dataset = builder.as_dataset(split=SPLIT, shuffle_files=True)
for example in dataset.take(1):
    print({name: value.shape for name, value in example.items()})
"""
_TFDS_DATA_SOURCE = """\
import tensorflow_datasets as tfds

builder = tfds.builder_from_directory(FOLDER)
source = builder.as_data_source(split=SPLIT)  # also for Grain
print(len(source), source[0].keys())
"""


LISTED_FEATURES = 1_000
LISTED_REASONS = 50
_EXACT_SIDE = 48  # pixels: smaller images are drawn with sharp pixels


def build_page(
    manifest: Manifest,
    statistics: DatasetStatistics,
    folder: str,
    locator: RejectLocator,
    input_report: InputSummary = NOTHING,
) -> dict[str, Any]:
    """Returns the content of the page, by the variable names of page.html.

    `input_report` is the report of the run that created the dataset or appended to it
    last.
    """
    splits = list(manifest.splits)
    rejects, note = _rejects(manifest, statistics, locator)
    more = ""
    if statistics.left_out:
        more = (
            f"{count(statistics.left_out, 'feature')} more not shown: too many for a "
            "page, or not in the records."
        )
    return {
        "title": f"{manifest.name} {manifest.version}",
        "folder": printable(folder),
        "tiles": _tiles(manifest),
        "facts": _facts(manifest, input_report),
        "splits": _splits(manifest),
        "snippets": loading_snippets(manifest, statistics.names, folder),
        "classes": [
            class_card(column.feature, statistics.classes[column.feature.name])
            for column in statistics.columns
            if column.feature.num_classes is not None
        ],
        "sheets": [_sheet(sheet, statistics) for sheet in statistics.sheets.values()],
        "images": [feature_card(f) for f in statistics.columns if f.images],
        "value_cards": [
            feature_card(feature)
            for feature in statistics.columns
            if not feature.images and feature.feature.num_classes is None
        ],
        "values_note": more,
        "missing": _missing(statistics.columns, splits),
        "shards": shards_table(manifest),
        "rejects": rejects,
        "rejects_note": note,
        "schema": _schema(manifest),
    }


def _tiles(manifest: Manifest) -> list[Fact]:
    tiles = {
        "Rows": f"{manifest.records:,}",
        "Size": human_bytes(manifest.num_bytes),
        "Splits": f"{len(manifest.splits):,}",
        "Shards": f"{manifest.num_shards:,}",
        "Features": f"{len(manifest.features):,}",
    }
    for label in [f for f in manifest.features if f.num_classes is not None][:1]:
        tiles["Classes"] = f"{label.num_classes:,}"
    tiles["Rejected rows"] = f"{manifest.rows_rejected:,}"
    return list(starmap(Fact, tiles.items()))


def _facts(manifest: Manifest, input_report: InputSummary) -> list[Fact]:
    order = f"shuffled, seed {manifest.seed}" if manifest.shuffle else "of the input"
    facts = {
        "Order": order,
        "Payload": manifest.payload,
        "Container": manifest.container,
        "Compression": manifest.compression,
        "Rows read": f"{manifest.rows_read:,}",
    }
    if manifest.map is not None:
        facts["Rows dropped by map"] = f"{manifest.rows_dropped:,}"
        facts["Rows added by map"] = f"{manifest.rows_added:,}"
    if manifest.sampling is not None:
        facts["Rows left out by sampling"] = f"{manifest.sampling.rows_left_out:,}"
        facts["Rows copied"] = f"{manifest.sampling.rows_copied:,}"
    if manifest.appended:
        facts["Appended"] = count(manifest.appended, "time")
    facts |= {key.capitalize(): text for key, text in manifest.about.items()}
    if duplicates := dict(input_report.facts).get(DUPLICATES):
        facts["Duplicates"] = duplicates
    return list(starmap(Fact, {**facts, "Fingerprint": manifest.fingerprint}.items()))


def _splits(manifest: Manifest) -> Table:
    total = manifest.records
    numbers = [split.records for split in manifest.splits.values()]
    rows = [
        (name, records, percent(number, total), *sizes)
        for number, (name, records, *sizes) in zip(
            numbers, splits_table(manifest).rows, strict=True
        )
    ]
    columns = ("Split", "Rows", "Share", "Size", "Shards", "Smallest", "Largest")
    return Table(columns, rows, tuple((number / max(1, total),) for number in numbers))


def _sheet(sheet: ContactSheet, statistics: DatasetStatistics) -> dict[str, Any]:
    """Returns a contact sheet: name, number of rows and first images of each class."""
    feature = shown(sheet.feature)
    if not sheet.label:
        images = [thumbnail for _, row in sheet.rows for thumbnail in row]
        rows = [
            (
                "",
                "",
                [
                    _image(*numbered_thumbnail, feature)
                    for numbered_thumbnail in enumerate(images, 1)
                ],
            )
        ]
        return {"feature": feature, "rows": rows, "note": "The first rejected rows."}
    counts = in_all_splits(statistics.classes[sheet.label])
    rows = []
    for (name, number), (_, row) in zip(counts.items(), sheet.rows, strict=False):
        images_of_class = [
            _image(*numbered_thumbnail, shown(name))
            for numbered_thumbnail in enumerate(row, 1)
        ]
        rows.append((shown(name), f"{number:,}", images_of_class))
    note = f"The first images of each class of {shown(sheet.label)}."
    if (more := sheet.of_classes - len(rows)) > 0:
        note += f" {count(more, 'class')} more."
    return {"feature": feature, "rows": rows, "note": note}


def _image(number: int, thumbnail: Thumbnail, name: str) -> dict[str, Any]:
    """Returns a thumbnail: its data: URL, or the reason why it has none."""
    width, height = thumbnail.width, thumbnail.height
    if not thumbnail.mime:
        problem = shown(thumbnail.problem)
        return {"url": "", "alt": f"{name}, image {number}: {problem}"}
    encoded_image = base64.b64encode(thumbnail.data).decode()
    return {
        "url": f"data:{thumbnail.mime};base64,{encoded_image}",
        "alt": f"{name}, image {number}: {width} × {height}",
        "width": width,
        "height": height,
        "boxes": [
            (
                shown(box.name),
                zlib.crc32(box.name.encode()) % COLOURS,
                f"left:{box.xmin:.1%};top:{box.ymin:.1%};"
                f"width:{box.xmax - box.xmin:.1%};height:{box.ymax - box.ymin:.1%}",
            )
            for box in thumbnail.boxes
        ],
        "exact": max(width, height) <= _EXACT_SIDE,
    }


def _missing(features: Sequence[ColumnSummary], splits: Sequence[str]) -> Table | None:
    lacking = [feature for feature in features if sum(feature.missing)]
    if not lacking:
        return None
    lacking.sort(key=lambda feature: -sum(feature.missing))
    shares = [(sum(f.missing) / (sum(f.missing) + f.rows),) for f in lacking]
    rows = tuple(
        (
            shown(feature.feature.name),
            *(f"{number:,}" for number in feature.missing),
            f"{sum(feature.missing):,}",
            percent(sum(feature.missing), sum(feature.missing) + feature.rows),
        )
        for feature in lacking
    )
    return Table(("Feature", *map(shown, splits), "All", "Share"), rows, tuple(shares))


def _rejects(
    manifest: Manifest, statistics: DatasetStatistics, locator: RejectLocator
) -> tuple[Table | None, str]:
    rejected = manifest.rows_rejected
    if not rejected:
        return None, ""
    counted_kinds = [kind for kind in statistics.rejects if kind.kind != NOT_COUNTED]
    firsts = [kind.first for kind in counted_kinds[:LISTED_REASONS]]
    lines = {reject: locator.line(reject) for reject in firsts}
    rows = tuple(
        (
            kind.example,
            f"{kind.rows:,}",
            f"{locator.describe(kind.first, lines[kind.first])}: "
            f"{readable_raw(kind.first.raw)}",
        )
        for kind in counted_kinds[:LISTED_REASONS]
    )
    notes = [f"{note}." for note in line_notes(locator, lines)]
    if (more := rejected - sum(kind.rows for kind in counted_kinds)) > 0:
        notes.append(
            f"{more:,} of {count(rejected, 'reject')} are not in this table: the first "
            f"{MAX_COUNTED:,} are counted, and their files may be missing."
        )
    return Table(("Reason", "Rows", "=First"), rows), printable(" ".join(notes))


def _schema(manifest: Manifest) -> Table:
    features = manifest.features[:LISTED_FEATURES]
    more = len(manifest.features) - len(features)
    note = f"{more:,} more features; manifest.json has all." if more else ""
    columns = ("Feature", "=Holds", "=Stored as")
    return Table(columns, features_table(features).rows, note=note)


# This tag identifies a page that recordmill wrote, which a new page may replace.
GENERATOR = '<meta name="generator" content="recordmill report">'
_HEAD_BYTES = 2_000  # the first bytes of a page, which contain the tag


def render_page(page: Mapping[str, Any]) -> bytes:
    """Returns the page as self-contained HTML."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html")
    return template.render(page=page, generator=GENERATOR).encode()


def _printable(cell: Any) -> Any:
    """Returns a text for the page, printable; markup is unchanged."""
    is_text = isinstance(cell, str) and not hasattr(cell, "__html__")
    return printable_lines(cell) if is_text else cell


def check_target(target: Path) -> None:
    """Checks, before hours of work, that the target is new or a page of recordmill."""
    if "://" in str(target) or ":/" in str(target):
        raise UsageError(f"{str(target)!r} is a URL; a page is written to a local file")
    if not target.parent.is_dir():
        raise UsageError(
            f"{target}: no such folder: {str(target.parent)!r}. Create it, or choose "
            "another file with -o"
        )
    if not target.exists():
        return
    if target.is_file():
        with target.open("rb") as file:
            if GENERATOR.encode() in file.read(_HEAD_BYTES):
                return
    raise UsageError(
        f"{target}: already exists, but was not written by this command. Choose "
        "another file with -o, or remove it"
    )


def write_page(page: Mapping[str, Any], target: Path) -> int:
    """Writes the page atomically; returns its size in bytes."""
    html = render_page(page)
    check_target(target)
    write_windows(target, [html])
    return len(html)
