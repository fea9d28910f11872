"""Inspects tables: what their files have in common, their types, and what looks odd.

Before a run the first rows are looked at, some KiB of the first file. While rows are
converted, cells are counted that are missing, have many digits or look like numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import FeatureSpec, Schema, usual_kind
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputSummary
from recordmill.schemas.ranges import InputRange, RowIssue, TypeFlags
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, printable
from recordmill.transforms.arrow import array_parts
from recordmill.transforms.cast.text_values import (
    matches,
    present,
    shown,
    swap_points,
    without_missing,
)
from recordmill.transforms.encode.row_errors import Mask
from recordmill.transforms.sources.csv import guess
from recordmill.transforms.sources.csv.guess import FirstRows
from recordmill.transforms.sources.csv.header import header_start, name_of, read_header
from recordmill.transforms.sources.csv.quotes import RFC_4180, Dialect
from recordmill.transforms.sources.csv.rows import RangeRows, columns_differ
from recordmill.transforms.sources.other_format import HEAD_BYTES
from recordmill.transforms.sources.text_types import (
    TypeFlag,
    classify_columns,
    column_dtype,
    has_missing_words,
    is_text,
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


# Asked for each batch: a schema of 20,000 columns takes longer than a batch of them.
@lru_cache(maxsize=8)
def infer_schema(
    names: tuple[str, ...], observed: TypeFlags, nulls: tuple[int, ...]
) -> Schema:
    """Returns the features of columns whose types follow from their cells."""
    features = []
    for name, flags, missing in zip(names, observed, nulls, strict=True):
        dtype = column_dtype(flags)
        optional = missing > 0 or has_missing_words(flags)
        features.append(
            FeatureSpec(name, usual_kind(dtype), dtype=dtype, optional=optional)
        )
    return Schema(tuple(features))


_LOOKED_AT = guess.SAMPLED_ROWS  # rows
_SHOWN_COLUMNS = 10


def first_flags(first: FirstRows) -> tuple[int, ...]:
    """Returns the type flags of the columns in the first rows."""
    columns = with_points(first.cells[:_LOOKED_AT].columns, first.dialect)
    return tuple(map(int, classify_columns(columns)))


def with_points(
    columns: list[pa.StringArray], dialect: Dialect
) -> list[pa.StringArray]:
    """Returns columns of text with a point in numbers."""
    if dialect.decimal == ",":
        return [swap_points(column) for column in columns]
    return columns


_MISSING, _LONG = "missing", "digits"  # codes of issues
_COMMA, _THOUSANDS = "decimal comma", "thousands"
_COUNTED_COLUMNS = 100  # of which each is told by itself; the first ones of a table
_WARNED_COLUMNS = 5
_FLOAT32_DIGITS = 7
_LONG_NUMBER = r"[1-9](?:[.,]?[0-9]){6,}[.,]?[1-9]"
_SHOWN = 40  # characters of a cell


def count_issues(
    text: pa.RecordBatch,
    batch: pa.RecordBatch,
    observed: Sequence[int] = (),
    marked: Sequence[RowIssue] = (),
    decimal: str = ".",
) -> tuple[RowIssue, ...]:
    """Counts what is odd about cells: words for missing, many digits, other marks.

    The batch has the same cells, converted; of inferred types, flags were observed.
    Columns that are marked looked like numbers with marks in the first rows.
    """
    found: list[RowIssue] = []
    for index, field in enumerate(batch.schema):
        name = field.name if index < _COUNTED_COLUMNS else ""
        flags = observed[index] if observed else 0
        if flags & TypeFlag.MISSING and not is_text(flags):
            cells, kept = text.column(index), batch.column(index)
            if pa.types.is_string(kept.type):  # whether it is text is not yet known
                kept = without_missing(cells)
            found += _counted(_MISSING, name, cells, present(cells) & ~present(kept))
        if pa.types.is_float64(field.type):
            cells = text.column(index)
            for each in _counted(_LONG, name, cells, _is_long(cells, batch[index])):
                found.append(replace(each, example=each.example.strip()[:_SHOWN]))
    for each in marked:
        cells = text.column(each.column)
        marks = _marks(cells, each.code, decimal)
        found += _counted(each.code, each.column, cells, marks)
    return RowIssue.merged([tuple(found)])


def _counted(
    code: str, name: str, cells: pa.StringArray, found: Mask
) -> tuple[RowIssue, ...]:
    """Returns how many cells of a column were found, with the first; or nothing."""
    rows = np.flatnonzero(found)
    if not len(rows):
        return ()
    return (RowIssue(code, name, len(rows), cells[int(rows[0])].as_py()),)


def missing_fact(
    issues: Sequence[RowIssue], schema: Schema
) -> tuple[tuple[str, str], ...]:
    """Returns a fact about the cells of all rows that were taken for missing, or none."""
    # Columns that came out as text have kept their cells.
    text = {feature.name for feature in schema.features if feature.dtype == "string"}
    found = [
        f"{count(each.count, 'cell')} like {shown(each.example)} in "
        + (f"column {each.column}" if each.column else "other columns")
        for each in issues
        if each.code == _MISSING and each.column not in text
    ]
    if len(found) > _SHOWN_COLUMNS:
        found[_SHOWN_COLUMNS:] = [f"{len(found) - _SHOWN_COLUMNS:,} more columns"]
    return (("taken as missing", "; ".join(found)),) if found else ()


def _is_long(cells: pa.StringArray, floats: pa.DoubleArray) -> Mask:
    """Returns which numbers have more than seven digits, but for zeros at either end."""
    offsets, text = array_parts(cells)
    lengths = np.diff(offsets)
    long: Mask = np.zeros(len(cells), np.bool_)
    doubtful: Mask = lengths > _FLOAT32_DIGITS
    own = text[offsets[0] : offsets[-1]]
    if doubtful.any() and own.min() >= ord(",") and own.max() <= ord("9"):
        # Digits with a minus and a point at most: -0.1234567 has 10 - 3 of them.
        values = floats.to_numpy(zero_copy_only=False)
        minus = np.signbit(values)
        digits = lengths - minus
        digits -= 1
        digits -= text.take(offsets[:-1] + minus, mode="clip") == ord("0")
        rows = np.flatnonzero(digits > _FLOAT32_DIGITS)
        ends, counts = offsets[rows + 1] - 1, digits[rows]
        while (zeros := (text[ends] == ord("0")) & (counts > _FLOAT32_DIGITS)).any():
            counts -= zeros
            ends -= zeros
        digits[rows] = counts
        sure = (np.abs(values[rows]) >= 0.1) & (text[ends] > ord("0"))
        long[rows] = (counts > _FLOAT32_DIGITS) & sure
        # Where a cell has no point, it has a digit more.
        points = np.count_nonzero(own < ord("0")) - np.count_nonzero(minus)
        has_points = points == len(cells) - cells.null_count
        doubtful = (digits >= _FLOAT32_DIGITS + has_points) & ~long
    rows = np.flatnonzero(doubtful)
    if len(rows):
        long[rows] = matches(cells.take(pa.array(rows)), _LONG_NUMBER)
    return long


def huge_warnings(names: Sequence[str]) -> list[str]:
    """Returns a warning for columns that are text because of their large numbers."""
    return [
        f"column {name!r} is text, because it holds numbers beyond float32 (at most "
        "3.4e38). To store numbers, declare it {dtype: float64, stored: tensor} in a "
        "schema file (`schema`)"
        for name in names[:_SHOWN_COLUMNS]
    ]


def long_warnings(issues: Sequence[RowIssue], names: Sequence[str]) -> list[str]:
    """Returns a warning for each of the first columns, and one for all others."""
    found = _long_columns(issues, names)
    warnings = [
        f"{each}: float32 may lose some of them. To keep them, declare the column "
        "{dtype: float64, stored: tensor} or string in a schema file (`schema`)"
        for each in found[:_WARNED_COLUMNS]
    ]
    if more := len(found) - len(warnings):
        warnings.append(
            f"{count(more, 'more column')} of float32 with numbers of more than "
            f"{_FLOAT32_DIGITS} digits"
        )
    return warnings


def exact_problem(issues: Sequence[RowIssue], names: Sequence[str]) -> str:
    """Returns the message of a run that may lose no digit, but could; or ""."""
    found = _long_columns(issues, names)
    if not found:
        return ""
    lines = [f"  {each}" for each in found[:_WARNED_COLUMNS]]
    if more := len(found) - len(lines):
        lines.append(f"  and {count(more, 'more column')}")
    return (
        f"float32 would lose digits of {count(len(found), 'column')}, and `exact` allows "
        "none:\n" + "\n".join(lines) + "\nDeclare these columns {dtype: float64, "
        "stored: tensor} or string in a schema file (`schema`), or leave out `exact`"
    )


def _long_columns(issues: Sequence[RowIssue], names: Sequence[str]) -> list[str]:
    found = {each.column: each for each in issues if each.code == _LONG}
    return [
        (f"column {name!r}: " if name else "other columns: ")
        + f"{count(found[name].count, 'value')} with more than {_FLOAT32_DIGITS} digits, "
        f"such as {found[name].example}"
        for name in (*names[:_COUNTED_COLUMNS], "")
        if name in found
    ]


_GROUPS = r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?"
_OTHER_GROUPS = (
    r"[+-]?[0-9]{1,3}(?:(?:\.[0-9]{3})+(?:,[0-9]+)?|(?:[' ][0-9]{3})+(?:[.,][0-9]+)?)"
)
_PATTERNS = {
    "plain": r"[+-]?[0-9]+",
    "point": r"[+-]?[0-9]*\.[0-9]+",
    "comma": r"[+-]?[0-9]*,[0-9]+",
    "groups": f"(?:{_GROUPS}|{_OTHER_GROUPS})",
}


def _marked_columns(first: FirstRows) -> tuple[RowIssue, ...]:
    """Returns the columns of text that look like numbers with marks in the first rows.

    A column whose only marks are commas before three digits (1,234) is taken for one
    with marks of thousands.
    """
    found: list[RowIssue] = []
    decimal = first.dialect.decimal
    for name, flags in zip(first.names, first_flags(first), strict=True):
        if not flags & TypeFlag.TEXT:
            continue
        cells = without_missing(first.cells[:_LOOKED_AT].column(name))
        kinds = {kind: _like(cells, _PATTERNS[kind]) for kind in _PATTERNS}
        alike = np.logical_or.reduce([*kinds.values()])[present(cells)]
        if np.count_nonzero(alike) < guess.SAME_SHARE * len(alike):
            continue
        grouped = _marks(cells, _THOUSANDS, decimal)
        commas = kinds["comma"] & ~grouped
        if decimal == "," or not commas.any() or kinds["point"].any():
            found += _counted(_THOUSANDS, name, cells, grouped)
        else:
            found += _counted(_COMMA, name, cells, kinds["comma"])
    return tuple(found[:_SHOWN_COLUMNS])


def _marks(cells: pa.StringArray, code: str, decimal: str) -> Mask:
    """Returns which cells look like numbers with such marks."""
    if code == _COMMA:
        return _like(cells, _PATTERNS["comma"])
    grouped = _like(cells, _PATTERNS["groups"])
    return grouped & ~_like(cells, _PATTERNS["point"]) if decimal == "." else grouped


def _like(cells: pa.StringArray, pattern: str) -> Mask:
    return matches(cells, f"^[ \t]*{pattern}[ \t]*$")


_MARKED = {
    _COMMA: "a decimal comma: cells like {}. If it is, use `decimal=comma`",
    _THOUSANDS: "marks of thousands: cells like {}. To store numbers, write them without",
}


def marked_warnings(issues: Sequence[RowIssue], decimal: str) -> list[str]:
    """Returns a warning for each such column, by the first rows or by all of them."""
    or_comma = "; if it is a decimal comma, use `decimal=comma`"
    return [
        f"column {each.column} is text, but looks like numbers with "
        + _MARKED[each.code].format(shown(each.example))
        + or_comma * (each.code == _THOUSANDS and decimal == ".")
        for each in issues
        if each.code in _MARKED
    ]


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
    types = dict(zip(first.names, first_flags(first), strict=True))
    quote = rows.dialect.quote
    problem, doubt = guess.header_doubts(first) if is_guessed else ("", "")
    found = [guess.misfit(first), guess.commented(first)] + [doubt] * infers_types
    if first.header and first.rows and len(first.names) == 1:
        if other := _other_delimiter(rows, file):
            found.append(
                f"{file.uri}: the header is the single column {shown(first.names[0])}, but "
                f"this looks like a table with `delimiter={other}`"
            )
    return Inspected(
        num_rows=min(first.cells.num_rows, _LOOKED_AT),
        types=tuple(types[name] for name in rows.names),
        warnings=tuple(filter(None, found)),
        has_quotes=bool(quote) and quote in first.text,
        marked=_marked_columns(first) if infers_types else (),
    ), guess.repeated_columns(first) or problem


def find_rows(
    files: Sequence[InputFile],
    asked: Dialect,
    asked_packing: AskedPacking,
    wanted: Sequence[str],
    storage: StorageOptions,
) -> RangeRows:
    """Returns the rows of files with bytes: their packing, dialect and columns are found.

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
        own, _ = read_header(read, file.uri, rows.dialect)
        names = names or own
        if set(own) != set(names):
            differ = columns_differ(file.uri, own, names)
            if other := _other_delimiter(rows, file, names):
                mark = name_of(rows.dialect.delimiter)
                differ += f". It seems to have {other} between its cells, not {mark}"
            raise InputError(differ)
    return replace(rows, names=names)


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
