"""Offers Parquet files as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: SourceOptions,  # noqa: ARG001 (there are none)
    as_text: bool,
    storage: StorageOptions,
) -> Source:
    """Makes the source of Parquet files."""
    from recordmill.transforms.sources.columnar.source import ColumnarSource

    return ColumnarSource(kind="parquet", as_declared=as_text, storage=storage)


FORMAT = SourceFormat(
    name="parquet",
    summary="Parquet files (.parquet).",
    options=SourceOptions,
    make_source=make_source,
    position_unit="row",
    examples=(
        (
            "a folder of tables with the same columns",
            "recordmill convert parquet tables out/rows",
        ),
        (
            "for ten hosts, a tenth of the rows for tests",
            "recordmill convert parquet tables out/hosts --readers 10 \\\n    --split train=0.9 --split test=0.1",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer parquet tables -o tables.yaml",
        ),
    ),
)
