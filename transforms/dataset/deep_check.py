"""Checks that every record of a shard fits the dataset's schema (`verify --deep`)."""

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
_SHOWN = 3  # invalid records described for each shard; the others are counted


@dataclass(slots=True)
class DeepCheck:
    """A check of the records of one shard, which decodes a window of them at a time.

    Attributes:
      schema: of the dataset.
      payload: what its records hold.
      num_invalid: number of records so far that do not fit the schema.
      shown: index, offset and error of the first of them.
    """

    schema: Schema
    payload: Payload
    is_framed: bool = True
    num_invalid: int = 0
    shown: list[str] = field(default_factory=list)
    _index: int = 0  # of the window's first record
    _offset: int = 0  # of that record's frame, in bytes
    _window: list[bytes | memoryview] = field(default_factory=list)
    _window_bytes: int = 0

    def add(self, record: bytes | memoryview) -> None:
        """Adds the next record; it is checked now or together with later ones."""
        self._window.append(record)
        self._window_bytes += len(record)
        if self._window_bytes >= _WINDOW_BYTES or len(self._window) >= _WINDOW_RECORDS:
            self._flush()

    def problems(self) -> list[str]:
        """Returns the problems of all records that were added."""
        self._flush()
        more = self.num_invalid - len(self.shown)
        if not more:
            return self.shown
        return [
            *self.shown,
            f"{more:,} more records do not fit the schema, {self.num_invalid:,} in all",
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
        self.num_invalid += len(reasons)
        for row in sorted(reasons)[: _SHOWN - len(self.shown)]:
            location = f"record {self._index + row}"
            if self.is_framed:
                location += f" at byte {offsets[row]}"
            self.shown.append(f"{location}: {reasons[row]}")
        self._index += len(lengths)
        self._offset = int(offsets[-1])
        self._window.clear()
        self._window_bytes = 0


def invalid_rows(
    records: pa.BinaryArray, schema: Schema, payload: Payload
) -> dict[int, str]:
    """Returns why records do not fit the schema, by index of the record."""
    decoded = decode_payload(records, schema, payload, unknown="error")
    reasons = dict(decoded.row_errors)
    batch, rows = decoded.batch, np.arange(len(records))
    if reasons:  # their rows in the batch are not valid, so leave them out
        mask = np.ones(len(records), np.bool_)
        mask[list(reasons)] = False
        batch, rows = batch.filter(pa.array(mask)), rows[mask]
    for row, reason in check_values(batch, schema).items():
        reasons[int(rows[row])] = reason
    return reasons
