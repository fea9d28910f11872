"""Offers Arrow IPC files as an input format."""

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
    """Makes the source of Arrow IPC files."""
    from recordmill.transforms.sources.columnar.source import ColumnarSource

    return ColumnarSource(kind="arrow", as_declared=as_text, storage=storage)


FORMAT = SourceFormat(
    name="arrow",
    summary="Arrow IPC files (.arrow, .feather of version 2).",
    options=SourceOptions,
    make_source=make_source,
    position_unit="row",
    examples=(
        (
            "a folder of tables with the same columns",
            "recordmill convert arrow frames out/frames",
        ),
        (
            "for ten hosts, a tenth of the rows for tests",
            "recordmill convert arrow frames out/hosts-frames --readers 10 \\\n    --split train=0.9 --split test=0.1",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer arrow frames -o frames.yaml",
        ),
    ),
)
