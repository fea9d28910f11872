"""Describes rows that a pipeline brings: no files, so nothing to list, cut or read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.source_rows import Rows


@dataclass(frozen=True, slots=True)
class PipelineRowsSource(Source):
    """The source of a run whose rows come from a pipeline, not from files.

    Attributes:
      features: of the records.
      storage: of inputs, of which there are none.
    """

    features: Schema
    storage: StorageOptions = NO_OPTIONS

    has_positions = False

    def prepare(self, files: Sequence[InputFile]) -> Self:
        return self

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        return self

    def columns(self) -> pa.Schema:
        return pa.schema([])

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return []

    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        return self.features

    def read(
        self, input_range: InputRange, expected: tuple[int, ...]
    ) -> Iterator[Rows]:
        return iter(())
