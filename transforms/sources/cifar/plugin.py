"""Offers CIFAR-10 and CIFAR-100 binary files as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.cifar.options import CifarOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: CifarOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of CIFAR binary files."""
    from recordmill.transforms.sources.cifar.source import CifarSource

    return CifarSource(variant=options.variant, storage=storage)


FORMAT = SourceFormat(
    name="cifar",
    summary="CIFAR-10 and CIFAR-100 binary files (.bin).",
    options=CifarOptions,
    make_source=make_source,
    examples=(
        (
            "the folder with data_batch_1.bin and the others",
            "recordmill convert cifar batches out/digits",
        ),
        (
            "for ten hosts, compressed",
            "recordmill convert cifar batches out/gzip --readers 10 --compression gzip",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer cifar batches -o digits.yaml",
        ),
    ),
)
