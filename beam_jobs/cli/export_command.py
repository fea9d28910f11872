"""`recordmill export tfds OUTPUT FOLDER`: a dataset as another tool's files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import (
    LaidOutCommand,
    LaidOutGroup,
    with_examples,
)


@click.group(cls=LaidOutGroup, short_help="Puts a dataset into another tool's files.")
def export() -> None:
    """Puts a dataset into the files that another tool asks for."""


@with_examples(
    (
        "a folder for tfds.builder_from_directory",
        "recordmill export tfds out/table tfds",
    ),
)
@click.command(
    "tfds",
    cls=LaidOutCommand,
    short_help="For TFDS, also of appended parts and from gzip.",
)
@click.argument("output", type=click.Path(file_okay=False))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@json_option
@storage_option
def tfds_command(
    output: str, folder: Path, as_json: bool, storage: tuple[str, ...]
) -> None:
    """Fills FOLDER with the dataset of OUTPUT, for tfds.builder_from_directory.

    A dataset without appended parts and without gzip needs no export. Local shards are
    linked, so FOLDER takes no space if it is on the same disk.
    """
    from recordmill.beam_jobs.report.showing import showing
    from recordmill.beam_jobs.report.text_tables import write_json
    from recordmill.schemas.text import count
    from recordmill.transforms.commit.versions import followed
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.dataset.tfds import export_tfds
    from recordmill.transforms.storage import open_store

    options = storage_of(storage).output
    store = open_store(followed(output, options), options)
    manifest = read_manifest(store)
    with showing(sys.stderr, "export", wanted=not as_json) as on_progress:
        names = export_tfds(store, manifest, folder, on_progress)
    if as_json:
        write_json({"files": names}, None)
        return
    shards = count(manifest.num_shards, "shard")
    click.echo(f"{folder}: {shards} for tfds.builder_from_directory")


export.add_command(tfds_command)
