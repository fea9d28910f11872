"""Defines `recordmill schema`: infers a schema file from raw data, and checks one.

Heavy modules are imported inside the functions that need them.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recordmill.beam_jobs.cli.job_commands import load_typed_job
from recordmill.beam_jobs.cli.options import (
    EXCLUDE_OPTION,
    JSON_OPTION,
    STORAGE_OPTION,
    FormatGroup,
    HelpGroup,
    PathType,
    click_options,
    command,
    find_examples,
)
from recordmill.beam_jobs.report.terminal import echo, echo_lines, write_json
from recordmill.schemas.errors import OutputError
from recordmill.schemas.options import spell_options
from recordmill.schemas.text import format_count

if TYPE_CHECKING:
    from recordmill.transforms.sources.registry import SourceFormat
    from recordmill.transforms.statistics.input_statistics import InferredSchema


@click.group(cls=HelpGroup, short_help="Infers and checks schema files.")
def schema() -> None:
    """Infers and checks schema files: which features the records have."""


_INFER_HELP = """Reads all of INPUT... and writes a schema file for `convert`.

Types are inferred from every row. Comments show ranges, missing and distinct values.
"""

_INFER_PARAMS = (
    click.Argument(
        ["inputs"], nargs=-1, required=True, type=PathType("file"), metavar="INPUT..."
    ),
    click.Option(
        ["-o", "--output"],
        type=PathType("file"),
        metavar="FILE",
        help="File to write.  [default: stdout]",
    ),
    click.Option(["--overwrite"], is_flag=True, help="Replace FILE."),
    click.Option(
        ["--workers"],
        type=click.IntRange(0),
        default=0,
        help="Number of threads.  [default: all cores]",
    ),
    JSON_OPTION,
    STORAGE_OPTION,
    EXCLUDE_OPTION,
)


def _make_infer_command(source: SourceFormat[Any]) -> click.Command:
    from recordmill.schemas.source_options import declare_options

    format_options = declare_options(source.name, source.options)

    @command(
        source.name,
        *find_examples(source, "schema infer"),
        params=[*_INFER_PARAMS, *click_options(format_options, group="")],
        help=source.summary,
    )
    def infer_format(
        output: str | None, overwrite: bool, as_json: bool, workers: int, **options: Any
    ) -> None:
        from recordmill.schemas.schema_file import dump_yaml
        from recordmill.transforms.statistics.input_statistics import (
            feature_comments,
            header_lines,
            stats_json,
        )

        started = time.perf_counter()
        if output is not None:
            _require_writable(Path(output), overwrite)
        options[source.name] = {
            option.name: options.pop(option.name) for option in format_options
        }
        inferred = _infer_schema(source, options, workers, shows_progress=not as_json)
        comments, head = feature_comments(inferred), header_lines(inferred)
        text = dump_yaml(inferred.declared, comments, head)
        if output is not None:
            _write_schema(text, output)
        elif not as_json:
            echo_lines(text)
        seconds = time.perf_counter() - started
        if as_json:
            inferred_stats = stats_json(inferred) | {"seconds": round(seconds, 3)}
            write_json(inferred_stats, indented=False)
        else:
            _show_inferred(inferred, output, seconds)

    return infer_format


infer = FormatGroup("infer", _INFER_HELP, _make_infer_command)
infer.short_help = "Writes a schema file from the whole input."
infer.examples = (
    ("options of a format", "recordmill schema infer csv --help"),
    (
        "create a schema file as a starting point",
        "recordmill schema infer csv table.csv -o new.yaml",
    ),
)
schema.add_command(infer)


@command(
    "check",
    ("validate the file", "recordmill schema check schema.yaml"),
    params=[JSON_OPTION],
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def check(file: str, as_json: bool) -> None:
    """Checks a schema file and lists all errors."""
    from recordmill.schemas.schema_file import load_schema

    declared = load_schema(Path(file).read_bytes(), file)
    if as_json:
        names = list(declared.features)
        write_json({"file": file, "features": names}, indented=False)
        return
    features = format_count(len(declared.features), "feature")
    echo(f"{file}: valid, {features}", err=True)


schema.add_command(check)


def _infer_schema(
    source: SourceFormat[Any],
    typed: dict[str, Any],
    workers: int,
    *,
    shows_progress: bool,
) -> InferredSchema:
    """Reads the whole input of a format, with the typed options."""
    from recordmill.beam_jobs.report.progress import show_progress
    from recordmill.beam_jobs.service.inputs import list_all_inputs
    from recordmill.transforms.sources.other_format import report_other_format
    from recordmill.transforms.sources.registry import make_source
    from recordmill.transforms.statistics import input_statistics

    name, storage = source.name, typed["storage"]
    job, options = load_typed_job(typed | {"source": name, "output": name})
    options = replace(options, output="")  # `schema infer` has no output folder
    doing = "listing the inputs"
    with show_progress(
        sys.stderr, "read", doing, unit="range", is_shown=shows_progress
    ) as on_progress:
        inputs = list_all_inputs(job, options)
        files = inputs.files
        input_source = make_source(job, storage.input, inputs.constants)
        with report_other_format(name, files, storage.input):
            return input_statistics.infer_schema(
                input_source, files, workers, on_progress
            )


def _write_schema(text: str, output: str) -> None:
    from recordmill.transforms.storage.local import write_named_file

    try:
        write_named_file(Path(output), text.encode())
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise OutputError(f"{output}: {problem}") from error


def _show_inferred(
    inferred: InferredSchema, output: str | None, seconds: float
) -> None:
    """Shows the number of features and rows of an inferred schema, and the warnings."""
    from recordmill.transforms.statistics.input_statistics import reject_lines

    stats = inferred.stats
    location = f"{output}: " if output is not None else ""
    features, rows = (
        format_count(len(inferred.schema), "feature"),
        format_count(stats.num_rows, "row"),
    )
    input_report = inferred.source.input_report(inferred.range_findings)
    warnings = input_report.with_spelling(
        partial(spell_options, style="command")
    ).warnings
    lines = [f"{location}{features}, {rows}, {seconds:.1f} s", *reject_lines(stats)]
    lines += [f"Warning: {warning}" for warning in warnings]
    for line in lines:
        echo(line, err=True)


def _require_writable(path: Path, overwrite: bool) -> None:
    """Checks, before the work, that the schema file can be written after it."""
    if path.is_dir():
        raise OutputError(f"{path}: is a folder; name a file, like schema.yaml")
    if path.exists() and not overwrite:
        raise OutputError(
            f"{path}: already exists; choose another file, or replace it with "
            "`overwrite`"
        )
    if not path.absolute().parent.is_dir():
        raise OutputError(
            f"{path}: no such folder: {path.absolute().parent}; create it first"
        )
