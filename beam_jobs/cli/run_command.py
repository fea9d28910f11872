"""`recordmill run JOB.yaml` and `recordmill plan JOB.yaml`: jobs from a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from recordmill.schemas.job.job_spec import RunOptions
    from recordmill.schemas.job.load_job import LoadedJob

_Command = TypeVar("_Command", bound=Callable[..., Any])

# pydantic, yaml and Beam are imported inside the functions: the command line imports
# this module whatever it is asked to do.


def report_options_group(command: _Command) -> _Command:
    """Gives a command the options of all that run a job: where its accounts go."""
    options = [
        click.option(
            "--metrics-file",
            default="",
            metavar="FILE",
            help="Write a Prometheus textfile when the run ends.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            help="Log lines on stderr, for runs that nobody looks at.",
        ),
        click.option("--json", "as_json", is_flag=True, help="One object on stdout."),
        click.option(
            "--detach",
            is_flag=True,
            help="Give the job to the runner, and do not wait for its end.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _job_options(command: _Command) -> _Command:
    options = [
        click.argument("job_file", metavar="JOB.yaml"),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A value for {{ KEY }}; repeat.  [{{ date }}: today, UTC]",
        ),
        click.option("--output", metavar="DIR", help="Another folder than the file's."),
        click.option(
            "--workers", type=click.IntRange(0), help="Others than the file's."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _print_schema(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from recordmill.schemas.job.job_json_schema import job_schema_bytes
        from recordmill.transforms.sources.registry import InstalledFormats

        click.echo(job_schema_bytes(InstalledFormats()).decode(), nl=False)
        ctx.exit()


@click.command("run")
@_job_options
@report_options_group
@click.option(
    "--job-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of job files, for editors.",
)
@click.pass_context
def run_command(ctx: click.Context, /, **options: Any) -> None:
    """Runs the job in a file; nothing to do if nothing has changed.

    What stands after -- goes to Beam, behind the file's own options.
    """
    from recordmill.beam_jobs.cli.execute import ReportOptions, execute, report_failure

    given = ReportOptions(
        as_json=options.pop("as_json"),
        metrics_file=options.pop("metrics_file"),
        log_format=options.pop("log_format"),
    )
    with report_failure(given, ""):
        loaded = _load(options)
        run_options = _run_options(ctx, loaded, options)
        run_options = replace(run_options, detach=options["detach"])
    report_options = replace(
        given,
        metrics_file=given.metrics_file or loaded.file.metrics_file or "",
        log_format=given.log_format or loaded.file.log_format,
    )
    execute(loaded.job, run_options, report_options)


@click.command("plan")
@_job_options
@click.option("--json", "as_json", is_flag=True, help="One object on stdout.")
@click.pass_context
def plan_command(ctx: click.Context, /, **options: Any) -> None:
    """Tells what running the job in a file would do, and does nothing.

    Exit status 1: it would be refused, for the reason given.
    """
    from recordmill.beam_jobs.report.plan_report import tell_plan

    loaded = _load(options)
    run_options = _run_options(ctx, loaded, options)
    tell_plan(loaded.job, run_options, as_json=options["as_json"])


def _load(options: dict[str, Any]) -> LoadedJob:
    """Reads the job file, from whatever storage.

    Raises:
      RecordmillError: it cannot be read, or what is wrong with it.
    """
    from datetime import UTC, datetime

    from recordmill.schemas.job.load_job import load_job
    from recordmill.schemas.job.template import parse_settings
    from recordmill.transforms.sources.registry import InstalledFormats
    from recordmill.transforms.storage.reading import read_file

    uri = options["job_file"]
    return load_job(
        read_file(uri),
        uri,
        parse_settings(options["settings"]),
        datetime.now(UTC).date(),
        read_file,
        InstalledFormats(),
    )


def _run_options(
    ctx: click.Context, loaded: LoadedJob, options: dict[str, Any]
) -> RunOptions:
    """The file's, with what the command line says instead."""
    more: dict[str, Any] = {}
    if options["output"] is not None:
        more["output"] = options["output"]
    if options["workers"] is not None:
        more["workers"] = options["workers"]
    beam_args = (*loaded.options.beam_args, *(ctx.find_root().obj or ()))
    return replace(loaded.options, beam_args=beam_args, **more)
