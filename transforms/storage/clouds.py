"""Describes each kind of remote storage, and sends its specific requests.

Each version of an object has a tag: an ETag on S3 and Azure, a generation on Google Cloud
Storage. A request can name the tag of the version that it reads, replaces or removes; the
store compares and acts in one step. fsspec has no interface for such conditions, so this
module implements them for each kind of storage. `RemoteFile` builds the operations of
`Store` on them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from recordmill.schemas.input_files import FileStat
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.storage.cloud_access import HUB
from recordmill.transforms.storage.errors import is_transient, is_unmet_condition

# A name may belong to a folder, or to a path below a file; neither is a file.
NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

_TRIES = 10  # for a file that is repeatedly written with the expected content
_COPY_SECONDS = 600.0  # longest wait for a copy in the background
_CONNECTIONS = 64  # at once, for all threads; the package's default is 10
_UPLOAD_CHUNK_BYTES = 16 << 20  # four at once: 64 MiB of memory per upload
_MAX_BULK_KEYS = 1000  # most keys per DeleteObjects request
_FLAT_NAMES = 10_000  # ten pages; cheaper than a request for each folder

# A listing without tags has a time instead, with a space between date and hour.
_TAG = re.compile(r'(?:W/)?"?([^"\s]+)"?')

FileDescription = Mapping[str, Any]
Part = tuple[int, int]


class AnotherVersionError(Exception):
    """The error for a remote file whose current version is not the listed one."""


class RemoteFile:
    """A name in remote storage and the connection to it, for one request or a few.

    Each subclass is one kind of storage. This class relies only on fsspec's interface.
    `system` is the fsspec file system, and `path` is the name of the file in it.
    """

    missing_file_note = ""  # note for messages about files that were not found
    # whether a put is one step; else files get a temporary name first
    puts_in_one_step = False
    # Whether the store supports conditional puts: only if the name is free, or only over
    # one version. Such a store can also read one version only.
    supports_conditions = False
    # Most names below a folder that are listed at once, in pages; 0 if a listing takes a
    # request for each folder.
    flat_names = 0
    # whether other servers use its protocol; some ignore conditions
    has_imitations = False
    options: Mapping[str, Any] = {}  # of the file system; the user's options win
    attributes: Mapping[str, Any] = {}  # for settings without a constructor option
    put_options: Mapping[str, Any] = {}  # bounds the memory of uploads
    environment: Mapping[str, str] = {}  # set before its package is imported
    condition_lock: AbstractContextManager[Any] = (
        nullcontext()
    )  # for conditional requests

    def __init__(self, system: Any, path: str) -> None:
        self.system, self.path = system, path

    def _sync(self, action: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the result of an async function, called on the file system's loop."""
        from fsspec.asyn import sync  # as in `filesystem_of`

        return sync(self.system.loop, action, *arguments)

    def _folder(self) -> tuple[str, str]:
        """Returns the bucket, and the prefix of all names below the folder."""
        bucket, key, _ = self.system.split_path(self.path)
        return bucket, f"{key.rstrip('/')}/" if key else ""

    # Operations that subclasses may override; all raise the errors of the fsspec package.

    def _describe(self) -> dict[str, Any]:
        """Returns the store's description of the file, or of a folder of that name."""
        description: dict[str, Any] = self.system.info(self.path)
        return description

    def read(self) -> bytes:
        """Returns all bytes of a small file."""
        return bytes(self.system.cat_file(self.path))

    def read_between(self, start: int, stop: int) -> bytes:
        """Returns the bytes from start to stop; fewer if the file ends before."""
        description = self.system.info(self.path)
        if description["type"] != "file":
            raise FileNotFoundError(self.path)
        if description["size"] is None:
            raise ValueError(
                f"{self.path}: the server sends no Content-Length, so no part of the file "
                "can be read"
            )
        # Stores respond differently to a range after the end, so it is never requested.
        end = min(stop, int(description["size"]))
        if start >= end:
            return b""
        return bytes(self.system.cat_file(self.path, start=start, end=end))

    def _read_tagged(self) -> tuple[FileDescription, bytes]:
        """Returns the description of a version, and the content of it or a later one.

        If the content is newer, the store refuses a put over the described version.
        """
        return self._describe(), self.read()

    def list_files(self, *, deep: bool) -> Iterable[FileDescription]:
        """Returns the files and folders below the folder, as listed by fsspec."""
        if not deep:
            return list(self.system.ls(self.path, detail=True))
        listing = self.system.find(self.path, detail=True)
        # adlfs returns a list if the path names a file.
        return listing.values() if isinstance(listing, dict) else ()

    def put(self, data: bytes) -> None:
        """Puts a small file."""
        self.system.pipe_file(self.path, data)

    def put_file(self, source: Path) -> None:
        """Puts a copy of a local file."""
        self.system.put_file(str(source), self.path, **self.put_options)

    def _put_new(self, data: bytes) -> None:
        """Puts an object; raises an error if the name already exists."""
        self.system.pipe_file(self.path, data, mode="create")

    def _put_version(self, data: bytes, description: FileDescription) -> None:
        """Puts an object over the described version; raises an error if it changed."""
        raise NotImplementedError

    def _remove_version(self, description: FileDescription) -> None:
        """Removes the described version; raises an error if it has changed."""
        raise NotImplementedError

    def remove_together(self, paths: Sequence[str]) -> Sequence[str]:
        """Removes files in bulk requests if supported; returns the files that remain."""
        return paths

    @classmethod
    def names_version(cls, version: str) -> bool:
        """Returns whether a listed version can be named in a request."""
        return cls.supports_conditions and _TAG.fullmatch(version) is not None

    def _read_version(self, version: str, part: Part | None) -> bytes:
        """Returns the bytes of a version, or a part; raises an error if it changed."""
        raise NotImplementedError

    def wait_for_copy(self) -> None:
        """Waits until the file is copied, if the store copies in the background."""

    # The operations of `Store`, built on the ones above.

    def describe(self) -> dict[str, Any] | None:
        """Returns the store's description of the file now, or None if there is none."""
        self.system.invalidate_cache()
        try:
            description = self._describe()
        except NO_FILE:
            return None
        return description if description["type"] == "file" else None

    def read_version(self, stat: FileStat, part: Part | None = None) -> bytes:
        """Returns bytes of the listed version; requires `can_read_version`.

        Args:
          stat: size and version in the listing.
          part: the first byte and the byte after the last; None for the whole file. If
            the file ends earlier, fewer bytes are returned.

        Raises:
          AnotherVersionError: the file has another version now.
          FileNotFoundError: there is no such file.
        """
        if part is not None:
            # Stores respond differently to a range after the end, so it is never
            # requested.
            part = part[0], min(part[1], stat.size)
            if part[0] >= part[1]:
                return b""
        try:
            return self._read_version(stat.version, part)
        except AnotherVersionError:
            raise
        except Exception as error:
            if is_unmet_condition(error):
                raise AnotherVersionError from error
            # It may have failed because the file is shorter by now.
            description = None if is_transient(error) else self.describe()
            if description and int(description["size"]) != stat.size:
                raise AnotherVersionError from error
            raise

    def swap(self, data: bytes, expected_content: bytes | None) -> bool:
        """Puts the file if it has the expected content; see `Store.swap`."""
        with self.condition_lock:
            if expected_content is None and self._put_over(None, data):
                return True
            for _ in range(_TRIES):
                description, content = self._read_with_description()
                if content == data:
                    return True
                if content != expected_content:
                    return False
                if self._put_over(description, data):
                    return True
        raise ConnectionError(f"another version appeared {_TRIES} times during a put")

    def discard(self, expected_content: bytes) -> bool:
        """Removes the file if it has the expected content; see `Store.discard`.

        A server that ignores the condition removes the file with any content.
        """
        with self.condition_lock:
            for _ in range(_TRIES):
                description, content = self._read_with_description()
                if description is None:
                    return True
                if content != expected_content:
                    return False
                if _send_conditionally(self._remove_version, description):
                    return True
        raise ConnectionError(
            f"another version appeared {_TRIES} times during a removal"
        )

    def keeps_conditions(self) -> bool:
        """Returns whether the store refuses puts whose conditions do not hold.

        The file must exist; its content is changed.
        """
        old_version = self.describe()
        if old_version is None or self._put_over(None, b"created"):
            return False
        if not self.has_imitations:
            return True
        self.put(b"replaced")
        return not self._put_over(old_version, b"put over an old version")

    def _read_with_description(self) -> tuple[FileDescription | None, bytes | None]:
        """Returns a version and its content; (None, None) if there is no file."""
        self.system.invalidate_cache()
        try:
            return self._read_tagged()
        except NO_FILE:
            return None, None

    def _put_over(self, description: FileDescription | None, data: bytes) -> bool:
        """Puts the file over a version, or as a new file; returns whether it was put."""
        if description is not None:
            return _send_conditionally(self._put_version, data, description)
        # Here a FileNotFoundError means that the bucket is missing.
        return _send_conditionally(self._put_new, data, missing_errors=())


