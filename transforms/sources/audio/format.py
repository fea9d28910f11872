"""The input format `audio`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordmill.schemas.errors import UsageError
from recordmill.transforms.sources.audio.options import AudioOptions
from recordmill.transforms.sources.images.format import describe_inputs
from recordmill.transforms.sources.registry import SourceFormat, SourceRequest

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source


def make_source(options: AudioOptions, request: SourceRequest) -> Source:
    """Creates the source of audio files.

    Raises:
      UsageError: options cannot be combined.
    """
    options.require_consistent()
    if options.channels and options.audio != "raw":
        raise UsageError(
            "`channels` requires samples: use `audio=raw`, or leave it out"
        )
    from recordmill.transforms.sources.audio.source import AudioSource

    return AudioSource(
        options=options,
        storage=request.storage,
        schema_columns=request.columns if request.as_text else None,
    )


FORMAT = SourceFormat(
    name="audio",
    summary="A folder of audio files for each class.",
    options=AudioOptions,
    make_source=make_source,
    describe_inputs=describe_inputs,
    examples=(
        (
            "a folder of WAV, FLAC, Ogg or MP3 files for each class",
            "recordmill convert audio sounds out/sounds",
        ),
        (
            "the samples, a tenth of the files for tests",
            "recordmill convert audio sounds out/waves --audio raw \\\n"
            "    --split train=0.9 --split test=0.1",
        ),
        (
            "create a schema file as a starting point",
            "recordmill schema infer audio sounds -o sounds.yaml",
        ),
    ),
)
