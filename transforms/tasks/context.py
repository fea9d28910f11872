"""Defines the context that a run's tasks share: small objects, no open connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

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
    unpack_value,
)
from recordmill.transforms.arrow import U64
from recordmill.transforms.dataset.files import require_schema
from recordmill.transforms.exchange.exact_splits import SplitLimits
from recordmill.transforms.exchange.keys import assign_splits
from recordmill.transforms.sources.base import InputFindings, RowSource
from recordmill.transforms.sources.file_splits import TRAIN_NAMES
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from recordmill.transforms.sources.sampling import BalancedClasses

Exchange = Literal["reference", "scratch", "engine"]


class TaskExecutor(Protocol):
    """Processes that execute the tasks of one run (processes.py has them)."""

    def call(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Executes a task in one of the processes, and returns its result."""

    def require_alive(self) -> None:
        """Checks that no process has died."""


@dataclass(frozen=True, slots=True)
class PublicationSettings:
    """The settings with which the last step of a run publishes the dataset."""

    # nonce of the launcher's lease, under which the run publishes; "" for a detached
    # run, whose last step acquires its own lease
    lease_nonce: str = ""
    overwrite: bool = False  # whether the run may replace another dataset
    # digest of the manifest that existed when the run was allowed to begin, "" for no
    # manifest; None if that is decided at publication
    replaced_manifest_digest: str | None = None
    grace: Grace = "next-run"  # how long the files of a replaced dataset stay
    # fingerprint of the dataset to which the part is appended, or ""
    base_fingerprint: str = ""
    # level of verification before publishing: "quick" (sizes) or "full" (every byte)
    verify: VerifyLevel = "quick"
    # reaction to equal content in several splits
    duplicates: Duplicates = "ignore"
    strict: bool = False  # whether a run with warnings publishes nothing
    # files, folders or globs as in the job; () for a pipeline's rows
    inputs: tuple[str, ...] = ()
    input_root: str = ""  # common parent folder of all inputs
    input_roots: tuple[str, ...] = ()  # roots that are reported to lineage
    # description of the inventory by `registry.describe_inputs`
    inventory_description: str = ""
    description: Description = NO_DESCRIPTION  # of the whole dataset


@dataclass(frozen=True, slots=True)
class RunContext:
    """A prepared run, in the form that its tasks need."""

    job: JobSpec  # the conversion
    source: RowSource  # the prepared source
    # all splits, the splits of the job first (see `split_names`)
    split_names: tuple[str, ...]
    bucket_bits: int  # leading bits of the order key that number a histogram bucket
    # the way of rows to the writers of their shards (see
    # recordmill.transforms.exchange.sorted_runs)
    exchange: Exchange
    run_key: str  # hash of job and inventory, hexadecimal
    workspace: Workspace  # folders of the files that are not published yet
    # a schema that the dataset must match, or None
    expected_schema: Schema | None = None
    # number of the part that the run writes (see recordmill.schemas.names); 0 for a
    # whole dataset
    part: int = 0
    # the ends of the job's splits, if they are exact
    split_limits: SplitLimits | None = None
    # the number of copies of rows of a split
    balanced_classes: BalancedClasses | None = None
    publishing: PublicationSettings = PublicationSettings()  # for the last step
    # the processes that execute the tasks; None if the runner's workers execute them
    processes: TaskExecutor | None = None

    def execute(self, task: Callable[..., Any], *arguments: Any) -> Any:
        """Executes a task of this run, here or in one of its processes."""
        if self.processes is None:
            return task(self, *arguments)
        return self.processes.call(task, *arguments)

    def execute_packed(self, task: Callable[..., Any], packed: bytes) -> bytes:
        """Executes a task once for each of several packed arguments.

        Returns the packed results. Only the executing process unpacks the arguments; the
        launcher passes on bytes.
        """
        result: bytes = self.execute(_execute_packed, task, packed)
        return result

    def publishing_with(self, **changes: Any) -> RunContext:
        """Returns the run with changed fields of `publishing`."""
        return replace(self, publishing=replace(self.publishing, **changes))

    @property
    def num_readings(self) -> int:
        """Returns the number of times that each range is read."""
        return 2 if self.exchange == "engine" else 1

    @property
    def sends_references(self) -> bool:
        """Returns whether references pass through the runner's shuffle instead of rows.

        Only for rows that are a file each: the writer of the shard can read the file as
        well as the sender, and so the bytes are moved only once.
        """
        is_listed = self.source.supports_references and self.source.lists_rows
        return self.exchange == "engine" and is_listed

    @property
    def num_splits(self) -> int:
        return len(self.split_names)

    def schema(
        self, observed_types: TypeFlags = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        """Returns the schema of the declared features, or the schema that is inferred."""
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
    ) -> InputFindings:
        """Returns the findings about rows that were read."""
        schema = self.schema(observed, nulls)
        return InputFindings(schema, issues, observed, nulls, rows, is_all)

    def require_acceptable_rows(self, input_findings: InputFindings) -> None:
        """Raises SchemaError for unacceptable row issues, or for another schema."""
        if problem := self.source.input_source.issue_problem(input_findings):
            raise SchemaError(problem)
        notes = self.source.input_source.type_notes(input_findings)
        require_schema(self.expected_schema, input_findings.schema, self.job, notes)

    def warn_empty(self, records: Mapping[str, int]) -> list[InputWarning]:
        """Returns a warning about splits without records; a part may have such splits."""
        empty = [name for name in self.split_names if not records.get(name)]
        if self.part or not empty:
            return []
        return [InputWarning("empty-split", f"no row is in {', '.join(empty)}")]

    def assign_splits(
        self, groups: U64, input_range: InputRange, classes: U64 | None = None
    ) -> npt.NDArray[np.uint8]:
        """Returns the index of each row's split, shape (rows,).

        Rows with equal hashes in `groups` share a split. All rows of a range in an input
        split have this split. `classes` are hashes, given if splits are exact.
        """
        if input_range.split in self.input_splits:
            index = self.split_names.index(input_range.split)
            return np.full(len(groups), index, np.uint8)
        if self.split_limits is not None and classes is not None:
            return self.split_limits.assign(
                groups, classes, self.fractions, self.job.seed
            )
        return assign_splits(groups, self.fractions, self.job.seed)

    @property
    def input_splits(self) -> tuple[str, ...]:
        """Returns the input splits: the splits that the input has, but not the job."""
        names = {split.name for split in self.job.splits}
        return tuple(name for name in self.split_names if name not in names)

    @property
    def fractions(self) -> list[Fraction]:
        return [Fraction(split.fraction) for split in self.job.splits]


