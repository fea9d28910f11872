"""Makes of a job's options what is known of the dialect before a file is read."""

from __future__ import annotations

from itertools import combinations

from recordmill.schemas.errors import UsageError
from recordmill.transforms.sources.csv.dialect import RFC_4180, AskedDialect
from recordmill.transforms.sources.csv.header_row import split_row
from recordmill.transforms.sources.csv.options import CsvOptions
from recordmill.transforms.sources.packing import AskedPacking

PRESETS: dict[str, dict[str, str]] = {
    "auto": {},
    "excel": {"delimiter": ","},
    "excel-tab": {"delimiter": "\t"},
    "unix": {"delimiter": ","},
    "rfc4180": {"delimiter": ","},
    "mysql": {
        "delimiter": "\t",
        "quote": "none",
        "escape": "\\",
        "header": "none",
        "null_values": "\\N",
    },
}


def ask_dialect(options: CsvOptions) -> AskedDialect:
    """Returns what a person says of the dialect.

    Raises:
      UsageError: options exclude each other, or names of columns are not distinct.
    """
    options = with_preset(options)
    delimiter = "" if options.delimiter == "auto" else options.delimiter
    quote, escape, comment = (
        "" if mark == "none" else mark
        for mark in (options.quote, options.escape, options.comment)
    )
    _require_distinct(delimiter, quote, escape, comment)
    if options.decimal == "comma" and delimiter == "," and not quote:
        raise UsageError(
            "`delimiter` and `decimal` are both a comma; expected another `delimiter`, or "
            "a `quote` around the numbers"
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
        escape=escape.encode(),
        comment=comment.encode(),
        decimal="," if options.decimal == "comma" else ".",
    )


def with_preset(options: CsvOptions) -> CsvOptions:
    """Returns the options with those of the named dialect, where they say nothing."""
    said = options.model_dump(exclude_defaults=True)
    return CsvOptions.model_validate(PRESETS[options.dialect] | said)


def _require_distinct(delimiter: str, quote: str, escape: str, comment: str) -> None:
    """Checks that no character has two meanings.

    Raises:
      UsageError: one has.
    """
    marks = {
        "delimiter": delimiter,
        "quote": quote,
        "escape": escape,
        "comment": comment,
    }
    for (one, mark), (other, same) in combinations(marks.items(), 2):
        if mark and mark == same:
            raise UsageError(
                f"`{one}` and `{other}` are both {mark!r}; expected two characters, or "
                f"`{other}=none`"
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
