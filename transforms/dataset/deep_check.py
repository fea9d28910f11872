"""Does every record of a shard fit the dataset's schema? For `verify --deep`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.transforms.arrow import binary_array, offsets_of
from recordmill.transforms.dataset.value_checks import check_values
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.tfrecord import FRAME_BYTES

_WINDOW_BYTES = 8 << 20
_WINDOW_RECORDS = 1 << 14
_NAMED = 3  # records of a shard that do not fit; the others are counted


@dataclass(slots=True)
class DeepCheck:
    """Takes the records of one shard in turn and decodes them, a window at a time.

    Attributes:
      schema: of the dataset.
      payload: what its records hold.
      invalid_rows: records so far that do not fit the schema.
      named: what is wrong with the first of them, and where they are.
    """

    schema: Schema
    payload: Payload
    invalid_rows: int = 0
    named: list[str] = field(default_factory=list)
    _index: int = 0  # of the window's first record
    _offset: int = 0  # of its frame
    _window: list[bytes | memoryview] = field(default_factory=list)
    _window_bytes: int = 0

    def add(self, record: bytes | memoryview) -> None:
        """Checks the record now or with later ones."""
        self._window.append(record)
        self._window_bytes += len(record)
        if self._window_bytes >= _WINDOW_BYTES or len(self._window) >= _WINDOW_RECORDS:
            self._flush()

    def problems(self) -> list[str]:
        """What is wrong with the records that were added, all of them checked."""
        self._flush()
        more = self.invalid_rows - len(self.named)
        if not more:
            return self.named
        return [
            *self.named,
            f"{more:,} more records do not fit the schema, {self.invalid_rows:,} in all",
        ]

    def _flush(self) -> None:
        if not self._window:
            return
        lengths = np.fromiter(map(len, self._window), np.int64, len(self._window))
        data = np.frombuffer(b"".join(self._window), np.uint8)
        reasons = invalid_rows(
            binary_array(offsets_of(lengths), data), self.schema, self.payload
        )
        offsets = self._offset + offsets_of(lengths + FRAME_BYTES)
        self.invalid_rows += len(reasons)
        for row in sorted(reasons)[: _NAMED - len(self.named)]:
            where = f"record {self._index + row} at byte {offsets[row]}"
            self.named.append(f"{where}: {reasons[row]}")
        self._index += len(lengths)
        self._offset = int(offsets[-1])
        self._window.clear()
        self._window_bytes = 0


def invalid_rows(
    records: pa.BinaryArray, schema: Schema, payload: Payload
) -> dict[int, str]:
    """By record, why it does not fit the schema."""
    decoded = decode_payload(records, schema, payload, unknown="error")
    reasons = dict(decoded.refused)
    batch, rows = decoded.batch, np.arange(len(records))
    if reasons:  # of those nothing in the batch is to be looked at
        mask = np.ones(len(records), np.bool_)
        mask[list(reasons)] = False
        batch, rows = batch.filter(pa.array(mask)), rows[mask]
    for row, reason in check_values(batch, schema).items():
        reasons[int(rows[row])] = reason
    return reasons
