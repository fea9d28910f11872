"""Names, lists and reads the lock files of an output's lease.

.recordmill/lock/000001.json      who holds the lease; the highest number counts

A number is not used again while a run may live that knows it (see Holder.unsure): then
the file stays when the lease is released, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from recordmill.schemas.errors import MissingFileError
from recordmill.transforms.storage.lease_holder import Holder
from recordmill.transforms.storage.store import WORK_FOLDER, Store

LOCK_FOLDER = f"{WORK_FOLDER}/lock"  # holds nothing else: listing it must stay cheap

_NAME = re.compile(rf"{re.escape(LOCK_FOLDER)}/(\d{{6,12}})\.json")


def lock_name(number: int) -> str:
    """Returns the name of the lock file with this number."""
    return f"{LOCK_FOLDER}/{number:06d}.json"


def lock_number(name: str | None) -> int:
    """Returns the number in a lock file's name; 0 for None."""
    match = _NAME.fullmatch(name or "")
    return int(match.group(1)) if match else 0


def list_locks(store: Store) -> list[str]:
    """Returns the names of all lock files of an output."""
    return [name for name in store.list(LOCK_FOLDER) if _NAME.fullmatch(name)]


def highest_lock(store: Store) -> str | None:
    """Returns the name of the lock file that counts, or None if there is none."""
    return max(list_locks(store), key=lock_number, default=None)


def unreleased_locks(store: Store, names: Iterable[str]) -> list[str]:
    """Returns those of some lock files that do not say that the lease is released."""
    holders = {name: read_lock(store, name) for name in names}
    return [n for n, holder in holders.items() if not (holder and holder.released)]


def read_lock(store: Store, name: str) -> Holder | None:
    """Returns the holder in a lock file; None if it is missing or cannot be parsed."""
    try:
        return Holder.from_bytes(store.read(name))
    except MissingFileError:
        return None
