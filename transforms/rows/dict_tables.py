"""Dicts as Arrow batches, each of rows whose values have the same forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.declared import DeclaredFeature, DeclaredSchema
from recordmill.transforms.rows.python_values import (
    Form,
    InvalidValueError,
    array_of,
    form_of,
    plain_value,
)

Row = Mapping[str, Any]

_GROUP = DeclaredFeature.model_validate(
    "string"
)  # of a column that only tells rows apart


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of equal forms.

    Attributes:
      rows: their indices among the rows given.
      batch: the columns that features are made from, and that of the groups.
    """

    rows: list[int]
    batch: pa.RecordBatch


class TableBuilder:
    """Makes batches of dicts; what one becomes never depends on the others."""

    def __init__(self, declared: DeclaredSchema, split_by: str | None) -> None:
        self._features: dict[str, list[DeclaredFeature]] = {}
        for name, feature in declared.features.items():
            self._features.setdefault(declared.column_of(name), []).append(feature)
        self._split_by = split_by
        if split_by is not None:
            self._features.setdefault(split_by, [_GROUP])

    def of(self, rows: Sequence[Row]) -> Iterator[Table | tuple[int, str]]:
        """Batches of the rows; or a row's index, and why it fits no feature.

        Raises:
          UsageError: a row lacks the key that its split goes by.
        """
        columns: dict[str, list[Any]] = {}
        forms: dict[str, list[Form | None]] = {}
        unfit: dict[int, str] = {}
        for name, features in self._features.items():
            columns[name], forms[name] = [], []
            for index, row in enumerate(rows):
                try:
                    value = plain_value(row.get(name), features)
                    form = form_of(value)
                except InvalidValueError as error:
                    unfit.setdefault(index, f"column {name!r}: {error}")
                    value = form = None
                columns[name].append(value)
                forms[name].append(form)
        self._require_groups(rows, forms)
        yield from sorted(unfit.items())
        for members, found in _parts(forms, len(rows), unfit):
            yield from self._tables(columns, members, found)

    def _tables(
        self,
        columns: Mapping[str, Sequence[Any]],
        members: list[int],
        forms: Mapping[str, Form],
    ) -> Iterator[Table | tuple[int, str]]:
        arrays = {}
        for name, features in self._features.items():
            values = [columns[name][index] for index in members]
            try:
                arrays[name] = (
                    array_of(values, forms[name], features[0])
                    if any(value is not None for value in values)
                    else pa.nulls(len(values))
                )
            except (ValueError, TypeError, OverflowError) as error:
                if len(members) == 1:
                    yield members[0], f"column {name!r}: {error}"
                    return
                for index in members:  # each alone, to find those that Arrow refuses
                    yield from self._tables(columns, [index], forms)
                return
        yield Table(members, pa.RecordBatch.from_pydict(arrays))

    def _require_groups(
        self, rows: Sequence[Row], forms: Mapping[str, Sequence[Form | None]]
    ) -> None:
        if self._split_by is None:
            return
        for row, form in zip(rows, forms[self._split_by], strict=True):
            if self._split_by not in row:
                raise UsageError(
                    f"split_by {self._split_by!r}: a row has no such key; it has "
                    f"{', '.join(map(repr, row))}"
                )
            if form is not None and form[0]:
                raise UsageError(
                    f"split_by {self._split_by!r}: rows are told apart by single "
                    "values, but a row has a list"
                )


def _parts(
    forms: Mapping[str, Sequence[Form | None]], num_rows: int, unfit: Mapping[int, str]
) -> Iterator[tuple[list[int], dict[str, Form]]]:
    """Rows that can share a batch, and the forms of its columns.

    A missing value is the same in a column of any form.
    """
    shared: dict[str, Form] = {}
    mixed: list[str] = []
    for name, found in forms.items():
        kinds = {form for form in found if form is not None}
        if len(kinds) == 1:
            shared[name] = kinds.pop()
        elif kinds:
            mixed.append(name)
    parts: dict[tuple[Form | None, ...], list[int]] = {}
    for index in range(num_rows):
        if index not in unfit:
            key = tuple(forms[name][index] for name in mixed)
            parts.setdefault(key, []).append(index)
    for key, members in parts.items():
        own = {n: form for n, form in zip(mixed, key, strict=True) if form is not None}
        yield members, shared | own
