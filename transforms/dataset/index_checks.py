"""Compares the index files beside the shards with the manifest, and with the shards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recordmill.schemas.dataset.manifest import FileEntry, Manifest, ShardEntry
from recordmill.schemas.dataset.shards import index_file_name
from recordmill.schemas.errors import OutputError
from recordmill.schemas.text import count
from recordmill.transforms.dataset.manifest_checks import Problem
from recordmill.transforms.dataset.record_index import parse_index
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import crc32c

_REMEDY = "Run `recordmill index` to write it anew"


def index_problems(
    store: Store, manifest: Manifest, sizes: Mapping[str, int], *, full: bool
) -> Iterator[Problem]:
    """Yields index files that are missing, or are not those of their shards.

    One that was written with its shard has to be there, as the manifest says. One that
    came later may be there: it has to agree with its shard's records and bytes.

    Args:
      store: of the dataset.
      manifest: its manifest.
      sizes: of the files beside the manifest.
      full: read them; otherwise only sizes are compared.
    """
    for split in manifest.splits.values():
        for shard in split.shards:
            name = index_file_name(shard.file)
            size = sizes.get(name)
            if shard.index is not None:
                what = _size_problem(shard.index, size)
                if what is None and full:
                    what = _content_problem(store, name, shard.index)
                if what is not None:
                    yield Problem(name, f"{what}. {_REMEDY}")
            elif size is not None and full:
                yield from _later_problems(store, name, shard)


def _size_problem(expected: FileEntry, size: int | None) -> str | None:
    if size is None:
        return f"missing: expected {count(expected.bytes, 'byte')}"
    if size != expected.bytes:
        return f"{count(size, 'byte')}, expected {expected.bytes:,}: it was changed"
    return None


def _content_problem(store: Store, name: str, expected: FileEntry) -> str | None:
    try:
        found = f"{crc32c(store.read(name)):08x}"
    except OutputError as error:
        return f"cannot be read: {error}"
    if found != expected.crc32c:
        return f"CRC-32C is {found}, expected {expected.crc32c}: it was changed"
    return None


def _later_problems(store: Store, name: str, shard: ShardEntry) -> Iterator[Problem]:
    try:
        parse_index(store.read(name), name, shard.records, shard.bytes)
    except OutputError as error:
        yield Problem(name, str(error).removeprefix(f"{name}: "), "stray")
