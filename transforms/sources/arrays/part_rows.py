"""Makes rows of the bytes of arrays that stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.arrow import I64, U8
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.arrays.row_arrays import Part
from recordmill.transforms.sources.arrays.value_columns import column_of
from recordmill.transforms.sources.source_rows import Rows

ClassNames = Sequence[tuple[str, tuple[str, ...]]]


def part_rows(
    part: Part,
    input_range: InputRange,
    start: int,
    found: Sequence[U8],
    class_names: ClassNames,
) -> Rows:
    """Makes rows; those with a label that is no class are rejects.

    Args:
      part: the arrays.
      input_range: that the rows are of.
      start: number of the first row in the arrays.
      found: the bytes of the rows in each array.
      class_names: of each column that is a class label.
    """
    batch, reasons = part_batch(part, found, class_names)
    numbers: I64 = np.arange(start, start + len(found[0]), dtype=np.int64)
    kept = np.arange(len(numbers))
    path = part.file.path

    def raw_of(index: int) -> tuple[int, bytes]:
        position = part.first + int(numbers[index]) * part.scale
        return position, b"".join(records[index].tobytes() for records in found)

    rejects = []
    for row in sorted(reasons):
        position, data = raw_of(row)
        rejects.append(Reject(path, position, reasons[row], data))
    if reasons:
        kept = np.delete(kept, list(reasons))
        batch = batch.take(pa.array(kept))
    positions = part.first + numbers[kept] * part.scale - input_range.start
    return Rows(
        batch=batch,
        origins=origins_in(path, 0, positions + input_range.start),
        positions=positions,
        raw=lambda row: raw_of(int(kept[row])),
        rejects=rejects,
    )


def part_batch(
    part: Part, found: Sequence[U8], class_names: ClassNames
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Returns columns, and the reasons of rows that are rejects."""
    classes = dict(class_names)
    columns, reasons = {}, dict[int, str]()
    for array, records in zip(part.arrays, found, strict=True):
        for field in array.fields:
            names = classes.get(field.name, ())
            column, wrong = column_of(records, field, len(names))
            columns[field.name] = column
            for row, reason in wrong.items():
                reasons.setdefault(row, f"{array.file.path}: {reason}")
    for name, value in part.constants:
        columns[name] = pa.array(np.full(len(found[0]), value, np.int64))
    return pa.RecordBatch.from_pydict(columns), reasons
