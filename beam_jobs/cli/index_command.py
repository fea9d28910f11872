"""`recordmill index OUTPUT`: files by which readers find single records."""

from __future__ import annotations

import sys

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples


@with_examples(
    ("an index for each shard", "recordmill index out/table"),
)
@click.command(
    "index",
    cls=LaidOutCommand,
    short_help="Writes files by which readers find single records.",
)
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--split", multiple=True, help="Only this split; may be repeated.")
@json_option
@storage_option
def index_command(
    output: str, split: tuple[str, ...], as_json: bool, storage: tuple[str, ...]
) -> None:
    """Writes SHARD.idx beside each shard of OUTPUT, and verifies every record.

    By these files DALI, the Python package tfrecord and recordmill.open_dataset find a
    record without reading those before it. They go with their shards when the dataset is
    replaced.
    """
    from recordmill.beam_jobs.report.showing import showing
    from recordmill.beam_jobs.report.text_tables import write_json
    from recordmill.schemas.text import count
    from recordmill.transforms.commit.versions import followed
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.dataset.random_access import write_indexes
    from recordmill.transforms.storage import open_store

    options = storage_of(storage).output
    store = open_store(followed(output, options), options)
    manifest = read_manifest(store)
    with showing(sys.stderr, "index", wanted=not as_json) as on_progress:
        names = write_indexes(store, manifest, split or None, on_progress)
    if as_json:
        write_json({"files": names}, None)
        return
    where = f"such as {names[0]}" if names else "as there are no shards"
    click.echo(f"{store.uri}: {count(len(names), 'index file')} written, {where}")
