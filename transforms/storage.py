"""Files by uri: listing and reading, local or through fsspec. Nothing secret is kept.

File systems are built where they are used, from the uri alone; credentials come from
the environment. Local files go round fsspec: a plain pread is several times faster.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import fsspec

from schemas.errors import InputError
from schemas.ranges import InputFile


def is_local(uri: str) -> bool:
    """Whether a uri names a file of this machine."""
    return "://" not in uri or uri.startswith("file://")


def local_path(uri: str) -> Path:
    """The path of a local uri."""
    return Path(uri.removeprefix("file://"))


def read_range(uri: str, start: int, stop: int) -> bytes:
    """Bytes start to stop of a file; fewer if it ends before.

    Raises:
      InputError: the file cannot be read.
    """
    try:
        if is_local(uri):
            with local_path(uri).open("rb", buffering=0) as file:
                return _read_all(file.fileno(), start, stop - start)
        system, path = fsspec.core.url_to_fs(uri)
        size = system.size(path)
        if start >= size:
            return b""
        return bytes(system.cat_file(path, start=start, end=min(stop, size)))
    except OSError as error:
        raise InputError(f"{uri}: cannot be read: {error}") from error


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


def read_file(uri: str) -> bytes:
    """All bytes of a file.

    Raises:
      InputError: the file cannot be read.
    """
    try:
        if is_local(uri):
            return local_path(uri).read_bytes()
        system, path = fsspec.core.url_to_fs(uri)
        return bytes(system.cat_file(path))
    except OSError as error:
        raise InputError(f"{uri}: cannot be read: {error}") from error


def list_inputs(inputs: Sequence[str]) -> tuple[str, list[InputFile]]:
    """Every file below the inputs: files, folders (searched through) or globs.

    Files keep the order of the inputs, within one input that of their names; hidden
    files and folders are passed over; a file named twice counts once.

    Returns:
      The input root, below which all of them lie, and the files with paths relative
      to it.

    Raises:
      InputError: an input that does not exist or matches nothing.
    """
    found: dict[str, tuple[int, str]] = {}
    roots = []
    for given in inputs:
        root, files = _list_local(given) if is_local(given) else _list_remote(given)
        roots.append(root)
        for uri, size, version in files:
            found.setdefault(uri, (size, version))
    root = _common_folder(roots)
    return root, [
        InputFile(_below(root, uri), uri, size, version)
        for uri, (size, version) in found.items()
    ]


def _list_local(given: str) -> tuple[str, list[tuple[str, int, str]]]:
    path = Path(os.path.abspath(local_path(given)))  # noqa: PTH100 (keeps links)
    if path.is_dir():
        files = sorted(_walk(str(path)), key=lambda file: file.split("/"))
        root = path
    elif path.is_file():
        files, root = [str(path)], path.parent
    else:
        files = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
        files = [file for file in files if not _hidden(file, str(path))]
        files = [
            below
            for file in files
            for below in (sorted(_walk(file)) if Path(file).is_dir() else [file])
        ]
        root = path
        while glob.has_magic(str(root)):
            root = root.parent
        if not files:
            raise InputError(f"{given}: no such file or folder, and no file matches")
    entries = []
    for file in files:
        facts = os.stat(file)  # noqa: PTH116 (the hot call of a large listing)
        entries.append((file, facts.st_size, str(facts.st_mtime_ns)))
    return str(root), entries


def _walk(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(entry.path)
            elif entry.is_file():
                yield entry.path


def _hidden(file: str, pattern: str) -> bool:
    return Path(file).name.startswith(".") and not Path(pattern).name.startswith(".")


def _list_remote(given: str) -> tuple[str, list[tuple[str, int, str]]]:
    protocol = given.split("://", 1)[0]
    try:
        system, path = fsspec.core.url_to_fs(given)
        if glob.has_magic(path):
            root = path.split("*")[0].split("?")[0].split("[")[0].rpartition("/")[0]
            listing: dict[str, Any] = system.glob(path, detail=True)
        else:
            listing = system.find(path, detail=True)
            root = path if path not in listing else path.rpartition("/")[0]
    except (OSError, ImportError, ValueError) as error:
        raise InputError(f"{given}: cannot be listed: {error}") from error
    files = sorted(
        (f"{protocol}://{name.lstrip('/')}", int(facts["size"]), _version(facts))
        for name, facts in listing.items()
        if facts["type"] == "file" and not PurePosixPath(name).name.startswith(".")
    )
    if not files:
        raise InputError(f"{given}: no such file or folder, and no file matches")
    return f"{protocol}://{root.strip('/')}", files


def _version(facts: dict[str, Any]) -> str:
    for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created"):
        if facts.get(key):
            return str(facts[key])
    return ""


def _common_folder(roots: list[str]) -> str:
    parts = [root.split("/") for root in roots]
    common = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return "/".join(common)


def _below(root: str, uri: str) -> str:
    return uri.removeprefix(root).lstrip("/")
