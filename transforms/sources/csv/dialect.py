"""Defines the dialect of CSV files: what stands between cells, around and before them."""

from __future__ import annotations

from dataclasses import dataclass

ROW_ENDS = b"\r\n"
_MASKS = b"xyzvw"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the text of CSV files is divided into rows and cells.

    Attributes:
      delimiter: the byte between cells; ASCII, so that no part of a character is one.
      quote: the byte around cells that hold delimiters or newlines; b"" for none.
      skip_rows: lines before the header, or before the first row if there is none.
      has_header: whether the first row names the columns.
      columns: their names where `has_header` is false; () to number them.
      null_values: texts that mean a missing value in every column, beside no text.
      escape: the byte before one that has no meaning then; b"" for none.
      comment: the byte that lines which are no rows begin with; b"" for none.
      decimal: what stands before the places of a number: "." or ",".
    """

    delimiter: bytes = b","
    quote: bytes = b'"'
    skip_rows: int = 0
    has_header: bool = True
    columns: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ()
    escape: bytes = b""
    comment: bytes = b""
    decimal: str = "."

    def __post_init__(self) -> None:
        marks = self.delimiter + self.quote + self.escape + self.comment
        parts = (self.quote, self.escape, self.comment)
        too_long = len(self.delimiter) != 1 or any(len(part) > 1 for part in parts)
        if too_long or not marks.isascii():
            raise ValueError(f"expected single ASCII bytes, got {self}")
        if len({*marks, *ROW_ENDS}) != len(marks) + len(ROW_ENDS):
            raise ValueError(f"all marks and row ends must differ, got {self}")
        if self.decimal not in (".", ","):
            raise ValueError(f"expected a point or a comma, got {self.decimal!r}")
        if self.columns and self.has_header:
            raise ValueError("names are given where there is no header")

    @property
    def field_ends(self) -> bytes:
        """Returns the bytes behind which a field begins."""
        return self.delimiter + ROW_ENDS

    @property
    def mask(self) -> bytes:
        """Returns a byte without a meaning."""
        marks = self.delimiter + self.quote + self.escape + self.comment
        return next(bytes([byte]) for byte in _MASKS if byte not in marks)


RFC_4180 = Dialect()
NAMES = {
    b",": "comma",
    b"\t": "tab",
    b";": "semicolon",
    b"|": "pipe",
    b" ": "space",
}


def name_of(delimiter: bytes) -> str:
    """Returns how a delimiter is called: "semicolon", or "'#'"."""
    return NAMES.get(delimiter) or repr(delimiter.decode())


@dataclass(frozen=True, slots=True)
class AskedDialect:
    """What a person says of the dialect; the rest is found in the first rows.

    Attributes:
      delimiter: the byte between cells; b"" to find it.
      quote, skip_rows, columns, null_values, escape, comment, decimal: as in `Dialect`.
      header: "first" (the first row behind `skip_rows`), "none", or "auto": the first
        row, unless it looks like one of the others.
    """

    delimiter: bytes = b""
    quote: bytes = b'"'
    skip_rows: int = 0
    header: str = "auto"
    columns: tuple[str, ...] = ()
    null_values: tuple[str, ...] = ()
    escape: bytes = b""
    comment: bytes = b""
    decimal: str = "."

    @property
    def marks(self) -> bytes:
        """Returns the bytes that cannot be the delimiter."""
        return self.quote + self.escape + self.comment

    @property
    def has_header(self) -> bool:
        """Tells whether the first row names the columns."""
        return self.header != "none" and not self.columns

    def with_delimiter(self, delimiter: bytes) -> Dialect:
        """Returns the dialect with what was found, where nothing was said."""
        return Dialect(
            delimiter=self.delimiter or delimiter,
            quote=self.quote,
            skip_rows=self.skip_rows,
            has_header=self.has_header,
            columns=self.columns,
            null_values=self.null_values,
            escape=self.escape,
            comment=self.comment,
            decimal=self.decimal,
        )


ASK_NOTHING = AskedDialect()
