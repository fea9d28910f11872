"""Inspects tables before a run: what their files have in common, types, and what looks odd.

The first rows are looked at, some KiB of the first file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import printable
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.csv import guess
from recordmill.transforms.sources.csv.guess import FirstRows
from recordmill.transforms.sources.csv.header import header_start, name_of, read_header
from recordmill.transforms.sources.csv.quotes import RFC_4180, Dialect
from recordmill.transforms.sources.csv.rows import RangeRows
from recordmill.transforms.sources.odd_cells import marked_numbers
from recordmill.transforms.sources.other_format import HEAD_BYTES
from recordmill.transforms.sources.plain_types import columns_differ
from recordmill.transforms.sources.text_types import (
    TypeFlag,
    classify_columns,
    with_points,
)
from recordmill.transforms.storage.input_stream import (
    MARK_BYTES,
    AskedPacking,
    Packing,
    compression_of,
    encoding_of,
    other_compression,
)
from recordmill.transforms.storage.reading import open_stream, read_range

TYPED_BYTES = 1 << 16
_LOOKED_AT = guess.SAMPLED_ROWS  # rows
_SHOWN_COLUMNS = 10
_SHOWN = 40  # characters of a column's name


def describe(
    rows: RangeRows,
    asked: Dialect,
    dtypes: Sequence[str],
    basis: str,
    warnings: Sequence[str],
) -> InputSummary:
    """Returns what an input is taken for, the basis of its types in words.

    The dialect is what options say of it; there are no types if they are declared.
    """
    names, dialect = rows.names, rows.dialect
    columns = []
    for at, name in enumerate(names[:_SHOWN_COLUMNS]):
        text = printable(name)
        if len(text) > _SHOWN:
            text = f"{text[: _SHOWN - 3]}..."
        columns.append(" ".join((text, *dtypes[at : at + 1])))
    if more := len(names) - len(columns):
        columns.append(f"{more:,} more")
    unnamed = [name for at, name in enumerate(names) if name == f"column_{at}"]
    found = dialect.delimiter != guess.CANDIDATES[0] and not asked.delimiter
    header = "none, the columns are named by the job" if dialect.columns else "none"
    if dialect.has_header:
        behind = ", comments not counted" if dialect.comment else ""
        header = f"line {dialect.skip_rows + 1}{behind}"
    comment = dialect.comment.decode()
    quote = dialect.quote.decode() or "none"
    named = ", ".join(unnamed[:_SHOWN_COLUMNS])
    facts = {
        "file": "" if rows.packing.is_plain else rows.packing.described,
        "delimiter": name_of(dialect.delimiter)
        + (", found in the first rows" if found else ""),
        "comments": comment and f"lines that begin with {comment}",
        "escape": dialect.escape.decode(),
        "quote": quote if dialect.quote != RFC_4180.quote else "",
        "header": header,
        "columns": f"{len(names):,} ({', '.join(columns)})",
        "types": basis,
        "decimals": "with a comma" if dialect.decimal == "," else "",
        "null values": ", ".join(map(shown, dialect.null_values)),
        "columns without a name": f"{len(unnamed):,}, named {named}"
        if unnamed and dialect.has_header
        else "",
    }
    return InputSummary(
        tuple((name, text) for name, text in facts.items() if text), tuple(warnings)
    )


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the first rows of an input tell."""

    num_rows: int = 0  # how many were looked at
    types: TypeFlags = ()  # of the columns in them
    warnings: tuple[str, ...] = ()  # what looks wrong in them
    has_quotes: bool = False
    # columns of text that look like numbers with marks
    marked: tuple[RowIssue, ...] = ()


def inspect(
    rows: RangeRows, file: InputFile, *, is_guessed: bool, infers_types: bool
) -> tuple[Inspected, str]:
    """Returns what the first rows of a file tell, and why they cannot be that, or "".

    The header is a guess if nothing says that there is one.
    """
    first = _look_at(rows, file)
    quote, decimal = rows.dialect.quote, rows.dialect.decimal
    cells = first.cells[:_LOOKED_AT]
    flags = map(int, classify_columns(with_points(cells.columns, decimal)))
    types = dict(zip(cells.schema.names, flags, strict=True))
    texts = [name for name in types if infers_types and types[name] & TypeFlag.TEXT]
    marked = (marked_numbers(name, cells.column(name), decimal) for name in texts)
    problem, doubt = guess.header_doubts(first) if is_guessed else ("", "")
    found = [guess.misfit(first), guess.commented(first)] + [doubt] * infers_types
    if first.header and first.rows and len(first.names) == 1:
        if other := _other_delimiter(rows, file):
            found.append(
                f"{file.uri}: the header is the single column {shown(first.names[0])}, but "
                f"this looks like a table with `delimiter={other}`"
            )
    return Inspected(
        num_rows=cells.num_rows,
        types=tuple(types[name] for name in rows.names),
        warnings=tuple(filter(None, found)),
        has_quotes=bool(quote) and quote in first.text,
        marked=tuple(chain.from_iterable(marked))[:_SHOWN_COLUMNS],
    ), guess.repeated_columns(first) or problem


