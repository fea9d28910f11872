"""JobFile: what a job file can say; the same file runs on a laptop and on a cluster.

    source: images                        # or cifar, csv, or another package's format
    images: {feature_names: imagenet}     # that format's own options
    inputs: raw/{{ date }}                # one, or a list
    output: sets/pets
    version: auto                         # or 1.0.0
    keep: 3
    splits: {train: 0.9, test: 0.1}
    split_by: label
    shard_size: 128MiB                    # or shards: 8, or readers: 4
    max_rejects: 0.5%
    beam: [--runner=FlinkRunner, --flink_master=cluster:8081]

Paths are relative to the file. How it is read stands in job_load; job_file.schema.json,
shipped beside this module, tells its form to editors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    create_model,
)

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.job.job_spec import (
    AUTO_VERSION,
    DEFAULT_SHARD_BYTES,
    FIRST_VERSION,
    Compression,
    DatasetName,
    JobSpec,
    Payload,
    RejectLimit,
    RunOptions,
    Seed,
    Sharding,
    Splits,
    SplitSpec,
    VerifyLevel,
    check_version,
    identifier_from,
)
from recordmill.schemas.job.source_options import SourceOptions
from recordmill.schemas.job.storage_options import (
    SECRET_REFUSED,
    BothSides,
    StorageOptions,
    names_secret,
)
from recordmill.schemas.sizes import parse_size


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _one_or_more(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


def _from_mapping(given: Any) -> Any:
    """{train: 0.9, test: 0.1} as splits; fractions are text, so that they are exact."""
    if not isinstance(given, dict):
        raise ValueError(f"splits are like {{train: 0.9, test: 0.1}}, got {given!r}")
    return [{"name": name, "fraction": share} for name, share in given.items()]


def _limit(given: Any) -> Any:
    if not isinstance(given, str):
        raise ValueError(f"give a count like 10 or a share like 0.5%, got {given!r}")
    return {"text": given}


def _size(given: Any) -> Any:
    if not isinstance(given, str):
        raise ValueError(f"give a size like 128MiB or 100MB, got {given!r}")
    return parse_size(given)


def _auto_or_version(version: str) -> str:
    if version == AUTO_VERSION:
        return version
    try:
        return check_version(version)
    except ValueError as error:
        raise ValueError(f"{error}; or say auto") from error


def _no_secrets(options: dict[str, Any]) -> dict[str, Any]:
    try:
        return StorageOptions.of(options).to_dict()
    except UsageError as error:
        raise ValueError(str(error)) from error


def _no_secret_arguments(arguments: tuple[str, ...]) -> tuple[str, ...]:
    for argument in arguments:
        name = argument.partition("=")[0]
        if names_secret(name):
            raise ValueError(f"{name} {SECRET_REFUSED}")
    return arguments


Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    BeforeValidator(_one_or_more, json_schema_input_type=Text | list[Text]),
]
Fraction = Annotated[float, Field(gt=0, le=1)] | str
Options = Annotated[dict[str, JsonValue], AfterValidator(_no_secrets)]


class StorageSides(_Frozen):
    """Options of the file systems of input and output, as fsspec spells them."""

    input: Options = {}
    output: Options = {}


class JobFile(_Frozen):
    """A job: what is converted, where to, and how it is run."""

    source: Text = Field(description="the input's format")
    inputs: Texts = Field(description="files, folders or globs")
    output: Text = Field(description="folder of the dataset, or of its versions")
    name: DatasetName | None = Field(
        None, description="the dataset's name; by default the output's last part"
    )
    version: Annotated[str, AfterValidator(_auto_or_version)] = Field(
        FIRST_VERSION,
        description="like 1.0.0; auto: each change is published as the next one",
    )
    keep: Annotated[int, Field(ge=1)] | None = Field(
        None, description="with version: auto, how many versions to keep"
    )
    schema_: str | dict[str, Any] | None = Field(
        None, alias="schema", description="declared features, or a file with them"
    )
    expect_schema: Text | None = Field(
        None, description="schema file or dataset that the features must keep to"
    )
    payload: Payload = Field("example", description="what a record holds")
    splits: Annotated[
        Splits,
        BeforeValidator(_from_mapping, json_schema_input_type=dict[str, Fraction]),
    ] = Field(
        (SplitSpec(name="train", fraction="1"),),
        description="each split's share of the rows",
    )
    split_by: Text | None = Field(
        None, description="column whose equal values never part"
    )
    shuffle: bool = Field(True, description="shuffle all, or keep the input's order")
    seed: Seed = Field(0, description="another seed, another order and other splits")
    shards: Annotated[int, Field(ge=1, le=99_999)] | None = Field(
        None, description="shards of each split"
    )
    shard_size: Annotated[
        int, BeforeValidator(_size, json_schema_input_type=str | int)
    ] = Field(DEFAULT_SHARD_BYTES, description="bytes of a shard, like 128MiB")
    readers: Annotated[int, Field(ge=1)] | None = Field(
        None, description="ten shards for each host that reads, none under 10 MB"
    )
    compression: Compression = Field("none", description="of the shards")
    max_rejects: Annotated[
        RejectLimit, BeforeValidator(_limit, json_schema_input_type=str | int)
    ] = Field(RejectLimit(), description="rows that may be rejected, like 10 or 0.5%")
    overwrite: bool = Field(False, description="replace another dataset")
    append: bool = Field(
        False, description="convert new input files only, and add them to the dataset"
    )
    storage: StorageSides = Field(StorageSides(), description="nothing secret")
    exchange: Literal["auto", "reference", "scratch", "engine"] = Field(
        "auto", description="how rows reach their shards; the bytes are the same"
    )
    verify: VerifyLevel = Field(
        "quick", description="full: read every byte again before publishing"
    )
    workers: Annotated[int, Field(ge=0)] = Field(0, description="0: all cores")
    scratch: Text | None = Field(
        None, description="folder for sorted runs; by default inside the output"
    )
    beam: Annotated[
        tuple[str, ...],
        AfterValidator(_no_secret_arguments),
        BeforeValidator(_one_or_more, json_schema_input_type=Text | list[Text]),
    ] = Field((), description="Beam's options, like --runner=...")
    metrics_file: Text | None = Field(
        None, description="Prometheus textfile, written when the run ends"
    )
    log_format: Literal["text", "json"] | None = Field(
        None, description="log lines on stderr"
    )
    params: dict[str, bool | int | float | str | None] = Field(
        {}, description="parameters and their defaults; null: must be given with --set"
    )

    def to_job(self, declared: DeclaredSchema | None) -> JobSpec:
        """Returns what is converted and how; auto stands for the first version here.

        Only for models of `job_file_model`, which have the section of the source.
        """
        if self.shards:
            sharding = Sharding(num_shards=self.shards)
        elif self.readers:
            sharding = Sharding(num_readers=self.readers)
        else:
            sharding = Sharding(shard_bytes=self.shard_size)
        last_part = self.output.rstrip("/").rpartition("/")[2]
        return JobSpec(
            source=self.source,
            name=self.name or identifier_from(last_part),
            version=FIRST_VERSION if self.version == AUTO_VERSION else self.version,
            splits=self.splits,
            split_by=self.split_by,
            sharding=sharding,
            shuffle=self.shuffle,
            seed=self.seed,
            compression=self.compression,
            max_rejects=self.max_rejects,
            source_options=getattr(self, self.source),
            declared=declared,
            payload=self.payload,
        )

    def to_options(self) -> RunOptions:
        """How it is run."""
        return RunOptions(
            inputs=self.inputs,
            output=self.output,
            scratch=self.scratch or "",
            exchange=self.exchange,
            workers=self.workers,
            verify=self.verify,
            overwrite=self.overwrite,
            append=self.append,
            auto_version=self.version == AUTO_VERSION,
            keep=self.keep or 0,
            expect_schema=self.expect_schema or "",
            storage=BothSides(
                StorageOptions.of(self.storage.input),
                StorageOptions.of(self.storage.output),
            ),
            beam_args=self.beam,
        )


def job_file_model(formats: Mapping[str, type[SourceOptions]]) -> type[JobFile]:
    """Returns JobFile with a section for the own options of each of these formats.

    Args:
      formats: each format's options, by its name, which is the section's.
    """
    sections: dict[str, Any] = {
        name: (options, Field(options(), description=f"options of source: {name}"))
        for name, options in formats.items()
    }
    model: type[JobFile] = create_model(
        "JobFile", __base__=JobFile, __doc__=JobFile.__doc__, **sections
    )
    return model
