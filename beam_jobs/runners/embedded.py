"""Runs a pipeline on the embedded runner, and notices when one of its workers dies.

Beam's DirectRunner can download and start another engine, so here "DirectRunner" means
Beam's FnApiRunner. Its workers are threads: Arrow, NumPy and file calls release the
interpreter lock, so threads measured faster than processes, and they start at once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    TypeOptions,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import (
    ExtendedProvisionInfo,
    FnApiRunner,
)
from apache_beam.runners.portability.portable_runner import (
    JobServiceHandle,
    PortableRunner,
)

from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.job import is_embedded_runner
from recordmill.transforms.machine import usable_cores
from recordmill.transforms.parallel import run_in_thread

_Options = TypeVar("_Options", bound=PipelineOptions)

DATAFLOW = ("dataflowrunner", "dataflow")
POLL_SECONDS = 0.05
# A worker that returns from Arrow or NumPy waits this long for the interpreter lock;
# with Python's default of 5 ms two workers lose 10 % of their time.
SWITCH_SECONDS = 0.0005


class WorkerDiedError(RecordmillError):
    """A worker ended during the run; the runner itself would wait for it for ever."""


class KeptViews(PipelineOptions):
    """Options that build each view once.

    Beam asks for a view some 220 times in a run, and each time builds a parser of all
    options in it: a third of the processor time of a small run. Views share their values,
    so one of each is enough.
    """

    def view_as(self, cls: type[_Options]) -> _Options:
        """Returns the one view of that class."""
        views: dict[type, Any] = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: _Options = views[cls]
        return view

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy takes over: views would hold the values of the original."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {name: value for name, value in state.items() if name != "_views"}


def pipeline_options(beam_args: Sequence[str], workers: int) -> PipelineOptions:
    """Parses Beam's options strictly, with defaults for the embedded runner.

    `workers` are threads of the embedded runner; 0 for one per core.

    Raises:
      UsageError: Beam does not know an option, or refuses its value.
    """
    options: PipelineOptions = KeptViews(list(beam_args))
    parsers: list[object] = []
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            options.get_all_options(add_extra_args_fn=parsers.append)
            _, unknown = parsers[0].parse_known_args(list(beam_args))  # type: ignore[attr-defined]
    except SystemExit as error:
        reason = printed.getvalue().strip().splitlines()[-1:]
        raise UsageError(f"Beam option: {''.join(reason)}") from error
    embedded, server_knows = is_embedded(options), False
    if not embedded:
        # This imports several runners, so only if one of them is used.
        from recordmill.beam_jobs.runners.portable import (
            StrictOptions,
            check_remote,
            runner_of,
        )

        options = StrictOptions(list(beam_args))
        runner = runner_of(options)
        server_knows = isinstance(runner, PortableRunner)
    if unknown and not (server_knows and unknown[0].startswith("--")):
        raise UsageError(
            f"Beam has no option {unknown[0]}; arguments after -- are passed to Beam"
        )
    # All code is in installed packages, so the main module is never sent to workers.
    options.view_as(SetupOptions).save_main_session = False
    if embedded:
        direct = options.view_as(DirectOptions)
        arguments = " ".join(beam_args)
        # The types of the steps are checked where the tests run them on other runners.
        options.view_as(TypeOptions).pipeline_type_check = False
        # In this mode several workers are threads (whatever Beam logs), and no bundle
        # is sent through gRPC.
        if "--direct_running_mode" not in arguments:
            direct.direct_running_mode = "in_memory"
        if "--direct_num_workers" not in arguments:
            direct.direct_num_workers = workers or usable_cores()
    else:
        only_translates(options)  # raises if the runner would ignore such an option
        check_remote(options, runner, beam_args)
    return options


def is_embedded(options: PipelineOptions) -> bool:
    """Returns whether the job runs in this process, on the embedded runner."""
    return is_embedded_runner(options.view_as(StandardOptions).runner)


def only_translates(options: PipelineOptions) -> bool:
    """Returns whether the pipeline is only translated, for a dry run or a template.

    A Flex Template is launched like this, too: its launcher writes a template, and the
    service runs it.

    Raises:
      UsageError: the runner would ignore the option, and run the job.
    """
    dry_run = bool(options.view_as(TestOptions).dry_run)
    if not dry_run and not options.view_as(GoogleCloudOptions).template_location:
        return False
    name = str(options.view_as(StandardOptions).runner)
    if name.rpartition(".")[2].lower() not in DATAFLOW:
        option = "--dry_run" if dry_run else "--template_location"
        raise UsageError(
            f"{option} needs --runner=DataflowRunner, got {runner_name(options)}, which "
            "would run the job. To see what a job would do, use `plan`"
        )
    return True


def works_in_threads(options: PipelineOptions) -> bool:
    """Tells whether all workers are threads of this process, which share its memory."""
    direct = options.view_as(DirectOptions)
    return is_embedded(options) and direct.direct_running_mode == "in_memory"


def runner_name(options: PipelineOptions) -> str:
    """Returns the name of the runner for messages."""
    if is_embedded(options):
        direct = options.view_as(DirectOptions)
        return f"embedded ({direct.direct_num_workers} workers)"
    return str(options.view_as(StandardOptions).runner)


def run_pipeline(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    on_poll: Callable[[], None] = lambda: None,
) -> None:
    """Runs a pipeline to its end, and calls `on_poll` from this thread meanwhile.

    Raises:
      WorkerDiedError: a worker thread or process ended during the run.
      Exception: the error with which the pipeline failed.
    """
    if not is_embedded(options):
        from recordmill.beam_jobs.runners.portable import run_remote

        run_remote(build, options, on_poll)
        return

    def run() -> None:
        pipeline = beam.Pipeline(runner=_embedded(options), options=options)
        build(pipeline)
        pipeline.run().wait_until_finish()

    def poll() -> None:
        on_poll()
        if deaths:
            raise WorkerDiedError(
                f"a worker died: {deaths[0]}. Was it out of memory, or killed? Run "
                "the same command again to resume"
            )

    with _watching_workers() as deaths, _switching_threads_often():
        run_in_thread(run, threading.Event(), poll, POLL_SECONDS)


# Flink holds each group of GroupByKey in memory as one value, and makes one bundle of all
# that a slot gets of a step. A stateful step gets values one by one, with one bundle per
# key.


def is_flink(pipeline: beam.Pipeline) -> bool:
    """Returns whether Flink runs a pipeline, also through a job server."""
    if pipeline.runner is None or isinstance(pipeline.runner, FnApiRunner):
        return False
    # This imports several runners, so only if one of them is used.
    from recordmill.beam_jobs.runners.portable import runs_on_flink

    return runs_on_flink(pipeline)


def _embedded(options: PipelineOptions) -> FnApiRunner:
    # Without provision info the workers of multi_processing would get no options.
    all_options = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(
        pipeline_options=all_options, retrieval_token="unused-retrieval-token"
    )
    return FnApiRunner(provision_info=ExtendedProvisionInfo(info))


@contextmanager
def _switching_threads_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _watching_workers() -> Iterator[list[BaseException]]:
    """Collects the errors that end worker threads.

    The runner does not check that its workers are alive. It starts each in a thread
    named "run_worker", which ends with an error when the worker does: the thread
    itself, or the process for which it waits.
    """
    deaths: list[BaseException] = []
    before = threading.excepthook

    def collect(hook: threading.ExceptHookArgs) -> None:
        name = hook.thread.name if hook.thread else ""
        if name.startswith("run_worker") and hook.exc_value is not None:
            deaths.append(hook.exc_value)
        else:
            before(hook)

    threading.excepthook = collect
    try:
        yield deaths
    finally:
        threading.excepthook = before
