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
    NUM_COLOURS,
    Property,
    class_card,
    feature_card,
    format_name,
    format_share,
    shards_table,
)
from recordmill.beam_jobs.report.tables import (
    Table,
    features_table,
    missing_line_notes,
    splits_table,
    sum_over_splits,
)
from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_summary import DUPLICATES, EMPTY_REPORT, InputReport
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import (
    escape_lines,
    escape_unprintable,
    format_bytes,
    format_count,
)
from recordmill.transforms.decode.tf_code import loading_code, quote_literal
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


def build_loading_snippets(
    manifest: Manifest, names: Mapping[str, tuple[str, ...]], folder: str
) -> dict[str, str]:
    """Returns programs that load a split of the dataset, by framework."""
    folder_literal, split_literal = (
        quote_literal(folder),
        quote_literal(next(iter(manifest.splits), "train")),
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
_PIXELATED_SIDE = 48  # pixels: smaller images are drawn with sharp pixels


def build_page(
    manifest: Manifest,
    statistics: DatasetStatistics,
    folder: str,
    locator: RejectLocator,
    input_report: InputReport = EMPTY_REPORT,
) -> dict[str, Any]:
    """Returns the content of the page, by the variable names of page.html.

    `input_report` is the report of the run that created the dataset or appended to it
    last.
    """
    splits = list(manifest.splits)
    rejects, note = _build_rejects_table(manifest, statistics, locator)
    more = ""
    if statistics.num_skipped_features:
        more = (
            f"{format_count(statistics.num_skipped_features, 'feature')} more not shown: too many for a "
            "page, or not in the records."
        )
    return {
        "title": f"{manifest.name} {manifest.version}",
        "folder": escape_unprintable(folder),
        "tiles": _build_tiles(manifest),
        "facts": _build_dataset_properties(manifest, input_report),
        "splits": _build_splits_table(manifest),
        "snippets": build_loading_snippets(manifest, statistics.class_names, folder),
        "classes": [
            class_card(column.feature, statistics.class_counts[column.feature.name])
            for column in statistics.columns
            if column.feature.num_classes is not None
        ],
        "sheets": [
            _build_contact_sheet(sheet, statistics)
            for sheet in statistics.sheets.values()
        ],
        "images": [feature_card(f) for f in statistics.columns if f.images],
        "value_cards": [
            feature_card(feature)
            for feature in statistics.columns
            if not feature.images and feature.feature.num_classes is None
        ],
        "values_note": more,
        "missing": _build_missing_table(statistics.columns, splits),
        "shards": shards_table(manifest),
        "rejects": rejects,
        "rejects_note": note,
        "schema": _build_schema_table(manifest),
    }


def _build_tiles(manifest: Manifest) -> list[Property]:
    tiles = {
        "Rows": f"{manifest.records:,}",
        "Size": format_bytes(manifest.num_bytes),
        "Splits": f"{len(manifest.splits):,}",
        "Shards": f"{manifest.num_shards:,}",
        "Features": f"{len(manifest.features):,}",
    }
    for label in [f for f in manifest.features if f.num_classes is not None][:1]:
        tiles["Classes"] = f"{label.num_classes:,}"
    tiles["Rejected rows"] = f"{manifest.rows_rejected:,}"
    return list(starmap(Property, tiles.items()))


def _build_dataset_properties(
    manifest: Manifest, input_report: InputReport
) -> list[Property]:
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
        facts["Appended"] = format_count(manifest.appended, "time")
    facts |= {key.capitalize(): text for key, text in manifest.about.items()}
    if duplicates := dict(input_report.fields).get(DUPLICATES):
        facts["Duplicates"] = duplicates
    return list(
        starmap(Property, {**facts, "Fingerprint": manifest.fingerprint}.items())
    )


def _build_splits_table(manifest: Manifest) -> Table:
    total = manifest.records
    numbers = [split.records for split in manifest.splits.values()]
    rows = [
        (name, records, format_share(number, total), *sizes)
        for number, (name, records, *sizes) in zip(
            numbers, splits_table(manifest).rows, strict=True
        )
    ]
    columns = ("Split", "Rows", "Share", "Size", "Shards", "Smallest", "Largest")
    return Table(columns, rows, tuple((number / max(1, total),) for number in numbers))


def _build_contact_sheet(
    sheet: ContactSheet, statistics: DatasetStatistics
) -> dict[str, Any]:
    """Returns a contact sheet: name, number of rows and first images of each class."""
    feature = format_name(sheet.feature)
    if not sheet.label:
        images = [thumbnail for _, row in sheet.rows for thumbnail in row]
        rows = [
            (
                "",
                "",
                [
                    _build_thumbnail(*numbered_thumbnail, feature)
                    for numbered_thumbnail in enumerate(images, 1)
                ],
            )
        ]
        return {"feature": feature, "rows": rows, "note": "The first rejected rows."}
    counts = sum_over_splits(statistics.class_counts[sheet.label])
    rows = []
    for (name, number), (_, row) in zip(counts.items(), sheet.rows, strict=False):
        images_of_class = [
            _build_thumbnail(*numbered_thumbnail, format_name(name))
            for numbered_thumbnail in enumerate(row, 1)
        ]
        rows.append((format_name(name), f"{number:,}", images_of_class))
    note = f"The first images of each class of {format_name(sheet.label)}."
    if (more := sheet.num_classes - len(rows)) > 0:
        note += f" {format_count(more, 'class')} more."
    return {"feature": feature, "rows": rows, "note": note}


def _build_thumbnail(number: int, thumbnail: Thumbnail, name: str) -> dict[str, Any]:
    """Returns a thumbnail: its data: URL, or the reason why it has none."""
    width, height = thumbnail.width, thumbnail.height
    if not thumbnail.mime:
        problem = format_name(thumbnail.problem)
        return {"url": "", "alt": f"{name}, image {number}: {problem}"}
    encoded_image = base64.b64encode(thumbnail.data).decode()
    return {
        "url": f"data:{thumbnail.mime};base64,{encoded_image}",
        "alt": f"{name}, image {number}: {width} × {height}",
        "width": width,
        "height": height,
        "boxes": [
            (
                format_name(box.name),
                zlib.crc32(box.name.encode()) % NUM_COLOURS,
                f"left:{box.xmin:.1%};top:{box.ymin:.1%};"
                f"width:{box.xmax - box.xmin:.1%};height:{box.ymax - box.ymin:.1%}",
            )
            for box in thumbnail.boxes
        ],
        "exact": max(width, height) <= _PIXELATED_SIDE,
    }


def _build_missing_table(
    features: Sequence[ColumnSummary], splits: Sequence[str]
) -> Table | None:
    lacking = [feature for feature in features if sum(feature.num_missing)]
    if not lacking:
        return None
    lacking.sort(key=lambda feature: -sum(feature.num_missing))
    shares = [
        (sum(f.num_missing) / (sum(f.num_missing) + f.num_rows),) for f in lacking
    ]
    rows = tuple(
        (
            format_name(feature.feature.name),
            *(f"{number:,}" for number in feature.num_missing),
            f"{sum(feature.num_missing):,}",
            format_share(
                sum(feature.num_missing), sum(feature.num_missing) + feature.num_rows
            ),
        )
        for feature in lacking
    )
    return Table(
        ("Feature", *map(format_name, splits), "All", "Share"), rows, tuple(shares)
    )


def _build_rejects_table(
    manifest: Manifest, statistics: DatasetStatistics, locator: RejectLocator
) -> tuple[Table | None, str]:
    rejected = manifest.rows_rejected
    if not rejected:
        return None, ""
    counted_kinds = [kind for kind in statistics.rejects if kind.kind != NOT_COUNTED]
    firsts = [kind.first_reject for kind in counted_kinds[:LISTED_REASONS]]
    lines = {reject: locator.line(reject) for reject in firsts}
    rows = tuple(
        (
            kind.example,
            f"{kind.num_rows:,}",
            f"{locator.describe(kind.first_reject, lines[kind.first_reject])}: "
            f"{readable_raw(kind.first_reject.raw)}",
        )
        for kind in counted_kinds[:LISTED_REASONS]
    )
    notes = [f"{note}." for note in missing_line_notes(locator, lines)]
    if (more := rejected - sum(kind.num_rows for kind in counted_kinds)) > 0:
        notes.append(
            f"{more:,} of {format_count(rejected, 'reject')} are not in this table: "
            f"only the first {MAX_COUNTED:,} are counted, and files of rejects may be "
            "missing."
        )
    return Table(("Reason", "Rows", "=First"), rows), escape_unprintable(
        " ".join(notes)
    )


def _build_schema_table(manifest: Manifest) -> Table:
    features = manifest.features[:LISTED_FEATURES]
    more = len(manifest.features) - len(features)
    note = f"{more:,} more features; manifest.json lists all of them." if more else ""
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
    return escape_lines(cell) if is_text else cell


def check_page_target(target: Path) -> None:
    """Checks, before hours of work, that the target is new or a page of recordmill."""
    if "://" in str(target) or ":/" in str(target):
        raise UsageError(f"{str(target)!r} is a URL; expected a local file")
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
    check_page_target(target)
    write_windows(target, [html])
    return len(html)
