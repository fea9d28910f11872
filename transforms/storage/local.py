"""Keeps a dataset's files on a file system of this machine or a network mount.

A file is written under a temporary name, synced, renamed, and its folder is synced.
Folders appear and disappear with the files in them, as in object stores.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recordmill.schemas.errors import MissingFileError, OutputError
from recordmill.schemas.file_names import check_file_name
from recordmill.transforms.storage.atomic_files import (
    link_new,
    sync_folder,
    temp_path,
    write_synced,
)
from recordmill.transforms.storage.local_folders import (
    make_folders,
    missing_folders,
    nearest_folder,
    remove_empty,
)
from recordmill.transforms.storage.local_swap import discard_file, swap_file
from recordmill.transforms.storage.storage_errors import output_error
from recordmill.transforms.storage.store import (
    Level,
    Preflight,
    Store,
    is_temp_file,
)

_NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_TRIES = 5  # another process may remove the folder just made, while it is empty


@dataclass(frozen=True, slots=True)
class LocalStore(Store):
    """A store of the files in a local folder and its subfolders.

    Attributes:
      root: absolute path of the folder; created with the first file.
    """

    root: str

    @property
    def uri(self) -> str:
        return self.root

    @property
    def exclusive(self) -> bool:
        return True

    def below(self, folder: str) -> LocalStore:
        return LocalStore(str(self._path(folder)))

    def put_file(self, source: Path, name: str, *, crc32c: int | None = None) -> None:
        def copy(temporary: Path) -> None:
            shutil.copyfile(source, temporary)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())

        if not source.is_file():
            raise OutputError(f"{source}: cannot be copied to {self.root}: is missing")
        self._write_atomic(copy, name)

    def put_bytes(self, data: bytes, name: str) -> None:
        self._write_atomic(lambda temporary: write_synced(temporary, data), name)

    def create(self, data: bytes, name: str) -> bool:
        try:
            self._write_atomic(lambda path: write_synced(path, data), name, link_new)
        except FileExistsError:
            return self.read(name) == data
        return True

    def swap(self, data: bytes, name: str, *, seen: bytes | None) -> bool:
        path = self._path(name)
        for last in (*[False] * (_TRIES - 1), True):
            try:
                if seen is None:
                    make_folders(path.parent)
                elif not path.parent.is_dir():
                    return False
                return swap_file(path, data, seen)
            except OSError as error:
                if last or not isinstance(error, FileNotFoundError):
                    raise output_error(error, str(path), "written") from error
        raise AssertionError("the last try returns or raises")

    def discard(self, name: str, *, seen: bytes) -> bool:
        path = self._path(name)
        try:
            if not discard_file(path, seen):
                return False
        except FileNotFoundError:
            return True  # nor is its folder there
        except OSError as error:
            raise output_error(error, str(path), "removed") from error
        remove_empty([path.parent], Path(self.root))
        return True

    def read(self, name: str) -> bytes:
        path = self._path(name)
        try:
            return path.read_bytes()
        except OSError as error:
            raise self._unreadable(path, error) from error

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        path = self._path(name)
        try:
            with path.open("rb", buffering=0) as file:
                file.seek(start)
                chunks = []
                while start < stop and (chunk := file.read(stop - start)):
                    chunks.append(chunk)
                    start += len(chunk)
                return b"".join(chunks)
        except OSError as error:
            raise self._unreadable(path, error) from error

    def size(self, name: str) -> int | None:
        status = self._stat(name)
        return status.st_size if status else None

    def modified(self, name: str) -> float | None:
        status = self._stat(name)
        return status.st_mtime if status else None

    def list(self, folder: str = "") -> dict[str, int]:
        return {n: size for n, size in self._walk(folder) if not is_temp_file(n)}

    def list_level(self, folder: str = "") -> Level:
        path = self._path(folder) if folder else Path(self.root)
        prefix = f"{folder}/" if folder else ""
        files, folders = {}, []
        try:
            for entry in os.scandir(path):
                name = prefix + entry.name
                if entry.is_dir():
                    folders.append(name)
                else:
                    with suppress(FileNotFoundError):  # removed meanwhile
                        files[name] = entry.stat().st_size
        except _NO_FILE:
            pass
        except OSError as error:
            raise output_error(error, str(path), "listed") from error
        return Level(
            {name: files[name] for name in sorted(files) if not is_temp_file(name)},
            tuple(sorted(folders)),
            {name: files[name] for name in sorted(files) if is_temp_file(name)},
        )

    def unfinished(self, folder: str = "") -> dict[str, int]:
        return {n: size for n, size in self._walk(folder) if is_temp_file(n)}

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            path = self._path(name)
            try:
                path.unlink(missing_ok=True)
            except (IsADirectoryError, NotADirectoryError):
                continue  # not a file, so there is nothing to remove
            except OSError as error:
                raise output_error(error, str(path), "removed") from error
            folders.add(path.parent)
        remove_empty(folders, Path(self.root))

    def remove_tree(self, folder: str) -> None:
        path = self._path(folder)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise output_error(error, str(path), "removed") from error
        remove_empty([path.parent], Path(self.root))

    def move_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        touched_folders = set()
        for source, target in pairs:
            start, end = self._path(source), self._path(target)
            try:
                make_folders(end.parent)
                start.replace(end)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise MissingFileError(
                    f"{start}: is missing, cannot be moved"
                ) from error
            except OSError as error:
                raise output_error(error, str(end), "written") from error
            touched_folders |= {start.parent, end.parent}
        remove_empty(touched_folders, Path(self.root))

    def free_bytes(self) -> int | None:
        folder = nearest_folder(Path(self.root))
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            return None

    def preflight(self) -> Preflight:
        missing = missing_folders(Path(self.root))
        try:
            return Store.preflight(self)
        finally:
            with suppress(OSError):  # another process may use them already
                for folder in missing:
                    folder.rmdir()

    def _path(self, name: str) -> Path:
        return Path(self.root, check_file_name(name, self.uri))

    def _unreadable(self, path: Path, error: OSError) -> OutputError:
        if isinstance(error, _NO_FILE):
            return MissingFileError(f"{path}: is missing")
        return output_error(error, str(path), "read")

    def _stat(self, name: str) -> os.stat_result | None:
        path = self._path(name)
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise output_error(error, str(path), "read") from error
        return status if stat.S_ISREG(status.st_mode) else None

    def _walk(self, folder: str) -> Iterable[tuple[str, int]]:
        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise output_error(error, str(error.filename), "listed") from error

        start = self._path(folder) if folder else Path(self.root)
        found = []
        for parent, _, files in os.walk(start, onerror=fail):
            for file in files:
                path = Path(parent, file)
                with suppress(FileNotFoundError):  # removed meanwhile
                    name = path.relative_to(self.root).as_posix()
                    found.append((name, path.stat().st_size))
        return sorted(found)

    def _write_atomic(
        self,
        fill: Callable[[Path], None],
        name: str,
        finish: Callable[[Path, Path], None] = os.replace,
    ) -> None:
        """Calls `fill` with a temporary path, then `finish` to give it its name."""
        path = self._path(name)
        temporary = temp_path(path)
        for last in (*[False] * (_TRIES - 1), True):
            try:
                make_folders(path.parent)
                fill(temporary)
                finish(temporary, path)
                sync_folder(path.parent)
                return
            except FileExistsError as error:
                if path.parent.is_dir():
                    raise
                raise output_error(error, str(path), "written") from error
            except FileNotFoundError as error:
                if last:
                    raise output_error(error, str(path), "written") from error
            except OSError as error:
                raise output_error(error, str(path), "written") from error
            finally:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
