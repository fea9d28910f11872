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
from recordmill.beam_jobs.service.label_split import has_label_or_split_column, is_exact
from recordmill.beam_jobs.service.outcome import Outcome, make_outcome
from recordmill.beam_jobs.service.prepare import (
    PreparedRun,
    load_staged_report,
    prepare_run,
)
from recordmill.beam_jobs.service.resolve import (
    ResolvedRun,
    VersionPlan,
    find_published,
    resolve_run,
)
from recordmill.schemas.errors import (
    NO_ROOM,
    PERMANENT_KINDS,
    USAGE,
    DamagedScratchError,
    NoRoomError,
    OutputError,
    OutputRefusedError,
    RecordmillError,
    WorkerDiedError,
    create_error,
    error_kind,
)
from recordmill.schemas.input_summary import InputReport, InputWarning
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.names import REJECTS_NAME
from recordmill.schemas.text import escape_unprintable
from recordmill.transforms.commit.cleanup import clean_local
from recordmill.transforms.commit.commit import (
    clean_up,
    commit,
    current_manifest_digest,
    is_clean,
    is_staged,
)
from recordmill.transforms.commit.inputs import is_of_run, renew_inventories, run_key_of
from recordmill.transforms.commit.staging import describe, keep_inventory
from recordmill.transforms.commit.versions import (
    clear_unfinished,
    expired_versions,
    has_leftovers,
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
    discard_unsaved_error,
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


# Beam's connectors to clouds, and the clients that it imports if they are installed, take
# two thirds of the processor time of `import apache_beam`. recordmill accesses storage
# without them.
_CONNECTORS = (
    *(f"apache_beam.io.{cloud}" for cloud in ("aws", "azure", "gcp")),
    *("apitools", "bson", "google.api_core", "pymongo"),
)


@contextmanager
def hiding_packages(packages: Sequence[str]) -> Iterator[None]:
    """Masks packages for imports within the block, unless they are already imported.

    Only for a process that ends with its run: modules that were imported without these
    packages stay without them.
    """
    absent = [name for name in packages if name not in sys.modules]
    # None marks a module as missing (importlib's documentation).
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]


def _prepare_workspace(context: RunContext, inputs: Inputs) -> RunContext:
    """Creates a run's folders, and writes the files that its workers read."""
    workspace = context.workspace
    _make_folders(workspace, context.exchange)
    save_input(workspace, context.publishing.input_root, context.job.source)
    keep_inventory(context, inputs.files, inputs.sidecar_files, inputs.listed_at)
    save_checksums(
        workspace, PREPARE, context.source.input_source.checksums_of_prepare()
    )
    source = context.source.input_source.spill_inventory(
        *workspace.store_and_name("inventory.arrow")
    )
    return replace(context, source=context.source.with_source(source))


def _make_folders(workspace: Workspace, exchange: str) -> None:
    """Creates a run's folders on this machine."""
    discard_unsaved_error(workspace)
    try:
        workspace.create(exchange)
    except OSError as error:
        if error_kind(error) == NO_ROOM:
            raise output_error(error, str(error.filename), "created") from error
        raise OutputRefusedError(
            f"{error.filename}: cannot create the folder: {error.strerror}; choose a "
            "writable folder"
        ) from error
    free = shutil.disk_usage(workspace.root).free
    if free < 1 << 20:
        raise NoRoomError(
            f"{workspace.root}: the disk is full ({free:,} bytes free); free some space"
        )


def make_run_metadata(
    context: RunContext,
    beam_options: PipelineOptions,
    started: float,
    input_report: InputReport,
    processes: int = 0,
) -> dict[str, object]:
    """Returns the content of run.json, except the duration of the run."""
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
        "understood": input_report.to_dict(),
        "started_unix": round(started, 3),
    }


# The last step of the pipeline publishes the dataset of a detached job
# (transforms/commit/staging.py), under a lease that the step acquires itself. Until
# then a heartbeat protects the job's files (transforms/tasks/launches.py).


