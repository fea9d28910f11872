"""Declares the options of CSV files."""

from __future__ import annotations

from pydantic import Field

from recordmill.schemas.job.source_options import SourceOptions


class CsvOptions(SourceOptions):
    """Options of CSV files."""

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
