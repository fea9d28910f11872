"""Offers IDX files, such as those of MNIST, as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.idx.options import IdxOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(options: IdxOptions, as_text: bool, storage: StorageOptions) -> Source:
    """Makes the source of IDX files."""
    from recordmill.transforms.sources.arrays.source import ArraysSource
    from recordmill.transforms.sources.idx.find_idx import IdxFinder

    uses_splits = options.split_from == "auto"
    finder = IdxFinder(options.class_names)
    return ArraysSource(finder, uses_splits=uses_splits, storage=storage)


FORMAT = SourceFormat(
    name="idx",
    summary="MNIST and other IDX files, .gz too.",
    options=IdxOptions,
    make_source=make_source,
    position_unit="row",
    examples=(
        (
            "the folder with train-images-idx3-ubyte.gz and the others",
            "recordmill convert idx digits/idx out/mnist",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer idx digits/idx -o idx.yaml",
        ),
    ),
)
