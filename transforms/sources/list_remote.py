"""Lists the files below a url of a store, or those that a glob in it matches."""

from __future__ import annotations

import glob
import re
from typing import Any

from recordmill.schemas.errors import InputError
from recordmill.schemas.job.storage_options import (
    StorageOptions,
    require_secretless_url,
)
from recordmill.transforms.sources.found_files import FoundFile
from recordmill.transforms.storage.filesystems import filesystem_of
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.storage.read_version import version_of
from recordmill.transforms.storage.retry import (
    describe_failure,
    input_error,
    safe_cause,
    with_retries,
)


def list_remote(url: str, options: StorageOptions) -> tuple[str, list[FoundFile]]:
    """Lists a url: a file, a folder, or a glob.

    Args:
      url: as a person wrote it.
      options: of its storage.

    Returns:
      The url below which all files are, and the files, in any order; none if nothing
      is there.

    Raises:
      InputError: it cannot be listed.
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
    given: dict[str, str] = {}
    try:
        if glob.has_magic(path) and not system.exists(path):
            root, listing, given = _glob(system, path)
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
        FoundFile(
            uri_of(name),
            _size(uri_of(name), info),
            version_of(info),
            uri_of(given.get(name, root)),
        )
        for name, info in listing.items()
        # Object stores may show a folder as an empty file.
        if info["type"] == "file" and not name.endswith("/")
    ]


def _glob(system: Any, pattern: str) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Returns what a pattern matches.

    Returns:
      The literal folder that the pattern begins with, the listing, and for each file
      below a folder that matches, that folder.
    """
    root = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    listing: dict[str, Any] = system.glob(pattern, detail=True)
    if not is_left_out(pattern.removeprefix(root)):
        listing = _visible(listing, root)
    given: dict[str, str] = {}
    searched = "\0"
    for folder in sorted(n for n, info in listing.items() if info["type"] != "file"):
        if not folder.startswith(searched):
            below = _visible(system.find(folder, detail=True), folder)
            listing |= below
            given |= dict.fromkeys(below, folder)
            searched = folder.rstrip("/") + "/"
    return root, listing, given


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
