"""Reads text files line by line; one file is one input range, read at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import InputRange, Reject
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import RangeFindings, Rows, Source
from recordmill.transforms.storage.reading import read_range


@dataclass(frozen=True)
class LinesSource(Source):
    """Lines of UTF-8 text.

    Attributes:
      min_length: bytes; shorter lines are left out.
      storage: options of the inputs' storage.
    """

    min_length: int = 1
    storage: StorageOptions = NO_OPTIONS

    def columns(self) -> pa.Schema:
        return pa.schema({"text": pa.string(), "length": pa.int64()})

    def read(
        self,
        input_range: InputRange,
        expected: tuple[int, ...],
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        lines: list[tuple[int, bytes]] = []
        texts: list[str] = []
        offset = 0
        data = read_range(input_range.uri, 0, input_range.stop, self.storage)
        for line in data.splitlines(keepends=True):
            raw = line.rstrip(b"\r\n")
            if len(raw) >= self.min_length:
                try:
                    texts.append(raw.decode())
                    lines.append((offset, raw))
                except UnicodeDecodeError as error:
                    reason = f"not UTF-8 at byte {error.start} of the line"
                    range_findings.rejects.append(
                        Reject(input_range.path, offset, reason, raw)
                    )
            offset += len(line)
        offsets = np.array([offset for offset, _ in lines], np.int64)
        lengths = [len(raw) for _, raw in lines]
        yield Rows(
            batch=pa.RecordBatch.from_pydict(
                {"text": texts, "length": lengths}, schema=self.columns()
            ),
            origins=origins_in(input_range.path, input_range.start, offsets),
            positions=offsets,
            raw_row=lambda row: lines[row],
        )
