"""Offers NumPy files as an input format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.numpy_files.options import NumpyOptions
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(
    options: NumpyOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of NumPy files."""
    from recordmill.transforms.sources.arrays.source import ArraysSource
    from recordmill.transforms.sources.numpy_files.find_arrays import NumpyFinder

    uses_splits = options.split_from == "auto"
    finder = NumpyFinder(options.label_array, options.class_names)
    return ArraysSource(finder, uses_splits=uses_splits, storage=storage)


FORMAT = SourceFormat(
    name="numpy",
    summary="Arrays of rows in .npy and .npz files.",
    options=NumpyOptions,
    make_source=make_source,
    position_unit="row",
    examples=(
        (
            "images.npy and labels.npy in a folder, with names of the classes",
            "recordmill convert numpy digits/numpy out/arrays --class-names names.txt",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer numpy digits/numpy -o numpy.yaml",
        ),
    ),
)
