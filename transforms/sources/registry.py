"""Declares the built-in input formats, and loads them and the formats of other packages.

A format is a SourceFormat. Another package provides one as an entry point:

    [project.entry-points."recordmill.sources"]
    lines = "recordmill_lines.plugin:FORMAT"

This module imports neither Arrow nor NumPy, so that the command shows its help quickly.
The module of a source is imported when the source is created.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import AfterValidator, BeforeValidator, Field

from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_files import folder_name
from recordmill.schemas.job import DEFAULT_SPLITS
from recordmill.schemas.source_options import (
    JOIN_TEXTS,
    PIPELINE_ROWS,
    SOURCE_PATTERN,
    SourceOptions,
)
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.sources.file_splits import FileSplits

if TYPE_CHECKING:
    from recordmill.schemas.input_files import InputFile
    from recordmill.schemas.job import JobSpec
    from recordmill.transforms.inventory import Inventory
    from recordmill.transforms.sources.base import Source
    from recordmill.transforms.sources.partitions import Partitions


ENTRY_POINT_GROUP = "recordmill.sources"  # of entry points
Options = TypeVar("Options", bound=SourceOptions)


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """The requirements of a job for a source, in addition to its format's options."""

    storage: StorageOptions = NO_OPTIONS  # options of the storage of the inputs
    # True if a declared schema converts the cells: a format whose cells are text then
    # returns them unchanged
    as_text: bool = False
    columns: tuple[str, ...] = ()  # the columns of a schema; () without one
    job: JobSpec | None = None  # the job; None for a table of annotations
    # path -> values of columns from the metadata of the file's table, in case the file
    # lacks the columns
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def partitions(self, key_folders: str) -> Partitions:
        """Returns the partitions, not yet found, for the option `partitions`.

        For a table of annotations, key folders are never columns.
        """
        are_read = key_folders == "hive" and self.job is not None
        constants = self.constants if are_read else {}
        partitions: Partitions = _load("partitions.Partitions")(
            are_read, self.as_text, constants
        )
        return partitions

    def file_splits(self, split_from: str) -> FileSplits:
        """Returns the rule, not yet found, by which names define the splits of files."""
        if (job := self.job) is None:
            return FileSplits()
        by_rows = job.split_column is not None or job.split_by_time is not None
        return FileSplits(split_from, by_rows or job.splits != DEFAULT_SPLITS)


@dataclass(frozen=True, kw_only=True)
class SourceFormat(Generic[Options]):
    """An input format that jobs can name."""

    name: str  # the spelling in jobs and on the command line
    summary: str  # one sentence for help texts
    # the model of the options of this format; every option has a default
    options: type[Options]
    # (options, request) -> the source, not yet prepared
    make_source: Callable[[Options, SourceRequest], Source]
    # (options, files, their storage) -> a text that identifies everything that affects
    # the bytes of the dataset apart from options, paths, sizes and versions, such as the
    # interpretation of folder names; "" for nothing
    describe_inputs: (
        Callable[[Options, Sequence[InputFile], StorageOptions], str] | None
    ) = None
    # (reader of a file's bytes, byte offset) -> number of the line at the offset; None if
    # rows are not lines
    line_of: Callable[[Callable[[int, int], bytes], int], int] | None = None
    # the unit of the position of a reject in its file
    position_unit: Literal["byte", "row"] = "byte"
    # (title, command line) of examples in the help of `recordmill convert` and
    # `recordmill schema infer`
    examples: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not re.match(SOURCE_PATTERN, self.name) or self.name == PIPELINE_ROWS:
            raise ValueError(
                f"{self.name!r} is not a valid name of a format; expected lower-case "
                f"letters, digits and '_', and not {PIPELINE_ROWS!r}"
            )


def format_names() -> tuple[str, ...]:
    """Returns the names of all formats, built-in formats first; imports no format."""
    return (*BUILT_IN, *sorted(_entry_points().keys() - BUILT_IN.keys()))


