"""Writes an index file beside each shard of a finished dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.shards import INDEX_SUFFIX
from recordmill.schemas.errors import UsageError
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.dataset.read_shards import shards_to_read
from recordmill.transforms.dataset.record_index import index_text
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import FRAME_BYTES


def write_indexes(
    store: Store,
    manifest: Manifest,
    splits: Sequence[str] | None,
    on_progress: Callable[[float, float | None], None] | None = None,
) -> list[str]:
    """Writes `SHARD.idx` beside each shard; every record is verified on the way.

    Args:
      store: of the dataset.
      manifest: its manifest.
      splits: which ones; None takes all.
      on_progress: told (bytes done, bytes in all) after each shard.

    Returns:
      The names of the index files.

    Raises:
      UsageError: the shards are compressed, so no reader can jump in them; or there is
        no such split.
      CorruptRecordError: a record is damaged.
    """
    if manifest.container == "array_record":
        raise UsageError(
            f"{store.uri}: its shards are ArrayRecord files, which have an index in them; "
            "nothing is to be done"
        )
    if manifest.compression != "none":
        raise UsageError(
            f"{store.uri}: its shards are compressed by {manifest.compression}, so no "
            "reader can go to a record in them, and an index is of no use. Convert with "
            "`compression` none"
        )
    shards = shards_to_read(store, manifest, splits)
    names, done, total = [], 0, sum(shard.entry.bytes for shard in shards)
    for shard in shards:
        sizes = [len(record) + FRAME_BYTES for record in shard.records()]
        name = shard.entry.file + INDEX_SUFFIX
        store.put_bytes(index_text(offsets_of(np.array(sizes, np.int64))), name)
        names.append(name)
        done += shard.entry.bytes
        if on_progress is not None:
            on_progress(done, total)
    return names
