"""Defines JobSpec: everything of a job that fixes the bytes of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.job.map_function import MapFunction
from recordmill.schemas.job.source_options import SOURCE_PATTERN, SourceOptions

MIB = 1 << 20
DEFAULT_SHARD_BYTES = 128 * MIB
READER_MIN_SHARD_BYTES = 10_000_000  # the tutorial: no shard under 10 MB ...
SHARDS_PER_READER = 10  # ... and ten shards for each host that reads
FIRST_VERSION = "1.0.0"
AUTO_VERSION = "auto"  # of a run: each change becomes the next patch version
MAX_SPLITS = 255  # a row's split is a u8, and a format may add its own test split

NAME_PATTERN = re.compile(r"[a-zA-Z]\w*", re.ASCII)
SPLIT_PATTERN = re.compile(r"(?:\w|-)+", re.ASCII)
FRACTION_PATTERN = re.compile(r"\d*\.?\d+|\d+/\d+", re.ASCII)
VERSION_PATTERN = re.compile(r"\d+\.\d+\.\d+", re.ASCII)

Compression = Literal["none", "gzip"]
Container = Literal["tfrecord", "array_record"]
Payload = Literal["example", "sequence_example", "json", "raw"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SplitSpec(_Frozen):
    """One split: its name and its share of the rows, as text so that it is exact."""

    name: str
    fraction: str

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not SPLIT_PATTERN.fullmatch(name):
            raise ValueError(
                f"expected a split name of letters, digits, '_' and '-', found {name!r}"
            )
        return name

    @field_validator("fraction")
    @classmethod
    def _fraction(cls, fraction: str) -> str:
        if not 0 < parse_fraction(fraction) <= 1:
            raise ValueError(
                f"expected a fraction above 0 and at most 1, found {fraction}"
            )
        return fraction


def parse_fraction(text: str) -> Fraction:
    """Returns the exact value of "0.8" or "4/5".

    Raises:
      ValueError: if the text is neither.
    """
    try:
        # No exponents: the exact value of 1e-999999999 would fill the memory.
        if not FRACTION_PATTERN.fullmatch(text):
            raise ValueError("not a fraction")
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(
            f"expected a fraction like 0.8 or 4/5, found {text!r}"
        ) from error


class Sharding(_Frozen):
    """A rule for the number of shards of a split: by count, by size or by readers."""

    num_shards: Annotated[int, Field(ge=1, le=99_999)] | None = None
    shard_bytes: Annotated[int, Field(ge=1)] | None = None
    num_readers: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        rules = (self.num_shards, self.shard_bytes, self.num_readers)
        if sum(rule is not None for rule in rules) != 1:
            raise ValueError("`shards`, `shard_size` and `readers` exclude each other")
        return self

    def shards_for(self, num_bytes: int, num_records: int) -> int:
        """Returns the number of shards of a split; never more than it has records."""
        if num_records == 0:
            return 0
        if self.num_shards is not None:
            wanted = self.num_shards
        elif self.shard_bytes is not None:
            wanted = -(-num_bytes // self.shard_bytes)
        else:
            assert self.num_readers is not None  # by _one_rule
            wanted = min(
                SHARDS_PER_READER * self.num_readers,
                num_bytes // READER_MIN_SHARD_BYTES,
            )
        return max(1, min(wanted, num_records, 99_999))


class RejectLimit(_Frozen):
    """The number of rows that may be rejected: a count, or a share of the rows read."""

    text: str = "0"

    @field_validator("text")
    @classmethod
    def _text(cls, text: str) -> str:
        if not re.fullmatch(r"\d+|\d+(\.\d+)?%", text, re.ASCII):
            raise ValueError(
                f"expected a count like 10 or a share like 0.5%, found {text!r}"
            )
        if text.endswith("%") and Decimal(text[:-1]) > 100:
            raise ValueError(f"expected a share of at most 100%, found {text}")
        return text

    def allowed(self, rows_read: int) -> int:
        """Returns the highest number of rejects that is still accepted."""
        if self.text.endswith("%"):
            return int(Fraction(Decimal(self.text[:-1])) / 100 * rows_read)
        return int(self.text)


def check_name(name: str) -> str:
    """Checks a dataset's name, which stands in file names and in TFDS."""
    if not NAME_PATTERN.fullmatch(name):
        raise ValueError(
            "expected a name of letters, digits and '_' that starts with a letter, "
            f"found {name!r}"
        )
    return name