class JobSubmitted(Exception):  # noqa: N818  not an error: the requested outcome
    """The submission of a job to the runner, before its dataset exists."""

    def __init__(self, status: str, output: str, template: str, job: str) -> None:
        super().__init__(status, output, template, job)
        self.status = status  # "submitted", or "translated" for a template or dry run
        self.output = output  # folder of the dataset after the job has run
        self.template = template  # path of the written template, or ""
        self.job = job  # the runner's id of the job, or ""


def prepare_launch(run: ResolvedRun, prepared: PreparedRun) -> RunContext:
    """Prepares a separate workspace for the workers of a detached job.

    This function fixes the manifest that the job may replace, before the job publishes.
    """
    store = run.store
    store.preflight()
    require_idle(store)
    replaces = current_manifest_digest(store)
    find_published(run, store)
    workspace = run.workspace_of(new_launch_name())
    begin_launch(workspace, run.run_key)
    context = replace(prepared.context, workspace=workspace)
    context = context.publishing_with(replaced_manifest_digest=replaces)
    return _prepare_workspace(context, prepared.inputs)


def _submit_detached(
    run: ResolvedRun, prepared: PreparedRun, beam_options: PipelineOptions
) -> None:
    """Submits a detached job and raises JobSubmitted; returns for any other job."""
    from recordmill.beam_jobs.runners.embedded import is_only_translated

    translates = bool(run.options.beam_args) and is_only_translated(beam_options)
    if not (translates or run.options.detach):
        return
    # These imports load half of Beam's runners, so they run only for such jobs.
    from apache_beam.options.pipeline_options import GoogleCloudOptions, TestOptions

    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.portable import submit_pipeline

    context, ranges = prepared.context, prepared.ranges
    folder = ""
    if not beam_options.view_as(TestOptions).dry_run:  # a dry run writes nothing
        context = prepare_launch(run, prepared)
        folder = context.workspace.root
    facts = make_run_metadata(context, beam_options, time.time(), prepared.input_report)
    try:
        job = submit_pipeline(
            lambda p: convert_dataset(p, context, ranges, facts),
            beam_options,
            folder=folder,
        )
    except Exception as error:
        # If the runner accepted the job despite the error, the job stops, because the
        # workspace with its heartbeat is removed.
        if is_launch(context.workspace.name):
            context.workspace.remove()
        if isinstance(error, RecordmillError):
            raise
        problem = f"{type(error).__name__}: {error}"
        raise RecordmillError(f"the runner refused the job: {problem}") from error
    template = beam_options.view_as(GoogleCloudOptions).template_location or ""
    status = "translated" if translates else "submitted"
    raise JobSubmitted(status, context.workspace.store.uri, template, job)


_log = logging.getLogger("recordmill")


def _make_noted_error(note: TaskError, message: str) -> RecordmillError:
    """Returns the error that a worker noted, with another message."""
    error = create_error(note.about, message)
    error.add_note(note.traceback)  # for --debug
    return error


def _find_cause(error: Exception, workspace: Workspace) -> RecordmillError:
    """Returns the first error that a worker noted, in place of the runner's report."""
    if notes := read_errors(workspace):
        note = notes[0]
        _log.error("%s", note.traceback)
        prefix = "" if note.expected else f"unexpected {note.kind}: "
        return _make_noted_error(note, prefix + note.message)
    is_ours, kind = isinstance(error, RecordmillError), error_kind(error)
    prefix = "" if is_ours else f"the runner failed: {type(error).__name__}: "
    return create_error(kind, f"{prefix}{error}")


_PUBLISHED = "the dataset was already published. Run the same command again to clean up"
_UNPUBLISHED = "nothing was published. Run the same command again to resume"
_UNKNOWN = (
    "it is unknown whether the dataset was published, because the output cannot be "
    "read. Run the same command again: it resumes, or cleans up"
)


