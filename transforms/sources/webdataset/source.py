"""Reads WebDataset shards: each is read once from its start.

Large ones are cut between samples (`cut_shards`), if they are local and not compressed.
What the samples at the start of some shards hold tells columns and types; a sample that does
not fit is a reject.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import (
    FileChecksum,
    InputFile,
    is_archive_name,
)
from recordmill.schemas.input_summary import InputSummary, SkippedFiles
from recordmill.schemas.ranges import InputRange, Reject, RowIssue, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.sources.base import (
    Append,
    Rows,
    RowSink,
    Source,
    number_ranges,
)
from recordmill.transforms.sources.images.summary import (
    DECODED,
    ENCODED,
    FACT,
    UNDECODABLE,
    decodable_in,
    observe,
    require_decodable,
    type_flags,
    warn_by_content,
)
from recordmill.transforms.sources.json_lines import build_rows, is_text
from recordmill.transforms.sources.packing import UNPACKED_TIMES
from recordmill.transforms.sources.plain_types import types_to_append
from recordmill.transforms.sources.webdataset.sample_columns import (
    KEY,
    ObservedSamples,
    Values,
    batch_of,
    images_of,
    member_of,
    misfit_in,
    sample_schema,
    values_of,
)
from recordmill.transforms.sources.webdataset.samples import (
    RANGE_BYTES,
    Sample,
    ShardMembers,
    cut_shards,
    open_shard,
)
from recordmill.transforms.storage.input_stream import InputStream

LEFT_OUT = "file of no sample"  # codes of issues
AGAIN = "key that came before"


def warnings_of(issues: Sequence[RowIssue]) -> tuple[str, ...]:
    """Returns what was odd, in words."""
    images = [each for each in issues if each.code == UNDECODABLE]
    warnings = warn_by_content(images)
    for each in issues:
        if each.code == LEFT_OUT:
            warnings.append(
                f"{count(each.count, 'file')} in shards passed over, such as "
                f"{each.example}: a name without a part behind a dot, or with __ "
                "around it, belongs to no sample"
            )
        if each.code == AGAIN:
            warnings.append(
                f"{count(each.count, 'sample')} with a key that came before in the "
                f"shard, such as {each.example}: each is a record of its own. If "
                "files of one sample lie apart, write the shard again with tar "
                "--sort=name"
            )
    return tuple(warnings)


def _observe_images(
    images: Sequence[str],
    headers: Sequence[dict[str, ImageHeader]],
    names: Sequence[str],
) -> tuple[TypeFlags, tuple[RowIssue, ...]]:
    """Returns whether readers decode the images of each column, and which they do not."""
    flags, issues = [], []
    for image in images:
        there = [n for n, each in enumerate(headers) if image in each]
        kinds = [(headers[n][image].kind,) for n in there]
        undecodable = observe(kinds, [names[n] for n in there])
        flags.append((*type_flags(kinds, undecodable), 0)[0])
        issues.append(undecodable)
    return tuple(flags), RowIssue.merged(issues)


SAMPLE_BYTES = 64 << 20  # of all shards, whose samples tell columns and types
BATCH_BYTES = 4 << 20  # of samples that are made rows at once
_BATCH_SAMPLES = 2000
_LEAST_BYTES = 4 << 20  # of a shard that is looked at
_ENTRY_BYTES = 24  # of a feature in a record, beside its name and its value


@dataclass(frozen=True)
class WebDatasetSource(Source):
    """Samples in tar archives."""

    as_declared: bool = False  # whether a schema says what becomes of the columns,
    wanted: tuple[str, ...] = ()  # and which it uses
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES  # of a large shard that make a range, at least
    storage: StorageOptions = NO_OPTIONS
    # Of the whole input, once prepared:
    takes_any_name: bool = False  # the only file is a shard whatever its name
    types: tuple[tuple[str, pa.DataType], ...] = ()
    members: frozenset[str] = frozenset()  # what samples may hold behind the key
    sampled: int = 0  # samples that told the columns,
    is_sampled: bool = False  # and whether there are more
    passed_over: tuple[SkippedFiles, ...] = ()

    reads_archives = True
    tells_checksums = True

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        source = replace(self, takes_any_name=len(files) == 1)
        shards = source._shards(files)
        if not shards:
            raise InputError(
                f"no tar archive among {count(len(files), 'input file')}; expected shards "
                "that are named .tar (or .tar.gz, .tgz and the like) and are not empty"
            )
        named = {file.path for file in shards}
        others = [
            ("not named as a tar archive" if file.size else "empty", file.path)
            for file in files
            if file.path not in named
        ]
        source = source._look_at(shards, SkippedFiles.counted(others))
        if append is None or append.schema is None:
            return source
        fixed = types_to_append(append.schema, dict(source.types))
        members = source.members | {member_of(name) for name in fixed} - {KEY}
        types = tuple(fixed.items())
        return replace(source, types=types, members=members, fixed_schema=append.schema)

    def _look_at(
        self, shards: Sequence[InputFile], passed_over: tuple[SkippedFiles, ...]
    ) -> Self:
        """Returns the source with the columns of the first samples of some shards."""
        observed, sampled, problem, is_sampled = ObservedSamples(), 0, "", False
        share = max(_LEAST_BYTES, SAMPLE_BYTES // len(shards))
        chosen = shards[:: -(-len(shards) * _LEAST_BYTES // SAMPLE_BYTES)]
        members: set[str] = set()
        for file in chosen:
            for sample in ShardMembers(open_shard(file, self.storage)).samples():
                found = self._values_of(sample, None)
                if isinstance(found, str):
                    problem = problem or f"{file.uri}: sample {sample.key!r}: {found}"
                else:
                    sampled += 1
                    members |= sample.members.keys()
                    observed.add(found)
                if sample.start > share:
                    is_sampled = True
                    break
        if not sampled:
            told = problem or f"{shards[0].uri}: holds no files with a key"
            raise InputError(
                f"no sample can be read in {count(len(chosen), 'shard')}: {told}. A schema "
                "file leaves out columns that it does not name (`schema`)"
            )
        return replace(
            self,
            types=tuple(observed.types(self._used, shards[0].uri).items()),
            members=frozenset(members - {KEY}),
            sampled=sampled,
            is_sampled=is_sampled or len(chosen) < len(shards),
            passed_over=passed_over,
        )

    def _shards(self, files: Sequence[InputFile]) -> list[InputFile]:
        return [
            file
            for file in files
            if file.size
            and (
                self.takes_any_name
                or (is_archive_name(file.path) and file.path.lower()[-4:] != ".zip")
            )
        ]

    def understood(self) -> InputSummary:
        columns = ", ".join(f"{name} {found}" for name, found in self.types)
        all_or_first = "the first" if self.is_sampled else "all"
        basis = f"{all_or_first} {count(self.sampled, 'sample')}"
        facts = (("columns", columns), ("types", f"by {basis}"))
        return InputSummary(facts, (), self.passed_over)

    def understood_at_end(
        self,
        schema: Schema,
        issues: tuple[RowIssue, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> InputSummary:
        facts: tuple[tuple[str, str], ...] = ()
        if images_of(self.columns().names):
            facts = ((FACT, DECODED if decodable_in(schema) else ENCODED),)
        return InputSummary(facts, warnings_of(issues))

    def columns(self) -> pa.Schema:
        return pa.schema(list(self.types))

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return number_ranges(cut_shards(self._shards(files), self.range_bytes))

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        return self.fixed_schema or sample_schema(self.columns(), observed, nulls)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # Each file takes a header of 512 bytes, but arrays and numbers may grow.
        growth = sum(
            file.size * (1 if file.path.endswith(".tar") else UNPACKED_TIMES)
            for file in files
        )
        return 2 * growth + _ENTRY_BYTES * len(self.types)

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        path, start, stop = input_range.path, input_range.start, input_range.stop
        shard = open_shard(input_range, self.storage, (start, stop))
        found = ShardMembers(shard)
        keys = set[int]()  # hashes; some 100 bytes for each sample of the shard
        sink.add(
            observed=(0,) * len(images_of([name for name, _ in self.types])),
            nulls=(0,) * len(self.types),
        )
        for samples in _batches(found.samples()):
            yield self._rows_of(samples, path, shard, keys, start, sink)
        sink.checksums.append(FileChecksum(path, start, stop, shard.drain()))
        if found.left_out:
            name = shown(found.left_out[0]).strip("'")
            sink.add(
                issues=[RowIssue(LEFT_OUT, "", len(found.left_out), f"{path}!/{name}")]
            )

    @property
    def _used(self) -> tuple[str, ...] | None:
        """Returns the columns that a declared schema uses; None without one."""
        return self.wanted if self.as_declared else None

    def _rows_of(
        self,
        samples: Sequence[Sample],
        path: str,
        shard: InputStream,
        keys: set[int],
        first: int,
        sink: RowSink,
    ) -> Rows:
        """Makes rows of samples; those that do not fit are rejects."""
        types = dict(self.types)
        whose = "in the dataset" if self.fixed_schema else "in most samples"

        def parse(sample: Sample) -> tuple[Values, dict[str, ImageHeader]] | str:
            headers: dict[str, ImageHeader] = {}
            found = self._values_of(sample, headers)
            if isinstance(found, str):
                return found
            misfit = misfit_in(found, types, whose, only_arrays=True)
            return misfit or (found, headers)

        batch, values, reasons = build_rows(
            samples,
            parse,
            lambda rows: batch_of([found for found, _ in rows], types),
            lambda row: misfit_in(row[0], types, whose, only_arrays=False),
            self.fixed_schema,
        )
        kept = [*values]
        starts = np.array([samples[index].start for index in kept], np.int64)
        positions = shard.positions.of(starts) if shard.is_packed else starts - first
        names = [f"{path}: {samples[index].key}" for index in kept]
        headers = [own for _, own in values.values()]
        observed, issues = _observe_images(images_of([*types]), headers, names)
        again = []
        for index, name in zip(kept, names, strict=True):
            hashed = hash(samples[index].key)
            again += [RowIssue(AGAIN, "", 1, name)] if hashed in keys else []
            keys.add(hashed)
        sink.rejects += [
            Reject(path, samples[index].start, reasons[index], samples[index].raw)
            for index in sorted(reasons)
        ]
        nulls = [column.null_count for column in batch.columns]
        sink.add(observed=observed, nulls=nulls, issues=[*issues, *again])
        return Rows(
            batch=batch,
            origins=origins_in(path, 0, starts),
            positions=positions,
            raw=lambda row: (samples[kept[row]].start, samples[kept[row]].raw),
        )

    def _values_of(
        self, sample: Sample, headers: dict[str, ImageHeader] | None
    ) -> Values | str:
        """Returns the columns of a sample, or why there are none."""
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
        used = None if self._used is None else set(map(member_of, self._used))
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
            if self._used is None and not values.keys() <= known.keys():
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
        """Returns why images cannot be appended to those of the dataset, or ""."""
        for feature in self.fixed_schema.features if self.fixed_schema else ():
            if feature.name in headers and feature.dtype != "bytes":
                try:
                    require_decodable(headers[feature.name].kind)
                except ImageHeaderError as error:
                    return f"{feature.name}: {error}"
        return ""


def _batches(samples: Iterator[Sample]) -> Iterator[list[Sample]]:
    batch: list[Sample] = []
    held = 0
    for sample in samples:
        # A large one alone: Arrow's columns of bytes end at 2 GiB.
        is_full = held + len(sample.raw) > BATCH_BYTES
        if batch and (is_full or len(batch) >= _BATCH_SAMPLES):
            yield batch
            batch, held = [], 0
        batch.append(sample)
        held += len(sample.raw)
    if batch:
        yield batch
