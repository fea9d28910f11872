"""Shows the content of a dataset: tables or JSON, and images as PNG files."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recordmill.beam_jobs.report.progress import show_progress
from recordmill.beam_jobs.report.tables import (
    Table,
    describe_row_counts,
    features_table,
    image_sizes_note,
    print_table,
    splits_table,
    sum_over_splits,
)
from recordmill.beam_jobs.report.terminal import echo_lines, make_console, write_json
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec
from recordmill.schemas.manifest import Manifest, schema_of
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import escape_unprintable, format_bytes, format_count
from recordmill.transforms.dataset.examples import (
    ExamplePreview,
    Selection,
    parse_condition,
    read_examples,
)
from recordmill.transforms.dataset.files import class_names, read_manifest
from recordmill.transforms.decode.readable import format_value, to_json_value
from recordmill.transforms.decode.tf_code import loading_code
from recordmill.transforms.images.header import ImageHeaderError
from recordmill.transforms.statistics.class_counts import (
    LabelCounts,
    count_classes,
    counts_if_small,
)
from recordmill.transforms.statistics.thumbnails import holds_images, png_of
from recordmill.transforms.storage import open_store

if TYPE_CHECKING:
    from rich.console import Console


_MAX_CLASSES = 40  # rows of a table of classes
_MAX_IMAGES = 4  # images per feature of an example

_FIRST_EXAMPLES = Selection(3)

_ClassNames = Mapping[str, tuple[str, ...]]
_Images = Mapping[str, list[dict[str, Any]]]
"""By feature, a report on each image: file, width and height, or error."""


def show_dataset(
    output: str,
    *,
    selection: Selection = _FIRST_EXAMPLES,
    condition_texts: Sequence[str] = (),
    counts: bool = False,
    images: str = "",
    as_json: bool = False,
    tf: bool = False,
    storage: StorageOptions = NO_OPTIONS,
) -> None:
    """Shows the features, splits and selected examples of a dataset.

    `condition_texts` are conditions on the examples as FEATURE=VALUE. `images` is the
    folder to which their images are written as PNG files. With `counts`, classes are
    counted even in a large dataset. With `tf`, only a program is shown, which loads the
    dataset with TensorFlow.

    Raises:
      OutputError, CorruptRecordError: the dataset is missing or damaged.
      UsageError: images were requested, but no feature holds any.
    """
    store = open_store(output, storage)
    manifest = read_manifest(store)
    names = class_names(store, manifest)
    if tf:
        code = loading_code(manifest, names, output)
        write_json({"tf": code}) if as_json else echo_lines(code)
        return
    schema = schema_of(manifest, names)
    conditions = tuple(parse_condition(text, schema, names) for text in condition_texts)
    selection = replace(selection, conditions=conditions)
    features = {feature.name: feature for feature in manifest.features}
    if images and not any(map(holds_images, features.values())):
        raise UsageError(
            f"{store.uri}: `image` writes images, but no feature contains images"
        )
    examples = read_examples(store, manifest, selection)
    classes: Mapping[str, LabelCounts] | None
    if counts:
        with show_progress(sys.stderr, "count", is_shown=not as_json) as on_progress:
            classes = count_classes(store, manifest, names, on_progress)
    else:
        classes = counts_if_small(store, manifest, names)
    if as_json:
        example_reports = [
            _example_json(example, features, names)
            | ({"images": _write_images(example, features, images)} if images else {})
            for example in examples
        ]
        write_json(_dataset_json(manifest, names, example_reports, classes))
        return
    console = make_console()
    _print_header(console, output, manifest)
    print_table(console, features_table(manifest.features), "features")
    if note := image_sizes_note(manifest):
        console.print(note)
    print_table(console, splits_table(manifest), "splits")
    if classes is None:
        console.print()
        console.print(
            "classes: not counted. Use --counts to read the whole dataset "
            "and count them"
        )
    for name, counted in (classes or {}).items():
        print_table(
            console,
            _build_classes_table(counted),
            f"classes of {escape_unprintable(name)}",
        )
    for example in examples:
        _print_example(console, example, manifest, names)
        for name, image_reports in _write_images(example, features, images).items():
            for image in image_reports:
                file_or_error = image.get("file") or image["error"]
                console.print(
                    escape_unprintable(f"{name}: {file_or_error}"), soft_wrap=True
                )


def _write_images(
    example: ExamplePreview, features: Mapping[str, FeatureSpec], folder: str
) -> _Images:
    """Writes the first images of each feature of an example; returns their reports."""
    images_by_feature: dict[str, list[dict[str, Any]]] = {}
    number = 0
    for name, values in example.values.items() if folder else ():
        if not holds_images(features[name]):
            continue
        every = values if isinstance(values, list) else [values]
        for value in every[:_MAX_IMAGES]:
            try:
                png, width, height = png_of(value, features[name])
            except (ImageHeaderError, ValueError) as error:
                images_by_feature.setdefault(name, []).append({"error": str(error)})
                continue
            # Feature names may contain slashes; shard names never do.
            path = Path(folder, f"{example.file}.{example.record_index}.{number}.png")
            number += 1
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(png)
            except OSError as error:
                raise OutputError(f"{path}: cannot write: {error.strerror}") from error
            image = {"file": str(path), "width": width, "height": height}
            images_by_feature.setdefault(name, []).append(image)
    return images_by_feature


def _print_header(console: Console, output: str, manifest: Manifest) -> None:
    order = f"shuffled with seed {manifest.seed}" if manifest.shuffle else "input order"
    payload = "" if manifest.payload == "example" else f"payload {manifest.payload}, "
    container = "" if manifest.container == "tfrecord" else "ArrayRecord, "
    times = format_count(manifest.appended, "time")
    appended = f", appended {times}" if manifest.appended else ""
    console.print(f"{manifest.name} {manifest.version}", style="bold")
    console.print(escape_unprintable(output), style="dim", soft_wrap=True)
    console.print(
        f"{format_count(manifest.records, 'record')} in "
        f"{format_count(manifest.num_shards, 'shard')}, {format_bytes(manifest.num_bytes)}, "
        f"{container}{payload}compression {manifest.compression}, {order}"
    )
    console.print(
        f"{format_count(manifest.rows_read, 'row')} read, {manifest.rows_rejected:,} rejected"
        f"{appended}"
    )
    if text := describe_row_counts(manifest):
        console.print(text)
    for key, text in manifest.about.items():
        line = escape_unprintable(f"{key}: {' '.join(text.split())}")
        console.print(line, soft_wrap=True)


def _build_classes_table(label: LabelCounts) -> Table:
    """Returns the classes of a label, with a column for each split."""
    columns = ["=class", *map(escape_unprintable, label)]
    if len(label) > 1:
        columns.append("all")
    rows, classes = [], sum_over_splits(label)
    for name, num_rows in islice(classes.items(), _MAX_CLASSES):
        numbers = [counts[name] for counts in label.values()]
        cells = (f"{n:,}" for n in [*numbers, num_rows][: len(columns) - 1])
        rows.append((escape_unprintable(name), *cells))
    is_long = len(classes) > _MAX_CLASSES
    note = (
        (f"... {len(classes):,} classes in total; --json lists all of them")
        if is_long
        else ""
    )
    return Table(tuple(columns), rows, note=note)


def _print_example(
    console: Console, example: ExamplePreview, manifest: Manifest, names: _ClassNames
) -> None:
    title = escape_unprintable(
        f"{example.split}: record {example.record_index} of {example.file}"
    )
    rows = []
    for feature in sorted(manifest.features, key=lambda feature: feature.name):
        name = feature.name
        if name in example.values:
            text = format_value(example.values[name], feature, names.get(name, ()))
            rows.append((escape_unprintable(name), text))
        elif manifest.payload != "raw":  # a raw record is the bytes of one feature
            rows.append((escape_unprintable(name), "-"))
    print_table(console, Table(("=feature", "=value"), rows), title)


def _dataset_json(
    manifest: Manifest,
    names: _ClassNames,
    examples: Sequence[dict[str, Any]],
    classes: Mapping[str, LabelCounts] | None,
) -> dict[str, Any]:
    report = manifest.model_dump(mode="json", exclude={"splits", "manifest_version"})
    for feature in report["features"]:
        feature["class_names"] = list(names.get(feature["name"], ()))
    report["splits"] = {
        name: {
            "records": split.records,
            "bytes": split.bytes,
            "shards": len(split.shards),
            "smallest_shard": min((shard.bytes for shard in split.shards), default=0),
            "largest_shard": max((shard.bytes for shard in split.shards), default=0),
        }
        for name, split in manifest.splits.items()
    }
    return report | {"classes": classes, "examples": examples}


def _example_json(
    example: ExamplePreview, features: Mapping[str, FeatureSpec], names: _ClassNames
) -> dict[str, Any]:
    report: dict[str, Any] = {"split": example.split, "file": example.file}
    report["record"] = example.record_index
    report["features"] = {
        name: to_json_value(value, features[name], names.get(name, ()))
        for name, value in example.values.items()
    }
    return report
