"""Damaged audio files: as many samples as the header says, or a reason."""

from __future__ import annotations

import pytest
from mutations import damaged, try_all
from sounds import FORMS, sound

from recordmill.transforms.audio.header import AudioHeaderError, read_audio_header
from recordmill.transforms.audio.samples import decode_samples

pytestmark = pytest.mark.fuzz

FILES = [sound(form, 1500, 1 + number % 2) for number, form in enumerate(FORMS)]


def test_damaged_files() -> None:
    def attempt(number: int) -> int:
        data = damaged(FILES[number % len(FILES)], number)
        header = read_audio_header(data)
        if header.frames < 1 << 20:
            decoded = decode_samples(data, header)
            assert len(decoded) == 2 * header.frames * header.channels
        return 1

    told = try_all(attempt, share=0.1, refused=(AudioHeaderError,))
    # No addresses in memory: the same reason in each run.
    assert [reason for reason in told if "object at" in reason] == []