_ENDINGS = {  # endings of file names, in addition to the name of the format
    "images": "jpg jpeg png gif bmp webp tif tiff",
    "audio": "wav wave flac ogg oga opus mp3",
    "csv": "tsv txt tab dat",
    "parquet": "pq",
    "arrow": "feather arrows ipc",
    "jsonl": "ndjson json",
    "numpy": "npy npz",
    "tfrecord": "tfrecords",
    "webdataset": "tar",
}


def guess_format(name: str) -> str:
    """Guesses the format from a misspelled name or from a file name; "" if unknown.

    >>> guess_format("cvs"), guess_format("data/table.tsv.gz"), guess_format("data")
    ('csv', 'csv', '')
    """
    *_, ending = re.sub(r"\.(gz|bz2|xz|zst)$", "", name.lower()).rsplit(".", 1)
    near = () if Path(name).exists() else get_close_matches(name, format_names(), 1)
    formats = [
        name for name in BUILT_IN if ending in (name, *_ENDINGS.get(name, "").split())
    ]
    return next(iter((*formats, *near)), "")


def load_format(name: str) -> SourceFormat[Any]:
    """Imports a format by its name.

    Raises:
      UsageError: the format does not exist, several packages provide it, or its package
        cannot be imported.
    """
    offers = _entry_points().get(name, ())
    packages = _packages(offers)
    if name in BUILT_IN and offers:
        raise UsageError(
            f"source {name}: is built in, but {packages} adds a format of the same name: "
            "uninstall that package, or rename the format in it"
        )
    if name in BUILT_IN:
        builtin_format = BUILT_IN[name]
        source_format = (
            _load(f"{builtin_format}.format.FORMAT")
            if isinstance(builtin_format, str)
            else builtin_format
        )
        return cast("SourceFormat[Any]", source_format)
    if not offers:
        raise UsageError(
            f"source: found {name!r}, expected one of {', '.join(format_names())}; a "
            "format of another package is known once that package is installed"
        )
    if len(offers) > 1:
        raise UsageError(
            f"source {name}: {packages} add a format of this name: uninstall all of them "
            "but one"
        )
    (point,) = offers
    try:
        plugin_format = point.load()
    except Exception as error:  # code of another package can raise any exception
        raise UsageError(
            f"source {name}: {point.value} of {packages} cannot be imported: "
            f"{type(error).__name__}: {error}; repair or uninstall that package"
        ) from error
    if not isinstance(plugin_format, SourceFormat) or plugin_format.name != name:
        raise UsageError(
            f"source {name}: {point.value} of {packages} is not a SourceFormat with the "
            f"name {name!r}, but {plugin_format!r}; the package has to be repaired"
        )
    return plugin_format


class InstalledFormats(Mapping[str, type[SourceOptions]]):
    """A mapping from format names to options; a lookup imports the format."""

    def __getitem__(self, name: str) -> type[SourceOptions]:
        if name not in format_names():
            raise KeyError(name)
        options: type[SourceOptions] = load_format(name).options
        return options

    def __iter__(self) -> Iterator[str]:
        return iter(format_names())

    def __len__(self) -> int:
        return len(format_names())


def make_source(
    job: JobSpec,
    storage: StorageOptions = NO_OPTIONS,
    constants: Mapping[str, Mapping[str, Any]] | None = None,
) -> Source:
    """Creates the source of the files that a job names, not yet prepared.

    A job without source options uses the defaults of its format.

    Args:
      job: the job.
      storage: options of the storage of the inputs.
      constants: see `Request.constants`.

    Raises:
      UsageError: see `load_format`.
      ValueError: the rows come from a pipeline, or the options belong to another format.
    """
    source_format, options = _format_and_options(job)
    declared, columns = job.declared, {*job.columns}
    # With `map`, the declared schema describes the output of the function.
    as_text = declared is not None and job.map is None
    if declared is not None and as_text:
        columns = {declared.column_of(name) for name in declared.features}
    if columns:
        times = job.split_by_time.rpartition("=")[0] if job.split_by_time else None
        balanced = job.balance.rpartition("=")[0] if job.balance else None
        role_columns = (
            job.split_column,
            job.split_by,
            job.stratify_by,
            times,
            balanced,
        )
        columns |= {name for name in role_columns if name is not None}
    request = SourceRequest(
        storage, as_text, tuple(sorted(columns)), job, constants or {}
    )
    return source_format.make_source(options, request)


