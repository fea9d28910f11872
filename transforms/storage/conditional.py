"""Reads, puts and removes a file of remote storage, on conditions where it takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.input_files import Seen
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage.clouds import (
    NO_FILE,
    AnotherVersionError,
    Cloud,
    Info,
    cloud_of,
    filesystem_of,
)
from recordmill.transforms.storage.errors import is_transient, is_unmet_condition

_TRIES = 10  # if a file is written again and again with the content that was seen


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A name in remote storage, with the connection to it; for one request or a few.

    Attributes:
      cloud: the kind of storage.
      system: the file system of fsspec.
      path: what it calls the file.
    """

    cloud: Cloud
    system: Any
    path: str

    @classmethod
    def at(cls, url: str, options: StorageOptions) -> RemoteFile:
        """Returns the file that a URL names."""
        return cls(cloud_of(url), *filesystem_of(url, options))

    def info(self) -> dict[str, Any] | None:
        """Returns the store's description of the file now, or None if there is none."""
        self.system.invalidate_cache()
        try:
            info = self.cloud.info(self.system, self.path)
        except NO_FILE:
            return None
        return info if info["type"] == "file" else None

    def read(self) -> bytes:
        """Returns all bytes of a small file."""
        return self.cloud.read(self.system, self.path)

    def read_between(self, start: int, stop: int) -> bytes:
        """Returns the bytes from start to stop; fewer if the file ends before."""
        return self.cloud.read_between(self.system, self.path, start, stop)

    def read_version(self, seen: Seen, part: tuple[int, int] | None = None) -> bytes:
        """Returns bytes of the version that was listed; `can_read_version` holds.

        Args:
          seen: size and version of the file.
          part: first byte, and one after the last; fewer are returned if the file ends
            before. None for the whole file.

        Raises:
          AnotherVersionError: there is another version now.
          FileNotFoundError: there is no such file.
        """
        if part is not None:
            # Stores answer differently to a range after the end, so never ask for one.
            part = part[0], min(part[1], seen.size)
            if part[0] >= part[1]:
                return b""
        try:
            return self.cloud.read_version(self.system, self.path, seen.version, part)
        except AnotherVersionError:
            raise
        except Exception as error:
            if is_unmet_condition(error) or self._was_replaced(seen, error):
                raise AnotherVersionError from error
            raise

    def put(self, data: bytes) -> None:
        """Puts a small file."""
        self.system.pipe_file(self.path, data)

    def create(self, data: bytes) -> bool:
        """Puts the file if there is none of that name.

        Returns:
          Whether this call put it. If an answer was lost, it may have without knowing.
        """
        with self.cloud.guard:
            return self._put_over(None, data)

    def swap(self, data: bytes, seen: bytes | None) -> bool:
        """Puts the file if its content is `seen`; see Store.swap."""
        with self.cloud.guard:
            if seen is None and self._put_over(None, data):
                return True
            for _ in range(_TRIES):
                info, found = self._look()
                if found == data:
                    return True
                if found != seen:
                    return False
                if self._put_over(info, data):
                    return True
        raise ConnectionError(f"another version came {_TRIES} times amid a put")

    def discard(self, seen: bytes) -> bool:
        """Removes the file if its content is `seen`; see Store.discard.

        A server that ignores the condition removes whatever is there.
        """
        with self.cloud.guard:
            for _ in range(_TRIES):
                info, found = self._look()
                if info is None:
                    return True
                if found != seen:
                    return False
                if self._holds(self.cloud.remove_version, info):
                    return True
        raise ConnectionError(f"another version came {_TRIES} times amid a removal")

    def keeps_conditions(self) -> bool:
        """Tells whether the store refuses the puts whose conditions do not hold.

        The file must be there; its content is changed.
        """
        before = self.info()
        if before is None or self.create(b"created"):
            return False
        if not self.cloud.imitated:
            return True
        self.put(b"replaced")
        return not self._put_over(before, b"put over an old version")

    def _look(self) -> tuple[Info | None, bytes | None]:
        """Returns a version with its content; None twice if there is no file."""
        self.system.invalidate_cache()
        try:
            return self.cloud.look(self.system, self.path)
        except NO_FILE:
            return None, None

    def _put_over(self, info: Info | None, data: bytes) -> bool:
        """Puts the file over one version, or over none; returns whether it did."""
        if info is not None:
            return self._holds(self.cloud.put_over, data, info)
        # Here a FileNotFoundError is of a missing bucket.
        return self._holds(self.cloud.put_new, data, gone=())

    def _holds(
        self,
        act: Callable[..., None],
        *arguments: object,
        gone: tuple[type[Exception], ...] = (FileNotFoundError,),
    ) -> bool:
        """Sends a request on a condition; returns whether the condition held."""
        try:
            act(self.system, self.path, *arguments)
        except gone:
            return False
        except Exception as error:
            if not is_unmet_condition(error):
                raise
            return False
        return True

    def _was_replaced(self, seen: Seen, error: Exception) -> bool:
        """Tells whether a request failed because the file is shorter by now."""
        if is_transient(error) or not (info := self.info()):
            return False
        return int(info["size"]) != seen.size


def can_read_version(url: str, seen: Seen | None) -> bool:
    """Tells whether a store can be asked for just this version of a file."""
    if seen is None or not seen.version:
        return False
    return cloud_of(url).has_version(seen.version)
