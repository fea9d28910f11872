"""Reads single records of a shard by their position, and verifies them."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import (
    CorruptRecordError,
    OutputError,
    UsageError,
)
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import INDEX_SUFFIX
from recordmill.transforms.arrow import (
    I64,
    U8,
    binary_array,
    offsets_of,
)
from recordmill.transforms.dataset.files import require_size
from recordmill.transforms.dataset.reader import (
    ArrayRecordShard,
    ShardToRead,
    open_array_records,
    shards_to_read,
)
from recordmill.transforms.dataset.record_index import (
    frame_offsets,
    index_text,
    parse_index,
)
from recordmill.transforms.parallel import ahead
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    damaged_frame,
    read_records,
)

_GAP_BYTES = 1 << 16  # read along rather than asked for apart, in a store
_PARALLEL = 16  # requests at once


def open_shard(shard: ShardToRead) -> OpenShard | ArrayRecordShard:
    """Opens a shard for reading at any place, as its file format wants it.

    Raises:
      UsageError: the shard is compressed, or a package is missing.
      OutputError: the file or its index is not the one that the manifest describes.
    """
    if shard.container == "array_record":
        return open_array_records(shard.store, shard.entry)
    return OpenShard(shard)


class OpenShard:
    """One uncompressed shard, open for reading at any place.

    A local file is mapped into memory: what is read stays in the page cache. Of a file in
    a store, the index is read, or once the whole file if there is none.

    Attributes:
      offsets: where each frame begins, and where the last one ends.

    Raises:
      UsageError: the shard is compressed.
      OutputError: the file or its index is not the one that the manifest describes.
    """

    def __init__(self, shard: ShardToRead) -> None:
        if shard.compression != "none":
            raise UsageError(
                f"{shard.uri}: compressed by {shard.compression}, so single records "
                "cannot be read. Read them in order (`for row in dataset`), or convert "
                "with `compression` none"
            )
        self._shard = shard
        self._map = _mapped(shard)
        index = shard.store.find(shard.entry.file + INDEX_SUFFIX)
        if index is not None:
            uri = shard.uri + INDEX_SUFFIX
            entry = shard.entry
            self.offsets = parse_index(index, uri, entry.records, entry.bytes)
        elif self._map is not None:
            self.offsets = self._found(frame_offsets(self._map, shard.entry.records))
        else:
            lengths = [len(record) + FRAME_BYTES for record in shard.records()]
            self.offsets = offsets_of(np.array(lengths, np.int64))

    def read(self, positions: I64) -> pa.BinaryArray:
        """Returns records in the order of their positions, which may repeat.

        Raises:
          CorruptRecordError: one is damaged; names file, record and byte offset.
        """
        starts, ends = self.offsets[positions], self.offsets[positions + 1]
        if self._map is not None:
            file, local = self._map, starts
        else:
            file, local = self._fetched(starts, ends)
        lengths = ends - starts
        bad = damaged_frame(file, local, lengths)
        if bad is not None:
            frame = file[local[bad] : local[bad] + lengths[bad]].tobytes()
            self._refuse(int(positions[bad]), int(starts[bad]), frame)
        return _without_frames(file, local, lengths)

    def _found(self, offsets: I64 | None) -> I64:
        if offsets is None:
            for _ in self._shard.records():  # says where it is damaged
                pass
            raise OutputError(
                f"{self._shard.uri}: not the file that the manifest describes; run "
                "`recordmill verify`"
            )
        return offsets

    def _refuse(self, index: int, offset: int, frame: bytes) -> None:
        """Raises the error that reading this frame alone raises, at its true place."""
        try:
            list(read_records(io.BytesIO(frame), self._shard.uri))
        except CorruptRecordError as error:
            raise CorruptRecordError(error.uri, index, offset, error.what) from None
        # A frame that holds other frames: the index does not belong to this file.
        raise CorruptRecordError(
            self._shard.uri, index, offset, "is not one record, as the index says"
        )

    def _fetched(self, starts: I64, ends: I64) -> tuple[U8, I64]:
        """Returns bytes from a store, and where the frames begin in them.

        Frames that are near to each other come by one request.
        """
        if not len(starts):
            return np.zeros(0, np.uint8), starts
        order = np.argsort(starts, kind="stable")
        first, last = starts[order], np.maximum.accumulate(ends[order])
        apart = np.flatnonzero(first[1:] > last[:-1] + _GAP_BYTES) + 1
        begins = first[np.append(0, apart)]
        stops = last[np.append(apart, len(last)) - 1]
        store, name = self._shard.store, self._shard.entry.file
        spans = zip(begins.tolist(), stops.tolist(), strict=True)
        read = ahead(spans, lambda span: store.read_range(name, *span), _PARALLEL)
        pieces: Sequence[bytes] = list(read)
        for piece, begin, stop in zip(pieces, begins, stops, strict=True):
            if len(piece) != stop - begin:
                raise OutputError(
                    f"{self._shard.uri}: ends before byte {stop}; run `recordmill verify`"
                )
        which = np.searchsorted(begins, starts, side="right") - 1
        bases = offsets_of(stops - begins)[which]
        return np.frombuffer(b"".join(pieces), np.uint8), bases + starts - begins[which]


def _mapped(shard: ShardToRead) -> U8 | None:
    """Maps a local file into memory; returns None for one in a store."""
    if not isinstance(shard.store, LocalStore):
        return None
    require_size(shard.store, shard.entry)
    if shard.entry.bytes == 0:  # cannot be mapped
        return np.zeros(0, np.uint8)
    with Path(shard.store.root, shard.entry.file).open("rb") as file:
        return np.frombuffer(
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8
        )


def _without_frames(file: U8, starts: I64, lengths: I64) -> pa.BinaryArray:
    """Copies the data of frames one after the other."""
    sizes = lengths - FRAME_BYTES
    if len(starts) and (lengths == lengths[0]).all() and _neighbours(starts, lengths):
        stop = int(starts[0]) + int(lengths.sum())
        rows = file[int(starts[0]) : stop].reshape(len(starts), -1)
        data = np.ascontiguousarray(rows[:, HEAD_BYTES:-TAIL_BYTES]).reshape(-1)
    else:
        begins = (starts + HEAD_BYTES).tolist()
        stops = (starts + lengths - TAIL_BYTES).tolist()
        # A Python slice for each record, 2 us with its copy: they lie anywhere.
        parts = map(file.data.__getitem__, map(slice, begins, stops))
        data = np.frombuffer(b"".join(parts), np.uint8)
    return binary_array(offsets_of(sizes), data)


def _neighbours(starts: I64, lengths: I64) -> bool:
    return bool((starts[1:] == (starts + lengths)[:-1]).all())


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
