"""Runs a job for a command: bars or log lines, metrics, and the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from recordmill.beam_jobs.cli.signals import STATE_SECONDS, Signals
from recordmill.beam_jobs.report.monitoring import (
    LogLines,
    require_metrics_file,
    write_metrics,
)
from recordmill.beam_jobs.report.progress import Bars, PlainLines
from recordmill.beam_jobs.report.summary import (
    outcome_facts,
    show_outcome,
    show_submitted,
)
from recordmill.beam_jobs.report.terminal import echo, make_console
from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.beam_jobs.service.run import JobSubmitted, LastWords, run_versioned
from recordmill.schemas.errors import Interrupted, RecordmillError, exit_status, kind_of
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.options import spell
from recordmill.transforms.tasks.progress_reader import Reporter


def execute(job: JobSpec, options: RunOptions, signals: Signals) -> None:
    """Runs a job and shows how it ended; metrics and log say so, too, if it failed."""
    without_metrics = replace(options, metrics_file="")
    if options.metrics_file:
        with report_failure(signals, without_metrics, job.name):
            require_metrics_file(options.metrics_file)
    reporter = _reporter(options)
    lines = reporter if isinstance(reporter, LogLines) else None
    last_words = LastWords()
    with report_failure(signals, options, job.name, reporter.seconds, last_words):
        try:
            with reporter:
                outcome = run_versioned(job, options, reporter, last_words)
        except RecordmillError as error:
            last_words.add_to(error)
            raise
        except JobSubmitted as end:
            # The metrics are about datasets: those of the last run stay.
            if lines:
                where = {"output": end.output, "template": end.template}
                lines.event(f"run_{end.status}", **where, job=end.job)
            if options.as_json or not lines:
                show_submitted(end, as_json=options.as_json)
            return
    understood = outcome.understood.spelled(partial(spell, style=options.style))
    outcome = replace(outcome, understood=understood, stages=reporter.seconds)
    _write_metrics(options, job.name, outcome.seconds, outcome, outcome.stages)
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
    last_words: LastWords | None = None,
) -> Iterator[None]:
    """Writes to the metrics and the log that a run failed.

    `stages` are the seconds of each, filled in as the run goes on, and `last_words` know
    what an interrupted one published. An error that is in the log is marked so.
    """
    started, stream = time.time(), sys.stderr  # which a run redirects to its log

    def tell(error: BaseException, seconds: float | None = None) -> None:
        if isinstance(error, Interrupted):
            error.state = (last_words or LastWords()).state(seconds)
        _write_metrics(options, dataset, time.time() - started, None, stages or {})
        if options.log_format:
            lines = LogLines(options.log_format, stream)
            with suppress(OSError):  # the terminal may be gone: SIGHUP says so
                lines.event(
                    "run_failed",
                    "error",
                    dataset=dataset,
                    kind=kind_of(error),
                    exit_status=exit_status(error),
                    message=spell(str(error), options.style),
                )
            if isinstance(error, RecordmillError | Interrupted):
                error.in_log = True

    with signals.told_at_the_deadline(partial(tell, seconds=STATE_SECONDS)):
        try:
            yield
        except BaseException as error:
            tell(error)
            raise


def _write_metrics(
    options: RunOptions,
    dataset: str,
    seconds: float,
    outcome: Outcome | None,
    stages: Mapping[str, float],
) -> None:
    """Writes the metrics; if that fails, a warning says so: it changes no outcome."""
    if not options.metrics_file:
        return
    try:
        write_metrics(options.metrics_file, dataset, seconds, outcome, stages)
    except RecordmillError as error:
        message = spell(str(error), options.style)
        if options.log_format:
            lines = LogLines(options.log_format, sys.stderr)
            lines.event("metrics_failed", "warning", message=message)
        else:
            echo(f"Warning: {message}", err=True)


def _reporter(options: RunOptions) -> Reporter:
    """Returns what shows the progress; warnings go to stderr, except beside JSON."""
    # The run sends its own stderr to the log.
    stream, in_style = sys.stderr, partial(spell, style=options.style)
    if options.log_format:
        return LogLines(options.log_format, stream, in_style)
    if options.as_json:
        return Reporter()
    if stream.isatty():
        return Bars(make_console(stream), in_style)
    return PlainLines(stream, in_style)


def _log_outcome(lines: LogLines, outcome: Outcome) -> None:
    facts = outcome_facts(outcome)
    status, reasons, stages = map(facts.pop, ("status", "reasons", "stages"))
    del facts["classes"]  # many numbers in one line
    if rejected := outcome.manifest.rows_rejected:
        kept = {"rows": rejected, "kept": outcome.rejects}
        lines.event("rows_rejected", "warning", **kept, reasons=reasons)
    lines.warn(outcome.understood)
    lines.event(f"run_{status}", **facts, stages=stages)