# Appended by `describe_inputs` if arrays are transformed together with the pixels of
# their images, which earlier versions did not do.
ARRAYS_TRANSFORMED = " arrays moved"


def describe_inputs(
    job: JobSpec, files: Sequence[InputFile], storage: StorageOptions
) -> str:
    """Returns a text for fingerprint and run key.

    It identifies everything that affects the bytes of the dataset apart from the job and
    its inventory.
    """
    source_format, options = _format_and_options(job)
    if source_format.describe_inputs is not None:
        return source_format.describe_inputs(options, files, storage)
    return describe_names(options, files) if isinstance(options, FilesOptions) else ""


def describe_names(options: FilesOptions, files: Sequence[InputFile]) -> str:
    """Returns a text that identifies the interpretation of file and folder names."""
    reading = FileSplits(options.split_from).rule_checksum(files)
    if _reads_partitions(options):
        reading += "".join(_load("partitions.partition_keys")(files))
    return reading


def _reads_partitions(options: SourceOptions) -> bool:
    """Returns True if key folders become columns with these options."""
    is_read = getattr(options, "partitions", "none") == "hive"
    return is_read and not getattr(options, "whole_files", False)


def folder_keys(
    job: JobSpec, files: Inventory, *, unread_by: Source | None = None
) -> list[str]:
    """Returns the keys of folders named key=value that become columns.

    With `unread_by`, returns the keys that this source ignores: they become neither
    columns, splits nor classes.
    """
    # Imported here because help texts need this module, but not Arrow.
    import pyarrow.compute as pc

    # Fast filter: even among millions of files, usually none is below such a folder.
    key_folder_files = files.filter(pc.match_substring(files.paths, "="))
    folders = "/".join(key_folder_files.folders.dictionary.to_pylist()).split("/")
    parts = {folder_name(part) for part in folders if "=" in part}
    if not parts:
        return []
    options = _format_and_options(job)[1]
    if _reads_partitions(options) == (unread_by is not None):
        return []
    if unread_by is not None and not unread_by.infers_types:
        features = unread_by.schema().features
        parts -= {name for feature in features for name in feature.class_names}
    keys = _load("partitions.parse_key_folders")("/".join([*parts, ""])).keys()
    by_key = getattr(options, "split_from", "none") != "none"
    return sorted(keys - ({"split"} if by_key else set()))


def _format_and_options(job: JobSpec) -> tuple[SourceFormat[Any], SourceOptions]:
    """Returns the format of a job, and its options or their defaults."""
    if job.source == PIPELINE_ROWS:
        raise ValueError("the rows of a pipeline have no files to be read from")
    source_format = load_format(job.source)
    options = job.source_options
    if type(options) is SourceOptions:
        options = source_format.options()
    if not isinstance(options, source_format.options):
        raise ValueError(
            f"source {job.source} has options of type {source_format.options.__name__}, "
            f"got {type(options).__name__}"
        )
    return source_format, options


@cache
def _entry_points() -> dict[str, tuple[EntryPoint, ...]]:
    """Returns the entry points of formats, by the name of the format."""
    offers: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        offers[point.name] = (*offers.get(point.name, ()), point)
    return offers


def _packages(points: tuple[EntryPoint, ...]) -> str:
    """Returns a text such as "package lines 1.0 and package rows 2.0"."""
    return " and ".join(
        f"package {point.dist.name} {point.dist.version}"
        if point.dist
        else f"the package of {point.value}"
        for point in points
    )


Variant = Literal["auto", "cifar10", "cifar100"]
ByteOrder = Literal["little", "big"]
Layout = Literal["auto", "stl10"]
Records = Literal["keep", "decode"]
MAX_LEVEL = 9


def level_of(*words: str) -> BeforeValidator:
    """Returns a validator for a number of folders or one of `words`, stored as text."""

    def validate(level: Any) -> str:
        text = str(level)
        if isinstance(level, str | int) and (text in words or text in "0123456789"):
            return text
        raise ValueError(
            f"expected {', '.join(words)} or a number of folders from 0 to {MAX_LEVEL}, "
            f"found {level!r}"
        )

    return BeforeValidator(validate, json_schema_input_type=str | int)


