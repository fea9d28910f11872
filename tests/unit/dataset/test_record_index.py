"""Where the records of a shard begin: by their lengths, and by index files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from frames import frame
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import OutputRefusedError
from recordmill.transforms.dataset.reader import frame_offsets
from recordmill.transforms.dataset.record_index import index_text, parse_index

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def test_golden_index() -> None:
    """Written by an independent writer, see data/golden/README.md."""
    file = np.fromfile(GOLDEN / "tutorial.tfrecord", np.uint8)
    golden = (GOLDEN / "tutorial.tfrecord.idx").read_bytes()
    records = golden.count(b"\n")
    offsets = frame_offsets(file, records)
    assert offsets is not None
    assert index_text(offsets) == golden
    parsed = parse_index(golden, "idx", records, len(file))
    assert parsed.tolist() == offsets.tolist()


@given(st.lists(st.binary(max_size=40), max_size=30) | st.just([b"abc"] * 9))
def test_offsets_are_those_of_the_frames(records: list[bytes]) -> None:
    frames = [frame([record]) for record in records]
    file = np.frombuffer(b"".join(frames), np.uint8)
    expected = np.cumsum([0, *map(len, frames)]).tolist()
    offsets = frame_offsets(file, len(records))
    assert offsets is not None
    assert offsets.tolist() == expected
    assert parse_index(index_text(offsets), "i", len(records), len(file)).tolist() == (
        expected
    )
    for wrong in (len(records) - 1, len(records) + 1):
        if wrong >= 0:
            assert frame_offsets(file, wrong) is None
    assert len(file) == 0 or frame_offsets(file[:-1], len(records)) is None


@given(st.binary(max_size=60), st.integers(0, 4))
def test_any_bytes_are_no_crash(file: bytes, records: int) -> None:
    offsets = frame_offsets(np.frombuffer(file, np.uint8), records)
    assert offsets is None or offsets[-1] == len(file)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"0 20\n",  # a record is missing
        b"0 20\n20 20\n40 20\n",
        b"0 20\n21 19\n",
        b"4 16\n20 20\n",
        b"0 36\n36 4\n",  # less than a frame
        b"0 20\n20 99999999999999999999\n",
        b"0\n20 20\n",
        b"\0\xff",
    ],
)
def test_another_files_index_is_refused(text: bytes) -> None:
    with pytest.raises(OutputRefusedError, match=r"a\.idx: .*recordmill index"):
        parse_index(text, "a.idx", 2, 40)
