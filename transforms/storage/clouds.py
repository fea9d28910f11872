"""Describes how each kind of remote storage differs from the others."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_COPY_SECONDS = 600.0  # longest wait for a copy in the background
_CONNECTIONS = 64  # at once, for all threads; the package's default is 10
_UPLOAD_CHUNK_BYTES = 16 << 20  # four at once: 64 MiB of memory per upload


@dataclass(frozen=True, slots=True)
class Cloud:
    """The properties of one kind of remote storage.

    Attributes:
      kind: which requests it takes; see conditional_put.py. Empty if not known.
      extra: recordmill's extra that installs its package.
      container: its word for a bucket.
      credentials: how to give credentials, for messages.
      objects: whether a put is one step. Otherwise files get a temporary name first.
      exclusive: whether it can put a file on a condition: only if there is none of that
        name, or only over one version.
      options: defaults for the file system's constructor; the user's options win.
      attributes: set on the file system where its constructor has no such option.
      put_options: for `put_file`, so that memory stays bounded.
      environment: variables set before its package is imported, unless set already.
    """

    kind: str = ""
    extra: str = ""
    container: str = "folder"
    credentials: str = "see the documentation of its fsspec package"
    objects: bool = False
    exclusive: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    put_options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Sets the environment variables; call it before the package is imported."""
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)


_S3 = Cloud(
    kind="s3",
    extra="s3",
    container="bucket",
    credentials=(
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a "
        "role (workload identity)"
    ),
    objects=True,
    exclusive=True,  # If-None-Match, If-Match
    # botocore's tries multiply with those of s3fs (attributes) and with ours.
    options={
        "use_listings_cache": False,
        "config_kwargs": {
            "retries": {"mode": "standard", "total_max_attempts": 3},
            "max_pool_connections": _CONNECTIONS,
        },
    },
    attributes={"retries": 2},
    # The package's default is ten chunks of 50 MiB at once, for every upload.
    put_options={"chunksize": _UPLOAD_CHUNK_BYTES, "max_concurrency": 4},
)
_GCS = Cloud(
    kind="gcs",
    extra="gcs",
    container="bucket",
    credentials=(
        "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default "
        "login`, or run with workload identity"
    ),
    objects=True,
    exclusive=True,  # ifGenerationMatch
    # Without a limit a request that gets no answer waits forever.
    options={"use_listings_cache": False, "requests_timeout": 120},
    put_options={"chunksize": _UPLOAD_CHUNK_BYTES},
    # Otherwise the package first asks for the bucket's type by gRPC, and waits a minute
    # where that is blocked. It needs the type only for buckets with real folders.
    environment={"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
)
_AZURE = Cloud(
    kind="azure",
    extra="azure",
    container="container",
    credentials=(
        "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with "
        "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or run with a managed "
        "identity and `storage` account_name=NAME"
    ),
    objects=True,
    exclusive=True,  # If-None-Match, If-Match
    options={
        "use_listings_cache": False,
        "connection_timeout": 20,
        "read_timeout": 60,
    },
    put_options={"max_concurrency": 4},
)
# Lives in this process only; for tests and small experiments.
_MEMORY = Cloud(kind="memory", objects=True, exclusive=True)
_OTHER = Cloud()

_CLOUDS = {
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
    """Returns the properties of the storage that a URL names."""
    return _CLOUDS.get(url.partition("://")[0], _OTHER)


def modified_time(info: Mapping[str, Any]) -> float | None:
    """Returns when a file was written by its store's clock, in Unix seconds, or None.

    Args:
      info: as returned by the file system's `info`.
    """
    for key in ("LastModified", "last_modified", "updated", "mtime", "created"):
        value = info.get(key)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if value is not None:
            seconds = value.timestamp() if isinstance(value, datetime) else value
            return float(seconds)
    return None


def stored_checksum(info: Mapping[str, Any]) -> int | None:
    """Returns the CRC-32C that a store keeps of a file (GCS: base64, big-endian)."""
    stored = info.get("crc32c")
    return int.from_bytes(base64.b64decode(stored), "big") if stored else None


def wait_for_copy(system: Any, path: str) -> None:
    """Waits until Azure has copied a file in the background; others return at once.

    Raises:
      OSError: the copy failed or takes too long.
    """
    if not hasattr(system, "service_client"):
        return
    container, blob, _ = system.split_path(path)

    from fsspec.asyn import sync  # as in filesystems.py

    async def state() -> str | None:
        async with system.service_client.get_blob_client(container, blob) as client:
            status: str | None = (await client.get_blob_properties()).copy.status
            return status

    until = time.monotonic() + _COPY_SECONDS
    while (status := sync(system.loop, state)) == "pending":
        if time.monotonic() > until:
            raise TimeoutError(f"the copy took longer than {_COPY_SECONDS:.0f} s")
        time.sleep(0.5)
    if status not in (None, "success"):
        raise ConnectionError(f"the copy ended with status {status!r}")
