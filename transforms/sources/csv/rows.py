"""Finds the rows of a range of a CSV file, and splits them in parts of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import FileChecksum, InputFile, Seen
from recordmill.schemas.ranges import InputRange, OddRows, RangeFile, Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.exchange.keys import origins_in, origins_of, range_hash
from recordmill.transforms.sources.csv.cells import (
    Parsed,
    is_utf8,
    parse_rows,
    split_cells,
    without_comments,
)
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.header import (
    Header,
    header_comments,
    read_header,
)
from recordmill.transforms.sources.csv.quotes import (
    ESCAPED,
    KEPT_BYTES,
    MAX_ROW_BYTES,
    UNCLOSED_BYTES,
    BrokenRow,
    QuoteState,
    Reader,
    end_state,
    find_broken_rows,
    is_open,
    line_of,
    masked,
    row_spans,
    row_start,
    unclosed_quote,
)
from recordmill.transforms.sources.packing import PLAIN, Packing
from recordmill.transforms.storage.input_stream import TEXT_BYTES, InputStream
from recordmill.transforms.storage.reading import is_local, open_stream, read_range
from recordmill.transforms.tfrecord import crc32c

AHEAD_BYTES = 1 << 16  # behind a block: the end of its last row, mostly


def held(
    read: Reader,
    start: int,
    stop: int,
    size: int | None = None,
    data: bytes | None = None,
) -> tuple[bytes, Reader]:
    """Reads a part of a file, and returns it with a reader of the whole file.

    The reader gives what lies in the part without a request. Of what lies partly in it
    only the rest is read.

    Args:
      read: reads bytes of the file; fewer at its end.
      start: first byte of the part.
      stop: one after its last byte.
      size: of the file, if it is known: nothing is read behind it.
      data: the part, if it was read before.
    """
    data = read(start, stop) if data is None else data
    end = start + len(data)

    def read_held(first: int, last: int) -> bytes:
        if first < start or first > end:
            return read(first, last)
        found = data[first - start : last - start]
        if last <= end or end < stop or end == size:  # no more is there
            return found
        return found + read(end, last)

    return data, read_held


@dataclass(frozen=True, slots=True)
class RowsPart:
    """Some rows of a range, split into cells.

    Attributes:
      parsed: the rows.
      rows_before: rows of the range before them, rejects counted.
      start, stop: their bytes, counted from the range's first row.
      range_bytes: bytes of all rows of the range.
    """

    parsed: Parsed
    rows_before: int
    start: int
    stop: int
    range_bytes: int

    def positions(self, parsed: Parsed, num_positions: int) -> I64:
        """Returns about where each row starts within a range of so many positions.

        It is scaled to the range, because its last row may reach beyond it. Short rows
        may share a position, in order. 4 rows in 80 bytes, of a range of 64: offsets
        0 20 40 60, positions 0 16 32 48.
        """
        size = self.stop - self.start
        offsets = parsed.ordinals * size // max(1, parsed.num_rows)
        return (self.start + offsets) * num_positions // self.range_bytes


def ends_early(input_range: InputRange, end: int) -> ChangedInputError:
    """Returns the error of a file that is shorter than it was."""
    return ChangedInputError(
        f"{input_range.uri}: ends at byte {end}, but had {input_range.stop} bytes when "
        "the run began; did it change meanwhile?"
    )


def columns_differ(uri: str, names: Sequence[str], columns: Sequence[str]) -> str:
    """Describes how the columns of a file differ from those of the first one."""
    missing = sorted(set(columns) - set(names))
    extra = sorted(set(names) - set(columns))
    found = [f"lacks {', '.join(missing)}"] if missing else []
    found += [f"also has {', '.join(extra)}"] if extra else []
    return (
        f"{uri}: its columns differ from those of the first file: it "
        f"{' and '.join(found)}; all files of one dataset need the same columns"
    )


_FIRST_ROW_BYTES = 1 << 14  # mostly more than is left of a row before a sample


@dataclass(frozen=True, slots=True)
class RangeBody:
    """The rows of a range, where they lie in what was read: the block is not copied.

    Attributes:
      data: what was read.
      first: where the first row begins in it.
      stop: where the last one ends.
      is_whole: whether the last one is whole.
    """

    data: bytes
    first: int
    stop: int
    is_whole: bool

    def __len__(self) -> int:
        return self.stop - self.first

    def part(self, start: int, stop: int) -> bytes:
        """Returns a part; positions count from the first row."""
        return self.data[self.first + start : min(self.first + stop, self.stop)]


def hold_sample(file: Reader, input_range: InputRange, max_bytes: int) -> Reader:
    """Reads the first rows of a range in the middle of a file by one request, mostly.

    Args:
      file: reads the range's file.
      input_range: the range.
      max_bytes: that are wanted from the first row on.

    Returns:
      A reader of the whole file that gives these, and the bytes before, from memory.
    """
    start, seen = input_range.start, input_range.seen
    stop = start + max_bytes + _FIRST_ROW_BYTES
    size = seen.size if seen is not None else None
    if size is not None:
        stop = min(stop, size)
    return held(file, start - 1, stop, size)[1]


def read_small_file(
    input_range: InputRange, storage: StorageOptions, checksums: list[FileChecksum]
) -> bytes:
    """Returns the bytes of a file that is one range.

    Args:
      input_range: the range.
      storage: options of the file's storage.
      checksums: is given that of the bytes.

    Raises:
      ChangedInputError: the file is shorter than it was.
    """
    size = input_range.stop
    data = read_range(input_range.uri, 0, size, storage, input_range.seen)
    if len(data) < size:
        raise ends_early(input_range, len(data))
    checksums.append(FileChecksum(input_range.path, 0, size, crc32c(data)))
    return data


def hold_block(
    file: Reader, input_range: InputRange, checksums: list[FileChecksum]
) -> tuple[bytes, Reader]:
    """Reads a block by one request, with what is mostly left of its last row.

    Args:
      file: reads the range's file.
      input_range: the range.
      checksums: is given that of the block.

    Returns:
      The bytes from `held_from` the block on, and a reader of the whole file that gives
      these from memory.

    Raises:
      ChangedInputError: the file is shorter than it was.
    """
    start, stop, seen = input_range.start, input_range.stop, input_range.seen
    ahead = stop + AHEAD_BYTES * (input_range.quoted[1] != 0)
    if seen is not None:
        ahead = min(ahead, max(stop, seen.size))
    size = seen.size if seen is not None else None
    begin = held_from(input_range)
    data, read = held(file, begin, ahead, size)
    if begin + len(data) < stop:
        raise ends_early(input_range, begin + len(data))
    # The whole block, though its first bytes belong to a row of the one before: so
    # the checksums of all blocks join.
    crc = crc32c(memoryview(data)[start - begin : stop - begin])
    checksums.append(FileChecksum(input_range.path, start, stop, crc))
    return data, read


def held_from(input_range: InputRange) -> int:
    r"""Returns where `hold_block` begins to read: at the \r or \n before the block."""
    return max(0, input_range.start - 1)


def body_of(
    input_range: InputRange,
    begin: int,
    data: bytes,
    read: Reader,
    dialect: Dialect,
) -> RangeBody:
    """Returns the rows of a range.

    Args:
      input_range: the range.
      begin: where its first row starts.
      data, read: as `hold_block` returns them.
      dialect: of the file.
    """
    end: int | None = input_range.stop
    if input_range.quoted[1]:
        state = QuoteState(input_range.quoted[1])
        found = masked(read, input_range.unclosed, dialect)
        end = row_start(found, input_range.stop, state, MAX_ROW_BYTES, dialect)
    is_whole = end is not None
    end = input_range.stop + KEPT_BYTES if end is None else end
    held_at = held_from(input_range)
    if end - held_at <= len(data) and not begin <= input_range.unclosed < end:
        return RangeBody(data, begin - held_at, end - held_at, is_whole)
    body = masked(read, input_range.unclosed, dialect)(begin, end)
    if len(body) < end - begin:
        raise ends_early(input_range, begin + len(body))
    return RangeBody(body, 0, len(body), is_whole)


def cut_batches(
    body: RangeBody, dialect: Dialect, batch_bytes: int
) -> Iterator[tuple[int, int]]:
    """Cuts a range at row starts into batches small enough for the processor's cache."""
    start = 0
    while start < len(body):
        stop = min(start + batch_bytes, len(body))
        if stop < len(body):
            first, end = body.first + start, body.first + stop
            state = end_state(body.data, None, dialect, first, end)
            found = row_start(body.part, stop, state, len(body), dialect)
            stop = len(body) if found is None else found
        yield start, stop
        start = stop


