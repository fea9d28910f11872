"""Runs a resolved job: prepares it, runs its pipeline, publishes, reports the outcome."""

from __future__ import annotations

import logging
import platform
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from io import TextIOWrapper
from typing import TYPE_CHECKING, TextIO, cast

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.beam_jobs.service.label_split import has_label_split, is_exact
from recordmill.beam_jobs.service.outcome import Outcome, outcome_of
from recordmill.beam_jobs.service.prepare import (
    PreparedRun,
    prepare_run,
    staged_summary,
)
from recordmill.beam_jobs.service.resolve import (
    ResolvedRun,
    VersionPlan,
    find_published,
    resolve,
)
from recordmill.schemas.errors import (
    NO_ROOM,
    PERMANENT,
    USAGE,
    DamagedScratchError,
    NoRoomError,
    OutputError,
    OutputRefusedError,
    RecordmillError,
    WorkerDiedError,
    error_of,
    kind_of,
)
from recordmill.schemas.input_summary import InputSummary, InputWarning
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.names import REJECTS_NAME
from recordmill.schemas.text import printable
from recordmill.transforms.commit.cleanup import clean_local
from recordmill.transforms.commit.commit import (
    clean_up,
    commit,
    is_clean,
    is_staged,
    seen_manifest,
)
from recordmill.transforms.commit.inputs import is_of_run, key_of, renew_inventories
from recordmill.transforms.commit.staging import describe, keep_inventory
from recordmill.transforms.commit.versions import (
    clear_unfinished,
    expired_versions,
    has_orphans,
    list_versions,
    move_latest,
    names_latest,
    remove_version,
)
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.exchange.sorted_runs import NO_BUDGET
from recordmill.transforms.parallel import run_in_thread
from recordmill.transforms.report_stream import ReportStream
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.lease import (
    Lease,
    acquire,
    remove_dead_lease,
    require_idle,
)
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.launches import (
    Launch,
    TaskError,
    begin_launch,
    forget_errors,
    has_live_launch,
    is_launch,
    live_workspaces,
    new_launch_name,
    read_errors,
)
from recordmill.transforms.tasks.leftovers import (
    find_leftovers,
    remove_empty_folders,
    remove_leftovers,
)
from recordmill.transforms.tasks.memory import (
    memory_budget,
    release_memory,
    share_arenas,
)
from recordmill.transforms.tasks.progress_reader import Reporter
from recordmill.transforms.tasks.rejects import save_input
from recordmill.transforms.tasks.workspace import (
    LOG_FORMAT,
    PREPARE,
    Workspace,
    save_checksums,
)

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


# Beam's connectors to clouds, and clients that it imports where they are installed: two
# thirds of the processor time of `import apache_beam`. Storage is reached without them.
_CONNECTORS = (
    *(f"apache_beam.io.{cloud}" for cloud in ("aws", "azure", "gcp")),
    *("apitools", "bson", "google.api_core", "pymongo"),
)


@contextmanager
def hidden(packages: Sequence[str]) -> Iterator[None]:
    """Imports within the block do not find these packages, if none was imported before.

    Only for a process that ends with its run: what was imported without them stays so.
    """
    absent = [name for name in packages if name not in sys.modules]
    # None stands for a module that is known not to be there (importlib's documentation).
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _prepare_workspace(context: RunContext, inputs: Inputs) -> RunContext:
    """Creates a run's folders and puts there what its workers read."""
    workspace = context.workspace
    _make_folders(workspace, context.exchange)
    save_input(workspace, context.publishing.input_root, context.job.source)
    keep_inventory(context, inputs.files, inputs.side_files, inputs.listed_at)
    save_checksums(workspace, PREPARE, context.source.input.checksums_of_prepare())
    source = context.source.input.spill_inventory(*workspace.place("inventory.arrow"))
    return replace(context, source=context.source.on(source))


def _make_folders(workspace: Workspace, exchange: str) -> None:
    """Creates a run's folders on this machine."""
    forget_errors(workspace)
    try:
        workspace.create(exchange)
    except OSError as error:
        if kind_of(error) == NO_ROOM:
            raise output_error(error, str(error.filename), "created") from error
        raise OutputRefusedError(
            f"{error.filename}: cannot create the folder: {error.strerror}; choose one "
            "that you may write to"
        ) from error
    free = shutil.disk_usage(workspace.root).free
    if free < 1 << 20:
        raise NoRoomError(
            f"{workspace.root}: the disk is full ({free:,} bytes free); free some space"
        )


