"""The input format `images`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.images.options import FileOptions, ImagesOptions
from recordmill.transforms.sources.registry import SourceFormat, SourceRequest

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(options: ImagesOptions, request: SourceRequest) -> Source:
    """Creates the source of images; raises UsageError if options cannot be combined."""
    rules = options.pixel_rules()
    options.require_consistent()
    from recordmill.transforms.sources.images.source import ImagesSource

    return ImagesSource(
        options=options,
        storage=request.storage,
        schema_columns=request.columns if request.as_text else None,
        rules=rules,
    )


def describe_inputs(
    options: FileOptions, files: Sequence[InputFile], storage: StorageOptions
) -> str:
    """Returns a text that identifies the folder layout, for the run key.

    Only the names of files are used; files count as images if they have a usual ending.
    """
    from recordmill.transforms.inventory import Inventory
    from recordmill.transforms.sources.images.find import describe_folders

    return describe_folders(Inventory.from_files(files), options, storage)


FORMAT = SourceFormat(
    name="images",
    summary="A folder of images for each class.",
    options=ImagesOptions,
    make_source=make_source,
    describe_inputs=describe_inputs,
    examples=(
        (
            "a folder of images for each class",
            "recordmill convert images photos out/photos",
        ),
        (
            "a tenth for tests, in shards of 10 MB",
            "recordmill convert images photos out/split-photos --split train=0.9 \\\n    --split test=0.1 --shard-size 10MB",
        ),
        (
            "boxes of COCO",
            "recordmill convert images photos out/boxes --unlisted leave_out \\\n"
            "    --annotations labelled/instances.json",
        ),
        (
            "create a schema file as a starting point",
            "recordmill schema infer images photos -o photos.yaml",
        ),
    ),
)
