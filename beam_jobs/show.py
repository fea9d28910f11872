"""What `inspect` and `verify` show: tables for people, one JSON object for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from schemas.manifest import FeatureEntry, Manifest
    from transforms.decode import Values
    from transforms.verify import VerifyResult

# rich, pydantic, pyarrow and protobuf are imported inside the functions: the command
# line imports this module whatever it is asked to do.


@dataclass(frozen=True, slots=True)
class _Shown:
    """One example: where it was read, and its values."""

    split: str
    file: str
    record_index: int
    values: dict[str, Values]


def show_inspect(
    output: str,
    *,
    num_examples: int = 3,
    as_json: bool = False,
    stream: TextIO | None = None,
) -> None:
    """Shows what a dataset holds: features, splits and its first examples.

    Args:
      output: the dataset's folder.
      num_examples: examples to read and show.
      as_json: write one JSON object instead of tables.
      stream: where to; standard output unless given.

    Raises:
      OutputError: there is no dataset in the folder, or a shard is missing.
      CorruptRecordError: one of the first records is damaged.
    """
    from transforms.verify import read_manifest

    manifest = read_manifest(output)
    names = _class_names(output, manifest)
    examples = _first_examples(output, manifest, num_examples)
    if as_json:
        _write_json(_inspect_json(manifest, names, list(examples)), stream)
        return
    console = _console(stream)
    _print_header(console, output, manifest)
    console.print(_features_table(manifest))
    console.print(_splits_table(manifest))
    for example in examples:
        console.print(_example_table(example, manifest, names))


def show_verify(
    result: VerifyResult, *, as_json: bool = False, stream: TextIO | None = None
) -> None:
    """Shows what a verification found.

    Args:
      result: of transforms.verify.verify_dataset.
      as_json: write one JSON object instead of lines and a table.
      stream: where to; standard output unless given.
    """
    from transforms.decode import human_bytes, printable

    if as_json:
        _write_json(_verify_json(result), stream)
        return
    console = _console(stream)
    size = human_bytes(result.bytes)
    found = f"{_count(result.shards, 'shard')}, {_count(result.records, 'record')}"
    if result.ok:
        what = "every checksum, count and size is" if result.full else "all sizes are"
        console.print(f"{result.name}: {what} right ({found}, {size})", style="green")
        return
    problems = _count(len(result.problems), "problem")
    console.print(f"{result.name}: {problems} ({found} found, {size})", style="red")
    table = _table("", ("file", "left"), ("problem", "left"))
    for problem in result.problems:
        table.add_row(printable(problem.file), printable(problem.message))
    console.print(table)
    console.print(f"{result.output} is not whole: convert it again with --overwrite")


def _first_examples(output: str, manifest: Manifest, wanted: int) -> Iterator[_Shown]:
    """The first examples in the order of splits and shards."""
    from schemas.errors import OutputError
    from transforms.decode import decode_example
    from transforms.storage import local_path
    from transforms.tfrecord import open_stream, read_records
    from transforms.verify import open_file

    for split, entry in manifest.splits.items():
        for shard in entry.shards:
            if wanted <= 0:
                return
            try:
                file = open_file(local_path(output), shard.file)
            except OSError as error:
                raise OutputError(
                    f"{output}: {shard.file} cannot be read: {error.strerror}; "
                    "`recordmill verify` says what else is missing"
                ) from error
            with file:
                stream = open_stream(file, manifest.compression)
                for index, data in enumerate(read_records(stream, shard.file)):
                    yield _Shown(split, shard.file, index, decode_example(data))
                    wanted -= 1
                    if wanted <= 0:
                        return


def _class_names(output: str, manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Class names by feature, of the features whose labels file is there."""
    from transforms.storage import local_path
    from transforms.tfds import labels_file_name, parse_labels
    from transforms.verify import open_file

    names = {}
    for feature in manifest.features:
        if feature.num_classes is None:
            continue
        try:
            with open_file(local_path(output), labels_file_name(feature.name)) as file:
                found = parse_labels(file.read())
        except (OSError, UnicodeDecodeError):
            continue
        if len(found) == feature.num_classes:
            names[feature.name] = found
    return names


