"""A report stream counts what it cannot write, and raises nothing."""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pytest

from recordmill.beam_jobs.report.streams import _BlockingFile, replace_standard_streams
from recordmill.transforms.report_stream import ReportStream, as_report

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Disk(io.RawIOBase):
    """A file on a disk that has room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, content: ReadableBuffer, /) -> int:
        octets = bytes(content)[: self.room]
        if not octets:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.content += octets
        self.room -= len(octets)
        return len(octets)


def text_of(disk: Disk) -> TextIO:
    """Opens the file as Python opens standard output, once main() has changed it."""
    buffer = io.BufferedWriter(disk)
    return io.TextIOWrapper(buffer, encoding="utf-8", write_through=True)


def closed() -> TextIO:
    stream = io.StringIO()
    stream.close()
    return stream


def read_only() -> TextIO:
    return os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")


def without_reader() -> TextIO:
    read_end, write_end = os.pipe()
    os.close(read_end)
    return os.fdopen(write_end, "w")


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (None, "it is not open for writing"),
        (closed(), "it is not open for writing"),
        (read_only(), "it is not open for writing"),
        (Path("/dev/full").open("w"), "No space left on device"),  # noqa: SIM115
        (text_of(Disk(3)), "No space left on device"),
        (without_reader(), "Broken pipe"),
    ],
)
def test_lost_lines_are_counted(stream: TextIO | None, reason: str) -> None:
    report = ReportStream(stream)
    assert (report.reason, report.is_broken, report.has_text) == ("", False, False)
    report.write("one\ntwo\n")
    print("three", file=report)
    if hasattr(report, "buffer"):
        report.buffer.write(b"four\n")
    report.flush()
    lost_lines = 4 if hasattr(report, "buffer") else 3
    assert (report.lost_lines, report.reason) == (lost_lines, reason)
    assert (report.is_broken, report.has_text, report.isatty()) == (True, True, False)
    if stream is not None:
        with suppress(OSError):  # what is in its buffer
            stream.close()


def test_a_disk_that_has_room_again() -> None:
    """Of what was lost only lines that no longer fitted in the buffer are missing."""
    disk = Disk(10)
    report = ReportStream(text_of(disk))
    lines = [f"line {number:>94}\n" for number in range(100)]
    for line in lines:
        report.write(line)
    assert (report.lost_lines, report.is_broken) == (100, True)
    disk.room = 1 << 20
    report.write("the end\n")
    assert (report.lost_lines, report.is_broken) == (100 - 81, False)
    assert disk.content.decode() == "".join([*lines[:81], "the end\n"])
    assert report.reason == "No space left on device"


def test_characters_that_the_encoding_does_not_have() -> None:
    disk = io.BytesIO()
    report = ReportStream(io.TextIOWrapper(disk, encoding="ascii"))
    text = json.dumps({"name": "caf\xe9 \U0001f600"}, ensure_ascii=False)
    report.write(f"{text}\n")
    assert json.loads(disk.getvalue()) == json.loads(text)
    assert (report.encoding, report.lost_lines) == ("ascii", 0)


def test_a_pipe_that_does_not_block() -> None:
    """A parent process like Node.js passes one on; its reader makes room in its time."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    received = []

    class Pipe(io.FileIO):
        def write(self, content: ReadableBuffer, /) -> int | None:  # type: ignore[override]
            num_bytes = super().write(content)
            if num_bytes is None:  # it is full: now it is read
                received.append(os.read(read_end, 1 << 20))
            return num_bytes

    with io.BufferedWriter(_BlockingFile(Pipe(write_end, "w"))) as writer:
        writer.write(bytes(1 << 20))
    received.append(os.read(read_end, 1 << 20))
    os.close(read_end)
    assert sum(map(len, received)) == 1 << 20
    assert len(received) > 2


def test_a_stream_that_nothing_else_refers_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that replaced `sys.stdout` before it calls the command."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, (tmp_path / name).open("w"))
    replace_standard_streams()
    gc.collect()
    print("written")
    assert (tmp_path / "stdout").read_text() == "written\n"


def test_what_is_no_failure_of_a_stream_is_raised() -> None:
    with pytest.raises(TypeError):
        as_report(sys.stdout).write(b"bytes")  # type: ignore[arg-type]
    report = ReportStream(None)
    assert as_report(report) is report
    with pytest.raises(io.UnsupportedOperation):
        report.fileno()
