"""Defines JobSpec, which fixes the bytes of a dataset, and RunOptions, which do not."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, cast, get_args

from pydantic import (
    AfterValidator,
    Field,
    SerializeAsAny,
    field_validator,
    model_validator,
)

from recordmill.schemas.declared import DeclaredSchema, FrozenModel
from recordmill.schemas.errors import UsageError
from recordmill.schemas.options import (
    Compression,
    Container,
    Duplicates,
    Grace,
    LogFormat,
    Payload,
    RequestedExchange,
    Style,
    VerifyLevel,
)
from recordmill.schemas.source_options import SOURCE_PATTERN, SourceOptions
from recordmill.schemas.storage_options import (
    StorageOptionsPair,
    require_beam_options_without_secrets,
)

_PUSH_URL = re.compile(r"https?://[^/?#@\s]+(/[^?#\s]*)?")
_FUNCTION_FORMS = "FILE.py:FUNCTION or MODULE:FUNCTION"


class MapFunction(FrozenModel):
    """A function that a job calls for each batch of rows, with the text of its module.

    A job names it as FILE.py:FUNCTION or MODULE:FUNCTION. Workers run the text of a file.
    For a module, they compare its text with their own copy.
    """

    function: str  # name of the function
    # source text of the module; fingerprints include only its checksum
    text: Annotated[str, Field(repr=False)]
    # name of the module's file, for messages; "" if the module is imported by name
    file: str = ""
    # name by which workers import the module; "" if they run the text
    module: str = ""

    @property
    def label(self) -> str:
        """Returns the name of the function for messages."""
        return f"{self.file or self.module}:{self.function}"

    @property
    def checksum(self) -> str:
        """Returns a checksum of the text, in hexadecimal digits."""
        return blake2b(self.text.encode(), digest_size=16).hexdigest()


def split_function_reference(reference: str) -> tuple[str, str]:
    """Splits FILE.py:FUNCTION or MODULE:FUNCTION at the colon.

    >>> split_function_reference("gs://bucket/my_map.py:tokenise")
    ('gs://bucket/my_map.py', 'tokenise')
    """
    place, colon, function = reference.rpartition(":")
    names = [function] if is_file_reference(place) else [*place.split("."), function]
    if not colon or not all(name.isidentifier() for name in names):
        raise UsageError(f"`map`: expected {_FUNCTION_FORMS}, found {reference!r}")
    return place, function


def is_file_reference(place: str) -> bool:
    """Returns whether a reference names a file, not a module.

    >>> is_file_reference("maps/my_map.py"), is_file_reference("maps.my_map")
    (True, False)
    """
    return place.endswith(".py")


def load_map(reference: str, read: Callable[[str], bytes]) -> MapFunction:
    """Reads the text of the module that a job names; does not run a file."""
    place, function = split_function_reference(reference)
    if is_file_reference(place):
        content = read(place)
        module_fields = {"file": place.replace("\\", "/").rpartition("/")[2]}
    else:
        content, module_fields = find_module_file(place).read_bytes(), {"module": place}
    try:
        text = content.decode()
        if "file" in module_fields:
            compile(text, place, "exec")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"`map` {place}: is not text in UTF-8 (byte {error.start}). Save it as UTF-8"
        ) from error
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"`map` {place}: is not valid Python: {error}") from error
    return MapFunction(function=function, text=text, **module_fields)


def find_module_file(module: str) -> Path:
    """Returns the file of an importable module."""
    try:
        module_spec = importlib.util.find_spec(module)
    except Exception as error:  # any error of the parent packages
        problem = f"cannot be imported here: {type(error).__name__}: {error}"
        raise _module_error(module, problem) from error
    if module_spec is None:
        raise _module_error(module, "cannot be found here")
    if not module_spec.origin or not module_spec.origin.endswith(".py"):
        problem = "has no source file (.py), which the dataset's fingerprint requires"
        raise _module_error(module, problem)
    return Path(module_spec.origin)


def _module_error(module: str, problem: str) -> UsageError:
    file = f"{module.replace('.', '/')}.py"
    file_hint = f"./{file}" if Path(file).is_file() else "FILE.py"
    return UsageError(
        f"`map`: module {module!r} {problem}. Install it, or put its folder on "
        f"PYTHONPATH, also on each worker; or name its file: {file_hint}:FUNCTION"
    )


DEFAULT_SHARD_BYTES = 128 << 20
FIRST_VERSION = "1.0.0"
AUTO_VERSION = "auto"  # publishes each change as the next patch version
MAX_SPLITS = 255  # the split of a row is a u8, and a format may add a test split

NAME_PATTERN = re.compile(r"[a-zA-Z]\w*", re.ASCII)
SPLIT_PATTERN = re.compile(r"(?:\w|-)+", re.ASCII)
# A version is the name of a folder, so it has fewer than 255 bytes.
VERSION_PATTERN = re.compile(r"\d{1,80}\.\d{1,80}\.\d{1,80}", re.ASCII)


def _create_check(pattern: re.Pattern[str], expected: str) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"expected {expected}, found {text!r}")
        return text

    return check


check_name = _create_check(
    NAME_PATTERN, "a name of letters, digits and '_' that starts with a letter"
)
check_version = _create_check(VERSION_PATTERN, "a version like 1.0.0")
check_split_name = _create_check(
    SPLIT_PATTERN, "a split name of letters, digits, '_' and '-'"
)


def parse_fraction(text: str) -> Fraction:
    """Parses a fraction like "0.8" or "4/5" exactly; raises ValueError if invalid."""
    # No exponents, because the exact value of 1e-999999999 would fill the memory.
    if re.fullmatch(r"\d*\.?\d+|\d+/\d+", text, re.ASCII):
        with suppress(ZeroDivisionError):
            return Fraction(text)
    raise ValueError(f"expected a fraction like 0.8 or 4/5, found {text!r}")


def parse_share(text: str) -> Fraction:
    """Parses a share of the rows.

    >>> parse_share("1%"), parse_share("0.01")
    (Fraction(1, 100), Fraction(1, 100))
    """
    try:
        share = parse_fraction(text.removesuffix("%"))
    except ValueError as error:
        raise ValueError(f"expected a share like 1% or 0.01, found {text!r}") from error
    share /= 100 if text.endswith("%") else 1
    if not 0 < share <= 1:
        raise ValueError(f"expected a share above 0 and at most 100%, found {text}")
    if share == 1 and not text.endswith("%"):
        raise ValueError(f"{text} may mean 1% or all rows: write 1% or 100%")
    return share


def _check_fraction(text: str) -> str:
    if not 0 < parse_fraction(text) <= 1:
        raise ValueError(f"expected a fraction above 0 and at most 1, found {text}")
    return text


BalanceRule = Literal["undersample", "oversample", "weights"]


def parse_balance(text: str) -> tuple[str, BalanceRule]:
    """Parses a column of classes and the rule that balances them.

    >>> parse_balance("species=undersample")
    ('species', 'undersample')
    """
    column, _, rule = text.rpartition("=")
    if not column or rule not in get_args(BalanceRule):
        *other_rules, last = get_args(BalanceRule)
        raise ValueError(
            f"expected a column and {', '.join(other_rules)} or {last}, like "
            f"species=undersample; found {text!r}"
        )
    return column, cast("BalanceRule", rule)


class SplitSpec(FrozenModel):
    """A split: its name, and its share of the rows as text, so that it is exact."""

    name: Annotated[str, AfterValidator(check_split_name)]
    fraction: Annotated[str, AfterValidator(_check_fraction)]


class Sharding(FrozenModel):
    """A rule for the number of shards of a split: by count, by size or by readers."""

    num_shards: Annotated[int, Field(ge=1, le=99_999)] | None = None
    shard_bytes: Annotated[int, Field(ge=1)] | None = None
    num_readers: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        rules = (self.num_shards, self.shard_bytes, self.num_readers)
        if sum(rule is not None for rule in rules) != 1:
            raise ValueError("expected one rule for the number of shards")
        return self

    def count_shards(self, num_bytes: int, num_records: int) -> int:
        """Returns the number of shards of a split, at most its number of records."""
        if num_records == 0:
            return 0
        if self.num_shards is not None:
            num_shards = self.num_shards
        elif self.shard_bytes is not None:
            num_shards = -(-num_bytes // self.shard_bytes)
        else:
            assert self.num_readers is not None  # by _one_rule
            # TensorFlow's tutorial: ten shards per reading host, each at least 10 MB.
            num_shards = min(10 * self.num_readers, num_bytes // 10_000_000)
        return max(1, min(num_shards, num_records, 99_999))


class RejectLimit(FrozenModel):
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

    def max_rejects(self, rows_read: int) -> int:
        """Returns the maximum number of rejects."""
        if self.text.endswith("%"):
            return int(Fraction(Decimal(self.text[:-1])) / 100 * rows_read)
        return int(self.text)


def _check_splits(splits: tuple[SplitSpec, ...]) -> tuple[SplitSpec, ...]:
    """Checks that the names of splits differ and that their shares add up to 1."""
    names = [split.name for split in splits]
    if len(names) > MAX_SPLITS:
        raise ValueError(f"expected at most {MAX_SPLITS} splits, found {len(names)}")
    if len(set(names)) != len(names):
        raise ValueError(f"split names must differ, found {', '.join(names)}")
    total = sum(parse_fraction(split.fraction) for split in splits)
    if total != 1:
        fractions = " + ".join(split.fraction for split in splits)
        raise ValueError(
            "the fractions of the splits must add up to 1, so that no row is lost; "
            f"found {fractions or 'no split'}"
        )
    return splits


DatasetName = Annotated[str, AfterValidator(check_name)]
Version = Annotated[str, AfterValidator(check_version)]
Splits = Annotated[tuple[SplitSpec, ...], AfterValidator(_check_splits)]


def check_splits(shares: Iterable[tuple[str, str]]) -> tuple[SplitSpec, ...]:
    """Creates splits from names and shares; raises ValueError if they are invalid."""
    return _check_splits(
        tuple(SplitSpec(name=check_split_name(name), fraction=x) for name, x in shares)
    )


DEFAULT_SPLITS = (SplitSpec(name="train", fraction="1"),)
Seed = Annotated[int, Field(ge=0, lt=1 << 64)]


class JobSpec(FrozenModel):
    """A job: the conversion of inputs to a dataset.

    Equal specs on equal inputs produce equal bytes. `source` names an input format, and
    `source_options` are the options of that format. The creator of a job validates them
    (recordmill.transforms.sources.registry).
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
    declared: DeclaredSchema | None = None  # None: from the source, or inferred
    payload: Payload = "example"
    index: bool = False  # whether each shard gets an index file
    container: Container = "tfrecord"
    label: str | None = None
    split_column: str | None = None
    split_by_time: str | None = None
    split_exact: bool = False
    stratify_by: str | None = None
    map: MapFunction | None = None  # converts the rows of the source to other rows
    # columns of `expect_schema`, if the format drops all others (`extra_columns`)
    columns: tuple[str, ...] = ()
    limit: Annotated[int, Field(ge=1)] | None = None
    sample: str | None = None  # in the notation of `Fraction`: 1/100
    balance: str | None = None

    @property
    def copies_rows(self) -> bool:
        """Returns whether rows of small classes are copied to balance the classes."""
        return (
            self.balance is not None and parse_balance(self.balance)[1] == "oversample"
        )

    @property
    def is_sampled(self) -> bool:
        """Returns whether sampling may drop convertible rows."""
        return any(
            setting is not None for setting in (self.limit, self.sample, self.balance)
        )

    @property
    def reads_files(self) -> bool:
        """Returns whether cells name sidecar files, whose bytes become the feature."""
        features = self.declared.features.values() if self.declared else ()
        return any(feature.bytes_from for feature in features)


