"""Keeps a dataset's files in an object store or other storage, through fsspec.

An object is sent by one call that makes it visible as a whole or not at all. This file
never uses `with system.open(url, "wb")`: an exception in it closes the file and so
publishes what was sent until then; adlfs does so even when told not to commit. Where a
put is not one step (storage with folders), a file is written under a temporary name,
checked and renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import check_file_name
from recordmill.transforms.parallel import ahead
from recordmill.transforms.storage.clouds import (
    Cloud,
    cloud_of,
    modified_time,
    stored_checksum,
    wait_for_copy,
)
from recordmill.transforms.storage.conditional import (
    create_object,
    discard_object,
    keeps_conditions,
    swap_object,
    swap_unguarded,
)
from recordmill.transforms.storage.errors import (
    DEFAULT_RETRIES,
    SHORT_RETRIES,
    RetryPolicy,
    output_error,
    safe_cause,
    with_retries,
)
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.fsspec_files import (
    NO_FILE,
    file_info,
    put_and_rename,
    read_between,
    read_whole,
    rename,
)
from recordmill.transforms.storage.s3_requests import (
    delete_objects,
    list_objects,
    speaks_s3,
)
from recordmill.transforms.storage.store import Level, Store, is_temp_file

# The file systems differ: some show a folder as an empty file of that name, some list a
# file as a folder that holds itself, some end the names of folders with a slash.


def list_files(system: Any, path: str, root: str) -> dict[str, int]:
    """Returns names and sizes of all files in a folder and its subfolders, by name.

    Args:
      system: the file system.
      path: of the folder, as the file system spells it.
      root: of the store; the returned names are relative to it.
    """
    system.invalidate_cache()
    try:
        if speaks_s3(system):
            return _files(list_objects(system, path, deep=True), path, root)
        listing = system.find(path, detail=True)
    except FileNotFoundError:
        return {}
    if not isinstance(listing, dict):
        return {}  # adlfs, if the path is that of a file
    return _files(listing.values(), path, root)


def list_folder(system: Any, path: str, root: str) -> Level:
    """Returns what lies directly in a folder; arguments as in `list_files`."""
    system.invalidate_cache()
    try:
        if speaks_s3(system):
            listing = list(list_objects(system, path, deep=False))
        else:
            listing = system.ls(path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        listing = []
    files = _files(listing, path, root)
    finished = {name: size for name, size in files.items() if not is_temp_file(name)}
    checksums = {
        name: checksum
        for name, info in _entries_below(listing, path, root)
        if name in finished and (checksum := stored_checksum(info)) is not None
    }
    return Level(
        finished,
        tuple(sorted(_folders(listing, path, root))),
        {name: size for name, size in files.items() if is_temp_file(name)},
        checksums,
    )


def _files(listing: Any, path: str, root: str) -> dict[str, int]:
    return {
        name: int(info["size"])
        for name, info in sorted(
            _entries_below(listing, path, root), key=lambda pair: pair[0]
        )
        if info["type"] == "file" and not name.endswith("/")
    }


def _folders(listing: Any, path: str, root: str) -> set[str]:
    return {
        name.rstrip("/")
        for name, info in _entries_below(listing, path, root)
        if info["type"] == "directory"
    }


def _entries_below(
    listing: Any, path: str, root: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields (name relative to the root, info) of each entry below the folder."""
    above = path.rstrip("/") + "/"
    for info in listing:
        name = info["name"]
        if name.startswith(above) and name != above:
            yield name[len(root.rstrip("/")) + 1 :], info


_Result = TypeVar("_Result")
_PARALLEL = 16  # requests at once, each for another file


