"""The recordmill command. Imports nothing heavy before it knows what is wanted."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import click

from beam_jobs.cli_schema import schema

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130

_Command = TypeVar("_Command", bound=Callable[..., Any])

_UNITS = ("", "K", "M", "G", "T")
# 64M is 64MiB; only a B without an i means thousands.
_SIZE = re.compile(
    r"(\d{0,15}\.?\d{1,15}) ?(?:([KMGT])(I)?)?(B)?", re.ASCII | re.IGNORECASE
)


class _Size(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes: 128MiB, 64M, 1G or a plain number."""

    name = "SIZE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"give a size like 128MiB or 100MB, got {value!r}", param, ctx)
        number, unit, binary, is_bytes = match.groups(default="")
        thousand = 1000 if is_bytes and not binary else 1024
        size = int(Fraction(number) * thousand ** _UNITS.index(unit.upper()))
        if size < 1:
            self.fail("a shard has at least one byte", param, ctx)
        return size


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="recordmill")
def cli() -> None:
    """Turns images, CIFAR binary files and CSV into TFRecord shards."""


cli.add_command(schema)


@cli.group()
def convert() -> None:
    """Converts INPUT... into a dataset in the folder OUTPUT.

    What stands after -- goes to Beam: -- --runner=DirectRunner
    """


def _convert_options(command: _Command) -> _Command:
    options = [
        click.argument("paths", nargs=-1, required=True, metavar="INPUT... OUTPUT"),
        click.option("--name", help="Dataset name.  [default: OUTPUT's last part]"),
        click.option("--dataset-version", default="1.0.0", show_default=True),
        click.option(
            "--split",
            "splits",
            multiple=True,
            metavar="NAME=FRACTION",
            help="A split and its share, like train=0.9; repeat.  [default: train=1]",
        ),
        click.option(
            "--split-by",
            metavar="COLUMN",
            help="Rows with the same value never part.",
        ),
        click.option("--shards", type=int, help="Shards of each split."),
        click.option(
            "--shard-size", type=_Size(), help="Size of a shard.  [default: 128MiB]"
        ),
        click.option(
            "--readers",
            type=int,
            help="Ten shards for each host that reads, none under 10 MB.",
        ),
        click.option("--shuffle/--no-shuffle", default=True, show_default=True),
        click.option("--seed", type=int, default=0, show_default=True),
        click.option(
            "--compression",
            type=click.Choice(["none", "gzip"]),
            default="none",
            show_default=True,
        ),
        click.option(
            "--max-rejects",
            metavar="N|P%",
            default="0",
            show_default=True,
            help="Rows that may be rejected.",
        ),
        click.option(
            "--schema",
            metavar="FILE",
            help="Declared features: YAML or schema.pbtxt.  [default: inferred]",
        ),
        click.option(
            "--expect-schema",
            metavar="FILE|DATASET",
            default="",
            help="Publish nothing that differs from it.",
        ),
        click.option(
            "--payload",
            type=click.Choice(["example", "sequence_example", "json", "raw"]),
            default="example",
            show_default=True,
            help="What a record holds.",
        ),
        click.option("--overwrite", is_flag=True, help="Replace another dataset."),
        click.option(
            "--scratch",
            default="",
            metavar="DIR",
            help="Folder for sorted runs.  [default: inside OUTPUT]",
        ),
        click.option(
            "--exchange",
            type=click.Choice(["auto", "reference", "scratch"]),
            default="auto",
            show_default=True,
            help="How rows reach their shards; the bytes are the same.",
        ),
        click.option(
            "--workers", type=click.IntRange(0), default=0, help="[default: all cores]"
        ),
        click.option("--json", "as_json", is_flag=True, help="One object on stdout."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@convert.command("images")
@_convert_options
@click.option(
    "--feature-names",
    type=click.Choice(["default", "tutorial", "imagenet"]),
    default="default",
    show_default=True,
)
@click.pass_context
def convert_images(ctx: click.Context, /, **options: Any) -> None:
    """A folder of pictures for each class."""
    _convert(ctx, "images", options)


@convert.command("cifar")
@_convert_options
@click.option(
    "--variant",
    type=click.Choice(["auto", "cifar10", "cifar100"]),
    default="auto",
    show_default=True,
)
@click.pass_context
def convert_cifar(ctx: click.Context, /, **options: Any) -> None:
    """CIFAR-10 and CIFAR-100 binary files (.bin)."""
    _convert(ctx, "cifar", options)


@convert.command("csv")
@_convert_options
@click.pass_context
def convert_csv(ctx: click.Context, /, **options: Any) -> None:
    """CSV files with a header; types are inferred."""
    _convert(ctx, "csv", options)


@cli.command()
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--quick", is_flag=True, help="Sizes and counts only, no checksums.")
@click.option("--deep", is_flag=True, help="Decode every record: does it fit?")
@click.option("--json", "as_json", is_flag=True, help="One object on stdout.")
def verify(output: str, quick: bool, deep: bool, as_json: bool) -> None:
    """Checks every CRC, every count and size against the manifest."""
    if quick and deep:
        raise click.UsageError("--quick reads no record, --deep all: give one of them")
    from beam_jobs.show import show_verify
    from transforms.verify import verify_dataset

    result = verify_dataset(output, full=not quick, deep=deep)
    show_verify(result, as_json=as_json)
    if result.problems:
        sys.exit(_EXIT_FAILED)


@cli.command()
@click.argument("output", type=click.Path(file_okay=False))
@click.option("--examples", default=3, show_default=True, help="Examples to show.")
@click.option("--json", "as_json", is_flag=True, help="One object on stdout.")
@click.option("--tf", is_flag=True, help="TensorFlow code that parses the records.")
def inspect(output: str, examples: int, as_json: bool, tf: bool) -> None:
    """Shows features, splits, shards, and the first examples."""
    from beam_jobs.show import show_inspect

    show_inspect(output, num_examples=examples, as_json=as_json, tf=tf)


def _convert(ctx: click.Context, source: str, options: dict[str, Any]) -> None:
    paths = options.pop("paths")
    if len(paths) < 2:
        raise click.UsageError("give at least one INPUT, and the folder OUTPUT last")
    from beam_jobs.launch import run_job
    from beam_jobs.progress import Bars, Silent
    from beam_jobs.summary import show_outcome
    from schemas.job import RunOptions

    as_json = options.pop("as_json")
    run_options = RunOptions(
        inputs=tuple(paths[:-1]),
        output=paths[-1],
        scratch=options.pop("scratch"),
        exchange=options.pop("exchange"),
        workers=options.pop("workers"),
        overwrite=options.pop("overwrite"),
        expect_schema=options.pop("expect_schema"),
        beam_args=tuple(ctx.find_root().obj or ()),
    )
    job = _job_spec(source, Path(paths[-1]).absolute().name, options)
    if sys.stderr.isatty() and not as_json:
        from rich.console import Console

        outcome = run_job(job, run_options, Bars(Console(file=sys.stderr)))
    else:
        outcome = run_job(job, run_options, Silent())
    show_outcome(outcome, as_json=as_json)


def _job_spec(source: str, default_name: str, options: dict[str, Any]) -> Any:
    """The validated job; what is wrong with it becomes a usage error."""
    from pydantic import ValidationError

    from schemas.job import DEFAULT_SHARD_BYTES, JobSpec, identifier_from

    rules = {
        "num_shards": options.pop("shards"),
        "shard_bytes": options.pop("shard_size"),
        "num_readers": options.pop("readers"),
    }
    rules = {rule: value for rule, value in rules.items() if value is not None}
    splits = []
    for text in options.pop("splits"):
        name, equals, fraction = text.partition("=")
        if not equals:
            raise click.UsageError(f"--split is NAME=FRACTION, got {text!r}")
        splits.append({"name": name, "fraction": fraction})
    fields = {
        "source": source,
        "name": options.pop("name") or identifier_from(default_name),
        "version": options.pop("dataset_version"),
        "sharding": rules or {"shard_bytes": DEFAULT_SHARD_BYTES},
        "max_rejects": {"text": options.pop("max_rejects")},
        "declared": _declared(options.pop("schema")),
        **({"splits": splits} if splits else {}),
        **options,
    }
    try:
        return JobSpec.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][0]) if first["loc"] else "options"
        reason = first["msg"].removeprefix("Value error, ")
        raise click.UsageError(f"{where}: {reason}") from error


