"""Reads and verifies the records of a finished dataset, shard by shard or one by one."""

from __future__ import annotations

import mmap
import os
import shutil
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import TypeVar

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import (
    CorruptRecordError,
    InputError,
    OutputError,
    UsageError,
)
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.manifest import Manifest, ManifestShard, schema_of
from recordmill.schemas.names import INDEX_SUFFIX, check_file_name
from recordmill.schemas.options import Container, Payload
from recordmill.transforms.arrow import I64, U8, binary_array, offsets_of, value_lengths
from recordmill.transforms.dataset.files import open_file, require_size, require_written
from recordmill.transforms.dataset.record_index import index_text, parse_index
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.shard_file import ArrayRecordFile
from recordmill.transforms.tfrecord import (
    FRAME_BYTES,
    HEAD_BYTES,
    TAIL_BYTES,
    WINDOW_BYTES,
    FrameWindow,
    damaged_frame,
    find_frames,
    frame_bytes,
    frame_problem,
    is_head,
    read_frames,
)

WINDOW_RECORDS = 1 << 12  # records that are decoded together

_DAMAGE = (CorruptRecordError, OutputError)
_Value = TypeVar("_Value")

_GAP_BYTES = 1 << 16  # a smaller gap in a store is read instead of skipped


@dataclass(frozen=True, slots=True)
class ReadableShard:
    """One shard with the properties that are needed to read it."""

    store: Store  # of the dataset
    split: str  # the name of its split
    entry: ManifestShard  # the shard's entry in the manifest
    compression: str  # of the shard
    container: Container  # its file format
    schema: Schema  # of the dataset, without the names of classes
    payload: Payload  # of its records

    @property
    def uri(self) -> str:
        return self.store.uri_of(self.entry.file)

    def records(self) -> Iterator[bytes]:
        """Yields the bytes of every record in order; see `windows`."""
        for window in self.windows():
            yield from window.to_pylist()

    def windows(
        self,
        on_bytes: Callable[[int], None] = lambda _: None,
        *,
        any_size: bool = False,
    ) -> Iterator[pa.BinaryArray]:
        """Yields the records as arrays of bounded size.

        Only a window of the file is in memory. The size of the file is checked first,
        except with `any_size`. Both checksums of each record are verified before it is
        yielded. At the end, the number of records and the file's checksum are checked. An
        ArrayRecord file has no checksums of this kind, so the whole file is verified
        first. If a cache has damaged bytes, they are read again.

        Raises:
          CorruptRecordError: a record is damaged; names file, record and byte offset.
          OutputError: the file is not the one that the manifest describes.
        """
        num_yielded = 0
        for is_retry in (False, True):
            num_read = 0
            try:
                for window in self._windows(on_bytes, any_size):
                    num_read += len(window)
                    if num_read > num_yielded:
                        yield window[len(window) - num_read + num_yielded :]
                        num_yielded = num_read
                return
            except _DAMAGE:
                if is_retry or not self._drop_cached_files():
                    raise

    def _windows(
        self, on_bytes: Callable[[int], None], any_size: bool
    ) -> Iterator[pa.BinaryArray]:
        if self.container == "array_record":
            yield from ArrayRecordShard(self).windows()
            return
        for frames, num_whole in self._frames(on_bytes, any_size=any_size):
            records = frames.records()
            for start in range(0, num_whole, WINDOW_RECORDS):
                yield records[start : min(num_whole, start + WINDOW_RECORDS)]

    def lengths(
        self,
        on_bytes: Callable[[int], None] = lambda _: None,
        *,
        any_size: bool = False,
    ) -> Iterator[I64]:
        """Yields the sizes of the records, verified as in `windows`, without copies."""
        if self.container == "array_record":
            yield from map(value_lengths, ArrayRecordShard(self).windows())
            return
        for frames, num_whole in self._frames(on_bytes, any_size=any_size):
            yield frames.lengths[:num_whole] - FRAME_BYTES

    def _frames(
        self, on_bytes: Callable[[int], None], *, any_size: bool
    ) -> Iterator[tuple[FrameWindow, int]]:
        if not any_size:
            require_size(self.store, self.entry)
        num_records = 0
        how = self.compression, on_bytes
        with open_file(self.store, self.entry.file, *how) as file:
            for frames, num_whole in read_whole_frames(file):
                num_records += num_whole
                yield frames, num_whole
            require_written(file, self.entry, num_records)

    def select_schema(self, names: Collection[str]) -> Schema:
        """Returns the schema to decode for some features: all if none can be skipped."""
        if self.payload not in ("example", "json"):
            return self.schema
        return Schema(tuple(f for f in self.schema.features if f.name in names))

    def batches(self, names: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yields all features, or the named ones, as decoded columns.

        Raises:
          OutputError: a record does not fit the schema.
        """
        first, schema = 0, self.schema if names is None else self.select_schema(names)
        for window in self.windows():
            yield self.decode_records(window, schema, range(first, first + len(window)))
            first += len(window)

    def decode_records(
        self, records: pa.BinaryArray, schema: Schema, indices: Sequence[int]
    ) -> pa.RecordBatch:
        """Decodes records with these indices in the shard; see `batches`."""
        from recordmill.transforms.decode.payloads import decode_payload  # 50 ms

        decoded_records = decode_payload(records, schema, self.payload)
        for row, reason in decoded_records.row_errors:
            raise OutputError(
                f"{self.uri}: record {indices[row]} does not fit the dataset's schema: "
                f"{reason}; run `recordmill verify --deep` to list all such records"
            )
        return decoded_records.batch

    def open(self) -> ArrayRecordShard | OpenShard:
        """Opens the shard for random access, with the reader of its file format."""
        kind = ArrayRecordShard if self.container == "array_record" else OpenShard
        return self.read_with_retry(lambda: kind(self))

    def read_with_retry(self, read: Callable[[], _Value]) -> _Value:
        """Calls a read function; if a cache has damaged bytes, calls it once more."""
        try:
            return read()
        except _DAMAGE:
            if not self._drop_cached_files():
                raise
        return read()

    def _drop_cached_files(self) -> bool:
        names = self.entry.file, self.entry.file + INDEX_SUFFIX
        return any(list(map(self.store.remove_from_cache, names)))

    def frame_offsets(self) -> I64:
        """Reads all records; returns the start of each frame, and the end of the last."""
        lengths = [*self.lengths()]
        return offsets_of(
            np.concatenate([np.zeros(0, np.int64), *lengths]) + FRAME_BYTES
        )


def shards_to_read(
    store: Store, manifest: Manifest, splits: str | Sequence[str] | None = None
) -> list[ReadableShard]:
    """Returns the shards of one, several or all splits, in the manifest's order.

    Raises:
      UsageError: a split does not exist.
    """
    names = (splits,) if isinstance(splits, str) else splits or ()
    for name in names:
        if name not in manifest.splits:
            raise UsageError(
                f"{store.uri}: no split {name!r}; the dataset has "
                f"{', '.join(map(repr, manifest.splits))}"
            )
    schema, payload = schema_of(manifest), manifest.payload
    form = manifest.compression, manifest.container
    return [
        ReadableShard(store, split, entry, *form, schema, payload)
        for split, split_entry in manifest.splits.items()
        for entry in split_entry.shards
        if not names or split in names
    ]


def read_whole_frames(file: InputStream) -> Iterator[tuple[FrameWindow, int]]:
    """Yields windows of frames, and the number of frames before the first damaged one.

    Raises:
      CorruptRecordError: a record is damaged; names file, record and byte offset.
    """
    damage = ""  # of the compressed bytes

    def read(start: int, stop: int) -> bytes:
        nonlocal damage
        try:
            return file.part(start, stop)
        except InputError as error:
            damage = str(error).removeprefix(f"{file.uri}: ")
            window_bytes, begin = file.window(
                start, start
            )  # the bytes before the damage
            return window_bytes[max(0, start - begin) :]

    index = end = 0
    stop = None if file.is_packed else file.size
    for frames in read_frames(read, 0, stop, WINDOW_BYTES, searches=False):
        num_whole = len(frames.starts)
        if frames.lost:
            lost = frames.lost[0]
            num_whole = int(np.searchsorted(frames.offsets, lost.offset))
        yield frames, num_whole
        index += num_whole
        if frames.lost:
            # Only an incomplete record, without raw bytes, may have another cause.
            reason = lost.reason if lost.raw else damage or lost.reason
            raise CorruptRecordError(file.uri, index, lost.offset, reason)
        end = int((frames.offsets + frames.lengths)[-1])
    if damage:
        raise CorruptRecordError(file.uri, index, end, damage)


def _binary_array(records: Sequence[bytes]) -> pa.BinaryArray:
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    return binary_array(offsets_of(lengths), np.frombuffer(b"".join(records), np.uint8))


class ArrayRecordShard:
    """One ArrayRecord shard, open for random access.

    The package array_record reads only local files. A shard in a store is copied to a
    temporary file, which is removed with this object. The copy takes disk space, but no
    memory.
    """

    def __init__(self, shard: ReadableShard) -> None:
        self._store, self._entry, self._uri = shard.store, shard.entry, shard.uri
        store = self._store
        require_size(store, self._entry)
        name = check_file_name(self._entry.file, store.uri)
        self._is_copy = not isinstance(store, LocalStore)
        folder = store.root if isinstance(store, LocalStore) else self._make_folder()
        self._path = Path(folder, name)
        if self._is_copy:
            with open_file(store, name) as source, self._path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                require_written(source, self._entry)
        self._file = ArrayRecordFile(self._path, self._uri)
        if self._file.records != self._entry.records:
            raise OutputError(
                f"{self._uri}: {self._file.records:,} records, the manifest records "
                f"{self._entry.records:,}; run `recordmill verify` to see what is wrong"
            )

    def _make_folder(self) -> str:
        folder = mkdtemp(prefix="recordmill-")
        weakref.finalize(self, _remove, folder, os.getpid())
        return folder

    def group_positions(self, positions: I64) -> list[I64]:
        """Returns all positions as one request, because the file is local."""
        return [positions]

    def read(self, positions: I64) -> pa.BinaryArray:
        """Returns records by their positions; the package checks the hash of each."""
        return _binary_array(self._file.read(positions.tolist()))

    def windows(self) -> Iterator[pa.BinaryArray]:
        """Yields all records in order, after a check of the whole file."""
        if not self._is_copy:
            with open_file(self._store, self._entry.file) as file:
                require_written(file, self._entry)
        yield from map(_binary_array, self._file.read_all())


def _remove(folder: str, process: int) -> None:
    """Removes a copy, except in a forked process whose parent created it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


class OpenShard:
    """One uncompressed shard, open for random access.

    A local file is mapped into memory: pages that were read stay in the page cache. For a
    file in a store, the index is read, or the whole file once if it has no index.
    """

    def __init__(self, shard: ReadableShard) -> None:
        if shard.compression != "none":
            raise UsageError(
                f"{shard.uri}: compressed with {shard.compression}, so single records "
                "cannot be read. Read them in order (`for row in dataset`), or convert "
                "with `compression=none`"
            )
        self._shard, shard_entry = shard, shard.entry
        self._map = _map_file(shard)
        index = shard.store.read_if_exists(shard_entry.file + INDEX_SUFFIX)
        offsets = None
        if index is not None:
            uri = shard.uri + INDEX_SUFFIX
            offsets = parse_index(index, uri, shard_entry.records, shard_entry.bytes)
        elif self._map is not None:
            offsets = frame_offsets(self._map, shard_entry.records)
        # Reading the whole file finds the damaged record.
        self._offsets = shard.frame_offsets() if offsets is None else offsets

    def group_positions(self, positions: I64) -> list[I64]:
        """Splits ascending positions into groups that one request to a store reads."""
        near = self._offsets[positions + 1] + _GAP_BYTES
        apart = self._offsets[positions[1:]] > near[:-1]
        return np.split(positions, np.flatnonzero(apart) + 1)

    def read(self, positions: I64) -> pa.BinaryArray:
        """Returns records by their positions; a CorruptRecordError names a damaged one.

        In a store, all bytes between them are read as well.
        """
        return self._shard.read_with_retry(lambda: self._read(positions))

    def _read(self, positions: I64) -> pa.BinaryArray:
        starts, ends = self._offsets[positions], self._offsets[positions + 1]
        file, local = self._map, starts
        if file is None:
            file = self._fetch_bytes(int(starts.min()), int(ends.max()))
            local = starts - starts.min()
        lengths = ends - starts
        bad = damaged_frame(file, local, lengths)
        if bad is not None:
            frame = file[local[bad] : local[bad] + lengths[bad]]
            problem = frame_problem(frame)
            if is_head(frame.data) and frame_bytes(frame.data) != len(frame):
                problem = "is not one record, although the index lists it"
            location = int(positions[bad]), int(starts[bad])
            raise CorruptRecordError(self._shard.uri, *location, problem)
        return _without_frames(file, local, lengths)

    def _fetch_bytes(self, start: int, stop: int) -> U8:
        range_bytes = self._shard.store.read_range(self._shard.entry.file, start, stop)
        if len(range_bytes) != stop - start:
            raise OutputError(
                f"{self._shard.uri}: ends before byte {stop}; run `recordmill verify`"
            )
        return np.frombuffer(range_bytes, np.uint8)


def _map_file(shard: ReadableShard) -> U8 | None:
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


def frame_offsets(file: U8, records: int) -> I64 | None:
    """Returns the start of each frame of a file, and the end of the last one.

    Only the heads of the frames are read: damaged data is found when it is read. Returns
    None if a length is damaged, the number of records differs, or more bytes follow.
    """
    parts = [find_frames(file)]
    while len(parts[-1]) > 1:  # MAX_FRAMES in each step
        parts.append(find_frames(file, int(parts[-1][-1])))
    offsets = np.concatenate([parts[0], *(part[1:] for part in parts[1:])])
    whole = len(offsets) == records + 1 and offsets[-1] == len(file)
    return offsets if whole else None


def _without_frames(file: U8, starts: I64, lengths: I64) -> pa.BinaryArray:
    """Copies the data of frames to one array, without their heads and tails."""
    sizes = lengths - FRAME_BYTES
    neighbours = (starts[1:] == (starts + lengths)[:-1]).all()
    if len(starts) and neighbours and (lengths == lengths[0]).all():
        stop = int(starts[-1] + lengths[-1])
        rows = file[int(starts[0]) : stop].reshape(len(starts), -1)
        data = np.ascontiguousarray(rows[:, HEAD_BYTES:-TAIL_BYTES]).reshape(-1)
    else:
        begins = (starts + HEAD_BYTES).tolist()
        stops = (starts + lengths - TAIL_BYTES).tolist()
        # A Python slice for each record, 2 us with its copy: they can be anywhere.
        parts = map(file.data.__getitem__, map(slice, begins, stops))
        data = np.frombuffer(b"".join(parts), np.uint8)
    return binary_array(offsets_of(sizes), data)


def write_indexes(
    store: Store,
    manifest: Manifest,
    splits: Sequence[str] | None,
    on_progress: Callable[[float, float | None], None] = lambda _done, _total: None,
) -> list[str]:
    """Writes `SHARD.idx` next to each shard, and returns the names of these files.

    Every record is verified as it is read. `on_progress` is called with (bytes done,
    total bytes).

    Raises:
      UsageError: the shards do not support random access, or there is no such split.
      CorruptRecordError: a record is damaged.
    """
    if manifest.container == "array_record":
        raise UsageError(
            f"{store.uri}: its shards are ArrayRecord files, which contain an index; "
            "no index file is needed"
        )
    if manifest.compression != "none":
        raise UsageError(
            f"{store.uri}: its shards are compressed with {manifest.compression}, so "
            "readers cannot seek to a record, and an index is useless. Convert with "
            "`compression=none`"
        )
    shards = shards_to_read(store, manifest, splits)
    names, done, total = [], 0, sum(shard.entry.bytes for shard in shards)
    for shard in shards:
        name = shard.entry.file + INDEX_SUFFIX
        store.put_bytes(index_text(shard.frame_offsets()), name)
        names.append(name)
        done += shard.entry.bytes
        on_progress(done, total)
    return names
