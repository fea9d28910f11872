"""`recordmill clean OUTPUT`: removes what dead runs left."""

from __future__ import annotations

from pathlib import Path

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples


@with_examples(
    ("what would go", "recordmill clean out/table --dry-run"),
    ("it goes", "recordmill clean out/table"),
)
@click.command("clean", cls=LaidOutCommand, short_help="Removes what dead runs left.")
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--dry-run", is_flag=True, help="Show what would go; remove nothing.")
@click.option(
    "--detached",
    is_flag=True,
    help="End detached jobs, too: if they are at work, they publish nothing.",
)
@json_option
@storage_option
def clean_command(
    output: str, dry_run: bool, detached: bool, as_json: bool, storage: tuple[str, ...]
) -> None:
    """Removes what dead runs left in OUTPUT: scratch, staging, half files.

    Only what recordmill named itself goes, and nothing in folders below OUTPUT.
    Detached jobs keep their files until a day after their last sign of life.
    """
    from recordmill.beam_jobs.report.text_tables import write_json
    from recordmill.schemas.errors import OutputError
    from recordmill.schemas.text import count, human_bytes
    from recordmill.transforms.commit.cleanup import clean
    from recordmill.transforms.storage import LocalStore, open_store

    store = open_store(output, storage_of(storage).output)
    if isinstance(store, LocalStore) and not Path(store.root).exists():
        raise OutputError(
            f"{store.uri}: no such folder; expected the output folder of "
            "`recordmill convert`"
        )
    cleaned = clean(store, dry_run=dry_run, detached=detached)
    if as_json:
        facts: dict[str, object] = {"files": cleaned.files, "bytes": cleaned.bytes}
        if cleaned.at_work:
            facts["at_work"] = [launch.describe() for launch in cleaned.at_work]
        if dry_run:
            facts |= {"dry_run": True, "names": list(cleaned.names)}
        write_json(facts, None)
        return
    if dry_run:
        for name, size in cleaned.names.items():
            click.echo(f"{name}  {human_bytes(size)}")
    done = "would be removed" if dry_run else "removed"
    files = count(cleaned.files, "file")
    click.echo(f"{output}: {files} {done}, {human_bytes(cleaned.bytes)}", err=True)
    for launch in cleaned.at_work:
        click.echo(
            f"{output}: a detached job is at work and keeps its files: "
            f"{launch.describe()}. They stay until a day after its last sign of life. If "
            "it was cancelled, `recordmill clean --detached` removes them now",
            err=True,
        )
