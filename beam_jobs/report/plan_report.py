"""Shows what a run would do: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import click

from recordmill.beam_jobs.report.progress import showing
from recordmill.beam_jobs.service.prepare import RunPlan, plan_run
from recordmill.schemas.errors import EXIT_STATUS
from recordmill.schemas.job import JobSpec, RunOptions
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


def show_plan(job: JobSpec, options: RunOptions) -> None:
    """Shows what a run would do; exits with its status if it would be refused."""
    doing = "reading some of the input"
    with showing(sys.stderr, "plan", doing, wanted=not options.as_json):
        plan = plan_run(job, options)
    in_style = partial(spell, style=options.style)
    plan = replace(
        plan,
        reason=in_style(plan.reason),
        warnings=tuple(map(in_style, plan.warnings)),
        understood=plan.understood.spelled(in_style),
    )
    if options.as_json:
        click.echo(json.dumps(_plan_json(plan, in_style)))
    else:
        for line in _plan_lines(plan, in_style):
            click.echo(line)
    if plan.verdict == "refused":
        sys.exit(EXIT_STATUS[plan.kind])


def _plan_json(plan: RunPlan, in_style: Callable[[str], str]) -> dict[str, Any]:
    run, estimate, prepared = plan.run, plan.estimate, plan.prepared
    found: dict[str, Any] = {
        "verdict": plan.verdict,
        "reason": plan.reason,
        "kind": plan.kind,
        "name": run.job.name,
        "version": run.job.version,
        "output": run.store.uri,
        "run_key": run.run_key,
        "files": len(run.inputs.all_files),
        "input_bytes": run.inputs.num_bytes,
        "kept_files": run.kept_files,
    }
    if estimate is None or prepared is None:
        return found
    return found | {
        "ranges": len(prepared.ranges),
        "finished_ranges": plan.finished_ranges,
        "removed": list(plan.removed),
        "exchange": prepared.context.exchange,
        "exchange_reason": in_style(prepared.exchange_reason),
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
        "warnings": list(plan.warnings),
        "understood": plan.understood.to_dict(),
    }


def _plan_lines(plan: RunPlan, in_style: Callable[[str], str]) -> list[str]:
    run, estimate, prepared = plan.run, plan.estimate, plan.prepared
    job, inputs = run.job, run.inputs
    lines = [f"{job.name} {job.version} in {run.store.uri}: {_VERDICTS[plan.verdict]}"]
    if plan.reason:
        lines.append(f"  because {plan.reason}")
    files = count(len(inputs.all_files), "file")
    lines.append(f"  input    {files}, {human_bytes(inputs.num_bytes)}")
    if run.kept_files:
        lines[-1] += f" (of new inputs; {count(run.kept_files, 'file')} kept)"
    if estimate is None or prepared is None:
        return lines
    lines[-1] += f", {count(len(prepared.ranges), 'range')}"
    if plan.finished_ranges:
        lines[-1] += f", {plan.finished_ranges:,} of them finished before"
    lines += [f"  {line}" for line in plan.understood.lines()]
    about = "" if estimate.is_exact else "about "
    rejected = f", {estimate.rejected:,} rejected" if estimate.rejected else ""
    lines.append(f"  rows     {about}{estimate.rows:,}{rejected}")
    for split in estimate.splits:
        each = human_bytes(split.bytes // split.shards) if split.shards else "nothing"
        lines.append(
            f"  {split.name:<8} {about}{split.records:,} records in "
            f"{count(split.shards, 'shard')} of {each}"
        )
    why = in_style(prepared.exchange_reason)
    because = f", because {why}" if why else ""
    lines.append(f"  exchange {prepared.context.exchange}{because}")
    lines += [f"  removes  {folder} (unfinished)" for folder in plan.removed]
    lines += [f"  warning  {warning}" for warning in plan.warnings]
    return lines