def _declared(uri: str | None) -> Any:
    """The declared schema in a file, or None if no file is given."""
    if uri is None:
        return None
    from schemas.errors import SchemaError, UsageError
    from schemas.schema_file import load_schema
    from transforms.storage import read_file

    try:
        return load_schema(read_file(uri), uri)
    except SchemaError as error:
        raise UsageError(str(error)) from error


def run(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status.

    Args:
      argv: arguments without the command's name; those behind "--" are Beam's.
    """
    arguments = list(argv)
    beam_args: list[str] = []
    if "--" in arguments:
        place = arguments.index("--")
        arguments, beam_args = arguments[:place], arguments[place + 1 :]
        if arguments[:1] != ["convert"]:
            click.echo("Error: only convert takes Beam options after --", err=True)
            return _EXIT_USAGE
    try:
        result = cli.main(
            args=arguments,
            prog_name="recordmill",
            standalone_mode=False,
            obj=tuple(beam_args),
        )
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else _EXIT_FAILED
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted: nothing was published", err=True)
        return _EXIT_INTERRUPTED
    except Exception as error:
        # Only here: the import costs help and completion their speed.
        from schemas.errors import RecordmillError, UsageError

        if not isinstance(error, RecordmillError):
            raise
        click.echo(f"Error: {error}", err=True)
        return _EXIT_USAGE if isinstance(error, UsageError) else _EXIT_FAILED


def main() -> None:
    """Entry point of the recordmill command."""
    try:
        status = run(sys.argv[1:])
    except Exception:
        traceback.print_exc()
        status = _EXIT_FAILED
    sys.stdout.flush()
    sys.stderr.flush()
    # Beam leaves threads behind; after a worker's death one of them never ends.
    os._exit(status)
