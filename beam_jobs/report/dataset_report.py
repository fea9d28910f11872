"""Shows what is in a dataset: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from recordmill.beam_jobs.report.class_report import print_classes
from recordmill.beam_jobs.report.text_tables import (
    make_console,
    make_table,
    print_table,
    write_json,
)
from recordmill.schemas.text import count

if TYPE_CHECKING:
    from rich.console import Console

    from recordmill.beam_jobs.report.dataset_json import ClassNames
    from recordmill.schemas.feature_spec import FeatureSpec
    from recordmill.schemas.manifest import Manifest
    from recordmill.schemas.storage_options import StorageOptions
    from recordmill.transforms.dataset.count_classes import LabelCounts
    from recordmill.transforms.dataset.reader import ExamplePreview

_JSON_LINES = 60  # of one record
_JSON_CHARACTERS = 200  # of one line

# rich, pydantic, pyarrow and protobuf are imported inside the functions: the command
# line imports this module whatever it is asked to do.


def show_inspect(
    output: str,
    *,
    num_examples: int = 3,
    split: str = "",
    first: int = 0,
    where: Sequence[str] = (),
    counts: bool = False,
    image: bool = False,
    as_json: bool = False,
    tf: bool = False,
    storage: StorageOptions | None = None,
    stream: TextIO | None = None,
) -> None:
    """Shows what a dataset holds: features, splits and its first examples.

    Args:
      output: the dataset's folder.
      num_examples: examples to read and show.
      split: of which split; "" for all.
      first: index of the first example in the split, or among all.
      where: what each example must have, as FEATURE=VALUE.
      counts: count the classes, however large the dataset is.
      image: show the pictures of the examples.
      as_json: write one JSON object instead of tables.
      tf: write only a program that loads the dataset with TensorFlow.
      storage: options of the dataset's storage.
      stream: where to; standard output unless given.

    Raises:
      OutputError: there is no dataset in the folder, or a shard is missing.
      CorruptRecordError: one of the first records is damaged.
    """
    from recordmill.schemas.manifest import schema_of
    from recordmill.transforms.dataset.count_classes import (
        count_classes,
        counts_if_small,
    )
    from recordmill.transforms.dataset.files import class_names, read_manifest
    from recordmill.transforms.dataset.reader import (
        Selection,
        parse_condition,
        read_examples,
    )
    from recordmill.transforms.storage import open_store

    store = open_store(output, storage) if storage else open_store(output)
    manifest = read_manifest(store)
    names = class_names(store, manifest)
    if tf:
        from recordmill.transforms.decode.tf_code import loading_code

        code = loading_code(manifest, names, output)
        if as_json:
            write_json({"tf": code}, stream)
        else:
            (stream or sys.stdout).write(code)
        return
    schema = schema_of(manifest, names)
    conditions = tuple(parse_condition(text, schema, names) for text in where)
    selection = Selection(num_examples, split, first, conditions)
    examples = read_examples(store, manifest, selection)
    features = {feature.name: feature for feature in manifest.features}
    console = make_console(stream)
    draws = False
    if image:
        from recordmill.beam_jobs.report import example_pictures

        example_pictures.require_pictures(features, store.uri)
        draws = not as_json and example_pictures.can_draw(console)
    classes: Sequence[LabelCounts] | None
    if counts:
        from recordmill.beam_jobs.report.showing import showing

        with showing(sys.stderr, "count", wanted=not as_json) as on_progress:
            classes = count_classes(store, manifest, names, on_progress)
    else:
        classes = counts_if_small(store, manifest, names)
    if as_json:
        from recordmill.beam_jobs.report.dataset_json import inspect_json

        facts = inspect_json(manifest, names, list(examples), classes, pictures=image)
        write_json(facts, stream)
        return
    _print_header(console, output, manifest)
    _print_features(console, manifest)
    _print_splits(console, manifest)
    if classes is None:
        console.print("\nclasses: --counts reads the whole dataset and counts them")
    else:
        print_classes(console, classes)
    for example in examples:
        _print_example(console, example, manifest, names)
        if draws:
            example_pictures.draw_pictures(console, example, features)
    if image and not draws:
        sys.stderr.write(f"{example_pictures.NOT_DRAWN}\n")


def _print_header(console: Console, output: str, manifest: Manifest) -> None:
    from recordmill.beam_jobs.report.summary import map_text
    from recordmill.schemas.text import human_bytes, printable

    order = f"shuffled with seed {manifest.seed}" if manifest.shuffle else "input order"
    payload = "" if manifest.payload == "example" else f"payload {manifest.payload}, "
    container = "" if manifest.container == "tfrecord" else "ArrayRecord, "
    console.print(f"{manifest.name} {manifest.version}", style="bold")
    console.print(printable(output), style="dim", soft_wrap=True)
    console.print(
        f"{count(manifest.records, 'record')} in "
        f"{count(manifest.num_shards, 'shard')}, {human_bytes(manifest.num_bytes)}, "
        f"{container}{payload}compression {manifest.compression}, {order}"
    )
    console.print(
        f"{count(manifest.rows_read, 'row')} read, {manifest.rows_rejected:,} rejected"
        + (
            f", appended {count(manifest.appended, 'time')}"
            if manifest.appended
            else ""
        )
    )
    if text := map_text(manifest):
        console.print(text)


def _print_features(console: Console, manifest: Manifest) -> None:
    from recordmill.schemas.text import printable

    table = make_table(
        ("feature", "left"),
        ("kind", "left"),
        ("dtype", "left"),
        ("shape", "left"),
        ("what", "left"),
        ("optional", "left"),
    )
    for feature in manifest.features:
        table.add_row(
            printable(feature.name),
            feature.kind,
            printable(feature.dtype),
            _shape(feature),
            _what(feature),
            "yes" if feature.optional else "no",
        )
    print_table(console, "features", table)


def _print_splits(console: Console, manifest: Manifest) -> None:
    from recordmill.schemas.text import human_bytes, printable

    table = make_table(
        ("split", "left"),
        ("records", "right"),
        ("size", "right"),
        ("shards", "right"),
        ("smallest", "right"),
        ("largest", "right"),
    )
    for name, split in manifest.splits.items():
        sizes = [shard.bytes for shard in split.shards]
        table.add_row(
            printable(name),
            f"{split.records:,}",
            human_bytes(split.bytes),
            f"{len(sizes):,}",
            human_bytes(min(sizes)) if sizes else "-",
            human_bytes(max(sizes)) if sizes else "-",
        )
    print_table(console, "splits", table)


def _print_example(
    console: Console, example: ExamplePreview, manifest: Manifest, names: ClassNames
) -> None:
    from recordmill.beam_jobs.report.dataset_json import entry_of
    from recordmill.schemas.text import printable
    from recordmill.transforms.decode.readable import readable

    title = printable(
        f"{example.split}: record {example.record_index} of {example.file}"
    )
    if example.json_text:
        lines = example.json_text.splitlines()
        console.print()
        console.print(title, style="bold", soft_wrap=True)
        for line in lines[:_JSON_LINES]:
            more = "..." if len(line) > _JSON_CHARACTERS else ""
            console.print(printable(line[:_JSON_CHARACTERS]) + more)
        if len(lines) > _JSON_LINES:
            console.print(f"... {len(lines):,} lines in all")
        return
    entries = {feature.name: feature for feature in manifest.features}
    # A raw record is one feature's bytes; the others are not in it.
    wanted = set() if manifest.payload == "raw" else set(entries)
    table = make_table(("feature", "left"), ("value", "left"))
    for name in sorted({*wanted, *example.values}):
        values = example.values.get(name)
        entry = entry_of(name, entries)
        shown = "-" if values is None else readable(values, entry, names.get(name, ()))
        table.add_row(printable(name), shown)
    print_table(console, title, table)


def _shape(feature: FeatureSpec) -> str:
    sides = ["?" if size is None else str(size) for size in feature.shape]
    shape = "x".join(sides) or "scalar"
    return f"steps of {shape}" if feature.sequence else shape


def _what(feature: FeatureSpec) -> str:
    if feature.content != "values":
        return feature.content
    if feature.num_classes is not None:
        return count(feature.num_classes, "class")
    if feature.kind != "bytes_list":
        return "truth value" if feature.dtype == "bool" else "number"
    return "text" if feature.dtype == "string" else "bytes"
