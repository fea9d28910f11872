"""Declares the input format audio and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from recordmill.schemas.errors import UsageError
from recordmill.transforms.audio.header import (
    audio_format,
    is_certain_audio,
    other_audio_format,
)
from recordmill.transforms.sources.images.options import (
    TABLE_ROWS,
    FileKind,
    FileOptions,
    describe_inputs,
)
from recordmill.transforms.sources.registry import SourceFormat, SourceRequest

if TYPE_CHECKING:
    from recordmill.transforms.sources.base import Source

COLUMNS = ("audio", "label", "sample_rate", "channels", "frames", "filename")


class AudioOptions(FileOptions):
    """Options of the input format audio."""

    kind: ClassVar[FileKind] = FileKind(
        "audio file",
        (".wav", ".wave", ".flac", ".ogg", ".oga", ".opus", ".mp3"),
        audio_format,
        is_certain_audio,
        other_audio_format,
        "WAV or FLAC",
        "unsupported-audio",
        "unlisted-audio",
    )

    table_rows: Literal["file", "object"] = Field("file", description=TABLE_ROWS)
    audio: Literal["encoded", "raw"] = Field(
        "encoded",
        description="encoded: store the audio files. raw: store int16 samples",
    )
    channels: int = Field(
        0,
        ge=0,
        description="number of channels with `audio=raw`; other files are rejected; 0: "
        "the number of the first file",
    )
    check_audio: Literal["structure", "decode"] = Field(
        "structure",
        description="how to check each file. structure: its header and its length. "
        "decode: decode every sample",
    )

    @property
    def column_names(self) -> Mapping[str, str]:
        return {name: name for name in COLUMNS}


DEFAULT_OPTIONS = AudioOptions.model_validate({})


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