def _send_conditionally(
    act: Callable[..., None],
    *arguments: object,
    missing_errors: tuple[type[Exception], ...] = (FileNotFoundError,),
) -> bool:
    """Sends a conditional request; returns whether the condition held."""
    try:
        act(*arguments)
    except missing_errors:
        return False
    except Exception as error:
        if not is_unmet_condition(error):
            raise
        return False
    return True


class S3(RemoteFile):
    """An object in Amazon S3 or in an S3-compatible store.

    This class sends one request per operation; s3fs sends more. For a missing object,
    s3fs looks for a folder of that name. It requests the size of an object before reading
    it, and lists the parent of an empty folder. A request takes some 50 ms, and a small
    run makes about a hundred.
    """

    puts_in_one_step = True
    supports_conditions = True  # If-None-Match, If-Match
    flat_names = _FLAT_NAMES
    has_imitations = True
    # The tries of botocore, s3fs (`attributes`) and recordmill multiply.
    options: Mapping[str, Any] = {
        "use_listings_cache": False,
        "config_kwargs": {
            "retries": {"mode": "standard", "total_max_attempts": 3},
            "max_pool_connections": _CONNECTIONS,
        },
    }
    attributes: Mapping[str, Any] = {"retries": 2}
    # The package's default is ten chunks of 50 MiB at once, for every upload.
    put_options: Mapping[str, Any] = {
        "chunksize": _UPLOAD_CHUNK_BYTES,
        "max_concurrency": 4,
    }

    def _describe(self) -> dict[str, Any]:
        bucket, key, _ = self.system.split_path(self.path)
        head = self.system.call_s3("head_object", Bucket=bucket, Key=key)
        return {
            "name": self.path,
            "type": "file",
            "size": head["ContentLength"],
            "ETag": head["ETag"],
            "LastModified": head["LastModified"],
        }

    def read(self) -> bytes:
        # Otherwise s3fs requests the size first, to read parts in parallel.
        return bytes(self.system.cat_file(self.path, max_concurrency=1))

    def read_between(self, start: int, stop: int) -> bytes:
        if start < stop:
            # Most ranges are within the file, so its size is not requested.
            with suppress(OSError):  # no such range, or an error that is raised below
                return bytes(self.system.cat_file(self.path, start=start, end=stop))
        return super().read_between(start, stop)

    def _read_tagged(self, **conditions: str) -> tuple[dict[str, Any], bytes]:
        bucket, key, version_id = self.system.split_path(self.path)
        request = {"Bucket": bucket, "Key": key, **conditions}
        if version_id is not None:
            request["VersionId"] = version_id

        async def get() -> tuple[dict[str, Any], bytes]:
            response = await self.system._call_s3("get_object", **request)
            async with response["Body"] as body:
                return {"ETag": response["ETag"]}, bytes(await body.read())

        tagged_content: tuple[dict[str, Any], bytes] = self._sync(get)
        return tagged_content

    def list_files(self, *, deep: bool, page: int = 1000) -> Iterator[dict[str, Any]]:
        bucket, prefix = self._folder()
        request = {"Bucket": bucket, "Prefix": prefix}
        if not deep:
            request["Delimiter"] = "/"
        while True:
            response = self.system.call_s3("list_objects_v2", MaxKeys=page, **request)
            for description in response.get("Contents", ()):
                name = f"{bucket}/{description['Key']}"
                tags = {key: description.get(key) for key in ("ETag", "LastModified")}
                yield {
                    "name": name,
                    "type": "file",
                    "size": description["Size"],
                    **tags,
                }
            for description in response.get("CommonPrefixes", ()):
                name = f"{bucket}/{description['Prefix']}"
                yield {"name": name, "type": "directory", "size": 0}
            if not response.get("IsTruncated"):
                return
            request["ContinuationToken"] = response["NextContinuationToken"]

    def _put_version(self, data: bytes, description: FileDescription) -> None:
        self.system.pipe_file(self.path, data, IfMatch=description["ETag"])

    def _remove_version(self, description: FileDescription) -> None:
        bucket, key, _ = self.system.split_path(self.path)
        self.system.call_s3(
            "delete_object", Bucket=bucket, Key=key, IfMatch=description["ETag"]
        )

    def remove_together(self, paths: Sequence[str]) -> Sequence[str]:
        remaining_paths: list[str] = []
        for start in range(0, len(paths), _MAX_BULK_KEYS):
            keys = {
                self.system.split_path(path)[1]: path
                for path in paths[start:][:_MAX_BULK_KEYS]
            }
            bucket, _, _ = self.system.split_path(paths[start])
            delete_request = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            try:
                response = self.system.call_s3(
                    "delete_objects", Bucket=bucket, Delete=delete_request
                )
            except OSError:  # some S3-compatible servers do not support this request
                remaining_paths += keys.values()
            else:
                remaining_paths += [
                    keys[error["Key"]] for error in response.get("Errors", ())
                ]
        return remaining_paths

    def _read_version(self, version: str, part: Part | None) -> bytes:
        conditions = {"IfMatch": f'"{_tag_without_quotes(version)}"'}
        if part is not None:
            conditions["Range"] = f"bytes={part[0]}-{part[1] - 1}"
        description, data = self._read_tagged(**conditions)
        _require_version(description["ETag"], version)  # some servers ignore conditions
        return data