def check_version(version: str) -> str:
    """Checks a dataset's version, three numbers."""
    if not VERSION_PATTERN.fullmatch(version):
        raise ValueError(f"expected a version like 1.0.0, found {version!r}")
    return version


def check_splits(splits: tuple[SplitSpec, ...]) -> tuple[SplitSpec, ...]:
    """Checks that the splits differ and that every row falls into one."""
    names = [split.name for split in splits]
    if len(names) > MAX_SPLITS:
        raise ValueError(f"expected at most {MAX_SPLITS} splits, found {len(names)}")
    if len(set(names)) != len(names):
        raise ValueError(f"split names must differ, found {', '.join(names)}")
    total = sum(parse_fraction(split.fraction) for split in splits)
    if total != 1:
        given = " + ".join(split.fraction for split in splits)
        raise ValueError(
            "the fractions of the splits must add up to 1, so that no row is lost; "
            f"found {given or 'no split'}"
        )
    return splits


DatasetName = Annotated[str, AfterValidator(check_name)]
Version = Annotated[str, AfterValidator(check_version)]
Splits = Annotated[tuple[SplitSpec, ...], AfterValidator(check_splits)]
DEFAULT_SPLITS = (SplitSpec(name="train", fraction="1"),)
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


class JobSpec(_Frozen):
    """What is converted and how. Equal specs on equal inputs give equal bytes.

    `source` names an input format and `source_options` are that format's own; whoever
    makes a job validates them (recordmill.transforms.sources.registry).
    """

    source: Annotated[str, Field(pattern=SOURCE_PATTERN)]
    name: DatasetName
    version: Version = FIRST_VERSION
    splits: Splits = DEFAULT_SPLITS
    split_by: str | None = None
    sharding: Sharding = Sharding(shard_bytes=DEFAULT_SHARD_BYTES)
    shuffle: bool = True
    seed: Seed = 0
    compression: Compression = "none"
    gzip_level: Annotated[int, Field(ge=1, le=9)] = 6
    max_rejects: RejectLimit = RejectLimit()
    source_options: SerializeAsAny[SourceOptions] = SourceOptions()
    declared: DeclaredSchema | None = None  # None: the source's own, or inferred
    payload: Payload = "example"
    index: bool = False  # whether each shard gets an index file
    container: Container = "tfrecord"
    label: str | None = None
    split_column: str | None = None
    split_by_time: str | None = None
    split_exact: bool = False
    stratify_by: str | None = None
    map: MapFunction | None = None  # makes the rows of those that the source reads

    @model_validator(mode="after")
    def _files_fit(self) -> Self:
        for _, what in file_contradictions(
            self.container, self.compression, self.index
        ):
            raise ValueError(what)
        return self


def file_contradictions(
    container: object, compression: object, index: object
) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the options of shard files together: (option, text)."""
    if container == "array_record":
        if compression == "gzip":
            yield (
                "compression",
                "`container=array_record` takes only `compression=none`: its readers go "
                "to single records; leave out one of them",
            )
        if index is True:
            yield (
                "index",
                "`container=array_record` has an index in each shard; leave out `index`",
            )
    elif index is True and compression == "gzip":
        yield (
            "index",
            "`index` requires `compression=none`, as no reader can go to a record in a "
            "compressed shard; leave out one of them",
        )


def identifier_from(text: str) -> str:
    """Makes a valid dataset name from a folder's name.

    >>> identifier_from("2024 my-photos")
    'dataset_2024_my_photos'
    """
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name:
        return "dataset"
    return name if name[0].isalpha() else f"dataset_{name}"
