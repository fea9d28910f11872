"""`recordmill verify OUTPUT`: is a dataset as its manifest says?"""

from __future__ import annotations

import sys

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples

_EXIT_FAILED = 1


@with_examples(
    ("every record, by its checksums", "recordmill verify out/table"),
    ("every value, too: does it fit the schema?", "recordmill verify out/table --deep"),
)
@click.command("verify", cls=LaidOutCommand)
@click.argument("output", type=click.Path(file_okay=False))
@click.option(
    "--quick", is_flag=True, help="Read no records: sizes, counts, stored checksums."
)
@click.option("--deep", is_flag=True, help="Decode every record: does it fit?")
@click.option(
    "--duplicates", is_flag=True, help="Compare contents between splits: any the same?"
)
@json_option
@storage_option
def verify_command(
    output: str,
    quick: bool,
    deep: bool,
    duplicates: bool,
    as_json: bool,
    storage: tuple[str, ...],
) -> None:
    """Checks every CRC, every count and size against the manifest."""
    if quick and deep:
        raise click.UsageError("--quick and --deep exclude each other")
    from recordmill.beam_jobs.report.showing import showing
    from recordmill.beam_jobs.report.verify_report import show_verify
    from recordmill.transforms.commit.versions import followed
    from recordmill.transforms.dataset.verify import verify_dataset

    options = storage_of(storage).output
    dataset = followed(output, options)
    doing = "reading the manifest"
    with showing(sys.stderr, "verify", doing, wanted=not as_json) as on_progress:
        read = 0

        def add(num_bytes: int) -> None:
            nonlocal read
            read += num_bytes
            on_progress(read, None)

        result = verify_dataset(
            dataset,
            full=not quick,
            deep=deep,
            duplicates=duplicates,
            storage=options,
            on_progress=add,
        )
    show_verify(result, as_json=as_json)
    if result.problems:
        sys.exit(_EXIT_FAILED)
