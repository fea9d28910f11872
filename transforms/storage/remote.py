"""A store behind fsspec: object stores, and whatever else it knows.

An object is sent by one call that makes it visible as a whole or not at all. Never
`with system.open(url, "wb")`: left by an exception, it closes the file and publishes
what was sent so far, and adlfs does so even when told not to commit. Where puts are not
one step (storage with folders) a file is put aside, looked at, and renamed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.storage.clouds import (
    Cloud,
    cloud_of,
    modified_time,
    stored_checksum,
    wait_for_copy,
)
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.fsspec_listing import list_files, list_folder
from recordmill.transforms.storage.retry import (
    DEFAULT_RETRIES,
    SHORT_RETRIES,
    RetryPolicy,
    output_error,
    safe_cause,
    with_retries,
)
from recordmill.transforms.storage.store import Level, Store, check_name, is_temp_file

_Result = TypeVar("_Result")
_PARALLEL = 16  # requests at once where each is for a file of its own

# A name may stand for a folder, or lie below a file: so it is no file either way.
_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)

_memory_creates = threading.Lock()


@dataclass(frozen=True, slots=True)
class RemoteStore(Store):
    """The files below a url.

    Attributes:
      url: the root, like s3://bucket/folder.
      options: for the file system; no secrets.
      retry_policy: how long faults are borne.
    """

    url: str
    options: StorageOptions = NO_OPTIONS
    retry_policy: RetryPolicy = DEFAULT_RETRIES

    @property
    def uri(self) -> str:
        return self.url

    @property
    def exclusive(self) -> bool:
        return self._cloud.exclusive

    def with_short_retries(self) -> RemoteStore:
        return replace(self, retry_policy=SHORT_RETRIES)

    def below(self, folder: str) -> RemoteStore:
        return replace(self, url=self.uri_of(check_name(folder)))

    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        if not source.is_file():
            raise OutputError(f"{source}: is to be copied to {self.url}, but is gone")
        expected = source.stat().st_size

        def put(system: Any, path: str) -> None:
            if self.url.startswith("memory:"):  # it would show what it has so far
                system.pipe_file(path, source.read_bytes())
            else:
                system.put_file(str(source), path, **self._cloud.put_options)

        self._put(put, name, expected, crc32c)

    def put_bytes(self, data: bytes, name: str) -> None:
        self._put(lambda system, path: system.pipe_file(path, data), name, len(data))

    def create(self, data: bytes, name: str) -> bool:
        if not self.exclusive:
            if self.size(name) is None:
                self.put_bytes(data, name)
            return self.read(name) == data
        # Memory looks first and writes then.
        guard = _memory_creates if self.url.startswith("memory:") else nullcontext()

        def create(system: Any, path: str) -> bool:
            with guard:
                try:
                    system.pipe_file(path, data, mode="create")
                except FileExistsError:
                    return False
            return True

        return self._do("written", name, create) or self.read(name) == data

    def read(self, name: str) -> bytes:
        return self._read(name, lambda system, path: bytes(system.cat_file(path)))

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        def read(system: Any, path: str) -> bytes:
            facts = system.info(path)
            if facts["type"] != "file":
                raise FileNotFoundError(path)
            # Stores differ in what they say to a range behind the end; so never ask.
            end = min(stop, int(facts["size"]))
            return (
                bytes(system.cat_file(path, start=start, end=end))
                if start < end
                else b""
            )

        return self._read(name, read)

    def size(self, name: str) -> int | None:
        facts = self._facts(name)
        return int(facts["size"]) if facts else None

    def modified(self, name: str) -> float | None:
        facts = self._facts(name)
        return modified_time(facts) if facts else None

    def checksum(self, name: str) -> int | None:
        facts = self._facts(name)
        return stored_checksum(facts) if facts else None

    def list(self, folder: str = "") -> dict[str, int]:
        return {
            n: size for n, size in self._find(folder).items() if not is_temp_file(n)
        }

    def list_level(self, folder: str = "") -> Level:
        return self._look_below(folder, list_folder)

    def unfinished(self) -> dict[str, int]:
        if self._cloud.objects:
            return {}
        return {n: size for n, size in self._find("").items() if is_temp_file(n)}

    def delete(self, names: Iterable[str]) -> None:
        def remove(system: Any, path: str) -> None:
            with suppress(*_NO_FILE):
                system.rm_file(path)

        self._each(lambda name: self._do("removed", name, remove), names)

    def remove_tree(self, folder: str) -> None:
        if self._cloud.objects:
            Store.remove_tree(self, folder)
            return

        def remove(system: Any, path: str) -> None:
            with suppress(*_NO_FILE):  # nothing there, or done by an earlier try
                system.rm(path, recursive=True)

        self._do("removed", folder, remove)

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._each(lambda pair: self._move(*pair), pairs)

    @property
    def _cloud(self) -> Cloud:
        return cloud_of(self.url)

    def _path(self, name: str) -> str:
        return filesystem_of(self.uri_of(check_name(name)), self.options)[1]

    def _do(
        self, done: str, name: str, action: Callable[[Any, str], _Result]
    ) -> _Result:
        """Does something with a file, as often as it takes; action(system, path)."""
        uri = self.uri_of(check_name(name))
        try:
            return with_retries(
                lambda: action(*filesystem_of(uri, self.options)), self.retry_policy
            )
        except Exception as error:
            raise output_error(error, uri, done) from safe_cause(error)

    def _read(self, name: str, action: Callable[[Any, str], bytes]) -> bytes:
        def read(system: Any, path: str) -> bytes:
            try:
                return action(system, path)
            except _NO_FILE as error:
                missing = MissingFileError(f"{self.uri_of(name)}: is missing")
                raise missing from safe_cause(error)

        return self._do("read", name, read)

    def _facts(self, name: str) -> dict[str, Any] | None:
        def look(system: Any, path: str) -> dict[str, Any] | None:
            system.invalidate_cache()
            try:
                facts: dict[str, Any] = system.info(path)
            except _NO_FILE:
                return None
            return facts if facts["type"] == "file" else None

        return self._do("read", name, look)

    def _find(self, folder: str) -> dict[str, int]:
        return self._look_below(folder, list_files)

    def _look_below(
        self, folder: str, look: Callable[[Any, str, str], _Result]
    ) -> _Result:
        """Lists a folder; look(system, path of the folder, path of the root)."""
        where = self.uri_of(check_name(folder)) if folder else self.url

        def listed() -> _Result:
            _, root = filesystem_of(self.url, self.options)
            system, path = filesystem_of(where, self.options)
            return look(system, path, root)

        try:
            return with_retries(listed, self.retry_policy)
        except Exception as error:
            raise output_error(error, where, "listed") from safe_cause(error)

    def _put(
        self,
        put: Callable[[Any, str], object],
        name: str,
        size: int,
        crc32c: int | None = None,
    ) -> None:
        if self._cloud.objects:
            self._do("written", name, put)
        else:
            self._put_aside(put, name, size)
        found = self._facts(name)
        stored = stored_checksum(found) if found and crc32c is not None else None
        same = stored is None or stored == crc32c
        if found is None or int(found["size"]) != size or not same:
            self.delete([name])
            have = "nothing" if found is None else f"{found['size']} bytes"
            raise OutputError(
                f"{self.uri_of(name)}: {size} bytes were written, but the store has "
                f"{have}{'' if same else ' with another CRC-32C'}; it was removed. "
                "Did the local file change, or does another run write here?"
            )

    def _put_aside(
        self, put: Callable[[Any, str], object], name: str, size: int
    ) -> None:
        """Puts a file where writers show what they have so far: beside its name."""
        folder, slash, last = name.rpartition("/")
        aside = f"{folder}{slash}.{last}.{uuid4().hex}"

        def place(system: Any, path: str) -> None:
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            hidden = self._path(aside)
            put(system, hidden)
            system.invalidate_cache()
            if int(system.info(hidden)["size"]) != size:
                raise ConnectionError("only a part of it arrived")
            system.mv(hidden, path)

        try:
            self._do("written", name, place)
        except BaseException:
            with suppress(OutputError):
                self.delete([aside])
            raise

    def _move(self, source: str, target: str) -> None:
        facts = self._facts(source)
        if facts is None:
            raise MissingFileError(
                f"{self.uri_of(source)}: is missing, cannot be moved"
            )

        def copy(system: Any, path: str) -> None:
            system.cp_file(self._path(source), path)
            wait_for_copy(system, path)

        if self._cloud.objects:
            self._do("written", target, copy)
        else:
            self._rename(source, target)
        found = self._facts(target)
        if found is None or (int(found["size"]), stored_checksum(found)) != (
            int(facts["size"]),
            stored_checksum(facts),
        ):
            self.delete([target])
            raise OutputError(
                f"{self.uri_of(target)}: the copy of {self.uri_of(source)} "
                f"({facts['size']} bytes) is not whole; it was removed. Run it again"
            )
        self.delete([source])

    def _rename(self, source: str, target: str) -> None:
        def rename(system: Any, path: str) -> None:
            system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with suppress(FileNotFoundError):  # done by a try whose answer was lost
                system.mv(self._path(source), path)

        self._do("written", target, rename)

    def _each(self, action: Callable[[Any], object], items: Iterable[Any]) -> None:
        items = list(items)
        if len(items) == 1:
            action(items[0])
        elif items:
            with ThreadPoolExecutor(min(_PARALLEL, len(items)), "store") as pool:
                for _ in pool.map(action, items):
                    pass
