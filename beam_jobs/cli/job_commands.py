"""Defines `recordmill convert`, and the commands `run` and `plan` for job files.

pydantic, yaml and Beam are imported inside the functions, because every command imports
this module.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recordmill.beam_jobs.cli.options import (
    FormatGroup,
    Name,
    click_options,
    command,
    examples_of,
)
from recordmill.beam_jobs.cli.signals import Invocation
from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.options import (
    CONVERT,
    JOB_FILE,
    RUN,
    Option,
    offered_by,
    parse_pairs,
)

if TYPE_CHECKING:
    from recordmill.beam_jobs.report.streams import FinishedWork
    from recordmill.schemas.job_options import LoadedJob, Problems
    from recordmill.transforms.sources.registry import SourceFormat


_HELP = """Converts INPUT... into a dataset in the folder OUTPUT.

INPUT... are files, folders, archives or globs; these and OUTPUT may be URLs: s3://, gs://, az://.

Arguments after -- go to Beam: -- --runner=FnApiRunner (the default; docs/clusters.md names others).
"""
# Options of the command that do not exist in a job file.
_OWN = ("as_json", "plan", "detach")


def _command_of(source: SourceFormat[Any]) -> click.Command:
    from recordmill.schemas.source_options import declared_options

    format_options = declared_options(source.name, source.options)

    @click.pass_context
    def convert_format(
        ctx: click.Context, /, paths: tuple[str, ...], **values: Any
    ) -> FinishedWork | None:
        if len(paths) < 2:
            raise click.UsageError("expected one or more INPUT, then OUTPUT")
        if _are_reversed(paths):
            line = shlex.join([*ctx.command_path.split(), *paths[1:], paths[0]])
            raise click.UsageError(
                f"{paths[-1]}: is a file, expected the folder OUTPUT as the last "
                f"argument: {line}"
            )
        section, values = _divided(values)
        values = {"source": source.name, **values, source.name: section}
        values |= {"inputs": list(paths[:-1]), "output": paths[-1]}
        in_file = {name: value for name, value in values.items() if name not in _OWN}
        loaded = _with_given(load_typed(in_file), ctx, values)
        return _start(loaded, ctx, only_plan=values["plan"])

    section_options = _own_options(format_options, group=f"Options of {source.name}")
    paths = click.Argument(
        ["paths"], nargs=-1, required=True, type=Name("file"), metavar="INPUT... OUTPUT"
    )
    decorator = command(
        source.name,
        *examples_of(source, "convert"),
        params=[paths, *section_options, *click_options(offered_by(CONVERT))],
        help=source.summary,
    )
    return decorator(convert_format)


def _divided(values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the typed options of the format, and all other typed options."""
    format_keys = {name for name in values if name.endswith(_OF_FORMAT)}
    section = {
        name.removesuffix(_OF_FORMAT): values[name] for name in sorted(format_keys)
    }
    return section, {name: values[name] for name in values if name not in format_keys}


def _are_reversed(paths: Sequence[str]) -> bool:
    """Tests whether OUTPUT was typed first: a new path, and the last path is a file."""
    is_path = "://" not in paths[0] and not any(mark in paths[0] for mark in "*?[")
    is_new = is_path and paths[0] != "-" and not Path(paths[0]).exists()
    return is_new and Path(paths[-1]).is_file()


_OF_FORMAT = " of the format"  # suffix of parameter names, only for a format's options


def _own_options(options: Iterable[Option], **keywords: Any) -> list[click.Option]:
    parameters = click_options(options, **keywords)
    for parameter in parameters:
        parameter.name = f"{parameter.name}{_OF_FORMAT}"
    return parameters


def _options_of_formats() -> list[click.Option]:
    """Returns the options of all formats, because the job file determines the format."""
    from recordmill.schemas.source_options import declared_options
    from recordmill.transforms.sources.registry import format_names, load_format

    options_by_flag: dict[str, Option] = {}
    for name in format_names():
        with suppress(UsageError):  # a format of another package failed to load
            for option in declared_options(name, load_format(name).options):
                kind = "text" if option.kind == "choice" else option.kind
                options_by_flag.setdefault(
                    option.command_flag, replace(option, kind=kind)
                )
    parameters = _own_options(options_by_flag.values(), replaces=True)
    for parameter in parameters:
        parameter.hidden = True
    return parameters


convert = FormatGroup("convert", _HELP, _command_of)
convert.examples = (
    ("options of a format", "recordmill convert images --help"),
    ("a table", "recordmill convert csv table.csv out/table"),
)


def _start(
    loaded: LoadedJob, ctx: click.Context, *, only_plan: bool = False
) -> FinishedWork | None:
    """Runs a job, or shows its plan and returns None."""
    from recordmill.beam_jobs.service.inputs import with_standard_input

    with with_standard_input(loaded.options) as options:
        if only_plan:
            from recordmill.beam_jobs.report.summary import show_plan

            show_plan(loaded.job, options)
            return None
        from recordmill.beam_jobs.cli.execute import execute

        return execute(loaded.job, options, Invocation.of(ctx).signals)


