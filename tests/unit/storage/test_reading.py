"""Listing and reading files: one contract for this machine and for fsspec."""

from __future__ import annotations

import errno
import os
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import fsspec
import hypothesis
import numpy as np
import pyarrow as pa
import pytest
from fsspec import AbstractFileSystem
from hypothesis import strategies as st

from recordmill.schemas.errors import ChangedInputError, InputError, exit_status
from recordmill.transforms.sources import listing
from recordmill.transforms.sources.listing import _sort_by_folder, list_inputs
from recordmill.transforms.storage.clouds import filesystem_of
from recordmill.transforms.storage.reading import (
    local_path,
    open_input,
    read_file,
    read_range,
)


@dataclass(frozen=True)
class Store:
    """A folder of one kind of storage."""

    root: str

    def write(self, path: str, data: bytes = b"x") -> str:
        uri = f"{self.root}/{path}"
        system, place = fsspec.core.url_to_fs(uri)
        system.makedirs(place.rpartition("/")[0], exist_ok=True)
        system.pipe_file(place, data)
        return uri

    def write_all(self, *paths: str) -> None:
        for path in paths:
            self.write(path)

    def paths(self, *given: str) -> list[str]:
        _, files = list_inputs([f"{self.root}/{path}" for path in given])
        return [file.path for file in files]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "local":
        yield Store(str(tmp_path))
        return
    root = f"memory://{uuid.uuid4().hex}"  # all tests share one memory
    yield Store(root)
    fsspec.filesystem("memory").rm(root.removeprefix("memory:/"), recursive=True)


def test_a_folder_is_searched_through_in_order_of_names(store: Store) -> None:
    store.write_all(
        "in/b/1", "in/a/2", "in/a-b/3", "in/a/10", "in/z", "in/B", "in/a.b/4"
    )
    # By parts: the folder a is complete before a-b begins.
    assert store.paths("in") == ["B", "a/10", "a/2", "a-b/3", "a.b/4", "b/1", "z"]
    assert store.paths("in/") == store.paths("in")


def test_what_is_told_of_a_file(store: Store) -> None:
    uri = store.write("in/a.csv", b"12345")
    root, (file,) = list_inputs([f"{store.root}/in"])
    assert root == f"{store.root}/in"
    assert (file.path, file.uri, file.size) == ("a.csv", uri, 5)
    assert file.version


def test_version_changes_with_the_content(store: Store) -> None:
    uri = store.write("a.csv", b"1")
    _, (before,) = list_inputs([uri])
    _, (again,) = list_inputs([uri])
    store.write("a.csv", b"2")
    _, (after,) = list_inputs([uri])
    assert before == again
    assert before.version != after.version


def test_one_file(store: Store) -> None:
    uri = store.write("in/a.csv")
    root, (file,) = list_inputs([uri])
    assert (root, file.path) == (f"{store.root}/in", "a.csv")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["in/*.csv"], ["a.csv", "b.csv"]),
        (["in/?.csv"], ["a.csv", "b.csv"]),
        (["in/[b-c].csv"], ["b.csv"]),
        (["in/*/d.csv"], ["c/d.csv"]),
        (["in/**/*.csv"], ["a.csv", "b.csv", "c/d.csv", "c/e/f.csv"]),
        (["i*/c"], ["in/c/d.csv", "in/c/e/f.csv"]),  # a folder that matches
        (["in/*"], ["a.csv", "b.csv", "c/d.csv", "c/e/f.csv", "n.txt"]),
        (["in/b.csv", "in/a.csv"], ["b.csv", "a.csv"]),  # as they are given
        (["in/b.csv", "in"], ["b.csv", "a.csv", "c/d.csv", "c/e/f.csv", "n.txt"]),
        (["in/a.csv", "in/a.csv", "in/*.csv"], ["a.csv", "b.csv"]),  # once
        (["in/c/e", "in/c/d.csv"], ["e/f.csv", "d.csv"]),  # the root that both share
        (["in/c", "other"], ["in/c/d.csv", "in/c/e/f.csv", "other/o.csv"]),
    ],
)
def test_inputs(store: Store, given: list[str], expected: list[str]) -> None:
    store.write_all(
        *("in/a.csv", "in/b.csv", "in/c/d.csv", "in/c/e/f.csv", "in/n.txt"),
        "other/o.csv",
    )
    assert store.paths(*given) == expected


