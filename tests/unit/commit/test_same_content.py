"""Comparing inputs with those of a dataset: read only if need be, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from content_tools import kept_files

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.commit import inputs as same_content
from recordmill.transforms.commit.inputs import (
    ContentComparison,
    ConvertedFile,
    FilePairs,
)
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.tfrecord import crc32c

BYTES = bytes(range(256)) * 10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files that are read in several parts."""
    monkeypatch.setattr(same_content, "PART_BYTES", 1000)
    return tmp_path


def kept(
    data: bytes = BYTES, version: str | None = "old", stop: int = 0
) -> ConvertedFile:
    content = f"crc32c:{crc32c(data[:stop]):08x}/{stop}"
    if not stop:
        content = f"crc32c:{crc32c(data):08x}"
    return ConvertedFile(len(data), version, is_sidecar=False, content=content)


def put(folder: Path, name: str, data: bytes = BYTES, version: str = "") -> InputFile:
    path = folder / name
    path.write_bytes(data)
    return InputFile(
        name, str(path), len(data), version or str(path.stat().st_mtime_ns)
    )


def changed(
    check: ContentComparison, *pairs: tuple[ConvertedFile, InputFile]
) -> list[str]:
    return [file.path for file in check.changed_files(as_pairs(*pairs))]


def as_pairs(*pairs: tuple[ConvertedFile, InputFile]) -> FilePairs:
    kept = kept_files({file.path: before for before, file in pairs})
    return FilePairs(kept, Inventory.from_files(file for _, file in pairs))


def known_as_same(check: ContentComparison, *pair: Any) -> bool | None:
    (found,) = check.compare_known(as_pairs(pair)).to_pylist()
    return bool(found)


def test_only_what_may_differ_is_read(folder: Path) -> None:
    told: list[str] = []
    check = ContentComparison(notify=told.append)
    same = InputFile("same", str(folder / "nowhere"), len(BYTES), "old")
    other = BYTES[:-1] + b"!"
    pairs = [
        (kept(), same),
        (kept(), put(folder, "touched")),
        (kept(version=None), put(folder, "unknown")),
        (kept(), put(folder, "other", other)),
        (kept(stop=64), put(folder, "head", other)),
        (kept(stop=64), put(folder, "new head", b"!" + BYTES[1:])),
        (
            ConvertedFile(len(BYTES), "old", is_sidecar=True, content=""),
            put(folder, "unread"),
        ),
        (kept(b""), put(folder, "empty", b"")),
    ]
    assert changed(check, *pairs) == ["other", "new head"]
    assert told == [
        "5 input files of the same name and size have different modification times: "
        "reading 7.8 kB to compare"
    ]
    (folder / "touched").unlink()  # it was read already
    assert changed(check, *pairs) == ["other", "new head"]
    assert len(told) == 1
    assert known_as_same(check, *pairs[1])
    assert not known_as_same(check, *pairs[3])
    assert not known_as_same(check, kept(), put(folder, "never seen"))


def test_nothing_is_read_if_a_size_tells(folder: Path) -> None:
    check = ContentComparison(notify=pytest.fail)
    touched = InputFile("touched", str(folder / "nowhere"), len(BYTES), "new")
    assert changed(
        check, (kept(), touched), (kept(), put(folder, "longer", BYTES + b"!"))
    ) == ["longer"]


def test_without_a_content_the_version_decides(folder: Path) -> None:
    before = ConvertedFile(len(BYTES), "old", is_sidecar=False)
    check = ContentComparison(notify=pytest.fail)
    assert changed(check, (before, put(folder, "a"))) == ["a"]
    assert changed(check, (before, put(folder, "a", version="old"))) == []


def test_a_link_that_broke(folder: Path) -> None:
    file = InputFile("a", "", 0, "", problem="a link to nothing")
    broken = ConvertedFile(0, "", is_sidecar=False, is_unreadable=True, content="")
    check = ContentComparison()
    assert changed(check, (broken, file)) == []
    assert changed(check, (kept(b""), file)) == ["a"]


def test_a_file_that_shrinks_meanwhile(folder: Path) -> None:
    file = put(folder, "a")
    (folder / "a").write_bytes(b"short")
    with pytest.raises(InputError, match="has 5 bytes, but had 2560 when"):
        changed(ContentComparison(), (kept(), file))


@pytest.mark.parametrize("stop", [500, 1500, 1980, 2559])
def test_a_file_that_ends_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, stop: int
) -> None:
    """A store may give less than it was asked for."""

    def read_less(uri: str, start: int, end: int, *_: object) -> bytes:
        return BYTES[start : min(end, stop)]

    monkeypatch.setattr(same_content, "read_range", read_less)
    with pytest.raises(InputError) as caught:
        changed(ContentComparison(), (kept(), put(folder, "a")))
    assert str(caught.value) == (
        f"{folder}/a: ends at byte {stop}, but had 2560 bytes when it was listed; did "
        "it change in the meantime?"
    )


@pytest.mark.parametrize(
    ("names", "told"),
    [("a", "1 input file of the same name and size has a different modification time: "
           "reading 2.6 kB"),
     ("ab", "2 input files of the same name and size have different modification times: reading 5.1 kB")],
)  # fmt: skip
def test_what_is_told_before_files_are_read(
    folder: Path, names: str, told: str
) -> None:
    said: list[str] = []
    pairs = [(kept(), put(folder, name)) for name in names]
    assert changed(ContentComparison(notify=said.append), *pairs) == []
    assert said == [f"{told} to compare"]


def test_what_is_known_of_other_files(folder: Path) -> None:
    """Whether their checksums are larger or smaller."""
    check = ContentComparison()
    names = [f"{number:02}" for number in range(16)]
    pairs = [(kept(), put(folder, n, BYTES[:-1] + bytes([int(n)]))) for n in names]
    contents = {crc32c((folder / name).read_bytes()) < crc32c(BYTES) for name in names}
    assert contents == {True, False}
    for _ in range(2):
        assert changed(check, *pairs) == names
    for pair in pairs:
        assert not known_as_same(check, *pair)