class FailureReport:
    """The final message about the output of a run that failed or was interrupted."""

    def __init__(self) -> None:
        self.run: ResolvedRun | None = None
        self.lease: Lease | None = None  # without a lease, the run publishes nothing
        self.workspace: Workspace | None = None  # holds the log and rejects of the run

    def describe_published_state(self, seconds: float | None = None) -> str:
        """Returns a sentence on the published state and the next step.

        It waits at most `seconds` for the storage.
        """
        publication_check = ThreadPoolExecutor(1).submit(self._has_published, seconds)
        try:
            return _PUBLISHED if publication_check.result(seconds) else _UNPUBLISHED
        except Exception:  # the storage failed, or the time is over
            return _UNKNOWN

    def _has_published(self, seconds: float | None) -> bool:
        run, lease = self.run, self.lease
        if run is None or lease is None:
            return False
        ended = lease.end_publishing(-1 if seconds is None else seconds)
        if lease.published_manifest is not None:
            return True
        manifest = find_manifest(run.store.with_short_retries())
        if manifest is not None and is_of_run(run.store, manifest, run.run_key):
            return True
        if not ended:
            raise TimeoutError
        return False

    def add_to_error(self, error: RecordmillError) -> None:
        """Adds a line on the published state and the next step to an error."""
        kind, workspace = error_kind(error), self.workspace
        if self.lease is None or kind == USAGE:
            return
        state = self.describe_published_state()
        if state == _UNPUBLISHED:
            if workspace is None:
                return
            log_note = f"The log and the rejects are in {workspace.root}. "
            if workspace.is_in_store:
                rejects = workspace.display_path(REJECTS_NAME)
                log_note = f"The log is {workspace.log}, rejects are in {rejects}. "
            hint = "Run the same command again to resume"
            if kind in PERMANENT_KINDS:
                hint = "The same command would fail again: first fix the error"
            log_note = log_note if workspace.log.exists() else ""
            state = f"nothing was published. {log_note}{hint}"
        error.args = (f"{error}\n{state[0].upper()}{state[1:]}",)


# Interval at which the errors of remote workers are read; each read lists a store.
ERROR_POLL_SECONDS = 2.0


def load_beam_options(options: RunOptions) -> PipelineOptions:
    """Imports Beam, and returns the options of the pipeline."""
    # Without a handler, Beam's import would install one that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # The import of Beam takes half a second, so it runs only if a pipeline is needed.
    with hiding_packages(_CONNECTORS if options.is_embedded else ()):
        from recordmill.beam_jobs.runners.embedded import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def _execute_pipeline(
    prepared: PreparedRun,
    beam_options: PipelineOptions,
    memory: str,
    last_words: FailureReport,
    reporter: Reporter,
    started: float,
) -> Manifest:
    """Runs the pipeline; raises the first error that a worker noted."""
    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.embedded import is_embedded, run_pipeline

    share_arenas()
    lease = last_words.lease
    assert lease is not None  # set by the caller
    context = prepared.context.publishing_with(lease_nonce=lease.holder.nonce)
    budget = NO_BUDGET
    # Only the scratch exchange keeps runs in memory: references are small, and a resumed
    # run needs the references of all its ranges.
    if context.exchange == "scratch" and is_embedded(beam_options):
        budget = memory_budget(memory)
    context = replace(context, workspace=replace(context.workspace, budget=budget))
    ranges = prepared.ranges
    context = _prepare_workspace(context, prepared.inputs)
    release_memory()  # that the listing used
    workspace = last_words.workspace = context.workspace
    facts = make_run_metadata(
        context, beam_options, started, prepared.input_report, prepared.num_processes
    )
    next_error_poll, remote = time.monotonic(), not is_embedded(beam_options)

    def poll() -> None:
        nonlocal next_error_poll
        reporter.poll()
        lease.require_not_lost()
        require_alive()
        if remote and time.monotonic() >= next_error_poll:
            for note in read_errors(workspace):
                if note.about in PERMANENT_KINDS:  # a retry does not help
                    raise _make_noted_error(note, note.message)
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
        if prepared.num_processes:
            # Imported late: a run with threads does not need it.
            from recordmill.transforms.tasks.processes import TaskProcesses

            processes = TaskProcesses(context, prepared.num_processes)
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
                _log.exception(
                    "scratch files of an earlier run are damaged: trying again"
                )
                _make_folders(workspace, context.exchange)
                run()
        except WorkerDiedError:
            raise
        except Exception as error:
            require_alive()  # the death of a process is the cause of the error
            _log.exception("the run failed")
            raise _find_cause(error, workspace) from error
        finally:
            reporter.end()
            workspace.sorted_run_folder.release()
    return _published_manifest(lease, workspace.store)


