"""Audio files of all formats, written by libsndfile."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
import soundfile

# Format and subtype, as soundfile calls them.
FORMS = {
    "u8.wav": ("WAV", "PCM_U8"),
    "16.wav": ("WAV", "PCM_16"),
    "24.wav": ("WAV", "PCM_24"),
    "32.wav": ("WAV", "PCM_32"),
    "float.wav": ("WAV", "FLOAT"),
    "double.wav": ("WAV", "DOUBLE"),
    "ulaw.wav": ("WAV", "ULAW"),
    "alaw.wav": ("WAV", "ALAW"),
    "extensible.wav": ("WAVEX", "PCM_24"),
    "rf64.wav": ("RF64", "PCM_16"),
    "8.flac": ("FLAC", "PCM_S8"),
    "16.flac": ("FLAC", "PCM_16"),
    "24.flac": ("FLAC", "PCM_24"),
    "vorbis.ogg": ("OGG", "VORBIS"),
    "opus.ogg": ("OGG", "OPUS"),
    "layer3.mp3": ("MP3", "MPEG_LAYER_III"),
}


def wave(
    frames: int = 4000, channels: int = 1, rate: int = 8000
) -> npt.NDArray[np.float64]:
    """A rising tone with some noise."""
    seconds = np.arange(frames) / rate
    tone = 0.4 * np.sin(2 * np.pi * 440 * seconds * (1 + seconds))
    noise = np.random.default_rng(frames).standard_normal((frames, channels))
    return np.clip(tone[:, None] + 0.05 * noise, -0.9, 0.9)


def sound(form: str, frames: int = 4000, channels: int = 1, rate: int = 8000) -> bytes:
    """The bytes of a file in one of FORMS."""
    buffer = io.BytesIO()
    kind, subtype = FORMS[form]
    data = wave(frames, channels, rate)
    soundfile.write(buffer, data, rate, format=kind, subtype=subtype)
    return buffer.getvalue()
