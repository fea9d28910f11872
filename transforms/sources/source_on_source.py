"""Passes on what a source that stands on another one leaves to that other one.

A role of columns and a person's function change rows, not where they are: the input is
cut, surveyed and listed by the other source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import InputRange, OddRows
from recordmill.transforms.sources.base import Source
from recordmill.transforms.storage import Store


@dataclass(frozen=True)
class SourceOnSource(Source):
    """A source whose rows are made of those of another one.

    Attributes:
      inner: the other source.
    """

    inner: Source

    @property
    def infers_types(self) -> bool:
        return self.inner.infers_types

    @property
    def decimal_comma(self) -> bool:
        return self.inner.decimal_comma

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.inner.checksums_of_prepare()

    def own_splits(self) -> tuple[str, ...]:
        return self.inner.own_splits()

    def own_split_rows(self) -> tuple[int, ...]:
        return self.inner.own_split_rows()

    def odd_problem(self, odd: Sequence[OddRows]) -> str:
        return self.inner.odd_problem(odd)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return self.inner.cut(files)

    def needs_survey(self, ranges: Sequence[InputRange]) -> bool:
        return self.inner.needs_survey(ranges)

    def survey(self, input_range: InputRange) -> int:
        return self.inner.survey(input_range)

    def resolve_ranges(
        self, ranges: Sequence[InputRange], surveys: Sequence[int]
    ) -> list[InputRange]:
        return self.inner.resolve_ranges(ranges, surveys)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        return self.inner.sample_ranges(ranges)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        return self.inner.estimated_bytes(files)

    def spill_inventory(self, store: Store, name: str) -> Self:
        return replace(self, inner=self.inner.spill_inventory(store, name))
