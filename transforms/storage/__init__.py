"""Stores: where datasets are kept, on this machine or in the cloud."""

from __future__ import annotations

from pathlib import Path

from recordmill.schemas.job.storage_options import (
    NO_OPTIONS,
    StorageOptions,
    require_secretless_url,
)
from recordmill.transforms.storage.local import LocalStore
from recordmill.transforms.storage.remote import RemoteStore
from recordmill.transforms.storage.store import Preflight, Store

__all__ = ["LocalStore", "Preflight", "RemoteStore", "Store", "open_store"]


def open_store(root: str, options: StorageOptions = NO_OPTIONS) -> Store:
    """The store below a local folder or a url. Touches no storage.

    Raises:
      UsageError: the url carries a secret.
    """
    if "://" not in root or root.startswith("file://"):
        return LocalStore(str(Path(root.removeprefix("file://")).absolute()))
    require_secretless_url(root)
    return RemoteStore(root.rstrip("/"), options)
