"""RunContext: what every task of a run needs to know; small, and free of storage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, VerifyLevel, parse_fraction
from recordmill.schemas.ranges import InputFile, InputRange, TypeFlags
from recordmill.transforms.arrow import U64
from recordmill.transforms.exchange.keys import assign_splits
from recordmill.transforms.sources.base import Source
from recordmill.transforms.tasks.workspace import Workspace

Exchange = Literal["reference", "scratch", "engine"]

FORMAT_VERSION = 1  # raise it when the same job would give other bytes
_FIRST_OPTIONS = {"feature_names": "default", "variant": "auto"}  # of images and cifar


@dataclass(frozen=True, slots=True)
class RunContext:
    """A prepared run.

    Attributes:
      job: what is converted and how.
      source: the prepared source.
      split_names: all splits, those of the job first.
      bucket_bits: of the order key, for the histogram.
      exchange: how rows reach the shards' writers (see recordmill.transforms.exchange.gather).
      fingerprint: of job and inventory, hexadecimal.
      output: folder of the dataset.
      workspace: folders of what the run has not published yet.
      expected: a schema that the dataset must keep to, or None.
      lease: the nonce of the launcher's lease under which the run publishes; "" if the
        launcher is gone by then, and the last step takes one of its own.
      overwrite: whether the run may replace another dataset.
      part: which part of the dataset it makes; 0: all of it (see recordmill.schemas.dataset.parts).
      base: fingerprint of the dataset that a later part is appended to, or "".
      verify: whether all is read again before it is published: quick or full.
      inputs: files, folders or globs as the job has them; () for a pipeline's rows.
      input_root: the folder below which all of them lie.
    """

    job: JobSpec
    source: Source
    split_names: tuple[str, ...]
    bucket_bits: int
    exchange: Exchange
    fingerprint: str
    output: str
    workspace: Workspace
    expected: Schema | None = None
    lease: str = ""
    overwrite: bool = False
    part: int = 0
    base: str = ""
    verify: VerifyLevel = "quick"
    inputs: tuple[str, ...] = ()
    input_root: str = ""

    @property
    def readings(self) -> int:
        """How many times every range is read, or looked at."""
        return 2 if self.exchange == "engine" else 1

    @property
    def num_splits(self) -> int:
        return len(self.split_names)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        """The features of the records: those declared, or else the source's own."""
        if self.job.declared is not None:
            return self.job.declared.to_schema()
        return self.source.schema(observed, nulls)

    def splits_of(self, groups: U64, input_range: InputRange) -> npt.NDArray[np.uint8]:
        """The split index of each row of a range."""
        if (
            input_range.split
            and input_range.split in self.split_names[len(self.job.splits) :]
        ):
            index = self.split_names.index(input_range.split)
            return np.full(len(groups), index, np.uint8)
        return assign_splits(groups, self.fractions, self.job.seed)

    @property
    def fractions(self) -> list[Fraction]:
        return [parse_fraction(split.fraction) for split in self.job.splits]


def choose_exchange(
    wanted: str,
    job: JobSpec,
    source: Source,
    files: Sequence[InputFile],
    *,
    embedded: bool,
) -> Exchange:
    """The exchange to use when `wanted` may be "auto".

    Args:
      wanted: the user's word.
      job: what is converted.
      source: prepared.
      files: the inventory.
      embedded: whether the runner is this process, which holds in memory what goes
        through its shuffle.

    Raises:
      UsageError: rows cannot travel by reference here.
    """
    if wanted == "auto":
        if not embedded:
            return "engine"
        by_reference = can_plan_from_sizes(job, source) and source.prefers_reference(
            files
        )
        return "reference" if by_reference else "scratch"
    if wanted == "reference" and not can_plan_from_sizes(job, source):
        if not source.supports_references:
            raise UsageError(
                f"{job.source} rows have no size before they are read, so they cannot "
                "travel by reference: leave out --exchange, or say --exchange scratch"
            )
        raise UsageError(
            f"{job.source} rows cannot travel by reference with --schema or --payload, "
            "because their size is unknown before they are converted: leave out "
            "--exchange, or say --exchange scratch"
        )
    if wanted not in ("reference", "scratch", "engine"):
        raise ValueError(f"no exchange {wanted!r}")
    return cast("Exchange", wanted)


def can_plan_from_sizes(job: JobSpec, source: Source) -> bool:
    """Whether the plan knows a record's size without reading the row."""
    # What a declaration or another payload makes of a row must be made to be known.
    own_records = job.declared is None and job.payload == "example"
    return source.sizes_known_upfront or (source.supports_references and own_records)


def split_names(job: JobSpec, ranges: Sequence[InputRange]) -> tuple[str, ...]:
    """The job's splits and behind them "test", if the format has test files.

    Raises:
      UsageError: a split asked for would mix with the format's own test files.
    """
    names = [split.name for split in job.splits]
    if any(input_range.split == "test" for input_range in ranges):
        if "test" in names:
            raise UsageError(
                "the input has test files of its own, which make the split 'test': "
                "give --split another name, or leave those files out"
            )
        names.append("test")
    return tuple(names)


def fingerprint_of(
    job: JobSpec, files: Sequence[InputFile], side_files: Sequence[InputFile] = ()
) -> str:
    """Names what fixes the dataset's bytes: format version, job and inventory.

    Files that cells may name count as well (`side_files`).

    How many rejects are allowed fixes no byte: a run that failed of them can go on
    with a higher limit.
    """
    head = f"recordmill {FORMAT_VERSION}\n"
    head += json.dumps(fixed_fields(job), sort_keys=True)
    return _digest(head, (*files, *side_files))


def appended_fingerprint(
    base: str, files: Sequence[InputFile], side_files: Sequence[InputFile] = ()
) -> str:
    """Names a dataset to which files were appended.

    Args:
      base: fingerprint of the dataset before, which stands for job and older files.
      files: those that are new, in their order.
      side_files: new files that cells may name.
    """
    return _digest(f"recordmill append {base}", (*files, *side_files))


def fixed_fields(job: JobSpec) -> dict[str, Any]:
    """Returns all of a job that fixes bytes, as JSON has it.

    Datasets keep it and fingerprints are made of it, so its spelling never changes: the
    options that there were before each format had its own stand beside the other
    fields in every job. All others stand in `source_options`, if not at their default.
    """
    options = job.source_options.model_dump(mode="json", exclude_defaults=True)
    fields: dict[str, Any] = {}
    for name, value in job.model_dump(mode="json", exclude={"max_rejects"}).items():
        if name != "source_options":
            fields[name] = value
            continue
        for option, default in _FIRST_OPTIONS.items():
            fields[option] = options.pop(option, default)
        if options:
            fields[name] = options
    return fields


def _digest(head: str, files: Iterable[InputFile]) -> str:
    digest = blake2b(digest_size=16)
    digest.update(head.encode())
    for file in files:
        digest.update(f"\n{file.path}\0{file.size}\0{file.version}".encode())
    return digest.hexdigest()