def _inspect_json(
    manifest: Manifest, names: dict[str, tuple[str, ...]], examples: list[_Shown]
) -> dict[str, Any]:
    from transforms.decode import value_facts

    entries = {feature.name: feature for feature in manifest.features}
    facts = manifest.model_dump(mode="json", exclude={"splits", "manifest_version"})
    for feature in facts["features"]:
        feature["class_names"] = list(names.get(feature["name"], ()))
    facts["splits"] = {
        name: {
            "records": split.records,
            "bytes": split.bytes,
            "shards": len(split.shards),
            "smallest_shard": min((shard.bytes for shard in split.shards), default=0),
            "largest_shard": max((shard.bytes for shard in split.shards), default=0),
        }
        for name, split in manifest.splits.items()
    }
    facts["examples"] = [
        {
            "split": example.split,
            "file": example.file,
            "record": example.record_index,
            "features": {
                name: value_facts(values, _entry(name, entries), names.get(name, ()))
                for name, values in example.values.items()
            },
        }
        for example in examples
    ]
    return facts


def _verify_json(result: VerifyResult) -> dict[str, Any]:
    return {
        "ok": result.ok,
        "output": result.output,
        "name": result.name,
        "full": result.full,
        "shards": result.shards,
        "records": result.records,
        "bytes": result.bytes,
        "problems": [
            {"file": problem.file, "message": problem.message}
            for problem in result.problems
        ],
    }


def _print_header(console: Console, output: str, manifest: Manifest) -> None:
    from transforms.decode import human_bytes, printable

    order = f"shuffled with seed {manifest.seed}" if manifest.shuffle else "input order"
    console.print(f"{manifest.name} {manifest.version}", style="bold")
    console.print(printable(output), style="dim")
    console.print(
        f"{_count(manifest.records, 'record')} in "
        f"{_count(manifest.num_shards, 'shard')}, {human_bytes(manifest.bytes)}, "
        f"compression {manifest.compression}, {order}"
    )
    console.print(
        f"{_count(manifest.rows_read, 'row')} read, {manifest.rows_rejected:,} rejected"
    )


def _features_table(manifest: Manifest) -> Table:
    from transforms.decode import printable

    table = _table(
        "features",
        ("feature", "left"),
        ("kind", "left"),
        ("dtype", "left"),
        ("shape", "left"),
        ("what", "left"),
        ("missing", "left"),
    )
    for feature in manifest.features:
        table.add_row(
            printable(feature.name),
            feature.kind,
            printable(feature.dtype),
            _shape(feature),
            _what(feature),
            "sometimes" if feature.optional else "never",
        )
    return table


def _splits_table(manifest: Manifest) -> Table:
    from transforms.decode import human_bytes, printable

    table = _table(
        "splits",
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
    return table


def _example_table(
    example: _Shown, manifest: Manifest, names: dict[str, tuple[str, ...]]
) -> Table:
    from transforms.decode import printable, readable

    entries = {feature.name: feature for feature in manifest.features}
    title = f"{example.split}: record {example.record_index} of {example.file}"
    table = _table(printable(title), ("feature", "left"), ("value", "left"))
    for name in sorted({*entries, *example.values}):
        values = example.values.get(name)
        entry = _entry(name, entries)
        shown = "-" if values is None else readable(values, entry, names.get(name, ()))
        table.add_row(printable(name), shown)
    return table


def _entry(name: str, entries: dict[str, FeatureEntry]) -> FeatureEntry:
    """The manifest's entry of a feature; one for plain values if it has none."""
    from schemas.manifest import FeatureEntry

    return entries.get(name) or FeatureEntry(
        name=name,
        kind="bytes_list",
        dtype="bytes",
        shape=(None,),
        content="values",
        optional=True,
    )


def _shape(feature: FeatureEntry) -> str:
    sides = ["?" if size is None else str(size) for size in feature.shape]
    return "x".join(sides) or "scalar"


def _what(feature: FeatureEntry) -> str:
    if feature.content != "values":
        return feature.content
    if feature.num_classes is not None:
        return f"label, {_count(feature.num_classes, 'class')}"
    if feature.kind != "bytes_list":
        return "truth value" if feature.dtype == "bool" else "number"
    return "text" if feature.dtype == "string" else "bytes"


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def _console(stream: TextIO | None) -> Console:
    """A console that takes all text as it is; without colour unless on a terminal."""
    from rich.console import Console

    return Console(
        file=stream or sys.stdout, markup=False, highlight=False, emoji=False
    )


def _table(title: str, *columns: tuple[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    return table


def _write_json(value: dict[str, Any], stream: TextIO | None) -> None:
    from schemas.manifest import json_bytes

    (stream or sys.stdout).write(json_bytes(value).decode())