def find_rows(
    files: Sequence[InputFile],
    asked: Dialect,
    asked_packing: AskedPacking,
    wanted: Sequence[str],
    storage: StorageOptions,
) -> tuple[RangeRows, list[str]]:
    """Returns the rows of files with bytes: their packing, dialect and columns are found.

    And the paths of files with a header alone, as far as they are not compressed.

    Raises:
      InputError: they cannot be found, or are not the same for all files.
    """
    if not files:
        raise InputError(
            "every input file is empty; expected a header and rows of values"
        )
    first = files[0]
    compression, encoding = asked_packing
    start = RangeRows((), storage).from_start(first)(0, MARK_BYTES)
    if compression is None:
        compression = compression_of(start)
    if encoding is None:
        if compression:
            start = open_stream(first, storage, compression=compression).piece()
        encoding = encoding_of(start)
    rows = RangeRows((), storage, packing=Packing(compression, encoding))
    if problem := guess.no_table(rows.from_start(first)(0, HEAD_BYTES)):
        raise InputError(f"{first.uri}: {problem}")
    named = b"" if asked.skip_rows else guess.named_delimiter(rows.from_start(first))
    if named:
        asked = replace(asked, delimiter=asked.delimiter or named, skip_rows=1)
    delimiter = guess.find_delimiter(rows.from_start(first), first.uri, asked, wanted)
    rows = replace(rows, dialect=replace(asked, delimiter=delimiter))
    names: tuple[str, ...] = ()  # of the first file; those of the others are the same
    without_rows = []
    for file in files:
        if not rows.packing.is_plain:
            start = read_range(file.uri, 0, MARK_BYTES, storage, file.seen)
            if (packed := compression_of(start)) != compression:
                raise InputError(other_compression(file.uri, packed, compression))
        read = rows.from_start(file)
        if named and guess.named_delimiter(read) != named:
            raise InputError(
                f"{file.uri}: the first line is not {shown(f'sep={named.decode()}')}, as "
                "in the first file; expected the same of all: convert such files apart"
            )
        own, begin = read_header(read, file.uri, rows.dialect)
        if rows.packing.is_plain and begin >= file.size:
            without_rows.append(file.path)
        names = names or own
        if set(own) != set(names):
            differ = columns_differ(file.uri, own, names)
            if other := _other_delimiter(rows, file, names):
                mark = name_of(rows.dialect.delimiter)
                differ += f". It seems to have {other} between its cells, not {mark}"
            raise InputError(differ)
    return replace(rows, names=names), without_rows


def _other_delimiter(
    rows: RangeRows, file: InputFile, names: Sequence[str] = ()
) -> str:
    """Returns the delimiter that a file seems to have in place of the one taken, or ""."""
    free = replace(rows.dialect, delimiter=b"")
    try:
        own = guess.find_delimiter(rows.from_start(file), file.uri, free, names)
    except InputError:  # it cannot be told
        return ""
    return "" if own == rows.dialect.delimiter else name_of(own)


def _look_at(rows: RangeRows, file: InputFile) -> FirstRows:
    size = file.size
    whole = InputRange(0, file.path, file.uri, 0, size, 0, size, seen=file.seen)
    read, dialect = rows.from_start(file), rows.dialect
    names, begin = read_header(read, file.uri, dialect)
    head, header = read(0, begin), b""
    if dialect.has_header:
        header = head[header_start(read, file.uri, dialect) :].strip(b"\r\n")
    parsed = rows.sample(whole, TYPED_BYTES)
    if parsed is None:
        nothing = pa.record_batch({name: pa.array([], pa.string()) for name in names})
        return FirstRows(file.uri, dialect, header, names, head, (), nothing)
    body = parsed.body
    spans = [(begin + start, begin + end) for start, end in body.spans[:_LOOKED_AT]]
    text = head + body.text
    return FirstRows(file.uri, dialect, header, names, text, spans, parsed.batch)
