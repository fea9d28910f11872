"""Reads folders of text files: each file is a record, with labels like image files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.ranges import TypeFlags
from recordmill.transforms.encode.row_errors import utf8_reason
from recordmill.transforms.sources.base import RangeFindings
from recordmill.transforms.sources.images.source import (
    FilesSource,
    PreparedFile,
    PreparedFiles,
    ReadFile,
    file_schema,
)

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TextFilesSource(FilesSource):
    """A source of UTF-8 text files, with one record per file and one folder per class."""

    keeps_bytes = False  # a byte order mark is removed

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        text = FeatureSpec("text", Kind.BYTES, dtype="string")
        return file_schema(self.options.column_names, self.annotations, text)

    def _prepare_file(
        self, data: bytes, values: Sequence[Any], partners: Sequence[ReadFile]
    ) -> PreparedFile:
        if problem := utf8_reason(data, "file"):
            raise ValueError(f"is {problem}; save it as UTF-8")
        return PreparedFile(data.removeprefix(_BOM))

    def _build_batch(
        self, taken_files: PreparedFiles, range_findings: RangeFindings
    ) -> pa.RecordBatch:
        # `_take` has checked that the contents are UTF-8.
        columns = {"text": taken_files.contents.cast(pa.string())}
        columns["filename"] = pa.array(taken_files.paths, pa.string())
        return pa.RecordBatch.from_pydict(
            {**self.annotations.build_columns(taken_files.values), **columns}
        )
