"""`recordmill inspect OUTPUT`: what is in a dataset."""

from __future__ import annotations

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples


@with_examples(
    ("what is in a dataset", "recordmill inspect out/table"),
    (
        "two rows of a class",
        "recordmill inspect out/table --where species=setosa --head 2",
    ),
    ("the picture of a row", "recordmill inspect out/photos --index 5 --image"),
    ("a program to train with", "recordmill inspect out/table --tf > load.py"),
)
@click.command("inspect", cls=LaidOutCommand)
@click.argument("output", type=click.Path(file_okay=False))
@click.option(
    "--examples",
    "--head",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Examples to show.",
)
@click.option("--split", default="", help="Show examples of this split only.")
@click.option(
    "--index",
    type=click.IntRange(0),
    help="Show the example with this index, from 0, in the split or among all.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="FEATURE=VALUE",
    help="Show examples with this value or class name; repeat for more conditions.",
)
@click.option("--image", is_flag=True, help="Draw the pictures of these examples.")
@click.option(
    "--counts",
    is_flag=True,
    help="Count the rows of each class, by reading all; done unasked up to 64 MiB.",
)
@json_option
@click.option(
    "--tf",
    is_flag=True,
    help="A Python program that loads the dataset with TensorFlow.",
)
@storage_option
def inspect_command(
    output: str,
    examples: int,
    split: str,
    index: int | None,
    where: tuple[str, ...],
    image: bool,
    counts: bool,
    as_json: bool,
    tf: bool,
    storage: tuple[str, ...],
) -> None:
    """Shows features, splits, shards, classes, and some examples."""
    if index is not None and where:
        raise click.UsageError("--index and --where exclude each other")
    from recordmill.beam_jobs.report.dataset_report import show_inspect
    from recordmill.transforms.commit.versions import followed

    options = storage_of(storage).output
    show_inspect(
        followed(output, options),
        num_examples=examples if index is None else 1,
        split=split,
        first=index or 0,
        where=where,
        image=image,
        counts=counts,
        as_json=as_json,
        tf=tf,
        storage=options,
    )