def to_dataset_name(text: str) -> str:
    """Converts the name of a folder to a valid dataset name.

    >>> to_dataset_name("2024 my-photos")
    'dataset_2024_my_photos'
    """
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    if not name:
        return "dataset"
    return name if name[0].isalpha() else f"dataset_{name}"


_EMBEDDED_RUNNERS = (
    *("direct", "directrunner", "bundlebaseddirectrunner"),
    *("switchingdirectrunner", "fnapirunner"),
)

_NO_STORAGE_OPTIONS = StorageOptionsPair()

# Descriptive options. They change no record, so they are not in the fingerprint.
AboutKey = Literal["description", "license", "citation", "homepage", "contact"]
ABOUT: tuple[AboutKey, ...] = get_args(AboutKey)


class Description(NamedTuple):
    """A description of a dataset for people who find it."""

    texts: Mapping[AboutKey, str] = {}  # texts of the options that are set
    has_card: bool = False  # whether the dataset has croissant.json

    def describe_changes(self, old: Description) -> str:
        """Returns the names of the fields that differ from an old description."""
        old_fields, new_fields = (
            {**description.texts, **({"card": ""} if description.has_card else {})}
            for description in (old, self)
        )
        changed_names = [
            name for name, text in new_fields.items() if text != old_fields.get(name)
        ]
        removed_names = [
            f"without {name}" for name in old_fields if name not in new_fields
        ]
        return ", ".join(changed_names + removed_names)


