"""Declares the input format audio and its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from recordmill.transforms.audio.header import (
    audio_format,
    is_certain_audio,
    other_audio_format,
)
from recordmill.transforms.sources.images.options import (
    TABLE_ROWS,
    FileKind,
    FileOptions,
)

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
