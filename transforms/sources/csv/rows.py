"""Reads the rows of CSV files as text: blocks, compressed files, and many small files.

A block of a plain file and the text of a compressed file are cut in the same way into
bodies of whole rows (`Body`). Small files are joined and split in one call, because each
call of Arrow takes some microseconds, which is nearly all of the time for a file of ten
rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import FileChecksum, FileStat, InputFile
from recordmill.schemas.ranges import InputRange, Reject, RowIssue
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms import native
from recordmill.transforms.arrow import I64
from recordmill.transforms.encode.row_errors import bytes_are_utf8, utf8_reason
from recordmill.transforms.exchange.keys import origins_in, origins_of, range_hash
from recordmill.transforms.sources.base import RangeFindings, Rows
from recordmill.transforms.sources.csv.header import header_comments, read_header
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    ESCAPED,
    FIELD_START,
    KEPT_BYTES,
    MAX_ROW_BYTES,
    RFC_4180,
    ROW_START,
    UNCLOSED_BYTES,
    Dialect,
    QuoteState,
    Reader,
    RowBlock,
    compute_end_state,
    compute_transition_map,
    count_lines,
    create_masked_reader,
    create_memory_reader,
    find_broken_rows,
    find_row_spans,
    find_row_start,
    find_unclosed_quote,
    is_open,
    mask_quote,
    remove_comments,
    row_patterns,
)
from recordmill.transforms.sources.partitions import NO_PARTITIONS, Partitions
from recordmill.transforms.sources.plain_types import describe_column_differences
from recordmill.transforms.storage.input_stream import (
    PLAIN,
    TEXT_BYTES,
    InputStream,
    Packing,
)
from recordmill.transforms.storage.reading import (
    is_local,
    open_stream,
    read_range,
    size_of,
)
from recordmill.transforms.tfrecord import crc32c

# The native extension splits a whole body at once if its text is simple; otherwise Arrow
# does. Only a body with rows that Arrow cannot split is checked row by row.


def _with_escaped_nulls(body: bytes, dialect: Dialect) -> tuple[bytes, bytes]:
    r"""Replaces null cells that begin with an escape, such as \N, by another text.

    Arrow removes escapes, so \N and N would be the same.

    Returns:
      The body, and the text that replaces these cells, or b"" without such cells.
    """
    nulls = [null.encode() for null in _null_values(dialect, are_escaped=True)]
    if not any(null in body for null in nulls):
        return body, b""
    # The text is not empty: a row of only such cells would be a blank line, and no row.
    null = b"\0"
    while null in body:
        null += b"\0"
    return _null_pattern(dialect).sub(lambda match: match[1] or null, body), null


def _null_values(dialect: Dialect, *, are_escaped: bool) -> list[str]:
    """Returns the null values that begin with an escape, or those that do not."""
    escape, nulls = dialect.escape.decode(), dialect.null_values
    return [n for n in nulls if (escape != "" and n.startswith(escape)) == are_escaped]


@lru_cache(maxsize=8)
def _null_pattern(dialect: Dialect) -> re.Pattern[bytes]:
    """Returns a pattern that matches an escaped null cell, or other cells as group 1."""
    nulls = (null.encode() for null in _null_values(dialect, are_escaped=True))
    null = b"|".join(map(re.escape, nulls))
    ends = rb"[%b\r\n]" % re.escape(dialect.delimiter)
    cell = row_patterns(dialect).cell_bytes
    return re.compile(
        rb"((?:(?!(?:%b)(?:%b|\Z))%b%b)++)|(?:%b)(?=%b|\Z)"
        % (null, ends, cell, ends, null, ends)
    )


_MAX_BYTES = 1 << 30  # maximum size of a text; positions are int32
_MAX_OFFSETS = 2  # maximum number of offsets for each byte of a text
_INTS_PER_CACHE_LINE = 16  # number of int32 in a line of the processor's cache


def split_plain_cells(
    body: bytes, names: Sequence[str], dialect: Dialect
) -> pa.RecordBatch | None:
    r"""Splits simple rows like `split_cells`, or returns None for Arrow to split them.

    Worked example, "1,a\n22,\n" with two columns: two bytes may end a row, so each column
    has space for three rows (the last may have no line end), and its offsets begin at a
    line of the cache.

        offsets      0 1 3 ...    0 1 1 ...
        facts        0 35         0 1          (starts, then empty cells)
        valid        -            0b01
        target       1 2 2 (32 bytes of slack) a
    """
    size, columns = len(body), len(names)
    if not size or size > _MAX_BYTES:
        return None
    if dialect.escape or dialect.null_values or not columns:
        return None
    # An odd number of cache lines: otherwise columns that are a power of two apart would
    # share lines of the cache.
    lines = (native.loops.count_row_ends(body) + 1) // _INTS_PER_CACHE_LINE + 1
    max_rows = (lines | 1) * _INTS_PER_CACHE_LINE - 1
    if columns * max_rows > _MAX_OFFSETS * size + (1 << 16):
        return None  # most lines are blank or inside quotes
    valid_bytes = (max_rows + 7) // 8
    offsets = pa.allocate_buffer(columns * (max_rows + 1) * 4)
    valid = pa.allocate_buffer(columns * valid_bytes)
    target = pa.allocate_buffer(size + columns * native.loops.CELL_SLACK)
    facts = np.empty((2, columns), np.int64)
    quote = ord(dialect.quote) if dialect.quote else native.loops.NO_QUOTE
    num_rows = native.loops.split_cells(
        body, ord(dialect.delimiter), quote, max_rows, offsets, valid, facts, target
    )
    if num_rows < 1:
        return None
    arrays = []
    for column, (start, empty) in enumerate(facts.T.tolist()):
        begin = column * (max_rows + 1) * 4
        buffers = [
            valid.slice(column * valid_bytes, valid_bytes) if empty else None,
            offsets.slice(begin, (num_rows + 1) * 4),
            target.slice(start),
        ]
        arrays.append(pa.Array.from_buffers(pa.string(), num_rows, buffers, empty))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


_BLANK = re.compile(rb"[\r\n]*")


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """The rows of a body, split into cells."""

    batch: pa.RecordBatch  # the columns as text
    ordinals: I64  # ordinal of each row of the batch among the rows of the body
    rejects: list[Reject]  # rows that could not be split
    body: RowBlock  # the rows before splitting
    issues: tuple[RowIssue, ...] = ()  # the issue about comment lines, if any

    @property
    def num_rows(self) -> int:
        """Returns the number of rows of the body, including rejects."""
        return int(self.batch.num_rows) + len(self.rejects)

    def raw_row(self, row: int) -> tuple[int, bytes]:
        """Returns the byte offset in the file, and the bytes, of a row of the batch."""
        return self.body.row(int(self.ordinals[row]))


def parse_rows(
    body: RowBlock, names: Sequence[str], path: str, broken: Mapping[int, str]
) -> ParsedRows:
    """Splits rows into cells; rows that cannot be split become rejects.

    Args:
      body: The rows.
      names: Names of the columns.
      path: Path of the file, for rejects.
      broken: Reasons to reject rows without an end, by ordinal (`find_broken_rows`).
    """
    text, dialect = body.text, body.dialect
    row_text, issues = remove_comments(text, dialect)
    if broken or not bytes_are_utf8(row_text):
        # Remove the rows that Arrow cannot split, and split the other rows.
        spans, reasons = body.spans, dict(broken)
        for row, (start, end) in enumerate(spans):
            if row not in reasons and (reason := utf8_reason(text[start:end], "row")):
                reasons[row] = reason
        kept_rows = [row for row in range(len(spans)) if row not in reasons]
        row_text = b"\n".join(text[slice(*spans[row])] for row in kept_rows)
        batch, split_reasons = split_cells(row_text, names, dialect)
        reasons |= {kept_rows[row]: reason for row, reason in split_reasons.items()}
    else:
        batch, reasons = split_cells(row_text, names, dialect)
    rejects = []
    for row in sorted(reasons):
        at, raw = body.row(row)
        rejects.append(Reject(path, at, reasons[row], raw))
    ordinals = np.arange(batch.num_rows + len(reasons), dtype=np.int64)
    if reasons:
        ordinals = np.delete(ordinals, sorted(reasons))
    return ParsedRows(batch, ordinals, rejects, body, issues)


def split_cells(
    body: bytes, names: Sequence[str], dialect: Dialect = RFC_4180
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Splits rows of UTF-8 without comments, in which every quoted field is closed.

    Returns:
      All cells as text, with null for empty cells, and the reasons of rejected rows, by
        ordinal.
    """
    body, null = _with_escaped_nulls(body, dialect)
    if _BLANK.fullmatch(body):
        empty = pa.array([], pa.string())
        return pa.RecordBatch.from_arrays([empty] * len(names), names=list(names)), {}
    if (plain := split_plain_cells(body, names, dialect)) is not None:
        return plain, {}
    if body.startswith(BOM):
        body = BOM + body  # Arrow strips one BOM, but this BOM belongs to a cell
    reasons: dict[int, str] = {}

    def note(row: pa_csv.InvalidRow) -> str:
        reasons[row.number - 1] = (
            f"expected {format_count(row.expected_columns, 'column')}, found {row.actual_columns}"
        )
        return "skip"

    table = pa_csv.read_csv(
        pa.py_buffer(body),
        pa_csv.ReadOptions(
            use_threads=False,  # the job's workers are the threads
            block_size=len(body) + 16,
            column_names=list(names),
        ),
        pa_csv.ParseOptions(
            delimiter=dialect.delimiter.decode(),
            quote_char=dialect.quote.decode() or False,
            escape_char=dialect.escape.decode() or False,
            newlines_in_values=any(
                mark and mark in body for mark in (dialect.quote, dialect.escape)
            ),
            invalid_row_handler=note,
        ),
        pa_csv.ConvertOptions(
            check_utf8=False,
            column_types={name: pa.string() for name in names},
            strings_can_be_null=True,
            null_values=[
                "",
                *_null_values(dialect, are_escaped=False),
                *filter(None, [null.decode()]),
            ],
        ),
    )
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0], reasons
    return pa.RecordBatch.from_pylist([], schema=table.schema), reasons


