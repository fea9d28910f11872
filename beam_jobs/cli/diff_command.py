"""`recordmill diff ONE OTHER`: what one dataset has and another has not."""

from __future__ import annotations

import sys

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples

_EXIT_DIFFERENT = 1


@with_examples(
    ("the same rows in both?", "recordmill diff out/table out/typed"),
)
@click.command("diff", cls=LaidOutCommand)
@click.argument("one", type=click.Path(file_okay=False))
@click.argument("other", type=click.Path(file_okay=False))
@click.option(
    "--rows",
    "num_rows",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Rows to name that only one of them has, for each.",
)
@json_option
@storage_option
def diff_command(
    one: str, other: str, num_rows: int, as_json: bool, storage: tuple[str, ...]
) -> None:
    """Compares two datasets: schema, classes, splits, and every row.

    Shards and order do not matter. The exit status is 0 if both have the same rows in the
    same splits, 1 if they differ, 2 if there is
    no dataset.
    """
    from recordmill.beam_jobs.report.diff_report import show_diff
    from recordmill.beam_jobs.report.showing import showing
    from recordmill.schemas.errors import OutputError, UsageError
    from recordmill.transforms.commit.versions import followed
    from recordmill.transforms.dataset.diff import compare_datasets
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.storage import open_store

    options = storage_of(storage).output
    first, second = (
        open_store(followed(output, options), options) for output in (one, other)
    )
    try:
        manifests = read_manifest(first), read_manifest(second)
    except OutputError as error:  # not to be taken for a difference
        raise UsageError(str(error)) from error
    with showing(sys.stderr, "diff", wanted=not as_json) as on_progress:
        compared = compare_datasets((first, second), manifests, num_rows, on_progress)
    show_diff((one, other), compared, as_json=as_json)
    if not compared.same:
        sys.exit(_EXIT_DIFFERENT)
