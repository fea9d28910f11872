"""recordmill convert: its options, and the job and run that they make.

As cli.py, it imports nothing heavy before it knows what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recordmill.beam_jobs.cli.run_command import report_options_group
from recordmill.beam_jobs.cli.shared_options import (
    feature_names_option,
    storage_of,
    storage_option,
    variant_option,
)

if TYPE_CHECKING:
    from recordmill.schemas.job.storage_options import BothSides, StorageOptions

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Size(click.ParamType):  # type: ignore[type-arg]
    """A size in bytes: 128MiB, 64M, 1G or a plain number."""

    name = "SIZE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        from recordmill.schemas.sizes import parse_size

        try:
            return parse_size(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group()
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
            "--append",
            is_flag=True,
            help="Convert new input files only, and add them to the dataset.",
        ),
        click.option(
            "--scratch",
            default="",
            metavar="DIR",
            help="Folder for sorted runs.  [default: inside OUTPUT]",
        ),
        storage_option,
        click.option(
            "--exchange",
            type=click.Choice(["auto", "reference", "scratch", "engine"]),
            default="auto",
            show_default=True,
            help="How rows reach their shards; the bytes are the same.",
        ),
        click.option(
            "--verify",
            type=click.Choice(["quick", "full"]),
            default="quick",
            show_default=True,
            help="full: read every byte again before publishing.",
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
    command = report_options_group(command)
    for option in reversed(options):
        command = option(command)
    return command


@convert.command("images")
@_convert_options
@feature_names_option
@click.pass_context
def convert_images(ctx: click.Context, /, **options: Any) -> None:
    """A folder of pictures for each class."""
    _convert(ctx, "images", options)


@convert.command("cifar")
@_convert_options
@variant_option
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


def _convert(ctx: click.Context, source: str, options: dict[str, Any]) -> None:
    paths = options.pop("paths")
    if len(paths) < 2:
        raise click.UsageError("give at least one INPUT, and the folder OUTPUT last")
    from recordmill.beam_jobs.cli.execute import ReportOptions, execute
    from recordmill.schemas.job.job_spec import AUTO_VERSION, FIRST_VERSION, RunOptions

    report_options = ReportOptions(
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
    storage = storage_of(options.pop("storage_options"))
    run_options = RunOptions(
        inputs=tuple(paths[:-1]),
        output=paths[-1],
        scratch=options.pop("scratch"),
        exchange=options.pop("exchange"),
        workers=options.pop("workers"),
        verify=options.pop("verify"),
        overwrite=options.pop("overwrite"),
        append=options.pop("append"),
        detach=options.pop("detach"),
        auto_version=auto,
        keep=keep or 0,
        expect_schema=options.pop("expect_schema"),
        storage=storage,
        beam_args=tuple(ctx.find_root().obj or ()),
    )
    job = _job_spec(source, Path(paths[-1]).absolute().name, options, storage)
    if only_plan:
        from recordmill.beam_jobs.report.plan_report import tell_plan

        tell_plan(job, run_options, as_json=report_options.as_json)
    else:
        execute(job, run_options, report_options)


def _job_spec(
    source: str, default_name: str, options: dict[str, Any], storage: BothSides
) -> Any:
    """The validated job; what is wrong with it becomes a usage error."""
    from pydantic import ValidationError

    from recordmill.schemas.job.job_spec import (
        DEFAULT_SHARD_BYTES,
        JobSpec,
        identifier_from,
    )
    from recordmill.transforms.sources.registry import load_format

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
    own_options = load_format(source).options
    own = {
        name: options.pop(name) for name in own_options.model_fields if name in options
    }
    fields = {
        "source": source,
        "source_options": own_options(**own),
        "name": options.pop("name") or identifier_from(default_name),
        "version": options.pop("dataset_version"),
        "sharding": rules or {"shard_bytes": DEFAULT_SHARD_BYTES},
        "max_rejects": {"text": options.pop("max_rejects")},
        "declared": _declared(options.pop("schema"), storage.input),
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


def _declared(uri: str | None, storage: StorageOptions) -> Any:
    """The declared schema in a file, or None if no file is given."""
    if uri is None:
        return None
    from recordmill.schemas.errors import SchemaError, UsageError
    from recordmill.schemas.parsing.schema_file import load_schema
    from recordmill.transforms.storage.reading import read_file

    try:
        return load_schema(read_file(uri, storage), uri)
    except SchemaError as error:
        raise UsageError(str(error)) from error
