"""Sizes and times of many files are those that Python tells, by loops and without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recordmill.transforms import compiled
from recordmill.transforms.storage import file_status as module
from recordmill.transforms.storage.file_status import file_status


@pytest.mark.parametrize("at_once", [3, 8192])  # in threads, or in one call
@pytest.mark.parametrize("loops", [compiled.loops, None], ids=["compiled", "python"])
def test_what_python_tells(
    loops: object, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "loops", loops)
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
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
        found = file_status(names)
        told = [Path(name).stat() for name in names[: len(files)]]
        assert found.sizes.tolist() == [
            *(each.st_size for each in told),
            *[-1] * (len(names) - len(files)),
        ]
        known = slice(0, len(files))
        assert found.modified[known].tolist() == [each.st_mtime_ns for each in told]
        assert found.changed[known].tolist() == [each.st_ctime_ns for each in told]
        names = [name for name in names if "\0" not in name]  # a call of the loop
    assert len(file_status([]).sizes) == 0
