"""Defines the command `recordmill`, and runs it.

Nothing heavy is imported before it is known what is wanted.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress

import click

from recordmill.beam_jobs.cli.clean_command import clean_command
from recordmill.beam_jobs.cli.completion_command import completion_command
from recordmill.beam_jobs.cli.convert_command import convert
from recordmill.beam_jobs.cli.diff_command import diff_command
from recordmill.beam_jobs.cli.export_command import export
from recordmill.beam_jobs.cli.help_layout import LaidOutGroup, with_examples
from recordmill.beam_jobs.cli.index_command import index_command
from recordmill.beam_jobs.cli.inspect_command import inspect_command
from recordmill.beam_jobs.cli.memory_limit import limit_warning, shortage
from recordmill.beam_jobs.cli.rejects_command import rejects_command
from recordmill.beam_jobs.cli.report_command import report_command
from recordmill.beam_jobs.cli.run_command import plan_command, run_command
from recordmill.beam_jobs.cli.schema_command import schema
from recordmill.beam_jobs.cli.verify_command import verify_command
from recordmill.schemas.options import Style, spell

_NEW_OBJECTS = 500_000  # between two searches for cycles
_EXIT_FAILED = 1
_EXIT_USAGE = 2
_BUG = (
    "Error: this should not have happened, whatever the input is. Please report the "
    "lines above, with the command"
)


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    from recordmill.transforms.compiled import describe

    click.echo(f"recordmill, version {version('recordmill')}\n{describe()}")
    context.exit()


@with_examples(
    ("a first dataset of a table", "recordmill convert csv table.csv out/table"),
    ("what is in it", "recordmill inspect out/table"),
)
@click.group(cls=LaidOutGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version, and whether the compiled loops are there.",
)
def cli() -> None:
    """Converts images, arrays, tables and other records into TFRecord datasets."""


cli.add_commands("Make a dataset", convert, run_command, plan_command, schema)
cli.add_commands(
    "Look at a dataset", inspect_command, report_command, rejects_command, diff_command
)
cli.add_commands(
    "Take care of it", verify_command, index_command, export, clean_command
)
cli.add_commands("Of the command itself", completion_command)


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
        if "--debug" in arguments:
            _show_error("".join(traceback.format_exception(error)).rstrip())
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


def _use_small_pages() -> None:
    """Keeps NumPy and Arrow from asking the system for memory in pages of 2 MiB.

    Records in memory are written once and read once, so such pages gain little. Where the
    host of a virtual machine takes back what is free, it has to find them anew: 2.5 s for
    each GiB, 0.4 s in pages of 4 KiB. A million rows of CSV took 5.1 s with them, 4.2 s
    without; then 5.6 s of processor time with those of Arrow, whose allocator is mimalloc,
    5.2 s without. What the environment says goes first.
    """
    for name in ("NUMPY_MADVISE_HUGEPAGE", "MIMALLOC_ALLOW_THP"):
        os.environ.setdefault(name, "0")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command, and ends the process with its exit status."""
    from recordmill.beam_jobs.cli.signals import handle_signals, ignore_signals

    _use_small_pages()
    # By default Python looks for cycles at every 700 new objects, of which imports and
    # lists of files make a million that all stay: a sixth of the time of 20,000 pictures.
    # Cycles are rare in a run, so few objects wait for it.
    gc.set_threshold(_NEW_OBJECTS)
    try:
        handle_signals()
        status = run(sys.argv[1:] if argv is None else argv)
    except Exception as error:
        if message := shortage(error, unexpected=True):
            _show_error(f"Error: {message}")
        else:
            traceback.print_exc()
            _show_error(_BUG)
        status = _EXIT_FAILED
    ignore_signals()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    if lease := sys.modules.get("recordmill.transforms.storage.lease"):
        lease.release_interrupted()
    # Beam leaves threads behind; after a worker's death one of them never ends.
    os._exit(status)
