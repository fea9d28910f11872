"""Defines the command `recordmill`, and runs it.

Heavy modules are imported inside the functions that need them.
"""

from __future__ import annotations

import errno
import gc
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from io import StringIO
from typing import Any, Literal

import click
from click.shell_completion import get_completion_class

from recordmill.beam_jobs.cli.dataset_commands import (
    clean_command,
    diff_command,
    export,
    index_command,
    inspect_command,
    rejects_command,
    report_command,
    verify_command,
)
from recordmill.beam_jobs.cli.job_commands import convert, plan_command, run_command
from recordmill.beam_jobs.cli.options import HelpGroup, command
from recordmill.beam_jobs.cli.schema_command import schema
from recordmill.beam_jobs.cli.signals import Invocation, Signals
from recordmill.beam_jobs.report.streams import (
    CommandEnding,
    FinishedWork,
    end_report,
    replace_standard_streams,
    report_streams,
    reserve_standard_descriptors,
)
from recordmill.beam_jobs.report.terminal import echo_lines, echo_message, write_json
from recordmill.schemas.errors import (
    Interrupted,
    RecordmillError,
    error_kind,
    exit_status,
)
from recordmill.schemas.options import spell_options
from recordmill.schemas.storage_options import (
    redact_secrets,
    require_words_without_secrets,
)
from recordmill.schemas.text import escape_message

# click reads this variable when the command starts
_COMPLETION_VARIABLE = "_RECORDMILL_COMPLETE"


