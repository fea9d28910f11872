"""What `inspect` and `verify` show: tables for people, one JSON object for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from schemas.manifest import FeatureEntry, Manifest
    from transforms.peek import FoundExample
    from transforms.verify import VerifyResult

    _ClassNames = Mapping[str, tuple[str, ...]]

# rich, pydantic, pyarrow and protobuf are imported inside the functions: the command
# line imports this module whatever it is asked to do.


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
    from transforms.peek import class_names, first_examples
    from transforms.verify import read_manifest

    manifest = read_manifest(output)
    names = class_names(output, manifest)
    examples = first_examples(output, manifest, num_examples)
    if as_json:
        _write_json(_inspect_json(manifest, names, list(examples)), stream)
        return
    console = _console(stream)
    _print_header(console, output, manifest)
    _print_features(console, manifest)
    _print_splits(console, manifest)
    for example in examples:
        _print_example(console, example, manifest, names)


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
    table = _table(("file", "left"), ("problem", "left"))
    for problem in result.problems:
        table.add_row(printable(problem.file), printable(problem.message))
    console.print(table)
    console.print(
        f"\n{printable(result.output)} is not whole. Shards that are damaged or missing "
        "come back with: recordmill convert ... --overwrite",
        soft_wrap=True,
    )


def _inspect_json(
    manifest: Manifest, names: _ClassNames, examples: list[FoundExample]
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
    console.print(printable(output), style="dim", soft_wrap=True)
    console.print(
        f"{_count(manifest.records, 'record')} in "
        f"{_count(manifest.num_shards, 'shard')}, {human_bytes(manifest.num_bytes)}, "
        f"compression {manifest.compression}, {order}"
    )
    console.print(
        f"{_count(manifest.rows_read, 'row')} read, {manifest.rows_rejected:,} rejected"
    )


def _print_features(console: Console, manifest: Manifest) -> None:
    from transforms.decode import printable

    table = _table(
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
    _print_table(console, "features", table)


def _print_splits(console: Console, manifest: Manifest) -> None:
    from transforms.decode import human_bytes, printable

    table = _table(
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
    _print_table(console, "splits", table)


def _print_example(
    console: Console, example: FoundExample, manifest: Manifest, names: _ClassNames
) -> None:
    from transforms.decode import printable, readable

    entries = {feature.name: feature for feature in manifest.features}
    table = _table(("feature", "left"), ("value", "left"))
    for name in sorted({*entries, *example.values}):
        values = example.values.get(name)
        entry = _entry(name, entries)
        shown = "-" if values is None else readable(values, entry, names.get(name, ()))
        table.add_row(printable(name), shown)
    title = f"{example.split}: record {example.record_index} of {example.file}"
    _print_table(console, printable(title), table)


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
        return _count(feature.num_classes, "class")
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


def _table(*columns: tuple[str, Any]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify=justify, overflow="fold")
    return table


def _print_table(console: Console, title: str, table: Table) -> None:
    console.print()
    console.print(title, style="bold", soft_wrap=True)
    console.print(table, end="")


def _write_json(value: dict[str, Any], stream: TextIO | None) -> None:
    from schemas.manifest import json_bytes

    (stream or sys.stdout).write(json_bytes(value).decode())
