"""Finds what the files of an input have in common: the dialect and the columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.csv.column_types import SAMPLE_BYTES
from recordmill.transforms.sources.csv.dialect import AskedDialect, Dialect, name_of
from recordmill.transforms.sources.csv.first_rows import LOOKED_AT, FirstRows
from recordmill.transforms.sources.csv.header_row import header_start, read_header
from recordmill.transforms.sources.csv.range_parts import columns_differ
from recordmill.transforms.sources.csv.range_rows import RangeRows
from recordmill.transforms.sources.csv.sniff import find_delimiter
from recordmill.transforms.sources.packing import (
    MARK_BYTES,
    PLAIN,
    AskedPacking,
    Packing,
    compression_of,
    encoding_of,
    other_compression,
)
from recordmill.transforms.sources.unpack import unpack
from recordmill.transforms.storage.reading import read_range


def not_empty(files: Sequence[InputFile]) -> list[InputFile]:
    """Returns the files that have bytes."""
    return [file for file in files if file.size]


def find_rows(
    files: Sequence[InputFile],
    asked: AskedDialect,
    asked_packing: AskedPacking,
    wanted: Sequence[str],
    storage: StorageOptions,
) -> RangeRows:
    """Returns the rows of files, with their packing, dialect and columns found.

    Args:
      files: in input order.
      asked: what is known of their dialect.
      asked_packing: what is known of their packing.
      wanted: columns that they should have, if they are known.
      storage: options of their storage.

    Raises:
      InputError: they cannot be told, or are not the same for all files.
    """
    packing = common_packing(files, asked_packing, storage)
    rows = RangeRows((), storage, packing=packing)
    rows = replace(rows, dialect=common_dialect(rows, files, asked, wanted))
    return replace(rows, names=common_names(rows, files, asked))


def common_packing(
    files: Sequence[InputFile], asked: AskedPacking, storage: StorageOptions
) -> Packing:
    """Returns how all files are packed: as the first one that has bytes.

    Args:
      files: in input order.
      asked: what is known of it.
      storage: options of their storage.

    Raises:
      InputError: the first file cannot be unpacked.
    """
    for file in not_empty(files)[:1]:
        return packing_of(file, asked, storage)
    return PLAIN


def packing_of(
    file: InputFile, asked: AskedPacking, storage: StorageOptions
) -> Packing:
    """Returns how a file is packed, by its first bytes where it is not known."""
    compression, encoding = asked.compression, asked.encoding
    start = RangeRows((), storage).from_start(file)(0, MARK_BYTES)
    if compression is None:
        compression = compression_of(start)
    if encoding is None:
        if compression:
            raw = unpack(file.uri, file.size, Packing(compression), storage, file.seen)
            start = raw.read()
        encoding = encoding_of(start)
    return Packing(compression, encoding)


def common_dialect(
    rows: RangeRows,
    files: Sequence[InputFile],
    asked: AskedDialect,
    wanted: Sequence[str],
) -> Dialect:
    """Returns the dialect of all files, found in the first one that has bytes.

    Args:
      rows: of the files.
      files: in input order.
      asked: what is known of the dialect.
      wanted: columns that the files should have, if they are known.

    Raises:
      InputError: the dialect cannot be told, or there is no row.
    """
    for file in not_empty(files)[:1]:
        found = find_delimiter(rows.from_start(file), file.uri, asked, wanted)
        return asked.with_delimiter(found)
    raise InputError("every input file is empty; expected a header and rows of values")


def common_names(
    rows: RangeRows, files: Sequence[InputFile], asked: AskedDialect
) -> tuple[str, ...]:
    """Returns the columns of the first file; those of the others are the same.

    Raises:
      InputError: a file has no header, or other columns.
    """
    names: tuple[str, ...] = ()
    for file in not_empty(files):
        if not rows.packing.is_plain:
            _require_packing(rows, file)
        own, _ = read_header(rows.from_start(file), file.uri, rows.dialect)
        names = names or own
        if set(own) != set(names):
            differ = columns_differ(file.uri, own, names)
            raise InputError(differ + _other_delimiter(rows, file, asked, names))
    return names


def _require_packing(rows: RangeRows, file: InputFile) -> None:
    """Checks that a file is compressed as the first one is.

    Raises:
      InputError: it is not.
    """
    start = read_range(file.uri, 0, MARK_BYTES, rows.storage, file.seen)
    found, expected = compression_of(start), rows.packing.compression
    if found != expected:
        raise InputError(other_compression(file.uri, found, expected))


def _other_delimiter(
    rows: RangeRows, file: InputFile, asked: AskedDialect, names: Sequence[str]
) -> str:
    """Returns a hint at another delimiter, if that is why a file's columns differ."""
    free = replace(asked, delimiter=b"")
    try:
        own = find_delimiter(rows.from_start(file), file.uri, free, names)
    except InputError:  # it cannot be told
        return ""
    if own == rows.dialect.delimiter:
        return ""
    first = name_of(rows.dialect.delimiter)
    return f". It seems to have {name_of(own)} between its cells, not {first}"


def look_at(rows: RangeRows, file: InputFile) -> FirstRows:
    """Reads the header and the first rows of a file."""
    size = file.size
    whole = InputRange(0, file.path, file.uri, 0, size, 0, size, seen=file.seen)
    read, dialect = rows.from_start(file), rows.dialect
    names, begin = read_header(read, file.uri, dialect)
    head = read(0, begin)
    header = b""
    if dialect.has_header:
        header = head[header_start(read, file.uri, dialect) :].strip(b"\r\n")
    parsed = rows.sample(whole, SAMPLE_BYTES)
    if parsed is None:
        nothing = pa.table({name: pa.array([], pa.string()) for name in names})
        return FirstRows(file.uri, dialect, header, names, head, (), nothing)
    spans = [(begin + start, begin + end) for start, end in parsed.spans[:LOOKED_AT]]
    text = head + parsed.body
    return FirstRows(file.uri, dialect, header, names, text, spans, parsed.table)
