"""Shows the outcome of a run: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from recordmill.schemas.input_summary import CLASSES
from recordmill.schemas.text import count, human_bytes, printable
from recordmill.transforms.tasks.rejects import kind_lines

_CLASSES = 10  # in a line
_LABELS = 5

if TYPE_CHECKING:
    from recordmill.beam_jobs.service.outcome import Outcome
    from recordmill.beam_jobs.service.run import JobSubmitted
    from recordmill.schemas.manifest import Manifest
    from recordmill.transforms.statistics.class_counts import LabelCounts


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """Shows how a run ended: lines on stderr, or the JSON object alone on stdout."""
    if as_json:
        click.echo(json.dumps(outcome_facts(outcome)))
        return
    for line in _outcome_lines(outcome):
        click.echo(line, err=True)


def show_submitted(end: JobSubmitted, *, as_json: bool) -> None:
    """Shows that the runner has the job, where nobody waits for its end."""
    if as_json:
        facts = {"status": end.status, "output": end.output, "template": end.template}
        click.echo(json.dumps(facts | ({"job": end.job} if end.job else {})))
        return
    if end.status == "submitted":
        job = end.job or "the job"
        line = f"{job}: submitted to the runner. Its last step publishes {end.output}"
    elif end.template:
        line = (
            f"{end.template}: the job as a template for Dataflow. {end.output} is "
            "published when Dataflow has run it"
        )
    else:
        line = (
            "Dry run: the job can be translated for Dataflow; nothing was run or "
            "published"
        )
    click.echo(line, err=True)


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """Returns the JSON object."""
    manifest = outcome.manifest
    added = _appended_facts(outcome)
    return {
        "status": outcome.status,
        "output": outcome.output,
        "name": manifest.name,
        "version": manifest.version,
        "fingerprint": manifest.fingerprint,
        "rows_read": manifest.rows_read,
        "rows_rejected": manifest.rows_rejected,
        **(manifest.map.model_dump(exclude={"features"}) if manifest.map else {}),
        "records": manifest.records,
        "bytes": manifest.num_bytes,
        "shards": manifest.num_shards,
        "splits": {
            name: {
                "records": split.records,
                "bytes": split.bytes,
                "shards": len(split.shards),
            }
            for name, split in manifest.splits.items()
        },
        "rejects": outcome.rejects,
        "reasons": [
            {"reason": kind.kind, "rows": kind.rows} for kind in outcome.reject_kinds
        ],
        **({"appended": added} if added else {}),
        "understood": outcome.understood.to_dict(),
        "classes": outcome.classes,
        "stages": {
            stage: round(seconds, 3) for stage, seconds in outcome.stages.items()
        },
        "seconds": round(outcome.seconds, 3),
    }


def map_text(manifest: Manifest) -> str:
    """Returns what became of the rows, where a function made others; "" if none did."""
    if manifest.map is None:
        return ""
    dropped, added = manifest.rows_dropped, manifest.rows_added
    return (
        f"by map: {count(dropped, 'row')} dropped, {added:,} added "
        f"({manifest.rows_read:,} read + {added:,} added = {manifest.records:,} records "
        f"+ {manifest.rows_rejected:,} rejected + {dropped:,} dropped)"
    )


def _appended_facts(outcome: Outcome) -> dict[str, int] | None:
    """Returns what the run appended to the dataset that was there, if it did."""
    base, manifest = outcome.base, outcome.manifest
    if base is None or outcome.status == "unchanged":
        return None
    return {
        "rows_read": manifest.rows_read - base.rows_read,
        "rows_rejected": manifest.rows_rejected - base.rows_rejected,
        "records": manifest.records - base.records,
        "bytes": manifest.num_bytes - base.num_bytes,
        "shards": manifest.num_shards - base.num_shards,
    }


def _outcome_lines(outcome: Outcome) -> list[str]:
    """Returns the lines that people see."""
    manifest = outcome.manifest
    if outcome.status == "unchanged":
        return [
            f"{outcome.output}: this dataset is already there; nothing to do",
            f"To read every byte of it: recordmill verify {shlex.quote(outcome.output)}",
        ]
    added = _appended_facts(outcome)
    rate = (added["rows_read"] if added else manifest.rows_read) / outcome.seconds
    lines = [
        f"{manifest.name} {manifest.version}: {count(manifest.records, 'record')} in "
        f"{count(manifest.num_shards, 'shard')}, {human_bytes(manifest.num_bytes)}, "
        f"{outcome.seconds:.1f} s ({rate:,.0f} rows/s)"
    ]
    if added:
        lines.append(
            f"  appended: {count(added['records'], 'record')} in "
            f"{count(added['shards'], 'shard')}, {human_bytes(added['bytes'])}, "
            f"{count(added['rows_rejected'], 'row')} rejected"
        )
    for name, split in manifest.splits.items():
        lines.append(
            f"  {name}: {count(split.records, 'record')}, {count(len(split.shards), 'shard')}, "
            f"{human_bytes(split.bytes)}"
        )
        if not split.records:
            lines[-1] += " (no row fell into this split, because the input is small)"
    if outcome.stages:
        stages = [f"{stage} {s:.1f} s" for stage, s in outcome.stages.items()]
        lines.append(f"  time: {', '.join(stages)}")
    lines += [f"  {line}" for line in outcome.understood.lines()]
    counted = list((outcome.classes or {}).items())
    if CLASSES not in dict(outcome.understood.facts):
        lines += [f"  {_class_line(*label)}" for label in counted[:_LABELS]]
    lines += [f"  warning: {warning}" for warning in outcome.understood.warnings]
    if text := map_text(manifest):
        lines.append(f"  {text}")
    if manifest.rows_rejected:
        lines.append(
            f"  {count(manifest.rows_rejected, 'row')} rejected, kept in {outcome.rejects}"
            f" (recordmill rejects {shlex.quote(outcome.output)})"
        )
        told = kind_lines(outcome.reject_kinds, outcome.locator)
        lines += [f"    {line}" for line in told]
    if outcome.replaced_shards:
        lines.append(
            f"  kept of the replaced dataset: {count(outcome.replaced_shards, 'shard')}, for "
            "its readers, until the next run or `recordmill clean`. A glob finds both: take "
            "the names from manifest.json"
        )
    for launch in outcome.at_work:
        lines.append(
            f"  a detached job is at work here, too: {launch}. It replaces nothing that "
            "was published after its launch"
        )
    return lines + _loading_lines(outcome.output, manifest)


def _class_line(label: str, counts: LabelCounts) -> str:
    """Returns a line with the first classes of a label."""
    classes = list(next(iter(counts.values()), ()))
    first = [
        f"{printable(name)} {sum(own[name] for own in counts.values()):,}"
        for name in classes[:_CLASSES]
    ]
    more = f", ... {len(classes):,} in all" if len(classes) > len(first) else ""
    return f"classes of {printable(label)}: {', '.join(first)}{more}"


def _loading_lines(output: str, manifest: Manifest) -> list[str]:
    """Returns the lines by which one sees and loads a dataset, as they are typed."""
    where = shlex.quote(output)
    split = next((n for n, split in manifest.splits.items() if split.records), "train")
    tensorflow = f"To load it in TensorFlow: recordmill inspect {where} --tf > load.py"
    return [
        f"To see what is in it: recordmill inspect {where}",
        f"To see all of it, as a page for a browser: recordmill report {where}",
        *([tensorflow] if manifest.container == "tfrecord" else []),
        "To load it in Python:",
        "    from recordmill import open_dataset",
        f"    for row in open_dataset({output!r}, {split!r}):",
        "        print(row)",
    ]
