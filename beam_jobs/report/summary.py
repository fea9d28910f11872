"""Shows the plan and the outcome of a run: lines for people, or a JSON object."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from recordmill.beam_jobs.report.progress import show_progress
from recordmill.beam_jobs.report.tables import (
    describe_row_counts,
    image_sizes_note,
    sum_over_splits,
)
from recordmill.beam_jobs.report.terminal import echo, write_json
from recordmill.beam_jobs.service.prepare import RunPlan, plan_run
from recordmill.schemas.errors import EXIT_STATUS
from recordmill.schemas.input_summary import CLASSES
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.options import spell_options
from recordmill.schemas.text import escape_unprintable, format_bytes, format_count
from recordmill.transforms.tasks.rejects import kind_lines

if TYPE_CHECKING:
    from recordmill.beam_jobs.service.outcome import Outcome
    from recordmill.beam_jobs.service.run import JobSubmitted
    from recordmill.schemas.manifest import Manifest
    from recordmill.transforms.statistics.class_counts import LabelCounts


_MAX_CLASSES = 10  # classes of a label in one line
_MAX_LABELS = 5  # labels, with one line each


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """Shows the outcome of a run: lines on stderr, or only the JSON object on stdout."""
    if as_json:
        write_json(outcome_fields(outcome), indented=False)
        return
    for line in _outcome_lines(outcome):
        echo(line, err=True)


def show_submitted(end: JobSubmitted, *, as_json: bool) -> None:
    """Shows that a detached job was submitted, or translated, for the runner."""
    if as_json:
        facts = {"status": end.status, "output": end.output, "template": end.template}
        write_json(facts | ({"job": end.job} if end.job else {}), indented=False)
        return
    if end.status == "submitted":
        job = end.job or "the job"
        line = f"{job}: submitted to the runner. Its last step publishes {end.output}"
    elif end.template:
        line = (
            f"{end.template}: Dataflow template written. {end.output} is published "
            "after Dataflow runs the template"
        )
    else:
        line = (
            "Dry run: the job can be translated for Dataflow; nothing was run or "
            "published"
        )
    echo(line, err=True)


def outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """Returns the JSON object of an outcome."""
    manifest = outcome.manifest
    added = appended_totals(outcome)
    return {
        "status": outcome.status,
        "output": outcome.output,
        "name": manifest.name,
        "version": manifest.version,
        "fingerprint": manifest.fingerprint,
        "rows_read": manifest.rows_read,
        "rows_rejected": manifest.rows_rejected,
        **(manifest.map.model_dump(exclude={"features"}) if manifest.map else {}),
        **(manifest.sampling.model_dump() if manifest.sampling else {}),
        "records": manifest.records,
        "bytes": manifest.num_bytes,
        "shards": manifest.num_shards,
        "splits": {
            name: split.model_dump(exclude={"shards"}) | {"shards": len(split.shards)}
            for name, split in manifest.splits.items()
        },
        "rejects": outcome.rejects,
        "reasons": [
            {"code": kind.code, "reason": kind.kind, "rows": kind.num_rows}
            for kind in outcome.reject_kinds
        ],
        **({"appended": added} if added else {}),
        "understood": outcome.input_report.to_dict(),
        "classes": outcome.classes,
        "stages": {
            stage: round(seconds, 3) for stage, seconds in outcome.stages.items()
        },
        "seconds": round(outcome.seconds, 3),
    }


def appended_totals(outcome: Outcome) -> dict[str, int] | None:
    """Returns the totals that the run appended, or None without an append."""
    base, manifest = outcome.base, outcome.manifest
    if base is None or outcome.status != "done":
        return None
    totals = ("rows_read", "rows_rejected", "records", "num_bytes", "num_shards")
    return {
        name.removeprefix("num_"): getattr(manifest, name) - getattr(base, name)
        for name in totals
    }


def _outcome_lines(outcome: Outcome) -> list[str]:
    """Returns the lines for people about an outcome."""
    manifest = outcome.manifest
    if outcome.status == "unchanged":
        return [
            f"{outcome.output}: this dataset already exists; nothing to do",
            f"To check every byte: recordmill verify {shlex.quote(outcome.output)}",
        ]
    if outcome.status == "described":
        return [
            f"{outcome.output}: these records already exist; published a new "
            f"description: {outcome.description_changes}"
        ]
    added = appended_totals(outcome)
    rate = (added["rows_read"] if added else manifest.rows_read) / outcome.seconds
    lines = [
        f"{manifest.name} {manifest.version}: {format_count(manifest.records, 'record')} in "
        f"{format_count(manifest.num_shards, 'shard')}, {format_bytes(manifest.num_bytes)}, "
        f"{outcome.seconds:.1f} s ({rate:,.0f} rows/s)"
    ]
    if added:
        lines.append(
            f"  appended: {format_count(added['records'], 'record')} in "
            f"{format_count(added['shards'], 'shard')}, {format_bytes(added['bytes'])}, "
            f"{format_count(added['rows_rejected'], 'row')} rejected"
        )
    for name, split in manifest.splits.items():
        lines.append(
            f"  {name}: {format_count(split.records, 'record')}, {format_count(len(split.shards), 'shard')}, "
            f"{format_bytes(split.bytes)}"
        )
    if outcome.stages:
        stages = [f"{stage} {s:.1f} s" for stage, s in outcome.stages.items()]
        lines.append(f"  time: {', '.join(stages)}")
    lines += [f"  {line}" for line in outcome.input_report.to_lines()]
    counted = list((outcome.classes or {}).items())
    if CLASSES not in dict(outcome.input_report.fields):
        lines += [f"  {_class_line(*label)}" for label in counted[:_MAX_LABELS]]
    lines += [f"  warning: {warning}" for warning in outcome.input_report.warnings]
    if text := describe_row_counts(manifest):
        lines.append(f"  {text}")
    if manifest.rows_rejected:
        lines.append(
            f"  {format_count(manifest.rows_rejected, 'row')} rejected, kept in {outcome.rejects}"
            f" (recordmill rejects {shlex.quote(outcome.output)})"
        )
        reject_lines = kind_lines(outcome.reject_kinds, outcome.locator)
        lines += [f"    {line}" for line in reject_lines]
    if outcome.keeps_replaced:
        lines.append(
            "  the files of the replaced dataset are kept for its readers until the "
            "next run or `recordmill clean`. A glob matches both: read the names from "
            "manifest.json"
        )
    for launch in outcome.live_launches:
        lines.append(
            f"  a {launch.noun} is also running here: {launch.describe()}. It does not "
            "replace a dataset that was published after its launch"
        )
    if outcome.is_first:
        lines += _loading_lines(outcome.output, manifest)
    return lines


def _class_line(label: str, counts: LabelCounts) -> str:
    """Returns a line with the first classes of a label."""
    classes = sum_over_splits(counts)
    first = [f"{escape_unprintable(name)} {rows:,}" for name, rows in classes.items()][
        :_MAX_CLASSES
    ]
    more = f", ... {len(classes):,} in total" if len(classes) > len(first) else ""
    return f"classes of {escape_unprintable(label)}: {', '.join(first)}{more}"


def _loading_lines(output: str, manifest: Manifest) -> list[str]:
    """Returns lines with the commands that show and load a dataset."""
    quoted_output = shlex.quote(output)
    split = next((n for n, split in manifest.splits.items() if split.records), "train")
    tensorflow = (
        f"To load it in TensorFlow: recordmill inspect {quoted_output} --tf > load.py"
    )
    return [
        f"To show its content: recordmill inspect {quoted_output}",
        f"To create an HTML report: recordmill report {quoted_output}",
        *filter(None, [image_sizes_note(manifest)]),
        *([tensorflow] if manifest.container == "tfrecord" else []),
        "To load it in Python:",
        "    from recordmill import open_dataset",
        f"    for row in open_dataset({output!r}, {split!r}):",
        "        print(row)",
    ]


_VERDICTS = {
    "convert": "would convert",
    "append": "would append to the existing dataset",
    "resume": "would resume an interrupted run",
    "publish": "would publish the finished files of a killed run",
    "replace": "would replace the existing dataset",
    "describe": "already exists: would publish a new description",
    "unchanged": "already exists: nothing to do",
    "refused": "would be refused",
}


def show_plan(job: JobSpec, options: RunOptions) -> None:
    """Shows the plan of a run; exits with the run's status if it would be refused."""
    doing = "reading samples of the input"
    with show_progress(sys.stderr, "plan", doing, is_shown=not options.as_json):
        plan = plan_run(job, options)
    in_style = partial(spell_options, style=options.style)
    plan = replace(
        plan,
        reason=in_style(plan.reason),
        input_report=plan.input_report.with_spelling(in_style),
    )
    if options.as_json:
        write_json(_plan_json(plan), indented=False)
    else:
        for line in _plan_lines(plan):
            echo(line)
    if plan.verdict == "refused":
        sys.exit(EXIT_STATUS[plan.kind])