def test_hidden_files_and_folders_are_passed_over(store: Store) -> None:
    store.write_all("in/a", "in/.b", "in/.c/d", "in/e/.f/g", "in/e/h")
    assert store.paths("in") == ["a", "e/h"]
    assert store.paths("in/*") == ["a", "e/h"]
    assert store.paths("in/**/*") == ["a", "e/h"]


def test_hidden_ones_that_are_named_are_taken(store: Store) -> None:
    store.write_all(".in/a", ".in/.b", ".in/c/.d")
    assert store.paths(".in") == ["a"]
    assert store.paths(".in/.b") == [".b"]
    assert store.paths(".in/.*") == [".b"]
    assert store.paths(".in/*/.d") == ["c/.d"]


def test_a_file_whose_name_looks_like_a_pattern(store: Store) -> None:
    store.write_all("in/a[1].csv", "in/a1.csv")
    assert store.paths("in/a[1].csv") == ["a[1].csv"]


def test_paths_depend_on_the_root_alone(store: Store) -> None:
    store.write_all("x/in/c/1", "y/deeper/in/c/1", "x/in/2", "y/deeper/in/2")
    assert store.paths("x/in") == store.paths("y/deeper/in") == ["2", "c/1"]


def test_the_root_is_made_of_whole_names(store: Store) -> None:
    store.write_all("data1/a", "data2/b")
    root, files = list_inputs([f"{store.root}/data1", f"{store.root}/data2"])
    assert root == store.root
    assert [file.path for file in files] == ["data1/a", "data2/b"]


@pytest.mark.parametrize(
    "missing", ["nowhere", "in/nowhere.csv", "in/*.tsv", "in/no/*"]
)
def test_what_is_missing_is_named(store: Store, missing: str) -> None:
    store.write("in/a.csv")
    with pytest.raises(
        InputError, match="no such file or folder, and no file"
    ) as error:
        store.paths("in", missing)
    assert str(error.value).startswith(f"{store.root}/{missing}: ")


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, 10, b"0123456789"),
        (3, 5, b"34"),
        (8, 99, b"89"),  # fewer at the end
        (10, 20, b""),
        (50, 60, b""),
        (5, 5, b""),
        (5, 3, b""),  # nothing, not an error and not what lies before
    ],
)
def test_read_range(store: Store, start: int, stop: int, expected: bytes) -> None:
    uri = store.write("a.bin", b"0123456789")
    assert read_range(uri, start, stop) == expected


def test_read_file(store: Store) -> None:
    data = bytes(range(256)) * 1000
    assert read_file(store.write("a.bin", data)) == data
    assert read_file(store.write("empty", b"")) == b""
    assert read_range(store.write("empty", b""), 0, 10) == b""


def test_rows_of_equal_length(store: Store) -> None:
    uri = store.write("a.bin", b"0123456789")
    target = np.zeros((5, 3), np.uint8)
    positions = np.array([4, 0, 1, 3])
    open_input(uri).read_rows(np.array([7, 0, 1, 0]), target, positions)
    assert target.tobytes() == b"012" + b"123" + bytes(3) + b"012" + b"789"
    with pytest.raises(ChangedInputError, match="ends before byte 11"):
        open_input(uri).read_rows(np.array([0, 8]), target, np.array([0, 1]))
    with pytest.raises(InputError, match=r"missing.bin: cannot be read"):
        open_input(f"{store.root}/missing.bin").read_rows(
            np.array([0]), target, np.array([0])
        )


def test_a_file_in_a_store_has_no_local_path() -> None:
    with pytest.raises(ValueError, match="s3://b/a: is not a file on this machine"):
        local_path("s3://b/a")


def test_reading_what_is_missing(store: Store) -> None:
    store.write("a.bin")
    uri = f"{store.root}/missing.bin"
    with pytest.raises(InputError, match=r"missing.bin: cannot be read"):
        read_range(uri, 0, 10)
    with pytest.raises(InputError, match=r"missing.bin: cannot be read"):
        read_file(uri)


def test_a_uri_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"123")
    root, (file,) = list_inputs([f"file://{tmp_path}/a.csv"])
    assert (root, file.uri) == (str(tmp_path), f"{tmp_path}/a.csv")
    assert read_range(f"file://{tmp_path}/a.csv", 1, 3) == b"23"
    assert read_file(f"file://{tmp_path}/a.csv") == b"123"


