"""The checksums of CSV ranges join to that of the file, whatever its rows look like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_tools import FileWriter, file_writer, read

from recordmill.transforms.file_content import contents
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.tfrecord import crc32c


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> FileWriter:
    return file_writer(tmp_path_factory)


@given(
    st.lists(
        st.sampled_from([b"1", b",", b"\n", b'"', b"x" * 9, b"\r\n"]), max_size=60
    ),
    st.integers(7, 40),
)
def test_every_byte_once(write: FileWriter, body: list[bytes], size: int) -> None:
    """Long rows, in which no range begins one; stray quotes, open ones; no line end."""
    path = write(b"a,b\n" + b"".join(body))
    source = CsvSource(as_text=True, names=("a", "b"), range_bytes=size)
    reading = read(source, path, expected=())
    data = path.read_bytes()
    found = [each for part in reading.parts for each in part.checksums]
    assert len(found) == len(reading.ranges)
    assert contents(found, {path.name: len(data)}) == {
        path.name: f"crc32c:{crc32c(data):08x}"
    }