def load_typed(values: dict[str, Any]) -> LoadedJob:
    """Creates the job of the typed options, as if they were in a job file."""
    from recordmill.schemas.declared import report
    from recordmill.schemas.job_options import check_options, make_job
    from recordmill.transforms.sources.registry import InstalledFormats
    from recordmill.transforms.storage.reading import read_file

    section, storage = values["source"], values["storage"]
    job_options = _as_in_a_file(values)
    job_options[section] = _without_none(job_options[section])
    problems: Problems = {}
    checked_options = check_options(job_options, InstalledFormats(), problems)
    lines = []
    for option_path, problem in problems.items():
        option, *steps = option_path[1:] if option_path[0] == section else option_path
        lines.append(": ".join([f"`{option}`", *map(str, steps), problem]))
    if lines:
        raise UsageError(report("", lines))
    try:
        return make_job(
            checked_options, "command", lambda uri: read_file(uri, storage.input)
        )
    except SchemaError as error:
        raise UsageError(str(error)) from error


def _as_in_a_file(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the typed options in the form of a job file."""
    options = _without_none(values)
    if "splits" in options:
        options["splits"] = parse_pairs("splits", "NAME=FRACTION", options["splits"])
    storage = options.pop("storage")
    sides = {"input": storage.input.to_dict(), "output": storage.output.to_dict()}
    return options | ({"storage": sides} if any(sides.values()) else {})


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, ())}


_OF_RUNS = ("detach", "metrics_file", "metrics_push", "log_format")  # not for `plan`
_PLAN_OPTIONS = [option for option in offered_by(RUN) if option.name not in _OF_RUNS]
# These options are known before the job is loaded, or without it. The output of the job
# file still determines the job's name.
_APART = ("output", "metrics_file", "metrics_push", "log_format", "as_json", "detach")
_JOB_FILE = click.Argument(["job_file"], type=Name("file"), metavar="JOB.yaml")


def _print_schema(ctx: click.Context, _: click.Parameter, is_requested: bool) -> None:
    if is_requested:
        from recordmill.schemas.job_file import job_schema_bytes
        from recordmill.transforms.sources.registry import InstalledFormats

        click.echo(job_schema_bytes(InstalledFormats()).decode(), nl=False)
        ctx.exit()


@command(
    "run",
    (
        "run the job; running it again does nothing if nothing changed",
        "recordmill run job.yaml",
    ),
    ("set {{ day }} in the file", "recordmill run job.yaml --set day=monday"),
    params=[
        _JOB_FILE,
        *click_options(offered_by(RUN), replaces=True),
        click.Option(
            ["--job-schema"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_schema,
            help="Print the JSON Schema of job files, for editors.",
        ),
    ],
    short_help="Runs the job in a file.",
)
@click.pass_context
def run_command(ctx: click.Context, /, **values: Any) -> FinishedWork | None:
    """Runs the job in a file; does nothing if nothing has changed.

    An option replaces what the file says. Options of the job's format, as `recordmill
    convert FORMAT --help` lists them, do so, too. Arguments after -- go to Beam,
    behind the file's own.
    """
    from recordmill.beam_jobs.cli.execute import report_failure
    from recordmill.schemas.job import RunOptions

    launch_options = {"output": ""} | _apart(values)
    run_options = RunOptions(inputs=(), style="job_file", **launch_options)
    with report_failure(Invocation.of(ctx).signals, run_options, ""):
        loaded = _load_file(ctx, values)
    return _start(loaded, ctx)


run_command.make_more = _options_of_formats


@command(
    "plan",
    ("show the files, rows and shards of a run", "recordmill plan job.yaml"),
    params=[_JOB_FILE, *click_options(_PLAN_OPTIONS, replaces=True)],
    short_help="Shows what a job would do; writes nothing.",
)
@click.pass_context
def plan_command(ctx: click.Context, /, **values: Any) -> None:
    """Shows what running the job in a file would do, and does nothing.

    Exit status: that of the run, if it would not start.
    """
    _start(_load_file(ctx, values), ctx, only_plan=True)


plan_command.make_more = _options_of_formats


def _load_file(ctx: click.Context, values: dict[str, Any]) -> LoadedJob:
    """Reads the job file from local or remote storage; options replace its settings."""
    from datetime import UTC, datetime

    from recordmill.schemas.job_file import load_job, parse_settings
    from recordmill.transforms.sources.registry import InstalledFormats
    from recordmill.transforms.storage.reading import read_file

    format_options, values = _divided(values)
    uri, job_options = values["job_file"], _as_in_a_file(values)
    names = {option.name for option in offered_by(JOB_FILE)}.difference(_APART)
    loaded = load_job(
        read_file(uri),
        uri,
        parse_settings(values["set"]),
        datetime.now(UTC).date(),
        read_file,
        InstalledFormats(),
        {name: job_options[name] for name in names & job_options.keys()},
        _without_none(format_options),
    )
    return _with_given(loaded, ctx, values)


def _with_given(
    loaded: LoadedJob, ctx: click.Context, values: dict[str, Any]
) -> LoadedJob:
    """Adds the command-line options that are not part of the job."""
    beam_args = (*loaded.options.beam_args, *Invocation.of(ctx).beam_args)
    options = replace(loaded.options, beam_args=beam_args, **_apart(values))
    return loaded._replace(options=options)


def _apart(values: dict[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in _APART if values.get(name) is not None}
