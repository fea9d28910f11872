"""Describes the outcome of a run: its dataset, its rejects, other runs in the output."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.resolve import ResolvedRun
from recordmill.schemas.dataset_text import parse_run_metadata
from recordmill.schemas.errors import OutputError
from recordmill.schemas.input_summary import EMPTY_REPORT, InputReport
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import REJECTS_NAME, run_metadata_name
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.launches import Launch
from recordmill.transforms.tasks.rejects import (
    MAX_COUNTED,
    UNKNOWN_INPUT,
    RejectKind,
    RejectLocator,
    count_kinds,
    published_rejects,
)

if TYPE_CHECKING:
    from recordmill.transforms.statistics.class_counts import LabelCounts

_COUNTED_BYTES = 16 << 20  # largest dataset whose classes are counted after a run


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run that published a dataset or found it published."""

    # "done"; "unchanged" if the same dataset already existed; "described" if it existed
    # and got another description
    status: str
    output: str  # folder of the dataset
    manifest: Manifest  # manifest of the dataset
    seconds: float  # wall time of the whole run
    base: Manifest | None = None  # of the dataset that the run appended to, or None
    # report on the interpreted input; on the listing only if no rows were read
    input_report: InputReport = EMPTY_REPORT
    # reasons of the rejects, most frequent first
    reject_kinds: tuple[RejectKind, ...] = ()
    locator: RejectLocator = UNKNOWN_INPUT  # finds the lines of rejects
    input_roots: tuple[str, ...] = ()  # folders of the inputs
    # whether the files of a replaced dataset stay until the next run
    keeps_replaced: bool = False
    # detached jobs and pipelines that may be running for the same output
    live_launches: tuple[Launch, ...] = ()
    # number of rows of each class, by label; None if not counted
    classes: Mapping[str, LabelCounts] | None = None
    is_first: bool = True  # whether the output held no dataset before
    description_changes: str = ""  # a text for people
    # seconds of each stage of the run
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows_rejected(self) -> int:
        """Returns the number of rows that this run rejected."""
        manifest_before_run = self.base if self.status == "done" else self.manifest
        return self.manifest.rows_rejected - (
            manifest_before_run.rows_rejected if manifest_before_run else 0
        )

    @property
    def rejects(self) -> str:
        """Returns the folder with the rejected rows, or "" if there are none."""
        rejected = self.manifest.rows_rejected
        return posixpath.join(self.output, REJECTS_NAME) if rejected else ""


def make_outcome(
    run: ResolvedRun,
    status: str,
    manifest: Manifest,
    started: float,
    at_work: Iterable[Launch] = (),
    description_changes: str = "",
) -> Outcome:
    """Returns the outcome of a run, with the reasons of the stored rejects."""
    store = run.store
    outcome = Outcome(
        status=status,
        output=store.uri,
        manifest=manifest,
        seconds=time.time() - started,
        base=run.base,
        input_report=run.inputs.input_report,
        reject_kinds=_reject_kinds(store, manifest),
        locator=run.locator,
        input_roots=run.input_roots,
        live_launches=tuple(at_work),
        description_changes=description_changes,
    )
    if status != "done":
        return outcome
    from recordmill.transforms.dataset.files import class_names
    from recordmill.transforms.statistics.class_counts import counts_if_small

    classes, input_report = None, outcome.input_report
    # The dataset is published: an error in this report must not look like a failed run.
    with suppress(OutputError):
        input_report = load_input_report(store, manifest)
    with suppress(Exception):
        names = class_names(store, manifest)
        classes = counts_if_small(store, manifest, names, _COUNTED_BYTES)
    is_later = manifest.generation > 0  # the output held a dataset before
    versions = (
        run.version_plan.is_complete_by_version.values() if run.version_plan else ()
    )
    return replace(
        outcome,
        input_report=input_report,
        keeps_replaced=is_later and run.base is None and run.options.grace != "0",
        classes=classes,
        is_first=not (is_later or any(versions)),
    )


def _reject_kinds(store: Store, manifest: Manifest) -> tuple[RejectKind, ...]:
    """Returns the reasons of the rejects; none if their files are damaged.

    A report error does not fail the run: `recordmill verify` reports the damage.
    """
    if not manifest.rows_rejected:
        return ()
    rejects = islice(published_rejects(store), MAX_COUNTED)
    try:
        return tuple(count_kinds(rejects, manifest.rows_rejected))
    except OutputError:
        return ()


def load_input_report(store: Store, manifest: Manifest) -> InputReport:
    """Returns the input report of the run that wrote a dataset, or its last part."""
    name = run_metadata_name(manifest.appended)
    metadata_bytes = store.read_if_exists(name)
    if metadata_bytes is None:  # the dataset was written by WriteDataset
        return EMPTY_REPORT
    return parse_run_metadata(metadata_bytes, store.uri_of(name)).input_report
