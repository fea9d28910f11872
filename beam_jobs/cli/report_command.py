"""`recordmill report OUTPUT`: one page of HTML that shows what is in a dataset."""

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
    ("report.html, to open in a browser", "recordmill report out/table"),
    ("a page of another name", "recordmill report out/photos -o photos.html"),
)
@click.command(
    "report", cls=LaidOutCommand, short_help="Writes a page about a dataset."
)
@click.argument("output", type=click.Path(file_okay=False))
@click.option(
    "-o",
    "--output",
    "page_file",
    type=click.Path(dir_okay=False),
    default="report.html",
    show_default=True,
    help="Where the page is written; an earlier page there is replaced.",
)
@json_option
@storage_option
def report_command(
    output: str, page_file: str, as_json: bool, storage: tuple[str, ...]
) -> None:
    """Writes a page of HTML on a dataset: classes, pictures, values, shards, rejects.

    Every row is read once, and verified. The page is a single file that needs no
    network. A file that is not such a page is never replaced.
    """
    from pathlib import Path

    from recordmill.beam_jobs.report.showing import showing
    from recordmill.beam_jobs.report.text_tables import write_json
    from recordmill.beam_jobs.report_page.page_sections import build_page
    from recordmill.beam_jobs.report_page.render_page import check_target, write_page
    from recordmill.beam_jobs.service.outcome import understood_at_end
    from recordmill.schemas.text import human_bytes
    from recordmill.transforms.commit.versions import followed
    from recordmill.transforms.dataset.files import read_manifest
    from recordmill.transforms.figures.gather_figures import gather_figures
    from recordmill.transforms.storage import open_store
    from recordmill.transforms.tasks.read_rejects import published_locator

    target = Path(page_file)
    check_target(target)
    sides = storage_of(storage)
    folder = followed(output, sides.output)
    store = open_store(folder, sides.output)
    manifest = read_manifest(store)
    with showing(sys.stderr, "report", unit="row", wanted=not as_json) as on_progress:
        figures = gather_figures(store, manifest, on_progress)
    locator = published_locator(store, sides.input)
    understood = understood_at_end(store, manifest)
    page = build_page(manifest, figures, folder, locator, understood)
    num_bytes = write_page(page, target)
    if as_json:
        write_json({"file": str(target), "bytes": num_bytes}, None)
    else:
        click.echo(f"{target}: {human_bytes(num_bytes)}, open it in a browser")