def test_a_relative_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    monkeypatch.chdir(tmp_path)
    for given in ("in", "./in", "in/../in/", "in/*"):
        root, (file,) = list_inputs([given])
        assert (root, file.path) == (str(tmp_path / "in"), "a")


def test_links_are_followed_under_their_own_names(tmp_path: Path) -> None:
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "real" / "sub" / "a").write_bytes(b"12")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "real")
    (tmp_path / "in" / "file").symlink_to(tmp_path / "real" / "sub" / "a")
    root, files = list_inputs([str(tmp_path / "in")])
    assert root == str(tmp_path / "in")
    assert [(f.path, f.size) for f in files] == [("file", 2), ("folder/sub/a", 2)]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "sub" / "a").touch()
    (tmp_path / "in" / "sub" / "up").symlink_to(tmp_path / "in")
    (tmp_path / "in" / "here").symlink_to(".")
    assert Store(str(tmp_path)).paths("in") == ["sub/a"]


def test_a_link_to_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").symlink_to("gone.csv")
    with pytest.raises(InputError, match=r"b.csv: a link to nothing"):
        list_inputs([str(tmp_path)])
    with pytest.raises(InputError, match=r"b.csv: a link to nothing"):
        list_inputs([str(tmp_path / "*.csv")])


def test_pipes_and_the_like_are_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    Path("a").touch()
    os.mkfifo("pipe")
    Path("null").symlink_to("/dev/null")
    socket.socket(socket.AF_UNIX).bind("socket")
    kinds = {"null": "a device", "pipe": "a pipe", "socket": "a socket"}
    for given in (".", "*"):
        _, files = list_inputs([given], keep_unreadable=True)
        problems = {file.path: file.problem for file in files}
        assert problems.pop("a") == ""
        assert problems == {
            name: f"{kind} (not a regular file: move it out of the input)"
            for name, kind in kinds.items()
        }
        with pytest.raises(InputError, match="null: a device"):
            list_inputs([given])
    for name, kind in kinds.items():
        with pytest.raises(InputError, match=f"{name}: is {kind}, expected a file"):
            list_inputs([name], keep_unreadable=True)


@pytest.mark.parametrize("given", [".", "*", "a.csv"])
def test_a_folder_whose_name_is_not_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    (folder / "a.csv").touch()
    monkeypatch.chdir(folder)
    for name in (given, str(folder / given)):
        with pytest.raises(
            InputError, match=r"caf\\xe9: the name of this input folder"
        ):
            list_inputs([name], keep_unreadable=True)


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.csv"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    with pytest.raises(InputError, match=r"caf\\xe9.csv: the file's name is not UTF-8"):
        list_inputs([str(tmp_path)])


def test_a_folder_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(folder: str) -> None:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr("recordmill.transforms.sources.listing.os.scandir", refuse)
    with pytest.raises(InputError, match=r"cannot be listed: .*Permission denied"):
        list_inputs([str(tmp_path)])