@dataclass(frozen=True, slots=True)
class RemoteRequests:
    """The requests for files below a URL.

    Attributes:
      url: the root, like s3://bucket/folder.
      options: for the file system; without secrets.
      retry_policy: how often and how long transient errors are retried.
    """

    url: str
    options: StorageOptions
    retry_policy: RetryPolicy

    def uri_of(self, name: str) -> str:
        """Returns the URL of a file or folder.

        Raises:
          UnsafeNameError: it would lie elsewhere.
        """
        return f"{self.url.rstrip('/')}/{check_file_name(name, self.url)}"

    def path_of(self, name: str) -> str:
        """Returns what the file system calls a file."""
        return filesystem_of(self.uri_of(name), self.options)[1]

    def do(
        self, done: str, name: str, action: Callable[[Any, str], _Result]
    ) -> _Result:
        """Calls action(system, path) for a file, with retries.

        Args:
          done: what was to be done, for the error: "read", "written", "removed".
          name: of the file.
          action: is called again after a transient error.

        Raises:
          OutputError: it failed.
        """
        return self._with_retries(done, self.uri_of(name), action)

    def read(self, name: str, action: Callable[[Any, str], bytes]) -> bytes:
        """Calls action(system, path) for a file that must be there, as `do` does.

        Raises:
          MissingFileError: it is not.
        """

        def read(system: Any, path: str) -> bytes:
            try:
                return action(system, path)
            except NO_FILE as error:
                missing = MissingFileError(f"{self.uri_of(name)}: is missing")
                raise missing from safe_cause(error)

        return self.do("read", name, read)

    def info(self, name: str) -> dict[str, Any] | None:
        """Returns what the file system tells of a file; None if there is none."""
        return self.do("read", name, file_info)

    def list(
        self, folder: str, list_below: Callable[[Any, str, str], _Result]
    ) -> _Result:
        """Calls list_below(system, path of the folder, path of the root)."""

        def list_once(system: Any, path: str) -> _Result:
            _, root = filesystem_of(self.url, self.options)
            return list_below(system, path, root)

        uri = self.uri_of(folder) if folder else self.url
        return self._with_retries("listed", uri, list_once)

    def _with_retries(
        self, done: str, uri: str, action: Callable[[Any, str], _Result]
    ) -> _Result:
        try:
            return with_retries(
                lambda: action(*filesystem_of(uri, self.options)), self.retry_policy
            )
        except Exception as error:
            raise output_error(error, uri, done) from safe_cause(error)