SplitFrom = Annotated[
    str,
    level_of("auto", "none"),
    Field(
        description="level of the folder that names the split of a file: 0 is the "
        "input, 1 a folder in it, and so on. auto: the file name "
        "(train-0.csv, X_test.npy) or a folder name (train, seg_test, "
        "split=dev). none: names define no splits"
    ),
]


class FilesOptions(SourceOptions):
    """Options of formats whose file names may define splits."""

    split_from: SplitFrom = "auto"


ClassNames = Annotated[
    str,
    Field(
        description="input file with the class names of the column label, one per "
        "line; for other columns COLUMN=FILE, comma-separated"
    ),
]


class CifarOptions(SourceOptions):
    """Options of CIFAR binary files."""

    variant: Variant = Field(
        "auto",
        description="variant of CIFAR: cifar10 or cifar100; auto: detected from file "
        "names and sizes",
    )


class BinaryOptions(FilesOptions):
    """Options of binary files with records of a fixed length."""

    record: str = Field(
        "",
        description="fields of a record, in quotes: "
        "'label:u8,image:u8[3,32,32]:chw->hwc'",
    )
    byte_order: ByteOrder = Field(
        "little", description="byte order of the numbers in a record"
    )
    header_bytes: int = Field(
        0, ge=0, description="number of bytes before the first record of each file"
    )
    class_names: ClassNames = ""
    layout: Layout = Field(
        "auto",
        description="published layout of the files; auto: from `record`, otherwise "
        "from file names",
    )


class IdxOptions(FilesOptions):
    """Options of IDX files."""

    class_names: ClassNames = ""


class NumpyOptions(FilesOptions):
    """Options of NumPy files."""

    label_array: str = Field(
        "",
        description="file, or array in an .npz, with the labels; it becomes the column "
        "label",
    )
    class_names: ClassNames = ""


class TfrecordOptions(FilesOptions):
    """Options of TFRecord files."""

    records: Records = Field(
        "keep",
        description="keep: copy the records unchanged, without decoding them. decode: "
        "decode them into columns that a schema can change",
    )


def _load(name: str) -> Any:
    """Imports a name from a module, such as "json_lines.JsonLinesSource"."""
    module, _, name = name.rpartition(".")
    return getattr(import_module(f"recordmill.transforms.sources.{module}"), name)


def _array_source(find: str) -> Callable[[Any, SourceRequest], Any]:
    """Returns the `make_source` of an array format.

    `find` is the name of the function that finds the arrays according to the options.
    """
    return lambda options, request: _load("arrays.source.ArraysSource")(
        _load(find),
        options,
        splits=request.file_splits(options.split_from),
        storage=request.storage,
    )


def _table_source(
    name: str, **source_fields: Any
) -> Callable[[TableOptions, SourceRequest], Any]:
    """Returns the `make_source` of a table format.

    `name` is the name of the source class; `more` has additional fields of that class.
    """
    return lambda options, request: _load(name)(
        as_declared=request.as_text,
        requested_columns=request.columns,
        ignores_extra_columns=options.extra_columns == "ignore",
        splits=request.file_splits(options.split_from),
        partitions=request.partitions(options.partitions),
        storage=request.storage,
        **source_fields,
    )


def import_later(name: str) -> Callable[..., Any]:
    """Returns a function that imports the function `name` when it is called."""
    return lambda *arguments: _load(name)(*arguments)


def _parse_examples(text: str) -> tuple[tuple[str, str], ...]:
    """Parses examples into pairs (title, command line); command lines are indented."""
    parts = re.split(r"\n(?=\S)", dedent(text).strip())
    pairs = (part.split("\n", 1) for part in parts)
    return tuple((title, dedent(line)) for title, line in pairs)


