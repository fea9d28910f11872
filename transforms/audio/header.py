"""Reads the header of an audio file, and finds truncated files, without decoding.

The format is recognized by content, never by file name. The checks detect interrupted
copies:

    WAV   the data chunk fits in the file
    FLAC  the last frame ends with its CRC, and its last sample matches the header
    Ogg   the last page is whole, and marked as the end of the stream
    MP3   each frame begins at the end of the previous one; the size matches a Xing header

Numbers of frames are the same as in libsndfile (see
tests/unit/audio/test_audio_header.py). A frame has one sample of each channel; the blocks
of MP3 and FLAC are also called frames.
"""

from __future__ import annotations

import re
import struct
from functools import cache
from typing import Final, NamedTuple

_SIGNATURE: Final = re.compile(
    rb"(?P<wav>(RIFF|RF64)....WAVE)|(?P<flac>fLaC)|(?P<ogg>OggS\0)"
    rb"|(?P<id3>ID3[\2-\4])|(?P<mp3>\xff[\xe2\xe3\xf2\xf3\xfa\xfb][^\xf0-\xff])",
    re.DOTALL,
)
_UNSUPPORTED_FORMATS: Final = {
    "AIFF": rb"FORM....AIF[FC]",
    "AU": rb"\.snd",
    "CAF": rb"caff",
    "M4A": rb"....ftyp",
    "WMA": rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11",
    "big-endian WAV": rb"RIFX",
}


class AudioHeaderError(ValueError):
    """The error of bytes that are not known audio, or are damaged."""


class AudioHeader(NamedTuple):
    """The format and length of an audio file."""

    file_format: str
    sample_rate: int
    channels: int
    frames: int
    # for uncompressed WAV samples, their NumPy type ("|u3" for 24 bits) and their offset
    dtype: str = ""
    data_offset: int = 0


def audio_format(head: bytes) -> str:
    """Returns the format of an audio file by its first 16 bytes or more, or "".

    For a file with an ID3 tag of any length, usually MP3 and rarely FLAC, returns "id3".
    """
    match = _SIGNATURE.match(head)
    return (match and match.lastgroup) or ""


def is_certain_audio(head: bytes) -> bool:
    """Checks whether a file is audio for certain: an MP3 has no signature."""
    return audio_format(head) not in ("", "mp3")


def other_audio_format(head: bytes) -> str:
    """Returns the name of an unsupported audio format, or ""."""
    starts = _UNSUPPORTED_FORMATS.items()
    return next((name for name, at in starts if re.match(at, head, re.DOTALL)), "")


def read_audio_header(data: bytes) -> AudioHeader:
    """Returns the header of an audio file, given the whole file.

    Raises:
      AudioHeaderError: the bytes are not audio, or not a whole file.
    """
    start, end = 0, len(data)
    if audio_format(data) == "id3":
        start = 10 + sum(byte << 7 * at for at, byte in enumerate(data[9:5:-1]))
    if data[-128:-125] == b"TAG":
        end -= 128
    kind = audio_format(data[start : start + 16])
    if kind not in _READERS:
        actual = f"starts with {data[:9]!r}" if data else "has no bytes"
        raise AudioHeaderError(f"not audio: {actual} (expected WAV, FLAC, Ogg or MP3)")
    try:
        header = _READERS[kind](data, start, end)
    except (struct.error, IndexError):
        raise AudioHeaderError(
            f"{kind} ends inside its header after {len(data):,} bytes"
        ) from None
    if min(header.sample_rate, header.channels, header.frames) < 1:
        raise AudioHeaderError(
            f"{kind} of rate {header.sample_rate}, {header.channels} channels and "
            f"{header.frames} frames (expected 1 or more of each)"
        )
    return header


def _truncation_error(kind: str, size: int, expected: str) -> AudioHeaderError:
    return AudioHeaderError(
        f"{kind} is cut short: {size:,} bytes (expected {expected})"
    )


# WAV. "RIFF" | u32 size | "WAVE", then chunks: type | u32 length | data | padding
# fmt: u16 encoding | u16 channels | u32 rate | u32 bytes per second | u16 bytes per frame
# | u16 bits; extensible: u16 size | u16 valid bits | u32 speakers | u16 encoding
# | 14 bytes
# RF64 has sizes of 64 bits in a chunk ds64: u64 size | u64 data | u64 frames
#
# All numbers are little-endian. Samples of 12 or 20 bits are the upper bits of 16 or 24.

_EXTENSIBLE: Final = 0xFFFE
_WAV_TYPES: Final = {  # by encoding and bytes of a sample
    (1, 1): "|u1",
    (1, 2): "<i2",
    (1, 3): "|u3",
    (1, 4): "<i4",
    (3, 4): "<f4",
    (3, 8): "<f8",
    (6, 1): "",  # A-law
    (7, 1): "",  # mu-law
}