class Gcs(RemoteFile):
    """An object in Google Cloud Storage."""

    puts_in_one_step = True
    supports_conditions = True  # ifGenerationMatch
    flat_names = _FLAT_NAMES
    # Without a limit, a request without a response waits forever.
    options: Mapping[str, Any] = {"use_listings_cache": False, "requests_timeout": 120}
    put_options: Mapping[str, Any] = {"chunksize": _UPLOAD_CHUNK_BYTES}
    # Otherwise the package first requests the bucket's type by gRPC, and waits a minute
    # if gRPC is blocked. It needs the type only for buckets with real folders.
    environment: Mapping[str, str] = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}

    def list_files(self, *, deep: bool) -> Iterator[FileDescription]:
        bucket, prefix = self._folder()
        request = {"prefix": prefix, "delimiter": "" if deep else "/"}
        while True:
            response = self.system.call(
                "GET", "b/{}/o", bucket, json_out=True, **request
            )
            for blob_or_prefix in response.get("items", ()):
                yield self.system._process_object(bucket, blob_or_prefix)
            for blob_or_prefix in response.get("prefixes", ()):
                yield {
                    "name": f"{bucket}/{blob_or_prefix}",
                    "type": "directory",
                    "size": 0,
                }
            if not (token := response.get("nextPageToken")):
                return
            request["pageToken"] = token

    def _put_version(self, data: bytes, description: FileDescription) -> None:
        """Puts the file like gcsfs' pipe_file, which has no option for a generation."""
        bucket, name, _ = self.system.split_path(self.path)
        host = self.system.base.removesuffix("/storage/v1/")
        self.system.call(
            "POST",
            f"{host}/upload/storage/v1/b/{bucket}/o",
            uploadType="media",
            name=name,
            ifGenerationMatch=str(description["generation"]),
            headers={"Content-Type": "application/octet-stream"},
            data=data,
        )

    def _remove_version(self, description: FileDescription) -> None:
        bucket, key, _ = self.system.split_path(self.path)
        generation = str(description["generation"])
        self.system.call(
            "DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=generation
        )

    def _read_version(self, version: str, part: Part | None) -> bytes:
        headers = {} if part is None else {"Range": f"bytes={part[0]}-{part[1] - 1}"}
        url = self.system.url(self.path)
        response, data = self.system.call("GET", url, headers=headers)
        if _tag_without_quotes(str(response.get("ETag"))) == _tag_without_quotes(
            version
        ):
            return bytes(data)
        # Some servers respond with another tag than they list: compare generations.
        description = self.system.info(self.path)
        _require_version(version_of(description), version)
        generation, (start, stop) = description["generation"], part or (None, None)
        if response.get("X-Goog-Generation") != str(generation):
            read_options = {"start": start, "end": stop, "generation": generation}
            data = self.system.cat_file(self.path, **read_options)
        return bytes(data)


