"""Offers binary files with records of a fixed length as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.binary.options import BinaryOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: BinaryOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of binary files."""
    from recordmill.transforms.sources.arrays.source import ArraysSource
    from recordmill.transforms.sources.binary.find_records import BinaryFinder

    finder = BinaryFinder(
        options.record,
        options.byte_order,
        options.header_bytes,
        options.class_names,
        options.layout,
    )
    uses_splits = options.split_from == "auto"
    return ArraysSource(finder, uses_splits=uses_splits, storage=storage)


FORMAT = SourceFormat(
    name="binary",
    summary="Records of a fixed length, as declared; STL-10.",
    options=BinaryOptions,
    make_source=make_source,
    examples=(
        (
            "a label and an image in planes, in files like data_batch_1.bin",
            "recordmill convert binary batches out/planes \\\n"
            "    --record 'label:u8,image:u8[3,32,32]:chw->hwc' \\\n"
            "    --class-names batches.meta.txt",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer binary batches -o binary.yaml --record \\\n    'label:u8,image:u8[3,32,32]:chw->hwc'",
        ),
    ),
)
