"""Makes of a job's options what is known of the dialect before a file is read."""

from __future__ import annotations

from recordmill.schemas.errors import UsageError
from recordmill.transforms.sources.csv.dialect import RFC_4180, AskedDialect
from recordmill.transforms.sources.csv.header_row import split_row
from recordmill.transforms.sources.csv.options import CsvOptions
from recordmill.transforms.sources.packing import AskedPacking


def ask_dialect(options: CsvOptions) -> AskedDialect:
    """Returns what a person says of the dialect.

    Raises:
      UsageError: options exclude each other, or names of columns are not distinct.
    """
    delimiter = "" if options.delimiter == "auto" else options.delimiter
    quote = "" if options.quote == "none" else options.quote
    if quote and delimiter == quote:
        raise UsageError(
            f"`delimiter` and `quote` are both {quote!r}; expected two characters, or "
            "`quote=none`"
        )
    columns = _names(options.columns)
    nulls = split_row(options.null_values.encode(), RFC_4180)
    if nulls is None:
        raise UsageError(
            f"`null_values`: a quote is not closed in {options.null_values}"
        )
    if columns and options.header == "first":
        raise UsageError(
            "`columns` and `header=first` exclude each other: `columns` names those of a "
            "table without header. To replace a header, use `skip_rows=1` and leave out "
            "`header`"
        )
    return AskedDialect(
        delimiter=delimiter.encode(),
        quote=quote.encode(),
        skip_rows=options.skip_rows,
        header=options.header,
        columns=columns,
        null_values=tuple(filter(None, nulls)),
    )


def ask_packing(options: CsvOptions) -> AskedPacking:
    """Returns what a person says of the files' compression and encoding."""
    compression = {"auto": None, "none": ""}
    return AskedPacking(
        compression.get(options.input_compression, options.input_compression),
        None if options.encoding == "auto" else options.encoding,
    )


def _names(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    cells = split_row(text.encode(), RFC_4180)
    names = tuple(name.strip() for name in cells or ())
    if not all(names) or len(set(names)) != len(names):
        raise UsageError(
            f"`columns`: expected names that differ, with commas between, found {text!r}"
        )
    return names