@dataclass(frozen=True, slots=True)
class TextRows:
    """Some rows of a range, split into cells.

    Attributes:
      table: the cells as text; without a column if no row is there.
      num_bytes: of the text, at most.
      origins, positions, raw, paths: of the rows, as in `Rows`.
      rejects: rows that could not be split.
      checksums: of what was read for these rows.
      odd: lines that are comments.
    """

    table: pa.Table
    num_bytes: int
    origins: U64
    positions: I64
    raw: Callable[[int], tuple[int, bytes]]
    paths: Sequence[str] = ()
    rejects: list[Reject] = field(default_factory=list)
    checksums: Sequence[FileChecksum] = ()
    odd: tuple[OddRows, ...] = ()

    @classmethod
    def nothing(cls, checksums: Sequence[FileChecksum]) -> TextRows:
        """Returns no row, but the checksums of what was read."""
        none = np.empty(0, np.int64)
        return cls(
            pa.table({}), 0, none.view(np.uint64), none, _no_row, checksums=checksums
        )

    @property
    def is_nothing(self) -> bool:
        return bool(self.table.num_columns == 0)

    def select(self, kept: I64) -> TextRows:
        """Returns some of the rows, and all rejects."""
        return replace(
            self,
            table=self.table.take(pa.array(kept)),
            origins=self.origins[kept],
            positions=self.positions[kept],
            raw=lambda row: self.raw(int(kept[row])),
            paths=[self.paths[row] for row in kept.tolist()] if self.paths else (),
        )


