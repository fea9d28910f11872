"""Reads the rows of CSV files as text: of blocks, of packed files, of many small ones.

A block of a plain file and the text of a packed one are cut into pieces of whole rows
(`_Piece`), which are split alike. Small files are joined, and split at once: each call
of Arrow takes some microseconds, which of a file of ten rows is nearly all of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import FileChecksum, InputFile, Seen
from recordmill.schemas.ranges import InputRange, RowIssue
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64
from recordmill.transforms.exchange.keys import origins_in, origins_of, range_hash
from recordmill.transforms.sources.base import Rows, RowSink
from recordmill.transforms.sources.csv.cells import (
    Parsed,
    is_utf8,
    parse_rows,
    split_cells,
    without_comments,
)
from recordmill.transforms.sources.csv.header import header_comments, read_header
from recordmill.transforms.sources.csv.quotes import (
    ESCAPED,
    KEPT_BYTES,
    MAX_ROW_BYTES,
    RFC_4180,
    ROW_START,
    UNCLOSED_BYTES,
    Body,
    BrokenRow,
    Dialect,
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
HEAD_BYTES = 1 << 17  # of a file in a store: its header and first rows
BATCH_BYTES = 4 << 20  # split and converted at once: fits the processor's cache
_FIRST_ROW_BYTES = 1 << 14  # mostly more than is left of a row before a sample

_NEWLINES = np.zeros(256, np.bool_)
_NEWLINES[list(b"\r\n")] = True


# Of rows in a range: by their ordinals in a body, the number of its rows, and where it
# begins and ends in the text.
_Positions = Callable[[I64, int, int, int], I64]
_Cut = Iterator[tuple[tuple[str, ...], Body, _Positions]]


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
        return _held(read, 0, HEAD_BYTES, seen.size, head)[1]

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

    def text_rows(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        """Yields all rows of a range, in order, with columns of text.

        Raises:
          ChangedInputError: a file is shorter than it was.
          InputError: a file has other columns, or cannot be unpacked.
        """
        if self.dialect.comment:
            sink.add(issues=self._comments_before_rows(input_range))
        if input_range.files:
            yield from self._rows_of_files(input_range, sink)
        else:
            yield from self._rows_of_file(input_range, sink)

    def _comments_before_rows(self, input_range: InputRange) -> tuple[RowIssue, ...]:
        """Returns the comments before the headers of a range's files."""
        found = []
        for each in input_range.by_file():
            if not each.start:
                read = self.of_file(each)
                _, begin = read_header(read, each.uri, self.dialect)
                found.append(header_comments(read(0, begin), self.dialect))
        return RowIssue.merged(found)

    def _rows_of_file(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        """Yields the rows of a range of one file."""
        path, read = input_range.path, self.of_file(input_range)
        cut = self._cut_block if self.packing.is_plain else self._cut_text
        rows_before = 0
        for names, body, positions in cut(input_range, sink):
            broken = find_broken_rows(read, body)
            found = parse_rows(body, names, path, broken)
            ordinals = found.ordinals
            sink.rejects += found.rejects
            sink.add(issues=found.issues)
            yield Rows(
                batch=found.batch.select(self.names),
                origins=origins_in(path, input_range.start, ordinals + rows_before),
                positions=positions(
                    ordinals, found.num_rows, body.begin, body.begin + len(body.text)
                ),
                raw=found.raw,
            )
            rows_before += found.num_rows

    def _cut_block(self, input_range: InputRange, sink: RowSink) -> _Cut:
        """Cuts a range of a plain file, which is read by one request, mostly."""
        data, read = _hold_block(self.of_file(input_range), input_range, sink)
        begin, names = self.first(input_range, read)
        if begin is None:  # no row starts in this block
            return
        data, first, stop, is_whole = _body_of(
            input_range, begin, data, read, self.dialect
        )
        del read
        size, num_positions = stop - first, input_range.num_positions

        def positions(ordinals: I64, num_rows: int, start: int, end: int) -> I64:
            # Scaled to the range, because its last row may reach beyond it. Short rows
            # may share a position, in order. 4 rows in 80 bytes, of a range of 64:
            # offsets 0 20 40 60, positions 0 16 32 48.
            offsets = ordinals * (end - start) // max(1, num_rows)
            return (start - begin + offsets) * num_positions // size

        cuts = _cut_rows(data, first, stop, self.dialect, BATCH_BYTES)
        for start, end in pairwise([first, *cuts, stop]):
            at, whole = begin + start - first, is_whole or end < stop
            unclosed = input_range.unclosed
            body = Body(data[start:end], at, self.dialect, unclosed, whole)
            yield names, body, positions

    def _cut_text(self, input_range: InputRange, sink: RowSink) -> _Cut:
        """Cuts the text of a packed file, which is read from its start to its end."""
        read = self.of_file(input_range)
        names, begin = self._header(input_range, read)
        text = self._unpack(input_range, input_range.stop)
        for body in _cut_stream(text, begin, self.dialect, read):
            yield names, body, text.positions.of_rows
        whole = FileChecksum(input_range.path, 0, input_range.stop, text.drain())
        sink.checksums.append(whole)

    def _rows_of_files(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        """Yields the rows of a range of several files, those of many files at once."""
        names: tuple[str, ...] = ()
        head = b""
        files: list[_File] = []
        num_bytes = 0
        ranges = input_range.by_file()
        for each in ranges:
            size = each.stop
            data = read_range(each.uri, 0, size, self.storage, each.seen)
            if len(data) < size:
                raise _ends_early(each, len(data))
            sink.checksums.append(FileChecksum(each.path, 0, size, crc32c(data)))
            # Most files repeat the header of the one before; behind \r a \n might follow.
            if not (head.endswith(b"\n") and data.startswith(head)):
                names, end = self._header(each, _reader_of(data))
                head = data[:end]
            body = Body(data[len(head) :], len(head), self.dialect)
            files.append(_File(each, names, data, body))
            num_bytes += size
            if num_bytes >= BATCH_BYTES or each is ranges[-1]:
                yield _rows_of_files(
                    files, self.names, input_range.first_position, sink
                )
                files, num_bytes = [], 0

    def _header(
        self, input_range: InputRange, read: Reader
    ) -> tuple[tuple[str, ...], int]:
        """Returns the columns of a range's file, and where its first row begins.

        Raises:
          InputError: the file has other columns.
        """
        if input_range.start:
            read = self.from_start(input_range)
        names, end = read_header(read, input_range.uri, self.dialect)
        if names != self.names and set(names) != set(self.names):
            raise InputError(columns_differ(input_range.uri, names, self.names))
        return names, end

    def first(
        self, input_range: InputRange, read: Reader
    ) -> tuple[int | None, tuple[str, ...]]:
        """Returns the byte offset of a range's first row, and the file's columns.

        The offset is None if no row starts in the range.

        Args:
          input_range: the range.
          read: of its file.

        Raises:
          InputError: the file has other columns.
        """
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
        read, start = self.of_file(input_range), input_range.start
        if not start:
            read = self.from_start(input_range)
        elif self.packing.is_plain:
            size = input_range.seen.size if input_range.seen else None
            stop = start + max_bytes + _FIRST_ROW_BYTES
            stop = stop if size is None else min(stop, size)
            read = _held(read, start - 1, stop, size)[1]
        begin, names = self.first(input_range, read)
        if begin is None:
            return None
        read = masked(read, input_range.unclosed, self.dialect)
        text = read(begin, begin + max_bytes)
        dialect, unclosed = self.dialect, input_range.unclosed
        if len(text) == max_bytes or is_open(end_state(text, dialect=dialect)):
            spans = row_spans(text, dialect)
            text = text[: spans[-1][0]] if spans else b""
        body, at = Body(text, begin, dialect, unclosed), unclosed - begin
        is_broken = 0 <= at < len(text)
        broken = [BrokenRow(at, "never closed", dialect.quote)] if is_broken else []
        return parse_rows(body, names, input_range.path, broken)


# In each process: all ranges of a file need its header.
@lru_cache(maxsize=16)
def _head_of(uri: str, seen: Seen, storage: StorageOptions) -> bytes:
    """Returns the first bytes of a file in a store, where a version is one content."""
    return read_range(uri, 0, HEAD_BYTES, storage, seen)


def _held(
    read: Reader, start: int, stop: int, size: int | None, data: bytes | None = None
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


def _held_from(input_range: InputRange) -> int:
    r"""Returns where `_hold_block` begins to read: at the \r or \n before the block."""
    return max(0, input_range.start - 1)


def _hold_block(
    file: Reader, input_range: InputRange, sink: RowSink
) -> tuple[bytes, Reader]:
    """Reads a block by one request, with what is mostly left of its last row.

    Returns:
      The bytes from `_held_from` the block on, and a reader of the whole file that
      gives these from memory.
    """
    start, stop, seen = input_range.start, input_range.stop, input_range.seen
    ahead = stop + AHEAD_BYTES * (input_range.quoted[1] != 0)
    if seen is not None:
        ahead = min(ahead, max(stop, seen.size))
    begin = _held_from(input_range)
    data, read = _held(file, begin, ahead, seen.size if seen is not None else None)
    if begin + len(data) < stop:
        raise _ends_early(input_range, begin + len(data))
    # The whole block, though its first bytes belong to a row of the one before: so
    # the checksums of all blocks join.
    crc = crc32c(memoryview(data)[start - begin : stop - begin])
    sink.checksums.append(FileChecksum(input_range.path, start, stop, crc))
    return data, read


def _body_of(
    input_range: InputRange, begin: int, data: bytes, read: Reader, dialect: Dialect
) -> tuple[bytes, int, int, bool]:
    """Returns the rows of a range: bytes, start and end in them, whether all are whole.

    Mostly the bytes are those that are held, which are not copied.
    """
    end: int | None = input_range.stop
    if input_range.quoted[1]:
        state = QuoteState(input_range.quoted[1])
        found = masked(read, input_range.unclosed, dialect)
        end = row_start(found, input_range.stop, state, MAX_ROW_BYTES, dialect)
    is_whole = end is not None
    end = input_range.stop + KEPT_BYTES if end is None else end
    held_at = _held_from(input_range)
    if end - held_at <= len(data) and not begin <= input_range.unclosed < end:
        return data, begin - held_at, end - held_at, is_whole
    body = masked(read, input_range.unclosed, dialect)(begin, end)
    if len(body) < end - begin:
        raise _ends_early(input_range, begin + len(body))
    return body, 0, len(body), is_whole


def _cut_rows(
    text: bytes, first: int, stop: int, dialect: Dialect, piece_bytes: int
) -> Iterator[int]:
    """Yields where to cut rows into pieces of so many bytes or a little more."""

    def read(start: int, end: int) -> bytes:
        return text[start : min(end, stop)]

    while (at := first + piece_bytes) < stop:
        state = end_state(text, ROW_START, dialect, first, at)
        found = row_start(read, at, state, stop - at, dialect)
        if found is None or found >= stop:
            return  # it may end behind what is known
        yield found
        first = found


def _cut_stream(
    text: InputStream, begin: int, dialect: Dialect, reread: Reader
) -> Iterator[Body]:
    """Cuts a text that is read once: rows, where they begin, the quote that is masked."""
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
        if held <= min(max(BATCH_BYTES, 2 * len(body)), BATCH_BYTES + MAX_ROW_BYTES):
            continue
        body = b"".join(pieces)
        cuts = [0, *_cut_rows(body, 0, len(body), dialect, BATCH_BYTES)]
        for start, stop in pairwise(cuts):
            yield Body(body[start:stop], begin + start, dialect)
        body, begin = body[cuts[-1] :], begin + cuts[-1]
        pieces, held = [body], len(body)
        if held > BATCH_BYTES + MAX_ROW_BYTES:
            raise InputError(
                f"{text.uri}: the row that begins at line {line_of(reread, begin)} has "
                f"more than {MAX_ROW_BYTES:,} bytes; is a quoted field not closed?"
            )
        if held <= BATCH_BYTES:
            body = b""
    body = b"".join(pieces)
    if text.is_cut:
        for stop in _cut_rows(body, 0, len(body), dialect, len(body) * 3 // 4):
            yield Body(body[:stop], begin, dialect)
            return
        return
    unclosed = -1
    if is_open(end_state(body, dialect=dialect)):  # the last field of all
        quote = unclosed_quote(_reader_of(body), len(body), dialect)
        if len(body) - quote > UNCLOSED_BYTES:
            body = masked(_reader_of(body), quote, dialect)(0, len(body))
            unclosed = begin + quote
    cuts = [0, *_cut_rows(body, 0, len(body), dialect, BATCH_BYTES), len(body)]
    for start, stop in pairwise(cuts):
        if start < stop:
            yield Body(body[start:stop], begin + start, dialect, unclosed)


class _File(NamedTuple):
    """One small file, with its columns, all its bytes, and its rows."""

    input_range: InputRange
    names: tuple[str, ...]
    data: bytes
    body: Body


def _rows_of_files(
    files: Sequence[_File], names: Sequence[str], first_position: int, sink: RowSink
) -> Rows:
    """Returns the rows of small files, as they would be of each file alone."""
    joined = _split_joined(files)
    parts = [joined] if joined else [_split_alone(file) for file in files]
    batches = [parsed.batch.select(names) for parsed, _ in parts]
    counts = np.array([n for part, counts in parts for n in counts], np.int64)
    kept = [len(parsed.ordinals) for parsed, _ in parts]
    owners = np.repeat(np.arange(len(files)), counts if joined else kept)
    ordinals = np.concatenate([parsed.ordinals for parsed, _ in parts])
    sizes = np.array([max(1, len(file.body.text)) for file in files], np.int64)
    ranges = [file.input_range for file in files]
    stops = np.array([each.stop for each in ranges], np.int64)
    starts = np.array([each.first_position for each in ranges], np.int64)
    starts -= first_position
    hashes = np.array([range_hash(each.path, 0) for each in ranges], np.uint64)
    paths = [each.path for each in ranges]
    # The positions are those of `_cut_block`, behind the files before.
    offsets = ordinals * sizes[owners] // np.maximum(1, counts)[owners]
    sink.rejects += chain.from_iterable(parsed.rejects for parsed, _ in parts)
    sink.add(issues=RowIssue.merged(parsed.issues for parsed, _ in parts))
    return Rows(
        batch=batches[0] if joined else pa.concat_batches(batches),
        origins=origins_of(hashes[owners], ordinals),
        positions=starts[owners] + offsets * stops[owners] // sizes[owners],
        raw=lambda row: files[int(owners[row])].body.row(int(ordinals[row])),
        paths=[paths[owner] for owner in owners.tolist()],
    )


def _split_alone(file: _File) -> tuple[Parsed, list[int]]:
    """Splits the rows of one file; returns how many there are, rejects included, too."""
    broken = find_broken_rows(_reader_of(file.data), file.body)
    parsed = parse_rows(file.body, file.names, file.input_range.path, broken)
    return parsed, [parsed.num_rows]


def _split_joined(files: Sequence[_File]) -> tuple[Parsed, list[int]] | None:
    r"""Splits the rows of all files at once, or returns None if one is not in order.

    Worked example, two files of rows "1,x\n2,y" and "3,z\n":

        joined         "1,x\n2,y\n3,z\n", file starts 0 and 8
        row starts     0 4 8
        counts         2 1
        ordinals       0 1 0

    Without quotes a row is what stands between two newlines. Wherever a newline is
    quoted, or a quote is open at the end of a file, Arrow finds fewer rows than these.
    """
    names, dialect = files[0].names, files[0].body.dialect
    if any(file.names != names for file in files):
        return None
    rests = [without_comments(file.body.text, dialect) for file in files]
    bodies = [
        body if body.endswith((b"\n", b"\r")) or not body else body + b"\n"
        for body, _ in rests
    ]
    text = b"".join(bodies)
    state = end_state(text, dialect=dialect)
    if not is_utf8(text) or is_open(state) or state is ESCAPED:
        return None
    in_row = ~_NEWLINES[np.frombuffer(text, np.uint8)]
    row_starts = np.flatnonzero(in_row & ~np.concatenate([[False], in_row[:-1]]))
    edges = np.array([0, *accumulate(map(len, bodies))])
    first_rows = np.searchsorted(row_starts, edges)
    counts = np.diff(first_rows)
    batch, wrong = split_cells(text, names, dialect)
    if wrong or batch.num_rows != len(row_starts):
        return None
    ordinals = np.arange(len(row_starts)) - np.repeat(first_rows[:-1], counts)
    issues = RowIssue.merged(issues for _, issues in rests)
    parsed = Parsed(batch, ordinals, len(ordinals), [], files[0].body, issues)
    return parsed, counts.tolist()


def _reader_of(data: bytes) -> Reader:
    return lambda start, stop: data[start:stop]


def _ends_early(input_range: InputRange, end: int) -> ChangedInputError:
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