def run_metadata(
    context: RunContext,
    beam_options: PipelineOptions,
    started: float,
    understood: InputSummary,
    processes: int = 0,
) -> dict[str, object]:
    """Returns what run.json will say, except how long the run took."""
    import apache_beam

    from recordmill.beam_jobs.runners.embedded import runner_name

    launch = context.workspace.name
    return {
        **({"launch": launch} if is_launch(launch) else {}),
        "recordmill": version("recordmill"),
        "beam": apache_beam.__version__,
        "python": platform.python_version(),
        "runner": runner_name(beam_options, processes),
        "exchange": context.exchange,
        "source": context.job.source,
        "input_root": context.publishing.input_root,
        "understood": understood.to_dict(),
        "started_unix": round(started, 3),
    }


# The dataset is published by the pipeline's last step (transforms/commit/staging.py),
# under a lease that the step takes itself. Until then a heartbeat keeps the job's files
# (transforms/tasks/launches.py).


class JobSubmitted(Exception):  # noqa: N818  not an error: what was asked for
    """The runner has the job, but there is no dataset yet."""

    def __init__(self, status: str, output: str, template: str, job: str) -> None:
        super().__init__(status, output, template, job)
        self.status = status  # "submitted", or "translated" if no more was wanted
        self.output = output  # where the dataset goes once the job has run
        self.template = template  # where the pipeline was written to, or ""
        self.job = job  # the runner's name of it, or ""


def prepare_launch(run: ResolvedRun, prepared: PreparedRun) -> RunContext:
    """Prepares what the workers of a detached job need: a workspace of its own.

    Which manifest the job may replace is decided here, not when it publishes.
    """
    store = run.store
    store.preflight()
    require_idle(store)
    replaces = seen_manifest(store)
    find_published(run, store)
    workspace = run.workspace_of(new_launch_name())
    begin_launch(workspace, run.run_key)
    context = replace(prepared.context, workspace=workspace)
    context = context.publishing_with(replaces=replaces)
    return _prepare_workspace(context, prepared.inputs)


def _submit_detached(
    run: ResolvedRun, prepared: PreparedRun, beam_options: PipelineOptions
) -> None:
    """Submits the job if nobody waits for its end; returns if it is to be waited for."""
    from recordmill.beam_jobs.runners.embedded import only_translates

    translates = bool(run.options.beam_args) and only_translates(beam_options)
    if not (translates or run.options.detach):
        return
    # Half of Beam's runners come with these: only where they are needed.
    from apache_beam.options.pipeline_options import GoogleCloudOptions, TestOptions

    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.portable import submit

    context, ranges = prepared.context, prepared.ranges
    folder = ""
    if not beam_options.view_as(TestOptions).dry_run:  # which makes nothing
        context = prepare_launch(run, prepared)
        folder = context.workspace.root
    facts = run_metadata(context, beam_options, time.time(), prepared.understood)
    try:
        job = submit(
            lambda p: convert_dataset(p, context, ranges, facts),
            beam_options,
            folder=folder,
        )
    except Exception as error:
        # If it has the job all the same, that stops: its sign of life is gone.
        if is_launch(context.workspace.name):
            context.workspace.remove()
        if isinstance(error, RecordmillError):
            raise
        what = f"{type(error).__name__}: {error}"
        raise RecordmillError(f"the runner refused the job: {what}") from error
    template = beam_options.view_as(GoogleCloudOptions).template_location or ""
    status = "translated" if translates else "submitted"
    raise JobSubmitted(status, context.workspace.store.uri, template, job)


_log = logging.getLogger("recordmill")


def _noted_error(note: TaskError, message: str) -> RecordmillError:
    """Returns the error that a worker noted, with another message."""
    error = error_of(note.about, message)
    error.add_note(note.traceback)  # for --debug
    return error


