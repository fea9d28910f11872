"""Finds the rows of a range of a CSV file, and splits them in parts of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile, Seen
from recordmill.schemas.ranges import InputRange, OddRows
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.csv.broken_rows import (
    BrokenRow,
    find_broken_rows,
    masked,
)
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.header_row import (
    Header,
    header_comments,
    read_header,
)
from recordmill.transforms.sources.csv.held_bytes import held
from recordmill.transforms.sources.csv.quote_states import end_state
from recordmill.transforms.sources.csv.range_blocks import (
    body_of,
    cut_batches,
    hold_block,
    hold_sample,
    read_small_file,
)
from recordmill.transforms.sources.csv.range_parts import (
    RowsPart,
    columns_differ,
)
from recordmill.transforms.sources.csv.row_bounds import (
    Reader,
    row_spans,
    row_start,
)
from recordmill.transforms.sources.csv.small_files import FileText, rows_of_files
from recordmill.transforms.sources.csv.split_cells import Parsed, parse_rows
from recordmill.transforms.sources.csv.states import QuoteState, is_open
from recordmill.transforms.sources.csv.stream_rows import stream_rows
from recordmill.transforms.sources.csv.text_rows import TextRows
from recordmill.transforms.sources.packing import PLAIN, Packing
from recordmill.transforms.sources.unpack import (
    UnpackedReader,
    UnpackedText,
    unpack,
)
from recordmill.transforms.storage.reading import is_local, read_range

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
            return UnpackedReader(lambda: self._unpack(file, size))
        return partial(read_range, file.uri, options=self.storage, seen=file.seen)

    def from_start(self, file: InputFile | InputRange) -> Reader:
        """Returns a reader of a text whose start is asked for often."""
        read, seen = self.of_file(file), file.seen
        if not self.packing.is_plain or seen is None or is_local(file.uri):
            return read
        head = _head_of(file.uri, seen, self.storage)
        return held(read, 0, HEAD_BYTES, seen.size, head)[1]

    def _unpack(self, file: InputFile | InputRange, stop: int) -> UnpackedText:
        return unpack(file.uri, stop, self.packing, self.storage, file.seen)

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
