"""Offers folders of images as an input format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.images.pixel_options import pixel_rules
from recordmill.transforms.sources.registry import SourceFormat

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source
    from recordmill.transforms.sources.images.source import ImagesSource


def make_source(
    options: ImagesOptions, as_text: bool, storage: StorageOptions
) -> Source:
    """Makes the source of image folders.

    Raises:
      UsageError: options exclude each other.
    """
    rules = pixel_rules(options, options.undecodable)
    from recordmill.transforms.sources.images import source
    from recordmill.transforms.sources.images.asked_labels import ask_labels
    from recordmill.transforms.sources.images.pixel_images import PixelImages
    from recordmill.transforms.sources.images.reencoded_images import ReencodedImages

    kind: Callable[..., ImagesSource] = source.ImagesSource
    if options.undecodable == "reencode":
        kind = ReencodedImages
    if rules is not None:
        kind = partial(PixelImages, rules=rules)
    # What is made anew is decodable, whatever the file was.
    makes_all = rules is not None and rules.makes_all
    return kind(
        feature_names=options.feature_names,
        check_pictures=options.check_pictures,
        max_pixels=options.max_pixels,
        undecodable="reencode" if makes_all else options.undecodable,
        split_from=options.split_from,
        label_from=options.label_from,
        storage=storage,
        asked=ask_labels(options, as_text=as_text),
    )


def describe_inputs(options: ImagesOptions, files: Sequence[InputFile]) -> str:
    """Returns how the folders are read, by the files that are named as pictures.

    The others are not read for it: one inventory has one content.
    """
    from recordmill.transforms.sources.images.asked_labels import ask_labels
    from recordmill.transforms.sources.images.find_layout import describe_folders
    from recordmill.transforms.sources.images.read_noted import describe_noted

    asked = ask_labels(options, as_text=False)
    if asked is not None:
        levels = (options.split_from, options.label_from)
        return describe_noted(files, asked, levels)
    return describe_folders(
        files, split_from=options.split_from, label_from=options.label_from
    )


FORMAT = SourceFormat(
    name="images",
    summary="A folder of pictures for each class.",
    options=ImagesOptions,
    make_source=make_source,
    describe_inputs=describe_inputs,
    examples=(
        (
            "a folder of pictures for each class",
            "recordmill convert images photos out/photos",
        ),
        (
            "a tenth for tests, in shards of 10 MB",
            "recordmill convert images photos out/split-photos --split train=0.9 \\\n    --split test=0.1 --shard-size 10MB",
        ),
        (
            "a schema file to begin with",
            "recordmill schema infer images photos -o photos.yaml",
        ),
    ),
)