def _explain(error: Exception, workspace: Workspace) -> RecordmillError:
    """Returns the first error that a worker noted, in place of the runner's report."""
    if notes := read_errors(workspace):
        note = notes[0]
        _log.error("%s", note.traceback)
        what = "" if note.expected else f"unexpected {note.kind}: "
        return _noted_error(note, what + note.message)
    is_ours, kind = isinstance(error, RecordmillError), kind_of(error)
    what = "" if is_ours else f"the runner failed: {type(error).__name__}: "
    return error_of(kind, f"{what}{error}")


_PUBLISHED = "the dataset was published before. Run the same command again to clean up"
_UNPUBLISHED = "nothing was published. Run the same command again to resume"
_UNKNOWN = (
    "it is unknown whether the dataset was published, as the output cannot be read. Run "
    "the same command again: it resumes, or cleans up"
)


class LastWords:
    """What a run that fails, or is interrupted, says of the output at its end."""

    def __init__(self) -> None:
        self.run: ResolvedRun | None = None
        self.lease: Lease | None = None  # without one it publishes nothing
        self.workspace: Workspace | None = None  # of its log and rejects

    def state(self, seconds: float | None = None) -> str:
        """Returns what was published, and how to go on; waits at most so long for it."""
        asked = ThreadPoolExecutor(1).submit(self._has_published, seconds)
        try:
            return _PUBLISHED if asked.result(seconds) else _UNPUBLISHED
        except Exception:  # of the storage, or of the time
            return _UNKNOWN

    def _has_published(self, seconds: float | None) -> bool:
        run, lease = self.run, self.lease
        if run is None or lease is None:
            return False
        ended = lease.end_publishing(-1 if seconds is None else seconds)
        if lease.published is not None:
            return True
        found = find_manifest(run.store.with_short_retries())
        if found is not None and is_of_run(run.store, found, run.run_key):
            return True
        if not ended:
            raise TimeoutError
        return False

    def add_to(self, error: RecordmillError) -> None:
        """Adds the line to an error that says what was published, and how to go on."""
        kind, workspace = kind_of(error), self.workspace
        if self.lease is None or kind == USAGE:
            return
        state = self.state()
        if state == _UNPUBLISHED:
            if workspace is None:
                return
            found = f"Log and rejects are in {workspace.root}. "
            if workspace.shared:
                rejects = workspace.display_path(REJECTS_NAME)
                found = f"The log is {workspace.log}, rejects are in {rejects}. "
            hint = "Run the same command again to resume"
            if kind in PERMANENT:
                hint = "The same command would fail again: first change what the error names"
            found = found if workspace.log.exists() else ""
            state = f"nothing was published. {found}{hint}"
        error.args = (f"{error}\n{state[0].upper()}{state[1:]}",)


# Between two readings of the errors that remote workers noted; each lists a store.
ERROR_POLL_SECONDS = 2.0


