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
    PathType,
    click_options,
    command,
    find_examples,
)
from recordmill.beam_jobs.cli.signals import Invocation
from recordmill.schemas.errors import SchemaError, UsageError
from recordmill.schemas.options import (
    CONVERT,
    JOB_FILE,
    RUN,
    Option,
    options_of,
    parse_pairs,
)

if TYPE_CHECKING:
    from recordmill.beam_jobs.report.streams import FinishedWork
    from recordmill.schemas.job_options import LoadedJob, Problems
    from recordmill.transforms.sources.registry import SourceFormat


_HELP = """Converts INPUT... into a dataset in the folder OUTPUT.

INPUT... are files, folders, archives or globs. INPUT and OUTPUT can be URLs: s3://, gs://, az://.

Arguments after -- are passed to Beam: -- --runner=FnApiRunner (the default; see docs/clusters.md for others).
"""
# Options of the command that do not exist in a job file.
_COMMAND_ONLY_OPTIONS = ("as_json", "plan", "detach")


def _make_convert_command(source: SourceFormat[Any]) -> click.Command:
    from recordmill.schemas.source_options import declare_options

    format_options = declare_options(source.name, source.options)

    @click.pass_context
    def convert_format(
        ctx: click.Context, /, paths: tuple[str, ...], **values: Any
    ) -> FinishedWork | None:
        if len(paths) < 2:
            raise click.UsageError("expected one or more INPUT, then OUTPUT")
        if _is_output_first(paths):
            line = shlex.join([*ctx.command_path.split(), *paths[1:], paths[0]])
            raise click.UsageError(
                f"{paths[-1]}: is a file, expected the folder OUTPUT as the last "
                f"argument: {line}"
            )
        section, values = _split_format_options(values)
        values = {"source": source.name, **values, source.name: section}
        values |= {"inputs": list(paths[:-1]), "output": paths[-1]}
        in_file = {
            name: value
            for name, value in values.items()
            if name not in _COMMAND_ONLY_OPTIONS
        }
        loaded = _add_launch_options(load_typed_job(in_file), ctx, values)
        return _run_or_plan(loaded, ctx, only_plan=values["plan"])

    section_options = _make_format_options(
        format_options, group=f"Options of {source.name}"
    )
    paths = click.Argument(
        ["paths"],
        nargs=-1,
        required=True,
        type=PathType("file"),
        metavar="INPUT... OUTPUT",
    )
    decorator = command(
        source.name,
        *find_examples(source, "convert"),
        params=[paths, *section_options, *click_options(options_of(CONVERT))],
        help=source.summary,
    )
    return decorator(convert_format)


def _split_format_options(
    values: dict[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the typed options of the format, and all other typed options."""
    format_keys = {name for name in values if name.endswith(_FORMAT_OPTION_SUFFIX)}
    section = {
        name.removesuffix(_FORMAT_OPTION_SUFFIX): values[name]
        for name in sorted(format_keys)
    }
    return section, {name: values[name] for name in values if name not in format_keys}


def _is_output_first(paths: Sequence[str]) -> bool:
    """Tests whether OUTPUT was typed first: a new path, and the last path is a file."""
    is_path = "://" not in paths[0] and not any(mark in paths[0] for mark in "*?[")
    is_new = is_path and paths[0] != "-" and not Path(paths[0]).exists()
    return is_new and Path(paths[-1]).is_file()


# suffix of parameter names, only for a format's options
_FORMAT_OPTION_SUFFIX = " of the format"


def _make_format_options(
    options: Iterable[Option], **keywords: Any
) -> list[click.Option]:
    parameters = click_options(options, **keywords)
    for parameter in parameters:
        parameter.name = f"{parameter.name}{_FORMAT_OPTION_SUFFIX}"
    return parameters


def _make_all_format_options() -> list[click.Option]:
    """Returns the options of all formats, because the job file determines the format."""
    from recordmill.schemas.source_options import declare_options
    from recordmill.transforms.sources.registry import format_names, load_format

    options_by_flag: dict[str, Option] = {}
    for name in format_names():
        with suppress(UsageError):  # a format of another package failed to load
            for option in declare_options(name, load_format(name).options):
                kind = "text" if option.value_kind == "choice" else option.value_kind
                options_by_flag.setdefault(
                    option.command_flag, replace(option, value_kind=kind)
                )
    parameters = _make_format_options(options_by_flag.values(), replaces=True)
    for parameter in parameters:
        parameter.hidden = True
    return parameters


convert = FormatGroup("convert", _HELP, _make_convert_command)
convert.examples = (
    ("options of a format", "recordmill convert images --help"),
    ("a table", "recordmill convert csv table.csv out/table"),
)


def _run_or_plan(
    loaded: LoadedJob, ctx: click.Context, *, only_plan: bool = False
) -> FinishedWork | None:
    """Runs a job, or shows its plan and returns None."""
    from recordmill.beam_jobs.service.inputs import with_standard_input

    with with_standard_input(loaded.options) as options:
        if only_plan:
            from recordmill.beam_jobs.report.summary import show_plan

            show_plan(loaded.job, options)
            return None
        from recordmill.beam_jobs.cli.execute import execute_job

        return execute_job(loaded.job, options, Invocation.of_context(ctx).signals)


def load_typed_job(values: dict[str, Any]) -> LoadedJob:
    """Creates the job of the typed options, as if they were in a job file."""
    from recordmill.schemas.declared import format_problems
    from recordmill.schemas.job_options import check_options, create_job
    from recordmill.transforms.sources.registry import InstalledFormats
    from recordmill.transforms.storage.reading import read_file

    section, storage = values["source"], values["storage"]
    job_options = _to_job_file_options(values)
    job_options[section] = _without_none(job_options[section])
    problems: Problems = {}
    checked_options = check_options(job_options, InstalledFormats(), problems)
    lines = []
    for option_path, problem in problems.items():
        option, *steps = option_path[1:] if option_path[0] == section else option_path
        lines.append(": ".join([f"`{option}`", *map(str, steps), problem]))
    if lines:
        raise UsageError(format_problems("", lines))
    try:
        return create_job(
            checked_options, "command", lambda uri: read_file(uri, storage.input)
        )
    except SchemaError as error:
        raise UsageError(str(error)) from error


def _to_job_file_options(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the typed options in the form of a job file."""
    options = _without_none(values)
    if "splits" in options:
        options["splits"] = parse_pairs("splits", "NAME=FRACTION", options["splits"])
    storage = options.pop("storage")
    sides = {"input": storage.input.to_dict(), "output": storage.output.to_dict()}
    return options | ({"storage": sides} if any(sides.values()) else {})


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, ())}


