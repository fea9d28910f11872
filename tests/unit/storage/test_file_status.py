"""Sizes and times of many files are those that Python tells, by loops and without."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from recordmill.schemas.input_files import FileStat
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import reading as module
from recordmill.transforms.storage.reading import file_status, read_files


@pytest.mark.parametrize("at_once", [3, 8192])  # in threads, or in one call
@pytest.mark.parametrize("loops", [native.loops, numpy_loops], ids=["native", "numpy"])
def test_what_python_tells(
    loops: object, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "loops", loops)
    monkeypatch.setattr(module, "_FILES_PER_CALL", at_once)
    (tmp_path / "plain").write_bytes(b"12345")
    (tmp_path / "old").touch()
    os.utime(tmp_path / "old", ns=(0, -1_500_000_001))
    (tmp_path / "link").symlink_to("plain")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "nowhere").symlink_to("missing")
    os.mkfifo(tmp_path / "pipe")
    files = ["plain", "old", "link"]
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")).write_bytes(b"123")
    files.append("caf\udce9")
    others = ["circle", "nowhere", "pipe", "missing", "", "plain\0", "plain/"]
    names = [f"{tmp_path}/{name}" for name in (*files, *others)]
    for _ in range(2):
        sizes, modified, changed = file_status(names)
        told = [Path(name).stat() for name in names[: len(files)]]
        assert sizes.tolist() == [
            *(each.st_size for each in told),
            *[-1] * (len(names) - len(files)),
        ]
        known = slice(0, len(files))
        assert modified[known].tolist() == [each.st_mtime_ns for each in told]
        assert changed[known].tolist() == [each.st_ctime_ns for each in told]
        names = [name for name in names if "\0" not in name]  # a call of the loop
    assert len(file_status([])[0]) == 0


@pytest.mark.parametrize("loops", [native.loops, numpy_loops], ids=["native", "numpy"])
@pytest.mark.parametrize("year", [1600, 2262])
def test_times_of_any_year(
    loops: object, year: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong clock gives years whose nanoseconds do not fit into 64 bits."""
    monkeypatch.setattr(native, "loops", loops)
    (tmp_path / "file").write_bytes(b"12345")
    since = (np.datetime64(f"{year}-12-31", "s") - np.datetime64(0, "s")).astype(int)
    os.utime(tmp_path / "file", ns=(0, int(since) * 1_000_000_000 + 7))
    # Many file systems have no such years, and keep the nearest one.
    kept = (tmp_path / "file").stat().st_mtime_ns
    sizes, modified, _ = file_status([f"{tmp_path}/file"])
    is_told = abs(kept) < 1 << 63
    assert sizes.tolist() == [5 if is_told else -1]
    assert modified.tolist() == [kept if is_told else 0]
    _, [file] = list_inputs([str(tmp_path)])
    assert (file.size, file.version) == (5, str(kept))
    seen = FileStat(file.size, file.version)
    assert list(read_files([(file.uri, seen)], NO_OPTIONS)) == [b"12345"]
