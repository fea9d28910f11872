"""Defines `recordmill run JOB.yaml` and `recordmill plan JOB.yaml`: jobs from a file.

pydantic, yaml and Beam are imported inside the functions: the command line imports this
module whatever it is asked to do.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recordmill.beam_jobs.cli.click_options import Name, with_options
from recordmill.beam_jobs.cli.help_layout import LaidOutCommand, with_examples
from recordmill.schemas.options import BY_NAME, by_group, offered_by

if TYPE_CHECKING:
    from recordmill.schemas.job_options import LoadedJob

_Record = TypeVar("_Record")

_RUN_OPTIONS = by_group(offered_by("run"))
_PLAN_OPTIONS = [BY_NAME[name] for name in ("set", "output", "workers", "as_json")]
_job_file = click.argument("job_file", type=Name("file"), metavar="JOB.yaml")


def _print_schema(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from recordmill.schemas.job_file import job_schema_bytes
        from recordmill.transforms.sources.registry import InstalledFormats

        click.echo(job_schema_bytes(InstalledFormats()).decode(), nl=False)
        ctx.exit()


@with_examples(
    (
        "run it again when you like: nothing new, nothing done",
        "recordmill run job.yaml",
    ),
    ("a value for {{ day }} in the file", "recordmill run job.yaml --set day=monday"),
)
@click.command("run", cls=LaidOutCommand, short_help="Runs the job in a file.")
@_job_file
@with_options(_RUN_OPTIONS, replaces=True)
@click.option(
    "--job-schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of job files, for editors.",
)
@click.pass_context
def run_command(ctx: click.Context, /, **values: Any) -> None:
    """Runs the job in a file; does nothing if nothing has changed.

    An option replaces what the file says. Arguments after -- are passed to Beam, behind
    the file's own.
    """
    from recordmill.beam_jobs.cli.execute import execute, report_failure
    from recordmill.beam_jobs.service.standard_input import with_standard_input
    from recordmill.schemas.job import ReportOptions

    report = _with_given(ReportOptions(style="job_file"), values)
    with report_failure(report, ""):
        loaded = _load(ctx, values)
    with with_standard_input(loaded.options) as options:
        execute(loaded.job, options, loaded.report)


@with_examples(
    ("files, rows and shards of a run", "recordmill plan job.yaml"),
)
@click.command(
    "plan",
    cls=LaidOutCommand,
    short_help="Shows what a job would do, and does nothing.",
)
@_job_file
@with_options(_PLAN_OPTIONS, replaces=True, group="")
@click.pass_context
def plan_command(ctx: click.Context, /, **values: Any) -> None:
    """Shows what running the job in a file would do, and does nothing.

    Exit status: that of the run, if it would be refused.
    """
    from recordmill.beam_jobs.report.plan_report import show_plan
    from recordmill.beam_jobs.service.standard_input import with_standard_input

    loaded = _load(ctx, values)
    with with_standard_input(loaded.options) as options:
        show_plan(loaded.job, options, loaded.report)


def _load(ctx: click.Context, values: dict[str, Any]) -> LoadedJob:
    """Reads the job file, from whatever storage; options replace what it says.

    Raises:
      RecordmillError: it cannot be read, or what is wrong with it.
    """
    from datetime import UTC, datetime

    from recordmill.schemas.job_file import load_job, parse_settings
    from recordmill.transforms.sources.registry import InstalledFormats
    from recordmill.transforms.storage.reading import read_file

    uri = values["job_file"]
    loaded = load_job(
        read_file(uri),
        uri,
        parse_settings(values["set"]),
        datetime.now(UTC).date(),
        read_file,
        InstalledFormats(),
    )
    beam_args = (*loaded.options.beam_args, *(ctx.find_root().obj or ()))
    return replace(
        loaded,
        options=_with_given(replace(loaded.options, beam_args=beam_args), values),
        report=_with_given(loaded.report, values),
    )


def _with_given(record: _Record, values: dict[str, Any]) -> _Record:
    """Replaces the fields that the command line gives."""
    names = [field.name for field in fields(record)]  # type: ignore[arg-type]
    changes = {name: values[name] for name in names if values.get(name) is not None}
    return replace(record, **changes)  # type: ignore[type-var]
