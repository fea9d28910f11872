"""Decodes audio files to samples of 16 bits.

Uncompressed WAV is read by NumPy, other files by the package soundfile (libsndfile). For
samples with more bits, the upper 16 are used, as in libsndfile. Floats, and the output of
lossy formats, are multiplied by 32,768, rounded to the nearest integer (halves to even)
and clipped to 16 bits.
"""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import UsageError
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.audio.header import AudioHeader, AudioHeaderError

SAMPLE_BYTES: Final = 2
_SCALE: Final = 1 << 15
_BLOCK: Final = 1 << 20


def require_soundfile() -> ModuleType:
    """Imports soundfile; raises UsageError with advice if it is missing."""
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: its C library is missing
        raise UsageError(
            f"soundfile decodes FLAC, Ogg and MP3, and cannot be imported ({error}): "
            "pip install soundfile"
        ) from error
    return soundfile  # type: ignore[no-any-return]


def decoder_clause() -> str:
    """Returns the version of the decoder of all formats but WAV, as a clause; or "".

    Other versions may decode to other bytes.
    """
    try:
        return f", by libsndfile {require_soundfile().__libsndfile_version__}"
    except UsageError:
        return ""


def decode_samples(data: bytes, header: AudioHeader) -> bytes:
    """Returns the samples of a file as little-endian int16, frame after frame.

    Raises:
      AudioHeaderError: the file cannot be decoded, or does not match its header.
    """
    total = header.frames * header.channels
    if total * SAMPLE_BYTES > MAX_CELL_BYTES:
        raise AudioHeaderError(
            f"{header.file_format} of {total:,} samples has more than a record can contain "
            f"({MAX_CELL_BYTES:,} bytes)"
        )
    if not header.dtype:
        return _decode(data, header)
    width = int(header.dtype[2])
    part = data[header.data_offset : header.data_offset + total * width]
    if header.dtype[1] == "f":
        return _scale_samples(np.frombuffer(part, header.dtype))
    if width == 1:  # unsigned: the middle is 128
        centered = np.frombuffer(part, np.int8).astype("<i2") << 8
        return (centered ^ -_SCALE).astype("<i2").tobytes()
    return np.frombuffer(part, np.uint8).reshape(-1, width)[:, -2:].tobytes()


def _decode(data: bytes, header: AudioHeader) -> bytes:
    soundfile = require_soundfile()
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            is_exact = file.subtype in ("PCM_S8", "PCM_16", "PCM_24", "ULAW", "ALAW")
            dtype = "int16" if is_exact else "float32"
            samples = file.read(header.frames, dtype=dtype, always_2d=True)
            rate = file.samplerate
    except (soundfile.LibsndfileError, RuntimeError, ValueError) as error:
        raise AudioHeaderError(
            f"{header.file_format} cannot be decoded: {str(error).rpartition(': ')[2]}"
        ) from error
    if (rate, *samples.shape) != (header.sample_rate, header.frames, header.channels):
        raise AudioHeaderError(
            f"{header.file_format} decodes to {len(samples):,} frames of {samples.shape[1]} "
            f"channels at {rate} Hz (expected {header.frames:,} of {header.channels} "
            f"at {header.sample_rate}, as stored)"
        )
    return samples.astype("<i2").tobytes() if is_exact else _scale_samples(samples)


def _scale_samples(samples: npt.NDArray[Any]) -> bytes:
    parts = []
    for start in range(
        0, len(samples), _BLOCK
    ):  # in blocks, to limit the size of copies
        block = samples[start : start + _BLOCK]
        if not np.isfinite(block).all():
            raise AudioHeaderError("has samples that are not numbers (NaN or infinite)")
        scaled = np.rint(block.clip(-1, 1) * np.float32(_SCALE))
        parts.append(np.minimum(scaled, _SCALE - 1).astype("<i2").tobytes())
    return b"".join(parts)
