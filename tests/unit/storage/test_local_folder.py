"""Folders below an anchor are opened through no link, and stay what was opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recordmill.schemas.errors import MissingFileError
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.storage.local import write_named_file
from recordmill.transforms.storage.local_folder import LinkError, open_folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "file").write_bytes(b"theirs")
    (folder / "deep" / "file").write_bytes(b"theirs")
    return folder


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out" / "a" / "b").mkdir(parents=True)
    (tmp_path / "out" / "a" / "b" / "file").write_bytes(b"ours")
    return tmp_path / "out"


def become_a_link(folder: Path, target: Path) -> Path:
    """Puts a link in the place of a folder; returns where the folder is now."""
    moved = folder.with_name("moved")
    folder.rename(moved)
    folder.symlink_to(target)
    return moved


def test_a_link_that_appears_later_changes_nothing(output: Path, outside: Path) -> None:
    """As between a check of a path and a removal by that path."""
    with open_folder(str(output), "a/b") as folder:
        moved = become_a_link(output / "a" / "b", outside)
        folder.path_of("new").write_bytes(b"ours")
        folder.unlink("file")
        folder.make_folder("made")
        folder.remove_tree("made")
    assert {path.name for path in moved.iterdir()} == {"new"}
    assert {path.name for path in outside.iterdir()} == {"file", "deep"}


def test_a_tree_is_removed_without_what_its_links_lead_to(
    output: Path, outside: Path
) -> None:
    (output / "a" / "b" / "link").symlink_to(outside)
    LocalStore(str(output)).remove_tree("a")
    assert not (output / "a").exists()
    assert (outside / "deep" / "file").read_bytes() == b"theirs"


CHANGES: dict[str, Callable[[LocalStore], object]] = {
    "put": lambda store: store.put_bytes(b"ours", "a/b/file"),
    "swap": lambda store: store.swap(b"ours", "a/b/file", expected_content=b"theirs"),
    "discard": lambda store: store.discard("a/b/file", expected_content=b"theirs"),
    "delete": lambda store: store.delete(["a/b/file"]),
    "remove_tree": lambda store: store.remove_tree("a/b"),
    "remove what is below": lambda store: store.remove_tree("a/b/deep"),
    "move there": lambda store: store.move_all([("own", "a/b/file")]),
    "move away": lambda store: store.move_all([("a/b/file", "own")]),
    "make a folder": lambda store: store.make_folder("a/b/new"),
    "list": lambda store: store.list("a/b"),
    "list_level": lambda store: store.list_level("a/b"),
}


@pytest.mark.parametrize("link", ["a", "a/b"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_below_a_link_is_refused(
    output: Path, tmp_path: Path, change: str, link: str
) -> None:
    target = become_a_link(output / link, tmp_path / "elsewhere")
    target.rename(tmp_path / "elsewhere")
    (output / "own").write_bytes(b"own")
    inside = tmp_path / "elsewhere" / ("b" if link == "a" else "")
    (inside / "file").write_bytes(b"theirs")
    (inside / "deep").mkdir()
    with pytest.raises(LinkError, match=f"{output / link}: is a symbolic link"):
        CHANGES[change](LocalStore(str(output)))
    assert (inside / "file").read_bytes() == b"theirs"
    assert {path.name for path in inside.iterdir()} == {"file", "deep"}
    assert (output / "own").read_bytes() == b"own"


def test_the_folder_that_a_person_named_may_be_a_link(
    output: Path, tmp_path: Path
) -> None:
    (tmp_path / "named").symlink_to(output)
    store = LocalStore(str(tmp_path / "named"))
    store.put_bytes(b"new", "a/b/file")
    assert (output / "a" / "b" / "file").read_bytes() == b"new"
    assert store.list() == {"a/b/file": 3}


def test_a_version_that_is_a_link_is_read_alone(output: Path, tmp_path: Path) -> None:
    become_a_link(output / "a", tmp_path / "elsewhere").rename(tmp_path / "elsewhere")
    version = LocalStore(str(output)).subfolder_store("a")
    assert version.read("b/file") == b"ours"
    assert version.list() == {"b/file": 4}
    with pytest.raises(LinkError, match=f"{output / 'a'}: is a symbolic link"):
        version.put_bytes(b"new", "b/file")


def test_a_link_to_a_file_is_read_and_replaced_but_never_written_through(
    output: Path, outside: Path
) -> None:
    (output / "link").symlink_to(outside / "file")
    store = LocalStore(str(output))
    assert (store.read("link"), store.size("link")) == (b"theirs", 6)
    assert store.swap(b"ours", "link", expected_content=b"theirs")
    assert (store.read("link"), (output / "link").is_symlink()) == (b"ours", False)
    assert (outside / "file").read_bytes() == b"theirs"


@pytest.mark.parametrize("kind", ["link", "fifo", "device"])
def test_special_files_are_not_opened(output: Path, outside: Path, kind: str) -> None:
    path = output / ".recordmill" / "lock" / "lease.json"
    path.parent.mkdir(parents=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(outside / "file" if kind == "link" else "/dev/zero")
    with pytest.raises(LinkError, match=f"{path}: is a"):
        LocalStore(str(output)).read(".recordmill/lock/lease.json")


def test_errors_name_the_real_path(output: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=f"'{output / 'a/b'}/none'"),
        open_folder(str(output), "a/b") as folder,
    ):
        folder.path_of("none").read_bytes()
    with pytest.raises(MissingFileError, match=f"{output}/a/none: is missing"):
        LocalStore(str(output)).read("a/none")


def test_a_device_takes_the_bytes_and_stays(tmp_path: Path) -> None:
    """A rename over /dev/null, which root may do, ends it for the whole machine."""
    main, device = os.openpty()  # in a folder in which nobody can rename anything
    try:
        write_named_file(Path(os.ttyname(device)), b"metrics")
        assert os.read(main, 100) == b"metrics"
    finally:
        os.close(main)
        os.close(device)
    write_named_file(tmp_path / "file", b"metrics")
    assert (tmp_path / "file").read_bytes() == b"metrics"