def _plan_json(plan: RunPlan) -> dict[str, Any]:
    run, estimate, prepared = plan.run, plan.estimate, plan.prepared
    plan_fields: dict[str, Any] = {
        "verdict": plan.verdict,
        "reason": plan.reason,
        "kind": plan.kind,
        "name": run.job.name,
        "version": run.job.version,
        "output": run.store.uri,
        "run_key": run.run_key,
        "files": run.inputs.num_files,
        "input_bytes": run.inputs.num_bytes,
        "kept_files": run.num_kept_files,
        "understood": plan.input_report.to_dict(),
    }
    if estimate is None or prepared is None:
        return plan_fields
    return plan_fields | {
        "ranges": len(prepared.ranges),
        "finished_ranges": plan.finished_ranges,
        "removed": list(plan.removed_versions),
        "exchange": prepared.context.exchange,
        "processes": prepared.num_processes,
        "exact": estimate.is_exact,
        "rows": estimate.rows,
        "rows_rejected": estimate.num_rejects,
        "records": estimate.records,
        "bytes": estimate.bytes,
        "shards": estimate.shards,
        "splits": {
            split.name: {
                "records": split.records,
                "bytes": split.bytes,
                "shards": split.shards,
            }
            for split in estimate.splits
        },
    }


def _plan_lines(plan: RunPlan) -> list[str]:
    run, estimate, prepared = plan.run, plan.estimate, plan.prepared
    job, inputs = run.job, run.inputs
    lines = [f"{job.name} {job.version} in {run.store.uri}: {_VERDICTS[plan.verdict]}"]
    if plan.reason:
        lines.append(f"  because {plan.reason}")
    files = format_count(inputs.num_files, "file")
    lines.append(f"  input    {files}, {format_bytes(inputs.num_bytes)}")
    if run.num_kept_files:
        lines[-1] += (
            f" (new; {format_count(run.num_kept_files, 'file')} already converted)"
        )
    warnings = [f"  warning  {warning}" for warning in plan.input_report.warnings]
    if estimate is None or prepared is None:
        return lines + warnings
    lines[-1] += f", {format_count(len(prepared.ranges), 'range')}"
    if plan.finished_ranges:
        lines[-1] += f", {plan.finished_ranges:,} already finished"
    lines += [f"  {line}" for line in plan.input_report.to_lines()]
    about = "" if estimate.is_exact else "about "
    rejected = f", {estimate.num_rejects:,} rejected" if estimate.num_rejects else ""
    lines.append(f"  rows     {about}{estimate.rows:,}{rejected}")
    for split in estimate.splits:
        shard_size = (
            format_bytes(split.bytes // split.shards) if split.shards else "nothing"
        )
        lines.append(
            f"  {split.name:<8} {about}{format_count(split.records, 'record')} in "
            f"{format_count(split.shards, 'shard')} of {shard_size}"
        )
    lines.append(f"  exchange {prepared.context.exchange}")
    if prepared.num_processes:
        lines.append(f"  workers  {format_count(prepared.num_processes, 'process')}")
    lines += [f"  removes  {folder} (unfinished)" for folder in plan.removed_versions]
    return lines + warnings
