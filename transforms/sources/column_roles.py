"""Gives columns of a table a role: one is a class label, one tells the split of its row.

It stands between a table's source and all that uses it, so CSV, Parquet, Arrow and JSON
Lines are treated alike. The roles are known before the run: names of classes and of splits
are counted first (transforms/statistics/input_statistics.py), or are those of the dataset that rows are
appended to. A row whose value is none of them is a reject.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import InputRange, OddRows, TypeFlags
from recordmill.transforms.sources.roles import LabelRole, SplitRole, TimeRole, index_in
from recordmill.transforms.sources.source_on_source import SourceOnSource
from recordmill.transforms.sources.source_rows import Rows, without_rows
from recordmill.transforms.sources.text_types import TypeFlag


@dataclass(frozen=True)
class SourceWithRoles(SourceOnSource):
    """A prepared table (`inner`), some columns of which have roles.

    Attributes:
      label: the column that is a class label, or None.
      split: the column that tells splits, or None.
      facts: what is told of the roles.
      warnings: what looks wrong about them.
    """

    label: LabelRole | None = None
    split: SplitRole | None = None
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    _texts: tuple[int, ...] = field(init=False)  # numbers of the columns with roles

    def __post_init__(self) -> None:
        inner = self.inner
        object.__setattr__(self, "storage", inner.storage)
        object.__setattr__(self, "files_root", inner.files_root)
        object.__setattr__(self, "tells_checksums", inner.tells_checksums)
        object.__setattr__(self, "has_positions", inner.has_positions)
        object.__setattr__(self, "read_rate", inner.read_rate)
        object.__setattr__(self, "reference_rate", inner.reference_rate)
        by_text = () if isinstance(self.split, TimeRole) else (self.split,)
        roles = [role.column for role in (self.label, *by_text) if role]
        names = inner.columns().names
        numbers = tuple(number for number, n in enumerate(names) if n in roles)
        object.__setattr__(self, "_texts", numbers)

    def prepare(self, files: Sequence[InputFile]) -> Self:
        return replace(self, inner=self.inner.prepare(files))

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        return replace(self, inner=self.inner.prepare_append(kept, new, schema))

    def understood(self) -> Understood:
        return self._told(self.inner.understood())

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: TypeFlags = (),
    ) -> Understood:
        own = self.inner.schema(observed)
        return self._told(self.inner.understood_at_end(own, odd, observed))

    def _told(self, found: Understood) -> Understood:
        return found.updated(Understood(self.facts, self.warnings))

    def own_splits(self) -> tuple[str, ...]:
        return self.split.names if self.split else self.inner.own_splits()

    def own_split_rows(self) -> tuple[int, ...]:
        return self.split.rows if self.split else self.inner.own_split_rows()

    def columns(self) -> pa.Schema:
        found = self.inner.columns()
        return pa.schema(
            [
                pa.field(
                    each.name, pa.int64() if self._is_label(each.name) else each.type
                )
                for each in found
                if not self._is_dropped(each.name)
            ]
        )

    def _is_label(self, name: str) -> bool:
        return self.label is not None and name == self.label.column

    def _is_dropped(self, name: str) -> bool:
        return (
            self.split is not None and self.split.dropped and name == self.split.column
        )

    def sample(self, input_range: InputRange) -> TypeFlags:
        return self._as_text(self.inner.sample(input_range))

    def _as_text(self, flags: TypeFlags) -> TypeFlags:
        """Returns type flags with which the columns with roles stay text."""
        if not flags or not self.inner.infers_types:
            return flags  # what sources of known types note is their own
        changed = list(flags)
        for number in self._texts:
            changed[number] |= TypeFlag.TEXT
        return tuple(changed)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        features = []
        for feature in self.inner.schema(self._as_text(observed), nulls).features:
            if self.label and self._is_label(feature.column):
                features.append(self.label.feature)
            elif not self._is_dropped(feature.column):
                features.append(feature)
        return Schema(tuple(features))

    def needs_reencode(
        self, observed: TypeFlags, used: TypeFlags, final: TypeFlags
    ) -> bool:
        return self.inner.needs_reencode(observed, used, final)

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        if self.inner.infers_types:
            expected = expected or (int(TypeFlag.NOTHING),) * len(
                self.inner.columns().names
            )
        for rows in self.inner.read(input_range, self._as_text(expected)):
            yield self._with_roles(rows, input_range)

    def _with_roles(self, rows: Rows, input_range: InputRange) -> Rows:
        """Returns the rows with their labels and splits; the others are rejects."""
        batch = rows.batch
        reasons: dict[int, str] = {}
        splits = None
        if self.split is not None:
            values = batch.column(self.split.column)
            found = self.split.find(values)
            _note(values, found, self.split, reasons)
            splits = found.fill_null(0).to_numpy().astype(np.uint8)
            if self.split.dropped:
                batch = batch.drop_columns([self.split.column])
        if self.label is not None:
            number = batch.schema.get_field_index(self.label.column)
            values = batch.column(number)
            labels = index_in(values, self.label.names)
            _note(values, labels, self.label, reasons)
            batch = batch.set_column(number, self.label.column, labels)
        rows = replace(
            rows, batch=batch, splits=splits, observed=self._as_text(rows.observed)
        )
        return without_rows(rows, reasons, input_range) if reasons else rows

    def read_for_statistics(self, input_range: InputRange) -> Iterator[Rows]:
        return self.inner.read_for_statistics(input_range)


def _note(
    values: pa.Array,
    found: pa.Int64Array,
    role: LabelRole | SplitRole,
    reasons: dict[int, str],
) -> None:
    """Notes why rows whose value was not found cannot be converted."""
    if found.null_count:
        for row in np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False)):
            value = values[int(row)].as_py()
            text = None if value is None else str(value)
            reasons.setdefault(int(row), role.reason(text))
