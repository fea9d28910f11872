"""Reads JSON Lines: cut at line ends, columns and types by the first rows of each file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.base import (
    Append,
    Findings,
    Rows,
    RowSink,
    number_ranges,
)
from recordmill.transforms.sources.objects import (
    ENTRY_BYTES,
    ObjectsSource,
    Row,
    flat_values,
)
from recordmill.transforms.storage.input_stream import (
    MARK_BYTES,
    UNPACKED_TIMES,
    InputStream,
    compression_of,
    other_compression,
)
from recordmill.transforms.storage.reading import open_stream, read_range

BATCH_BYTES = 1 << 20  # read and encoded at once; as Python objects ten times as large
MAX_LINE_BYTES = 256 << 20
_BOM = b"\xef\xbb\xbf"  # in front of a file, or of those that were joined to it
_raw_decode = json.JSONDecoder().raw_decode
Line = tuple[int, bytes]
"""Byte offset of a line in its file, and its bytes without the newline."""


def parse_line(line: bytes) -> Row | str:
    """Returns the object of a line, nested ones apart, or why there is none.

    Arrow's reader of JSON is no help: it ends the process at a line `null`, and takes
    two objects in a line for two rows. This one takes 2 us for a line of 90 bytes.
    """
    try:
        found = _loads(line.removeprefix(_BOM).decode())
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {line[error.start]:#04x} at byte {error.start} of the line"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos} of the line"
    except (ValueError, RecursionError) as error:  # 5,000 digits; nested too deep
        return f"not JSON that can be read: {error}"
    if not isinstance(found, dict):
        return f"expected a JSON object, found {shown(found)}"
    return flat_values(found)


def _loads(text: str) -> Any:
    """Returns what json.loads does; in half the time for an object without blanks around."""
    if text.startswith("{"):
        found, end = _raw_decode(text)
        if end == len(text):
            return found
    return json.loads(text)


def read_lines(stream: InputStream, step: int) -> Iterator[list[Line]]:
    """Yields the lines that begin in a part of a file and are not blank, a few at a time.

    Of the lines "ab", "cd" and "ef", a part of bytes 1 to 4 has "cd" only, which begins at
    byte 3 and ends beyond it. So many bytes as a step are split at once.

    Raises:
      InputError: the file cannot be unpacked, or a line is too long.
    """
    start, stop = (0, sys.maxsize) if stream.is_packed else (stream.start, stream.stop)
    at, rest = start, b""
    if start > 0 and stream.part(start - 1, start) != b"\n":
        # The line that begins before belongs to the part before.
        while b"\n" not in rest and at < stop:
            rest = stream.part(at, at + step)
            at += len(rest)
        begin = rest.find(b"\n") + 1
        if not begin:
            return
        start, rest = at - len(rest) + begin, rest[begin:]
    while start < stop:
        more = stream.part(at, at + step)
        at += len(more)
        rest += more
        is_end = not more if stream.is_packed else at >= stream.size
        end = len(rest) if is_end else rest.rfind(b"\n") + 1
        if is_end and stream.is_cut:  # the last line may be half of one
            return
        if at >= stop and not is_end:  # only the line that reaches beyond
            beyond = rest.find(b"\n", max(0, stop - start - 1)) + 1
            end = beyond or end
        if lines := _lines(rest[:end], start, stop):
            yield lines
        start, rest = start + end, rest[end:]
        if is_end:
            return
        if len(rest) > MAX_LINE_BYTES:
            raise InputError(
                f"{stream.uri}: the line that begins at byte {start:,} has more than "
                f"{MAX_LINE_BYTES:,} bytes; expected one JSON object in each line"
            )


def _lines(data: bytes, start: int, stop: int) -> list[Line]:
    lines = []
    at = start
    for line in data.split(b"\n"):
        if at >= stop:
            break
        if not line.isspace() and line:
            lines.append((at, line.removesuffix(b"\r")))
        at += len(line) + 1
    return lines


@dataclass(frozen=True)
class JsonLinesSource(ObjectsSource):
    """Lines that are JSON objects."""

    compression: str = ""  # of all files, as in `Packing`

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        full = [file for file in files if file.size]
        if not full:
            raise InputError(
                "every input file is empty; expected JSON objects in lines"
            )
        head = read_range(full[0].uri, 0, MARK_BYTES, self.storage, full[0].seen)
        source = replace(self, compression=compression_of(head))
        empty = (("empty", file.path) for file in files if not file.size)
        return source._prepared(full, empty, append)

    def _first_rows(
        self, file: InputFile, num_bytes: int
    ) -> Iterator[tuple[int, list[Row | str]]]:
        stream = self._open(file, (0, min(num_bytes, file.size)))
        for lines in read_lines(stream, BATCH_BYTES):
            yield lines[-1][0], [parse_line(line) for _, line in lines]
        if not self.compression:
            yield file.size, []

    def _no_rows(self, files: Sequence[InputFile], problem: str) -> InputError:
        problem = problem or f"{files[0].uri}: only blank lines"
        return InputError(
            f"no line of {count(len(files), 'input file')} is a JSON object: {problem}"
        )

    def understood(self, found: Findings | None = None) -> InputSummary:
        file = ("file", self.compression)
        told = super().understood(found)
        return replace(told, facts=(file, *told.facts)) if self.compression else told

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        # A compressed file can be read only from its start.
        return number_ranges(
            [
                (file, start, min(start + step, file.size), "")
                for file in files
                for step in (file.size if self.compression else self.range_bytes,)
                for start in range(0, file.size, max(1, step))
            ]
        )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A key is in each line, too; short values become longer.
        unpacked = UNPACKED_TIMES if self.compression else 1
        growth = 2 * unpacked * sum(file.size for file in files)
        return growth + ENTRY_BYTES * len(self.types)

    def _open(self, file: InputFile | InputRange, part: tuple[int, int]) -> InputStream:
        """Opens the lines that begin in a part of a file; all of a compressed one."""
        if self.compression:
            stream = open_stream(file, self.storage, compression=self.compression)
            head = read_range(file.uri, 0, MARK_BYTES, self.storage, file.seen)
        else:  # at once: for the checksum and for the lines, by one request
            window = part[1] - part[0] + 1
            stream = open_stream(file, self.storage, part=part, window_bytes=window)
            head = stream.part(0, MARK_BYTES) if part[0] == 0 else b""
        if (found := compression_of(head)) != self.compression:
            raise InputError(other_compression(file.uri, found, self.compression))
        return stream

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        part = input_range.start, input_range.stop
        stream = self._open(input_range, part)
        sink.add(nulls=(0,) * len(self.types))
        for lines in read_lines(stream, BATCH_BYTES):
            parsed = [self._parse(line) for _, line in lines]
            yield self._made_rows(parsed, lines, input_range, stream, sink)[0]
        sink.checksums.append(FileChecksum(input_range.path, *part, stream.drain()))

    def _parse(self, line: bytes) -> Row | str:
        row = parse_line(line)
        return row if isinstance(row, str) else self._unknown_in(row) or row
