"""Long lists of files are mapped from disk, and say what short ones say."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms import inventory, join, temporary
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources import listing
from recordmill.transforms.sources.listing import list_inputs

NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=40, unique=True)


@pytest.fixture(autouse=True)
def _all_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "SPILL_BYTES", 0)
    monkeypatch.setattr(inventory, "BATCH_FILES", 2)
    monkeypatch.setattr(join, "RUN_ROWS", 4)


def files_of(numbers: list[int]) -> list[InputFile]:
    return [
        InputFile(f"{n % 3}/{n}.png", f"/in/{n % 3}/{n}.png", n, "v", "", "x" * (n % 2))
        for n in numbers
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NUMBERS, st.data())
def test_a_mapped_inventory_is_a_list_of_files(
    numbers: list[int], data: st.DataObject
) -> None:
    files = files_of(numbers)
    found = Inventory.from_files(files) + Inventory.from_files(files)
    files = files * 2
    assert found == files
    mask = data.draw(st.lists(st.booleans(), min_size=len(files), max_size=len(files)))
    kept = found.filter(pa.array(mask))
    assert kept == [file for file, is_kept in zip(files, mask, strict=True) if is_kept]
    positions = data.draw(st.lists(st.integers(0, len(files) - 1), min_size=1))
    assert found.take(pa.array(positions)) == [files[at] for at in positions]
    assert found.folders.to_pylist() == [file.path.partition("/")[0] for file in files]
    assert found.ends_with([".PNG", ".jpg", ".png"]).to_pylist() == [True] * len(files)
    assert found.unreadable == [file for file in files if file.problem]


# Names whose order by folders is another one than that of their letters.
PATHS = st.lists(st.text("a/-\u00e4\0", max_size=3), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PATHS, PATHS, st.booleans())
def test_lists_are_joined_by_paths(
    own: list[str], wanted: list[str], is_sorted: bool
) -> None:
    """In any order, some paths several times: as a dictionary joins them."""
    if is_sorted:
        own = sorted(own, key=lambda path: path.replace("/", "\0"))
    files = [InputFile(path, f"/in/{path}", n, f"v{n}") for n, path in enumerate(own)]
    found = Inventory.from_files(files)
    first = {path: at for at, path in reversed(list(enumerate(own)))}
    paths = pa.chunked_array(
        [pa.array(wanted[:7], pa.string()), wanted[7:]], pa.string()
    )
    assert found.find_paths(paths).to_pylist() == [first.get(path) for path in wanted]
    assert found.without_paths(paths) == [
        file for file in files if file.path not in wanted
    ]
    last = {file.path: file for file in files}
    assert found.unique_paths() == [last[path] for path in dict.fromkeys(own)]


def test_memory_does_not_hold_them() -> None:
    before = pa.total_allocated_bytes()
    found = Inventory.from_files(files_of(list(range(20_000))))
    kept = found.filter(pa.array(np.arange(20_000) % 2 == 0))
    assert len(kept) == 10_000
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_full_disk_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(temporary.tempfile, "TemporaryFile", full)
        patched.setattr(temporary.TEMPORARY, "folder", str(tmp_path))
        with pytest.raises(InputError, match=r"No space left on device.*set `scratch`"):
            Inventory.from_files(files_of([1, 2]))
        patched.setattr(temporary.TEMPORARY, "folder", "")  # as on a cluster's worker
        with pytest.raises(InputError, match=r"No space left on device.*set TMPDIR"):
            temporary.spill_bytes([b"ab", b"c"])
    monkeypatch.setattr(temporary.TEMPORARY, "folder", "")
    monkeypatch.setattr(temporary.tempfile, "tempdir", None)  # what was found before
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert temporary.spill_bytes([b"ab", b"c"]) == b"abc"
    assert temporary.tempfile.gettempdir() == str(tmp_path)


def test_a_disk_without_maps_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a mount by FUSE that passes each read on."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(temporary.mmap, "mmap", refuse)
    assert temporary.spill_bytes([b"ab", b"c"]) == b"abc"
    assert Inventory.from_files(files_of([1, 2])) == files_of([1, 2])


NAMES = (
    *("a", "a.txt", "a/1.png", "a/b/2.png", "a/b/c/d/e/f/3.png", "a/b.png", "a-b/4"),
    *("b/.hidden/5.png", "b/Thumbs.db", "b/6.png", "c/.x", "\u00e4/7.png", "z.png"),
)


@pytest.fixture
def store() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    for name in NAMES[1:]:
        system.pipe_file(f"/long/{name}", name.encode())
    for number in range(40):
        system.pipe_file(f"/long/many/{number % 20:02d}/{number}.png", b"x")
    yield "memory://long"
    system.rm("/long", recursive=True)


def test_a_store_is_listed_as_a_folder_is(store: str, tmp_path: Path) -> None:
    """Branch by branch in a store, and not sorted again: the same files in one order."""
    for name in fsspec.filesystem("memory").find("/long"):
        path = tmp_path / name.removeprefix("/long/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    _, there = list_inputs([store])
    _, here = list_inputs([str(tmp_path)])
    assert there.paths.to_pylist() == here.paths.to_pylist()
    assert [path.split("/") for path in here.paths.to_pylist()] == sorted(
        path.split("/") for path in here.paths.to_pylist()
    )
    assert {file.given_folder for file in there} == {""}
    assert len(there) == len(NAMES) - 4 + 40
    assert [file.path for file in there if file.path[0] == "b"] == ["b/6.png"]
    named = list_inputs([f"{store}/a.txt", f"{store}/a"])[1]
    assert named.paths.to_pylist()[:2] == ["a.txt", "a/1.png"]
    with pytest.raises(InputError, match="no such file or folder"):
        list_inputs([f"{store}/c"])
    with pytest.raises(InputError, match=r"holds a/, a-b/, a\.txt"):
        list_inputs([f"{store}/nothing.csv"])


def test_a_folder_with_very_many_files_is_sorted_at_the_end(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        (tmp_path / f"{number}.png").touch()
    expected = list_inputs([str(tmp_path)])[1].paths.to_pylist()
    whole = list_inputs([store])[1].paths.to_pylist()
    monkeypatch.setattr(listing, "BATCH_FILES", 4)
    monkeypatch.setattr(temporary, "BATCH_ROWS", 4)
    assert list_inputs([str(tmp_path)])[1].paths.to_pylist() == expected
    assert expected == sorted(expected)
    assert list_inputs([store])[1].paths.to_pylist() == whole


PLAN = """
import sys, tracemalloc
import pyarrow as pa
from recordmill.beam_jobs.service.inputs import _files_outside_output
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.transforms import inventory, temporary
from recordmill.transforms.sources.images import find, source
from recordmill.transforms.sources.registry import make_source

temporary.SPILL_BYTES, temporary.BATCH_ROWS = 1 << 18, 2048
inventory.BATCH_FILES = find.BATCH_FILES = 2048
source.BATCH_FILES = 8192
tracemalloc.start()
for number in (10, 100_000):
    names = (f"{n % 3}/{'long' * 20}{n}.png" for n in range(number))
    files = inventory.Inventory.from_files(InputFile(n, f"/in/{n}", 1, "") for n in names)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    images = make_source(JobSpec(source="images", name="rows"))
    images = images.prepare(_files_outside_output(files, "/out"))
    assert sum(each.stop - each.start for each in images.cut_ranges(files)) == number
peak = tracemalloc.get_traced_memory()[1] - before
print(pa.default_memory_pool().max_memory(), peak)
"""


def test_a_plan_holds_no_column_of_all_files() -> None:
    """Of images by folder: of 9 MB of paths, little is in Arrow's memory or Python's."""
    ran = subprocess.run(
        [sys.executable, "-c", PLAN], capture_output=True, text=True, check=True
    )
    arrow, python = map(int, ran.stdout.split())
    assert arrow < 2_000_000
    assert python < 1_200_000
