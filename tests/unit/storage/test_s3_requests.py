"""What is asked of S3: one request for each question, and pages of long answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from flaky_store import Flaky

from recordmill.schemas.errors import MissingFileError
from recordmill.transforms.storage import RemoteStore
from recordmill.transforms.storage.clouds import S3, filesystem_of

NAMES = ["a", "b/1", "b/2", "b/c/3", "odd &+ %41 é", "z"]


@pytest.fixture
def s3(flaky: Flaky) -> Flaky:
    for name in NAMES:
        flaky.direct.put_bytes(name.encode(), name)
    return flaky


def filesystem(store: RemoteStore) -> tuple[Any, str]:
    return filesystem_of(store.url, store.options)


@pytest.mark.parametrize("page", [1, 2, 1000])
def test_listings_come_in_pages(s3: Flaky, page: int) -> None:
    system, path = filesystem(s3.direct)
    entries = list(S3(system, path).list_files(deep=True, page=page))
    sizes = {entry["name"].removeprefix(f"{path}/"): entry["size"] for entry in entries}
    assert sizes == {name: len(name.encode()) for name in NAMES}
    assert {entry["type"] for entry in entries} == {"file"}
    level = list(S3(system, path).list_files(deep=False, page=page))
    names = {entry["name"].removeprefix(f"{path}/"): entry["type"] for entry in level}
    files = dict.fromkeys(("a", "odd &+ %41 é", "z"), "file")
    assert names == {**files, "b/": "directory"}


QUESTIONS: dict[str, Callable[[RemoteStore], object]] = {
    "put": lambda store: store.put_bytes(b"x", "new"),
    "swap in": lambda store: store.swap(b"x", "new", expected_content=None),
    "read": lambda store: store.read("a"),
    "read a range": lambda store: store.read_range("a", 0, 1),
    "read beyond the end": lambda store: store.read_range("a", 0, 9),
    "size": lambda store: store.size("a"),
    "size of nothing": lambda store: store.size("nothing"),
    "size of a folder": lambda store: store.size("b"),
    "list": lambda store: store.list(),
    "list nothing": lambda store: store.list("nothing"),
    "list a level": lambda store: store.list_level("b"),
    "list a level of nothing": lambda store: store.list_level("nothing"),
    "delete": lambda store: store.delete(["a", "z", "nothing"]),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_request_for_each_question(s3: Flaky, question: str) -> None:
    filesystem(s3.store)[0].connect()
    before = s3.proxy.requests
    QUESTIONS[question](s3.store)
    assert s3.proxy.requests - before == 1


def test_answers(s3: Flaky) -> None:
    store = s3.direct
    assert (store.size("nothing"), store.size("b")) == (None, None)
    assert store.read_range("a", 0, 9) == b"a"
    assert store.read_range("a", 5, 9) == b""
    assert store.read_range("a", 1, 1) == b""
    with pytest.raises(MissingFileError, match="nothing: is missing"):
        store.read_range("nothing", 0, 1)
    system, path = filesystem(store)
    assert S3(system, f"{path}/b").describe() is None
    store.delete(["a", "b/1", "b/2", "odd &+ %41 é", "nothing"])
    assert list(store.list()) == ["b/c/3", "z"]


def test_a_server_without_bulk_deletes(
    s3: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's S3 interface has none. Stands in for it: the call fails."""
    system, path = filesystem(s3.direct)
    ask = type(system).call_s3

    def without(self: Any, method: str, **question: Any) -> object:
        if method == "delete_objects":
            raise OSError(
                "A header you provided implies functionality that is not here"
            )
        return ask(self, method, **question)

    monkeypatch.setattr(type(system), "call_s3", without)
    paths = [f"{path}/{name}" for name in NAMES]
    assert S3(system, path).remove_together(paths) == paths
    s3.direct.delete(NAMES[:4])
    assert list(s3.direct.list()) == NAMES[4:]


def test_what_a_bulk_delete_leaves_is_deleted_alone(
    s3: Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 is free to remove some and to answer with errors for the others."""
    system, _ = filesystem(s3.direct)
    ask = type(system).call_s3

    def by_half(self: Any, method: str, **question: Any) -> object:
        if method != "delete_objects":
            return ask(self, method, **question)
        keys = [entry["Key"] for entry in question["Delete"]["Objects"]]
        for key in keys[::2]:
            ask(self, "delete_object", Bucket=question["Bucket"], Key=key)
        return {"Errors": [{"Key": key, "Code": "SlowDown"} for key in keys[1::2]]}

    monkeypatch.setattr(type(system), "call_s3", by_half)
    s3.direct.delete(NAMES)
    assert s3.direct.list() == {}
