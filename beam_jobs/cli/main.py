"""Defines the command `recordmill`, and runs it.

Nothing heavy is imported before it is known what is wanted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from recordmill.beam_jobs.cli.clean_command import clean_command
from recordmill.beam_jobs.cli.click_options import (
    json_option,
    storage_of,
    storage_option,
)
from recordmill.beam_jobs.cli.completion_command import completion_command
from recordmill.beam_jobs.cli.convert_command import convert
from recordmill.beam_jobs.cli.diff_command import diff_command
from recordmill.beam_jobs.cli.index_command import index_command
from recordmill.beam_jobs.cli.memory_limit import limit_warning, shortage
from recordmill.beam_jobs.cli.rejects_command import rejects_command
from recordmill.beam_jobs.cli.report_command import report_command
from recordmill.beam_jobs.cli.run_command import plan_command, run_command
from recordmill.beam_jobs.cli.schema_command import schema
from recordmill.schemas.job.options import Style, spell

_EXIT_FAILED = 1
_EXIT_USAGE = 2


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
            dataset, full=not quick, deep=deep, storage=options, on_progress=add
        )
    show_verify(result, as_json=as_json)
    if result.problems:
        sys.exit(_EXIT_FAILED)


@cli.command()
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
@json_option
@click.option(
    "--tf",
    is_flag=True,
    help="A Python program that loads the dataset with TensorFlow.",
)
@storage_option
def inspect(
    output: str,
    examples: int,
    split: str,
    index: int | None,
    where: tuple[str, ...],
    as_json: bool,
    tf: bool,
    storage: tuple[str, ...],
) -> None:
    """Shows features, splits, shards, and some examples."""
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
        as_json=as_json,
        tf=tf,
        storage=options,
    )


for _command in (
    convert,
    schema,
    run_command,
    plan_command,
    rejects_command,
    clean_command,
    diff_command,
    index_command,
    report_command,
    completion_command,
):
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
    as_json = "--json" in arguments
    works = arguments[:1] in (["convert"], ["run"], ["plan"], ["schema"])
    if works and (warning := limit_warning()):
        _show_error(f"Warning: {warning}")
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
        if as_json:
            _show_failure("usage", error.format_message())
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else _EXIT_FAILED
    except BaseException as error:
        if message := shortage(error):
            if as_json:
                _show_failure("other", message)
            _show_error(f"Error: {message}")
            return _EXIT_FAILED
        # Only here: the import costs help and completion their speed.
        from recordmill.schemas.errors import (
            Interrupted,
            RecordmillError,
            exit_status,
            kind_of,
        )

        if isinstance(error, KeyboardInterrupt | click.Abort):
            error = Interrupted(2, "Ctrl-C")
        message = spell(str(error), style_of(arguments))
        if as_json:
            _show_failure(kind_of(error), message)
        if not isinstance(error, RecordmillError | Interrupted):
            raise
        if not error.in_log:
            message = (
                error.for_people()
                if isinstance(error, Interrupted)
                else f"Error: {message}"
            )
            _show_error(message)
        return exit_status(error)


def _show_failure(kind: str, message: str) -> None:
    """Shows on stdout that a command failed, as one JSON object."""
    import json

    with suppress(OSError):
        click.echo(json.dumps({"status": "failed", "kind": kind, "message": message}))


def _show_error(message: str) -> None:
    with suppress(OSError):  # the terminal may be gone: SIGHUP says so
        click.echo(message, err=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command, and ends the process with its exit status."""
    from recordmill.beam_jobs.cli.signals import handle_signals, ignore_signals

    try:
        handle_signals()
        status = run(sys.argv[1:] if argv is None else argv)
    except Exception as error:
        if message := shortage(error, unexpected=True):
            _show_error(f"Error: {message}")
        else:
            traceback.print_exc()
        status = _EXIT_FAILED
    ignore_signals()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    if lease := sys.modules.get("recordmill.transforms.storage.lease"):
        lease.release_interrupted()
    # Beam leaves threads behind; after a worker's death one of them never ends.
    os._exit(status)
