"""The outcome of a run: a few lines for people, or one JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from recordmill.schemas.text import human_bytes

if TYPE_CHECKING:
    from recordmill.beam_jobs.service.detach import JobSubmitted
    from recordmill.beam_jobs.service.run_job import Outcome


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    """People read stderr; stdout carries the JSON object alone."""
    if as_json:
        click.echo(json.dumps(outcome_facts(outcome)))
        return
    for line in outcome_lines(outcome):
        click.echo(line, err=True)


def show_handover(end: JobSubmitted, *, as_json: bool) -> None:
    """As `show_outcome`, where nobody waits for the job's end."""
    if as_json:
        facts = {"status": end.status, "output": end.output, "template": end.template}
        click.echo(json.dumps(facts | ({"job": end.job} if end.job else {})))
        return
    if end.status == "submitted":
        line = f"{end.job or 'the job'}: is with the runner. {end.output} is published "
        line += "by its last step"
    elif end.template:
        line = f"{end.template}: the job, for Dataflow to run. Nothing is published in "
        line += f"{end.output} before it has run"
    else:
        line = "Dry run: Dataflow's runner takes the job; nothing was run and nothing "
        line += "published"
    click.echo(line, err=True)


def outcome_facts(outcome: Outcome) -> dict[str, Any]:
    """What --json prints."""
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
        **({"appended": added} if added else {}),
        "seconds": round(outcome.seconds, 3),
    }


def _appended_facts(outcome: Outcome) -> dict[str, int] | None:
    """What the run added to the dataset that was there, if it did."""
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


def outcome_lines(outcome: Outcome) -> list[str]:
    """What a person sees."""
    manifest = outcome.manifest
    if outcome.status == "unchanged":
        return [f"{outcome.output}: this dataset is there already, nothing to do"]
    added = _appended_facts(outcome)
    rate = (added["rows_read"] if added else manifest.rows_read) / outcome.seconds
    lines = [
        f"{manifest.name} {manifest.version}: {manifest.records:,} records in "
        f"{_shards(manifest.num_shards)}, {human_bytes(manifest.num_bytes)}, "
        f"{outcome.seconds:.1f} s ({rate:,.0f} rows/s)"
    ]
    if added:
        lines.append(
            f"  appended: {added['records']:,} records in {_shards(added['shards'])}, "
            f"{human_bytes(added['bytes'])}, {added['rows_rejected']:,} rows rejected"
        )
    for name, split in manifest.splits.items():
        lines.append(
            f"  {name}: {split.records:,} records, {_shards(len(split.shards))}, "
            f"{human_bytes(split.bytes)}"
        )
        if not split.records:
            lines[-1] += " (no row fell into it: the input is small)"
    if manifest.rows_rejected:
        lines.append(
            f"  {manifest.rows_rejected:,} rows rejected, kept in {outcome.rejects}"
        )
    lines.append(f"Look at it: recordmill inspect {outcome.output}")
    return lines


def _shards(count: int) -> str:
    return "1 shard" if count == 1 else f"{count:,} shards"
