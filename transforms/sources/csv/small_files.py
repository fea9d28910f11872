"""Joins small CSV files: many are one input range, and are split and converted at once.

Each range costs some milliseconds in every step of a run, and each call of Arrow some
microseconds: of a file of ten rows that is nearly all of the time. The rows are those of
the single files: what is odd is looked for in ever fewer files, at last in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import InputRange, OddRows, RangeFile, Reject
from recordmill.transforms.arrow import I64
from recordmill.transforms.exchange.keys import origins_of, range_hash
from recordmill.transforms.sources.csv.broken_rows import find_broken_rows
from recordmill.transforms.sources.csv.dialect import RFC_4180, Dialect
from recordmill.transforms.sources.csv.leave_out import without_comments
from recordmill.transforms.sources.csv.quote_states import (
    end_state,
)
from recordmill.transforms.sources.csv.row_bounds import row_spans
from recordmill.transforms.sources.csv.split_cells import (
    is_utf8,
    parse_rows,
    split_cells,
)
from recordmill.transforms.sources.csv.states import (
    ESCAPED,
    is_open,
)
from recordmill.transforms.sources.csv.text_rows import TextRows

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
