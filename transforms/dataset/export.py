"""Fills a new folder, or a place in a store, with a dataset in files of another format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.local import make_folders, renamed

if TYPE_CHECKING:
    from recordmill.transforms.dataset.reader import ShardToRead

DONE_NAME = (
    "_SUCCESS"  # as Hadoop and Spark call it, and readers of tables pass over it
)

OnProgress = Callable[[float, float | None], None]  # (bytes done, bytes in all)


def require_empty(target: Store) -> None:
    """Refuses a place in which there is something."""
    is_file = isinstance(target, LocalStore) and Path(target.root).is_file()
    level = None if is_file else target.list_level()
    if level is None or level.files or level.folders:
        raise UsageError(
            f"{target.uri}: there is something in it; expected a folder that is not "
            "there, or an empty one. Name another one, or remove it"
        )


@contextmanager
def new_file(target: Store, name: str) -> Iterator[Path]:
    """Yields where to write a file that then appears there, whole."""
    if isinstance(target, LocalStore):
        path = Path(target.root, name)
        make_folders(path.parent)
        with renamed(path) as temporary:
            yield temporary
        return
    with TemporaryDirectory(prefix="recordmill-") as folder:
        path = Path(folder, "file")
        yield path
        target.put_file(path, name)


def export_shards(
    store: Store,
    manifest: Manifest,
    target: Store,
    name_of: Callable[[str, int, int], str],
    write: Callable[[ShardToRead, Path], None],
    on_progress: OnProgress,
) -> list[str]:
    """Writes a file for each shard, and DONE_NAME last; returns the names of all.

    `name_of` gets the split, the number of the shard in it, and how many it has.

    Raises:
      UsageError: there is something in the target.
      CorruptRecordError, OutputError: a shard is damaged.
    """
    # Only here: it imports all that decodes records, which runs do not need.
    from recordmill.transforms.dataset.reader import shards_to_read

    require_empty(target)
    names, done = list[str](), 0
    for split, entry in manifest.splits.items():
        shards = shards_to_read(store, manifest, [split])
        for number, shard in enumerate(shards):
            names.append(name_of(split, number, len(entry.shards)))
            with new_file(target, names[-1]) as path:
                write(shard, path)
            done += shard.entry.bytes
            on_progress(done, manifest.num_bytes)
    target.put_bytes(b"", DONE_NAME)
    return [*names, DONE_NAME]
