"""Defines the command `recordmill`, and runs it.

Nothing heavy is imported before it is known what is wanted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.convert_command import convert
from recordmill.beam_jobs.cli.rejects_command import rejects_command
from recordmill.beam_jobs.cli.run_command import plan_command, run_command
from recordmill.beam_jobs.cli.schema_command import schema
from recordmill.schemas.job.options import Style, spell

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="recordmill")
def cli() -> None:
    """Converts images, CIFAR binary files and CSV into TFRecord datasets."""


@cli.command()
@click.argument("output", type=click.Path(file_okay=False))
@click.option(
    "--quick", is_flag=True, help="Read no records: sizes, counts, stored checksums."
)
@click.option("--deep", is_flag=True, help="Decode every record: does it fit?")
@json_option
@storage_option
def verify(
    output: str,
    quick: bool,
    deep: bool,
    as_json: bool,
    storage: tuple[str, ...],
) -> None:
    """Checks every CRC, every count and size against the manifest."""
    if quick and deep:
        raise click.UsageError("--quick and --deep exclude each other")
    from recordmill.beam_jobs.report.dataset_report import show_verify
    from recordmill.transforms.commit.versions import followed
    from recordmill.transforms.dataset.verify import verify_dataset

    options = storage_of(storage).output
    dataset = followed(output, options)
    result = verify_dataset(dataset, full=not quick, deep=deep, storage=options)
    show_verify(result, as_json=as_json)
    if result.problems:
        sys.exit(_EXIT_FAILED)


@cli.command()
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--examples", default=3, show_default=True, help="Examples to show.")
@json_option
@click.option("--tf", is_flag=True, help="TensorFlow code that parses the records.")
@storage_option
def inspect(
    output: str,
    examples: int,
    as_json: bool,
    tf: bool,
    storage: tuple[str, ...],
) -> None:
    """Shows features, splits, shards, and the first examples."""
    from recordmill.beam_jobs.report.dataset_report import show_inspect
    from recordmill.transforms.commit.versions import followed

    options = storage_of(storage).output
    show_inspect(
        followed(output, options),
        num_examples=examples,
        as_json=as_json,
        tf=tf,
        storage=options,
    )


@cli.command()
@click.argument("output", type=click.Path(file_okay=False))
@json_option
@storage_option
def clean(output: str, as_json: bool, storage: tuple[str, ...]) -> None:
    """Removes what dead runs left in OUTPUT: scratch, staging, half files."""
    import json

    from recordmill.schemas.text import human_bytes
    from recordmill.transforms.commit.cleanup import clean as clean_output
    from recordmill.transforms.storage import open_store

    cleaned = clean_output(open_store(output, storage_of(storage).output))
    if as_json:
        click.echo(json.dumps({"files": cleaned.files, "bytes": cleaned.bytes}))
    else:
        size = human_bytes(cleaned.bytes)
        click.echo(f"{output}: {cleaned.files:,} files removed, {size}", err=True)


for _command in (convert, schema, run_command, plan_command, rejects_command):
    cli.add_command(_command)


def style_of(arguments: Sequence[str]) -> Style:
    """Returns how the messages of a command spell options."""
    return "job_file" if arguments[:1] in (["run"], ["plan"]) else "command"


def run(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status.

    Args:
      argv: arguments without the command's name; those behind "--" are Beam's.
    """
    arguments = list(argv)
    beam_args: list[str] = []
    if "--" in arguments:
        end = arguments.index("--")
        arguments, beam_args = arguments[:end], arguments[end + 1 :]
        if arguments[:1] not in (["convert"], ["run"], ["plan"]):
            message = "Error: only convert, run and plan take arguments after --"
            click.echo(message, err=True)
            return _EXIT_USAGE
    try:
        result = cli.main(
            args=arguments,
            prog_name="recordmill",
            standalone_mode=False,
            obj=tuple(beam_args),
        )
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else _EXIT_FAILED
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted: nothing was published", err=True)
        return _EXIT_INTERRUPTED
    except Exception as error:
        # Only here: the import costs help and completion their speed.
        from recordmill.schemas.errors import RecordmillError, UsageError

        if not isinstance(error, RecordmillError):
            raise
        message = spell(str(error), style_of(arguments))
        click.echo(f"Error: {message}", err=True)
        return _EXIT_USAGE if isinstance(error, UsageError) else _EXIT_FAILED


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command, and ends the process with its exit status."""
    try:
        status = run(sys.argv[1:] if argv is None else argv)
    except Exception:
        traceback.print_exc()
        status = _EXIT_FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    # Beam leaves threads behind; after a worker's death one of them never ends.
    os._exit(status)
