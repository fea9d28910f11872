"""Describes each kind of remote storage, and sends it the requests of its own.

Each version of an object has a tag: an ETag on S3 and Azure, a generation on Google Cloud
Storage. A request can name the tag of the version that it reads, replaces or removes; the
store compares and acts in one step. fsspec has no word for that, so each kind has its own
calls here. conditional.py makes them into what a store promises.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions

# A name may be that of a folder, or lie below a file: either way it is not a file.
NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

_COPY_SECONDS = 600.0  # longest wait for a copy in the background
_CONNECTIONS = 64  # at once, for all threads; the package's default is 10
_UPLOAD_CHUNK_BYTES = 16 << 20  # four at once: 64 MiB of memory per upload
_BULK = 1000  # most keys that DeleteObjects takes

# Without a tag a listing has a time, with a space between date and hour.
_TAG = re.compile(r'(?:W/)?"?([^"\s]+)"?')

Info = Mapping[str, Any]


class AnotherVersionError(Exception):
    """The error of a file in a store that is not the version that was listed."""


class Cloud:
    """One kind of remote storage; this one knows nothing but what fsspec promises.

    Its methods take a file system of fsspec and the path of a file in it.

    Attributes:
      extra: recordmill's extra that installs its package.
      container: its word for a bucket.
      credentials: how to give credentials, for messages.
      objects: whether a put is one step. Otherwise files get a temporary name first.
      exclusive: whether it can put a file on a condition: only if there is none of that
        name, or only over one version. Then it can read one version only, too.
      imitated: whether other servers speak its language; some ignore conditions.
      options: defaults for the file system's constructor; the user's options win.
      attributes: set on the file system where its constructor has no such option.
      put_options: for `put_file`, so that memory stays bounded.
      environment: variables set before its package is imported, unless set already.
      guard: is held during a request on a condition.
    """

    extra = ""
    container = "folder"
    credentials = "see the documentation of its fsspec package"
    objects = False
    exclusive = False
    imitated = False
    options: Mapping[str, Any] = {}
    attributes: Mapping[str, Any] = {}
    put_options: Mapping[str, Any] = {}
    environment: Mapping[str, str] = {}
    guard: AbstractContextManager[Any] = nullcontext()

    def info(self, system: Any, path: str) -> dict[str, Any]:
        """Returns the description of a file; may be that of a folder."""
        found: dict[str, Any] = system.info(path)
        return found

    def read(self, system: Any, path: str) -> bytes:
        """Returns all bytes of a small file."""
        return bytes(system.cat_file(path))

    def read_between(self, system: Any, path: str, start: int, stop: int) -> bytes:
        """Returns the bytes of a file from start to stop; fewer if it ends before."""
        info = system.info(path)
        if info["type"] != "file":
            raise FileNotFoundError(path)
        # Stores answer differently to a range after the end, so never ask for one.
        end = min(stop, int(info["size"]))
        if start >= end:
            return b""
        return bytes(system.cat_file(path, start=start, end=end))

    def look(self, system: Any, path: str) -> tuple[Info, bytes]:
        """Returns the tag of a version in an info, and the content of that or a later one.

        If the content is newer, the store refuses the put over that version.
        """
        return self.info(system, path), self.read(system, path)

    def entries(self, system: Any, path: str, *, deep: bool) -> Iterable[Info]:
        """Returns what lies below a folder, as entries of fsspec's listings."""
        if not deep:
            return list(system.ls(path, detail=True))
        listing = system.find(path, detail=True)
        # adlfs returns a list if the path is that of a file.
        return listing.values() if isinstance(listing, dict) else ()

    def put_file(self, system: Any, source: Path, path: str) -> None:
        """Puts a copy of a local file."""
        system.put_file(str(source), path, **self.put_options)

    def put_new(self, system: Any, path: str, data: bytes) -> None:
        """Puts an object if there is none of that name, or raises."""
        system.pipe_file(path, data, mode="create")

    def put_over(self, system: Any, path: str, data: bytes, info: Info) -> None:
        """Puts an object over the version that an info is of, or raises."""
        raise NotImplementedError

    def remove_version(self, system: Any, path: str, info: Info) -> None:
        """Removes the version that an info is of, or raises."""
        raise NotImplementedError

    def remove_together(self, system: Any, paths: Sequence[str]) -> Sequence[str]:
        """Removes files by few requests, where that can be done; returns the others."""
        return paths

    def has_version(self, version: str) -> bool:
        """Tells whether a version of a listing can be named in a request."""
        return self.exclusive and _TAG.fullmatch(version) is not None

    def read_version(
        self, system: Any, path: str, version: str, part: tuple[int, int] | None
    ) -> bytes:
        """Returns (a part of) a version that is there; raises for another one."""
        raise NotImplementedError

    def wait_for_copy(self, system: Any, path: str) -> None:
        """Waits until a file is copied, where the store does it in the background."""


