"""Offers WebDataset shards as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.source_options import SourceOptions
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: SourceOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of WebDataset shards."""
    from recordmill.transforms.sources.webdataset.source import WebDatasetSource

    return WebDatasetSource(as_declared=as_text, storage=storage)


FORMAT = SourceFormat(
    name="webdataset",
    summary="WebDataset: the samples in tar shards.",
    options=SourceOptions,
    make_source=make_source,
    examples=(
        (
            "all shards of a folder",
            "recordmill convert webdataset samples out/samples",
        ),
        (
            "a tenth of the samples for tests, at most five bad ones",
            "recordmill convert webdataset 'samples/*.tar' out/split-samples \\\n"
            "    --split train=0.9 --split test=0.1 --max-rejects 5",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer webdataset samples -o samples.yaml",
        ),
    ),
)
