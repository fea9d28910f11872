"""Holds what every task of a run needs to know: small values, no open connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import InputWarning
from recordmill.schemas.job import DEFAULT_SPLITS, NO_DESCRIPTION, Description, JobSpec
from recordmill.schemas.options import Duplicates, Grace, VerifyLevel
from recordmill.schemas.ranges import (
    InputRange,
    RangeResult,
    RowIssue,
    ShardPlan,
    TypeFlags,
    unpack,
)
from recordmill.transforms.arrow import U64
from recordmill.transforms.dataset.files import require_schema
from recordmill.transforms.exchange.exact_splits import SplitLimits
from recordmill.transforms.exchange.keys import assign_splits
from recordmill.transforms.sources.base import Findings, RowSource
from recordmill.transforms.sources.file_splits import TRAIN_NAMES
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from recordmill.transforms.sources.sampling import BalancedClasses
    from recordmill.transforms.tasks.processes import TaskProcesses

Exchange = Literal["reference", "scratch", "engine"]


@dataclass(frozen=True, slots=True)
class Publishing:
    """What the last step of a run has to know, to publish the dataset."""

    # nonce of the launcher's lease, under which the run publishes; "" for a detached
    # run, whose last step acquires a lease of its own
    lease: str = ""
    overwrite: bool = False  # whether the run may replace another dataset
    # digest of the manifest that was there when the run was allowed to begin, "" for
    # none; None if that is decided when it publishes
    replaces: str | None = None
    grace: Grace = "next-run"  # how long the files of a replaced dataset stay
    base: str = ""  # fingerprint of the dataset to which the part is appended, or ""
    # what is checked before publishing: "quick" (sizes) or "full" (every byte)
    verify: VerifyLevel = "quick"
    # what is done about equal content in several splits
    duplicates: Duplicates = "ignore"
    strict: bool = False  # whether a run with warnings publishes nothing
    # files, folders or globs as the job has them; () for a pipeline's rows
    inputs: tuple[str, ...] = ()
    input_root: str = ""  # the folder below which all of them lie
    input_roots: tuple[str, ...] = ()  # those that lineage tells of
    reading: str = ""  # what `registry.describe_inputs` says of the inventory
    description: Description = NO_DESCRIPTION  # of the whole dataset


@dataclass(frozen=True, slots=True)
class RunContext:
    """A prepared run, as its tasks need it."""

    job: JobSpec  # what is converted and how
    source: RowSource  # the prepared source
    # all splits, those of the job first (see `split_names`)
    split_names: tuple[str, ...]
    bucket_bits: int  # leading bits of the order key that number a histogram bucket
    # how rows reach the shards' writers (see
    # recordmill.transforms.exchange.sorted_runs)
    exchange: Exchange
    run_key: str  # hash of job and inventory, hexadecimal
    workspace: Workspace  # folders of the files that are not published yet
    # a schema that the dataset must keep to, or None
    expected_schema: Schema | None = None
    # number of the part that the run makes (see recordmill.schemas.names); 0 for a
    # whole dataset
    part: int = 0
    limits: SplitLimits | None = None  # where the job's splits end, if they are exact
    copies: BalancedClasses | None = None  # how often rows of a split are copied
    publishing: Publishing = Publishing()  # for the last step
    # that execute its tasks, if they are not the runner's workers themselves
    processes: TaskProcesses | None = None

    def execute(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Executes a task of this run, here or in one of its processes."""
        if self.processes is None:
            return task(self, *arguments)
        return self.processes.call(task, *arguments)

    def execute_packed(self, task: Callable[..., Any], packed: bytes) -> bytes:
        """Executes a task with each of some packed arguments; returns its results packed.

        Whoever executes it looks into them: the launcher passes on what others made.
        """
        result: bytes = self.execute(_packed, task, packed)
        return result

    def publishing_with(self, **changes: Any) -> RunContext:
        """Returns the run with other values of `publishing`."""
        return replace(self, publishing=replace(self.publishing, **changes))

    @property
    def readings(self) -> int:
        """Returns how many times each range is read."""
        return 2 if self.exchange == "engine" else 1

    @property
    def sends_references(self) -> bool:
        """Tells whether references pass through the runner's shuffle in place of rows.

        Only of rows that are a file each: whoever writes the shard asks for a file as
        well as whoever sends it would, and then nobody else moves its bytes.
        """
        is_listed = self.source.supports_references and self.source.lists_rows
        return self.exchange == "engine" and is_listed

    @property
    def num_splits(self) -> int:
        return len(self.split_names)

    def schema(
        self, observed_types: TypeFlags = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        """Returns the declared features, or else those that the source infers."""
        if self.job.declared is not None:
            return self.job.declared.to_schema()
        return self.source.schema(observed_types, nulls)

    def findings(
        self,
        observed: TypeFlags,
        nulls: tuple[int, ...],
        issues: tuple[RowIssue, ...],
        rows: int,
        *,
        is_all: bool = True,
    ) -> Findings:
        """Returns what rows had, once they were read."""
        schema = self.schema(observed, nulls)
        return Findings(schema, issues, observed, nulls, rows, is_all)

    def require(self, found: Findings) -> None:
        """Refuses rows with issues that a dataset may not have, or of another schema."""
        if problem := self.source.input.issue_problem(found):
            raise SchemaError(problem)
        notes = self.source.input.issue_notes(found)
        require_schema(self.expected_schema, found.schema, self.job, notes)

    def warn_empty(self, records: Mapping[str, int]) -> list[InputWarning]:
        """Returns a warning of splits that get no record; a part may have such."""
        empty = [name for name in self.split_names if not records.get(name)]
        if self.part or not empty:
            return []
        return [InputWarning("empty-split", f"no row falls into {', '.join(empty)}")]

    def splits_of(
        self, groups: U64, input_range: InputRange, classes: U64 | None = None
    ) -> npt.NDArray[np.uint8]:
        """Returns the index of each row's split, shape (rows,).

        Rows with equal hashes in `groups` share a split; a range of a split of its own
        decides alone. `classes` are hashes, too, where splits are exact.
        """
        if input_range.split in self.own_splits:
            index = self.split_names.index(input_range.split)
            return np.full(len(groups), index, np.uint8)
        if self.limits is not None and classes is not None:
            return self.limits.assign(groups, classes, self.fractions, self.job.seed)
        return assign_splits(groups, self.fractions, self.job.seed)

    @property
    def own_splits(self) -> tuple[str, ...]:
        """Returns the splits that are not the job's, but the input's own."""
        names = {split.name for split in self.job.splits}
        return tuple(name for name in self.split_names if name not in names)

    @property
    def fractions(self) -> list[Fraction]:
        return [Fraction(split.fraction) for split in self.job.splits]


def _packed(context: RunContext, task: Callable[..., Any], packed: bytes) -> bytes:
    return RangeResult.pack([task(context, *each) for each in unpack(packed)])


@dataclass(frozen=True, slots=True)
class ShardsToWrite:
    """The shards of a run, for the steps that write them."""

    context: RunContext  # the run
    plan: ShardPlan  # of the shards
    finished: frozenset[int]  # numbers of the shards that an earlier try wrote


def choose_exchange(
    wanted: str,
    job: JobSpec,
    source: RowSource,
    files: Sequence[InputFile],
    *,
    embedded: bool,
) -> Exchange:
    """Returns the exchange of a run.

    `wanted` may be auto. The embedded runner holds in memory all that passes through
    its shuffle.

    Raises:
      UsageError: rows cannot travel by reference here.
    """
    has_sizes = can_plan_from_sizes(job, source)
    if wanted == "auto":
        if not embedded:
            return "engine"
        return (
            "reference" if has_sizes and source.prefers_reference(files) else "scratch"
        )
    if wanted == "reference" and not has_sizes:
        raise UsageError(
            "`exchange=reference` needs record sizes before reading, which "
            f"{job.source} does not know with these options. Use `exchange=auto` or "
            "`exchange=scratch`"
        )
    return cast("Exchange", wanted)


def can_plan_from_sizes(job: JobSpec, source: RowSource) -> bool:
    """Returns whether the size of each record is known before the row is read."""
    # The size of a cast feature, or of another payload, is known only once it is made.
    own_records = job.declared is None and job.payload == "example"
    return source.sizes_known_upfront or (source.supports_references and own_records)


def split_names(
    job: JobSpec, ranges: Sequence[InputRange], own_splits: Sequence[str] = ()
) -> tuple[str, ...]:
    """Returns the splits of the job, then those that the input has by itself.

    The job's splits divide the files that are in no split, and those of the split
    train. `own_splits` are those of the source, if all files are in one.

    Raises:
      UsageError: a split of the job is one of the input, too, or has nothing to divide.
    """
    if own_splits and job.splits == DEFAULT_SPLITS:
        # The job's own first, as its share is told by its position.
        return tuple(
            sorted(own_splits, key=lambda name: name != DEFAULT_SPLITS[0].name)
        )
    names = [split.name for split in job.splits]
    found = list(own_splits) or sorted({input_range.split for input_range in ranges})
    own = [name for name in found if name and name.casefold() not in TRAIN_NAMES]
    if both := [name for name in own if name in names]:
        raise UsageError(
            f"the input has a split {both[0]!r} by itself, and the job has one of that "
            "name, too: give it another name in `splits`, or "
            f"{job.source_options.undo_splits()}"
        )
    if own_splits and len(own) == len(own_splits):
        raise UsageError(
            "`splits` has nothing to divide, because the input is divided into "
            f"{', '.join(own)} by itself: leave out `splits`, or "
            f"{job.source_options.undo_splits()}"
        )
    return (*names, *own)