NO_DESCRIPTION = Description()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options for the run and the reports of a job, which change no byte of the dataset.

    The fields are the options with these names (options.py), or come from them:
    `auto_version` means `version=auto`, `keep` is 0 for all versions, and `beam_args` are
    options of Beam in its spelling, without secrets. `style` is the spelling of options
    in messages.
    """

    inputs: tuple[str, ...]
    output: str
    exclude: tuple[str, ...] = ()
    scratch: str = ""
    memory: str = "auto"
    exchange: RequestedExchange = "auto"
    workers: int = 0
    overwrite: bool = False
    grace: Grace = "next-run"
    append: bool = False
    auto_version: bool = False
    keep: int = 0
    verify: VerifyLevel = "quick"
    duplicates: Duplicates = "ignore"
    strict: bool = False
    expect_schema: str = ""
    storage: StorageOptionsPair = _NO_STORAGE_OPTIONS
    detach: bool = False
    description: Description = NO_DESCRIPTION
    beam_args: tuple[str, ...] = ()
    as_json: bool = False
    metrics_file: str = ""
    metrics_push: str = ""
    log_format: LogFormat | None = None
    style: Style = field(default="command", compare=False)

    def __post_init__(self) -> None:
        require_beam_options_without_secrets(self.beam_args)
        if self.metrics_push and not _PUSH_URL.fullmatch(self.metrics_push):
            raise UsageError(
                "`metrics_push`: expected the address of a Pushgateway without a user, a "
                "query or a fragment, like `metrics_push=http://pushgateway:9091`; "
                "credentials come from a .netrc file"
            )

    @property
    def is_embedded(self) -> bool:
        """Returns whether the job runs in this process, on Beam's embedded runner.

        >>> RunOptions((), "out", beam_args=("--runner", "FlinkRunner")).is_embedded
        False
        """
        return is_embedded_runner(self.beam_option("--runner"))

    def beam_option(self, option_name: str) -> str | None:
        """Returns the value of an option of Beam, or None if it is not set."""
        option_value: str | None = None
        for index, arg in enumerate(self.beam_args):
            name, equals, value = arg.partition("=")
            if name == option_name:
                option_value = (
                    value if equals else "".join(self.beam_args[index + 1 :][:1])
                )
        return option_value


def is_embedded_runner(name: str | None) -> bool:
    """Returns whether a runner's name, or None, means Beam's embedded runner.

    >>> is_embedded_runner("apache_beam.runners.direct.DirectRunner")
    True
    """
    return name is None or name.rpartition(".")[2].lower() in _EMBEDDED_RUNNERS


# Rows with a `date` before the first of January belong to train, later rows to test.
_EXAMPLE = "date=train,2026-01-01,test"
_NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)

Bound = int | float | datetime


@dataclass(frozen=True)
class SplitTimes:
    """A rule that assigns rows to splits by the value of a column."""

    column: str  # name of a column of times or numbers
    names: tuple[str, ...]  # names of the splits, the earliest first
    # rising start of each split except the first: datetimes in UTC, or numbers
    bounds: tuple[Bound, ...]

    @property
    def are_times(self) -> bool:
        """Returns whether the bounds are times."""
        return isinstance(self.bounds[0], datetime)


def parse_split_times(text: str) -> SplitTimes:
    """Parses a text like _EXAMPLE; raises ValueError if it is invalid."""
    column, equals, schedule = text.rpartition("=")
    parts = [part.strip() for part in schedule.split(",")]
    names, texts = parts[::2], parts[1::2]
    if not column or not equals or len(names) < 2 or len(names) == len(texts):
        raise ValueError(
            f"expected a column, and splits with the times between them, like {_EXAMPLE}; "
            f"found {text!r}"
        )
    for name in names:
        if not SPLIT_PATTERN.fullmatch(name):
            raise ValueError(
                "expected a split name of letters, digits, '_' and '-', found "
                f"{name!r}; the whole value is like {_EXAMPLE}"
            )
    if len(set(names)) != len(names) or len(names) > MAX_SPLITS:
        raise ValueError(
            f"expected at most {MAX_SPLITS} different splits, found {', '.join(names)}"
        )
    bounds = [parse_bound(bound_text) for bound_text in texts]
    if len({isinstance(bound, datetime) for bound in bounds}) > 1:
        raise ValueError(f"expected all times or all numbers, found {', '.join(texts)}")
    for (first_text, first), (second_text, second) in pairwise(
        zip(texts, bounds, strict=True)
    ):
        if not first < second:  # type: ignore[operator]
            raise ValueError(
                f"expected ascending times, found {first_text} before {second_text}"
            )
    return SplitTimes(column.strip(), tuple(names), tuple(bounds))


def parse_bound(text: str) -> Bound:
    """Parses a number, or a time in ISO 8601, in UTC by default."""
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    try:
        timestamp = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(
            "expected a number, or a time like 2026-01-01 or 2026-01-01T12:00:00, found "
            f"{text!r}"
        ) from error
    return (
        timestamp.replace(tzinfo=UTC)
        if timestamp.tzinfo is None
        else timestamp.astimezone(UTC)
    )
