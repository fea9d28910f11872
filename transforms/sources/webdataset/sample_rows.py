"""Makes rows of samples; those that do not fit are rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.feature import Schema
from recordmill.schemas.ranges import OddRows, Reject
from recordmill.schemas.text import count
from recordmill.transforms.cast.cast_result import shown
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.pictures.image_header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.images.decodability import require_decodable
from recordmill.transforms.sources.jsonl.json_values import is_text
from recordmill.transforms.sources.required_values import missing_required
from recordmill.transforms.sources.source_rows import Rows
from recordmill.transforms.sources.webdataset.members import Values, values_of
from recordmill.transforms.sources.webdataset.odd_samples import (
    AGAIN,
    observe_pictures,
)
from recordmill.transforms.sources.webdataset.sample_columns import (
    KEY,
    batch_of,
    member_of,
    misfit_in,
    pictures_of,
)
from recordmill.transforms.sources.webdataset.samples import Sample
from recordmill.transforms.sources.webdataset.shard_bytes import ShardBytes


@dataclass(frozen=True)
class SampleRows:
    """The columns that samples have.

    Attributes:
      types: names and types; () before they are known.
      members: what samples may hold, by what follows the key.
      sampled: how many samples told them.
      wanted: columns that a declared schema uses; None without one.
      fixed_schema: the schema of the dataset that rows are appended to, or None.
    """

    types: tuple[tuple[str, pa.DataType], ...]
    members: frozenset[str]
    sampled: int
    wanted: tuple[str, ...] | None
    fixed_schema: Schema | None

    def rows_of(
        self,
        samples: Sequence[Sample],
        shard: ShardBytes,
        keys: set[int],
        first: int = 0,
    ) -> Rows:
        """Makes rows of samples; those that do not fit are rejects.

        Args:
          samples: some of a shard.
          shard: the shard.
          keys: hashes of the keys that came before in it; those of the rows are added.
          first: byte at which the range of the samples begins.
        """
        types, path = dict(self.types), shard.file.path
        whose = "in the dataset" if self.fixed_schema else "in most samples"
        reasons: dict[int, str] = {}
        values: list[Values] = []
        kept: list[int] = []
        pictures: list[dict[str, ImageHeader]] = []
        for index, sample in enumerate(samples):
            headers: dict[str, ImageHeader] = {}
            found = self.values_of(sample, headers)
            if not isinstance(found, str):
                found = misfit_in(found, types, whose, only_arrays=True) or found
            if isinstance(found, str):
                reasons[index] = found
                continue
            values.append(found)
            kept.append(index)
            pictures.append(headers)
        batch = batch_of(values, types)
        whole = list(range(len(kept)))
        if batch is None:
            misfits = [
                misfit_in(found, types, whose, only_arrays=False) for found in values
            ]
            reasons |= {kept[at]: told for at, told in enumerate(misfits) if told}
            whole = [at for at, told in enumerate(misfits) if not told]
            batch = batch_of([values[at] for at in whole], types)
            if batch is None:
                raise ValueError(f"{shard.file.uri}: values fit one by one only")
        if missing := missing_required(batch, self.fixed_schema):
            reasons |= {kept[whole[at]]: told for at, told in missing.items()}
            left = [at for at in range(len(whole)) if at not in missing]
            batch = batch.take(pa.array(left, pa.int64()))
            whole = [whole[at] for at in left]
        headers_kept = [pictures[at] for at in whole]
        kept = [kept[at] for at in whole]
        starts = np.array([samples[index].start for index in kept], np.int64)
        positions = shard.positions.of(starts) if shard.compression else starts - first
        names = [f"{path}: {samples[index].key}" for index in kept]
        observed, odd = observe_pictures(pictures_of([*types]), headers_kept, names)
        again = []
        for index, name in zip(kept, names, strict=True):
            hashed = hash(samples[index].key)
            again += [(OddRows(AGAIN, 1, name),)] if hashed in keys else []
            keys.add(hashed)
        return Rows(
            batch=batch,
            origins=origins_in(path, 0, starts),
            positions=positions,
            raw=lambda row: (samples[kept[row]].start, samples[kept[row]].raw),
            rejects=[
                Reject(path, samples[index].start, reasons[index], samples[index].raw)
                for index in sorted(reasons)
            ],
            observed=observed,
            odd=OddRows.merged([odd, *again]),
            nulls=tuple(column.null_count for column in batch.columns),
        )

    def values_of(
        self, sample: Sample, headers: dict[str, ImageHeader] | None
    ) -> Values | str:
        """Returns the columns of a sample, or why there are none.

        Args:
          sample: the sample.
          headers: gets those of its pictures; None before columns are known.
        """
        if sample.problem:
            return sample.problem
        if not is_text(sample.key):
            return f"the key {shown(sample.key)} is not UTF-8"
        if sample.members.keys() & {KEY, ""}:
            return (
                f"a file is named {KEY!r} or nothing behind the key of the sample, which "
                "can be no feature (`key` is that of the samples' keys): rename it"
            )
        values: Values = {KEY: sample.key}
        known = dict(self.types)
        used = None if self.wanted is None else set(map(member_of, self.wanted))
        for name, data in sample.members.items():
            if used is not None and name not in used:
                continue
            if headers is not None and name not in self.members:
                return self._unknown(name)
            found = values_of(name, data, {} if headers is None else headers)
            if isinstance(found, str):
                return found
            values |= found
        if headers is not None:
            if self.wanted is None and not values.keys() <= known.keys():
                return self._unknown(next(name for name in values if name not in known))
            if problem := self._undecodable(headers):
                return problem
        return values

    def _unknown(self, name: str) -> str:
        if self.fixed_schema is not None:
            return f"{shown(name)}: is no feature of the dataset"
        return (
            f"{shown(name)}: is in none of the {count(self.sampled, 'sample')} that were "
            "looked at for columns; a schema file says which to use (`schema`)"
        )

    def _undecodable(self, headers: dict[str, ImageHeader]) -> str:
        """Returns why pictures cannot be appended to those of the dataset, or ""."""
        for feature in self.fixed_schema.features if self.fixed_schema else ():
            if feature.name in headers and feature.dtype != "bytes":
                try:
                    require_decodable(headers[feature.name].kind)
                except ImageHeaderError as error:
                    return f"{feature.name}: {error}"
        return ""
