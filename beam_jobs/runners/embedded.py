"""Runs a pipeline on the embedded runner.

Beam's DirectRunner can download and start another engine, so in recordmill "DirectRunner"
means Beam's FnApiRunner. Its workers are threads: Arrow, NumPy and file calls release the
interpreter lock, and threads start immediately. For large inputs, the threads pass their
tasks to processes (transforms/tasks/processes.py).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from types import FunctionType, MethodType
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
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.transforms import core, userstate

from recordmill.beam_jobs.runners.new_pipeline import new_pipeline
from recordmill.schemas.errors import UsageError
from recordmill.schemas.job import is_embedded_runner
from recordmill.transforms.parallel import run_in_thread

_Options = TypeVar("_Options", bound=PipelineOptions)
_Arguments = tuple[list[str], list[Any]]

DATAFLOW = ("dataflowrunner", "dataflow")
POLL_SECONDS = 0.05
# A worker that returns from Arrow or NumPy waits this long for the interpreter lock.
# With Python's default of 5 ms, two workers lose 10 % of their time.
SWITCH_SECONDS = 0.0005


class CachedViewOptions(PipelineOptions):
    """Options that build each view once.

    Beam requests views about 220 times in a run, and builds a parser of all their options
    each time: a third of the processor time of a small run. Views share their values, so
    one view per class is sufficient.
    """

    def view_as(self, cls: type[_Options]) -> _Options:
        """Returns the cached view of a class; builds it on first use."""
        views: dict[type, Any] = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        view: _Options = views[cls]
        return view

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for a copy: views would hold the values of the original."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {name: value for name, value in state.items() if name != "_views"}


def pipeline_options(beam_args: Sequence[str], workers: int) -> PipelineOptions:
    """Parses Beam's options strictly, with defaults for the embedded runner.

    `workers` is the number of threads of the embedded runner.

    Raises:
      UsageError: Beam does not know an option, or refuses its value.
    """
    options: PipelineOptions = CachedViewOptions(list(beam_args))
    unknown = _unknown_arguments(options, beam_args) if beam_args else []
    embedded, server_knows = is_embedded(options), False
    if not embedded:
        # This import loads several runners, so it runs only if one of them is used.
        from recordmill.beam_jobs.runners.portable import (
            StrictOptions,
            check_remote,
            create_runner_for,
        )

        options = StrictOptions(list(beam_args))
        runner = create_runner_for(options)
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
        # The tests check the types of the steps on other runners.
        options.view_as(TypeOptions).pipeline_type_check = False
        # In this mode, several workers are threads (despite Beam's log message), and no
        # bundle is sent through gRPC. Processes can still execute the tasks, as requested
        # with multi_processing (service/prepare.py).
        direct.direct_running_mode = "in_memory"
        if "--direct_num_workers" not in arguments:
            direct.direct_num_workers = workers
    else:
        is_only_translated(options)  # raises if the runner would ignore such an option
        check_remote(options, runner, beam_args)
    return options


def _unknown_arguments(options: PipelineOptions, beam_args: Sequence[str]) -> list[str]:
    parsers: list[object] = []
    printed = StringIO()
    try:
        with redirect_stderr(printed):
            options.get_all_options(add_extra_args_fn=parsers.append)
            _, unknown = parsers[0].parse_known_args(list(beam_args))  # type: ignore[attr-defined]
    except SystemExit as error:
        reason = printed.getvalue().strip().splitlines()[-1:]
        raise UsageError(f"Beam option: {''.join(reason)}") from error
    return list(unknown)


def is_embedded(options: PipelineOptions) -> bool:
    """Returns True if the job runs in this process, on the embedded runner."""
    return is_embedded_runner(options.view_as(StandardOptions).runner)


def is_only_translated(options: PipelineOptions) -> bool:
    """Returns True if the pipeline is only translated, for a dry run or a template.

    A Flex Template is also translated: its launcher writes a template, and the service
    runs the template.

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


def runner_name(options: PipelineOptions, processes: int = 0) -> str:
    """Returns the name of the runner for messages, with its number of workers."""
    if processes:
        return f"embedded ({processes} processes)"
    if is_embedded(options):
        direct = options.view_as(DirectOptions)
        return f"embedded ({direct.direct_num_workers} workers)"
    return str(options.view_as(StandardOptions).runner)


def run_pipeline(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    on_poll: Callable[[], None] = lambda: None,
    *,
    folder: str = "",
) -> None:
    """Runs a pipeline to its end, and calls `on_poll` from this thread meanwhile.

    `folder` is the local folder in which Beam creates its temporary folder; by default
    TMPDIR.

    Raises:
      Exception: the error with which the pipeline failed.
    """
    if not is_embedded(options):
        from recordmill.beam_jobs.runners.portable import run_remote

        run_remote(build, options, on_poll, folder=folder)
        return

    def run() -> None:
        with caching_signatures():
            pipeline = new_pipeline(FnApiRunner(), options, folder)
            build(pipeline)
            pipeline.run().wait_until_finish()

    previous_interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        run_in_thread(run, threading.Event(), on_poll, POLL_SECONDS)
    finally:
        sys.setswitchinterval(previous_interval)


@contextmanager
def caching_signatures() -> Iterator[None]:
    """Caches, within the block, the signatures that Beam inspects.

    Beam inspects the signatures of a step's methods, and the state that they declare, for
    each step and worker. That is hundreds of times in a run, and a fifth of the processor
    time of a small pipeline.
    """
    find, known_arguments = (
        core.get_function_args_defaults,
        dict[FunctionType, _Arguments](),
    )
    find_specs, known_specs = userstate.get_dofn_specs, dict[Any, Any]()

    def arguments_of(f: Any) -> _Arguments:
        inner = f.__func__ if isinstance(f, MethodType) else None
        if not isinstance(inner, FunctionType):
            return find(f)
        if inner not in known_arguments:
            known_arguments[inner] = find(f)
        names, defaults = known_arguments[inner]
        return [*names], [*defaults]

    def specs_of(dofn: Any) -> Any:
        kind = type(dofn), getattr(dofn, "_fn", None)  # the function of a beam.Map
        if kind not in known_specs:
            known_specs[kind] = find_specs(dofn)
        return known_specs[kind]

    with (
        _replacing_attribute(core, "get_function_args_defaults", arguments_of),
        _replacing_attribute(userstate, "get_dofn_specs", specs_of),
    ):
        yield


@contextmanager
def _replacing_attribute(module: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)


# Flink holds each group of GroupByKey in memory as one value, and puts all elements
# that a slot receives for a step into one bundle. A stateful step receives values one
# by one, with one bundle per key.


def is_flink(pipeline: beam.Pipeline) -> bool:
    """Returns True if Flink runs a pipeline, directly or through a job server."""
    if pipeline.runner is None or isinstance(pipeline.runner, FnApiRunner):
        return False
    # This import loads several runners, so it runs only if one of them is used.
    from recordmill.beam_jobs.runners.portable import runs_on_flink

    return runs_on_flink(pipeline)
