"""Shows the results of verify, diff and rejects as tables, lines or JSON.

rich is imported late.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from recordmill.beam_jobs.report.terminal import make_console, write_json
from recordmill.schemas.feature_spec import Content, FeatureSpec
from recordmill.schemas.ranges import Reject
from recordmill.schemas.text import escape_unprintable, format_bytes, format_count
from recordmill.transforms.tasks.rejects import (
    RejectKind,
    RejectLine,
    RejectLocator,
    readable_raw,
)

if TYPE_CHECKING:
    from rich.console import Console

    from recordmill.schemas.manifest import Manifest
    from recordmill.transforms.dataset.diff import DatasetComparison
    from recordmill.transforms.dataset.verify import VerifyResult
    from recordmill.transforms.statistics.class_counts import LabelCounts


class Table(NamedTuple):
    """A table for a page or a terminal."""

    # headings of the columns. A column holds numbers unless its heading begins with "=",
    # or it is the first column of a page's table, which names the row
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]  # texts, one for each column
    # for each row, the segments of a bar on a page, from 0 to 1; several segments belong
    # to the columns after the first one. Empty: no bars
    bar_segments: tuple[tuple[float, ...], ...] = ()
    note: str = ""  # a sentence about omitted rows


def image_sizes_note(manifest: Manifest) -> str:
    """Returns advice on batches of images that may differ in size, or ""."""
    images = [
        feature for feature in manifest.features if feature.content is Content.IMAGE
    ]
    if all(feature.shape and None not in feature.shape[:2] for feature in images):
        return ""
    return (
        "Images may differ in size: for batches of one shape convert with --resize, or "
        "pad each batch, in PyTorch with collate_fn=data.collate "
        "(docs/reading-datasets.md)"
    )


def describe_kind(feature: FeatureSpec) -> str:
    """Describes the content of a feature, as in "uint8 array, 32 x 32 x 3"."""
    text = feature.dtype
    if feature.content is not Content.VALUES:
        is_image = feature.content is Content.IMAGE
        text += f" {'image' if is_image else feature.content}"
    if feature.num_classes is not None:
        text += f", {format_count(feature.num_classes, 'class')}"
    if feature.shape:
        sides = ("any" if side is None else f"{side:,}" for side in feature.shape)
        text += f", {' x '.join(sides)}"
    if feature.is_sequence:
        text = f"steps of {text}"
    return f"{text}, optional" if feature.optional else text


def features_table(features: Sequence[FeatureSpec]) -> Table:
    """Returns a table of the features: content, and kind of list in an example."""
    rows = [
        (escape_unprintable(f.name), escape_unprintable(describe_kind(f)), f.kind)
        for f in features
    ]
    return Table(("=feature", "=holds", "=stored as"), rows)


def splits_table(manifest: Manifest) -> Table:
    """Returns a table with the rows, bytes and shards of each split."""
    rows = []
    for name, split in manifest.splits.items():
        sizes = [shard.bytes for shard in split.shards]
        ends = [format_bytes(end(sizes)) if sizes else "-" for end in (min, max)]
        size, shards = format_bytes(split.bytes), f"{len(sizes):,}"
        rows.append(
            (escape_unprintable(name), f"{split.records:,}", size, shards, *ends)
        )
    return Table(("=split", "records", "size", "shards", "smallest", "largest"), rows)


def sum_over_splits(label: LabelCounts) -> dict[str, int]:
    """Returns the number of rows of each class of a label, summed over all splits."""
    classes = next(iter(label.values()), {})
    return {name: sum(counts[name] for counts in label.values()) for name in classes}


def print_table(console: Console, table: Table, title: str = "") -> None:
    """Prints a table, below a blank line and a title if it has one."""
    from rich import box
    from rich.table import Table as Grid

    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in table.columns:
        is_text = name.startswith("=")
        grid.add_column(
            name.removeprefix("="),
            justify="left" if is_text else "right",
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*row)
    if title:
        console.print()
        console.print(title, style="bold", soft_wrap=True)
    console.print(grid, end="" if title else "\n")
    if table.note:
        console.print(table.note)


def describe_row_counts(manifest: Manifest) -> str:
    """Returns the row counts of `map` and sampling as text, or "" without either."""
    map_counts, sampling = manifest.map, manifest.sampling
    sentences, more, fewer = [], "", ""
    if map_counts is not None:
        dropped, added = map_counts.rows_dropped, map_counts.rows_added
        sentences.append(
            f"by map: {format_count(dropped, 'row')} dropped, {added:,} added"
        )
        more, fewer = f" + {added:,} added", f" + {dropped:,} dropped"
    if sampling is not None:
        sentences.append(
            f"by sampling: {format_count(sampling.rows_left_out, 'row')} left out"
        )
        fewer += f" + {sampling.rows_left_out:,} left out"
        if copied := sampling.rows_copied:
            sentences[-1] += f", {copied:,} copied"
            more += f" + {copied:,} copied"
    if not sentences:
        return ""
    return (
        f"{'; '.join(sentences)} ({manifest.rows_read:,} read{more} = "
        f"{manifest.records:,} records + {manifest.rows_rejected:,} rejected{fewer})"
    )


BYTE_POSITIONS = (
    "Positions are byte offsets. For line numbers, set --input-root to the folder or "
    "URL of the inputs"
)
_SHOWN_PROBLEMS = 3


def missing_line_notes(
    locator: RejectLocator, lines: Mapping[Reject, RejectLine]
) -> list[str]:
    """Returns the reasons for missing line numbers; none for formats without lines."""
    if not locator.is_by_line or not any(reject.path for reject in lines):
        return []
    if not locator.root:
        return [BYTE_POSITIONS]
    problems = list(dict.fromkeys(line.problem for line in lines.values()))
    notes = [f"No line number: {problem}" for problem in problems if problem]
    more = len(notes) - _SHOWN_PROBLEMS
    return notes[:_SHOWN_PROBLEMS] + ([f"and {more:,} more"] if more > 0 else [])


def show_rejects(
    kinds: Sequence[RejectKind],
    rows: Sequence[Reject],
    locator: RejectLocator,
    *,
    published: bool,
    as_json: bool,
) -> None:
    """Shows the reasons with their counts, then single rejects.

    `published` is True for the rejects of a dataset, and False for the rejects of
    unpublished runs.
    """
    listed_rejects = [*(kind.first_reject for kind in kinds), *rows]
    lines = {reject: locator.line(reject) for reject in listed_rejects}
    notes = missing_line_notes(locator, lines)

    def fields(reject: Reject) -> dict[str, Any]:
        return {
            "uri": reject.path,
            "position": reject.position,
            "line": lines[reject].number,
            "code": reject.code,
            "reason": reject.reason,
            "raw": readable_raw(reject.raw),
            "raw_base64": base64.b64encode(reject.raw).decode(),
        }

    def describe_location(reject: Reject) -> str:
        return locator.describe(reject, lines[reject])

    rejected = sum(kind.num_rows for kind in kinds)
    if as_json:
        reasons = [
            {"code": kind.code, "reason": kind.kind, "rows": kind.num_rows}
            | {"first": fields(kind.first_reject)}
            for kind in kinds
        ]
        facts = {"published": published, "rows_rejected": rejected, "reasons": reasons}
        write_json(facts | {"rows": list(map(fields, rows)), "notes": notes})
        return
    console = make_console()
    origin_note = "" if published else " by unpublished runs"
    console.print(f"{format_count(rejected, 'row')} rejected{origin_note}")
    if not kinds:
        return
    cells = [
        (f"{kind.num_rows:,}", kind.example, describe_location(kind.first_reject))
        for kind in kinds
    ]
    columns = ("rows", "=reason (of the first row)", "=first")
    print_table(console, Table(columns, cells))
    for row in rows:
        console.print(
            f"{describe_location(row)}: {escape_unprintable(row.reason)}",
            soft_wrap=True,
        )
        console.print(f"    {readable_raw(row.raw)}", soft_wrap=True)
    for note in notes:
        console.print(note, soft_wrap=True)


_ADVICE = {
    "damage": "{output} is damaged. Convert again with --overwrite to rebuild it. If "
    "--dataset-version auto chose its version, remove its folder instead and "
    "convert again",
    "unfinished": "{output} is complete, but files next to its shards are not in place "
    "yet. If no run is active there, run the same command again or "
    "`recordmill clean {output}`: both move them into place",
    "stray": "{output} contains other files. Delete the files that the table names",
    "leftover": "{output} contains files of a run that published nothing. If no run is "
    "active there, `recordmill clean {output}` removes them",
    "values": "{output} contains records that do not match its schema, although it is "
    "undamaged. Fix the inputs or the schema, and convert again with "
    "--overwrite",
    "duplicates": "{output} is complete, but its splits share records. Show a record "
    "with `recordmill inspect {output} --split NAME --index NUMBER`. "
    "Remove the copies from the inputs, and convert again with "
    "--overwrite",
}

_MAX_LINE_WIDTH = 1 << 16  # characters in a line


def show_verify(result: VerifyResult, *, as_json: bool = False) -> None:
    """Shows the result of a verification: lines and a table, or one JSON object."""
    if as_json:
        write_json({"ok": result.is_undamaged, **asdict(result)})
        return
    console = make_console()
    if not console.is_terminal:
        console.width = _MAX_LINE_WIDTH  # programs read whole names
    size = format_bytes(result.bytes)
    totals = f"{format_count(result.shards, 'shard')}, {format_count(result.records, 'record')}"
    if result.is_undamaged:
        claim = "every checksum, count and size is" if result.full else "all sizes are"
        if result.stored_checksums and not result.full:
            claim = "all sizes and stored checksums are"
        fits = ", every record fits the schema" if result.deep else ""
        console.print(
            f"{result.name}: {claim} right{fits} ({totals}, {size})",
            style="green",
            soft_wrap=True,
        )
        if result.duplicates:
            console.print(f"duplicates: {result.duplicates}", soft_wrap=True)
        return
    problems = format_count(len(result.problems), "problem")
    console.print(f"{result.name}: {problems} ({totals} found, {size})", style="red")
    rows = [
        (escape_unprintable(problem.file), escape_unprintable(problem.message))
        for problem in result.problems
    ]
    print_table(console, Table(("=file", "=problem"), rows))
    kinds = {problem.kind for problem in result.problems}
    output = escape_unprintable(shlex.quote(result.output))
    for kind, advice in _ADVICE.items():
        if kind in kinds:
            console.print()
            console.print(advice.format(output=output), soft_wrap=True)


def show_diff(
    outputs: tuple[str, str], compared: DatasetComparison, *, as_json: bool = False
) -> None:
    """Shows the comparison of the datasets in two folders: lines, or one JSON object."""
    records = compared.records
    if as_json:
        only = [
            {
                "output": output,
                "rows": rows,
                "first": [{"file": file, "record": index} for file, index in examples],
            }
            for output, rows, examples in zip(
                outputs, records.num_only_in, records.examples, strict=True
            )
        ]
        facts = {"same": compared.is_same, "schema": compared.schema}
        facts |= {"splits": compared.splits, "both": records.num_common}
        write_json(facts | {"moved": records.num_moved, "only": only})
        return
    console = make_console()
    for line in _diff_lines(
        [escape_unprintable(output) for output in outputs], compared
    ):
        console.print(line, soft_wrap=True)


def _diff_lines(outputs: list[str], compared: DatasetComparison) -> list[str]:
    records = compared.records
    lines = [f"{outputs[0]} | {outputs[1]}"]
    lines.append("schema: differs" if compared.schema else "schema: identical")
    lines += [f"  {escape_unprintable(sentence)}" for sentence in compared.schema]
    for name, counts in compared.splits.items():
        row_counts = [
            "no such split" if n is None else format_count(n, "row") for n in counts
        ]
        both = row_counts[0] if counts[0] == counts[1] else " | ".join(row_counts)
        lines.append(f"split {escape_unprintable(name)}: {both}")
    facts = [f"{records.num_common:,} in both"]
    if records.num_moved:
        facts.append(f"{records.num_moved:,} of these in another split")
    facts += [
        f"{number:,} only in {output}"
        for number, output in zip(records.num_only_in, outputs, strict=True)
        if number
    ]
    method_note = " (compared by shard checksums)" if compared.has_same_files else ""
    lines.append(f"rows: {', '.join(facts)}{method_note}")
    for side, output in enumerate(outputs):
        for file, index in records.examples[side]:
            location = f"record {index} of {file}"
            lines.append(f"  only in {output}: {escape_unprintable(location)}")
    lines.append(
        "the rows are identical" if compared.is_same else "the datasets differ"
    )
    return lines
