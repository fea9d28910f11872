"""Converts dicts to Arrow batches, each of rows whose values have the same forms."""

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
from recordmill.transforms.rows.row_splits import SplitRule

Row = Mapping[str, Any]

# Stands for a column that only decides the split.
_GROUP = DeclaredFeature.model_validate("string")


@dataclass(frozen=True, slots=True)
class Table:
    """An Arrow batch of rows with the same forms.

    Attributes:
      rows: indices of the rows in the list of dicts.
      batch: the columns from which features are made, and the one that decides splits.
    """

    rows: list[int]
    batch: pa.RecordBatch


class TableBuilder:
    """A converter of dicts to batches; no dict depends on the others.

    Args:
      declared: the features that are made of the dicts.
      rule: what decides their splits.
    """

    def __init__(self, declared: DeclaredSchema, rule: SplitRule) -> None:
        self._features: dict[str, list[DeclaredFeature]] = {}
        for name, feature in declared.features.items():
            self._features.setdefault(declared.column_of(name), []).append(feature)
        self._rule = rule
        if rule.column is not None:
            self._features.setdefault(rule.column, [_GROUP])

    def build(self, rows: Sequence[Row]) -> Iterator[Table | tuple[int, str]]:
        """Yields batches of the rows, or (index, reason) of a row that is not valid.

        Raises:
          UsageError: a row has no value to decide its split.
        """
        columns: dict[str, list[Any]] = {}
        forms: dict[str, list[Form | None]] = {}
        invalid_rows: dict[int, str] = {}
        for name, features in self._features.items():
            columns[name], forms[name] = [], []
            for index, row in enumerate(rows):
                try:
                    value = plain_value(row.get(name), features)
                    form = form_of(value)
                except InvalidValueError as error:
                    invalid_rows.setdefault(index, f"column {name!r}: {error}")
                    value = form = None
                columns[name].append(value)
                forms[name].append(form)
        self._require_groups(rows, forms)
        yield from sorted(invalid_rows.items())
        for members, shared_forms in _group_by_form(forms, len(rows), invalid_rows):
            yield from self._tables(columns, members, shared_forms)

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
                for index in members:  # one by one, to find those that Arrow rejects
                    yield from self._tables(columns, [index], forms)
                return
        yield Table(members, pa.RecordBatch.from_pydict(arrays))

    def _require_groups(
        self, rows: Sequence[Row], forms: Mapping[str, Sequence[Form | None]]
    ) -> None:
        rule = self._rule
        if rule.column is None:
            return
        for row, form in zip(rows, forms[rule.column], strict=True):
            # Without a value that tells its split, a row is a reject.
            if rule.role is None and rule.column not in row:
                raise UsageError(
                    f"{rule.option}={rule.column!r}: a row has no such key; it has "
                    f"{', '.join(map(repr, row))}"
                )
            if form is not None and form[0]:
                raise UsageError(
                    f"{rule.option}={rule.column!r}: a row has a list; expected a "
                    "single value"
                )


def _group_by_form(
    forms: Mapping[str, Sequence[Form | None]],
    num_rows: int,
    invalid_rows: Mapping[int, str],
) -> Iterator[tuple[list[int], dict[str, Form]]]:
    """Yields (row indices, form of each column) for rows that can share a batch.

    A missing value fits a column of any form.
    """
    shared: dict[str, Form] = {}
    mixed: list[str] = []
    for name, found in forms.items():
        kinds = {form for form in found if form is not None}
        if len(kinds) == 1:
            shared[name] = kinds.pop()
        elif kinds:
            mixed.append(name)
    groups: dict[tuple[Form | None, ...], list[int]] = {}
    for index in range(num_rows):
        if index not in invalid_rows:
            key = tuple(forms[name][index] for name in mixed)
            groups.setdefault(key, []).append(index)
    for key, members in groups.items():
        own = {n: form for n, form in zip(mixed, key, strict=True) if form is not None}
        yield members, shared | own
