"""The input format `text`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.images.format import (
    describe_inputs as describe_whole_files,
)
from recordmill.transforms.sources.registry import (
    SourceFormat,
    SourceRequest,
    describe_names,
    import_later,
)
from recordmill.transforms.sources.text_files.options import TextOptions

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(options: TextOptions, request: SourceRequest) -> Source:
    """Creates the source of lines or of whole files."""
    options.require_consistent()
    if options.whole_files:
        from recordmill.transforms.sources.text_files.source import TextFilesSource

        columns = request.columns if request.as_text else None
        return TextFilesSource(options, request.storage, schema_columns=columns)
    from recordmill.transforms.sources.lines import TextSource

    return TextSource(
        keeps_blank_lines=options.blank_lines == "keep",
        splits=request.file_splits(options.split_from),
        partitions=request.partitions(options.partitions),
        requested_columns=request.columns if request.as_text else (),
        storage=request.storage,
    )


def describe_inputs(
    options: TextOptions, files: Sequence[InputFile], storage: StorageOptions
) -> str:
    """Returns a description of the classes and splits in names of files and folders."""
    if options.whole_files:
        return describe_whole_files(options, files, storage)
    return describe_names(options, files)


FORMAT = SourceFormat(
    name="text",
    summary="Text: a record for each line, or for each file (.txt).",
    options=TextOptions,
    describe_inputs=describe_inputs,
    make_source=make_source,
    line_of=import_later("csv.quotes.count_lines"),
    examples=(
        ("every line, also blank ones", "recordmill convert text prose out/prose"),
        (
            "without blank lines, a tenth for tests",
            "recordmill convert text prose out/lines --blank-lines skip \\\n"
            "    --split train=0.9 --split test=0.1",
        ),
        (
            "a record for each file, in a folder for each class",
            "recordmill convert text reviews out/reviews --whole-files",
        ),
        (
            "create a schema file as a starting point",
            "recordmill schema infer text prose -o prose.yaml",
        ),
    ),
)
