"""Lists the files below a url of a store, or those that a glob in it matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from recordmill.schemas.errors import InputError
from recordmill.schemas.storage_options import StorageOptions, require_secretless_url
from recordmill.transforms.sources.found_files import FoundFile
from recordmill.transforms.sources.globs import (
    has_magic,
    literal_root,
    nothing_matches,
    search,
)
from recordmill.transforms.storage.errors import (
    describe_failure,
    input_error,
    safe_cause,
    with_retries,
)
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.fsspec_files import NO_FILE
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.read_version import version_of


def list_remote(url: str, options: StorageOptions) -> tuple[str, list[FoundFile]]:
    """Lists a url: a file, a folder, or a glob.

    Args:
      url: as a person wrote it.
      options: of its storage.

    Returns:
      The url below which all files are, and the files, in any order.

    Raises:
      InputError: it cannot be listed, or nothing is there.
      UsageError: the url carries a secret.
    """
    require_secretless_url(url)
    try:
        return with_retries(lambda: _search(url, options))
    except InputError:
        raise
    except Exception as error:
        message = f"{url}: cannot be listed: {describe_failure(error, url)}"
        raise input_error(error, message) from safe_cause(error)


def _search(url: str, options: StorageOptions) -> tuple[str, list[FoundFile]]:
    protocol = url.split("://", 1)[0]
    system, path = filesystem_of(url, options)
    system.invalidate_cache()
    tree = _StoreTree(system)
    given: dict[str, str] = {}
    root = path
    if has_magic(path) and not system.exists(path):
        root = literal_root(path)
        given = search(tree, root, path)
    else:
        found = tree.find(path)
        if path in found:
            root = path.rpartition("/")[0]
            given = {path: ""}
        else:
            given = dict.fromkeys(_visible(found, path), path)

    def uri_of(name: str) -> str:
        return name if "://" in name else f"{protocol}://{name.strip('/')}"

    files = [
        FoundFile(
            uri_of(name),
            _size(uri_of(name), info),
            version_of(info),
            uri_of(folder or root),
            is_named=not folder,
        )
        for name, folder in given.items()
        for info in (tree.infos[name],)
        # Object stores may show a folder as an empty file.
        if info["type"] == "file" and not name.endswith("/")
    ]
    if not files:
        there, names = _longest_there(tree, root if given or has_magic(path) else path)
        shown = uri_of(there) if there else ""
        raise InputError(nothing_matches(url, shown, names))
    return uri_of(root), files


def _longest_there(tree: _StoreTree, path: str) -> tuple[str, list[tuple[str, bool]]]:
    """Returns the longest part of a path that holds anything, and the names in it."""
    while path.strip("/"):
        if names := tree.entries(path):
            return path, names
        path = path.rpartition("/")[0]
    return "", []


@dataclass(slots=True)
class _StoreTree:
    """The folders of a store, for globs.

    Attributes:
      system: the file system.
      infos: what the store told of each file that was found, by name.
    """

    system: Any
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        try:
            listing = self.system.ls(folder, detail=True)
        except NO_FILE:
            return []
        found = []
        for info in listing:
            name = info["name"].rstrip("/")
            if name.strip("/") == folder.strip("/"):
                continue  # the folder itself, or a file
            is_file = info["type"] == "file" and not info["name"].endswith("/")
            if is_file:
                self.infos[_path_of(folder, name)] = info
            found.append((name.rpartition("/")[2], not is_file))
        return found

    def below(
        self, folders: Sequence[str], *, hidden: bool
    ) -> Iterable[tuple[str, str]]:
        for folder in folders:
            found = self.find(folder)
            names = found if hidden else _visible(found, folder)
            yield from ((name, folder) for name in names)

    def find(self, folder: str) -> dict[str, Any]:
        """Returns all files below a folder, or the file of this name."""
        try:
            found: dict[str, Any] = self.system.find(folder, detail=True)
        except FileNotFoundError:
            return {}
        if isinstance(found, list):  # adlfs: the name of a file
            found = {name: self.system.info(name) for name in found}
        self.infos |= found
        return found


def _path_of(folder: str, name: str) -> str:
    """Returns the path of an entry as a glob joins it."""
    return f"{folder.rstrip('/')}/{name.rpartition('/')[2]}" if folder else name


def _visible(listing: dict[str, Any], root: str) -> dict[str, Any]:
    """Returns the entries of a listing that are not left out below a folder."""
    return {
        name: info
        for name, info in listing.items()
        if not is_left_out(name.removeprefix(root).lstrip("/"))
    }


def _size(uri: str, info: dict[str, Any]) -> int:
    if info["size"] is None:
        raise InputError(
            f"{uri}: the store does not tell its size; copy the file to a local folder "
            "or to an object store"
        )
    return int(info["size"])
