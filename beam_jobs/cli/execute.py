"""Runs a job for a command: bars or log lines, metrics, and the summary."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recordmill.beam_jobs.cli.signals import PUBLISHED_CHECK_SECONDS, Signals
from recordmill.beam_jobs.report.monitoring import (
    LogLines,
    RunEnd,
    require_metrics_file,
    write_metrics,
)
from recordmill.beam_jobs.report.progress import Bars, PlainLines
from recordmill.beam_jobs.report.streams import FinishedWork
from recordmill.beam_jobs.report.summary import (
    outcome_fields,
    show_outcome,
    show_submitted,
)
from recordmill.beam_jobs.report.terminal import echo_message, make_console
from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.beam_jobs.service.run import FailureReport, JobSubmitted, run_versioned
from recordmill.schemas.errors import (
    Interrupted,
    RecordmillError,
    error_kind,
    exit_status,
)
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.options import spell_options
from recordmill.schemas.storage_options import redact_secrets
from recordmill.transforms.tasks.progress_reader import Reporter

if TYPE_CHECKING:
    from recordmill.beam_jobs.report.receivers import Receivers


# Environment variables with these prefixes enable receivers (report/receivers.py).
_RECEIVER_PREFIXES = ("OPENLINEAGE_", "OTEL_EXPORTER_OTLP_")


def execute_job(job: JobSpec, options: RunOptions, signals: Signals) -> FinishedWork:
    """Runs a job; reports its outcome or failure, also to metrics, receivers and log."""
    without_metrics = replace(options, metrics_file="")
    if options.metrics_file:
        with report_failure(signals, without_metrics, job.name):
            require_metrics_file(options.metrics_file)
    reporter = _make_reporter(options)
    receivers = _make_receivers(options, job.name)
    if receivers:
        reporter.on_begin = receivers.begin
    last_words = FailureReport()
    watched = reporter.seconds_by_stage, last_words, receivers
    started = time.time()
    with report_failure(signals, options, job.name, *watched):
        try:
            with reporter:
                outcome = run_versioned(job, options, reporter, last_words)
        except RecordmillError as error:
            last_words.add_to_error(error)
            raise
        except JobSubmitted as end:
            # The metrics describe datasets, so the metrics of the last run stay.
            return _report_finished_work(
                f"The job for {end.output} was {end.status}",
                options,
                partial(_report_submitted, options, end, reporter),
            )
    times = started, time.time()
    return _report_finished_work(
        f"The dataset was published in {outcome.output}",
        options,
        partial(_report_outcome, job, options, times, outcome, reporter, receivers),
    )


def _report_finished_work(
    sentence: str, options: RunOptions, report: Callable[[], None]
) -> FinishedWork:
    """Reports finished work, and returns it even if the report fails."""
    problem = ""
    try:
        report()
    except Interrupted as interrupted:
        interrupted.progress = f"{sentence[0].lower()}{sentence[1:]}"
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}"
        problem = f"{type(error).__name__} in {place}: {error}"
    return FinishedWork(sentence, options.log_format, problem)


def _report_submitted(
    options: RunOptions, end: JobSubmitted, reporter: Reporter
) -> None:
    lines = reporter if isinstance(reporter, LogLines) else None
    if lines:
        destinations = {"output": end.output, "template": end.template}
        lines.write_event(f"run_{end.status}", **destinations, job=end.job)
    if options.as_json or not lines:
        show_submitted(end, as_json=options.as_json)


def _report_outcome(
    job: JobSpec,
    options: RunOptions,
    times: tuple[float, float],
    outcome: Outcome,
    reporter: Reporter,
    receivers: Receivers | None,
) -> None:
    """Reports a successful run to metrics, receivers, log, and people."""
    input_report = outcome.input_report.with_spelling(
        partial(spell_options, style=options.style)
    )
    outcome = replace(
        outcome, input_report=input_report, stages=reporter.seconds_by_stage
    )
    place = job.name, options.output
    _report_end(
        options, RunEnd(*place, *times, reporter.seconds_by_stage, outcome), receivers
    )
    lines = reporter if isinstance(reporter, LogLines) else None
    if lines:
        _log_outcome(lines, outcome)
    if options.as_json or not lines:
        show_outcome(outcome, as_json=options.as_json)


@contextmanager
def report_failure(
    signals: Signals,
    options: RunOptions,
    dataset: str,
    stages: Mapping[str, float] | None = None,
    last_words: FailureReport | None = None,
    receivers: Receivers | None = None,
) -> Iterator[None]:
    """Reports a failure within the block to the metrics, the receivers and the log.

    `stages` holds the seconds of each stage and is filled during the run. `last_words`
    finds out what an interrupted run published. A logged error is marked as logged.
    """
    started, stream = time.time(), sys.stderr  # a run redirects sys.stderr to its log

    def report_error(error: BaseException, seconds: float | None = None) -> None:
        if isinstance(error, Interrupted):
            error.progress = (last_words or FailureReport()).describe_published_state(
                seconds
            )
        message = redact_secrets(spell_options(str(error), options.style))
        place, times = (dataset, options.output), (started, time.time())
        end = RunEnd(*place, *times, stages or {}, None, error, message)
        _report_end(
            options, end, receivers or _make_receivers(options, dataset), seconds
        )
        if options.log_format:
            LogLines(options.log_format, stream).write_event(
                "run_failed",
                "error",
                dataset=dataset,
                kind=error_kind(error),
                exit_status=exit_status(error),
                message=message,
            )
            if isinstance(error, RecordmillError | Interrupted):
                error.logged_format = options.log_format

    with signals.reporting_at_deadline(
        partial(report_error, seconds=PUBLISHED_CHECK_SECONDS)
    ):
        try:
            yield
        except BaseException as error:
            report_error(error)
            raise


def _make_receivers(options: RunOptions, dataset: str) -> Receivers | None:
    """Returns the receivers on the network; None if no option or variable names any."""
    receiver_flags = (
        bool(v) and n.startswith(_RECEIVER_PREFIXES) for n, v in os.environ.items()
    )
    if not (options.metrics_push or any(receiver_flags)):
        return None
    from recordmill.beam_jobs.report.receivers import Receivers

    return Receivers(dataset, options.output, options.metrics_push)


def _report_end(
    options: RunOptions,
    end: RunEnd,
    receivers: Receivers | None,
    seconds: float | None = None,
) -> None:
    """Sends the end of a run to metrics and receivers; a failure is only a warning.

    `seconds` is the remaining time, or None if the process has no deadline.
    """
    failed = []
    if options.metrics_file:
        try:
            write_metrics(options.metrics_file, end)
        except RecordmillError as error:
            failed.append(("metrics_failed", str(error)))
        except Exception as error:  # the status of the run is final
            failed.append(("metrics_failed", f"{type(error).__name__}: {error}"))
    if receivers:
        problems = receivers.end(end, *([] if seconds is None else [seconds / 4]))
        failed += [("receiver_failed", problem) for problem in problems]
    for event, text in failed:
        message = spell_options(text, options.style)
        if options.log_format:
            LogLines(options.log_format, sys.stderr).write_event(
                event, "warning", message=message
            )
        else:
            echo_message(f"Warning: {message}")


def _make_reporter(options: RunOptions) -> Reporter:
    """Returns the reporter of a run, for stderr; silent if only JSON is requested."""
    # The run redirects its own stderr to the log.
    stream, in_style = sys.stderr, partial(spell_options, style=options.style)
    if options.log_format:
        return LogLines(options.log_format, stream, in_style)
    if options.as_json:
        return Reporter()
    if stream.isatty():
        return Bars(make_console(stream), in_style)
    return PlainLines(stream, in_style)


def _log_outcome(lines: LogLines, outcome: Outcome) -> None:
    facts = outcome_fields(outcome)
    status, reasons, stages = map(facts.pop, ("status", "reasons", "stages"))
    del facts["classes"]  # too many numbers for one line
    if rejected := outcome.manifest.rows_rejected:
        reject_fields = {"rows": rejected, "kept": outcome.rejects}
        lines.write_event("rows_rejected", "warning", **reject_fields, reasons=reasons)
    lines.write_warnings(outcome.input_report)
    lines.write_event(f"run_{status}", **facts, stages=stages)
