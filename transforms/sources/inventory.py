"""The inventory as a file, read by slices: too large for a value where files are many.

One Arrow record batch per slice that workers read, so that a slice is one read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from schemas.ranges import InputFile

SLICE_FILES = 4096

_SCHEMA = pa.schema({"path": pa.string(), "size": pa.int64(), "version": pa.string()})


def write_inventory(path: Path, files: Sequence[InputFile]) -> None:
    """Writes the files' paths, sizes and versions."""
    aside = path.with_name(f".{path.name}")
    with pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as out:
        for start in range(0, len(files), SLICE_FILES):
            part = files[start : start + SLICE_FILES]
            columns = [
                pa.array([file.path for file in part], pa.string()),
                pa.array([file.size for file in part], pa.int64()),
                pa.array([file.version for file in part], pa.string()),
            ]
            out.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    aside.replace(path)


def read_inventory(path: str, root: str, start: int, stop: int) -> list[InputFile]:
    """The files from `start` to `stop`.

    Args:
      path: the inventory.
      root: what stands before every path in a uri.
      start: first file.
      stop: end, exclusive.
    """
    return list(_slice(path, root, start, stop))


def _slice(path: str, root: str, start: int, stop: int) -> Iterator[InputFile]:
    with pa.OSFile(path, "rb") as source:
        reader = pa.ipc.open_file(source)
        for number in range(start // SLICE_FILES, -(-stop // SLICE_FILES)):
            first = number * SLICE_FILES
            batch = reader.get_batch(number)
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            for row in batch.slice(low, high - low).to_pylist():
                yield InputFile(
                    row["path"], root + row["path"], row["size"], row["version"]
                )
