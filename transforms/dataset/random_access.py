"""Reads single records of a shard by their position, and verifies them."""

from __future__ import annotations

import io
import mmap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import (
    CorruptRecordError,
    OutputError,
    OutputRefusedError,
    UsageError,
)
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import INDEX_SUFFIX
from recordmill.transforms.arrow import (
    I64,
    U8,
    array_parts,
    binary_array,
    offsets_of,
    unaligned_rows,
)
from recordmill.transforms.dataset.files import require_size
from recordmill.transforms.dataset.reader import (
    ArrayRecordShard,
    ShardToRead,
    open_array_records,
    shards_to_read,
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

# A TFRecord file has no table of contents: to find a record, the lengths of those before it
# are added up. Where a file `SHARD.idx` lies beside a shard, as DALI and the Python package
# tfrecord read it, that is not needed. It has a line for each record: where its frame
# begins, and the frame's bytes, such as
#
#     0 99
#     99 99
#     198 99

_LINES = 1 << 20  # made at once: their text fits an Arrow array


def frame_offsets(file: U8, records: int) -> I64 | None:
    """Returns where each frame of a file begins, and where the last one ends.

    Only lengths are read: a damaged record between sound ones is found when it is read.

    Args:
      file: the bytes of an uncompressed TFRecord file, such as a memory map.
      records: how many it should have.

    Returns:
      Offsets of shape (records + 1,); None if the lengths contradict that number, the
      file's size, or each other.
    """
    if records == 0:
        return np.zeros(1, np.int64) if len(file) == 0 else None
    same = _same_lengths(file, records)
    return _walk(file, records) if same is None else same


def _same_lengths(file: U8, records: int) -> I64 | None:
    """Returns the offsets if all frames have the same length, as those of CIFAR."""
    step, rest = divmod(len(file), records)
    if rest or step < FRAME_BYTES:
        return None
    offsets = np.arange(records + 1, dtype=np.int64) * step
    lengths = unaligned_rows(file, "<u8")[offsets[:-1]]
    return offsets if (lengths == step - FRAME_BYTES).all() else None


def _walk(file: U8, records: int) -> I64 | None:
    """Adds up the lengths one by one, 0.2 us each: every one tells where the next is."""
    data = file.data
    offsets = [0]
    offset, last = 0, len(file) - HEAD_BYTES
    for _ in range(records):
        if offset > last:
            return None
        offset += int.from_bytes(data[offset : offset + 8], "little") + FRAME_BYTES
        offsets.append(offset)
    return np.array(offsets, np.int64) if offset == len(file) else None


def index_text(offsets: I64) -> bytes:
    """Returns lines of an index file: [0, 99, 198] gives "0 99" and "99 99".

    Args:
      offsets: where each frame begins, and where the last one ends; in bytes from the
        start of the shard.
    """
    begins = range(0, len(offsets) - 1, _LINES)
    return b"".join(_lines(offsets[begin : begin + _LINES + 1]) for begin in begins)


def _lines(offsets: I64) -> bytes:
    starts = pa.array(offsets[:-1]).cast(pa.string())
    lengths = pa.array(np.diff(offsets)).cast(pa.string())
    lines = pc.binary_join_element_wise(starts, " ", lengths, "\n", "")
    bounds, text = array_parts(lines.cast(pa.binary()))
    return text[bounds[0] : bounds[-1]].tobytes()


def parse_index(text: bytes, uri: str, records: int, num_bytes: int) -> I64:
    """Reads an index file.

    Args:
      text: its content.
      uri: its name, for messages.
      records: how many the shard has.
      num_bytes: how many bytes the shard has.

    Returns:
      Offsets of shape (records + 1,).

    Raises:
      OutputRefusedError: it is not the index of this shard.
    """
    try:
        numbers = np.array(text.split(), np.int64).reshape(-1, 2)
    except (ValueError, OverflowError):
        numbers = np.full((1, 2), -1)
    offsets = np.append(numbers[:, 0], num_bytes)
    if len(numbers) != records or not np.array_equal(np.diff(offsets), numbers[:, 1]):
        raise OutputRefusedError(
            f"{uri}: not the index of its shard of {records:,} records and "
            f"{num_bytes:,} bytes. Run `recordmill index` to write it anew, or remove it"
        )
    if records and (offsets[0] != 0 or (numbers[:, 1] < FRAME_BYTES).any()):
        raise OutputRefusedError(
            f"{uri}: its records overlap or do not begin at byte 0. Run `recordmill "
            "index` to write it anew, or remove it"
        )
    return offsets


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