class Azure(RemoteFile):
    """A blob in Azure Blob Storage."""

    puts_in_one_step = True
    supports_conditions = True  # If-None-Match, If-Match
    flat_names = _FLAT_NAMES
    options: Mapping[str, Any] = {
        "use_listings_cache": False,
        "connection_timeout": 20,
        "read_timeout": 60,
    }
    put_options: Mapping[str, Any] = {"max_concurrency": 4}

    def list_files(self, *, deep: bool) -> Iterator[FileDescription]:
        from azure.core.exceptions import ResourceNotFoundError

        name, prefix = self._folder()
        container = self.system.service_client.get_container_client(name)
        list_names = container.list_blobs if deep else container.walk_blobs
        # The metadata distinguishes files from folder markers.
        blobs = list_names(name_starts_with=prefix, include=["metadata"])
        pages = blobs.by_page()

        async def page() -> list[FileDescription] | None:
            try:
                page_blobs = [blob async for blob in await anext(pages)]
            except (StopAsyncIteration, ResourceNotFoundError):
                return None
            return list(await self.system._details(page_blobs))

        while (descriptions := self._sync(page)) is not None:
            yield from descriptions

    async def _with_blob(self, action: Callable[[Any], Any]) -> Any:
        container, blob, _ = self.system.split_path(self.path)
        async with self.system.service_client.get_blob_client(container, blob) as blob:
            return await action(blob)

    def _put_version(self, data: bytes, description: FileDescription) -> None:
        self.system.pipe_file(self.path, data, **_tag_condition(description["etag"]))

    def _remove_version(self, description: FileDescription) -> None:
        from azure.core.exceptions import ResourceNotFoundError

        condition = _tag_condition(description["etag"])
        try:
            self._sync(self._with_blob, lambda blob: blob.delete_blob(**condition))
        except ResourceNotFoundError as error:
            raise FileNotFoundError(self.path) from error

    def _read_version(self, version: str, part: Part | None) -> bytes:
        async def read(blob: Any) -> bytes:
            stream = await blob.download_blob(
                offset=None if part is None else part[0],
                length=None if part is None else part[1] - part[0],
                version_id=self.system.split_path(self.path)[2],
                max_concurrency=self.system.max_concurrency,
                **_tag_condition(f'"{_tag_without_quotes(version)}"'),
            )
            return bytes(await stream.readall())

        return bytes(self._sync(self._with_blob, read))

    def wait_for_copy(self) -> None:
        until = time.monotonic() + _COPY_SECONDS
        while True:
            properties = self._sync(
                self._with_blob, lambda blob: blob.get_blob_properties()
            )
            if (status := properties.copy.status) != "pending":
                break
            if time.monotonic() > until:
                raise TimeoutError(f"the copy took longer than {_COPY_SECONDS:.0f} s")
            time.sleep(0.5)
        if status not in (None, "success"):
            raise ConnectionError(f"the copy ended with status {status!r}")