@pytest.mark.parametrize(
    ("error", "status", "advice"),
    [
        (errno.EIO, 1, "the system's log \\(dmesg\\) names the device"),
        (errno.EACCES, 65, "this user may not read it: allow it \\(`chmod a\\+r`"),
        (errno.ENOENT, 65, "it does not exist: correct its name, or restore it"),
        (errno.ESTALE, 1, "copy it again from its source, or leave it out"),
        (
            errno.ETIMEDOUT,
            1,
            "the network or the store is down or slow: run again later",
        ),
    ],
)
def test_an_input_that_cannot_be_read_has_the_advice_of_an_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    status: int,
    advice: str,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")

    def fail(*_: object) -> bytes:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("recordmill.transforms.storage.reading.os.pread", fail)
    expected = rf"^{path}: cannot be read: {os.strerror(error)}; .*{advice}"
    with pytest.raises(InputError, match=expected) as caught:
        read_range(str(path), 0, 3)
    assert exit_status(caught.value) == status
    assert "permission is missing" not in str(caught.value)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: .*Is a directory"):
        read_range(str(tmp_path), 0, 1)
    with pytest.raises(InputError, match=r"cannot be read: .*Is a directory"):
        read_file(str(tmp_path))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nonsense://bucket/a", "nonsense://bucket/a: cannot be listed: .*nonsense"),
        (f"memory://{'0' * 32}", "no such file or folder"),
    ],
)
def test_a_store_that_is_not_there(given: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list_inputs([given])


def test_inputs_of_two_stores_have_no_root(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    memory = Store(f"memory://{uuid.uuid4().hex}")
    memory.write("b")
    with pytest.raises(InputError, match="inputs of one run must be in one store"):
        list_inputs([str(tmp_path), memory.root])


def test_two_buckets_have_the_store_as_root() -> None:
    one, two = (Store(f"memory://{uuid.uuid4().hex}") for _ in range(2))
    uris = [one.write("a"), two.write("b")]
    root, files = list_inputs([one.root, two.root])
    assert root == "memory://"
    assert [root + file.path for file in files] == uris


def test_the_root_folder_of_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(folders: list[str], _: list[str]) -> Iterator[tuple[str, str]]:
        assert folders == ["/"]
        yield __file__, "/"

    monkeypatch.setattr(listing, "walk_folders", walk)
    root, (file,) = list_inputs(["/"])
    assert (root, file.path, file.uri) == ("/", __file__[1:], __file__)


JUNK = ("Thumbs.db", "desktop.ini", "EHTHUMBS.DB", "Icon\r", ".DS_Store")


def test_what_operating_systems_leave_is_left_out(store: Store) -> None:
    store.write_all("in/cat/1.jpg", "in/__MACOSX/cat/1.jpg", "in/cat/@eaDir/1.jpg")
    store.write_all(*(f"in/cat/{name}" for name in JUNK), "in/cat/my thumbs.db.jpg")
    expected = ["cat/1.jpg", "cat/my thumbs.db.jpg"]
    assert store.paths("in") == expected
    assert store.paths("in/*") == expected
    assert store.paths("in/c*/*") == expected
    assert store.paths("in/cat/Thumbs.db") == ["Thumbs.db"]  # named by a person


def test_each_file_knows_the_folder_that_was_given(store: Store) -> None:
    store.write_all("in/1/cat/a", "in/1/cat/b/c", "in/2/dog/d", "in/2/e")

    def given(*names: str) -> dict[str, str]:
        _, files = list_inputs([f"{store.root}/{name}" for name in names])
        return {file.path: file.given_folder for file in files}

    assert set(given("in").values()) == {""}
    assert given("in/1", "in/2") == {
        "1/cat/a": "1",
        "1/cat/b/c": "1",
        "2/dog/d": "2",
        "2/e": "2",
    }
    assert given("in/1/cat/a", "in/2") == {
        "1/cat/a": "1/cat",
        "2/dog/d": "2",
        "2/e": "2",
    }
    # As a shell would have written the folders; files count from the folder before *.
    assert given("in/*") == given("in/1", "in/2")
    assert given("in/*/*") == {
        "1/cat/a": "1/cat",
        "1/cat/b/c": "1/cat",
        "2/dog/d": "2/dog",
        "2/e": "",
    }


def test_files_that_cannot_be_read_are_kept_for_those_who_ask(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").symlink_to("gone.jpg")
    (tmp_path / "circle.jpg").symlink_to("circle.jpg")
    (tmp_path / "z.jpg").touch()
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT | os.O_WRONLY))
    _, files = list_inputs([str(tmp_path)], keep_unreadable=True)
    assert {file.path: file.problem for file in files} == {
        "b.jpg": "a link to nothing (gone.jpg is missing)",
        "caf\\xe9": "the file's name is not UTF-8, as names in records must be; rename it",
        "circle.jpg": "a link in a circle (by way of circle.jpg)",
        "z.jpg": "",
    }
    with pytest.raises(InputError, match=r"b.jpg: a link to nothing"):
        list_inputs([str(tmp_path)])


@hypothesis.settings(max_examples=50)
@hypothesis.given(
    st.lists(st.lists(st.text("aA!.\x00\x01é", max_size=3), min_size=1, max_size=4))
)
def test_files_are_ordered_folder_by_folder(names: list[list[str]]) -> None:
    uris = ["/".join(parts).encode() for parts in names]
    in_order = _sort_by_folder(pa.table({"uri": pa.array(uris, pa.binary())}))["uri"]
    assert [uri.decode().split("/") for uri in in_order.to_pylist()] == sorted(names)


def test_threads_that_begin_together_share_one_file_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Slow(AbstractFileSystem):  # type: ignore[misc]  # it has no types
        protocol = "slowly"

        def __init__(self, **options: object) -> None:
            super().__init__(**options)
            time.sleep(0.05)  # in which the other threads begin

    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda _: Slow)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(filesystem_of, ["slowly://x"] * 4))
    assert len({id(system) for system, _ in found}) == 1
