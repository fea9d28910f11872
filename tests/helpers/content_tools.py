"""Kept files and the content of files by path, as tests make and compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from recordmill.schemas.input_files import FileChecksum
from recordmill.transforms.commit.inputs import KeptFile, KeptFiles
from recordmill.transforms.file_content import contents, table_of
from recordmill.transforms.inventory import NO_FILES


def contents_of(
    parts: Iterable[FileChecksum], sizes: Mapping[str, int]
) -> dict[str, str]:
    """The content of each file of which something was read."""
    paths = pa.chunked_array([pa.array(list(sizes), pa.string())])
    found = contents(table_of(parts), paths, np.array([*sizes.values()], np.int64))
    told = zip(sizes, found.to_pylist(), strict=True)
    return {path: content for path, content in told if content is not None}


def kept_files(files: Mapping[str, KeptFile]) -> KeptFiles:
    """Files by path, in columns."""
    rows = [{"path": path, **file._asdict()} for path, file in files.items()]
    schema = KeptFiles.listed(NO_FILES, are_side=False).table.schema
    return KeptFiles(pa.Table.from_pylist(rows, schema))
