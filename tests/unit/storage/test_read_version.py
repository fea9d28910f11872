"""Google Cloud Storage whose answers have other tags than its listings."""

from __future__ import annotations

from typing import Any

import pytest

from recordmill.schemas.input_files import FileStat
from recordmill.transforms.storage.clouds import AnotherVersionError, Gcs


class Bucket:
    """Stands for gcsfs: some requests are answered by a version that comes later."""

    def __init__(self, *versions: tuple[str, str, bytes]) -> None:
        self.versions = list(versions)  # tag, generation, content; the first is now
        self.asked: list[str] = []

    def url(self, path: str) -> str:
        return path

    def invalidate_cache(self) -> None:
        pass

    def call(self, method: str, url: str, headers: dict[str, str]) -> Any:
        self.asked.append("get")
        tag, generation, data = self.versions[0]
        if len(self.versions) > 1:
            del self.versions[0]
        return {"ETag": f'"md5-{tag}"', "X-Goog-Generation": generation}, data

    def info(self, path: str) -> dict[str, Any]:
        self.asked.append("info")
        tag, generation, data = self.versions[0]
        return {
            "etag": tag,
            "generation": generation,
            "size": len(data),
            "type": "file",
        }

    def cat_file(self, path: str, start: None, end: None, generation: str) -> bytes:
        self.asked.append(generation)
        return next(data for _, found, data in self.versions if found == generation)


OLD, NEW = ("old=", "1", b"old"), ("new=", "2", b"new")


def read(bucket: Bucket, version: str) -> bytes:
    return Gcs(bucket, "b/a").read_version(FileStat(3, version))


def test_the_same_generation() -> None:
    bucket = Bucket(OLD)
    assert read(bucket, "old=") == b"old"
    assert bucket.asked == ["get", "info"]


def test_the_same_tag_is_one_request() -> None:
    bucket = Bucket(OLD)
    assert read(bucket, "md5-old=") == b"old"
    assert bucket.asked == ["get"]


def test_another_version() -> None:
    with pytest.raises(AnotherVersionError):
        read(Bucket(NEW), "old=")
    with pytest.raises(AnotherVersionError):
        read(Bucket(OLD, NEW), "old=")


def test_what_came_between_is_not_taken() -> None:
    """The listed version was put back after the answer: it is asked for by its number."""
    bucket = Bucket(NEW, OLD)
    assert read(bucket, "old=") == b"old"
    assert bucket.asked == ["get", "info", "1"]