def _read_wav(data: bytes, start: int, end: int) -> AudioHeader:
    at, large, layout = start + 12, 0, None
    while at + 8 <= end:
        kind, size = struct.unpack_from("<4sI", data, at)
        at += 8
        if kind == b"ds64":
            (large,) = struct.unpack_from("<Q", data, at + 8)
        elif kind == b"fmt ":
            layout = struct.unpack_from("<HHIIHH", data, at)
            if layout[0] == _EXTENSIBLE:
                layout = (*struct.unpack_from("<H", data, at + 24), *layout[1:])
        elif kind == b"data":
            break
        at += size + size % 2
    else:
        raise _truncation_error("WAV", len(data), "a chunk 'data' with the samples")
    if layout is None:
        raise AudioHeaderError("WAV has no chunk 'fmt ' before its samples")
    encoding, channels, rate, _, frame_bytes, bits = layout
    size = large if large and size == 0xFFFFFFFF else size
    if at + size > end:
        raise _truncation_error(
            "WAV", len(data), f"{at + size:,}: {size:,} of samples from {at:,} on"
        )
    dtype = _WAV_TYPES.get((encoding, frame_bytes // max(channels, 1)))
    if dtype is None:
        raise AudioHeaderError(
            f"WAV has encoding {encoding:#x} of {bits} bits in {frame_bytes} bytes a frame "
            "(expected PCM of 8, 16, 24 or 32 bits, float, A-law or mu-law)"
        )
    return AudioHeader("wav", rate, channels, size // frame_bytes, dtype, at)


# FLAC. "fLaC", then blocks: u8 type, the last one + 128 | u24 length | data; then frames
# STREAMINFO, type 0: u16 smallest block | u16 largest | u24 | u24 largest frame in bytes
# | 20 bits rate | 3 bits channels - 1 | 5 bits | 36 bits samples, 0 if unknown | MD5
# frame: 15 bits FFF8 | 1 bit blocks vary | 4 bits block | 4 bits rate | 8 bits | number,
# coded as in UTF-8, of the frame or, if blocks vary, of its first sample | block | rate
# | CRC-8 | ... | CRC-16
#
# All numbers are big-endian.

_FLAC_FRAME: Final = re.compile(rb"\xff[\xf8\xf9][^\0-\x0f\xf0-\xff]")
_FLAC_SEARCHED: Final = 1 << 20  # bytes that are searched for a last frame


def _read_flac(data: bytes, start: int, end: int) -> AudioHeader:
    at, stream_info = start + 4, b""
    is_last = False
    while not is_last:
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "big")
        if kind & 127 == 0:
            stream_info = data[at + 4 : at + 38]
        is_last, at = bool(kind & 128), at + 4 + size
    block, _, largest = struct.unpack_from(">HH3x3s", stream_info)
    (packed,) = struct.unpack_from(">Q", stream_info, 10)
    rate, channels, frames = (
        packed >> 44,
        (packed >> 41 & 7) + 1,
        packed & (1 << 36) - 1,
    )
    most = int.from_bytes(largest, "big") or _FLAC_SEARCHED
    frame_start = end
    while (frame_start := data.rfind(b"\xff", max(at, end - most), frame_start)) >= 0:
        if _FLAC_FRAME.match(data, frame_start):
            last = _flac_samples(data[frame_start:end], block)
            if last and frames in (0, last):
                return AudioHeader("flac", rate, channels, last)
    raise _truncation_error(
        "FLAC", len(data), f"a last frame that ends at sample {frames:,}"
    )


def _flac_samples(frame: bytes, block: int) -> int:
    """Returns the sample at which a whole frame ends; 0 if the bytes are not a frame."""
    code, at = frame[2] >> 4, 5
    number = frame[4]
    if number >= 0xC0:  # the number of bits before the first 0 is the number of bytes
        length = 8 - (number ^ 0xFF).bit_length()
        at, number = 4 + length, number & (1 << 7 - length) - 1 if length < 8 else 0
        for byte in frame[5:at]:
            number = number << 6 | byte & 63
    samples = 192 if code == 1 else 256 << max(code - 8, 0)
    if 1 < code < 6:
        samples = 576 << code - 2
    if code in (6, 7):
        samples = int.from_bytes(frame[at : at + code - 5], "big") + 1
        at += code - 5
    at += {12: 1, 13: 2, 14: 2}.get(frame[2] & 15, 0)
    # Bytes followed by their own CRC have the CRC 0.
    if _crc(frame[: at + 1], 8, 0x07) or _crc(frame, 16, 0x8005):
        return 0
    return (number if frame[1] & 1 else number * block) + samples


def _crc(data: bytes, bits: int, polynomial: int) -> int:
    table, mask, crc = _crc_table(bits, polynomial), (1 << bits) - 1, 0
    for byte in data:
        crc = crc << 8 & mask ^ table[crc >> bits - 8 ^ byte]
    return crc


@cache
def _crc_table(bits: int, polynomial: int) -> tuple[int, ...]:
    table = []
    for crc in range(0, 256 << bits - 8, 1 << bits - 8):
        for _ in range(8):
            crc = crc << 1 ^ (polynomial | 1 << bits) * (crc >> bits - 1)
        table.append(crc)
    return tuple(table)


# Ogg. Pages: "OggS" | 0 | u8 flags: 2 first, 4 last | u64 granule: samples up to its end
# | u32 stream | u32 page | u32 crc | u8 segments | u8 length of each | data
# Vorbis begins with 01 "vorbis" | u32 | u8 channels | u32 rate
# Opus begins with "OpusHead" | u8 | u8 channels | u16 skipped samples | u32 rate; it
# counts samples at 48 kHz, and libsndfile decodes to the given rate if Opus supports it
#
# All numbers are little-endian.

_OPUS_RATE: Final = 48_000
_OPUS_RATES: Final = (8_000, 12_000, 16_000, 24_000)
_LAST_PAGE_FLAG: Final = 4


def _read_ogg(data: bytes, start: int, end: int) -> AudioHeader:
    first = start + 27 + data[start + 26]
    last = data.rfind(b"OggS\0", start, end)
    flags, granule = struct.unpack_from("<Bq", data, last + 5)
    body = last + 27 + data[last + 26]
    if sum(data[last + 27 : body]) != end - body or not flags & _LAST_PAGE_FLAG:
        raise _truncation_error(
            "Ogg", len(data), "whole pages, the last one marked as the last"
        )
    if data.startswith(b"\x01vorbis", first):
        channels, rate = struct.unpack_from("<BI", data, first + 11)
        return AudioHeader("ogg", rate, channels, granule)
    if data.startswith(b"OpusHead", first):
        channels, skipped, rate = struct.unpack_from("<BHI", data, first + 9)
        rate = rate if rate in _OPUS_RATES else _OPUS_RATE
        frames = (granule - skipped) * rate // _OPUS_RATE
        return AudioHeader("ogg", rate, channels, frames)
    raise AudioHeaderError(
        f"Ogg contains {data[first : first + 8]!r} (expected Vorbis or Opus)"
    )


# MP3. Frames: 11 bits FFE | 2 bits version: 0 2.5, 2 2, 3 1 | 2 bits layer: 1 III | 1 bit
# | 4 bits bit rate | 2 bits rate | 1 bit padding | 1 bit | 2 bits mode: 3 mono | 6 bits
#
# The first frame may be a table of contents without sound, 4 + 9 to 32 bytes after its
# start: "Xing" or "Info" | u32 flags: 1 frames, 2 bytes, 4 table, 8 quality | u32 frames
# | u32 bytes | 100 bytes | u32; then from LAME: 21 bytes | 12 bits samples before the
# first one | 12 bits samples after the last one

_KILOBITS: Final = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MP3_RATES: Final = (44_100, 48_000, 32_000)
_MP3_TRAILER: Final = re.compile(rb"APETAGEX|LYRICSBEGIN|TAG|ID3|\0{1,4096}\Z")
_MP3_FRAME: Final = re.compile(rb"\xff[\xe2\xe3\xf2\xf3\xfa\xfb][^\0-\x0f\xf0-\xff]")


def _read_mp3(data: bytes, start: int, end: int) -> AudioHeader:
    at, count, samples = start, 0, 0
    rate = channels = skipped = 0
    # A loop over frames of 26 ms each: 0.5 us per frame.
    while at + 4 <= end:
        if not _MP3_FRAME.match(data, at) or data[at + 2] & 12 == 12:
            if count and _MP3_TRAILER.match(data, at, end):
                break
            raise AudioHeaderError(
                f"MP3 is damaged: {data[at : at + 4].hex(' ')} at byte {at:,} "
                f"(expected a frame after the {count:,} before it)"
            )
        version = data[at + 1] >> 3 & 3
        rate = _MP3_RATES[data[at + 2] >> 2 & 3] >> (2, 0, 1, 0)[version]
        samples = 1152 if version == 3 else 576
        kilobits = _KILOBITS[1 if version == 3 else 2][data[at + 2] >> 4]
        size = samples * 125 * kilobits // rate + (data[at + 2] >> 1 & 1)
        if not count:
            channels = 1 if data[at + 3] >> 6 == 3 else 2
            expected, skipped = _read_mp3_table(data[at : at + size], samples)
            if expected > end - at:
                raise _truncation_error("MP3", len(data), f"{at + expected:,}")
        at, count = at + size, count + 1
    if at > end:
        raise _truncation_error(
            "MP3", len(data), f"{at:,}, where its frame {count:,} ends"
        )
    return AudioHeader("mp3", rate, channels, samples * count - skipped)


def _read_mp3_table(frame: bytes, samples: int) -> tuple[int, int]:
    """Returns the size of an MP3 in its table of contents, and the samples to skip."""
    match = re.match(rb"(?s).{13,36}(Xing|Info)", frame)
    if match is None:
        return 0, 0
    at = match.end() + 4
    (flags,) = struct.unpack_from(">I", frame, match.end())
    at += 4 * (flags & 1)
    size = struct.unpack_from(">I", frame, at)[0] if flags & 2 else 0
    at += 2 * (flags & 2) + 25 * (flags & 4) + (flags & 8) // 2 + 21
    padding = int.from_bytes(frame[at : at + 3], "big")
    return size, samples + (padding >> 12) + (padding & 0xFFF)


_READERS: Final = {
    "wav": _read_wav,
    "flac": _read_flac,
    "ogg": _read_ogg,
    "mp3": _read_mp3,
}
