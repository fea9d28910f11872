"""What is peculiar to each kind of remote storage, so that the store need not know."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fsspec.asyn import sync

_COPY_SECONDS = 600.0  # bound of a copy made in the background
_PART_BYTES = 16 << 20  # times four at once: 64 MiB of memory per upload


@dataclass(frozen=True, slots=True)
class Cloud:
    """One kind of storage.

    Attributes:
      extra: recordmill's extra that brings its package.
      container: what it calls a bucket.
      credentials: where it takes credentials from.
      objects: a put is one step; otherwise files are put aside, then renamed.
      exclusive: it can create a file only if there is none.
      options: for the file system's constructor, below those of the user.
      attributes: set on the file system, where its constructor takes no such option.
      put_options: for `put_file`, so that memory stays bounded.
      environment: set before its package is imported, unless set already.
    """

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
        """To be called before the package is imported."""
        for name, value in self.environment.items():
            os.environ.setdefault(name, value)


_S3 = Cloud(
    extra="s3",
    container="bucket",
    credentials=(
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a "
        "role (workload identity)"
    ),
    objects=True,
    exclusive=True,  # If-None-Match
    # Its tries times those of s3fs (attributes) times ours: a few are enough.
    options={
        "use_listings_cache": False,
        "config_kwargs": {"retries": {"mode": "standard", "total_max_attempts": 3}},
    },
    attributes={"retries": 2},
    # The package's own would be ten parts of 50 MiB at once, for every upload.
    put_options={"chunksize": _PART_BYTES, "max_concurrency": 4},
)
_GCS = Cloud(
    extra="gcs",
    container="bucket",
    credentials=(
        "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default "
        "login`, or run with workload identity"
    ),
    objects=True,
    exclusive=True,  # ifGenerationMatch=0
    # Without a limit a request that gets no answer waits for ever.
    options={"use_listings_cache": False, "requests_timeout": 120},
    put_options={"chunksize": _PART_BYTES},
    # The package would ask for the bucket's type by gRPC first, and wait a minute where
    # that is blocked; it finds folders of buckets with hierarchy, which are not needed.
    environment={"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
)
_AZURE = Cloud(
    extra="azure",
    container="container",
    credentials=(
        "set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with "
        "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or run with a managed "
        "identity and --storage-option account_name=NAME"
    ),
    objects=True,
    exclusive=True,  # If-None-Match
    options={
        "use_listings_cache": False,
        "connection_timeout": 20,
        "read_timeout": 60,
    },
    put_options={"max_concurrency": 4},
)
# Of this process alone, for tests and small experiments.
_MEMORY = Cloud(objects=True, exclusive=True)
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
    """What is known of the storage that a url names; little if it is not in here."""
    return _CLOUDS.get(url.partition("://")[0], _OTHER)


def modified_time(facts: Mapping[str, Any]) -> float | None:
    """When a file was written by its store's clock, in Unix seconds.

    Args:
      facts: what the file system's `info` says.
    """
    for key in ("LastModified", "last_modified", "updated", "mtime", "created"):
        value = facts.get(key)
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        if value is not None:
            seconds = value.timestamp() if isinstance(value, datetime) else value
            return float(seconds)
    return None


def stored_checksum(facts: Mapping[str, Any]) -> int | None:
    """The CRC-32C that a store keeps of a file (Google's: base64, big-endian)."""
    stored = facts.get("crc32c")
    return int.from_bytes(base64.b64decode(stored), "big") if stored else None


def wait_for_copy(system: Any, path: str) -> None:
    """Waits for Azure, which may copy in the background; the others are done.

    Raises:
      OSError: the copy failed, or takes too long.
    """
    if not hasattr(system, "service_client"):
        return
    container, blob, _ = system.split_path(path)

    async def state() -> str | None:
        async with system.service_client.get_blob_client(container, blob) as client:
            status: str | None = (await client.get_blob_properties()).copy.status
            return status

    until = time.monotonic() + _COPY_SECONDS
    while (status := sync(system.loop, state)) == "pending":
        if time.monotonic() > until:
            raise TimeoutError(f"copied for longer than {_COPY_SECONDS:.0f} s")
        time.sleep(0.5)
    if status not in (None, "success"):
        raise ConnectionError(f"the copy ended as {status}")
