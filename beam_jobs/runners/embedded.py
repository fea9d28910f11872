"""Running a pipeline: the embedded runner made explicit, and never a silent hang.

The bare DirectRunner may download and run another engine, so "DirectRunner" here means
an FnApiRunner of our own. Its workers are threads: Arrow, NumPy and file calls let the
interpreter go, so threads measured faster than processes and start at once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
)
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import (
    ExtendedProvisionInfo,
    FnApiRunner,
)
from apache_beam.runners.portability.portable_runner import JobServiceHandle

from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.job.job_spec import is_embedded_runner

DATAFLOW = ("dataflowrunner", "dataflow")
POLL_SECONDS = 0.05
# A worker that comes back from Arrow or NumPy waits this long for one that is in
# Python; at the interpreter's own 5 ms two workers lose a tenth of their time.
SWITCH_SECONDS = 0.0005


class WorkerDiedError(RecordmillError):
    """A worker ended in mid-run; the runner itself would wait for it for ever."""


def pipeline_options(beam_args: Sequence[str], workers: int) -> PipelineOptions:
    """The options given after "--", strictly, with the embedded runner's defaults.

    Raises:
      UsageError: an option that Beam does not know, or a value it refuses.
    """
    options = PipelineOptions(list(beam_args))
    parsers: list[object] = []
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            options.get_all_options(add_extra_args_fn=parsers.append)
            _, unknown = parsers[0].parse_known_args(list(beam_args))  # type: ignore[attr-defined]
    except SystemExit as error:
        reason = complaint.getvalue().strip().splitlines()[-1:]
        raise UsageError(f"Beam option: {''.join(reason)}") from error
    embedded, server_knows = is_embedded(options), False
    if not embedded:
        # Several runners come with this: only where one of them is asked for.
        from recordmill.beam_jobs.runners.portable_options import (
            StrictOptions,
            asks_job_server,
            check_remote,
        )

        options = StrictOptions(list(beam_args))
        server_knows = asks_job_server(options)
    if unknown and not (server_knows and unknown[0].startswith("--")):
        raise UsageError(
            f"Beam knows no option {unknown[0]}; what stands after -- goes to Beam"
        )
    # Code lives in importable packages, so the launcher's main module never travels.
    options.view_as(SetupOptions).save_main_session = False
    if embedded:
        direct = options.view_as(DirectOptions)
        given = " ".join(beam_args)
        # In memory, several workers are threads all the same (whatever Beam logs), and
        # no bundle goes through gRPC.
        if "--direct_running_mode" not in given:
            direct.direct_running_mode = "in_memory"
        if "--direct_num_workers" not in given:
            direct.direct_num_workers = workers or os.cpu_count() or 1
    else:
        only_translates(options)  # refuses wishes that the runner would pass over
        check_remote(options, beam_args)
    return options


def is_embedded(options: PipelineOptions) -> bool:
    """Whether the job runs in this process, on the embedded runner."""
    return is_embedded_runner(options.view_as(StandardOptions).runner)


def only_translates(options: PipelineOptions) -> bool:
    """Whether the pipeline is only translated: for a dry run, or into a template.

    A Flex launch is one, too: its launcher asks for a template, and the service runs
    what it finds there.

    Raises:
      UsageError: a runner that would pass over the wish, and run.
    """
    dry_run = bool(options.view_as(TestOptions).dry_run)
    if not dry_run and not options.view_as(GoogleCloudOptions).template_location:
        return False
    name = str(options.view_as(StandardOptions).runner)
    if name.rpartition(".")[2].lower() not in DATAFLOW:
        wish = "--dry_run" if dry_run else "--template_location"
        raise UsageError(
            f"{wish} is for --runner=DataflowRunner, got {runner_name(options)}, which "
            "would run the job; to see what it would do, say --plan instead"
        )
    return True


def embedded_workers(options: PipelineOptions) -> int:
    """Workers of the embedded runner; 0 if the job runs elsewhere."""
    if not is_embedded(options):
        return 0
    return int(options.view_as(DirectOptions).direct_num_workers)


def runner_name(options: PipelineOptions) -> str:
    """The runner's name for people."""
    if is_embedded(options):
        direct = options.view_as(DirectOptions)
        return f"embedded ({direct.direct_num_workers} workers)"
    return str(options.view_as(StandardOptions).runner)


def run_pipeline(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    on_poll: Callable[[], None] = lambda: None,
) -> None:
    """Runs a pipeline to its end, calling `on_poll` from this thread meanwhile.

    Raises:
      WorkerDiedError: a worker thread or process ended in mid-run.
      Exception: whatever the pipeline failed with.
    """
    if not is_embedded(options):
        from recordmill.beam_jobs.runners.portable import run_remote

        run_remote(build, options, on_poll)
        return
    failures: list[BaseException] = []

    def run() -> None:
        try:
            pipeline = beam.Pipeline(runner=_embedded(options), options=options)
            build(pipeline)
            pipeline.run().wait_until_finish()
        except BaseException as error:  # carried to the caller's thread
            failures.append(error)

    # A daemon, because after a worker's death it never comes back.
    thread = threading.Thread(target=run, name="pipeline", daemon=True)
    with _watching_workers() as deaths, _switching_threads_often():
        thread.start()
        while thread.is_alive():
            thread.join(POLL_SECONDS)
            on_poll()
            if deaths:
                raise WorkerDiedError(
                    f"a worker died: {deaths[0]}. Out of memory, or killed? What was "
                    "finished is kept; the same command goes on from there"
                )
    if failures:
        raise failures[0]


def _embedded(options: PipelineOptions) -> FnApiRunner:
    # Without provision info the workers of multi_processing would see no options.
    everything = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    info = beam_provision_api_pb2.ProvisionInfo(
        pipeline_options=everything, retrieval_token="unused-retrieval-token"
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

    The runner has no check of its own that its workers live. It starts each in a
    thread "run_worker", which ends with an error when the worker (the thread itself,
    or the process it waits for) does.
    """
    deaths: list[BaseException] = []
    before = threading.excepthook

    def note(facts: threading.ExceptHookArgs) -> None:
        name = facts.thread.name if facts.thread else ""
        if name.startswith("run_worker") and facts.exc_value is not None:
            deaths.append(facts.exc_value)
        else:
            before(facts)

    threading.excepthook = note
    try:
        yield deaths
    finally:
        threading.excepthook = before
