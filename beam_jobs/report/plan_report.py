"""What `plan` shows: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from recordmill.beam_jobs.service.preview import RunPlan, plan_run
from recordmill.schemas.job.job_spec import JobSpec, RunOptions
from recordmill.schemas.text import human_bytes

_VERDICTS = {
    "convert": "would convert",
    "append": "would append to the dataset that is there",
    "resume": "would go on where a killed run was",
    "publish": "would publish what a killed run had finished",
    "replace": "would replace the dataset that is there",
    "unchanged": "is there already: nothing to do",
    "refused": "would be refused",
}


def tell_plan(job: JobSpec, options: RunOptions, *, as_json: bool) -> None:
    """Shows on stdout what a run would do.

    Raises:
      SystemExit: it would be refused.
    """
    plan = plan_run(job, options)
    if as_json:
        click.echo(json.dumps(plan_facts(plan)))
    else:
        for line in plan_lines(plan):
            click.echo(line)
    if plan.verdict == "refused":
        sys.exit(1)


def plan_facts(plan: RunPlan) -> dict[str, Any]:
    """What --json prints."""
    made = plan.estimate
    facts: dict[str, Any] = {
        "verdict": plan.verdict,
        "reason": plan.reason,
        "name": plan.job.name,
        "version": plan.job.version,
        "output": plan.output,
        "fingerprint": plan.fingerprint,
        "files": plan.files,
        "input_bytes": plan.input_bytes,
        "kept_files": plan.kept_files,
    }
    if made is None:
        return facts
    return facts | {
        "ranges": plan.ranges,
        "finished_ranges": plan.finished_ranges,
        "removed": list(plan.removed),
        "exchange": plan.exchange,
        "exact": made.is_exact,
        "rows": made.rows,
        "rows_rejected": made.rejected,
        "records": made.records,
        "bytes": made.bytes,
        "shards": made.shards,
        "splits": {
            split.name: {
                "records": split.records,
                "bytes": split.bytes,
                "shards": split.shards,
            }
            for split in made.splits
        },
        "scratch_bytes": made.scratch_bytes,
        "space": [
            {"folder": disk.folder, "needed": disk.needed, "free": disk.free}
            for disk in plan.space
        ],
        "workers": plan.workers,
        "seconds": None if plan.seconds is None else round(plan.seconds, 1),
        "warnings": list(plan.warnings),
    }


def plan_lines(plan: RunPlan) -> list[str]:
    """What a person sees."""
    job, made = plan.job, plan.estimate
    lines = [f"{job.name} {job.version} in {plan.output}: {_VERDICTS[plan.verdict]}"]
    if plan.reason:
        lines.append(f"  because {plan.reason}")
    lines.append(
        f"  input    {_count(plan.files, 'file')}, {human_bytes(plan.input_bytes)}"
    )
    if plan.kept_files:
        lines[-1] += f" (of new inputs; {_count(plan.kept_files, 'file')} kept)"
    if made is None:
        return lines
    lines[-1] += f", {_count(plan.ranges, 'range')}"
    if plan.finished_ranges:
        lines[-1] += f", {plan.finished_ranges:,} of them finished before"
    about = "" if made.is_exact else "about "
    rows = f"  rows     {about}{made.rows:,}"
    lines.append(rows + (f", {made.rejected:,} rejected" if made.rejected else ""))
    for split in made.splits:
        each = human_bytes(split.bytes // split.shards) if split.shards else "nothing"
        lines.append(
            f"  {split.name:<8} {about}{split.records:,} records in "
            f"{_count(split.shards, 'shard')} of {each}"
        )
    lines.append(f"  exchange {plan.exchange}")
    lines += [
        f"  space    about {human_bytes(disk.needed)} on the disk of {disk.folder}, "
        f"{human_bytes(disk.free)} free (shards {human_bytes(made.bytes)}, scratch "
        f"{human_bytes(made.scratch_bytes)})"
        for disk in plan.space
    ]
    if plan.seconds is None:
        lines.append("  time     not known for this runner")
    else:
        lines.append(
            f"  time     about {_duration(plan.seconds)} with "
            f"{_count(plan.workers, 'worker')}, by rates measured on two cores and a "
            "local disk"
        )
    lines += [f"  removes  {folder} (unfinished)" for folder in plan.removed]
    lines += [f"  warning  {warning}" for warning in plan.warnings]
    return lines


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes / 60:.1f} h"
