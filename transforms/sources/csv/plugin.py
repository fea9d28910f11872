"""Offers CSV files as an input format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recordmill.schemas.errors import UsageError
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.csv.options import CsvOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(options: CsvOptions, as_text: bool, storage: StorageOptions) -> Source:
    """Makes the source of CSV files; without a declared schema it infers types.

    Raises:
      UsageError: options exclude each other.
    """
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
    from recordmill.transforms.sources.csv.ask_dialect import ask_dialect, ask_packing
    from recordmill.transforms.sources.csv.source import CsvSource
    from recordmill.transforms.storage.reading import full_uri

    return CsvSource(
        as_text=as_text,
        asked=ask_dialect(options),
        asked_packing=ask_packing(options),
        exact=options.exact,
        storage=storage,
        files_root=full_uri(options.files_root) if options.files_root else "",
    )


def line_of(read: Callable[[int, int], bytes], offset: int) -> int:
    """Returns the number of the line that a byte offset of a file is in."""
    from recordmill.transforms.sources.csv import broken_rows

    return broken_rows.line_of(read, offset)


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
