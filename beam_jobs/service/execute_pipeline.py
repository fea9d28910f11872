"""Runs the pipeline of a prepared run, with all that it logs in the run's own log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from recordmill.beam_jobs.runners.unused_packages import OF_CONNECTORS, hidden
from recordmill.beam_jobs.service.disk_space import run_budget
from recordmill.beam_jobs.service.failures import (
    explain,
    is_scratch_damaged,
    nothing_published,
    raise_permanent_error,
)
from recordmill.beam_jobs.service.prepare import PreparedRun
from recordmill.beam_jobs.service.reporter import Reporter
from recordmill.beam_jobs.service.set_up import (
    make_folders,
    prepare_workspace,
    run_metadata,
)
from recordmill.schemas.errors import error_of, kind_of
from recordmill.schemas.job import RunOptions
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.ranges import cut_of
from recordmill.transforms.dataset.files import read_manifest
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.lease import Lease
from recordmill.transforms.tasks.memory import share_arenas

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_log = logging.getLogger("recordmill")

# Between two readings of the errors that remote workers noted; each lists a store.
ERROR_POLL_SECONDS = 2.0


def load_beam_options(options: RunOptions) -> PipelineOptions:
    """Imports Beam, and returns the options of the pipeline."""
    # Without a handler, Beam's import would set one up that prints to the terminal.
    logging.getLogger().addHandler(logging.NullHandler())
    # Beam takes half a second to import: not before it is sure to be needed.
    with hidden(OF_CONNECTORS if options.is_embedded else ()):
        from recordmill.beam_jobs.runners.embedded import pipeline_options

    return pipeline_options(options.beam_args, options.workers)


def execute_pipeline(
    prepared: PreparedRun,
    beam_options: PipelineOptions,
    memory: str,
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
        works_in_threads,
    )

    share_arenas()
    context = replace(prepared.context, lease=lease.holder.nonce)
    budget = run_budget(context, memory, in_threads=works_in_threads(beam_options))
    context = replace(context, workspace=replace(context.workspace, budget=budget))
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
            kind = kind_of(error)
            message = f"{error}\n{nothing_published(workspace, kind)}"
            raise error_of(kind, message) from error
        except Exception as error:
            _log.exception("the run failed")
            raise explain(error, workspace) from error
        finally:
            reporter.end()
            workspace.runs.release()
    store = workspace.store
    return read_manifest(store)


class _RunLog(TextIOWrapper):
    """The log of a run. It ends where the disk is full: a run does not fail by its log."""

    _has_room = True

    def write(self, text: str, /) -> int:
        """Writes, unless an earlier write failed."""
        self._try(lambda: super(_RunLog, self).write(text))
        return len(text)

    def flush(self) -> None:
        """Flushes, unless an earlier write failed."""
        self._try(super().flush)

    def close(self) -> None:
        """Closes the file; what could not be written is lost."""
        with suppress(OSError):
            super().close()

    def _try(self, write: Callable[[], object]) -> None:
        try:
            if self._has_room:
                write()
        except OSError:
            self._has_room = False


def _open_log(path: Path) -> _RunLog:
    """Opens the log of a run.

    Raises:
      OutputError: it cannot be created.
    """
    try:
        return _RunLog(path.open("ab"), encoding="utf-8")
    except OSError as error:
        raise output_error(error, str(path), "written") from error


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Sends all logging and stderr to the run's log: Beam's are not for the terminal."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    with _open_log(path) as log, redirect_stderr(log):
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
