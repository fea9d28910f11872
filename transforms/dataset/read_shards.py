"""Reads the records of a finished dataset shard by shard and verifies all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa

from recordmill.schemas.dataset.manifest import Manifest, ShardEntry
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import Container, Payload
from recordmill.transforms.arrow import binary_array, offsets_of
from recordmill.transforms.dataset.array_record_shards import open_array_records
from recordmill.transforms.dataset.files import (
    ChecksummedFile,
    open_file,
    require_size,
)
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import open_stream, read_records

WINDOW_BYTES = 8 << 20  # of records decoded at once; a single record may be larger
WINDOW_RECORDS = 1 << 12


@dataclass(frozen=True, slots=True)
class ShardToRead:
    """One shard and what is needed to read it.

    Attributes:
      store: of the dataset.
      entry: the shard's entry in the manifest.
      compression: of the shard.
      container: its file format.
    """

    store: Store
    entry: ShardEntry
    compression: str
    container: Container

    @property
    def uri(self) -> str:
        return self.store.uri_of(self.entry.file)

    def records(self) -> Iterator[memoryview]:
        """Yields the data of every record in order; keeps a window of the file in memory.

        Both checksums of each record are verified before it is yielded; at the end the
        number of records and the file's checksum. Of an ArrayRecord file, which has no
        such checksums, the whole file is verified first.

        Raises:
          CorruptRecordError: a record is damaged; names file, record and byte offset.
          OutputError: the file is not the one that the manifest describes.
        """
        if self.container == "array_record":
            yield from open_array_records(self.store, self.entry).records()
            return
        expected = self.entry
        require_size(self.store, expected)
        count = 0
        with open_file(self.store, expected.file) as file:
            checked = ChecksummedFile(file)
            stream = open_stream(cast("BinaryIO", checked), self.compression)
            for record in read_records(stream, self.uri):
                count += 1
                yield record
            checked.drain()
        crc32c = f"{checked.crc:08x}"
        if (count, crc32c) != (expected.records, expected.crc32c):
            raise OutputError(
                f"{self.uri}: {count} records and CRC-32C {crc32c}, the manifest says "
                f"{expected.records} and {expected.crc32c}: no record is damaged, but "
                "this is not the file that was written. Convert again or restore it"
            )

    def windows(self) -> Iterator[pa.BinaryArray]:
        """Yields the records as arrays of bounded size."""
        window: list[memoryview] = []
        num_bytes = 0
        for record in self.records():
            window.append(record)
            num_bytes += len(record)
            if num_bytes >= WINDOW_BYTES or len(window) >= WINDOW_RECORDS:
                yield _binary_array(window)
                window, num_bytes = [], 0
        if window:
            yield _binary_array(window)

    def batches(self, schema: Schema, payload: Payload) -> Iterator[pa.RecordBatch]:
        """Yields the records' features as columns, as `decode_payload` makes them.

        Raises:
          OutputError: a record does not fit the schema.
        """
        # Only here: verifying imports this module too, and decodes nothing.
        from recordmill.transforms.decode.payloads import decode_payload

        first = 0
        for window in self.windows():
            decoded = decode_payload(window, schema, payload)
            for row, reason in decoded.row_errors:
                raise OutputError(
                    f"{self.uri}: record {first + row} does not fit the dataset's "
                    f"schema: {reason}; run `recordmill verify --deep` to see all such"
                )
            yield decoded.batch
            first += len(window)


def shards_to_read(
    store: Store, manifest: Manifest, splits: Sequence[str] | None
) -> list[ShardToRead]:
    """Returns the shards of some splits, in the manifest's order.

    Args:
      store: of the dataset.
      manifest: its manifest.
      splits: their names; None takes all.

    Raises:
      UsageError: a split does not exist.
    """
    wanted = require_splits(store, manifest, *(splits or ()))
    return [
        shard_to_read(store, manifest, shard)
        for name in wanted
        for shard in manifest.splits[name].shards
    ]


def shard_to_read(store: Store, manifest: Manifest, shard: ShardEntry) -> ShardToRead:
    """Returns one shard of a dataset."""
    return ShardToRead(store, shard, manifest.compression, manifest.container)


def require_splits(store: Store, manifest: Manifest, *names: str) -> list[str]:
    """Returns the named splits, or all, in the manifest's order.

    Raises:
      UsageError: a split does not exist.
    """
    for name in names:
        if name not in manifest.splits:
            raise UsageError(
                f"{store.uri}: no split {name!r}; there are "
                f"{', '.join(map(repr, manifest.splits))}"
            )
    return [name for name in manifest.splits if not names or name in names]


def _binary_array(window: Sequence[memoryview]) -> pa.BinaryArray:
    lengths = np.fromiter(map(len, window), np.int64, len(window))
    return binary_array(offsets_of(lengths), np.frombuffer(b"".join(window), np.uint8))