def _no_row(row: int) -> tuple[int, bytes]:
    raise IndexError(f"there is no row {row}")


# Each range costs some milliseconds in every step of a run, and each call of Arrow some
# microseconds: of a file of ten rows that is nearly all of the time. The rows are those of
# the single files: what is odd is looked for in ever fewer files, at last in one.

FILES_PER_RANGE = 256
RANGES_KEPT = (
    64  # ranges that are left for workers to share, before any is of two files
)
SMALL_SHARE = 16  # files of a range's bytes that are still small, of which each is

_NEWLINES = np.zeros(256, np.bool_)
_NEWLINES[list(b"\r\n")] = True


def join_small_files(
    ranges: Sequence[InputRange], range_bytes: int
) -> list[InputRange]:
    """Returns the ranges of an input, those of small files joined.

    Args:
      ranges: of whole files or of parts of them, in input order.
      range_bytes: the most bytes of a range.
    """
    small_files = sum(_is_small(each, range_bytes) for each in ranges)
    most = min(FILES_PER_RANGE, max(1, small_files // RANGES_KEPT))
    groups: list[list[InputRange]] = []
    room = files = 0  # for a small file, in the last group
    for each in ranges:
        small = _is_small(each, range_bytes)
        if small and files and each.stop <= room:
            groups[-1].append(each)
            room, files = room - each.stop, files - 1
        else:
            groups.append([each])
            room, files = range_bytes - each.stop, (most - 1) * small
    return [_joined(index, group) for index, group in enumerate(groups)]


def _is_small(input_range: InputRange, range_bytes: int) -> bool:
    seen = input_range.seen
    return (
        seen is not None
        and input_range.num_positions == seen.size
        and seen.size * SMALL_SHARE <= range_bytes
    )


def _joined(index: int, group: Sequence[InputRange]) -> InputRange:
    if len(group) == 1:
        return replace(group[0], index=index)
    files = tuple(RangeFile(each.path, *each.seen) for each in group if each.seen)
    stop = sum(file.size for file in files)
    return replace(group[0], index=index, stop=stop, seen=None, files=files)


@dataclass(frozen=True)
class FileText:
    """One small file, read.

    Attributes:
      input_range: the file.
      data: all its bytes.
      names: its columns, in its order.
      begin: byte offset of its first row.
      dialect: of all files.
    """

    input_range: InputRange
    data: bytes
    names: tuple[str, ...]
    begin: int
    dialect: Dialect = RFC_4180

    @cached_property
    def body(self) -> bytes:
        """Returns the bytes of all rows."""
        return self.data[self.begin :]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Finds start and end of all rows in the body, rejects included."""
        return row_spans(self.body, self.dialect)


@dataclass(frozen=True, slots=True)
class _Split:
    """The rows of some files, split into cells.

    Attributes:
      table: the cells as text.
      owners: index of each row's file.
      ordinals: of each row, among all of its file.
      counts: rows of each file, rejects included.
      rejects: rows that could not be split.
      odd: as in `TextRows`.
    """

    table: pa.Table
    owners: I64
    ordinals: I64
    counts: I64
    rejects: list[Reject] = field(default_factory=list)
    odd: tuple[OddRows, ...] = ()


def rows_of_files(
    files: Sequence[FileText], names: Sequence[str], first_position: int
) -> TextRows:
    """Returns the rows of small files, as they would be of each file alone.

    Args:
      files: one after the other in an input range.
      names: of the columns that the rows get.
      first_position: of that range in the whole input.
    """
    parts = list(_split(files))
    firsts = [0, *accumulate(len(part.counts) for part in parts)]
    owners = np.concatenate(
        [part.owners + first for part, first in zip(parts, firsts, strict=False)]
    )
    ordinals = np.concatenate([part.ordinals for part in parts])
    counts = np.maximum(1, np.concatenate([part.counts for part in parts]))
    sizes = np.array([max(1, len(file.body)) for file in files], np.int64)
    ranges = [file.input_range for file in files]
    stops = np.array([each.stop for each in ranges], np.int64)
    starts = np.array([each.first_position for each in ranges], np.int64)
    starts -= first_position
    hashes = np.array([range_hash(each.path, 0) for each in ranges], np.uint64)
    paths = [each.path for each in ranges]

    def raw(row: int) -> tuple[int, bytes]:
        file = files[int(owners[row])]
        start, end = file.spans[int(ordinals[row])]
        return file.begin + start, file.body[start:end]

    # The positions are those of `RowsPart.positions`, behind the files before.
    offsets = ordinals * sizes[owners] // counts[owners]
    return TextRows(
        table=pa.concat_tables([part.table.select(list(names)) for part in parts]),
        num_bytes=int(sizes.sum()),
        origins=origins_of(hashes[owners], ordinals),
        positions=starts[owners] + offsets * stops[owners] // sizes[owners],
        raw=raw,
        paths=[paths[owner] for owner in owners.tolist()],
        rejects=list(chain.from_iterable(part.rejects for part in parts)),
        odd=OddRows.merged(part.odd for part in parts),
    )


def _split(files: Sequence[FileText]) -> Iterator[_Split]:
    """Splits the rows of files, as many at once as are in order."""
    if len(files) == 1:
        yield _split_alone(files[0])
    elif (joined := _split_joined(files)) is not None:
        yield joined
    else:
        half = len(files) // 2
        yield from _split(files[:half])
        yield from _split(files[half:])


def _split_alone(file: FileText) -> _Split:
    path, body = file.input_range.path, file.body
    dialect = file.dialect
    broken = find_broken_rows(
        lambda a, b: file.data[a:b], body, file.begin, -1, dialect
    )
    parsed = parse_rows(body, file.names, path, file.begin, broken, dialect)
    owners = np.zeros(len(parsed.ordinals), np.int64)
    counts = np.array([parsed.num_rows], np.int64)
    return _Split(
        parsed.table, owners, parsed.ordinals, counts, parsed.rejects, parsed.odd
    )


def _is_unfinished(text: bytes, dialect: Dialect) -> bool:
    """Tells whether the last field could go on behind the text."""
    state = end_state(text, dialect=dialect)
    return is_open(state) or state is ESCAPED


def _split_joined(files: Sequence[FileText]) -> _Split | None:
    r"""Splits the rows of all files at once, or returns None if one is not in order.

    Worked example, two files of rows "1,x\n2,y" and "3,z\n":

        joined         "1,x\n2,y\n3,z\n", file starts 0 and 8
        row starts     0 4 8
        counts         2 1
        owners         0 0 1
        ordinals       0 1 0

    Without quotes a row is what stands between two newlines. Wherever a newline is
    quoted, or a quote is open at the end of a file, Arrow finds fewer rows than these.
    """
    names, dialect = files[0].names, files[0].dialect
    if any(file.names != names for file in files):
        return None
    rests = [without_comments(file.body, dialect) for file in files]
    bodies = [
        body if body.endswith((b"\n", b"\r")) or not body else body + b"\n"
        for body in (rest.body for rest in rests)
    ]
    text = b"".join(bodies)
    if not is_utf8(text) or _is_unfinished(text, dialect):
        return None
    in_row = ~_NEWLINES[np.frombuffer(text, np.uint8)]
    row_starts = np.flatnonzero(in_row & ~np.concatenate([[False], in_row[:-1]]))
    edges = np.array([0, *accumulate(map(len, bodies))])
    first_rows = np.searchsorted(row_starts, edges)
    counts = np.diff(first_rows)
    table, wrong = split_cells(text, names, dialect)
    if wrong or table.num_rows != len(row_starts):
        return None
    return _Split(
        table,
        np.repeat(np.arange(len(files)), counts),
        np.arange(len(row_starts)) - np.repeat(first_rows[:-1], counts),
        counts,
        odd=OddRows.merged(rest.odd for rest in rests),
    )


# Such a file is one input range. Its rows are cut into the same parts as those of a plain
# file, and a row's offset is that in the unpacked text. Few parts are held at once.


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
    text: InputStream,
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
    whole = FileChecksum(path, 0, input_range.stop, text.drain())
    if found is None:
        yield TextRows.nothing([whole])
    else:
        yield replace(found, checksums=[whole])


def stream_parts(
    text: InputStream,
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
    while piece := text.piece():
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


HEAD_BYTES = 1 << 17  # of a file in a store: its header and first rows
BATCH_BYTES = 4 << 20  # split and converted at once: fits the processor's cache


@dataclass(frozen=True, slots=True)
class RangeRows:
    """The rows of files that all have the same columns.

    Attributes:
      names: of the columns; a file may have them in another order.
      storage: options of the files' storage.
      dialect: of all files.
      packing: of all files; offsets are those in the unpacked text.
    """

    names: tuple[str, ...]
    storage: StorageOptions
    dialect: Dialect = RFC_4180
    packing: Packing = PLAIN

    def of_file(self, file: InputFile | InputRange) -> Reader:
        """Returns a reader of the text of a file, or of that of a range."""
        if not self.packing.is_plain:
            size = file.stop if isinstance(file, InputRange) else file.size
            return self._unpack(file, size, TEXT_BYTES).part
        return partial(read_range, file.uri, options=self.storage, seen=file.seen)

    def from_start(self, file: InputFile | InputRange) -> Reader:
        """Returns a reader of a text whose start is asked for often."""
        read, seen = self.of_file(file), file.seen
        if not self.packing.is_plain or seen is None or is_local(file.uri):
            return read
        head = _head_of(file.uri, seen, self.storage)
        return held(read, 0, HEAD_BYTES, seen.size, head)[1]

    def _unpack(
        self, file: InputFile | InputRange, stop: int, window_bytes: int = 0
    ) -> InputStream:
        return open_stream(
            file,
            self.storage,
            part=(0, stop),
            compression=self.packing.compression,
            encoding=self.packing.encoding,
            window_bytes=window_bytes,
        )

    def of_range(self, input_range: InputRange) -> Reader:
        """Returns a reader to which a quote that is never closed is no quote."""
        return masked(self.of_file(input_range), input_range.unclosed, self.dialect)

    def text_rows(self, input_range: InputRange) -> Iterator[TextRows]:
        """Yields all rows of a range, in order, and the checksums of its bytes.

        Raises:
          ChangedInputError: a file is shorter than it was.
        """
        found = self._rows_of_range(input_range)
        if not self.dialect.comment:
            yield from found
            return
        head = self._comments_before_rows(input_range)
        for rows in found:
            yield replace(rows, odd=(*head, *rows.odd))
            head = ()

    def _comments_before_rows(self, input_range: InputRange) -> tuple[OddRows, ...]:
        """Returns the comments before the headers of a range's files."""
        found = []
        for each in input_range.by_file():
            if not each.start:
                read = self.of_file(each)
                _, begin = read_header(read, each.uri, self.dialect)
                found.append(header_comments(read(0, begin), self.dialect))
        return OddRows.merged(found)

    def _rows_of_range(self, input_range: InputRange) -> Iterator[TextRows]:
        if input_range.files:
            yield from self._rows_of_files(input_range)
            return
        if not self.packing.is_plain:
            yield from self._rows_of_stream(input_range)
            return
        checksums: list[FileChecksum] = []
        for part in self.parts(input_range, checksums):
            parsed = part.parsed
            ordinals = parsed.ordinals + part.rows_before
            yield TextRows(
                table=parsed.table,
                num_bytes=part.stop - part.start,
                origins=origins_in(input_range.path, input_range.start, ordinals),
                positions=part.positions(parsed, input_range.num_positions),
                raw=parsed.raw,
                rejects=parsed.rejects,
                checksums=checksums,
                odd=parsed.odd,
            )
            checksums = []
        if checksums:  # no row starts in this block
            yield TextRows.nothing(checksums)

    def _rows_of_stream(self, input_range: InputRange) -> Iterator[TextRows]:
        """Yields the rows of a file that is read from its start to its end."""
        read = self.of_file(input_range)
        names, begin = read_header(read, input_range.uri, self.dialect)
        self._require_same(input_range.uri, names)
        text = self._unpack(input_range, input_range.stop)
        yield from stream_rows(
            input_range, text, names, begin, self.dialect, read, BATCH_BYTES
        )

    def _rows_of_files(self, input_range: InputRange) -> Iterator[TextRows]:
        """Yields the rows of a range of several files, those of many files at once."""
        header = Header()
        files: list[FileText] = []
        checksums: list[FileChecksum] = []
        num_bytes = 0
        ranges = input_range.by_file()
        for each in ranges:
            data = read_small_file(each, self.storage, checksums)
            header = header.of_file(data, each.uri, self.dialect)
            self._require_same(each.uri, header.names)
            files.append(FileText(each, data, header.names, header.end, self.dialect))
            num_bytes += each.stop
            if num_bytes >= BATCH_BYTES or each is ranges[-1]:
                rows = rows_of_files(files, self.names, input_range.first_position)
                if rows.table.num_rows or rows.rejects:
                    yield replace(rows, checksums=checksums)
                else:
                    yield TextRows.nothing(checksums)
                files, checksums, num_bytes = [], [], 0

    def _require_same(self, uri: str, names: tuple[str, ...]) -> None:
        """Checks that a file has the columns of the others.

        Raises:
          InputError: it has not.
        """
        if names != self.names and set(names) != set(self.names):
            raise InputError(columns_differ(uri, names, self.names))

    def _header(
        self, input_range: InputRange, read: Reader
    ) -> tuple[tuple[str, ...], int]:
        """Returns the columns of a range's file, and where its first row begins."""
        if input_range.start:
            read = self.from_start(input_range)
        names, end = read_header(read, input_range.uri, self.dialect)
        self._require_same(input_range.uri, names)
        return names, end

    def first(
        self, input_range: InputRange, read: Reader | None = None
    ) -> tuple[int | None, tuple[str, ...]]:
        """Returns the byte offset of a range's first row, and the file's columns.

        The offset is None if no row starts in the range.

        Args:
          input_range: the range.
          read: of its file, if a part of it is held.

        Raises:
          InputError: the file has other columns.
        """
        read = read or self.of_file(input_range)
        names, header_end = self._header(input_range, read)
        begin: int | None = header_end
        if input_range.start > header_end:  # else the first row of all is in it
            start, stop = input_range.start, input_range.stop
            state = QuoteState(input_range.quoted[0])
            read = masked(read, input_range.unclosed, self.dialect)
            begin = row_start(read, start, state, stop - start, self.dialect)
        if begin is None or (self.packing.is_plain and begin >= input_range.stop):
            return None, names
        return begin, names

    def sample(self, input_range: InputRange, max_bytes: int) -> Parsed | None:
        """Returns whole rows from a range's first one on, or None if none starts there.

        Half a cell might be of another type. A row longer than `max_bytes` gives none.
        A range of several files has to be sampled file by file.
        """
        read = self.of_file(input_range)
        if not input_range.start:
            read = self.from_start(input_range)
        elif self.packing.is_plain:
            read = hold_sample(read, input_range, max_bytes)
        begin, names = self.first(input_range, read)
        if begin is None:
            return None
        read = masked(read, input_range.unclosed, self.dialect)
        text = read(begin, begin + max_bytes)
        dialect = self.dialect
        if len(text) == max_bytes or is_open(end_state(text, dialect=dialect)):
            spans = row_spans(text, dialect)
            text = text[: spans[-1][0]] if spans else b""
        at = input_range.unclosed - begin
        is_broken = 0 <= at < len(text)
        broken = [BrokenRow(at, "never closed", dialect.quote)] if is_broken else []
        return parse_rows(text, names, input_range.path, begin, broken, dialect)

    def parts(
        self, input_range: InputRange, checksums: list[FileChecksum]
    ) -> Iterator[RowsPart]:
        """Yields all rows of a range, in order.

        Args:
          input_range: the range.
          checksums: is given the checksum of the range's bytes, from its start to its
            stop, before the first part.

        Raises:
          ChangedInputError: the file is shorter than it was.
        """
        data, read = hold_block(self.of_file(input_range), input_range, checksums)
        begin, names = self.first(input_range, read)
        if begin is None:  # no row starts in this block
            return
        body = body_of(input_range, begin, data, read, self.dialect)
        del data, read
        rows_before = 0
        for start, stop in cut_batches(body, self.dialect, BATCH_BYTES):
            part = body.part(start, stop)
            broken = find_broken_rows(
                self.of_file(input_range),
                part,
                begin + start,
                input_range.unclosed,
                self.dialect,
                is_whole=body.is_whole or stop < len(body),
            )
            at = begin + start
            parsed = parse_rows(part, names, input_range.path, at, broken, self.dialect)
            yield RowsPart(parsed, rows_before, start, stop, len(body))
            rows_before += parsed.num_rows


# In each process: all ranges of a file need its header.
@lru_cache(maxsize=16)
def _head_of(uri: str, seen: Seen, storage: StorageOptions) -> bytes:
    """Returns the first bytes of a file in a store, where a version is one content."""
    return read_range(uri, 0, HEAD_BYTES, storage, seen)
