"""`recordmill rejects OUTPUT`: which rows were rejected, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples

if TYPE_CHECKING:
    from recordmill.schemas.ranges import Reject


@with_examples(
    ("reasons, and the first rows", "recordmill rejects out/table"),
    ("for a program", "recordmill rejects out/table --rows 1000 --json"),
)
@click.command(
    "rejects",
    cls=LaidOutCommand,
    short_help="Shows the rows that were rejected, and why.",
)
@click.argument("output", type=click.Path(file_okay=False))
@click.option(
    "--rows",
    "num_rows",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Single rows to show.",
)
@click.option(
    "--reason", default="", metavar="TEXT", help="Only reasons with this text."
)
@click.option(
    "--unpublished", is_flag=True, help="Of runs that have not published a dataset."
)
@click.option(
    "--scratch", default="", metavar="DIR", help="The scratch folder of these runs."
)
@json_option
@storage_option
def rejects_command(
    output: str,
    num_rows: int,
    reason: str,
    unpublished: bool,
    scratch: str,
    as_json: bool,
    storage: tuple[str, ...],
) -> None:
    """Shows the rows that were rejected: how many for which reason, and the first.

    Without a dataset in OUTPUT, those of the run that did not finish.
    """
    from itertools import islice

    from recordmill.beam_jobs.report.rejects_report import rejects_summary, show_rejects
    from recordmill.beam_jobs.report.text_tables import write_json
    from recordmill.schemas.errors import OutputError
    from recordmill.schemas.manifest import MANIFEST_NAME
    from recordmill.schemas.text import count
    from recordmill.transforms.commit.versions import follow_latest
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.storage import open_store
    from recordmill.transforms.tasks.read_rejects import (
        count_kinds,
        published_locator,
        published_rejects,
        unpublished_locator,
        unpublished_rejects,
    )

    store = open_store(output, storage_of(storage).output)
    if not unpublished:
        store = follow_latest(store)
    published = not unpublished and store.size(MANIFEST_NAME) is not None

    def found() -> Iterator[Reject]:
        every = (
            published_rejects(store)
            if published
            else unpublished_rejects(store, scratch)
        )
        return (reject for reject in every if reason in reject.reason)

    kinds = count_kinds(found())
    if not kinds and not published:
        raise OutputError(
            f"{store.uri}: no dataset and no rejects (expected the output folder of "
            "`recordmill convert`)"
        )
    rows = list(islice(found(), num_rows))
    access = storage_of(storage).input
    locator = (
        published_locator(store, access)
        if published
        else unpublished_locator(store, scratch, access)
    )
    if as_json:
        summary = rejects_summary(kinds, rows, published=published, locator=locator)
        write_json(summary, None)
    else:
        show_rejects(kinds, rows, published=published, locator=locator)
    if published and not reason:
        expected = read_manifest(store).rows_rejected
        lost = expected - sum(kind.rows for kind in kinds)
        if lost > 0:
            click.echo(
                f"{lost:,} of the {count(expected, 'reject')} of this dataset are "
                "missing. Convert again with --overwrite to get them back",
                err=True,
            )