class S3(Cloud):
    """Amazon S3, and what speaks its language.

    One request for each question: s3fs asks more. Where there is no object, it looks for
    a folder of that name; before it reads one it asks for its size; where a folder is
    empty, it lists the one above. A store answers in some 50 ms, and a small run asks a
    hundred times.
    """

    extra = "s3"
    container = "bucket"
    credentials = (
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a "
        "role (workload identity)"
    )
    objects = True
    exclusive = True  # If-None-Match, If-Match
    imitated = True
    # botocore's tries multiply with those of s3fs (attributes) and with ours.
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

    def info(self, system: Any, path: str) -> dict[str, Any]:
        bucket, key, _ = system.split_path(path)
        found = system.call_s3("head_object", Bucket=bucket, Key=key)
        return {
            "name": path,
            "type": "file",
            "size": found["ContentLength"],
            "ETag": found["ETag"],
            "LastModified": found["LastModified"],
        }

    def read(self, system: Any, path: str) -> bytes:
        # Otherwise s3fs asks for the size first, to read parts side by side.
        return bytes(system.cat_file(path, max_concurrency=1))

    def read_between(self, system: Any, path: str, start: int, stop: int) -> bytes:
        if start < stop:
            # Most ranges are within the file, so it is not asked for its size.
            with suppress(OSError):  # there is no such range; or what is raised below
                return bytes(system.cat_file(path, start=start, end=stop))
        return super().read_between(system, path, start, stop)

    def look(
        self, system: Any, path: str, **conditions: str
    ) -> tuple[dict[str, Any], bytes]:
        bucket, key, version_id = system.split_path(path)
        question = {"Bucket": bucket, "Key": key, **conditions}
        if version_id is not None:
            question["VersionId"] = version_id

        async def get() -> tuple[dict[str, Any], bytes]:
            answer = await system._call_s3("get_object", **question)
            async with answer["Body"] as body:
                return {"ETag": answer["ETag"]}, bytes(await body.read())

        info, data = _sync(system, get)
        return info, data

    def entries(
        self, system: Any, path: str, *, deep: bool, page: int = 1000
    ) -> Iterator[dict[str, Any]]:
        bucket, key, _ = system.split_path(path)
        question = {"Bucket": bucket, "Prefix": f"{key.rstrip('/')}/" if key else ""}
        if not deep:
            question["Delimiter"] = "/"
        while True:
            answer = system.call_s3("list_objects_v2", MaxKeys=page, **question)
            for found in answer.get("Contents", ()):
                name = f"{bucket}/{found['Key']}"
                yield {"name": name, "type": "file", "size": found["Size"]}
            for found in answer.get("CommonPrefixes", ()):
                name = f"{bucket}/{found['Prefix']}"
                yield {"name": name, "type": "directory", "size": 0}
            if not answer.get("IsTruncated"):
                return
            question["ContinuationToken"] = answer["NextContinuationToken"]

    def put_over(self, system: Any, path: str, data: bytes, info: Info) -> None:
        system.pipe_file(path, data, IfMatch=info["ETag"])

    def remove_version(self, system: Any, path: str, info: Info) -> None:
        bucket, key, _ = system.split_path(path)
        system.call_s3("delete_object", Bucket=bucket, Key=key, IfMatch=info["ETag"])

    def remove_together(self, system: Any, paths: Sequence[str]) -> Sequence[str]:
        left: list[str] = []
        for start in range(0, len(paths), _BULK):
            keys = {system.split_path(path)[1]: path for path in paths[start:][:_BULK]}
            bucket, _, _ = system.split_path(paths[start])
            wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            try:
                answer = system.call_s3("delete_objects", Bucket=bucket, Delete=wanted)
            except OSError:  # some servers that speak S3 do not know this request
                left += keys.values()
            else:
                left += [keys[error["Key"]] for error in answer.get("Errors", ())]
        return left

    def read_version(
        self, system: Any, path: str, version: str, part: tuple[int, int] | None
    ) -> bytes:
        conditions = {"IfMatch": f'"{_bare(version)}"'}
        if part is not None:
            conditions["Range"] = f"bytes={part[0]}-{part[1] - 1}"
        info, data = self.look(system, path, **conditions)
        _require(info["ETag"], version)  # some servers ignore conditions
        return data