def _table_format(
    name: Literal["parquet", "arrow"], summary: str, folder: str
) -> SourceFormat[TableOptions]:
    """Returns the format of one type of table file, with examples for `folder`."""
    convert = f"recordmill convert {name} {folder} out"
    return SourceFormat(
        name=name,
        summary=summary,
        options=TableOptions,
        make_source=_table_source("tables.ColumnarSource", format_name=name),
        position_unit="row",
        examples=_parse_examples(f"""
            a folder of tables with the same columns
                {convert}/{folder}
            for ten hosts, a tenth of the rows for tests
                {convert}/{folder}-of-ten-hosts --readers 10 \\
                    --split train=0.9 --split test=0.1
            create a schema file as a starting point
                recordmill schema infer {name} {folder} -o {folder}.yaml
        """),
    )


DELIMITERS = {
    "comma": ",",
    "tab": "\t",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
    "colon": ":",
    "caret": "^",
    "tilde": "~",  # a shell expands the character to the home folder
    "0x01": "\x01",  # the delimiter of Hive
    "0x02": "\x02",
    "0x1f": "\x1f",  # the ASCII unit separator
    "\\t": "\t",  # the spelling in a shell
}


def _is_ascii_character(text: str) -> bool:
    """Returns True for a single ASCII character that can be a CSV mark."""
    return len(text) == 1 and text.isascii() and text not in "\r\n\0"


def _validate_delimiter(text: str) -> str:
    """Validates the option `delimiter`; returns its character, or "auto"."""
    delimiter = DELIMITERS.get(text, text)
    if text == "auto" or (_is_ascii_character(delimiter) and delimiter != '"'):
        return delimiter
    words = ", ".join(name for name in DELIMITERS if name.isalpha())
    raise ValueError(f"expected auto, {words} or one ASCII character, found {text!r}")


def _validate_character(text: str) -> str:
    """Validates an option with one ASCII character; returns it, or "none"."""
    character = "\\" if text == "backslash" else text
    if text == "none" or _is_ascii_character(character):
        return character
    raise ValueError(f"expected none or one ASCII character, found {text!r}")


def _validate_encoding(text: str) -> str:
    """Validates the option `encoding`; returns the name of the codec, or "auto"."""
    if text == "auto":
        return text
    try:
        codec = codecs.lookup(text)
        codecs.getincrementaldecoder(text)
        if isinstance("".encode(codec.name), bytes):
            return codec.name.replace("utf-8-sig", "utf-8")
    except (LookupError, ValueError):
        pass
    raise ValueError(
        f"expected auto or an encoding of text that Python knows, such as utf-16, "
        f"latin-1 or cp1252, found {text!r}"
    )


def _join_texts(value: Any) -> Any:
    """Joins a list of strings, as in YAML, with commas; other values are unchanged."""
    if isinstance(value, list | tuple) and all(isinstance(text, str) for text in value):
        return ",".join(value)
    return value


_TEXTS = BeforeValidator(_join_texts, json_schema_input_type=str | list[str])


OddCells = Annotated[
    Literal["refuse", "reject", "widen"],
    Field(
        description="what to do if a few cells (at most 1 % and 1,000) of a column of "
        "numbers or Booleans are something else. refuse: publish nothing. "
        "reject: reject their rows. widen: store the column as text"
    ),
]


ExtraColumns = Annotated[
    Literal["error", "ignore"],
    Field(
        description="what to do with columns that are missing from `schema`, from the "
        "dataset of an append, from `expect_schema`, or otherwise from the "
        "first file. error: publish nothing. ignore: leave them out and "
        "list them"
    ),
]


KeyFolders = Annotated[
    Literal["hive", "none"],
    Field(
        description="hive: folders named key=value become columns (year=2026/0.csv). "
        "none: they do not"
    ),
]


class TableOptions(FilesOptions):
    """Options of tables whose columns have types."""

    extra_columns: ExtraColumns = "error"
    partitions: KeyFolders = "hive"


class JsonLinesOptions(TableOptions):
    """Options of JSON Lines."""

    odd_cells: OddCells = "refuse"