def _tag_condition(etag: str) -> dict[str, Any]:
    """Returns the arguments for the condition that a blob still has a tag."""
    from azure.core import MatchConditions

    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


class Memory(RemoteFile):
    """A file in the memory of this process, for tests and small experiments.

    A lock makes the comparison and the write one step.
    """

    puts_in_one_step = True
    supports_conditions = True
    condition_lock = threading.RLock()

    @classmethod
    def names_version(cls, _version: str) -> bool:
        return True

    def put_file(self, source: Path) -> None:
        self.put(source.read_bytes())  # fsspec's method shows an unfinished file

    def _put_version(self, data: bytes, description: FileDescription) -> None:
        self.put(data)

    def _remove_version(self, description: FileDescription) -> None:
        self.system.rm_file(self.path)

    def _read_version(self, version: str, part: Part | None) -> bytes:
        start, stop = part or (None, None)
        data = self.system.cat_file(self.path, start=start, end=stop)
        if modified_time(self.system.info(self.path)) != _seconds(version):
            raise AnotherVersionError
        return bytes(data)


class Hub(RemoteFile):
    """A file on the Hugging Face Hub; read-only."""

    flat_names = 1 << 32  # its package has no pages, and repositories are small
    missing_file_note = (
        f"; private and gated repositories require access: {HUB.credentials}"
    )