def load_beam_options(options: RunOptions) -> PipelineOptions:
    """Imports Beam, and returns the options of the pipeline."""
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    with hidden(_CONNECTORS if options.is_embedded else ()):
        from recordmill.beam_jobs.runners.embedded import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def _execute_pipeline(
    prepared: PreparedRun,
    beam_options: PipelineOptions,
    memory: str,
    last_words: LastWords,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; errors noted by the workers become the error raised."""
    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.embedded import is_embedded, run_pipeline

    share_arenas()
    lease = last_words.lease
    assert lease is not None  # the caller's
    context = prepared.context.publishing_with(lease=lease.holder.nonce)
    budget = NO_BUDGET
    # References are small, and a run that resumes needs those of all its ranges.
    if context.exchange == "scratch" and is_embedded(beam_options):
        budget = memory_budget(memory)
    context = replace(context, workspace=replace(context.workspace, budget=budget))
    ranges = prepared.ranges
    context = _prepare_workspace(context, prepared.inputs)
    release_memory()  # that of the listing
    workspace = last_words.workspace = context.workspace
    facts = run_metadata(
        context, beam_options, started, prepared.understood, prepared.processes
    )
    next_error_poll, remote = time.monotonic(), not is_embedded(beam_options)

    def poll() -> None:
        nonlocal next_error_poll
        reporter.poll()
        lease.require_not_lost()
        require_alive()
        if remote and time.monotonic() >= next_error_poll:
            for note in read_errors(workspace):
                if note.about in PERMANENT:  # trying again does not help
                    raise _noted_error(note, note.message)
            next_error_poll = time.monotonic() + ERROR_POLL_SECONDS

    def require_alive() -> None:
        if context.processes is not None:
            context.processes.require_alive()

    def run() -> None:
        run_pipeline(
            lambda p: convert_dataset(p, context, ranges, facts),
            beam_options,
            poll,
            folder=workspace.root,
        )

    with _logging_to(workspace), ExitStack() as ending:
        if prepared.processes:
            # Only here: a run by threads goes without.
            from recordmill.transforms.tasks.processes import TaskProcesses

            processes = TaskProcesses(context, prepared.processes)
            ending.callback(processes.close)
            context = replace(context, processes=processes)
        _log.info("%s: %d input ranges", context.job, len(ranges))
        reporter.begin(context, ranges, prepared.inputs.num_bytes)
        try:
            try:
                run()
            except Exception:
                kinds = [note.kind for note in read_errors(workspace)]
                if DamagedScratchError.__name__ not in kinds:
                    raise
                _log.exception("scratch of an earlier try is damaged: trying again")
                _make_folders(workspace, context.exchange)
                run()
        except WorkerDiedError:
            raise
        except Exception as error:
            require_alive()  # the first of both that was seen
            _log.exception("the run failed")
            raise _explain(error, workspace) from error
        finally:
            reporter.end()
            workspace.runs.release()
    return _published(lease, workspace.store)


def _published(lease: Lease, store: Store) -> Manifest:
    """Returns what this run published; another one may have replaced it since."""
    if lease.published is None:  # by a worker elsewhere
        return read_manifest(store)
    return Manifest.from_bytes(lease.published, store.uri_of(MANIFEST_NAME))


@contextmanager
def _logging_to(workspace: Workspace) -> Iterator[None]:
    """Sends all logging and stderr to the run's log: Beam's are not for the terminal."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        file = TextIOWrapper(
            workspace.open_log(), encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise output_error(error, str(workspace.log), "written") from error
    log = ReportStream(file)  # a run does not fail by its log
    with redirect_stderr(cast("TextIO", log)):
        handler = logging.StreamHandler(log)
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers[:] = before
            root.setLevel(level)
            with suppress(OSError):  # of a full disk: the end of the log is lost
                file.close()


def run_job(run: ResolvedRun, reporter: Reporter, last_words: LastWords) -> Outcome:
    """Runs a resolved job to its published dataset; raises as `run_versioned`."""
    last_words.run = run
    started = time.time()
    store, workspace = run.store, run.workspace
    reporter.doing("scan", "looking at the output")
    # A store that does not answer is reported within seconds, not minutes.
    manifest = find_published(run, store.with_short_retries())
    if manifest is not None and manifest.description == run.description_of(manifest):
        if not is_clean(store, manifest):
            with acquire(store):
                clean_up(store)
        if store.unfinished(WORK_FOLDER):
            with suppress(OutputError), acquire(store):
                remove_leftovers(store, find_leftovers(store))
        _note_versions(run, manifest)
        # Left if the run that made it was killed at its very end; its inputs may have had
        # other times.
        for key in {run.run_key, key_of(store, manifest)}:
            run.workspace_of(key).remove()
        remove_dead_lease(store)
        remove_empty_folders(store)
        return outcome_of(run, "unchanged", manifest, started)
    pipeline = None
    if manifest is None and not is_staged(workspace):
        # All that can be wrong with job and input is found before anything is written.
        counted = has_label_split(run.job) or is_exact(run.job)
        doing = "counting rows, classes and splits" if counted else ""
        reporter.doing("scan", doing or "reading the first rows")
        prepared = prepare_run(run)
        reporter.tell(prepared.understood)
        if run.options.strict:
            prepared.understood.require_no_warnings()
        reporter.doing("scan", "loading Beam")
        pipeline = prepared, load_beam_options(run.options)
        reporter.doing("scan", "taking the lease of the output")
        _submit_detached(run, *pipeline)
    elif manifest is None and run.options.strict:
        staged_summary(run).require_no_warnings()
    with acquire(store) as lease:
        last_words.lease = lease
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
            # In a thread: a signal does not end what it puts.
            publish = partial(commit, workspace, None, lease.holder.nonce)
            run_in_thread(publish, threading.Event(), lease.require_not_lost, 0.05)
            manifest = _published(lease, store)
        else:
            prepared = replace(
                prepared, context=prepared.context.publishing_with(replaces=replaces)
            )
            manifest = _execute_pipeline(
                prepared, pipeline[1], run.options.memory, last_words, reporter, started
            )
        wanted = run.description_of(manifest)
        if changes := wanted.changes_from(manifest.description):
            reporter.doing("publish", "writing the description")
            manifest = describe(workspace, wanted, lease.holder.nonce)
            status = "described" if status == "unchanged" else status
        reporter.doing("publish", "removing temporary files")
        try:
            if lease.is_held():  # else another run may be at work there
                if status == "unchanged" or run.options.grace == "0":
                    clean_up(store)
                workspace.remove()
                found = find_leftovers(store, spare=workspace.name)
                remove_leftovers(store, found)
                at_work = found.at_work
        except (RecordmillError, OSError):
            if lease.is_held():
                raise
            _log.exception("another run cleans up")
    return outcome_of(run, status, manifest, started, at_work, changes)


def _note_versions(run: ResolvedRun, manifest: Manifest) -> None:
    """Saves the next run the reading of inputs that this one had to read to compare."""
    versions, store = run.inputs.check.versions_read(), run.store
    if not versions:
        return
    try:
        with acquire(store):
            renew_inventories(store, manifest, versions, run.run_key)
    except OutputError:
        _log.info("the output is busy or read-only: the next run reads them again")


# A run holds the lease of the folder of versions, and within it that of its own version,
# for which others may run jobs that name the version themselves. latest.json moves last.


def run_versioned(
    job: JobSpec, options: RunOptions, reporter: Reporter, last_words: LastWords
) -> Outcome:
    """Runs a job to its published dataset, as the next version if its options say so.

    Raises:
      RecordmillError: what a person can mend; what was finished is kept for the next try,
        and `last_words` know what was published.
      JobSubmitted: the runner has the job, and nobody is to wait for it.
    """

    def tell(text: str) -> None:
        """Shows that inputs are read before it is known whether there is work."""
        reporter.doing("scan", text)
        reporter.tell(InputSummary(facts=(("inputs", text),)))

    reporter.doing("scan", "listing the inputs")
    run = resolve(job, options, tell=tell)
    reporter.tell(InputSummary(warnings=run.inputs.told.warnings))
    versions = run.version_plan
    if versions is None or _is_up_to_date(versions, options.keep):
        return run_job(run, reporter, last_words)
    store = versions.store
    with acquire(store) as lease:
        # Chosen again, because another run may have ended before this one had the
        # lease; but for the same inputs, which are not listed again.
        run = resolve(job, options, run.inputs)
        versions = run.version_plan
        assert versions is not None  # as before: the options are the same
        remove_leftovers(store, find_leftovers(store))
        for version in versions.stale:
            cleared = clear_unfinished(store, version, run.job.version)
            for name in cleared if options.scratch else ():
                run.workspace.sibling(name).remove_scratch()
        clean_local(run.store, {run.workspace.name, *live_workspaces(run.store)})
        outcome = run_job(run, reporter, last_words)
        lease.require_held()
        move_latest(store, outcome.manifest)
        for version in expired_versions(store, list_versions(store), options.keep):
            lease.require_held()
            if has_live_launch(store.below(version)):
                continue  # it is to replace this version
            if target := remove_version(store, version):
                warning = InputWarning(
                    "linked-version",
                    f"{store.uri_of(version)}: was a link to {printable(target)}. The "
                    "link was removed because of `keep`; remove the files that it led to "
                    "if nobody needs them",
                )
                understood = outcome.understood.with_warnings([warning])
                outcome = replace(outcome, understood=understood)
    return outcome


def _is_up_to_date(plan: VersionPlan, keep: int) -> bool:
    """Tests whether there is nothing to do, not even to clean up; touches nothing."""
    return (
        plan.newest is not None
        and names_latest(plan.store, plan.newest)
        and not plan.stale
        and not expired_versions(plan.store, plan.found, keep)
        and not has_orphans(plan.store)
    )
