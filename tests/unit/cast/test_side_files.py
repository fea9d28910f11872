"""Files that cells name: found beside the table, refused outside the input root."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from recordmill.schemas.errors import InputError
from recordmill.transforms.cast.side_files import SidecarFileError, SidecarFiles


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A secret beside the root, and in the root a table's folder and images."""
    (tmp_path / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    for folder in ("tables/sub", "images", "..odd"):
        (root / folder).mkdir(parents=True)
    (root / "tables" / "a.bin").write_bytes(b"abc")
    (root / "tables" / "sub" / "b c.bin").write_bytes(b"")
    (root / "images" / "d.bin").write_bytes(b"d" * 1000)
    (root / "..odd" / "e").write_bytes(b"e")
    return root


def beside(root: Path) -> SidecarFiles:
    return SidecarFiles.next_to_table(f"{root}/tables/table.csv", str(root))


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.bin", b"abc"),
        ("./sub/../a.bin", b"abc"),
        ("sub/b c.bin", b""),
        ("../images/d.bin", b"d" * 1000),  # up, but within the root
    ],
)
def test_local_files(tree: Path, scheme: str, path: str, expected: bytes) -> None:
    files = SidecarFiles.next_to_table(
        f"{scheme}{tree}/tables/table.csv", f"{scheme}{tree}"
    )
    assert files.read(path) == expected


BAD_PATHS = [
    ("../../secret", "is outside the input root"),
    ("sub/../../../secret", "is outside the input root"),
    ("../../root-of-another/x", "is outside the input root"),
    ("/etc/passwd", "is absolute, expected a path relative to the table's folder"),
    ("file:///etc/passwd", "is absolute, expected a path relative to the"),
    ("a::file:///etc/passwd", "is absolute, expected a path relative to the"),
    ("", "is not a valid path"),
    ("a\0b", "is not a valid path"),
    ("none.bin", "no such file"),
    ("a.bin/x", "no such file"),
    ("A.BIN", "no such file"),
    ("x" * 5000, "File name too long"),
    (".hidden/f.bin", "is hidden; recordmill skips hidden files"),
    ("../..odd/e", "is hidden; recordmill skips hidden files"),
    ("sub", "is not a file"),
    (".", "is not a file"),
]


@pytest.mark.parametrize(("path", "reason"), BAD_PATHS)
def test_local_paths_that_name_no_file(tree: Path, path: str, reason: str) -> None:
    with pytest.raises(SidecarFileError) as caught:
        beside(tree).read(path)
    assert str(caught.value).startswith(repr(path))
    assert reason in str(caught.value)


def test_links(tree: Path) -> None:
    tables = tree / "tables"
    (tables / "inside").symlink_to("../images/d.bin")
    (tables / "folder").symlink_to("../images")
    (tables / "outside").symlink_to(tree.parent / "secret")
    (tables / "way out").symlink_to(tree.parent)
    (tables / "chain").symlink_to("outside")
    (tables / "nothing").symlink_to("../gone")
    (tables / "circle").symlink_to("circle")
    files = beside(tree)
    assert files.read("inside") == files.read("folder/d.bin") == b"d" * 1000
    for path in (
        "outside",
        "way out/secret",
        "way out/root/tables/../../secret",
        "chain",
    ):
        with pytest.raises(SidecarFileError, match=r"out of the input root|outside"):
            files.read(path)
    with pytest.raises(SidecarFileError, match="no such file"):
        files.read("nothing")
    with pytest.raises(SidecarFileError, match="'circle': Too many levels"):
        files.read("circle")


def test_a_root_behind_a_link(tree: Path) -> None:
    link = tree.parent / "link"
    link.symlink_to(tree)
    assert beside(link).read("../images/d.bin") == b"d" * 1000


def test_unreadable_is_no_fault_of_the_row() -> None:
    files = SidecarFiles("/proc/self", "/proc/self")
    with pytest.raises(InputError, match=r"^/proc/self/mem: cannot be read: .*Input/"):
        files.read("mem")


def test_a_table_without_a_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "tables")
    assert SidecarFiles.next_to_table("table.csv", str(tree)).read("a.bin") == b"abc"
    assert SidecarFiles.next_to_table("/table.csv", "/").folder == "/"


def test_remote_files() -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/root/tables/a.bin", b"abc")
    system.pipe("/bucket/root/tables/x::y", b"no chain")
    system.pipe("/bucket/root/images/d.bin", b"d")
    system.pipe("/bucket/secret", b"secret")
    root = "memory://bucket/root"
    files = SidecarFiles.next_to_table(f"{root}/tables/table.csv", root)
    for path, expected in (
        ("a.bin", b"abc"),
        ("../images/d.bin", b"d"),
        ("x::y", b"no chain"),
    ):
        assert files.read(path) == expected
    for path, reason in (
        ("../../secret", "outside the input root"),
        ("memory://bucket/secret", "is absolute"),
        ("none", "no such file"),
        ("../images", "is not a file"),
    ):
        with pytest.raises(SidecarFileError, match=reason):
            files.read(path)
    system.rm("/bucket", recursive=True)


def test_travels_to_a_worker(tree: Path) -> None:
    files = beside(tree)
    files.read("a.bin")
    again = pickle.loads(pickle.dumps(files))
    assert again == files
    assert again.read("a.bin") == b"abc"