@dataclass(frozen=True)
class _LongBody:
    """A body with a long row, whose text is read again from its file when needed."""

    body: RowBlock  # the body without its text
    end: int  # byte offset of its end in the text of the file
    ordinals: I64  # ordinals of the rows that could be split
    read: Reader  # reader of the file

    @classmethod
    def from_body(cls, body: RowBlock, read: Reader, ordinals: I64) -> _LongBody:
        """Creates the long body for a body, without keeping its text."""
        end = body.begin + len(body.text)
        return cls(replace(body, text=b""), end, ordinals, read)

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        text = create_masked_reader(
            self.read, self.body.unclosed_quote, self.body.dialect
        )
        return find_row_spans(text(self.body.begin, self.end), self.body.dialect)

    def raw_row(self, row: int) -> tuple[int, bytes]:
        """Returns the byte offset in the file, and the bytes, of a row of the batch."""
        ordinal = int(self.ordinals[row])
        start, end = (self.body.begin + edge for edge in self._spans[ordinal])
        read = create_masked_reader(
            self.read, self.body.unclosed_quote, self.body.dialect
        )
        is_whole = self.body.is_whole or ordinal < len(self._spans) - 1
        only = replace(self.body, text=read(start, end), begin=start, is_whole=is_whole)
        return only.row(0)


