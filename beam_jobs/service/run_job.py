"""Runs a resolved job: prepares it, runs its pipeline, publishes, reports the outcome."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from recordmill.beam_jobs.service.detach import submit_detached
from recordmill.beam_jobs.service.disk_space import require_space
from recordmill.beam_jobs.service.failures import (
    explain,
    is_scratch_damaged,
    nothing_published,
    raise_permanent_error,
)
from recordmill.beam_jobs.service.prepare import PreparedRun, prepare_run
from recordmill.beam_jobs.service.resolve import ResolvedRun, find_published
from recordmill.beam_jobs.service.set_up import (
    make_folders,
    prepare_workspace,
    run_metadata,
)
from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.parts import REJECTS_NAME, run_metadata_name
from recordmill.schemas.errors import (
    Interrupted,
    MissingFileError,
    OutputError,
    error_of,
    kind_of,
)
from recordmill.schemas.job.run_options import RunOptions
from recordmill.schemas.ranges import InputRange, cut_of
from recordmill.schemas.understood import NOTHING, Understood
from recordmill.transforms.commit.commit import (
    commit,
    is_staged,
    seen_manifest,
)
from recordmill.transforms.commit.kept_inputs import (
    is_of_run,
    key_of,
    renew_inventories,
)
from recordmill.transforms.commit.records import replaced_dataset
from recordmill.transforms.commit.recovery import clean_up, is_clean
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.lease import (
    Lease,
    acquire,
    remove_dead_locks,
)
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.launches import Launch
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers
from recordmill.transforms.tasks.read_rejects import (
    MAX_COUNTED,
    RejectKind,
    count_kinds,
    published_rejects,
)
from recordmill.transforms.tasks.reject_lines import UNKNOWN_INPUT, RejectLocator
from recordmill.transforms.tfrecord import require_fast_crc

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_log = logging.getLogger("recordmill")

# Between two readings of the errors that remote workers noted; each lists a store.
ERROR_POLL_SECONDS = 2.0


class Reporter(Protocol):
    """Shows a run's progress to a person."""

    def doing(self, stage: str, what: str) -> None: ...

    def tell(self, understood: Understood) -> None: ...

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None: ...

    def poll(self) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
      status: "done", or "unchanged" if this very dataset was there already.
      output: folder of the dataset.
      manifest: of the dataset.
      seconds: wall time of the whole run.
      rejects: folder with the rejected rows, or "".
      base: of the dataset that the run appended to, or None.
      understood: what the source took the input for; nothing if nothing was read.
      reject_kinds: why rows were rejected, the commonest first.
      locator: finds the lines of rejects.
      replaced_shards: shards of the replaced dataset that stay until the next run.
      at_work: detached jobs that may be at work for the same output.
    """

    status: str
    output: str
    manifest: Manifest
    seconds: float
    rejects: str = ""
    base: Manifest | None = None
    understood: Understood = NOTHING
    reject_kinds: tuple[RejectKind, ...] = ()
    locator: RejectLocator = UNKNOWN_INPUT
    replaced_shards: int = 0
    at_work: tuple[str, ...] = ()


def run_job(run: ResolvedRun, reporter: Reporter) -> Outcome:
    """Runs a job to its published dataset.

    Args:
      run: the job with its inputs and its output.
      reporter: shows the progress.

    Raises:
      UsageError: the job or its options are put wrongly.
      RecordmillError: anything else that a person can mend; nothing was published,
        and what was finished is kept for the next try.
      JobSubmitted: the runner has the job, and nobody is to wait for it.
    """
    started = time.time()
    require_fast_crc()
    store, workspace = run.store, run.workspace
    reporter.doing("scan", "looking at the output")
    # A store that does not answer is reported within seconds, not minutes.
    manifest = find_published(run, store.with_short_retries())
    if manifest is not None:
        if not is_clean(store, manifest):
            with acquire(store, exclusive=store.preflight().exclusive):
                clean_up(store)
        _note_versions(run, manifest)
        # Left if the run that made it was killed at its very end; its inputs may have had
        # other times.
        for key in {run.run_key, key_of(store, manifest)}:
            run.workspace_of(key).remove()
        remove_dead_locks(store)
        return _outcome(run, "unchanged", manifest, started)
    pipeline = None
    if not is_staged(workspace):
        # All that can be wrong with job and input is found before anything is written.
        reporter.doing("scan", "reading the first rows")
        prepared = prepare_run(run)
        reporter.doing("scan", "loading Beam")
        pipeline = prepared, _beam_options(run.options)
        reporter.tell(prepared.understood)
        reporter.doing("scan", "taking the lease of the output")
        submit_detached(run, *pipeline)
    ready = store.preflight()
    if pipeline is not None:
        require_space(*pipeline, ready.free_bytes)
    with acquire(store, exclusive=ready.exclusive) as lease, _telling_state(run):
        status = "done"
        at_work: tuple[Launch, ...] = ()
        clean_up(store, end_grace=False)
        replaces = seen_manifest(store)
        manifest = find_published(run, store)
        if manifest is not None:
            status = "unchanged"  # another run ended before this one had the lease
        elif pipeline is None:
            reporter.doing("publish", "moving the files")
            lease.require_held()
            manifest = commit(workspace)
        else:
            prepared = replace(
                prepared, context=replace(prepared.context, replaces=replaces)
            )
            manifest = _convert(prepared, pipeline[1], lease, reporter, started)
        reporter.doing("publish", "removing temporary files")
        if lease.is_held():  # else another run may be at work there
            if status == "unchanged" or run.options.grace == "0":
                clean_up(store)
            workspace.remove()
            found = find_leftovers(store, spare=workspace.name)
            remove_leftovers(store, found)
            at_work = found.at_work
    understood = NOTHING
    if status == "done":
        understood = _understood_at_end(store, manifest)
    outcome = _outcome(run, status, manifest, started, understood)
    return replace(outcome, at_work=tuple(launch.describe() for launch in at_work))


def _note_versions(run: ResolvedRun, manifest: Manifest) -> None:
    """Saves the next run the reading of inputs that this one had to read to compare."""
    versions, store = run.inputs.check.versions_read(), run.store
    if not versions:
        return
    try:
        with acquire(store, exclusive=store.preflight().exclusive):
            renew_inventories(store, manifest, versions, run.run_key)
    except OutputError:
        _log.info("the output is busy or read-only: the next run reads them again")


def _outcome(
    run: ResolvedRun,
    status: str,
    manifest: Manifest,
    started: float,
    understood: Understood = NOTHING,
) -> Outcome:
    """Returns how a run ended, with the reasons of the rejects that are kept."""
    rejects, kinds = "", []
    if manifest.rows_rejected:
        rejects = run.store.uri_of(REJECTS_NAME)
        kinds = count_kinds(
            islice(published_rejects(run.store), MAX_COUNTED), manifest.rows_rejected
        )
    return Outcome(
        status,
        run.store.uri,
        manifest,
        time.time() - started,
        rejects,
        run.base,
        understood,
        tuple(kinds),
        run.locator,
        _replaced_shards(run.store, manifest) if status == "done" else 0,
    )


def _replaced_shards(store: Store, manifest: Manifest) -> int:
    """Counts the shards of the replaced dataset that stay for its readers."""
    replaced = replaced_dataset(store, manifest)
    if replaced is None:
        return 0
    return len(set(replaced.shard_files) - set(manifest.shard_files))


def _understood_at_end(store: Store, manifest: Manifest) -> Understood:
    """Returns what the run that made a dataset, or its last part, took its input for."""
    try:
        metadata = json.loads(store.read(run_metadata_name(manifest.appended)))
        return Understood.from_dict(metadata["understood"])
    except (MissingFileError, ValueError, KeyError, TypeError, AttributeError):
        return NOTHING  # by an earlier version, which said nothing of it


@contextmanager
def _telling_state(run: ResolvedRun) -> Iterator[None]:
    """Adds to an interruption that the dataset was published before it."""
    try:
        yield
    except Interrupted as interrupted:
        with suppress(Exception):  # the interruption matters more
            manifest = find_manifest(run.store.with_short_retries())
            if manifest is not None and is_of_run(run.store, manifest, run.run_key):
                interrupted.state = (
                    "the dataset was published before. Run the same command again to "
                    "clean up"
                )
        raise


def _beam_options(options: RunOptions) -> PipelineOptions:
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    from recordmill.beam_jobs.runners.embedded import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def _convert(
    prepared: PreparedRun,
    beam_options: PipelineOptions,
    lease: Lease,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; errors noted by the workers become the error raised."""
    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.embedded import (
        WorkerDiedError,
        is_embedded,
        run_pipeline,
    )

    context = replace(prepared.context, lease=lease.holder.nonce)
    ranges = prepared.ranges
    context = prepare_workspace(context, prepared.inputs, ranges)
    workspace = context.workspace
    facts = run_metadata(context, beam_options, started, prepared.understood)
    next_error_poll = time.monotonic()

    def poll() -> None:
        nonlocal next_error_poll
        reporter.poll()
        lease.require_not_lost()
        if not is_embedded(beam_options) and time.monotonic() >= next_error_poll:
            raise_permanent_error(workspace)
            next_error_poll = time.monotonic() + ERROR_POLL_SECONDS

    def run() -> None:
        run_pipeline(
            lambda p: convert_dataset(p, context, ranges, facts),
            beam_options,
            poll,
        )

    with _logging_to(workspace.log):
        _log.info("%s: %d input ranges", context.job, len(ranges))
        reporter.begin(context, ranges, prepared.inputs.num_bytes)
        try:
            try:
                run()
            except Exception:
                if not is_scratch_damaged(workspace):
                    raise
                _log.exception("scratch of an earlier try is damaged: trying once more")
                make_folders(workspace, context.exchange, cut_of(ranges))
                run()
        except WorkerDiedError as error:
            message = f"{error}\n{nothing_published(workspace)}"
            raise error_of(kind_of(error), message) from error
        except Exception as error:
            _log.exception("the run failed")
            raise explain(error, workspace) from error
        finally:
            reporter.end()
    store = workspace.store
    return read_manifest(store)


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Sends all logging and stderr to the run's log: Beam's are not for the terminal."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with path.open("a") as log, redirect_stderr(log):
        handler = logging.StreamHandler(log)
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
        )
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers[:] = before
            root.setLevel(level)
