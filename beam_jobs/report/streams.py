"""Separates the report of a command from its work: a lost report does not fail a run.

Within `report_streams`, all output passes through report streams, which raise no
errors. Then `end_report` reports the lost lines on the other stream and chooses the
exit status. A command that finished its work (a dataset, an export) or failed keeps its
status. A command whose product is the report does not end with status 0 if lines were
lost.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import BufferedWriter, RawIOBase, TextIOWrapper
from select import select
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, cast

from recordmill.beam_jobs.report.terminal import echo, echo_lines
from recordmill.schemas.errors import EXIT_STATUS, NO_ROOM
from recordmill.schemas.text import format_count
from recordmill.transforms.report_stream import ReportStream, as_report

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from recordmill.schemas.options import LogFormat

# Status 74 is EX_IOERR in sysexits.h.
LOST_REPORT_STATUS: Final = EXIT_STATUS[NO_ROOM]
# The shell's status for a program that a closed pipe ended, like `yes` in `yes | head`.
CLOSED_PIPE_STATUS: Final = 128 + signal.SIGPIPE


class FinishedWork(NamedTuple):
    """The finished work of a command, which is kept even if its report is lost."""

    sentence: str  # for people
    log_format: LogFormat | None = None  # None without log lines
    report_error: str = ""  # the error that prevented the report, or ""


class CommandEnding(NamedTuple):
    """The end of a command, before its report is flushed."""

    status: int
    message: str = ""  # of an error, for people
    log_format: LogFormat | None = None  # None without log lines
    # None for a failure, or if the report is the product
    work: FinishedWork | None = None


class ReportStreams(NamedTuple):
    """The standard streams of a command."""

    out: ReportStream
    err: ReportStream


def reserve_standard_descriptors() -> None:
    """Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed.

    Otherwise the next opened file, such as a shard, would get that descriptor, and
    libraries and child processes would print into the file. `sys.stdout` and `sys.stderr`
    stay None, so the report counts as lost.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)


def replace_standard_streams() -> None:
    """Replaces `sys.stdout` and `sys.stderr` for the rest of the process."""
    sys.stdout = cast("TextIO", as_report(_make_buffered_stream(sys.stdout)))
    sys.stderr = cast("TextIO", as_report(_make_buffered_stream(sys.stderr)))


def _make_buffered_stream(stream: TextIO | None) -> TextIO | None:
    """Returns a stream with its own buffer, over the file of another stream.

    A report stream flushes that buffer, so it can count the lines in it. With
    PYTHONUNBUFFERED=1, Python has no buffer: if a nearly full disk stores the beginning
    of a text, Python loses the rest without an error.
    """
    if not isinstance(stream, TextIOWrapper):
        return stream
    stream.flush()
    file = cast("RawIOBase", getattr(stream.buffer, "raw", stream.buffer))
    buffer = BufferedWriter(_BlockingFile(file, stream))
    encoding, errors = stream.encoding, stream.errors
    return TextIOWrapper(buffer, encoding, errors, write_through=True)


class _BlockingFile(RawIOBase):
    """A file whose writes wait for space, even if the descriptor is non-blocking.

    A parent process, such as Node.js, can pass a non-blocking pipe.
    """

    def __init__(self, file: RawIOBase, owner: object = None) -> None:
        self._file = file
        self._owner = owner  # kept alive: its finalizer closes the file

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()

    def write(self, content: ReadableBuffer, /) -> int:
        while (num_bytes := self._file.write(content)) is None:
            select([], [self._file], [])
        return num_bytes


@contextmanager
def report_streams() -> Iterator[ReportStreams]:
    """Replaces `sys.stdout` and `sys.stderr` with report streams in the block."""
    streams = ReportStreams(as_report(sys.stdout), as_report(sys.stderr))
    out, err = (cast("TextIO", stream) for stream in streams)
    with redirect_stdout(out), redirect_stderr(err):
        yield streams


def end_report(
    streams: ReportStreams, ending: CommandEnding, *, uses_stdout: bool
) -> int:
    """Reports the lost part of the report, and returns the exit status.

    `uses_stdout` is True if programs may read the standard output of this command. Then
    only its product is written there.
    """
    out, err = streams
    for stream in streams:
        stream.flush()
    status = ending.status
    if not (status or ending.work) and out.lost_lines:
        is_closed = isinstance(out.failure, BrokenPipeError)
        status = CLOSED_PIPE_STATUS if is_closed else LOST_REPORT_STATUS
    notes = list(_lost_report_notes(streams, ending))
    if status != CLOSED_PIPE_STATUS and notes:
        is_message_lost = err.lost_lines > 0 and bool(ending.message)
        _write_notes(notes, ending.log_format, err=True)
        if err.is_broken and not (uses_stdout or out.has_text):
            message = ending.message if is_message_lost else ""
            _write_notes(notes, ending.log_format, message, err=False)
    return status


def _lost_report_notes(
    streams: ReportStreams, ending: CommandEnding
) -> Iterator[dict[str, Any]]:
    """Yields a note for each stream that lost lines, and for a report that failed."""
    sentence = f". {ending.work.sentence}" if ending.work else ""
    if ending.work and ending.work.report_error:
        message = (
            f"the report could not be created: {ending.work.report_error}{sentence}"
        )
        yield {"message": message}
    for name, label, stream in (
        ("stdout", "standard output", streams.out),
        ("stderr", "standard error", streams.err),
    ):
        if stream.lost_lines:
            lines = format_count(stream.lost_lines, "line")
            message = (
                f"{lines} of the report could not be written to {label}: "
                f"{stream.reason}{sentence}"
            )
            facts = {"stream": name, "lines": stream.lost_lines}
            yield facts | {"reason": stream.reason, "message": message}


def _write_notes(
    notes: Sequence[dict[str, Any]],
    log_format: LogFormat | None,
    message: str = "",
    *,
    err: bool,
) -> None:
    """Writes notes in the format of the report, after a lost error message, if any."""
    if log_format:
        from recordmill.beam_jobs.report.monitoring import LogLines

        lines = LogLines(log_format, sys.stderr if err else sys.stdout)
        for note in notes:
            error = {"error": message} if message else {}
            lines.write_event("report_lost", "warning", **note, **error)
        return
    if message:
        echo_lines(message, err=err)
    for note in notes:
        echo(f"Warning: {note['message']}", err=err)