def _published_manifest(lease: Lease, store: Store) -> Manifest:
    """Returns the manifest that this run published, even if it was replaced since."""
    if lease.published_manifest is None:  # a remote worker published it
        return read_manifest(store)
    return Manifest.from_bytes(lease.published_manifest, store.uri_of(MANIFEST_NAME))


@contextmanager
def _logging_to(workspace: Workspace) -> Iterator[None]:
    """Sends all logging and stderr to the run's log, to keep them off the terminal."""
    root = logging.getLogger()
    handlers_before, level_before = root.handlers[:], root.level
    try:
        file = TextIOWrapper(
            workspace.open_log(), encoding="utf-8", errors="backslashreplace"
        )
    except OSError as error:
        raise output_error(error, str(workspace.log), "written") from error
    log = ReportStream(file)  # an error of the log does not fail the run
    with redirect_stderr(cast("TextIO", log)):
        handler = logging.StreamHandler(log)
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        root.handlers[:] = [handler]
        root.setLevel(logging.INFO)
        try:
            yield
        finally:
            root.handlers[:] = handlers_before
            root.setLevel(level_before)
            with suppress(OSError):  # on a full disk, the end of the log is lost
                file.close()


def run_job(run: ResolvedRun, reporter: Reporter, last_words: FailureReport) -> Outcome:
    """Runs a resolved job until its dataset is published; raises like `run_versioned`."""
    last_words.run = run
    started = time.time()
    store, workspace = run.store, run.workspace
    reporter.show_activity("scan", "inspecting the output")
    # A store that does not answer is reported within seconds, not minutes.
    manifest = find_published(run, store.with_short_retries())
    if manifest is not None and manifest.description == run.merge_description(manifest):
        if not is_clean(store, manifest):
            with acquire(store):
                clean_up(store)
        if store.list_temp_files(WORK_FOLDER):
            with suppress(OutputError), acquire(store):
                remove_leftovers(store, find_leftovers(store))
        _store_read_versions(run, manifest)
        # The run that wrote the dataset leaves its workspace if it was killed at its very
        # end. Its inputs may have had other mtimes, and therefore another run key.
        for key in {run.run_key, run_key_of(store, manifest)}:
            run.workspace_of(key).remove()
        remove_dead_lease(store)
        remove_empty_folders(store)
        return make_outcome(run, "unchanged", manifest, started)
    pipeline = None
    if manifest is None and not is_staged(workspace):
        # Errors in the job and the input are found before anything is written.
        counted = has_label_or_split_column(run.job) or is_exact(run.job)
        doing = "counting rows, classes and splits" if counted else ""
        reporter.show_activity("scan", doing or "reading the first rows")
        prepared = prepare_run(run)
        reporter.report_input(prepared.input_report)
        if run.options.strict:
            prepared.input_report.require_no_warnings()
        reporter.show_activity("scan", "loading Beam")
        pipeline = prepared, load_beam_options(run.options)
        reporter.show_activity("scan", "acquiring the lease of the output")
        _submit_detached(run, *pipeline)
    elif manifest is None and run.options.strict:
        load_staged_report(run).require_no_warnings()
    with acquire(store) as lease:
        last_words.lease = lease
        status = "done"
        at_work: tuple[Launch, ...] = ()
        clean_up(store, end_grace=False)
        replaces = current_manifest_digest(store)
        manifest = find_published(run, store)
        if manifest is not None:
            status = "unchanged"  # another run ended before this one had the lease
        elif pipeline is None:
            reporter.show_activity("publish", "moving the files")
            lease.require_held()
            # In a thread, so that a signal does not interrupt a write.
            publish = partial(commit, workspace, None, lease.holder.nonce)
            run_in_thread(publish, threading.Event(), lease.require_not_lost, 0.05)
            manifest = _published_manifest(lease, store)
        else:
            prepared = replace(
                prepared,
                context=prepared.context.publishing_with(
                    replaced_manifest_digest=replaces
                ),
            )
            manifest = _execute_pipeline(
                prepared, pipeline[1], run.options.memory, last_words, reporter, started
            )
        description = run.merge_description(manifest)
        if changes := description.describe_changes(manifest.description):
            reporter.show_activity("publish", "writing the description")
            manifest = describe(workspace, description, lease.holder.nonce)
            status = "described" if status == "unchanged" else status
        reporter.show_activity("publish", "removing temporary files")
        try:
            if lease.is_held():  # otherwise another run may be using the folder
                if status == "unchanged" or run.options.grace == "0":
                    clean_up(store)
                workspace.remove()
                leftovers = find_leftovers(store, spare=workspace.name)
                remove_leftovers(store, leftovers)
                at_work = leftovers.active_launches
        except (RecordmillError, OSError):
            if lease.is_held():
                raise
            _log.exception("another run cleans up")
    return make_outcome(run, status, manifest, started, at_work, changes)


