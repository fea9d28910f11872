"""The longest names that fit, to the byte; what is told of one that is longer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.schema_file import load_schema
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.commit.check_output import check_names
from recordmill.transforms.storage import LocalStore, open_store


def job(name: str, **more: Any) -> JobSpec:
    return JobSpec(source="csv", name=name, **more)


def refused(job: JobSpec, *arguments: Any, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        check_names(job, *arguments, **options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "longest"),
    [({}, 168), ({"compression": "gzip"}, 165), ({"index": True}, 164)],
)
def test_the_name(tmp_path: Path, options: dict[str, Any], longest: int) -> None:
    store = LocalStore(str(tmp_path / "not" / "there" / "yet"))
    check_names(job("n" * longest, **options), store)
    check_names(job("n" * longest, **options), open_store("memory://b", NO_OPTIONS))
    for more, plural in ((1, ""), (2, "s")):
        told = refused(job("n" * (longest + more), **options), store)
        assert told == (
            f"`name` {'n' * 40}...: the names of shard files would have up to "
            f"{255 + more} bytes while they are written; the limit of {store.uri} is "
            f"255. Choose a name shorter by {more} character{plural}"
        )


def test_the_split(tmp_path: Path) -> None:
    """The longer one is told, of both."""
    store = LocalStore(str(tmp_path))
    check_names(job("n" * 40), store, ["s" * 133])
    told = refused(job("n" * 40), store, ["test", "s" * 134])
    assert told.startswith(
        f"split {'s' * 40}... of the input: the names of shard files"
    )
    told = refused(job("n" * 40, splits=[{"name": "s" * 134, "fraction": "1"}]), store)
    assert told.startswith(f"`splits`: split {'s' * 40}...: the names of shard files")
    told = refused(job("n" * 140), store, ["s" * 140])
    assert told.startswith(f"`name` {'n' * 40}...: the names")


@pytest.mark.parametrize("short", [38, 40, 41])
def test_a_file_system_of_shorter_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    """Encrypted folders take 143 bytes. A name is shown whole, if it is short."""
    monkeypatch.setattr(os, "pathconf", lambda *_: 143)
    store = LocalStore(str(tmp_path))
    rest = ["s" * (61 - short)]
    check_names(job("n" * short), store, rest)
    told = refused(job("n" * short), store, [*rest, f"{rest[0]}s"])
    shown = "n" * 40 + "..." if short > 40 else "n" * short
    assert told.startswith(
        f"`name` {shown}: the names of shard files would have up to 144"
    )


def declaring(feature: str, more: str = "") -> JobSpec:
    """Returns a job that declares a feature, of classes or not."""
    text = f"features:\n  ? {feature}\n  : {{dtype: int64{more}}}\n"
    return job("n", declared=load_schema(text.encode(), "s.yaml"))


def test_the_feature(tmp_path: Path) -> None:
    store, classes = LocalStore(str(tmp_path)), ", classes: [cat, dog]"
    check_names(declaring("f" * 210, classes), store)
    check_names(declaring("f" * 250), store)
    for more, unit in ((1, "byte"), (2, "bytes")):
        told = refused(declaring("f" * (210 + more), classes), store)
        assert told == (
            f"`schema`: feature {'f' * 40}...: the name of its labels file would have "
            f"{255 + more} bytes while it is written; the limit of {tmp_path} is 255. "
            f"Choose a name shorter by {more} {unit}"
        )


def test_the_path() -> None:
    root = "/" + "d/" * 1984
    check_names(job("n"), LocalStore(root))
    for more, unit in ((1, "byte"), (2, "bytes")):
        told = refused(job("n"), LocalStore(root + "d" * more))
        assert told == (
            f"{root[:40]}...: paths of files in this output folder would have up to "
            f"{4096 + more:,} bytes, the limit is 4,096. Choose an output folder or a "
            f"`name` shorter by {more} {unit}"
        )


@pytest.mark.parametrize("auto_version", [True, False])
def test_the_key(auto_version: bool) -> None:
    folder = "memory://b/" + "k" * (898 - auto_version * len("/10.10.10"))
    check_names(job("n"), open_store(folder, NO_OPTIONS), auto_version=auto_version)
    longer = open_store(f"{folder}k", NO_OPTIONS)
    told = refused(job("n"), longer, auto_version=auto_version)
    assert "keys of files in this output folder would have up to 1,025 bytes" in told
    assert told.endswith("shorter by 1 byte")
