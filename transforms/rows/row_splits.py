"""Decides the split of each row of a pipeline: by its content, a value, a name or a time.

A row is sent on as it comes, so what decides must be in the row itself and the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.errors import UsageError
from recordmill.schemas.job.job_spec import JobSpec, parse_fraction
from recordmill.schemas.job.split_times import parse_split_times
from recordmill.schemas.proto.example_pb2 import Example, Feature
from recordmill.transforms.arrow import U64
from recordmill.transforms.encode.arrow_types import is_list, plain
from recordmill.transforms.exchange.keys import assign_splits, text_hash, value_hashes
from recordmill.transforms.sources.roles import SplitRole, TimeRole

_MOST_KNOWN = 1 << 12  # values of examples whose splits are kept


@dataclass(frozen=True, slots=True)
class SplitRule:
    """What decides the split of each row.

    Attributes:
      job: what the rows become.
      option: the option by which a column decides, or "".
      column: that column, or a feature of examples; None if the whole record decides.
      role: of the column, if it tells splits; None if rows with equal values in it fall
        into one split by a hash.
    """

    job: JobSpec
    option: str = ""
    column: str | None = None
    role: SplitRole | None = None
    _known: dict[tuple[type, Any], int | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, job: JobSpec) -> SplitRule:
        """Returns the rule of a job."""
        if job.split_column is not None:
            names = tuple(split.name for split in job.splits)
            role = SplitRole(job.split_column, names, (1,) * len(names), known=True)
            return cls(job, "split_column", job.split_column, role)
        if job.split_by_time is not None:
            times = parse_split_times(job.split_by_time)
            return cls(job, "split_by_time", times.column, TimeRole.of(times))
        return cls(job, "split_by" if job.split_by is not None else "", job.split_by)

    def find(self, values: pa.Array) -> pa.Array:
        """Returns what decides for each row: a split's index, or the hash of a value.

        Args:
          values: of the column.

        Returns:
          Null for a row whose value tells no split; see `reason`.

        Raises:
          UsageError: values of this type cannot decide.
        """
        try:
            if self.role is None:
                return pa.array(value_hashes(values))
            values = plain(values)
            if is_list(values.type):
                raise pa.ArrowTypeError("expected a single value in each row")
            return self.role.find(values)
        except pa.ArrowException as error:
            raise UsageError(
                f"{self.option}={self.column!r}: values of type {values.type} cannot "
                f"be compared: {error}"
            ) from error

    def find_in_example(self, example: Example) -> tuple[int | None, Any]:
        """Returns what decides for an example, or None, and the value, or values."""
        assert self.column is not None  # or nothing is looked for
        features = example.features.feature
        feature = features[self.column] if self.column in features else Feature()
        if self.role is None:
            return text_hash(feature.SerializeToString(deterministic=True)), None
        values = _values_of(feature)
        if len(values) > 1:
            return None, values
        value = values[0] if values else None
        # Alone a value takes 25 to 40 us, and many rows have the same.
        key = type(value), value
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self.find(pa.array([value]))[0].as_py()
        return self._known[key], value

    def reason(self, value: Any) -> str:
        """Returns why a row with this value cannot be converted."""
        assert self.role is not None  # by hashes every row falls into a split
        if isinstance(value, list):
            return (
                f"{self.column}: {len(value):,} values; each row needs one, that tells "
                "its split"
            )
        return self.role.reason(None if value is None else str(value))

    def assign(self, origins: U64, found: U64 | None) -> npt.NDArray[np.uint8]:
        """Returns the index of each row's split.

        Args:
          origins: hashes of the records, which decide if no column does.
          found: what decides for each, from `find`.
        """
        if self.role is not None and found is not None:
            return found.astype(np.uint8)
        fractions = [parse_fraction(split.fraction) for split in self.job.splits]
        groups = origins if found is None else found
        return assign_splits(groups, fractions, self.job.seed)


def _values_of(feature: Feature) -> list[str | int | float]:
    """Returns the values of a feature, bytes as text."""
    kind = feature.WhichOneof("kind")
    values: list[bytes | int | float] = (
        list(getattr(feature, kind).value) if kind else []
    )
    return [
        value.decode(errors="replace") if isinstance(value, bytes) else value
        for value in values
    ]