def for_each(action: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Calls a function for each item, for several at once."""
    for _ in ahead(items, action, _PARALLEL):
        pass


@dataclass(frozen=True, slots=True)
class RemoteStore(Store):
    """A store of the files below a URL.

    Attributes:
      url: the root, like s3://bucket/folder.
      options: for the file system; without secrets.
      retry_policy: how often and how long transient errors are retried.
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
        return replace(self, url=self.uri_of(check_file_name(folder, self.uri)))

    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        if not source.is_file():
            raise OutputError(f"{source}: cannot be copied to {self.url}: is missing")
        expected = source.stat().st_size

        def put(system: Any, path: str) -> None:
            if self.url.startswith("memory:"):  # put_file would show an unfinished file
                system.pipe_file(path, source.read_bytes())
            else:
                system.put_file(str(source), path, **self._cloud.put_options)

        self._put(put, name, expected, crc32c)

    def put_bytes(self, data: bytes, name: str) -> None:
        def put(system: Any, path: str) -> None:
            system.pipe_file(path, data)

        if self._cloud.objects:  # by one request: all of it, or an error
            self._requests.do("written", name, put)
        else:
            self._put(put, name, len(data))

    def create(self, data: bytes, name: str) -> bool:
        if not self.exclusive:
            return swap_unguarded(self, data, name, None)

        def create(system: Any, path: str) -> bool:
            return create_object(self.url, system, path, data)

        return self._requests.do("written", name, create) or self.read(name) == data

    def swap(self, data: bytes, name: str, *, seen: bytes | None) -> bool:
        if not self.exclusive:
            return swap_unguarded(self, data, name, seen)

        def swap(system: Any, path: str) -> bool:
            return swap_object(self.url, system, path, data, seen)

        return self._requests.do("written", name, swap)

    def discard(self, name: str, *, seen: bytes) -> bool:
        if not self.exclusive:
            return Store.discard(self, name, seen=seen)

        def discard(system: Any, path: str) -> bool:
            return discard_object(self.url, system, path, seen)

        return self._requests.do("removed", name, discard)

    def keeps_conditions(self, name: str) -> bool:
        def put_twice(system: Any, path: str) -> bool:
            return keeps_conditions(self.url, system, path)

        return self.exclusive and self._requests.do("written", name, put_twice)

    def read(self, name: str) -> bytes:
        return self._requests.read(name, read_whole)

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        return self._requests.read(
            name, lambda system, path: read_between(system, path, start, stop)
        )

    def size(self, name: str) -> int | None:
        info = self._requests.info(name)
        return int(info["size"]) if info else None

    def modified(self, name: str) -> float | None:
        info = self._requests.info(name)
        return modified_time(info) if info else None

    def checksum(self, name: str) -> int | None:
        info = self._requests.info(name)
        return stored_checksum(info) if info else None

    def list(self, folder: str = "") -> dict[str, int]:
        files = self._requests.list(folder, list_files)
        return {name: size for name, size in files.items() if not is_temp_file(name)}

    def list_level(self, folder: str = "") -> Level:
        return self._requests.list(folder, list_folder)

    def unfinished(self, folder: str = "") -> dict[str, int]:
        if self._cloud.objects:
            return {}
        files = self._requests.list(folder, list_files)
        return {name: size for name, size in files.items() if is_temp_file(name)}

    def delete(self, names: Iterable[str]) -> None:
        def remove(system: Any, path: str) -> None:
            with suppress(*NO_FILE):
                system.rm_file(path)

        if len(names := tuple(names)) > 1 and self._cloud.kind == "s3":
            names = tuple(self._delete_together(names))
        for_each(lambda name: self._requests.do("removed", name, remove), names)

    def remove_tree(self, folder: str) -> None:
        if self._cloud.objects:
            Store.remove_tree(self, folder)
            return

        def remove(system: Any, path: str) -> None:
            with suppress(*NO_FILE):  # missing, or removed by an earlier try
                system.rm(path, recursive=True)

        self._requests.do("removed", folder, remove)

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        for_each(lambda pair: self._move(*pair), pairs)

    @property
    def _cloud(self) -> Cloud:
        return cloud_of(self.url)

    @property
    def _requests(self) -> RemoteRequests:
        return RemoteRequests(self.url, self.options, self.retry_policy)

    def _put(
        self,
        put: Callable[[Any, str], object],
        name: str,
        size: int,
        crc32c: int | None = None,
    ) -> None:
        if self._cloud.objects:
            self._requests.do("written", name, put)
        else:
            self._put_by_rename(put, name, size)
        found = self._requests.info(name)
        stored = stored_checksum(found) if found and crc32c is not None else None
        same = stored is None or stored == crc32c
        if found is None or int(found["size"]) != size or not same:
            self.delete([name])
            stored_size = "nothing" if found is None else f"{found['size']} bytes"
            raise OutputError(
                f"{self.uri_of(name)}: {size} bytes were written, but the store has "
                f"{stored_size}{'' if same else ' with another CRC-32C'}; the file was "
                "removed. The local file changed, or another run writes here: run again"
            )

    def _put_by_rename(
        self, put: Callable[[Any, str], object], name: str, size: int
    ) -> None:
        """Writes a file under a temporary name, then renames it.

        For storage that shows readers an unfinished file.
        """
        folder, slash, last = name.rpartition("/")
        temporary = f"{folder}{slash}.{last}.{uuid4().hex}"

        def put_whole(system: Any, path: str) -> None:
            put_and_rename(system, path, self._requests.path_of(temporary), put, size)

        try:
            self._requests.do("written", name, put_whole)
        except BaseException:
            with suppress(OutputError):
                self.delete([temporary])
            raise

    def _delete_together(self, names: Iterable[str]) -> Iterable[str]:
        """Removes files by few requests; returns the names of those that are left."""
        paths = {self._requests.path_of(name): name for name in names}
        system, _ = filesystem_of(self.url, self.options)
        return [paths[path] for path in delete_objects(system, list(paths))]

    def _move(self, source: str, target: str) -> None:
        original = self._requests.info(source)
        if original is None:
            raise MissingFileError(
                f"{self.uri_of(source)}: is missing, cannot be moved"
            )

        def copy(system: Any, path: str) -> None:
            system.cp_file(self._requests.path_of(source), path)
            wait_for_copy(system, path)

        if self._cloud.objects:
            self._requests.do("written", target, copy)
        else:
            self._requests.do(
                "written",
                target,
                lambda system, path: rename(
                    system, self._requests.path_of(source), path
                ),
            )
        found = self._requests.info(target)
        if found is None or (int(found["size"]), stored_checksum(found)) != (
            int(original["size"]),
            stored_checksum(original),
        ):
            self.delete([target])
            raise OutputError(
                f"{self.uri_of(target)}: the copy of {self.uri_of(source)} "
                f"({original['size']} bytes) is incomplete; it was removed. Run again"
            )
        self.delete([source])
