"""Shows what a run would do: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from typing import Any

import click

from recordmill.beam_jobs.report.progress import showing
from recordmill.beam_jobs.service.preview import RunPlan, plan_run
from recordmill.schemas.errors import EXIT_STATUS
from recordmill.schemas.job import JobSpec, ReportOptions, RunOptions
from recordmill.schemas.options import spell
from recordmill.schemas.text import count, human_bytes

_VERDICTS = {
    "convert": "would convert",
    "append": "would append to the dataset that is there",
    "resume": "would resume a run that did not end",
    "publish": "would publish what a killed run had finished",
    "replace": "would replace the dataset that is there",
    "unchanged": "is there already: nothing to do",
    "refused": "would be refused",
}


def show_plan(job: JobSpec, options: RunOptions, report: ReportOptions) -> None:
    """Shows on stdout what a run would do.

    Raises:
      SystemExit: it would be refused.
    """
    doing = "reading some of the input"
    with showing(sys.stderr, "plan", doing, wanted=not report.as_json):
        plan = plan_run(job, options)
    in_style = partial(spell, style=report.style)
    plan = replace(
        plan,
        reason=in_style(plan.reason),
        exchange_reason=in_style(plan.exchange_reason),
        warnings=tuple(map(in_style, plan.warnings)),
        understood=plan.understood.spelled(in_style),
    )
    if report.as_json:
        click.echo(json.dumps(plan_facts(plan)))
    else:
        for line in plan_lines(plan):
            click.echo(line)
    if plan.verdict == "refused":
        sys.exit(EXIT_STATUS[plan.kind])


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """Returns the JSON object."""
    estimate = plan.estimate
    facts: dict[str, Any] = {
        "verdict": plan.verdict,
        "reason": plan.reason,
        "kind": plan.kind,
        "name": plan.job.name,
        "version": plan.job.version,
        "output": plan.output,
        "run_key": plan.run_key,
        "files": plan.files,
        "input_bytes": plan.input_bytes,
        "kept_files": plan.kept_files,
    }
    if estimate is None:
        return facts
    return facts | {
        "ranges": plan.ranges,
        "finished_ranges": plan.finished_ranges,
        "removed": list(plan.removed),
        "exchange": plan.exchange,
        "exchange_reason": plan.exchange_reason,
        "exact": estimate.is_exact,
        "rows": estimate.rows,
        "rows_rejected": estimate.rejected,
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
        "scratch_bytes": plan.scratch_bytes,
        "space": [
            {"folder": disk.folder, "needed": disk.needed, "free": disk.free}
            for disk in plan.space
        ],
        "workers": plan.workers,
        "seconds": None if plan.seconds is None else round(plan.seconds, 1),
        "warnings": list(plan.warnings),
        "understood": plan.understood.to_dict(),
    }


def plan_lines(plan: RunPlan) -> list[str]:
    """Returns the lines that people see."""
    job, estimate = plan.job, plan.estimate
    lines = [f"{job.name} {job.version} in {plan.output}: {_VERDICTS[plan.verdict]}"]
    if plan.reason:
        lines.append(f"  because {plan.reason}")
    lines.append(
        f"  input    {count(plan.files, 'file')}, {human_bytes(plan.input_bytes)}"
    )
    if plan.kept_files:
        lines[-1] += f" (of new inputs; {count(plan.kept_files, 'file')} kept)"
    if estimate is None:
        return lines
    lines[-1] += f", {count(plan.ranges, 'range')}"
    if plan.finished_ranges:
        lines[-1] += f", {plan.finished_ranges:,} of them finished before"
    lines += [f"  {line}" for line in plan.understood.lines()]
    about = "" if estimate.is_exact else "about "
    rows = f"  rows     {about}{estimate.rows:,}"
    lines.append(
        rows + (f", {estimate.rejected:,} rejected" if estimate.rejected else "")
    )
    for split in estimate.splits:
        each = human_bytes(split.bytes // split.shards) if split.shards else "nothing"
        lines.append(
            f"  {split.name:<8} {about}{split.records:,} records in "
            f"{count(split.shards, 'shard')} of {each}"
        )
    reason = f", because {plan.exchange_reason}" if plan.exchange_reason else ""
    lines.append(f"  exchange {plan.exchange}{reason}")
    lines += [
        f"  space    about {human_bytes(disk.needed)} on the disk of {disk.folder}, "
        f"{human_bytes(disk.free)} free (shards {human_bytes(estimate.bytes)}, scratch "
        f"{human_bytes(plan.scratch_bytes)})"
        for disk in plan.space
    ]
    if plan.seconds is None:
        lines.append("  time     not known for this runner")
    else:
        lines.append(
            f"  time     about {_duration(plan.seconds)} with "
            f"{count(plan.workers, 'worker')}, by rates measured on two cores and a "
            "local disk"
        )
    lines += [f"  removes  {folder} (unfinished)" for folder in plan.removed]
    lines += [f"  warning  {warning}" for warning in plan.warnings]
    return lines


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