class Gcs(Cloud):
    """Google Cloud Storage."""

    extra = "gcs"
    container = "bucket"
    credentials = (
        "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default "
        "login`, or run with workload identity"
    )
    objects = True
    exclusive = True  # ifGenerationMatch
    # Without a limit a request that gets no answer waits forever.
    options: Mapping[str, Any] = {"use_listings_cache": False, "requests_timeout": 120}
    put_options: Mapping[str, Any] = {"chunksize": _UPLOAD_CHUNK_BYTES}
    # Otherwise the package first asks for the bucket's type by gRPC, and waits a minute
    # where that is blocked. It needs the type only for buckets with real folders.
    environment: Mapping[str, str] = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}

    def put_over(self, system: Any, path: str, data: bytes, info: Info) -> None:
        """Sends the request of gcsfs' pipe_file, which takes no generation."""
        bucket, name, _ = system.split_path(path)
        host = system.base.removesuffix("/storage/v1/")
        system.call(
            "POST",
            f"{host}/upload/storage/v1/b/{bucket}/o",
            uploadType="media",
            name=name,
            ifGenerationMatch=str(info["generation"]),
            headers={"Content-Type": "application/octet-stream"},
            data=data,
        )

    def remove_version(self, system: Any, path: str, info: Info) -> None:
        bucket, key, _ = system.split_path(path)
        generation = str(info["generation"])
        system.call("DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=generation)

    def read_version(
        self, system: Any, path: str, version: str, part: tuple[int, int] | None
    ) -> bytes:
        start, stop = part or (None, None)
        headers = {} if part is None else {"Range": f"bytes={part[0]}-{part[1] - 1}"}
        answer, data = system.call("GET", system.url(path), headers=headers)
        if _bare(str(answer.get("ETag"))) == _bare(version):
            return bytes(data)
        # Some servers answer with another tag than they list: compare generations.
        info = system.info(path)
        _require(version_of(info), version)
        generation = info["generation"]
        if answer.get("X-Goog-Generation") == str(generation):
            return bytes(data)
        return bytes(
            system.cat_file(path, start=start, end=stop, generation=generation)
        )


class Azure(Cloud):
    """Azure Blob Storage."""

    extra = "azure"
    container = "container"
    credentials = (
        "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with "
        "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or run with a managed "
        "identity and `storage` account_name=NAME"
    )
    objects = True
    exclusive = True  # If-None-Match, If-Match
    options: Mapping[str, Any] = {
        "use_listings_cache": False,
        "connection_timeout": 20,
        "read_timeout": 60,
    }
    put_options: Mapping[str, Any] = {"max_concurrency": 4}

    def put_over(self, system: Any, path: str, data: bytes, info: Info) -> None:
        from azure.core import MatchConditions

        same = MatchConditions.IfNotModified
        system.pipe_file(path, data, etag=info["etag"], match_condition=same)

    def remove_version(self, system: Any, path: str, info: Info) -> None:
        from azure.core import MatchConditions
        from azure.core.exceptions import ResourceNotFoundError

        container, name, _ = system.split_path(path)
        same = MatchConditions.IfNotModified

        async def remove() -> None:
            client = system.service_client.get_container_client(container=container)
            async with client:
                await client.delete_blob(name, etag=info["etag"], match_condition=same)

        try:
            _sync(system, remove)
        except ResourceNotFoundError as error:
            raise FileNotFoundError(path) from error

    def read_version(
        self, system: Any, path: str, version: str, part: tuple[int, int] | None
    ) -> bytes:
        from azure.core import MatchConditions

        container, blob, version_id = system.split_path(path)

        async def get() -> bytes:
            async with system.service_client.get_blob_client(container, blob) as client:
                stream = await client.download_blob(
                    offset=None if part is None else part[0],
                    length=None if part is None else part[1] - part[0],
                    version_id=version_id,
                    etag=f'"{_bare(version)}"',
                    match_condition=MatchConditions.IfNotModified,
                    max_concurrency=system.max_concurrency,
                )
                return bytes(await stream.readall())

        return bytes(_sync(system, get))

    def wait_for_copy(self, system: Any, path: str) -> None:
        """Waits until Azure has copied a file in the background.

        Raises:
          OSError: the copy failed or takes too long.
        """
        container, blob, _ = system.split_path(path)

        async def state() -> str | None:
            async with system.service_client.get_blob_client(container, blob) as client:
                status: str | None = (await client.get_blob_properties()).copy.status
                return status

        until = time.monotonic() + _COPY_SECONDS
        while (status := _sync(system, state)) == "pending":
            if time.monotonic() > until:
                raise TimeoutError(f"the copy took longer than {_COPY_SECONDS:.0f} s")
            time.sleep(0.5)
        if status not in (None, "success"):
            raise ConnectionError(f"the copy ended with status {status!r}")


class Memory(Cloud):
    """The storage of this process only, for tests and small experiments.

    It compares first and writes afterwards, so a lock makes one step of both.
    """

    objects = True
    exclusive = True
    guard = threading.RLock()

    def has_version(self, version: str) -> bool:
        return True

    def put_file(self, system: Any, source: Path, path: str) -> None:
        system.pipe_file(path, source.read_bytes())  # put_file shows an unfinished one

    def put_over(self, system: Any, path: str, data: bytes, info: Info) -> None:
        system.pipe_file(path, data)

    def remove_version(self, system: Any, path: str, info: Info) -> None:
        system.rm_file(path)

    def read_version(
        self, system: Any, path: str, version: str, part: tuple[int, int] | None
    ) -> bytes:
        start, stop = part or (None, None)
        data = system.cat_file(path, start=start, end=stop)
        if modified_time(system.info(path)) != _seconds(version):
            raise AnotherVersionError
        return bytes(data)


_OTHER, _S3, _GCS, _AZURE, _MEMORY = Cloud(), S3(), Gcs(), Azure(), Memory()
_CLOUDS: dict[str, Cloud] = {
    "s3": _S3,
    "s3a": _S3,
    "gs": _GCS,
    "gcs": _GCS,
    "az": _AZURE,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "memory": _MEMORY,
}


def cloud_of(url: str) -> Cloud:
    """Returns the kind of storage that a URL names."""
    return _CLOUDS.get(url.partition("://")[0], _OTHER)


def version_of(info: Info) -> str:
    """Returns what a listing has of a file that changes when its content does, or ""."""
    for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created"):
        if info.get(key):
            return str(info[key])
    return ""


def modified_time(info: Info) -> float | None:
    """Returns when a file was written by its store's clock, in Unix seconds, or None."""
    for key in ("LastModified", "last_modified", "updated", "mtime", "created"):
        value = info.get(key)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if value is not None:
            seconds = value.timestamp() if isinstance(value, datetime) else value
            return float(seconds)
    return None


def stored_checksum(info: Info) -> int | None:
    """Returns the CRC-32C that a store keeps of a file (GCS: base64, big-endian)."""
    stored = info.get("crc32c")
    return int.from_bytes(base64.b64decode(stored), "big") if stored else None


def _sync(system: Any, action: Any) -> Any:
    """Returns the result of an async function, called on the file system's loop."""
    from fsspec.asyn import sync  # as in `filesystem_of`

    return sync(system.loop, action)


def _bare(version: str) -> str:
    """Returns a tag without quotes: some listings have them and others do not."""
    tag = _TAG.fullmatch(version)
    return tag[1] if tag else version


def _require(found: object, version: str) -> None:
    if _bare(str(found)) != _bare(version):
        raise AnotherVersionError


def _seconds(version: str) -> float:
    """Returns the time that stands for a version; listings have it in two forms."""
    try:
        return float(version)
    except ValueError:
        return datetime.fromisoformat(version).timestamp()


# File systems hold credentials, connections and a thread. Pickled, they would show
# secrets; after a fork they would wait for a thread that does not exist. So each process
# builds its own. A child keeps the parent's entries without using them: if they were
# freed, a package might wait for the parent's thread to close the connections.
_systems: dict[tuple[int, str, str], Any] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def filesystem_of(url: str, options: StorageOptions = NO_OPTIONS) -> tuple[Any, str]:
    """Returns (file system, path in it) of a URL; it is built once in each process.

    Raises:
      ImportError: its package is not installed.
      ValueError: the kind of storage is unknown, or does not take these options.
    """
    # Here and not above: with asyncio and ssl it is 50 ms, which local files need not pay.
    import fsspec

    cloud = cloud_of(url)
    for name, value in cloud.environment.items():
        os.environ.setdefault(name, value)
    if "::" in url:  # chained file systems; fsspec gives each its own options
        system, path = fsspec.core.url_to_fs(url, **options.to_dict())
        return system, str(path)
    protocol = url.partition("://")[0]
    kind = fsspec.get_filesystem_class(protocol)
    values = dict(cloud.options) | kind._get_kwargs_from_urls(url)
    for name, value in options.to_dict().items():
        known = values.get(name)
        both = isinstance(known, dict) and isinstance(value, dict)
        values[name] = {**known, **value} if both else value
    key = (os.getpid(), protocol, json.dumps(values, sort_keys=True))
    with _lock:
        if key not in _systems:
            system = kind(**values, skip_instance_cache=True)
            for name, value in cloud.attributes.items():
                setattr(system, name, value)
            _systems[key] = system
        return _systems[key], str(kind._strip_protocol(url))
