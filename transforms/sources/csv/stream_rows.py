"""Yields the rows of a file that can only be read from its start: packed tables.

Such a file is one input range. Its rows are cut into the same parts as those of a plain
file, and a row's offset is that in the unpacked text. Few parts are held at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.csv.block_states import UNCLOSED_BYTES
from recordmill.transforms.sources.csv.broken_rows import (
    MAX_ROW_BYTES,
    find_broken_rows,
    line_of,
    masked,
    unclosed_quote,
)
from recordmill.transforms.sources.csv.dialect import Dialect
from recordmill.transforms.sources.csv.quote_states import (
    end_state,
)
from recordmill.transforms.sources.csv.row_bounds import Reader, row_start
from recordmill.transforms.sources.csv.split_cells import parse_rows
from recordmill.transforms.sources.csv.states import (
    is_open,
)
from recordmill.transforms.sources.csv.text_rows import TextRows
from recordmill.transforms.sources.unpack import UnpackedText


@dataclass(frozen=True, slots=True)
class StreamPart:
    """Some whole rows of a text.

    Attributes:
      body: their bytes; a quote that is never closed is masked.
      begin: byte offset of the first in the text.
      unclosed: byte offset of the quote that is masked, or -1.
    """

    body: bytes
    begin: int
    unclosed: int = -1


def stream_rows(
    input_range: InputRange,
    text: UnpackedText,
    names: Sequence[str],
    begin: int,
    dialect: Dialect,
    reread: Reader,
    part_bytes: int,
) -> Iterator[TextRows]:
    """Yields all rows of a file, in order, and the checksum of its bytes.

    Args:
      input_range: the file.
      text: of it, from its start.
      names: of its columns.
      begin: byte offset of the first row in the text.
      dialect: of the text.
      reread: another reader of the text, for messages.
      part_bytes: of rows that are split at once.

    Raises:
      InputError: as `stream_parts`.
    """
    path = input_range.path
    rows_before = 0
    found: TextRows | None = None  # held until it is known whether it is the last one
    for part in stream_parts(text, begin, dialect, reread, part_bytes):
        body, at = part.body, part.begin
        broken = find_broken_rows(reread, body, at, part.unclosed, dialect)
        parsed = parse_rows(body, names, path, at, broken, dialect)
        ordinals, num_rows = parsed.ordinals, parsed.num_rows
        if found is not None:
            yield found
        found = TextRows(
            table=parsed.table,
            num_bytes=len(body),
            origins=origins_in(path, 0, ordinals + rows_before),
            positions=text.positions.of_rows(ordinals, num_rows, at, at + len(body)),
            raw=parsed.raw,
            rejects=parsed.rejects,
            odd=parsed.odd,
        )
        rows_before += num_rows
    text.file.drain()
    whole = FileChecksum(path, 0, input_range.stop, text.file.crc)
    if found is None:
        yield TextRows.nothing([whole])
    else:
        yield replace(found, checksums=[whole])


def stream_parts(
    text: UnpackedText,
    begin: int,
    dialect: Dialect,
    reread: Reader,
    part_bytes: int,
) -> Iterator[StreamPart]:
    """Yields all rows of a text, in order.

    Args:
      text: from its start.
      begin: byte offset of the first row.
      dialect: of the text.
      reread: another reader of the text, for messages.
      part_bytes: of a part, at least.

    Raises:
      InputError: the file cannot be unpacked, or a row is longer than a row may be.
    """
    body, offset = b"", 0
    pieces: list[bytes] = []
    held = 0
    while piece := text.read():
        offset += len(piece)
        if offset <= begin:
            continue
        pieces.append(piece[max(0, begin - (offset - len(piece))) :])
        held += len(pieces[-1])
        # Twice as much as could not be cut, so that long rows are not tried for ever.
        if held <= min(max(part_bytes, 2 * len(body)), part_bytes + MAX_ROW_BYTES):
            continue
        body = b"".join(pieces)
        for size in _cuts(body, dialect, part_bytes):
            yield StreamPart(body[:size], begin)
            body, begin = body[size:], begin + size
        pieces, held = [body], len(body)
        if held > part_bytes + MAX_ROW_BYTES:
            raise InputError(
                f"{text.uri}: the row that begins at line {line_of(reread, begin)} has "
                f"more than {MAX_ROW_BYTES:,} bytes; is a quoted field not closed?"
            )
        if held <= part_bytes:
            body = b""
    body = b"".join(pieces)
    if text.is_cut:
        for size in _cuts(body, dialect, len(body) * 3 // 4):
            yield StreamPart(body[:size], begin)
            return
    else:
        yield from _last_parts(body, begin, dialect, part_bytes)


def _cuts(body: bytes, dialect: Dialect, part_bytes: int) -> Iterator[int]:
    """Yields the sizes of the parts that a text begins with; more may be behind it."""
    start = 0
    while start + part_bytes < len(body):
        stop = start + part_bytes
        state = end_state(body, None, dialect, start, stop)
        limit = len(body) - stop
        found = row_start(lambda a, b: body[a:b], stop, state, limit, dialect)
        if found is None or found >= len(body):
            return  # it may end behind what is known
        yield found - start
        start = found


def _last_parts(
    body: bytes, begin: int, dialect: Dialect, part_bytes: int
) -> Iterator[StreamPart]:
    """Yields what is left at the end of a text; the last field may be open."""
    unclosed = -1
    if is_open(end_state(body, dialect=dialect)):
        quote = unclosed_quote(lambda a, b: body[a:b], len(body), dialect)
        if len(body) - quote > UNCLOSED_BYTES:
            whole = body
            body = masked(lambda a, b: whole[a:b], quote, dialect)(0, len(whole))
            unclosed = begin + quote
    start = 0
    for size in _cuts(body, dialect, part_bytes):
        yield StreamPart(body[start : start + size], begin + start, unclosed)
        start += size
    if start < len(body):
        yield StreamPart(body[start:], begin + start, unclosed)
