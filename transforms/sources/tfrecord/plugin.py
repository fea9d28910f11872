"""Offers TFRecord files as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat
from recordmill.transforms.sources.tfrecord.options import TfrecordOptions

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: TfrecordOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of TFRecord files."""
    from recordmill.transforms.sources.tfrecord.source import TfrecordSource

    return TfrecordSource(
        records=options.records, split_from=options.split_from, storage=storage
    )


FORMAT = SourceFormat(
    name="tfrecord",
    summary="TFRecord files that are there already.",
    options=TfrecordOptions,
    make_source=make_source,
    examples=(
        (
            "the same records, shuffled, in shards of 64 MiB",
            "recordmill convert tfrecord shards out/again --shard-size 64MiB",
        ),
        (
            "other splits, whatever the names of the files say",
            "recordmill convert tfrecord shards out/split-again --split-from none \\\n"
            "    --split train=0.9 --split test=0.1",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer tfrecord shards -o shards.yaml",
        ),
        (
            "the records decoded, and cast as the schema file says",
            "recordmill convert tfrecord shards out/cast --records decode \\\n"
            "    --schema shards.yaml",
        ),
    ),
)
