"""Read datasets with the package tfrecord, alone and with PyTorch, by index files.

python tests/integration/same_rows/by_tfrecord.py CASES
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from row_digest import Json, Row, cases_of_tfrecord, from_stored, told
from tfrecord.reader import tfrecord_loader
from tfrecord.torch.dataset import TFRecordDataset
from torch.utils.data import DataLoader

from recordmill.schemas.proto.tensor_pb2 import TensorProto


def tensor_of(data: bytes, dtype: str) -> np.ndarray:
    """Parse a TensorProto of numbers with protobuf alone."""
    proto = TensorProto.FromString(data)
    shape = [dim.size for dim in proto.tensor_shape.dim]
    return np.frombuffer(proto.tensor_content, dtype).reshape(shape)


def same(item: Any) -> Any:
    return item


def rows_of(found: Iterable[Mapping[str, Any]], case: Json) -> Iterator[Row]:
    """Yield rows; a single value of bytes is not in a list."""
    for stored in found:
        listed = {
            key: [value] if isinstance(value, bytes) else list(value)
            for key, value in stored.items()
        }
        yield from_stored(listed, case["features"], tensor_of)


def files_of(case: Json) -> list[str]:
    return [file for files in case["files"].values() for file in files]


def plain(case: Json) -> Iterator[Row]:
    """Yield rows as they lie, without an index."""
    kind = None if case["compression"] == "none" else case["compression"]
    for file in files_of(case):
        yield from rows_of(tfrecord_loader(file, None, compression_type=kind), case)


def by_index(case: Json) -> Iterator[Row]:
    """Yield the rows of both halves of each file."""
    for file in files_of(case):
        for half in range(2):
            found = tfrecord_loader(file, file + ".idx", shard=(half, 2))
            yield from rows_of(found, case)


def by_torch(case: Json) -> Iterator[Row]:
    """Yield rows that two workers of a DataLoader read; each takes half of the index."""
    for file in files_of(case):
        data = TFRecordDataset(file, file + ".idx")
        loader = DataLoader(data, batch_size=None, num_workers=2, collate_fn=same)
        yield from rows_of(loader, case)


for case in cases_of_tfrecord():
    told(case, "tfrecord", lambda: plain(case))  # noqa: B023
    told(case, "tfrecord, index", lambda: by_index(case))  # noqa: B023
    told(case, "tfrecord, torch, 2 workers", lambda: by_torch(case))  # noqa: B023
