"""ArrayRecord files: the records that were given, whole under their name or not there."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from frames import frame
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import OutputError, UsageError
from recordmill.transforms.storage import local, shard_file
from recordmill.transforms.storage.shard_file import (
    ArrayRecordFile,
    require_container,
    write_array_records,
)
from recordmill.transforms.tfrecord import crc32c


def framed(records: list[bytes]) -> pa.BinaryArray:
    return pa.array([frame([record]) for record in records], pa.binary())


@settings(max_examples=30)
@given(st.lists(st.lists(st.binary(max_size=40), max_size=5), max_size=5), st.data())
def test_what_is_written_is_read(
    windows: list[list[bytes]], data: st.DataObject
) -> None:
    """Windows are slices too; the bytes of a file do not depend on them."""
    records = [record for window in windows for record in window]
    with TemporaryDirectory() as folder:
        one, other = Path(folder, "a"), Path(folder, "b")
        arrays = [framed([b"left out", *window]).slice(1) for window in windows]
        written = write_array_records(one, arrays)
        assert write_array_records(other, [framed(records)]) == written
        stored = one.read_bytes()
        assert stored == other.read_bytes()
        assert sorted(Path(folder).iterdir()) == [one, other]
        assert (written.records, written.bytes) == (len(records), len(stored))
        assert written.example_bytes == sum(map(len, records))
        assert written.crc32c == crc32c(stored)
        file = ArrayRecordFile(one)
        assert file.records == len(records)
        assert [*chain.from_iterable(file.read_all())] == records
        positions = st.lists(st.integers(0, max(0, len(records) - 1)), max_size=4)
        wanted = data.draw(positions) if records else []
        assert file.read(wanted) == [records[n] for n in wanted]


def test_more_records_than_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [b"%d" % n * (n % 50) for n in range(300)]
    write_array_records(tmp_path / "s", [framed(records)])
    monkeypatch.setattr(shard_file, "_READ_RECORDS", 7)
    assert [*chain.from_iterable(ArrayRecordFile(tmp_path / "s").read_all())] == records


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_failing_windows_leave_no_file(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    def windows() -> Iterator[pa.BinaryArray]:
        yield framed([b"abc"] * 100)
        raise failure

    with pytest.raises(failure):
        write_array_records(tmp_path / "s", windows())
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """The package would say nothing until the first record, and of none nothing."""
    for records in ([b"abc"], []):
        with pytest.raises(OSError, match=r"none/s"):
            write_array_records(tmp_path / "none" / "s", [framed(records)])


def test_a_full_disk_is_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package has the text alone; what a run says and ends with goes by the number."""
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    monkeypatch.setattr(local, "temp_path", lambda _: full)
    with pytest.raises(OSError, match="No space left on device") as told:
        write_array_records(tmp_path / "s", [framed([bytes(1 << 20)] * 3)])
    assert told.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    write_array_records(path, [framed([b"a" * 10_000, b"b" * 100_000])])
    data = bytearray(path.read_bytes())
    data[50_000] ^= 1
    path.write_bytes(data)
    file = ArrayRecordFile(path, "gs://b/s")
    assert file.read([0]) == [b"a" * 10_000]
    with pytest.raises(OutputError, match=r"gs://b/s: .*run `recordmill verify`"):
        file.read([1])
    with pytest.raises(OutputError, match=r"gs://b/s: .*run `recordmill verify`"):
        list(file.read_all())


def test_threads_and_forked_processes_read(tmp_path: Path) -> None:
    """As when batches are read ahead, and a data loader forks its workers meanwhile."""
    records = [b"%d" % number * 100 for number in range(200)]
    write_array_records(tmp_path / "s", [framed(records)])
    file = ArrayRecordFile(tmp_path / "s")
    positions = [[(start * 7 + n) % 200 for n in range(20)] for start in range(40)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(file.read, positions))
    assert found == [[records[n] for n in each] for each in positions]
    with file._read_lock:  # the parent is reading
        child = os.fork()
        if not child:
            os._exit(file.read([3, 5]) != [records[3], records[5]])
        assert os.waitpid(child, 0)[1] == 0


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    require_container("array_record")
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    require_container("tfrecord")
    with pytest.raises(UsageError, match=r"pip install '\.\[array-record\]'"):
        require_container("array_record")
