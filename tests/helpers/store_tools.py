"""Runs the command on outputs in stores, and looks at what is there then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from job_tools import Ran, contents, recordmill
from store_servers import Place

from recordmill.schemas.storage_options import StorageOptions


def options_of(options: StorageOptions) -> list[str]:
    """The options as the command takes them."""
    return [
        part
        for name, value in options.to_dict().items()
        for part in ("--storage-option", f"output:{name}={value}")
    ]


def published(place: Place) -> dict[str, bytes]:
    """Every file of the store but those that tell when it was made."""
    names = [name for name in place.store.list() if not name.startswith("run")]
    return {name: place.store.read(name) for name in names}


def local_files(folder: Path) -> dict[str, bytes]:
    names = [name for name in contents(folder) if not name.startswith("run")]
    return {name: (folder / name).read_bytes() for name in names}


def to_store(place: Place, *arguments: Any, beam: Sequence[str] = ()) -> Ran:
    """Converts into a store.

    Args:
      place: the store.
      arguments: source, inputs, and last the other options.
      beam: what stands at the end of the command, "--" first.
    """
    return recordmill(
        "convert",
        *arguments[:-1],
        place.root,
        *arguments[-1],
        *options_of(place.options),
        *beam,
    )