class CsvOptions(FilesOptions):
    """Options of CSV files."""

    dialect: Literal["auto", "excel", "excel-tab", "unix", "rfc4180", "mysql"] = Field(
        "auto",
        description="named dialect; other options override it. excel, unix, rfc4180: "
        "comma, with quotes. excel-tab: tab, with quotes. mysql: tab, "
        "backslash escapes, \\N, neither quotes nor header",
    )
    delimiter: Annotated[str, AfterValidator(_validate_delimiter)] = Field(
        "auto",
        description="field separator: comma, tab, semicolon, pipe, space, colon, "
        "caret, tilde, 0x01 or one character; auto: detected from the "
        "first rows",
    )
    quote: Annotated[str, AfterValidator(_validate_character)] = Field(
        '"',
        description="quote character around cells that contain delimiters or newlines, "
        "or none",
    )
    escape: Annotated[str, AfterValidator(_validate_character)] = Field(
        "none",
        description="escape character, which makes the next character literal: "
        "backslash, another character, or none",
    )
    comment: Annotated[str, AfterValidator(_validate_character)] = Field(
        "none",
        description="skip lines that start with this character; none: skip no lines",
    )
    decimal: Literal["point", "comma"] = Field(
        "point", description="decimal separator: 1.5 or 1,5"
    )
    header: Literal["auto", "first", "none"] = Field(
        "auto",
        description="first: the first line is the header. none: there is no header. "
        "auto: like first, but stop if the first line looks like data",
    )
    columns: Annotated[str, _TEXTS] = Field(
        "",
        description="comma-separated column names of a table without a header: "
        "id,price",
    )
    null_values: Annotated[str, _TEXTS] = Field(
        "",
        description="comma-separated texts that mean a missing value in every column; "
        "in columns of numbers, NA, null and the like always do",
    )
    skip_rows: int = Field(
        0, ge=0, le=100_000, description="number of lines to skip before the header"
    )
    encoding: Annotated[str, AfterValidator(_validate_encoding)] = Field(
        "auto",
        description="text encoding, by Python codec name: utf-8, utf-16, latin-1, "
        "cp1252; auto: utf-8, or the encoding of the byte order mark",
    )
    input_compression: Literal["auto", "none", "gzip", "bz2", "xz", "zstd"] = Field(
        "auto",
        description="compression of the input files; auto: detected from their "
        "first bytes",
    )
    odd_cells: OddCells = "refuse"
    extra_columns: ExtraColumns = "error"
    partitions: KeyFolders = "hive"
    exact: bool = Field(
        False,
        description="publish nothing if float32 would lose digits of a decimal "
        "(default: show a warning)",
    )
    files_root: Annotated[str, JOIN_TEXTS] = Field(
        "",
        description="base folder or URL of the paths in columns with `bytes_from: "
        "path` (default: the table's folder). images,gs://bucket/more: "
        "cells may also name files below the further folders by their full "
        "path. recordmill reads no other files",
    )


