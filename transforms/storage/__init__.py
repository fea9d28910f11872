"""Opens stores: local folders and object stores that hold datasets."""

from __future__ import annotations

from pathlib import Path

from recordmill.schemas.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    require_url_without_secret,
    require_whole_scheme,
)
from recordmill.transforms.storage.local import LocalStore
from recordmill.transforms.storage.remote import RemoteStore
from recordmill.transforms.storage.store import Store

__all__ = ["LocalStore", "RemoteStore", "Store", "open_store"]


def open_store(root: str, options: StorageOptions = NO_OPTIONS) -> Store:
    """Returns the store of a local folder or URL, without touching the storage."""
    require_url_without_secret(root)
    require_whole_scheme(root)
    if "://" not in root or root.startswith("file://"):
        return LocalStore(str(Path(root.removeprefix("file://")).absolute()))
    return RemoteStore(root.rstrip("/"), options)