@command(
    "completion",
    ("enable completion in this shell", 'eval "$(recordmill completion bash)"'),
    short_help="Prints the completion script of a shell.",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(
    context: click.Context, shell: Literal["bash", "zsh", "fish"]
) -> None:
    """Prints a script that completes this command in a shell.

    \b
    bash:  eval "$(recordmill completion bash)"     in ~/.bashrc
    zsh:   eval "$(recordmill completion zsh)"      in ~/.zshrc
    fish:  recordmill completion fish > ~/.config/fish/completions/recordmill.fish
    """  # noqa: D301 - \b keeps click from joining the lines
    completion_class = get_completion_class(shell)
    assert completion_class is not None  # click supports the three shells
    root = context.find_root()
    click.echo(
        completion_class(root.command, {}, "recordmill", _COMPLETION_VARIABLE).source()
    )


_NEEDED_BYTES = 1 << 30  # to load all libraries with two cores; measured: 0.6 to 0.9 GB

_MEMORY_MESSAGES = (
    "failed to map segment",
    "annot allocate memory",
    "can't start new thread",
)
_MEMORY_HINT = "raise the limit (ulimit -v, or the limit of the container or service)"


def memory_limit_warning() -> str:
    """Returns a warning if this process may have too little memory to start, or ""."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= _NEEDED_BYTES:
        return ""
    return (
        f"the memory limit of this process is {limit >> 20:,} MiB, but recordmill "
        f"needs about {_NEEDED_BYTES >> 20:,} MiB: {_MEMORY_HINT}"
    )


def describe_memory_shortage(error: BaseException) -> str:
    """Returns a message if an unexpected error is due to a lack of memory, or "".

    A library that cannot be loaded can fail in many ways. With a low memory limit, every
    unexpected error counts as a lack of memory, whatever its message is.
    """
    is_short = (
        bool(memory_limit_warning())
        or isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    )
    if isinstance(error, ImportError | RuntimeError):
        is_short |= any(words in str(error) for words in _MEMORY_MESSAGES)
    if not is_short:
        return ""
    reason = str(error).strip().rpartition("\n")[2] or type(error).__name__
    return f"out of memory ({reason}): {_MEMORY_HINT}"


_COLLECTOR_THRESHOLD = 500_000  # new objects between two runs of the garbage collector
_EXIT_FAILED = 1
_EXIT_USAGE = 2
_BUG_MESSAGE = (
    "Error: this is a bug in recordmill. Please report the lines above and the command"
)


def _show_version(
    context: click.Context, _: click.Parameter, is_requested: bool
) -> None:
    if not is_requested:
        return
    from importlib.metadata import version

    from recordmill.transforms.native import describe

    click.echo(f"recordmill, version {version('recordmill')}\n{describe()}")
    context.exit()


class _RecordmillGroup(HelpGroup):
    """The command `recordmill`, with all commands below it."""

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; raises RuntimeError in place of BrokenPipeError.

        click would end the process silently for a broken pipe. Reports raise no such
        error, so it comes from a store or a worker.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise RuntimeError(str(error)) from error


@click.group(
    cls=_RecordmillGroup, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and whether the native extension is used.",
)
def cli() -> None:
    """Converts images, arrays, tables and other records into TFRecord datasets."""


cli.examples = (
    ("create a dataset from a table", "recordmill convert csv table.csv out/table"),
    ("show its content", "recordmill inspect out/table"),
)
cli.add_commands("Create a dataset", convert, run_command, plan_command, schema)
cli.add_commands(
    "Inspect a dataset", inspect_command, report_command, rejects_command, diff_command
)
cli.add_commands(
    "Maintain a dataset", verify_command, index_command, export, clean_command
)
cli.add_commands("Shell integration", completion_command)


# The report of these commands is on stderr, so a note can be on stdout if it is unused.
_REPORTS_ON_STDERR = ("convert", "run", "clean")


def run(argv: Sequence[str], signals: Signals | None = None) -> int:
    """Runs the command, whose arguments after "--" are Beam's; returns its exit status.

    `signals` are the signals that the process handles, or None if the command does not
    own the process.
    """
    ending = None
    with report_streams() as streams:
        try:
            ending = _run_arguments(list(argv), signals)
            return end_report(streams, ending, uses_stdout=_uses_stdout(argv))
        except Interrupted as error:  # the command has ended, but not its report
            return 0 if ending and ending.work else exit_status(error)


def _uses_stdout(argv: Sequence[str]) -> bool:
    """Tests whether programs may read the standard output of a command."""
    return "--json" in argv or "".join(argv[:1]) not in _REPORTS_ON_STDERR


def _run_arguments(arguments: list[str], signals: Signals | None) -> CommandEnding:
    """Runs the command, and returns its ending."""
    words, beam_args = tuple(arguments), list[str]()
    if "--" in arguments:
        end = arguments.index("--")
        arguments, beam_args = arguments[:end], arguments[end + 1 :]
        if arguments[:1] not in (["convert"], ["run"], ["plan"]):
            message = "Error: only convert, run and plan accept arguments after --"
            echo_message(message)
            return CommandEnding(_EXIT_USAGE, message)
    as_json = "--json" in arguments
    works = arguments[:1] in (["convert"], ["run"], ["plan"], ["schema"])
    if works and (warning := memory_limit_warning()):
        echo_message(f"Warning: {warning}")
    try:
        require_words_without_secrets(words)
        invocation = Invocation(signals or Signals(), tuple(beam_args))
        result = cli.main(
            arguments, "recordmill", standalone_mode=False, obj=invocation
        )
        if isinstance(result, FinishedWork):
            return CommandEnding(0, log_format=result.log_format, work=result)
        return CommandEnding(result if isinstance(result, int) else 0)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            error = _add_option_hint(error, arguments[0])
        usage = _usage_lines(error)
        echo_lines(usage, err=True)
        if as_json:
            _show_failure("usage", error.format_message())
        return CommandEnding(error.exit_code, usage)
    except SystemExit as error:
        return CommandEnding(
            error.code if isinstance(error.code, int) else _EXIT_FAILED
        )
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | click.Abort):
            error = Interrupted(2, "Ctrl-C")
        if not isinstance(error, RecordmillError | Interrupted):
            if as_json:
                _show_failure(
                    error_kind(error), describe_memory_shortage(error) or str(error)
                )
            raise
        from_file = arguments[:1] in (["run"], ["plan"])
        message = spell_options(str(error), "job_file" if from_file else "command")
        message = redact_secrets(message)
        if as_json:
            _show_failure(error_kind(error), message)
        if "--debug" in arguments:
            lines = "".join(traceback.format_exception(error))
            echo_lines(redact_secrets(lines).rstrip(), err=True)
        message = f"Error: {message}"
        if isinstance(error, Interrupted):
            message = error.to_sentence()
        if not error.logged_format:
            echo_message(message)
        return CommandEnding(exit_status(error), message, error.logged_format or None)


def _add_option_hint(error: click.NoSuchOption, name: str) -> click.UsageError:
    """Returns the error of an unknown option, with a hint about the intended one."""
    option, known_options = error.option_name, error.possibilities or ()
    if option in ("-o", "--output") and name == "convert":
        hint = (
            "Write OUTPUT as the last argument: recordmill convert FORMAT INPUT... "
            "OUTPUT"
        )
    elif option == "--plan":
        hint = "Use recordmill plan JOB.yaml to show what a run would do"
    elif option == "--runner" or (
        "_" in option
        and not get_close_matches(option.replace("_", "-"), known_options, 1, 0.8)
    ):
        hint = f"Write Beam options last, after --: -- {option}=..."
    else:
        return error
    return click.UsageError(f"{error.message} {hint}", error.ctx)


def _usage_lines(error: click.ClickException) -> str:
    """Returns the lines about a wrong command: usage or help, and then the message."""
    stream = StringIO()
    error.show(stream)
    lines, message = stream.getvalue().rstrip("\n"), error.format_message().rstrip("\n")
    unstyled = click.unstyle(message)  # as click writes it to a stream
    if not lines.endswith(f"Error: {unstyled}"):
        return lines
    choices = message.replace("\n\t", "\n  ")  # one line per choice
    return lines.removesuffix(unstyled) + escape_message(choices)


def _show_failure(kind: str, message: str) -> None:
    """Shows on stdout that a command failed, as one JSON object."""
    write_json({"status": "failed", "kind": kind, "message": message}, indented=False)


def _use_small_pages() -> None:
    """Stops NumPy and Arrow from requesting memory in huge pages of 2 MiB.

    Records are written once and read once, so huge pages gain little, and virtual
    machines take long to allocate them: a million rows of CSV took 5.1 s with huge pages
    and 4.2 s without.
    """
    for name in ("NUMPY_MADVISE_HUGEPAGE", "MIMALLOC_ALLOW_THP"):
        os.environ.setdefault(name, "0")


def _end_crash(error: Exception, argv: Sequence[str]) -> int:
    """Shows an error that nothing else handles; returns the exit status."""
    with report_streams() as streams:
        if describe_memory_shortage(error):
            message = f"Error: {describe_memory_shortage(error)}"
        else:
            trace = redact_secrets(traceback.format_exc()).rstrip()
            echo_lines(trace, err=True)
            message = _BUG_MESSAGE
        echo_message(message)
        ending = CommandEnding(_EXIT_FAILED, message)
        return end_report(streams, ending, uses_stdout=_uses_stdout(argv))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command, and ends the process with its exit status."""
    reserve_standard_descriptors()  # before any other file is opened
    replace_standard_streams()
    _use_small_pages()
    # By default, Python searches for cycles after every 700 new objects. Imports and
    # lists of files create a million objects that stay, and the searches took a sixth
    # of the time of 20,000 images. Cycles are rare in a run, so few objects stay
    # uncollected.
    gc.set_threshold(_COLLECTOR_THRESHOLD)
    signals = Signals()
    try:
        status = _run_to_status(sys.argv[1:] if argv is None else argv, signals)
        signals.ignore()
    except Interrupted as error:  # while another error was shown, or at the very end
        signals.ignore()
        echo_message(error.to_sentence())
        status = error.status
    sys.stdout.flush()  # report streams raise nothing
    sys.stderr.flush()
    _release_leases()
    # Beam leaves threads running; after the death of a worker, one of them never ends.
    os._exit(status)


def _run_to_status(argv: Sequence[str], signals: Signals) -> int:
    """Runs the command with its signal handlers, and shows unexpected errors."""
    try:
        signals.handle()
        return run(argv, signals)
    except Exception as error:
        return _end_crash(error, argv)


def _release_leases() -> None:
    """Releases the leases that an interrupted command still holds."""
    # A command that did not import the module holds no lease.
    lease = sys.modules.get("recordmill.transforms.storage.lease")
    if lease is not None:
        lease.release_all()
