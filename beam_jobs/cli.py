"""The recordmill command. Imports nothing heavy before it knows what is wanted."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from beam_jobs.cli_run import account_options, plan_command, run_command
from beam_jobs.cli_schema import schema

_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Size(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes: 128MiB, 64M, 1G or a plain number."""

    name = "SIZE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        from schemas.sizes import parse_size

        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


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
        click.option(
            "--dataset-version",
            default="1.0.0",
            show_default=True,
            metavar="X.Y.Z|auto",
            help="auto: each change becomes the next version, OUTPUT/X.Y.Z.",
        ),
        click.option(
            "--keep", type=click.IntRange(1), help="Versions to keep, with auto."
        ),
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
        click.option(
            "--plan",
            "only_plan",
            is_flag=True,
            help="Tell what would happen, and do nothing.",
        ),
    ]
    command = account_options(command)
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


cli.add_command(run_command)
cli.add_command(plan_command)


def _convert(ctx: click.Context, source: str, options: dict[str, Any]) -> None:
    paths = options.pop("paths")
    if len(paths) < 2:
        raise click.UsageError("give at least one INPUT, and the folder OUTPUT last")
    from beam_jobs.execute import Accounts, execute
    from schemas.job import AUTO_VERSION, FIRST_VERSION, RunOptions

    accounts = Accounts(
        as_json=options.pop("as_json"),
        metrics_file=options.pop("metrics_file"),
        log_format=options.pop("log_format"),
    )
    only_plan = options.pop("only_plan")
    keep = options.pop("keep")
    auto = options["dataset_version"] == AUTO_VERSION
    if auto:
        options["dataset_version"] = FIRST_VERSION
    elif keep:
        raise click.UsageError("--keep is for --dataset-version auto")
    run_options = RunOptions(
        inputs=tuple(paths[:-1]),
        output=paths[-1],
        scratch=options.pop("scratch"),
        exchange=options.pop("exchange"),
        workers=options.pop("workers"),
        overwrite=options.pop("overwrite"),
        auto_version=auto,
        keep=keep or 0,
        expect_schema=options.pop("expect_schema"),
        beam_args=tuple(ctx.find_root().obj or ()),
    )
    job = _job_spec(source, Path(paths[-1]).absolute().name, options)
    if only_plan:
        from beam_jobs.show_plan import tell_plan

        tell_plan(job, run_options, as_json=accounts.as_json)
    else:
        execute(job, run_options, accounts)


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
        if arguments[:1] not in (["convert"], ["run"], ["plan"]):
            message = "Error: only convert, run and plan take Beam options after --"
            click.echo(message, err=True)
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
