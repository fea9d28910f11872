"""Samples of 16 bits; libsndfile as oracle where it does the same."""

from __future__ import annotations

import io
import struct
import sys

import numpy as np
import pytest
import soundfile
from sounds import FORMS, sound, wave

from recordmill.schemas.errors import UsageError
from recordmill.transforms.audio.header import AudioHeaderError, read_audio_header
from recordmill.transforms.audio.samples import decode_samples

LOSSY = ("vorbis.ogg", "opus.ogg", "layer3.mp3")


def samples(data: bytes) -> np.ndarray:
    header = read_audio_header(data)
    found = np.frombuffer(decode_samples(data, header), "<i2")
    return found.reshape(header.frames, header.channels)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_samples_are_those_of_libsndfile(form: str, channels: int) -> None:
    data = sound(form, 3000, channels)
    known, _ = soundfile.read(io.BytesIO(data), dtype="int16", always_2d=True)
    if form in ("float.wav", "double.wav"):  # which it does not scale
        stored = wave(3000, channels).astype("f4" if form == "float.wav" else "f8")
        known = np.rint(stored * 32768).astype(np.int16)
    apart = np.abs(samples(data).astype(int) - known).max()
    assert apart <= (form in LOSSY)  # they are rounded in another way


def test_floats_are_rounded_and_kept_within_16_bits() -> None:
    data = bytearray(sound("float.wav", 6))
    values = (1.0, -1.0, -7.0, 0.5, 1.5 / 32768, 2.5 / 32768)
    data[-24:] = struct.pack("<6f", *values)
    expected = [32767, -32768, -32768, 16384, 2, 2]
    assert samples(bytes(data))[:, 0].tolist() == expected
    data[-4:] = struct.pack("<f", float("nan"))
    with pytest.raises(AudioHeaderError, match="samples that are not numbers"):
        samples(bytes(data))


def test_damage_in_the_middle() -> None:
    """Which the structure does not show."""
    data = bytearray(sound("16.flac", 20_000))
    data[len(data) // 2] ^= 0xFF
    header = read_audio_header(bytes(data))
    with pytest.raises(AudioHeaderError, match=r"flac cannot be decoded: "):
        decode_samples(bytes(data), header)


def test_other_frames_than_the_header_says() -> None:
    data = sound("layer3.mp3")
    header = read_audio_header(data)._replace(frames=3999)
    with pytest.raises(AudioHeaderError, match="decodes to 3,999 frames") as error:
        decode_samples(data, header._replace(sample_rate=16000))
    assert "at 8000 Hz (expected 3,999 of 1 at 16000, as stored)" in str(error.value)


def test_more_samples_than_a_record_can_hold() -> None:
    header = read_audio_header(sound("16.flac"))._replace(frames=1 << 30, channels=2)
    with pytest.raises(AudioHeaderError, match="2,147,483,648 samples has more than"):
        decode_samples(b"", header)


def test_soundfile_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert len(samples(sound_of_wav)) == 100
    with pytest.raises(UsageError, match="pip install soundfile"):
        samples(sound_of_flac)


sound_of_wav, sound_of_flac = sound("16.wav", 100), sound("16.flac", 100)
