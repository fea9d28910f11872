"""Puts a small file into remote storage on a condition, as each kind of it takes one.

Each version of an object has a tag: an ETag on S3 and Azure, a generation on Google Cloud
Storage. A put can name the tag of the version that it replaces; the store compares and
puts in one step. fsspec has no word for that, so each kind has its own call here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from recordmill.schemas.errors import MissingFileError
from recordmill.transforms.storage.clouds import cloud_of
from recordmill.transforms.storage.errors import is_unmet_condition
from recordmill.transforms.storage.fsspec_files import NO_FILE, file_info, read_whole
from recordmill.transforms.storage.s3_requests import get_object, speaks_s3
from recordmill.transforms.storage.store import Store


def remove_version(kind: str, system: Any, path: str, info: Mapping[str, Any]) -> bool:
    """Removes an object if it still has one version.

    A server that passes over the condition removes whatever is there.

    Args:
      kind: of the storage.
      system: the file system.
      path: of the object in it.
      info: of the version.

    Returns:
      Whether it did; otherwise there is another version, or none.
    """
    try:
        if kind == "s3":
            bucket, key, _ = system.split_path(path)
            system.call_s3(
                "delete_object", Bucket=bucket, Key=key, IfMatch=info["ETag"]
            )
        elif kind == "gcs":
            bucket, key, _ = system.split_path(path)
            generation = str(info["generation"])
            system.call(
                "DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=generation
            )
        elif kind == "azure":
            from fsspec.asyn import sync  # as in filesystems.py

            sync(system.loop, _remove_from_azure, system, path, info["etag"])
        else:  # memory: compared before, and guarded
            system.rm_file(path)
    except FileNotFoundError:
        return False
    except Exception as error:
        if not is_unmet_condition(error):
            raise
        return False
    return True


async def _remove_from_azure(system: Any, path: str, etag: str) -> None:
    from azure.core import MatchConditions
    from azure.core.exceptions import ResourceNotFoundError

    container, name, _ = system.split_path(path)
    client = system.service_client.get_container_client(container=container)
    same = MatchConditions.IfNotModified
    try:
        async with client:
            await client.delete_blob(name, etag=etag, match_condition=same)
    except ResourceNotFoundError as error:
        raise FileNotFoundError(path) from error


_TRIES = 10  # if a file is written again and again with the content that was seen

# The memory file system compares first and writes afterwards.
_memory_puts = threading.RLock()


def create_object(url: str, system: Any, path: str, data: bytes) -> bool:
    """Puts an object if there is none of that name.

    Args:
      url: of the store, whose kind can create exclusively.
      system: the file system.
      path: of the object in it.
      data: the content.

    Returns:
      Whether this call put it. If an answer was lost, it may have without knowing.
    """
    with _guard(url):
        return _put_if(url, system, path, data, None)


def swap_object(
    url: str, system: Any, path: str, data: bytes, seen: bytes | None
) -> bool:
    """Puts an object if its content is `seen`; see Store.swap.

    Args:
      url: of the store, whose kind can put over one version.
      system: the file system.
      path: of the object in it.
      data: the new content.
      seen: the content that is replaced; None if there must be no object.

    Returns:
      Whether the content is `data` now.
    """
    with _guard(url):
        if seen is None and _put_if(url, system, path, data, None):
            return True
        for _ in range(_TRIES):
            info, found = _look(system, path)
            if found == data:
                return True
            if found != seen:
                return False
            if _put_if(url, system, path, data, info):
                return True
    raise ConnectionError(f"another version came {_TRIES} times amid a put")


def discard_object(url: str, system: Any, path: str, seen: bytes) -> bool:
    """Removes an object if its content is `seen`; see Store.discard.

    Args:
      url: of the store, whose kind can remove one version only.
      system: the file system.
      path: of the object in it.
      seen: the content that is removed.

    Returns:
      Whether there is no such object now.
    """
    with _guard(url):
        for _ in range(_TRIES):
            info, found = _look(system, path)
            if info is None:
                return True
            if found != seen:
                return False
            if remove_version(cloud_of(url).kind, system, path, info):
                return True
    raise ConnectionError(f"another version came {_TRIES} times amid a removal")


def keeps_conditions(url: str, system: Any, path: str) -> bool:
    """Tells whether a store refuses the puts whose conditions do not hold.

    Some servers that speak S3 pass over the conditions and put.

    Args:
      url: of the store.
      system: the file system.
      path: of an object that is there; its content is changed.
    """
    before = file_info(system, path)
    if before is None or create_object(url, system, path, b"created"):
        return False
    if cloud_of(url).kind != "s3":
        return True
    system.pipe_file(path, b"replaced")
    return not _put_if(url, system, path, b"put over an old version", before)


def swap_unguarded(store: Store, data: bytes, name: str, seen: bytes | None) -> bool:
    """Reads, puts and reads again, in a store that takes no conditions."""

    def content() -> bytes | None:
        try:
            return store.read(name)
        except MissingFileError:
            return None

    if (found := content()) == seen and found != data:
        store.put_bytes(data, name)
        found = content()
    return found == data


def _look(system: Any, path: str) -> tuple[Mapping[str, Any] | None, bytes | None]:
    """Returns the version of an object with its content; None twice without one."""
    try:
        if speaks_s3(system):
            return get_object(system, path)
        # The version first: if the content is newer, the store refuses the put.
        info = file_info(system, path)
        return info, read_whole(system, path) if info else None
    except NO_FILE:
        return None, None


def _guard(url: str) -> AbstractContextManager[object]:
    return _memory_puts if cloud_of(url).kind == "memory" else nullcontext()


def _put_if(
    url: str, system: Any, path: str, data: bytes, info: Mapping[str, Any] | None
) -> bool:
    """Puts an object over one version.

    Args:
      url: of the store.
      system: the file system.
      path: of the object in it.
      data: the new content.
      info: of the version that is replaced; None if there must be no object.

    Returns:
      Whether the store put it.
    """
    try:
        if info is None:
            system.pipe_file(path, data, mode="create")
        else:
            _put_over(cloud_of(url).kind, system, path, data, info)
    except FileNotFoundError:
        if info is None:  # no bucket
            raise
        return False
    except Exception as error:
        if not is_unmet_condition(error):
            raise
        return False
    return True


def _put_over(
    kind: str, system: Any, path: str, data: bytes, info: Mapping[str, Any]
) -> None:
    if kind == "s3":
        system.pipe_file(path, data, IfMatch=info["ETag"])
    elif kind == "azure":
        from azure.core import MatchConditions

        same = MatchConditions.IfNotModified
        system.pipe_file(path, data, etag=info["etag"], match_condition=same)
    elif kind == "gcs":
        _put_over_gcs(system, path, data, info["generation"])
    else:  # memory: compared before, and guarded
        system.pipe_file(path, data)


def _put_over_gcs(system: Any, path: str, data: bytes, generation: object) -> None:
    """Sends the request of gcsfs' pipe_file, which takes no generation."""
    bucket, name, _ = system.split_path(path)
    host = system.base.removesuffix("/storage/v1/")
    system.call(
        "POST",
        f"{host}/upload/storage/v1/b/{bucket}/o",
        uploadType="media",
        name=name,
        ifGenerationMatch=str(generation),
        headers={"Content-Type": "application/octet-stream"},
        data=data,
    )
