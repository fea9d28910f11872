"""Offers the cropped digits of SVHN as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.registry import SourceFormat
from recordmill.transforms.sources.svhn.options import SvhnOptions

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(options: SvhnOptions, as_text: bool, storage: StorageOptions) -> Source:
    """Makes the source of SVHN's files."""
    from recordmill.transforms.sources.arrays.source import ArraysSource
    from recordmill.transforms.sources.svhn.find_digits import SvhnFinder

    uses_splits = options.split_from == "auto"
    return ArraysSource(SvhnFinder(), uses_splits=uses_splits, storage=storage)


FORMAT = SourceFormat(
    name="svhn",
    summary="SVHN's cropped digits (train_32x32.mat and the others).",
    options=SvhnOptions,
    make_source=make_source,
    position_unit="row",
    examples=(
        (
            "a folder with train_32x32.mat and the others",
            "recordmill convert svhn digits/svhn out/svhn",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer svhn digits/svhn -o svhn.yaml",
        ),
    ),
)