_CLOUDS: dict[str, type[RemoteFile]] = {
    "s3": S3,
    "s3a": S3,
    "gs": Gcs,
    "gcs": Gcs,
    "az": Azure,
    "abfs": Azure,
    "abfss": Azure,
    "memory": Memory,
    "hf": Hub,
}


def cloud_of(url: str) -> type[RemoteFile]:
    """Returns the kind of storage that a URL names."""
    return _CLOUDS.get(url.partition("://")[0], RemoteFile)


def remote_file(url: str, options: StorageOptions) -> RemoteFile:
    """Returns the file that a URL names, with the connection to its storage."""
    return cloud_of(url)(*filesystem_of(url, options))


def can_read_version(url: str, stat: FileStat | None) -> bool:
    """Returns whether a request can name exactly this version of a file."""
    if stat is None or not stat.version:
        return False
    return cloud_of(url).names_version(stat.version)


def version_of(description: FileDescription) -> str:
    """Returns the tag or time that changes with a file's content, or ""."""
    # "blob_id" is the key on the Hugging Face Hub.
    keys = ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created", "blob_id")
    for key in keys:
        if value := description.get(key):
            return str(value)
    return ""


def modified_time(description: FileDescription) -> float | None:
    """Returns a file's modification time by the store's clock (Unix seconds), or None."""
    for key in ("LastModified", "last_modified", "updated", "mtime", "created"):
        value = description.get(key)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if value is not None:
            seconds = value.timestamp() if isinstance(value, datetime) else value
            return float(seconds)
    return None


def stored_checksum(description: FileDescription) -> int | None:
    """Returns the CRC-32C that a store keeps for a file (GCS: base64, big-endian)."""
    stored = description.get("crc32c")
    return int.from_bytes(base64.b64decode(stored), "big") if stored else None


def _tag_without_quotes(version: str) -> str:
    """Returns a tag without quotes, which only some listings have."""
    tag = _TAG.fullmatch(version)
    return tag[1] if tag else version


def _require_version(actual_version: object, version: str) -> None:
    if _tag_without_quotes(str(actual_version)) != _tag_without_quotes(version):
        raise AnotherVersionError


def _seconds(version: str) -> float:
    """Returns the time that a version consists of; listings write it in two formats."""
    try:
        return float(version)
    except ValueError:
        return datetime.fromisoformat(version).timestamp()


# File systems hold credentials, connections and a thread. Pickled, they would show
# secrets; after a fork they would wait for a thread that does not exist. So each process
# builds its own file systems, keyed by its process id, and never frees them. A child
# process keeps the file systems of its parent without using them: if they were freed, a
# package might wait for the parent's thread to close the connections.
_systems: dict[tuple[int, type, str], Any] = {}


def _system(
    kind: type, options: Mapping[str, Any], attributes: Mapping[str, Any]
) -> Any:
    """Returns this process's instance of an fsspec class with these options."""
    key = os.getpid(), kind, json.dumps(options, sort_keys=True)
    if key not in _systems:
        system = kind(**options, skip_instance_cache=True)
        for name, value in attributes.items():
            setattr(system, name, value)
        _systems.setdefault(key, system)  # no lock, which a fork could leave held
    return _systems[key]


def filesystem_of(url: str, options: StorageOptions = NO_OPTIONS) -> tuple[Any, str]:
    """Returns the file system of a URL, built once per process, and the path in it.

    Raises:
      ImportError: its package is not installed.
      ValueError: the kind of storage is unknown, or does not take these options.
    """
    # Imported here: with asyncio and ssl it takes 50 ms, which local files do not need.
    import fsspec

    cloud = cloud_of(url)
    for name, value in cloud.environment.items():
        os.environ.setdefault(name, value)
    if "::" in url:  # chained file systems; fsspec distributes the options
        system, path = fsspec.core.url_to_fs(url, **options.to_dict())
        return system, str(path)
    protocol = url.partition("://")[0]
    kind = fsspec.get_filesystem_class(protocol)
    values = dict(cloud.options) | kind._get_kwargs_from_urls(url)
    for name, value in options.to_dict().items():
        preset_option = values.get(name)
        both = isinstance(preset_option, dict) and isinstance(value, dict)
        values[name] = {**preset_option, **value} if both else value
    return _system(kind, values, cloud.attributes), str(kind._strip_protocol(url))
