"""Provides text streams for reports: a failed write loses lines but raises no error.

Standard output, standard error and the logs of runs and of worker processes are such
streams, so a full disk or a pipe without a reader never changes what a job does.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable
from io import BufferedIOBase, TextIOBase
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_NON_ASCII = re.compile(r"[^\x00-\x7f]")


class ReportStream(TextIOBase):
    """A text stream that raises no errors and counts the lines that it could not write.

    It keeps the first failure. It still tries to write later lines, because a full disk
    can have room again. Lines in the buffer of the underlying stream are lost only if the
    last flush fails.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream  # None if its descriptor was closed at the start
        self._lock = threading.RLock()
        self._refused_lines = 0  # lines that the stream refused
        self._buffered_lines = 0  # lines since the last successful flush
        self.failure: OSError | ValueError | None = None  # the first one
        self.is_broken = False  # the last line could not be written
        self.has_text = False  # some text was written to it

    @property
    def lost_lines(self) -> int:
        """Returns the number of lines that were not written, as of the last flush."""
        return self._refused_lines + self._buffered_lines

    @property
    def reason(self) -> str:
        """Returns why a write failed, in the words of the operating system; or ""."""
        failure = self.failure
        if isinstance(failure, OSError) and failure.errno != errno.EBADF:
            return failure.strerror or str(failure)
        return "it is not open for writing" if failure else ""

    def write(self, text: str, /) -> int:
        """Writes text; a whole line is flushed immediately."""
        num_lines = text.count("\n")  # TypeError if it is not text
        self.has_text |= bool(text)
        self._write(lambda stream: _write_text(stream, text), num_lines)
        return len(text)

    def write_bytes(self, content: ReadableBuffer) -> int:
        """Writes bytes, as `write` does with text."""
        octets = bytes(content)
        self.has_text |= bool(octets)
        self._write(lambda stream: stream.buffer.write(octets), octets.count(b"\n"))
        return len(octets)

    def flush(self) -> None:
        """Flushes the buffer of the underlying stream."""
        with self._lock:
            if self._try(lambda stream: stream.flush()) and self._buffered_lines:
                self._buffered_lines = 0
                self.is_broken = False

    def close(self) -> None:
        """Flushes the underlying stream and leaves it open: others may use it."""
        self.flush()

    def writable(self) -> bool:
        """Returns True."""
        return True

    def isatty(self) -> bool:
        """Returns True for a terminal."""
        stream = self._stream
        return stream is not None and not stream.closed and stream.isatty()

    def fileno(self) -> int:
        """Returns the file descriptor of the underlying stream."""
        return super().fileno() if self._stream is None else self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Returns the encoding of the underlying stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        """Returns the name of the error handler of the underlying stream."""
        return getattr(self._stream, "errors", None) or "strict"

    @property
    def buffer(self) -> BufferedIOBase:
        """Returns a stream of bytes that raises no errors, like this one."""
        if self._stream is not None and not hasattr(self._stream, "buffer"):
            raise AttributeError("a stream of text alone has no buffer")
        return _ReportBytes(self)

    def _write(self, action: Callable[[TextIO], object], num_lines: int) -> None:
        with self._lock:
            if self._try(action):
                self._buffered_lines += num_lines
            else:
                self._refused_lines += num_lines
            if num_lines:
                self.flush()

    def _try(self, action: Callable[[TextIO], object]) -> bool:
        try:
            if self._stream is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            action(self._stream)
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self.failure = self.failure or error
            self.is_broken = True
            return False
        return True


class _ReportBytes(BufferedIOBase):
    """A stream of bytes that writes to a report stream."""

    def __init__(self, report: ReportStream) -> None:
        self._report = report

    def writable(self) -> bool:
        return True

    def write(self, content: ReadableBuffer, /) -> int:
        return self._report.write_bytes(content)

    def flush(self) -> None:
        self._report.flush()


def _write_text(stream: TextIO, text: str) -> None:
    """Writes text; characters that the encoding lacks become JSON escapes.

    People can read the escapes, and JSON text stays valid.
    """
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(_NON_ASCII.sub(_escape, text))


def _escape(character: re.Match[str]) -> str:
    return json.dumps(character[0])[1:-1]


def as_report(stream: Any) -> ReportStream:
    """Returns a report stream for a stream, or the stream itself if it is one already."""
    return stream if isinstance(stream, ReportStream) else ReportStream(stream)
