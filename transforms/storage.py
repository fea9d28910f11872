"""Files by uri: listing and reading, local or through fsspec. Nothing secret is kept.

File systems are built where they are used, from uri and non-secret options; credentials
come from the environment. Local files go round fsspec: a plain pread is several times
faster. Transient faults of remote storage are tried again.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from schemas.errors import InputError
from schemas.ranges import InputFile
from schemas.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    require_secretless_url,
)
from transforms.encode.wire import I64, U8
from transforms.stores.faults import cause_to_show, reason, retrying
from transforms.stores.systems import system_of


def is_local(uri: str) -> bool:
    """Whether a uri names a file of this machine."""
    return "://" not in uri or uri.startswith("file://")


def local_path(uri: str) -> Path:
    """The path of a local uri."""
    return Path(uri.removeprefix("file://"))


def read_range(
    uri: str, start: int, stop: int, options: StorageOptions = NO_OPTIONS
) -> bytes:
    """Bytes start to stop of a file; fewer if it ends before.

    Args:
      uri: the file.
      start: first byte.
      stop: the byte behind the last one.
      options: of the inputs' storage.

    Raises:
      InputError: the file cannot be read.
    """
    if start >= stop:
        return b""
    try:
        if is_local(uri):
            with local_path(uri).open("rb", buffering=0) as file:
                return _read_all(file.fileno(), start, stop - start)
    except OSError as error:
        raise InputError(f"{uri}: cannot be read: {error}") from error

    def read() -> bytes:
        system, path = system_of(uri, options)
        # Stores differ in what they say to a range behind the end; so never ask.
        size = system.size(path)
        if start >= size:
            return b""
        return bytes(system.cat_file(path, start=start, end=min(stop, size)))

    return _read_remote(uri, read)


def _read_remote(uri: str, read: Callable[[], bytes]) -> bytes:
    try:
        return retrying(read)
    except Exception as error:
        message = f"{uri}: cannot be read: {reason(error, uri)}"
        raise InputError(message) from cause_to_show(error)


def _read_all(descriptor: int, start: int, length: int) -> bytes:
    first = os.pread(descriptor, length, start)
    if len(first) == length or not first:
        return first
    parts = [first]
    done = len(first)
    while done < length:
        part = os.pread(descriptor, length - done, start + done)
        if not part:
            break
        parts.append(part)
        done += len(part)
    return b"".join(parts)


def read_rows(uri: str, offsets: I64, target: U8, places: I64) -> None:
    """Reads rows of one length here and there in a local file.

    Args:
      uri: the file.
      offsets: byte offset of each row.
      target: array of shape (rows, bytes of a row).
      places: which row of `target` each goes to.

    Raises:
      InputError: the file cannot be read, or ends before a row does.
    """
    size = target.shape[1]
    whole = target.reshape(-1).data
    try:
        descriptor = os.open(local_path(uri), os.O_RDONLY)
    except OSError as error:
        raise InputError(f"{uri}: cannot be read: {error}") from error
    try:
        # A call per row: each is a copy out of the page cache, 1 us.
        for offset, place in zip(offsets.tolist(), places.tolist(), strict=True):
            row = whole[place * size : (place + 1) * size]
            if os.preadv(descriptor, [row], offset) != size:
                raise InputError(
                    f"{uri}: ends before byte {offset + size}, but did not when the "
                    "run began: did it change meanwhile?"
                )
    finally:
        os.close(descriptor)


def available_memory() -> int:
    """Bytes that the page cache could take without pushing anything out; 0: unknown."""
    available = 0
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        available = int(line.split()[1]) * 1024
    # In a container the limit of its control group counts.
    with suppress(OSError, ValueError):
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        available = min(available, limit)
    return available


def read_file(uri: str, options: StorageOptions = NO_OPTIONS) -> bytes:
    """All bytes of a file; options of the inputs' storage.

    Raises:
      InputError: the file cannot be read.
    """
    try:
        if is_local(uri):
            return local_path(uri).read_bytes()
    except OSError as error:
        raise InputError(f"{uri}: cannot be read: {error}") from error

    def read() -> bytes:
        system, path = system_of(uri, options)
        return bytes(system.cat_file(path))

    return _read_remote(uri, read)


def list_inputs(
    inputs: Sequence[str], options: StorageOptions = NO_OPTIONS
) -> tuple[str, list[InputFile]]:
    """Every file below the inputs: files, folders (searched through) or globs.

    Files keep the order of the inputs, within one input that of their names, folder
    by folder; hidden files and folders are passed over unless they are named; a file
    named twice counts once. Links are followed, but not back into where they lie.

    Args:
      inputs: as a person gave them.
      options: of their storage.

    Returns:
      The input root, below which all of them lie, and the files with paths relative
      to it.

    Raises:
      InputError: an input that does not exist, matches nothing or cannot be listed.
      UsageError: an input's url carries a secret.
    """
    found: dict[str, tuple[int, str]] = {}
    roots = []
    for given in inputs:
        root, files = (
            _list_local(given) if is_local(given) else _list_remote(given, options)
        )
        if not files:
            raise InputError(f"{given}: no such file or folder, and no file matches")
        roots.append(root)
        for uri, size, version in sorted(files, key=lambda file: file[0].split("/")):
            found.setdefault(uri, (size, version))
    root = _common_folder(roots)
    return root, [
        InputFile(_below(root, uri), uri, size, version)
        for uri, (size, version) in found.items()
    ]


_Entry = tuple[str, int, str]  # uri, size in bytes, version


def _list_local(given: str) -> tuple[str, list[_Entry]]:
    try:
        return _search_local(given)
    except (OSError, ValueError) as error:
        raise InputError(f"{given}: cannot be listed: {error}") from error


def _search_local(given: str) -> tuple[str, list[_Entry]]:
    path = Path(os.path.abspath(local_path(given)))  # noqa: PTH100 (keeps links)
    root = path
    if path.is_dir():
        files = set(_walk(str(path)))
        if not files:
            raise InputError(f"{given}: the folder holds no files")
    elif path.is_file():
        files, root = {str(path)}, path.parent
    else:
        files = set()
        for match in glob.glob(str(path), recursive=True):  # noqa: PTH207
            if Path(match).is_dir():
                files.update(_walk(match.rstrip("/") or "/"))
            elif _is_file(match):
                files.add(match)
        while glob.has_magic(str(root)):
            root = root.parent
    entries = []
    for file in files:
        facts = os.stat(file)  # noqa: PTH116 (the hot call of a large listing)
        entries.append((file, facts.st_size, str(facts.st_mtime_ns)))
    return str(root), entries


def _walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The files below a folder.

    Args:
      folder: where to look.
      above: the real paths of the folders from which links led here.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not entry.is_dir():
                if entry.is_file() or _is_file(entry.path):
                    yield entry.path
            elif entry.is_symlink():
                way = (*above, os.path.realpath(folder))
                target = os.path.realpath(entry.path).rstrip("/") + "/"
                # Back to a folder that is being searched already: a circle.
                if not any(f"{real}/".startswith(target) for real in way):
                    yield from _walk(entry.path, way)
            else:
                yield from _walk(entry.path, above)


def _is_file(path: str) -> bool:
    """Whether a path is a file; pipes and the like are none.

    Raises:
      InputError: a link whose file is missing, which must not pass in silence.
    """
    place = Path(path)
    if place.is_symlink() and not place.exists():
        raise InputError(f"{path}: a link to nothing ({place.readlink()} is missing)")
    return place.is_file()


def _list_remote(given: str, options: StorageOptions) -> tuple[str, list[_Entry]]:
    require_secretless_url(given)
    try:
        return retrying(lambda: _search_remote(given, options))
    except InputError:
        raise
    except Exception as error:
        message = f"{given}: cannot be listed: {reason(error, given)}"
        raise InputError(message) from cause_to_show(error)


def _search_remote(given: str, options: StorageOptions) -> tuple[str, list[_Entry]]:
    protocol = given.split("://", 1)[0]
    system, path = system_of(given, options)
    system.invalidate_cache()
    try:
        if glob.has_magic(path) and not system.exists(path):
            root, listing = _glob_remote(system, path)
        else:
            listing = system.find(path, detail=True)
            root = path
            if path in listing:
                root = path.rpartition("/")[0]
            else:
                listing = _visible(listing, root)
    except FileNotFoundError:
        return path, []

    def uri_of(name: str) -> str:
        return name if "://" in name else f"{protocol}://{name.strip('/')}"

    return uri_of(root), [
        (uri_of(name), _size(uri_of(name), facts), _version(facts))
        for name, facts in listing.items()
        # Object stores may show a folder as an empty file.
        if facts["type"] == "file" and not name.endswith("/")
    ]


def _glob_remote(system: Any, pattern: str) -> tuple[str, dict[str, Any]]:
    """The literal folder a pattern begins with, and what it matches."""
    root = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    listing: dict[str, Any] = system.glob(pattern, detail=True)
    if "/." not in pattern.removeprefix(root):
        listing = _visible(listing, root)
    searched = "\0"
    for folder in sorted(n for n, facts in listing.items() if facts["type"] != "file"):
        if not folder.startswith(searched):
            listing |= _visible(system.find(folder, detail=True), folder)
            searched = folder.rstrip("/") + "/"
    return root, listing


def _visible(listing: dict[str, Any], root: str) -> dict[str, Any]:
    """The entries of a listing that are not hidden below a folder."""
    return {
        name: facts
        for name, facts in listing.items()
        if "/." not in "/" + name.removeprefix(root).lstrip("/")
    }


def _size(uri: str, facts: dict[str, Any]) -> int:
    if facts["size"] is None:
        raise InputError(f"{uri}: the store does not tell its size; copy it first")
    return int(facts["size"])


def _version(facts: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created"):
        if facts.get(key):
            return str(facts[key])
    return ""


def _common_folder(roots: Sequence[str]) -> str:
    """The deepest folder that holds all of these."""
    stores = {root.rpartition("://")[0] for root in roots}
    if len(stores) > 1:
        raise InputError(
            f"inputs of one run must lie in one store, got {', '.join(sorted(roots))}"
        )
    common = []
    parts = [root.rpartition("://")[2].split("/") for root in roots]
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    store = next(iter(stores), "")
    return f"{store}://{'/'.join(common)}" if store else "/".join(common) or "/"


def _below(root: str, uri: str) -> str:
    path = uri.removeprefix(root).lstrip("/")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{uri!r}: the name is not UTF-8, as names in records must be; rename it"
        ) from error
    return path
