"""Reads the lines of a part of a file: those that begin in it.

Of the lines "ab", "cd" and "ef", a part of bytes 1 to 4 has "cd" only, which begins at
byte 3 and ends beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.unpack import UnpackedText

MAX_LINE_BYTES = 256 << 20

Line = tuple[int, bytes]
"""Byte offset of a line in its file, and its bytes without the newline."""


def read_lines(
    read: Callable[[int, int], bytes],
    part: tuple[int, int],
    size: int,
    step: int,
    uri: str,
) -> Iterator[list[Line]]:
    """Yields the lines of a part of a file that are not blank, a few at a time.

    Args:
      read: (start, stop) -> bytes of the file.
      part: first byte and one after the last.
      size: bytes of the file.
      step: how many to read at once.
      uri: the file, for messages.

    Raises:
      InputError: a line is too long.
    """
    start, stop = part
    at = start
    rest = b""
    if start > 0 and read(start - 1, start) != b"\n":
        # The line that begins before belongs to the part before.
        while b"\n" not in rest and at < stop:
            rest = read(at, min(at + step, size))
            at += len(rest)
        begin = rest.find(b"\n") + 1
        if not begin:
            return
        start, rest = at - len(rest) + begin, rest[begin:]
    while start < stop:
        more = read(at, min(at + step, size))
        at += len(more)
        rest += more
        end = len(rest) if at >= size else rest.rfind(b"\n") + 1
        if at >= stop and at < size:  # only the line that reaches beyond
            beyond = rest.find(b"\n", max(0, stop - start - 1)) + 1
            end = beyond or end
        yield _lines(rest[:end], start, stop)
        start, rest = start + end, rest[end:]
        if not more and start < size:
            return
        if len(rest) > MAX_LINE_BYTES:
            raise InputError(too_long(uri, start))


def stream_lines(text: UnpackedText, step: int) -> Iterator[list[Line]]:
    """Yields the lines of an unpacked text that are not blank, a few at a time.

    Args:
      text: from its start.
      step: how many bytes to split at once, at least.

    Raises:
      InputError: the file cannot be unpacked, or a line is too long.
    """
    start, held, pieces = 0, 0, list[bytes]()
    while piece := text.read():
        pieces.append(piece)
        held += len(piece)
        if held < step or b"\n" not in piece:
            if held > MAX_LINE_BYTES + step:
                raise InputError(too_long(text.uri, start))
            continue
        data = b"".join(pieces)
        end = data.rfind(b"\n") + 1
        yield _lines(data[:end], start, start + end)
        pieces, start, held = [data[end:]], start + end, len(data) - end
    if held and not text.is_cut:  # else the last line may be half of one
        yield _lines(b"".join(pieces), start, start + held)


def too_long(uri: str, start: int) -> str:
    """Describes a line that is longer than a line may be."""
    return (
        f"{uri}: the line that begins at byte {start:,} has more than "
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