AHEAD_BYTES = 1 << 16  # read after a block: usually includes the end of its last row
HEAD_BYTES = 1 << 17  # read from the start of a remote file: header and first rows
BATCH_BYTES = 4 << 20  # split and converted at once: fits the processor's cache
_LONG_BODY_BYTES = 2 * BATCH_BYTES  # a larger body has a long row
_FIRST_ROW_BYTES = 1 << 14  # usually more than the rest of the row before a sample

_NEWLINES = np.zeros(256, np.bool_)
_NEWLINES[list(b"\r\n")] = True


@dataclass(frozen=True, slots=True)
class RangeRows:
    """A reader of the rows of files that all have the same columns."""

    # names of the columns; a file may have them in another order
    names: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS  # options of the storage of the files
    dialect: Dialect = RFC_4180  # dialect of all files
    packing: Packing = PLAIN  # packing of all files; offsets refer to the unpacked text
    # whether files may have more columns (`extra_columns`)
    ignores_extra_columns: bool = False
    partitions: Partitions = NO_PARTITIONS  # columns from folders, after `names`

    def complete_columns(
        self, batch: pa.RecordBatch, paths: Sequence[str], owners: I64 | None = None
    ) -> pa.RecordBatch:
        """Returns rows with the columns in order and the columns of the partitions."""
        decimal = self.dialect.decimal
        file_columns = batch.select(self.names)
        return self.partitions.add_text_columns(file_columns, paths, owners, decimal)

    def reader(self, file: InputFile | InputRange) -> Reader:
        """Returns a reader of the text of a file or of a range."""
        if not self.packing.is_plain:
            size = file.stop if isinstance(file, InputRange) else file.size
            return self._open(file, 0, size, TEXT_BYTES).part
        return partial(read_range, file.uri, options=self.storage, stat=file.stat)

    def start_reader(self, file: InputFile | InputRange) -> Reader:
        """Returns a reader that caches the first bytes of a remote file."""
        read, stat = self.reader(file), file.stat
        if not self.packing.is_plain or stat is None or is_local(file.uri):
            return read
        head, size = _read_head(file.uri, stat, self.storage), stat.size

        def read_start(start: int, stop: int) -> bytes:
            if stop <= len(head) or len(head) == size:
                return head[start:stop]
            return head[start:] + read(max(start, len(head)), stop)

        return read_start

    def _open(
        self, file: InputFile | InputRange, start: int, stop: int, window_bytes: int
    ) -> InputStream:
        return open_stream(
            file,
            self.storage,
            part=(start, stop),
            compression=self.packing.compression,
            encoding=self.packing.encoding,
            window_bytes=window_bytes,
        )

    def text_rows(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Yields all rows of a range, in order, as text columns.

        Raises:
          ChangedInputError: a file is shorter than when it was listed.
          InputError: a file has other columns, or cannot be unpacked.
        """
        rows_of = self._rows_of_files if input_range.files else self._rows_of_file
        return rows_of(input_range, range_findings)

    def _rows_of_file(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Yields the rows of a block of a plain file, or of a whole compressed file."""
        path, start, stop = input_range.path, input_range.start, input_range.stop
        is_plain = self.packing.is_plain
        stream = self._open(input_range, start, stop, TEXT_BYTES)
        end, is_whole, rows_before = sys.maxsize, True, 0
        if is_plain:
            # One request reads from the \r or \n before the block to, usually, the end of
            # its last row.
            stream.keep_from_offset = max(0, start - 1)
            ahead = AHEAD_BYTES * (input_range.quote_states[1] != 0)
            stream.part(stream.keep_from_offset, stop + ahead)
        begin, names, header = self._find_first_row(input_range, stream.part)
        range_findings.add_batch_findings(issues=header_comments(header, self.dialect))
        if begin is not None:
            if is_plain:
                end, is_whole = self._find_last_row_end(input_range, stream.part)
            for body in self._cut_bodies(
                input_range, stream, begin, end, is_whole=is_whole
            ):
                broken = find_broken_rows(self.reader(input_range), body)
                parsed_rows = parse_rows(body, names, path, broken)
                range_findings.rejects += parsed_rows.rejects
                range_findings.add_batch_findings(issues=parsed_rows.issues)
                # Positions rise, but short rows may share one. Example: 4 rows in 80
                # bytes, in a range of 64 bytes. Offsets are 0 20 40 60. In a plain file,
                # positions are 0 16 32 48, because the last row may end after the range.
                ordinals, size = parsed_rows.ordinals, len(body.text)
                offsets = body.begin + ordinals * size // max(1, parsed_rows.num_rows)
                raw, num_rows = parsed_rows.raw_row, parsed_rows.num_rows
                if size > _LONG_BODY_BYTES:
                    raw = _LongBody.from_body(
                        body, self.reader(input_range), ordinals
                    ).raw_row
                if is_plain:
                    positions = (offsets - begin) * (stop - start) // (end - begin)
                else:
                    positions = stream.positions.file_offsets(offsets)
                batch = self.complete_columns(parsed_rows.batch, [path])
                del (
                    body,
                    parsed_rows,
                )  # release the text of a long row while the caller works
                yield Rows(
                    batch=batch,
                    origins=origins_in(path, start, ordinals + rows_before),
                    positions=positions,
                    raw_row=raw,
                )
                del batch, raw
                rows_before += num_rows
        # The checksum covers the whole block, although its first bytes belong to a row of
        # the previous block. So the checksums of all blocks cover the file.
        range_findings.checksums.append(
            FileChecksum(path, start, stop, stream.checksum_of_part())
        )

    def _find_last_row_end(
        self, input_range: InputRange, read: Reader
    ) -> tuple[int, bool]:
        """Returns the end of a block's last row, and whether that row has an end."""
        stop = input_range.stop
        if not input_range.quote_states[1]:
            return stop, True
        state = QuoteState(input_range.quote_states[1])
        read = create_masked_reader(read, input_range.unclosed_quote, self.dialect)
        end = find_row_start(read, stop, state, MAX_ROW_BYTES, self.dialect)
        return (stop + KEPT_BYTES, False) if end is None else (end, True)

    def _cut_bodies(
        self,
        input_range: InputRange,
        stream: InputStream,
        begin: int,
        end: int,
        *,
        is_whole: bool,
        unclosed: int | None = None,
    ) -> Iterator[RowBlock]:
        """Cuts rows into bodies of at least BATCH_BYTES; the last may be smaller."""
        dialect = self.dialect
        unclosed = input_range.unclosed_quote if unclosed is None else unclosed
        part = create_masked_reader(stream.part, unclosed, dialect)

        def read(start: int, stop: int) -> bytes:
            return part(start, min(stop, end))

        while True:
            stream.keep_from_offset = begin
            at = begin + BATCH_BYTES
            window_text, start = stream.window(begin, min(at + 1, end))  # not copied
            if min(end, start + len(window_text)) <= at:
                break
            window_text = mask_quote(window_text, unclosed - start, dialect)
            ends = compute_transition_map(
                window_text, begin - start, at - start, dialect
            )
            del window_text  # a long row replaces it
            state = ends[ROW_START - FIELD_START]
            cut = find_row_start(read, at, state, MAX_ROW_BYTES, dialect)
            if cut is None and stream.is_packed:
                line = count_lines(self.reader(input_range), begin)
                raise InputError(
                    f"{stream.uri}: the row that begins at line {line} has more than "
                    f"{MAX_ROW_BYTES:,} bytes; is a quoted field not closed?"
                )
            if cut is None or not read(cut, cut + 1):
                break
            text = read(begin, cut)
            if len(text) > _LONG_BODY_BYTES:
                stream.release(cut)
            bodies = [RowBlock(text, begin, dialect, unclosed)]
            del text  # otherwise the generator would keep it while its caller works
            yield bodies.pop()
            begin = cut
        text = read(begin, end)
        if len(text) > _LONG_BODY_BYTES:
            stream.release(begin + len(text))
        if stream.is_cut:  # the last row may be incomplete
            at = len(text) * 3 // 4
            state = compute_end_state(text, dialect=dialect, stop=at)
            text = text[
                : find_row_start(
                    create_memory_reader(text), at, state, len(text), dialect
                )
            ]
        elif stream.is_packed and is_open(compute_end_state(text, dialect=dialect)):
            quote = find_unclosed_quote(create_memory_reader(text), len(text), dialect)
            if len(text) - quote > UNCLOSED_BYTES:
                quote += begin
                remaining_bodies = self._cut_bodies(
                    input_range, stream, begin, end, is_whole=True, unclosed=quote
                )
                yield from remaining_bodies
                return
        if text:
            bodies = [RowBlock(text, begin, dialect, unclosed, is_whole)]
            del text
            yield bodies.pop()

    def _rows_of_files(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Yields the rows of a range of several files; each batch has many files."""
        names: tuple[str, ...] = ()
        head = b""
        files: list[_File] = []
        num_bytes = 0
        ranges = input_range.split_by_file()
        for file_range in ranges:
            size = file_range.stop
            content = read_range(file_range.uri, 0, size, self.storage, file_range.stat)
            if len(content) < size:
                raise ChangedInputError(
                    f"{file_range.uri}: ends at byte {len(content)}, but had {size} bytes when "
                    "the run began; did it change in the meantime?"
                )
            range_findings.checksums.append(
                FileChecksum(file_range.path, 0, size, crc32c(content))
            )
            # Most files repeat the header of the previous file. A header that ends with
            # \r is read again, because a \n may follow.
            if not (head.endswith(b"\n") and content.startswith(head)):
                names, end = self._read_header(
                    file_range, create_memory_reader(content)
                )
                head = content[:end]
            range_findings.add_batch_findings(
                issues=header_comments(head, self.dialect)
            )
            body = RowBlock(content[len(head) :], len(head), self.dialect)
            files.append(_File(file_range, names, content, body))
            num_bytes += size
            if num_bytes >= BATCH_BYTES or file_range is ranges[-1]:
                yield _create_rows(
                    files, self, input_range.first_position, range_findings
                )
                files, num_bytes = [], 0

    def _read_header(
        self, input_range: InputRange, read: Reader
    ) -> tuple[tuple[str, ...], int]:
        """Returns the columns of a range's file, and the byte offset of its first row."""
        if input_range.start:
            read = self.start_reader(input_range)
        names, end = read_header(read, input_range.uri, self.dialect)
        if names != self.names:
            differ = describe_column_differences(
                *(input_range, names, self.names), leaves_out=self.ignores_extra_columns
            )
            if differ:
                raise InputError(differ)
        return names, end

    def _find_first_row(
        self, input_range: InputRange, read: Reader
    ) -> tuple[int | None, tuple[str, ...], bytes]:
        """Returns the byte offset of a range's first row, the columns, and the header."""
        start, stop = input_range.start, input_range.stop
        names, header_end = self._read_header(input_range, read)
        begin: int | None = header_end
        header = b"" if start else read(0, header_end)
        if start > header_end:  # otherwise the range has the first row of the file
            state = QuoteState(input_range.quote_states[0])
            read = create_masked_reader(read, input_range.unclosed_quote, self.dialect)
            begin = find_row_start(read, start, state, stop - start, self.dialect)
        if begin is not None and self.packing.is_plain and begin >= stop:
            begin = None
        return begin, names, header

    def sample_rows(self, input_range: InputRange, max_bytes: int) -> ParsedRows | None:
        """Returns the first whole rows of a range, or None if no row starts in it.

        Incomplete rows are excluded, because half a cell can have another type. If the
        first row is longer than `max_bytes`, there are no rows. A range of several files
        must be sampled file by file.
        """
        start, unclosed = input_range.start, input_range.unclosed_quote
        if not start or not self.packing.is_plain:
            read = self.start_reader(input_range)
        else:
            window, size = max_bytes + _FIRST_ROW_BYTES + 1, size_of(input_range)
            read = self._open(input_range, start - 1, size, window).part
        begin, names, _ = self._find_first_row(input_range, read)
        if begin is None:
            return None
        dialect = self.dialect
        text = create_masked_reader(read, unclosed, dialect)(begin, begin + max_bytes)
        if len(text) == max_bytes or is_open(compute_end_state(text, dialect=dialect)):
            spans = RowBlock(text, begin, dialect).spans
            text = text[: spans[-1][0]] if spans else b""
        body = RowBlock(text, begin, dialect, unclosed)
        at = unclosed - begin
        broken = {body.row_at(at): "never closed"} if 0 <= at < len(text) else {}
        return parse_rows(body, names, input_range.path, broken)


# Cached in each process, because all ranges of a file need its header.
@lru_cache(maxsize=16)
def _read_head(uri: str, stat: FileStat, storage: StorageOptions) -> bytes:
    """Returns the first bytes of a remote file, whose version fixes its content."""
    return read_range(uri, 0, HEAD_BYTES, storage, stat)


class _File(NamedTuple):
    """A small file that is split together with others."""

    input_range: InputRange
    names: tuple[str, ...]  # names of its columns
    data: bytes
    body: RowBlock


def _create_rows(
    files: Sequence[_File],
    rows: RangeRows,
    first_position: int,
    range_findings: RangeFindings,
) -> Rows:
    """Splits small files together; the rows are the same as for each file alone."""
    parts, counts, kept_counts = _split_joined(files) or _split_alone(files)
    owners = np.repeat(np.arange(len(files)), kept_counts)
    ordinals = np.concatenate([parsed.ordinals for parsed in parts])
    sizes = np.array([max(1, len(file.body.text)) for file in files], np.int64)
    ranges = [file.input_range for file in files]
    stops = np.array([file_range.stop for file_range in ranges], np.int64)
    starts = np.array([file_range.first_position for file_range in ranges], np.int64)
    hashes = np.array(
        [range_hash(file_range.path, 0) for file_range in ranges], np.uint64
    )
    # The position of a row is its offset in its file, after all files before it.
    offsets = ordinals * sizes[owners] // np.maximum(1, counts)[owners]
    range_findings.rejects += chain.from_iterable(parsed.rejects for parsed in parts)
    range_findings.add_batch_findings(
        issues=RowIssue.merge_issues(parsed.issues for parsed in parts)
    )
    batch = pa.concat_batches([parsed.batch.select(rows.names) for parsed in parts])
    return Rows(
        batch=rows.complete_columns(
            batch, [file_range.path for file_range in ranges], owners
        ),
        origins=origins_of(hashes[owners], ordinals),
        positions=(starts - first_position)[owners]
        + offsets * stops[owners] // sizes[owners],
        raw_row=lambda row: files[int(owners[row])].body.row(int(ordinals[row])),
        paths=[ranges[owner].path for owner in owners.tolist()],
    )


# Rows, number of rows per file, number of rows per file that are not rejects.
_SplitFiles = tuple[list[ParsedRows], list[int], list[int]]


def _split_alone(files: Sequence[_File]) -> _SplitFiles:
    parts = []
    for input_range, names, content, body in files:
        broken = find_broken_rows(create_memory_reader(content), body)
        parts.append(parse_rows(body, names, input_range.path, broken))
    counts = [parsed.num_rows for parsed in parts]
    return parts, counts, [parsed.batch.num_rows for parsed in parts]


def _split_joined(files: Sequence[_File]) -> _SplitFiles | None:
    r"""Splits the rows of all files at once, or returns None if that is not possible.

    Worked example, two files of rows "1,x\n2,y" and "3,z\n":

        joined         "1,x\n2,y\n3,z\n", file starts 0 and 8
        row starts     0 4 8
        counts         2 1
        ordinals       0 1 0

    Row starts are computed as if no newline were quoted. If a newline is quoted, or a
    quote is open at the end of a file, Arrow finds fewer rows, and the result is None.
    """
    names, dialect = files[0].names, files[0].body.dialect
    if any(file.names != names for file in files):
        return None
    row_texts = [remove_comments(file.body.text, dialect) for file in files]
    bodies = [
        body if body.endswith((b"\n", b"\r")) or not body else body + b"\n"
        for body, _ in row_texts
    ]
    text = b"".join(bodies)
    state = compute_end_state(text, dialect=dialect)
    if not bytes_are_utf8(text) or is_open(state) or state is ESCAPED:
        return None
    in_row = ~_NEWLINES[np.frombuffer(text, np.uint8)]
    row_starts = np.flatnonzero(in_row & ~np.concatenate([[False], in_row[:-1]]))
    edges = np.array([0, *accumulate(map(len, bodies))])
    first_rows = np.searchsorted(row_starts, edges)
    counts = np.diff(first_rows).tolist()
    batch, split_reasons = split_cells(text, names, dialect)
    if split_reasons or batch.num_rows != len(row_starts):
        return None
    ordinals = np.arange(len(row_starts)) - np.repeat(first_rows[:-1], counts)
    issues = RowIssue.merge_issues(issues for _, issues in row_texts)
    return [ParsedRows(batch, ordinals, [], files[0].body, issues)], counts, counts
