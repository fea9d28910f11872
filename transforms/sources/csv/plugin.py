"""Offers CSV files as an input format, and declares its options."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError
from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.sources.registry import Request, SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


DELIMITERS = {
    "comma": ",",
    "tab": "\t",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
    "\\t": "\t",  # as it is typed in a shell
}


MARKS = {"backslash": "\\"}


def _one_mark(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _delimiter(text: str) -> str:
    found = DELIMITERS.get(text, text)
    if text == "auto" or (_one_mark(found) and found != '"'):
        return found
    words = ", ".join(name for name in DELIMITERS if name.isalpha())
    raise ValueError(f"expected auto, {words} or one ASCII character, found {text!r}")


def _mark(text: str) -> str:
    found = MARKS.get(text, text)
    if text == "none" or _one_mark(found):
        return found
    raise ValueError(f"expected none or one ASCII character, found {text!r}")


def _quote(text: str) -> str:
    if text == "none" or _one_mark(text):
        return text
    raise ValueError(f"expected none or one ASCII character, found {text!r}")


def _encoding(text: str) -> str:
    if text == "auto":
        return text
    try:
        found = codecs.lookup(text)
        codecs.getincrementaldecoder(text)
        if isinstance("".encode(found.name), bytes):
            return found.name.replace("utf-8-sig", "utf-8")
    except (LookupError, ValueError):
        pass
    raise ValueError(
        f"expected auto or an encoding of text that Python knows, such as utf-16, "
        f"latin-1 or cp1252, found {text!r}"
    )


def _as_text(value: Any) -> Any:
    """Takes a list of texts, as YAML has them, for one."""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    return value


_TEXTS = BeforeValidator(_as_text, json_schema_input_type=str | list[str])
InputCompression = Literal["auto", "none", "gzip", "bz2", "xz", "zstd"]
Header = Literal["auto", "first", "none"]
Preset = Literal["auto", "excel", "excel-tab", "unix", "rfc4180", "mysql"]


class CsvOptions(SourceOptions):
    """Options of CSV files."""

    dialect: Preset = Field(
        "auto",
        description="a dialect by its name, where options do not say otherwise: comma or "
        "tab, with quotes; mysql: tab, backslash, \\N, neither quotes nor header",
    )
    delimiter: Annotated[str, AfterValidator(_delimiter)] = Field(
        "auto",
        description="what stands between cells: comma, tab, semicolon, pipe, space or "
        "one character; auto finds it in the first rows",
    )
    quote: Annotated[str, AfterValidator(_quote)] = Field(
        '"',
        description="the character around cells that hold delimiters or newlines, or "
        "none",
    )
    escape: Annotated[str, AfterValidator(_mark)] = Field(
        "none",
        description="the character that takes the meaning of the one behind it: "
        "backslash, another one, or none",
    )
    comment: Annotated[str, AfterValidator(_mark)] = Field(
        "none",
        description="lines that begin with this character are left out; none: no lines are",
    )
    decimal: Literal["point", "comma"] = Field(
        "point", description="what stands before the places of numbers: 1.5 or 1,5"
    )
    header: Header = Field(
        "auto",
        description="first: the first line names the columns; none: it is a row; auto: "
        "as first, but refused where it looks like a row",
    )
    columns: Annotated[str, _TEXTS] = Field(
        "",
        description="names of the columns of a table without header, with commas "
        "between: id,price",
    )
    null_values: Annotated[str, _TEXTS] = Field(
        "",
        description="texts that mean a missing value in every column, with commas "
        "between; among numbers the usual ones (NA, null, ...) always do",
    )
    skip_rows: int = Field(
        0, ge=0, le=100_000, description="lines before the header, which are left out"
    )
    encoding: Annotated[str, AfterValidator(_encoding)] = Field(
        "auto",
        description="of the text, as Python calls it: utf-8, utf-16, latin-1, cp1252; "
        "auto is utf-8, or what the byte order mark says",
    )
    input_compression: InputCompression = Field(
        "auto",
        description="of the files; auto finds it in their first bytes",
    )
    exact: bool = Field(
        False,
        description="publish nothing if float32 would lose digits of a decimal, instead "
        "of telling so",
    )
    files_root: str = Field(
        "",
        description="folder or URL that the paths in columns with `bytes_from: path` are "
        "relative to, in place of the table's folder; no file outside it is read",
    )


def make_source(options: CsvOptions, request: Request) -> Source:
    """Makes the source of CSV files; without a declared schema it infers types.

    Raises:
      UsageError: options exclude each other.
    """
    as_text = request.as_text
    if options.exact and as_text:
        raise UsageError(
            "`exact` and `schema` exclude each other: a declared float32 rounds. Leave "
            "out `exact`, and declare float64 where digits matter"
        )
    if options.decimal == "comma" and as_text:
        raise UsageError(
            "`decimal` and `schema` exclude each other: declare `decimal: comma` for each "
            "such feature in the schema file, and leave out `decimal`"
        )
    if options.files_root and not as_text:
        raise UsageError(
            "`files_root` needs `schema`: declare which column names files, for example "
            "{features: {image: {column: path, bytes_from: path}}}"
        )
    from recordmill.transforms.sources.csv.header import ask_dialect, ask_packing
    from recordmill.transforms.sources.csv.source import CsvSource
    from recordmill.transforms.storage.reading import full_uri

    return CsvSource(
        as_text=as_text,
        asked=ask_dialect(options),
        asked_packing=ask_packing(options),
        exact=options.exact,
        wanted=request.columns,
        names_files=request.names_files,
        storage=request.storage,
        files_root=full_uri(options.files_root) if options.files_root else "",
    )


def line_of(read: Callable[[int, int], bytes], offset: int) -> int:
    """Returns the number of the line that a byte offset of a file is in."""
    from recordmill.transforms.sources.csv import quotes

    return quotes.line_of(read, offset)


FORMAT = SourceFormat(
    name="csv",
    summary="Tables of text: CSV, TSV and the like; types are inferred.",
    options=CsvOptions,
    make_source=make_source,
    line_of=line_of,
    examples=(
        (
            "the types are found in the whole table",
            "recordmill convert csv table.csv out/table",
        ),
        (
            "what would happen, and nothing else",
            "recordmill convert csv table.csv out/table --plan",
        ),
        (
            "a tenth for tests; up to one row in a hundred may be wrong",
            "recordmill convert csv table.csv out/split --split train=0.9 \\\n    --split test=0.1 --max-rejects 1%",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer csv table.csv -o schema.yaml",
        ),
        (
            "with the types that a file declares",
            "recordmill convert csv table.csv out/typed --schema schema.yaml",
        ),
    ),
)
