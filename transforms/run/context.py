"""RunContext: what every task of a run needs to know; small, and free of storage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Literal

import numpy as np
import numpy.typing as npt

from schemas.errors import UsageError
from schemas.features import Schema
from schemas.job import JobSpec, VerifyLevel, parse_fraction
from schemas.ranges import Bits, InputFile, InputRange
from transforms.encode.wire import U64
from transforms.keys import assign_splits
from transforms.run.scratch import Scratch
from transforms.sources.base import Source

Exchange = Literal["reference", "scratch"]

FORMAT_VERSION = 1  # raise it when the same job would give other bytes


@dataclass(frozen=True, slots=True)
class RunContext:
    """A prepared run.

    Attributes:
      job: what is converted and how.
      source: the prepared source.
      split_names: all splits, those of the job first.
      bits: of the order key, for the histogram.
      exchange: how rows reach the shards' writers (see transforms.exchange.gather).
      fingerprint: of job and inventory, hexadecimal.
      output: folder of the dataset.
      scratch: where the run works.
      expected: a schema that the dataset must keep to, or None.
      lease: the nonce of the lease under which the run publishes, or "".
      verify: whether all is read again before it is published: quick or full.
    """

    job: JobSpec
    source: Source
    split_names: tuple[str, ...]
    bits: int
    exchange: Exchange
    fingerprint: str
    output: str
    scratch: Scratch
    expected: Schema | None = None
    lease: str = ""
    verify: VerifyLevel = "quick"

    @property
    def num_splits(self) -> int:
        return len(self.split_names)

    def schema(self, observed: Bits = (), nulls: tuple[int, ...] = ()) -> Schema:
        """The features of the records: those declared, or else the source's own."""
        if self.job.declared is not None:
            return self.job.declared.to_schema()
        return self.source.schema(observed, nulls)

    def splits_of(self, groups: U64, spot: InputRange) -> npt.NDArray[np.uint8]:
        """The split index of each row of a range."""
        if spot.split and spot.split in self.split_names[len(self.job.splits) :]:
            index = self.split_names.index(spot.split)
            return np.full(len(groups), index, np.uint8)
        return assign_splits(groups, self.fractions, self.job.seed)

    @property
    def fractions(self) -> list[Fraction]:
        return [parse_fraction(split.fraction) for split in self.job.splits]


def choose_exchange(
    wanted: str, job: JobSpec, source: Source, files: Sequence[InputFile]
) -> Exchange:
    """The exchange to use when `wanted` may be "auto".

    Raises:
      UsageError: rows cannot travel by reference here.
    """
    # The plan must know a record's size unread: not what a declaration makes of it.
    known = source.plans_unread or (job.declared is None and job.payload == "example")
    if wanted == "auto":
        by_reference = known and source.prefers_reference(files)
        return "reference" if by_reference else "scratch"
    if wanted == "reference" and not known:
        raise UsageError(
            f"{job.source} rows cannot travel by reference with --schema or --payload, "
            "because their size is unknown before they are converted: leave out "
            "--exchange, or say --exchange scratch"
        )
    return "reference" if wanted == "reference" else "scratch"


def split_names(job: JobSpec, ranges: Sequence[InputRange]) -> tuple[str, ...]:
    """The job's splits and behind them "test", if the format has test files.

    Raises:
      UsageError: a split asked for would mix with the format's own test files.
    """
    names = [split.name for split in job.splits]
    if any(spot.split == "test" for spot in ranges):
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
    fixed = job.model_dump(mode="json", exclude={"max_rejects"})
    digest = blake2b(digest_size=16)
    digest.update(f"recordmill {FORMAT_VERSION}\n".encode())
    digest.update(json.dumps(fixed, sort_keys=True).encode())
    for file in (*files, *side_files):
        digest.update(f"\n{file.path}\0{file.size}\0{file.version}".encode())
    return digest.hexdigest()