def _store_read_versions(run: ResolvedRun, manifest: Manifest) -> None:
    """Stores the versions of inputs that this run read, so that the next run need not."""
    versions, store = run.inputs.content_check.versions_read(), run.store
    if not versions:
        return
    try:
        with acquire(store):
            renew_inventories(store, manifest, versions, run.run_key)
    except OutputError:
        _log.info(
            "the output is busy or read-only: the next run reads the inputs again"
        )


# A run holds the lease of the folder of versions, and also the lease of its own version,
# because other jobs may name that version explicitly. latest.json is updated last.


def run_versioned(
    job: JobSpec, options: RunOptions, reporter: Reporter, last_words: FailureReport
) -> Outcome:
    """Runs a job until its dataset is published, as the next version with `version=auto`.

    Raises:
      RecordmillError: an error that the user can fix. Finished tasks are kept for the
        next try, and `last_words` knows what was published.
      JobSubmitted: the runner has accepted a detached job.
    """

    def report_progress(text: str) -> None:
        """Shows that inputs are read to decide whether the run has work to do."""
        reporter.show_activity("scan", text)
        reporter.report_input(InputReport(fields=(("inputs", text),)))

    reporter.show_activity("scan", "listing the inputs")
    run = resolve_run(job, options, report_progress=report_progress)
    reporter.report_input(InputReport(warnings=run.inputs.input_report.warnings))
    versions = run.version_plan
    if versions is None or _is_up_to_date(versions, options.keep):
        return run_job(run, reporter, last_words)
    store = versions.store
    with acquire(store) as lease:
        # Resolved again, because another run may have ended before this run acquired the
        # lease. The inputs are the same and are not listed again.
        run = resolve_run(job, options, run.inputs)
        versions = run.version_plan
        assert versions is not None  # because the options are unchanged
        remove_leftovers(store, find_leftovers(store))
        for version in versions.stale_versions:
            cleared = clear_unfinished(store, version, run.job.version)
            for name in cleared if options.scratch else ():
                run.workspace.sibling(name).remove_scratch()
        clean_local(run.store, {run.workspace.name, *live_workspaces(run.store)})
        outcome = run_job(run, reporter, last_words)
        lease.require_held()
        move_latest(store, outcome.manifest)
        for version in expired_versions(store, list_versions(store), options.keep):
            lease.require_held()
            if has_live_launch(store.subfolder_store(version)):
                continue  # a detached job is about to replace this version
            if target := remove_version(store, version):
                warning = InputWarning(
                    "linked-version",
                    f"{store.uri_of(version)}: was a link to {escape_unprintable(target)}. The "
                    "link was removed because of `keep`; remove its target if nobody "
                    "needs it",
                )
                input_report = outcome.input_report.with_warnings([warning])
                outcome = replace(outcome, input_report=input_report)
    return outcome


def _is_up_to_date(plan: VersionPlan, keep: int) -> bool:
    """Tests whether there is nothing to do or to clean up; changes no files."""
    return (
        plan.unchanged_manifest is not None
        and names_latest(plan.store, plan.unchanged_manifest)
        and not plan.stale_versions
        and not expired_versions(plan.store, plan.is_complete_by_version, keep)
        and not has_leftovers(plan.store)
    )
