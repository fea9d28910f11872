"""Offers CSV files as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: SourceOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of CSV files; without a declared schema it infers types."""
    from recordmill.transforms.sources.csv.source import CsvSource

    return CsvSource(as_text=as_text, storage=storage)


FORMAT = SourceFormat(
    name="csv",
    summary="CSV files with a header; types are inferred.",
    options=SourceOptions,
    make_source=make_source,
)