def _execute_packed(
    context: RunContext, task: Callable[..., Any], packed: bytes
) -> bytes:
    return RangeResult.pack(
        [task(context, *task_arguments) for task_arguments in unpack_value(packed)]
    )


@dataclass(frozen=True, slots=True)
class ShardsToWrite:
    """The shards of a run, for the steps that write them."""

    context: RunContext  # the run
    plan: ShardPlan  # the plan of the shards
    finished_shards: frozenset[int]  # numbers of the shards that an earlier try wrote


def choose_exchange(
    requested_exchange: str,
    job: JobSpec,
    source: RowSource,
    files: Sequence[InputFile],
    *,
    embedded: bool,
) -> Exchange:
    """Returns the exchange of a run.

    `requested_exchange` may be "auto". The embedded runner keeps all rows that pass
    through its shuffle in memory.

    Raises:
      UsageError: the reference exchange is not possible with these options.
    """
    has_sizes = can_plan_from_sizes(job, source)
    if requested_exchange == "auto":
        if not embedded:
            return "engine"
        return (
            "reference" if has_sizes and source.prefers_reference(files) else "scratch"
        )
    if requested_exchange == "reference" and not has_sizes:
        raise UsageError(
            "`exchange=reference` needs record sizes before reading, which "
            f"{job.source} does not know with these options. Use `exchange=auto` or "
            "`exchange=scratch`"
        )
    return cast("Exchange", requested_exchange)


def can_plan_from_sizes(job: JobSpec, source: RowSource) -> bool:
    """Returns whether the size of each record is known before the row is read."""
    # The size of a cast feature, or of another payload, is known only after encoding.
    own_records = job.declared is None and job.payload == "example"
    return source.sizes_known_upfront or (source.supports_references and own_records)


def split_names(
    job: JobSpec, ranges: Sequence[InputRange], source_splits: Sequence[str] = ()
) -> tuple[str, ...]:
    """Returns the names of the job's splits, then of the input splits.

    The job's splits divide the files without a split, and the files of the split train.
    `source_splits` are the splits of the source, if every file has a split.

    Raises:
      UsageError: the job and the input have a split of the same name, or the job's splits
        have nothing to divide.
    """
    if source_splits and job.splits == DEFAULT_SPLITS:
        # The job's split first, because fractions are assigned by position.
        return tuple(
            sorted(source_splits, key=lambda name: name != DEFAULT_SPLITS[0].name)
        )
    names = [split.name for split in job.splits]
    candidate_names = list(source_splits) or sorted(
        {input_range.split for input_range in ranges}
    )
    input_splits = [
        name for name in candidate_names if name and name.casefold() not in TRAIN_NAMES
    ]
    if both := [name for name in input_splits if name in names]:
        raise UsageError(
            f"the input defines a split {both[0]!r}, and the job has a split of the "
            f"same name: rename it in `splits`, or {job.source_options.undo_splits_hint()}"
        )
    if source_splits and len(input_splits) == len(source_splits):
        raise UsageError(
            "`splits` has no rows to divide, because the input defines the splits "
            f"{', '.join(input_splits)}: leave out `splits`, or "
            f"{job.source_options.undo_splits_hint()}"
        )
    return (*names, *input_splits)
