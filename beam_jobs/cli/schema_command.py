"""recordmill schema: infers a schema file from raw data, and checks one.

As cli.py, it imports nothing heavy before it knows what is wanted.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recordmill.beam_jobs.cli.shared_options import (
    feature_names_option,
    storage_of,
    storage_option,
    variant_option,
)

if TYPE_CHECKING:
    from recordmill.transforms.profile.profile_input import Inferred

_Command = TypeVar("_Command", bound=Callable[..., Any])


@click.group()
def schema() -> None:
    """Schema files: what features the examples have, and where they come from."""


@schema.group()
def infer() -> None:
    """Looks at all of INPUT... and writes a schema file that `convert` takes.

    Every row counts for the types. Comments tell ranges, missing and distinct values.
    """


def _infer_options(command: _Command) -> _Command:
    options = [
        click.argument("inputs", nargs=-1, required=True, metavar="INPUT..."),
        click.option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write the schema.  [default: stdout]",
        ),
        click.option("--overwrite", is_flag=True, help="Replace FILE."),
        click.option(
            "--workers", type=click.IntRange(0), default=0, help="[default: all cores]"
        ),
        storage_option,
        click.option(
            "--json", "as_json", is_flag=True, help="All facts as one object on stdout."
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@infer.command("images")
@_infer_options
@feature_names_option
def infer_images(**options: Any) -> None:
    """A folder of pictures for each class."""
    _infer("images", **options)


@infer.command("cifar")
@_infer_options
@variant_option
def infer_cifar(**options: Any) -> None:
    """CIFAR-10 and CIFAR-100 binary files (.bin)."""
    _infer("cifar", **options)


@infer.command("csv")
@_infer_options
def infer_csv(**options: Any) -> None:
    """CSV files with a header."""
    _infer("csv", **options)


@schema.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
def check(file: str) -> None:
    """Says what is wrong with a schema file."""
    from recordmill.schemas.parsing.schema_file import load_schema

    declared = load_schema(Path(file).read_bytes(), file)
    click.echo(f"{file}: all right, features: {len(declared.features):,}", err=True)


def _infer(
    kind: str,
    *,
    inputs: tuple[str, ...],
    output: str | None,
    overwrite: bool,
    workers: int,
    as_json: bool,
    storage_options: tuple[str, ...],
    **source_options: Any,
) -> None:
    from recordmill.beam_jobs.report.progress import showing_ranges
    from recordmill.schemas.job.job_spec import JobSpec
    from recordmill.schemas.parsing.schema_file import dump_yaml
    from recordmill.transforms.profile.profile_input import infer as infer_schema
    from recordmill.transforms.profile.stats_report import (
        comments_of,
        facts_json,
        head_of,
    )
    from recordmill.transforms.sources.listing import list_inputs
    from recordmill.transforms.sources.registry import load_format, make_source

    started = time.perf_counter()
    if output is not None:
        _require_writable(Path(output), overwrite)
    own_options = load_format(kind).options(**source_options)
    job = JobSpec(source=kind, name=kind, source_options=own_options)
    storage = storage_of(storage_options).input
    _, files = list_inputs(inputs, storage)
    with showing_ranges(sys.stderr, wanted=not as_json) as on_progress:
        inferred = infer_schema(make_source(job, storage), files, workers, on_progress)
    text = dump_yaml(inferred.declared, comments_of(inferred), head_of(inferred))
    if output is not None:
        _write(Path(output), text)
    elif not as_json:
        click.echo(text, nl=False)
    seconds = time.perf_counter() - started
    if as_json:
        facts = facts_json(inferred) | {"seconds": round(seconds, 3)}
        click.echo(json.dumps(facts))
    else:
        _show(inferred, output, seconds)


def _show(inferred: Inferred, output: str | None, seconds: float) -> None:
    """What people see on stderr."""
    from recordmill.transforms.profile.stats_report import reject_lines

    facts = inferred.facts
    where = f"{output}: " if output is not None else ""
    counts = f"features: {len(inferred.schema):,}, rows: {facts.rows:,}"
    for line in (f"{where}{counts}, {seconds:.1f} s", *reject_lines(facts)):
        click.echo(line, err=True)


def _require_writable(path: Path, overwrite: bool) -> None:
    """Refuses before the work what would fail after it."""
    from recordmill.schemas.errors import OutputError

    if path.is_dir():
        raise OutputError(f"{path}: is a folder; name a file, like schema.yaml")
    if path.exists() and not overwrite:
        raise OutputError(f"{path}: is there already; --overwrite replaces it")
    if not path.absolute().parent.is_dir():
        raise OutputError(f"{path}: there is no folder {path.absolute().parent}")


def _write(path: Path, text: str) -> None:
    from recordmill.schemas.errors import OutputError
    from recordmill.transforms.storage.atomic_files import write_atomic

    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
