"""Defines the dialect of CSV files: what stands between cells, around and before them."""

from __future__ import annotations

from dataclasses import dataclass

ROW_ENDS = b"\r\n"
_MASKS = b"xyzvw"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the text of CSV files is divided into rows and cells.

    Attributes:
      delimiter: the byte between cells; ASCII, so that no part of a character is one;
        b"" until it is found in the first rows.
      quote: the byte around cells that hold delimiters or newlines; b"" for none.
      skip_rows: lines before the header, or before the first row if there is none.
      header: "first" (the first row behind `skip_rows`), "none", or "auto": the first
        row, unless it looks like one of the others.
      columns: names of the columns of a table without header; () to number them.
      null_values: texts that mean a missing value in every column, beside no text.
      escape: the byte before one that has no meaning then; b"" for none.
      comment: the byte that lines which are no rows begin with; b"" for none.
      decimal: what stands before the places of a number: "." or ",".
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
    def has_header(self) -> bool:
        """Tells whether the first row names the columns."""
        return self.header != "none" and not self.columns

    @property
    def marks(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Returns the bytes with a meaning beside row ends."""
        return self.delimiter, self.quote, self.escape, self.comment

    @property
    def field_ends(self) -> bytes:
        """Returns the bytes behind which a field begins."""
        return self.delimiter + ROW_ENDS

    @property
    def mask(self) -> bytes:
        """Returns a byte without a meaning."""
        marks = b"".join(self.marks)
        return next(bytes([byte]) for byte in _MASKS if byte not in marks)


RFC_4180 = Dialect(b",")
FIND_DIALECT = Dialect()
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
