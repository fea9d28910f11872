"""Stores a dataset's files in an object store or other remote storage, through fsspec.

An object is sent by one call that makes it visible completely or not at all. This module
never uses `with system.open(url, "wb")`: an exception in it closes the file, and so
publishes the bytes sent until then; adlfs does so even when told not to commit. If a put
is not one step (storage with folders), a file is written under a temporary name, checked
and renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.schemas.names import check_file_name
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.storage.clouds import (
    NO_FILE,
    FileDescription,
    RemoteFile,
    cloud_of,
    filesystem_of,
    modified_time,
    remote_file,
    stored_checksum,
)
from recordmill.transforms.storage.errors import (
    DEFAULT_RETRIES,
    SHORT_RETRIES,
    RetryPolicy,
    output_error,
    safe_cause,
    with_retries,
)
from recordmill.transforms.storage.store import Data, Level, Store

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Descriptions = list[tuple[str, FileDescription]]
_PARALLEL = 16  # requests at once, each for another file


@dataclass(frozen=True, slots=True)
class RemoteStore(Store):
    """A store of the files below a URL, like s3://bucket/folder."""

    url: str
    options: StorageOptions = NO_OPTIONS  # without secrets
    retry_policy: RetryPolicy = DEFAULT_RETRIES

    @property
    def uri(self) -> str:
        return self.url

    @property
    def swaps_exclusively(self) -> bool:
        return self._cloud.supports_conditions

    def with_short_retries(self) -> RemoteStore:
        return replace(self, retry_policy=SHORT_RETRIES)

    def subfolder_store(self, folder: str) -> RemoteStore:
        return replace(self, url=self.uri_of(check_file_name(folder, self.uri)))

    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        if not source.is_file():
            raise OutputError(f"{source}: cannot be copied to {self.url}: is missing")
        size = source.stat().st_size
        self._put(lambda file: file.put_file(source), name, size, crc32c)

    def put_bytes(self, data: Data, name: str) -> None:
        data = bytes(data)
        if (
            self._cloud.puts_in_one_step
        ):  # one request: the complete object, or an error
            self._with_file("written", name, lambda file: file.put(data))
        else:
            self._put(lambda file: file.put(data), name, len(data))

    def swap(self, data: Data, name: str, *, expected_content: bytes | None) -> bool:
        data = bytes(data)
        if not self.swaps_exclusively:
            return self._swap_unguarded(data, name, expected_content)
        return self._with_file(
            "written", name, lambda file: file.swap(data, expected_content)
        )

    def discard(self, name: str, *, expected_content: bytes) -> bool:
        if not self.swaps_exclusively:
            return Store.discard(self, name, expected_content=expected_content)
        return self._with_file(
            "removed", name, lambda file: file.discard(expected_content)
        )

    def keeps_conditions(self, name: str) -> bool:
        return self.swaps_exclusively and self._with_file(
            "written", name, RemoteFile.keeps_conditions
        )

    def read(self, name: str) -> bytes:
        return self._read(name, lambda file: file.read())

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        return self._read(name, lambda file: file.read_between(start, stop))

    def size(self, name: str) -> int | None:
        description = self._info(name)
        return int(description["size"]) if description else None

    def modified_time(self, name: str) -> float | None:
        description = self._info(name)
        return modified_time(description) if description else None

    def checksum(self, name: str) -> int | None:
        description = self._info(name)
        return stored_checksum(description) if description else None

    def list_tree(self, folder: str) -> dict[str, int]:
        return _files(self._list_descriptions(folder, deep=True))

    def list_level(self, folder: str = "") -> Level:
        listing = self._list_descriptions(folder, deep=False)
        files = _files(listing)
        folders = {
            n.rstrip("/")
            for n, description in listing
            if description["type"] == "directory"
        }
        checksums = {
            name: checksum
            for name, description in listing
            if name in files and (checksum := stored_checksum(description)) is not None
        }
        return Level.of(files, folders, checksums)

    def list_temp_files(self, folder: str = "") -> dict[str, int]:
        return (
            {} if self._cloud.puts_in_one_step else Store.list_temp_files(self, folder)
        )

    def delete(self, names: Iterable[str]) -> None:
        def remove(file: RemoteFile) -> None:
            with suppress(*NO_FILE):
                file.system.rm_file(file.path)

        if len(names := tuple(names)) > 1:
            paths = {self._path_of(name): name for name in names}
            root = remote_file(self.url, self.options)
            remaining_paths = root.remove_together(tuple(paths))
            names = tuple(paths[path] for path in remaining_paths)
        self.for_each(lambda name: self._with_file("removed", name, remove), names)

    def remove_tree(self, folder: str) -> None:
        if self._cloud.puts_in_one_step:
            Store.remove_tree(self, folder)
            return

        def remove(file: RemoteFile) -> None:
            with suppress(*NO_FILE):  # missing, or removed by an earlier try
                file.system.rm(file.path, recursive=True)

        self._with_file("removed", folder, remove)

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        pairs = tuple(pairs)
        self.for_each(lambda pair: self._move(*pair), pairs)
        if (
            self._cloud.puts_in_one_step
        ):  # object stores cannot move: the files were copied
            self.delete(source for source, _ in pairs)

    def for_each(
        self, action: Callable[[_Item], _Result], arguments: Iterable[_Item]
    ) -> Sequence[_Result]:
        return list(map_ahead(arguments, action, _PARALLEL))

    @property
    def _cloud(self) -> type[RemoteFile]:
        return cloud_of(self.url)

    def _path_of(self, name: str) -> str:
        """Returns the path of a file in the fsspec file system."""
        url = self.uri_of(check_file_name(name, self.url))
        return filesystem_of(url, self.options)[1]

    def _with_file(
        self, done: str, name: str | None, action: Callable[[RemoteFile], _Result]
    ) -> _Result:
        """Calls `action(file)`, again after transient errors.

        Args:
          done: participle of the action, for errors: "read", "written", "removed".
          name: the file; None for the root.
          action: gets the file with its connection; must be safe to repeat.
        """
        url = self.url
        if name is not None:
            url = self.uri_of(check_file_name(name, url))
        try:
            return with_retries(
                lambda: action(remote_file(url, self.options)), self.retry_policy
            )
        except Exception as error:
            raise output_error(error, url, done) from safe_cause(error)

    def _read(self, name: str, action: Callable[[RemoteFile], bytes]) -> bytes:
        """Calls `action(file)` for a file that must exist."""

        def read(file: RemoteFile) -> bytes:
            try:
                return action(file)
            except NO_FILE as error:
                missing = MissingFileError(f"{self.uri_of(name)}: is missing")
                raise missing from safe_cause(error)

        return self._with_file("read", name, read)

    def _info(self, name: str) -> dict[str, Any] | None:
        return self._with_file("read", name, RemoteFile.describe)

    def _list_descriptions(self, folder: str, *, deep: bool) -> _Descriptions:
        """Returns the names in a folder, relative to the root, and their descriptions.

        The file systems differ: some show a folder as an empty file of that name, some
        list a file as a folder that contains itself, some end names of folders with a
        slash.
        """

        def list_descriptions(file: RemoteFile) -> _Descriptions:
            file.system.invalidate_cache()
            try:
                descriptions = [*file.list_files(deep=deep)]
            except (FileNotFoundError, NotADirectoryError):
                return []
            above = file.path.rstrip("/") + "/"
            root = filesystem_of(self.url, self.options)[1].rstrip("/")
            return [
                (description["name"][len(root) + 1 :], description)
                for description in descriptions
                if description["name"].startswith(above)
                and description["name"] != above
            ]

        return self._with_file("listed", folder or None, list_descriptions)

    def _swap_unguarded(
        self, data: bytes, name: str, expected_content: bytes | None
    ) -> bool:
        """Reads, puts and reads again, in a store without conditional requests."""
        if (
            content := self.read_if_exists(name)
        ) == expected_content and content != data:
            self.put_bytes(data, name)
            content = self.read_if_exists(name)
        return content == data

    def _put(
        self,
        send: Callable[[RemoteFile], object],
        name: str,
        size: int,
        crc32c: int | None = None,
    ) -> None:
        if self._cloud.puts_in_one_step:
            self._with_file("written", name, send)
        else:
            self._put_by_rename(send, name, size)
        description = self._info(name)
        stored = (
            stored_checksum(description) if description and crc32c is not None else None
        )
        has_same_checksum = stored is None or stored == crc32c
        if (
            description is None
            or int(description["size"]) != size
            or not has_same_checksum
        ):
            self.delete([name])
            stored_size = (
                "nothing" if description is None else f"{description['size']} bytes"
            )
            raise OutputError(
                f"{self.uri_of(name)}: {size} bytes were written, but the store has "
                f"{stored_size}{'' if has_same_checksum else ' with another CRC-32C'}; the file was "
                "removed. The local file changed, or another run writes here: run again"
            )

    def _put_by_rename(
        self, send: Callable[[RemoteFile], object], name: str, size: int
    ) -> None:
        """Writes a file under a temporary name, checks it, then renames it.

        For storage in which readers can see an unfinished file.
        """
        folder, slash, last = name.rpartition("/")
        temporary = f"{folder}{slash}.{last}.{uuid4().hex}"

        def put_whole(file: RemoteFile) -> None:
            first = self._cloud(file.system, self._path_of(temporary))
            file.system.makedirs(file.path.rpartition("/")[0], exist_ok=True)
            send(first)
            file.system.invalidate_cache()
            stored_size = int(file.system.info(first.path)["size"])
            if stored_size != size:
                raise ConnectionError(f"only {stored_size} of {size} bytes arrived")
            file.system.mv(first.path, file.path)

        try:
            self._with_file("written", name, put_whole)
        except BaseException:
            with suppress(OutputError):
                self.delete([temporary])
            raise

    def _move(self, source: str, target: str) -> None:
        original = self._info(source)
        if original is None:
            raise MissingFileError(
                f"{self.uri_of(source)}: is missing, cannot be moved"
            )

        def move(file: RemoteFile) -> None:
            source_path = self._path_of(source)
            if self._cloud.puts_in_one_step:
                file.system.cp_file(source_path, file.path)
                file.wait_for_copy()
                return
            file.system.makedirs(file.path.rpartition("/")[0], exist_ok=True)
            with suppress(FileNotFoundError):  # an earlier try did it
                file.system.mv(source_path, file.path)

        self._with_file("written", target, move)
        description = self._info(target)
        if description is None or (
            int(description["size"]),
            stored_checksum(description),
        ) != (int(original["size"]), stored_checksum(original)):
            self.delete([target])
            raise OutputError(
                f"{self.uri_of(target)}: the copy of {self.uri_of(source)} "
                f"({original['size']} bytes) is incomplete; it was removed. Run again"
            )


def _files(listing: Iterable[tuple[str, FileDescription]]) -> dict[str, int]:
    """Returns the names and sizes of the files in a listing, sorted by name."""
    return {
        name: int(description["size"])
        for name, description in sorted(
            listing, key=lambda name_and_description: name_and_description[0]
        )
        if description["type"] == "file" and not name.endswith("/")
    }
