"""Runs a job for a command: bars or log lines, metrics, and the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from recordmill.beam_jobs.cli.signals import told_at_the_deadline
from recordmill.beam_jobs.report.monitoring import (
    LogLines,
    Stages,
    require_metrics_file,
    write_metrics,
)
from recordmill.beam_jobs.report.progress import Bars, PlainLines, Silent
from recordmill.beam_jobs.report.summary import (
    outcome_facts,
    show_outcome,
    show_submitted,
)
from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.beam_jobs.service.run import JobSubmitted, run_versioned
from recordmill.schemas.errors import (
    Interrupted,
    RecordmillError,
    exit_status,
    kind_of,
)
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.job import JobSpec, ReportOptions, RunOptions
from recordmill.schemas.options import spell
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.progress_reader import Reporter

_UNPUBLISHED = "nothing was published. Run the same command again to resume"


def execute(job: JobSpec, options: RunOptions, report_options: ReportOptions) -> None:
    """Runs a job and shows how it ended.

    Raises:
      RecordmillError: it failed; metrics and log say so, too.
    """
    stages = Stages()
    lines = (
        LogLines(report_options.log_format, sys.stderr, report_options.style)
        if report_options.log_format
        else None
    )
    without_metrics = replace(report_options, metrics_file="")
    if report_options.metrics_file:
        with report_failure(without_metrics, job.name):
            require_metrics_file(report_options.metrics_file)
    with report_failure(report_options, job.name, stages.seconds):
        try:
            with nullcontext(lines) if lines else _shown(report_options) as shown:
                outcome = run_versioned(job, options, _Several([stages, shown]))
        except JobSubmitted as end:
            # The metrics are about datasets: those of the last run stay.
            if lines:
                lines.event(
                    f"run_{end.status}",
                    output=end.output,
                    template=end.template,
                    job=end.job,
                )
            if report_options.as_json or not lines:
                show_submitted(end, as_json=report_options.as_json)
            return
    understood = outcome.understood.spelled(partial(spell, style=report_options.style))
    outcome = replace(outcome, understood=understood, stages=stages.seconds)
    if report_options.metrics_file:
        _write_metrics(
            report_options, job.name, outcome.seconds, outcome, stages.seconds
        )
    if lines:
        _log_outcome(lines, outcome, stages.seconds)
    if report_options.as_json or not lines:
        show_outcome(outcome, as_json=report_options.as_json)


@contextmanager
def report_failure(
    report_options: ReportOptions,
    dataset: str,
    stages: Mapping[str, float] | None = None,
) -> Iterator[None]:
    """Notes in the metrics and the log that a run failed.

    Args:
      report_options: where they are.
      dataset: its name; "" if it is not known yet.
      stages: seconds of each stage, filled in as the run goes on.

    Raises:
      BaseException: what was raised inside; one that is in the log is marked so.
    """
    started, stream = time.time(), sys.stderr  # which a run redirects to its log

    def tell(error: BaseException) -> None:
        if isinstance(error, Interrupted) and not error.state:
            error.state = _UNPUBLISHED
        if report_options.metrics_file:
            seconds = time.time() - started
            _write_metrics(report_options, dataset, seconds, None, stages or {})
        if report_options.log_format:
            lines = LogLines(report_options.log_format, stream)
            with suppress(OSError):  # the terminal may be gone: SIGHUP says so
                lines.event(
                    "run_failed",
                    "error",
                    dataset=dataset,
                    kind=kind_of(error),
                    exit_status=exit_status(error),
                    message=spell(str(error), report_options.style),
                )
            if isinstance(error, RecordmillError | Interrupted):
                error.in_log = True

    with told_at_the_deadline(tell):
        try:
            yield
        except BaseException as error:
            tell(error)
            raise


def _write_metrics(
    report_options: ReportOptions,
    dataset: str,
    seconds: float,
    outcome: Outcome | None,
    stages: Mapping[str, float],
) -> None:
    """Writes the metrics; if that fails, a warning says so: it changes no outcome."""
    file = report_options.metrics_file
    try:
        write_metrics(file, dataset, seconds, outcome, stages)
    except RecordmillError as error:
        message = spell(str(error), report_options.style)
        if report_options.log_format:
            lines = LogLines(report_options.log_format, sys.stderr)
            lines.event("metrics_failed", "warning", message=message)
        else:
            sys.stderr.write(f"Warning: {message}\n")


def _shown(report_options: ReportOptions) -> Silent:
    """Returns what shows the progress; warnings go to stderr, except beside JSON."""
    if report_options.as_json:
        return Silent()
    stream = sys.stderr  # the run sends its own to the log

    def warn(warning: str) -> None:
        stream.write(f"Warning: {spell(warning, report_options.style)}\n")
        stream.flush()

    if not stream.isatty():
        return PlainLines(stream, warn)
    from rich.console import Console

    return Bars(Console(file=stream), spell=partial(spell, style=report_options.style))


def _log_outcome(
    lines: LogLines, outcome: Outcome, stages: Mapping[str, float]
) -> None:
    facts = outcome_facts(outcome)
    status, reasons = facts.pop("status"), facts.pop("reasons")
    del facts["classes"], facts["stages"]  # many numbers in one line
    if outcome.manifest.rows_rejected:
        rejected = outcome.manifest.rows_rejected
        lines.event(
            "rows_rejected",
            "warning",
            rows=rejected,
            kept=outcome.rejects,
            reasons=reasons,
        )
    lines.warn(outcome.understood)
    rounded = {stage: round(seconds, 3) for stage, seconds in stages.items()}
    lines.event(f"run_{status}", **facts, stages=rounded)


class _Several(Reporter):
    """A reporter that passes everything on to several others."""

    def __init__(self, reporters: Sequence[Reporter]) -> None:
        self._reporters = reporters

    def doing(self, stage: str, what: str) -> None:
        for reporter in self._reporters:
            reporter.doing(stage, what)

    def tell(self, understood: Understood) -> None:
        for reporter in self._reporters:
            reporter.tell(understood)

    def begin(
        self, context: RunContext, ranges: Sequence[InputRange], input_bytes: int
    ) -> None:
        for reporter in self._reporters:
            reporter.begin(context, ranges, input_bytes)

    def poll(self) -> None:
        for reporter in self._reporters:
            reporter.poll()

    def end(self) -> None:
        for reporter in self._reporters:
            reporter.end()