_FORMATS: list[SourceFormat[Any]] = [
    SourceFormat(
        name="cifar",
        summary="CIFAR-10 and CIFAR-100 binary files (.bin).",
        options=CifarOptions,
        make_source=lambda options, request: _load("arrays.fixed_records.CifarSource")(
            options=options, storage=request.storage
        ),
        examples=_parse_examples("""
            the folder with data_batch_1.bin and the others
                recordmill convert cifar batches out/digits
            for ten hosts, compressed
                recordmill convert cifar batches out/gzip --readers 10 --compression gzip
            create a schema file as a starting point
                recordmill schema infer cifar batches -o digits.yaml
        """),
    ),
    SourceFormat(
        name="csv",
        summary="Tables of text: CSV, TSV and the like, with inferred types.",
        options=CsvOptions,
        make_source=import_later("csv.source.make_source"),
        line_of=import_later("csv.quotes.count_lines"),
        examples=_parse_examples("""
            infer the types from the whole table
                recordmill convert csv table.csv out/table
            show what would happen; write nothing
                recordmill convert csv table.csv out/table --plan
            a tenth for tests; allow 1 % of rejected rows
                recordmill convert csv table.csv out/split --split train=0.9 \\
                    --split test=0.1 --max-rejects 1%
            create a schema file as a starting point
                recordmill schema infer csv table.csv -o schema.yaml
            with the types from a schema file
                recordmill convert csv table.csv out/typed --schema schema.yaml
        """),
    ),
    _table_format("parquet", "Parquet files (.parquet).", folder="tables"),
    _table_format(
        "arrow",
        "Arrow IPC files and streams (.arrow, .feather, .arrows).",
        folder="frames",
    ),
    SourceFormat(
        name="jsonl",
        summary="JSON Lines: an object in each line (.jsonl, .ndjson).",
        options=JsonLinesOptions,
        make_source=lambda options, request: _table_source(
            "json_lines.JsonLinesSource", odd_cells=options.odd_cells
        )(options, request),
        line_of=import_later("csv.quotes.count_lines"),
        examples=_parse_examples("""
            a folder of files with the same keys
                recordmill convert jsonl texts out/texts
            a tenth of the rows for tests, at most five bad lines
                recordmill convert jsonl texts out/split-texts --split train=0.9 \\
                    --split test=0.1 --max-rejects 5
            create a schema file as a starting point
                recordmill schema infer jsonl texts -o texts.yaml
        """),
    ),
    SourceFormat(
        name="binary",
        summary="Binary records of a fixed length; STL-10.",
        options=BinaryOptions,
        make_source=_array_source("arrays.fixed_records.find_records"),
        examples=_parse_examples("""
            a label and an image in planes, in files like data_batch_1.bin
                recordmill convert binary batches out/planes \\
                    --record 'label:u8,image:u8[3,32,32]:chw->hwc' \\
                    --class-names batches.meta.txt
            create a schema file as a starting point
                recordmill schema infer binary batches -o binary.yaml --record \\
                    'label:u8,image:u8[3,32,32]:chw->hwc'
        """),
    ),
    SourceFormat(
        name="idx",
        summary="MNIST and other IDX files, also .gz.",
        options=IdxOptions,
        make_source=_array_source("arrays.headers.find_idx"),
        position_unit="row",
        examples=_parse_examples("""
            the folder with train-images-idx3-ubyte.gz and the others
                recordmill convert idx digits/idx out/mnist
            create a schema file as a starting point
                recordmill schema infer idx digits/idx -o idx.yaml
        """),
    ),
    SourceFormat(
        name="numpy",
        summary="Arrays of rows in .npy and .npz files.",
        options=NumpyOptions,
        make_source=_array_source("arrays.headers.find_numpy"),
        position_unit="row",
        examples=_parse_examples("""
            images.npy and labels.npy in a folder, with class names
                recordmill convert numpy digits/numpy out/arrays --class-names names.txt
            create a schema file as a starting point
                recordmill schema infer numpy digits/numpy -o numpy.yaml
        """),
    ),
    SourceFormat(
        name="tfrecord",
        summary="Existing TFRecord files.",
        options=TfrecordOptions,
        make_source=import_later("tfrecord.source.make_source"),
        examples=_parse_examples("""
            the same records, shuffled, in shards of 64 MiB
                recordmill convert tfrecord shards out/again --shard-size 64MiB
            other splits, ignoring the file names
                recordmill convert tfrecord shards out/split-again --split-from none \\
                    --split train=0.9 --split test=0.1
            create a schema file as a starting point
                recordmill schema infer tfrecord shards -o shards.yaml
            decode the records and cast them to the schema
                recordmill convert tfrecord shards out/cast --records decode \\
                    --schema shards.yaml
        """),
    ),
    SourceFormat(
        name="webdataset",
        summary="WebDataset: the samples in tar shards.",
        options=TableOptions,
        make_source=_table_source("webdataset.source.WebDatasetSource"),
        examples=_parse_examples("""
            all shards of a folder
                recordmill convert webdataset samples out/samples
            a tenth of the samples for tests, at most five bad ones
                recordmill convert webdataset 'samples/*.tar' out/split-samples \\
                    --split train=0.9 --split test=0.1 --max-rejects 5
            create a schema file as a starting point
                recordmill schema infer webdataset samples -o samples.yaml
        """),
    ),
]
# A string is the folder of a format that is declared together with its many options.
BUILT_IN: dict[str, SourceFormat[Any] | str] = {
    "images": "images",
    "audio": "audio",
    "text": "text_files",
    **{source_format.name: source_format for source_format in _FORMATS},
}
