"""Headers and structure of audio files; libsndfile as oracle."""

from __future__ import annotations

import io
import struct
import wave

import pytest
import soundfile
from sounds import FORMS, sound

from recordmill.transforms.audio.header import (
    AudioHeaderError,
    audio_format,
    is_certain_audio,
    other_audio_format,
    read_audio_header,
)


@pytest.mark.parametrize("rate", [8000, 24000, 48000])
@pytest.mark.parametrize(("frames", "channels"), [(1, 1), (300, 2), (30_000, 2)])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_those_of_libsndfile(
    form: str, frames: int, channels: int, rate: int
) -> None:
    data = sound(form, frames, channels, rate)
    known = soundfile.info(io.BytesIO(data))
    found = read_audio_header(data)
    assert found.file_format in form
    numbers = (known.samplerate, known.channels, known.frames)
    assert (found.sample_rate, found.channels, found.frames) == numbers


@pytest.mark.parametrize("rate", [11025, 12000, 16000, 22050, 32000, 44100])
def test_rates_of_mp3(rate: int) -> None:
    """All three versions of MPEG."""
    found = read_audio_header(sound("layer3.mp3", 3 * rate, 1, rate))
    assert (found.sample_rate, found.frames) == (rate, 3 * rate)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_anywhere(form: str) -> None:
    data = sound(form, 3000)
    ends = {*range(0, len(data) - 2, 97), *range(60), len(data) // 2, len(data) - 2}
    for end in ends - {len(data)}:
        with pytest.raises(AudioHeaderError):
            read_audio_header(data[:end])


def test_what_python_writes() -> None:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as out:
        out.setparams((2, 3, 16000, 0, "NONE", "NONE"))
        out.writeframes(bytes(6 * 5))
    found = read_audio_header(buffer.getvalue())
    assert found == ("wav", 16000, 2, 5, "|u3", 44)


def test_samples_of_20_bits_fill_24() -> None:
    data = bytearray(sound("24.wav", 10))
    data[34:36] = struct.pack("<H", 20)
    assert read_audio_header(bytes(data)).dtype == "|u3"


@pytest.mark.parametrize("form", ["16.flac", "layer3.mp3"])
def test_tags_around_it(form: str) -> None:
    """ID3 before and behind, and of MP3 the tags of APE."""
    data = sound(form)
    before = b"ID3\x04\0\0\0\0\x01\x02" + bytes(130)
    behind = b"TAG".ljust(128, b"\0")
    assert read_audio_header(before + data + behind) == read_audio_header(data)
    if form == "layer3.mp3":
        ape = b"APETAGEX" + bytes(90) + behind
        assert read_audio_header(data + ape) == read_audio_header(data)
        assert read_audio_header(data + bytes(999)) == read_audio_header(data)


def test_an_mp3_without_table_of_contents() -> None:
    """Its frames are counted, where libsndfile guesses: by the rate of the first."""
    whole = sound("layer3.mp3", 80_000, 2, 44100)
    second = whole.index(whole[:2], 4)
    found = read_audio_header(whole[second:])
    assert found.frames % 1152 == 0
    assert 80_000 <= found.frames < 80_000 + 3 * 1152
    with pytest.raises(AudioHeaderError, match="MP3 is cut short: "):
        read_audio_header(whole[second:-1])


def test_a_flac_of_unknown_length() -> None:
    """As encoders write to a pipe: the last frame tells it."""
    data = bytearray(sound("16.flac", 9000, 2, 44100))
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    assert read_audio_header(bytes(data)).frames == 9000


def test_a_flac_that_ends_earlier_than_it_says() -> None:
    data = sound("16.flac", 20_000)
    last = data.rfind(b"\xff\xf8")
    with pytest.raises(AudioHeaderError, match=r"FLAC is cut short: .* sample 20,000"):
        read_audio_header(data[:last])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not audio: has no bytes (expected WAV, FLAC, Ogg or MP3)"),
        (b"prose of some length", "not audio: starts with b'prose of '"),
        (b"RIFF....AVI LIST", "not audio: starts with b'RIFF....A'"),
        (b"RIFF....WAVE", "WAV is cut short: 12 bytes (expected a chunk 'data'"),
        (b"RIFF....WAVEdata\2\0\0\0ab", "WAV has no chunk 'fmt ' before its samples"),
        (sound("16.wav")[:500], "WAV is cut short: 500 bytes (expected 8,044: 8,000 of"),
        (b"OggS" + bytes(22) + b"\0", "Ogg is cut short: 27 bytes"),
        (b"OggS\0\4" + bytes(20) + b"\1\1x", "Ogg contains b'x' (expected Vorbis or Opus)"),
        (b"\xff\xfb\x90\xc0" + bytes(5000), "MP3 is damaged: 00 00 00 00 at byte 417"),
        (b"fLaC\x80\0\0\x04abcd", "flac ends inside its header after 12 bytes"),
        (sound("16.wav", 0), "wav of rate 8000, 1 channels and 0 frames (expected 1 or"),
    ],
)  # fmt: skip
def test_what_is_refused(data: bytes, told: str) -> None:
    with pytest.raises(AudioHeaderError) as error:
        read_audio_header(data)
    assert str(error.value).startswith(told)


def test_an_encoding_that_is_not_read() -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, [0.0] * 999, 8000, format="WAV", subtype="IMA_ADPCM")
    with pytest.raises(AudioHeaderError, match="WAV has encoding 0x11 of 4 bits"):
        read_audio_header(buffer.getvalue())


def test_formats_by_their_first_bytes() -> None:
    names = {form: audio_format(sound(form, 100)[:16]) for form in FORMS}
    assert all(name in form for form, name in names.items())
    assert not is_certain_audio(sound("layer3.mp3")[:16])
    assert is_certain_audio(sound("rf64.wav")[:16])
    buffer = io.BytesIO()
    soundfile.write(buffer, [0.0] * 99, 8000, format="AIFF")
    assert other_audio_format(buffer.getvalue()[:16]) == "AIFF"
    assert [audio_format(head) for head in (b"\xff\xfeUTF-16", b"\xff\xd8\xff")] == [
        "",
        "",
    ]
