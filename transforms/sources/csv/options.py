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
