"""The records of a finished dataset, shard by shard, everything verified on the way."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.dataset.manifest import Manifest, ShardEntry
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.transforms.arrow import binary_array, offsets_of
from recordmill.transforms.dataset.files import open_file
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import crc32c, open_stream, read_records

WINDOW_BYTES = 8 << 20  # of records decoded at once; one record may be more
WINDOW_RECORDS = 1 << 12

_DRAIN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ShardToRead:
    """One shard, and all that it takes to read it.

    Attributes:
      store: of the dataset.
      entry: what the manifest says of the shard.
      compression: of the shard.
    """

    store: Store
    entry: ShardEntry
    compression: str

    @property
    def uri(self) -> str:
        return self.store.uri_of(self.entry.file)

    def records(self) -> Iterator[memoryview]:
        """The data of every record, in order; a window of the file is held at a time.

        Both checksums of each record are verified before it is given, and at the end
        the number of records and the file's size and checksum.

        Raises:
          CorruptRecordError: a damaged record: which file, record and byte offset.
          OutputError: the file is not the one that the manifest names.
        """
        wanted = self.entry
        size = self.store.size(wanted.file)
        if size != wanted.bytes:
            found = "is missing" if size is None else f"has {size} bytes"
            raise OutputError(
                f"{self.uri}: {found}, the manifest says {wanted.bytes} bytes; "
                "`recordmill verify` says what else is wrong"
            )
        count = 0
        with open_file(self.store, wanted.file) as file:
            summed = _Summed(file)
            stream = open_stream(cast("BinaryIO", summed), self.compression)
            for record in read_records(stream, self.uri):
                count += 1
                yield record
            while summed.read(_DRAIN_BYTES):
                pass
        found, stated = f"{summed.crc:08x}", wanted.crc32c
        if (count, found) != (wanted.records, stated):
            raise OutputError(
                f"{self.uri}: {count} records and CRC-32C {found}, the manifest says "
                f"{wanted.records} and {stated}: all of them are whole, but it is not "
                "the file that was written"
            )

    def windows(self) -> Iterator[pa.BinaryArray]:
        """The records as arrays of bounded size."""
        window: list[memoryview] = []
        num_bytes = 0
        for record in self.records():
            window.append(record)
            num_bytes += len(record)
            if num_bytes >= WINDOW_BYTES or len(window) >= WINDOW_RECORDS:
                yield _array_of(window)
                window, num_bytes = [], 0
        if window:
            yield _array_of(window)

    def batches(self, schema: Schema, payload: Payload) -> Iterator[pa.RecordBatch]:
        """The records' features as columns (see recordmill.transforms.decode.feature_column).

        Raises:
          OutputError: a record does not fit the schema.
        """
        first = 0
        for window in self.windows():
            decoded = decode_payload(window, schema, payload)
            for row, reason in decoded.refused:
                raise OutputError(
                    f"{self.uri}: record {first + row} does not fit the dataset's "
                    f"schema: {reason}; `recordmill verify --deep` names all that do not"
                )
            yield decoded.batch
            first += len(window)


def shards_to_read(
    store: Store, manifest: Manifest, splits: Sequence[str] | None
) -> list[ShardToRead]:
    """The shards of some splits, in the manifest's order.

    Args:
      store: of the dataset.
      manifest: its manifest.
      splits: their names; None takes all.

    Raises:
      UsageError: there is no such split.
    """
    for name in splits or ():
        if name not in manifest.splits:
            raise UsageError(
                f"{store.uri}: no split {name!r}; there are "
                f"{', '.join(map(repr, manifest.splits))}"
            )
    return [
        ShardToRead(store, shard, manifest.compression)
        for name, split in manifest.splits.items()
        if splits is None or name in splits
        for shard in split.shards
    ]


def _array_of(window: Sequence[memoryview]) -> pa.BinaryArray:
    lengths = np.fromiter(map(len, window), np.int64, len(window))
    return binary_array(offsets_of(lengths), np.frombuffer(b"".join(window), np.uint8))


class _Summed(io.RawIOBase):
    """A file that checksums the bytes read from it."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.crc = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        data = self._file.read(size)
        self.crc = crc32c(data, self.crc)
        return data