_RUN_ONLY_OPTIONS = (
    "detach",
    "metrics_file",
    "metrics_push",
    "log_format",
)  # not for `plan`
_PLAN_OPTIONS = [
    option for option in options_of(RUN) if option.name not in _RUN_ONLY_OPTIONS
]
# These options are known before the job is loaded, or without it. The output of the job
# file still determines the job's name.
_LAUNCH_OPTIONS = (
    "output",
    "metrics_file",
    "metrics_push",
    "log_format",
    "as_json",
    "detach",
)
_JOB_FILE = click.Argument(["job_file"], type=PathType("file"), metavar="JOB.yaml")


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
        *click_options(options_of(RUN), replaces=True),
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

    An option overrides the job file. Options of the job's format, as `recordmill
    convert FORMAT --help` lists them, also do. Arguments after -- are passed to Beam,
    after the arguments in the file.
    """
    from recordmill.beam_jobs.cli.execute import report_failure
    from recordmill.schemas.job import RunOptions

    launch_options = {"output": ""} | _take_launch_options(values)
    run_options = RunOptions(inputs=(), style="job_file", **launch_options)
    with report_failure(Invocation.of_context(ctx).signals, run_options, ""):
        loaded = _load_job_file(ctx, values)
    return _run_or_plan(loaded, ctx)


run_command.make_hidden_options = _make_all_format_options


@command(
    "plan",
    ("show the files, rows and shards of a run", "recordmill plan job.yaml"),
    params=[_JOB_FILE, *click_options(_PLAN_OPTIONS, replaces=True)],
    short_help="Shows what a job would do; writes nothing.",
)
@click.pass_context
def plan_command(ctx: click.Context, /, **values: Any) -> None:
    """Shows what running the job in a file would do; writes nothing.

    Exit status: the status of the run if it would not start.
    """
    _run_or_plan(_load_job_file(ctx, values), ctx, only_plan=True)


plan_command.make_hidden_options = _make_all_format_options


def _load_job_file(ctx: click.Context, values: dict[str, Any]) -> LoadedJob:
    """Reads the job file from local or remote storage; options replace its settings."""
    from datetime import UTC, datetime

    from recordmill.schemas.job_file import load_job, parse_settings
    from recordmill.transforms.sources.registry import InstalledFormats
    from recordmill.transforms.storage.reading import read_file

    format_options, values = _split_format_options(values)
    uri, job_options = values["job_file"], _to_job_file_options(values)
    names = {option.name for option in options_of(JOB_FILE)}.difference(_LAUNCH_OPTIONS)
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
    return _add_launch_options(loaded, ctx, values)


def _add_launch_options(
    loaded: LoadedJob, ctx: click.Context, values: dict[str, Any]
) -> LoadedJob:
    """Adds the command-line options that are not part of the job."""
    beam_args = (*loaded.options.beam_args, *Invocation.of_context(ctx).beam_args)
    options = replace(
        loaded.options, beam_args=beam_args, **_take_launch_options(values)
    )
    return loaded._replace(options=options)


def _take_launch_options(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: values[name] for name in _LAUNCH_OPTIONS if values.get(name) is not None
    }
