"""`recordmill clean OUTPUT`: removes what dead runs left."""

from __future__ import annotations

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)


@click.command("clean")
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--dry-run", is_flag=True, help="Show what would go; remove nothing.")
@json_option
@storage_option
def clean_command(
    output: str, dry_run: bool, as_json: bool, storage: tuple[str, ...]
) -> None:
    """Removes what dead runs left in OUTPUT: scratch, staging, half files.

    Only what recordmill named itself goes, and nothing in folders below OUTPUT.
    """
    from recordmill.beam_jobs.report.text_tables import write_json
    from recordmill.schemas.text import count, human_bytes
    from recordmill.transforms.commit.cleanup import clean
    from recordmill.transforms.storage import open_store

    cleaned = clean(open_store(output, storage_of(storage).output), dry_run=dry_run)
    if as_json:
        facts: dict[str, object] = {"files": cleaned.files, "bytes": cleaned.bytes}
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
