"""Lists all files below the inputs: local folders and globs, or those of a store."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from recordmill.schemas.errors import InputError
from recordmill.schemas.job.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    require_secretless_url,
)
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.reading import is_local, local_path
from recordmill.transforms.storage.retry import (
    describe_failure,
    safe_cause,
    with_retries,
)


def list_inputs(
    inputs: Sequence[str], options: StorageOptions = NO_OPTIONS
) -> tuple[str, list[InputFile]]:
    """Lists every file below the inputs: files, folders with all below them, or globs.

    Files keep the order of the inputs, within one input that of their names, folder
    by folder; hidden files and folders are left out unless they are named; a file
    named twice counts once. Links are followed, but not back into a folder above.

    Args:
      inputs: local paths or urls, as a person wrote them.
      options: of their storage.

    Returns:
      The input root, below which all files are, and the files with paths relative
      to it.

    Raises:
      InputError: an input that does not exist, matches nothing or cannot be listed.
      UsageError: an input's url carries a secret.
    """
    found: dict[str, tuple[int, str]] = {}
    roots = []
    for name in inputs:
        root, files = (
            _list_local(name) if is_local(name) else _list_remote(name, options)
        )
        if not files:
            raise InputError(f"{name}: no such file or folder, and no file matches")
        roots.append(root)
        for uri, size, version in sorted(files, key=lambda file: file[0].split("/")):
            found.setdefault(uri, (size, version))
    root = _common_folder(roots)
    return root, [
        InputFile(_below(root, uri), uri, size, version)
        for uri, (size, version) in found.items()
    ]


def input_root(files: Sequence[InputFile]) -> str:
    """Returns the folder below which all files lie; "" if there are none."""
    return files[0].uri.removesuffix(files[0].path) if files else ""


_Entry = tuple[str, int, str]  # uri, size in bytes, version


def _list_local(name: str) -> tuple[str, list[_Entry]]:
    try:
        return _search_local(name)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be listed: {error}") from error


def _search_local(name: str) -> tuple[str, list[_Entry]]:
    path = Path(os.path.abspath(local_path(name)))  # noqa: PTH100 (keeps links)
    root = path
    if path.is_dir():
        files = set(_walk(str(path)))
        if not files:
            raise InputError(f"{name}: the folder holds no files")
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
        status = os.stat(file)  # noqa: PTH116 (the hot call of a large listing)
        entries.append((file, status.st_size, str(status.st_mtime_ns)))
    return str(root), entries


def _walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yields the files below a folder.

    Args:
      folder: to search.
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
                parents = (*above, os.path.realpath(folder))
                target = os.path.realpath(entry.path).rstrip("/") + "/"
                # Not back to a folder that is being searched: that would never end.
                if not any(f"{real}/".startswith(target) for real in parents):
                    yield from _walk(entry.path, parents)
            else:
                yield from _walk(entry.path, above)


def _is_file(path: str) -> bool:
    """Tells whether a path is a regular file, so not a pipe or a device.

    Raises:
      InputError: a link whose file is missing; the rows would be missing in silence.
    """
    found = Path(path)
    if found.is_symlink() and not found.exists():
        raise InputError(f"{path}: a link to nothing ({found.readlink()} is missing)")
    return found.is_file()


def _list_remote(url: str, options: StorageOptions) -> tuple[str, list[_Entry]]:
    require_secretless_url(url)
    try:
        return with_retries(lambda: _search_remote(url, options))
    except InputError:
        raise
    except Exception as error:
        message = f"{url}: cannot be listed: {describe_failure(error, url)}"
        raise InputError(message) from safe_cause(error)


def _search_remote(url: str, options: StorageOptions) -> tuple[str, list[_Entry]]:
    protocol = url.split("://", 1)[0]
    system, path = filesystem_of(url, options)
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
        (uri_of(name), _size(uri_of(name), info), _version(info))
        for name, info in listing.items()
        # Object stores may show a folder as an empty file.
        if info["type"] == "file" and not name.endswith("/")
    ]


def _glob_remote(system: Any, pattern: str) -> tuple[str, dict[str, Any]]:
    """Returns the literal folder that a pattern begins with, and what it matches."""
    root = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    listing: dict[str, Any] = system.glob(pattern, detail=True)
    if "/." not in pattern.removeprefix(root):
        listing = _visible(listing, root)
    searched = "\0"
    for folder in sorted(n for n, info in listing.items() if info["type"] != "file"):
        if not folder.startswith(searched):
            listing |= _visible(system.find(folder, detail=True), folder)
            searched = folder.rstrip("/") + "/"
    return root, listing


def _visible(listing: dict[str, Any], root: str) -> dict[str, Any]:
    """Returns the entries of a listing that are not hidden below a folder."""
    return {
        name: info
        for name, info in listing.items()
        if "/." not in "/" + name.removeprefix(root).lstrip("/")
    }


def _size(uri: str, info: dict[str, Any]) -> int:
    if info["size"] is None:
        raise InputError(
            f"{uri}: the store does not tell its size; copy the file to a local folder "
            "or to an object store"
        )
    return int(info["size"])


def _version(info: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created"):
        if info.get(key):
            return str(info[key])
    return ""


def _common_folder(roots: Sequence[str]) -> str:
    """Returns the deepest folder that holds all of these."""
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
            f"{uri!r}: the file's name is not UTF-8, as names in records must be; rename it"
        ) from error
    return path
