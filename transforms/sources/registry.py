"""Finds input formats by name: those built in, and those that other packages add.

A format is a SourceFormat. The built-in ones are in a table of modules, imported when
asked for. Another package offers one as an entry point:

    [project.entry-points."recordmill.sources"]
    lines = "recordmill_lines.plugin:FORMAT"

Nothing here imports Arrow, so the command line can ask for names and options quickly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from recordmill.schemas.errors import UsageError
from recordmill.schemas.source_options import (
    PIPELINE_ROWS,
    SOURCE_PATTERN,
    SourceOptions,
)
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions

if TYPE_CHECKING:
    from recordmill.schemas.input_files import InputFile
    from recordmill.schemas.job import JobSpec
    from recordmill.transforms.sources.base import Source

GROUP = "recordmill.sources"  # of entry points
_BUILT_IN = "recordmill.transforms.sources.built_in"
BUILT_IN = {
    "images": "recordmill.transforms.sources.images.options",
    **dict.fromkeys(("cifar", "csv", "parquet", "arrow", "jsonl", "binary"), _BUILT_IN),
    **dict.fromkeys(("idx", "numpy", "tfrecord", "webdataset"), _BUILT_IN),
}

Options = TypeVar("Options", bound=SourceOptions)


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks of a source, beside the options of its format."""

    storage: StorageOptions = NO_OPTIONS  # options of the inputs' storage
    # whether a declared schema converts the cells: a format whose cells are text then
    # gives them as they are
    as_text: bool = False
    columns: tuple[str, ...] = ()  # those that the schema uses; () without one
    # whether cells name files, which are read for their rows: so these may be large
    names_files: bool = False
    job: JobSpec | None = None  # the job; None for a table beside the input


@dataclass(frozen=True, kw_only=True)
class SourceFormat(Generic[Options]):
    """One input format that jobs can name."""

    name: str  # as jobs and the command line spell it
    summary: str  # one sentence for help texts
    # the model of the format's own options; every option has a default
    options: type[Options]
    # (options, what the job asks) -> the source, not yet prepared
    make_source: Callable[[Options, Request], Source]
    # (options, files) -> what fixes the bytes of the dataset beside options, paths,
    # sizes and versions, such as how the given folders are read; "" for nothing
    describe_inputs: Callable[[Options, Sequence[InputFile]], str] | None = None
    # (reader of a file's bytes, byte offset) -> number of the line there; None where
    # rows are not lines
    line_of: Callable[[Callable[[int, int], bytes], int], int] | None = None
    # what the position of a reject counts: bytes of its file, or rows
    position_unit: Literal["byte", "row"] = "byte"
    # (what it does, the line as it is typed) of `recordmill convert` and `recordmill
    # schema infer`, for their help
    examples: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not re.match(SOURCE_PATTERN, self.name) or self.name == PIPELINE_ROWS:
            raise ValueError(
                f"{self.name!r} is not a valid name of a format; expected lower-case "
                f"letters, digits and '_', and not {PIPELINE_ROWS!r}"
            )


def format_names() -> tuple[str, ...]:
    """Returns the names of all formats, those built in first; imports none of them."""
    return (*BUILT_IN, *sorted(_entry_points().keys() - BUILT_IN.keys()))


def load_format(name: str) -> SourceFormat[Any]:
    """Imports a format by its name.

    Raises:
      UsageError: there is none, two packages offer it, or one cannot be imported.
    """
    offers = _entry_points().get(name, ())
    packages = _packages(offers)
    if name in BUILT_IN and offers:
        raise UsageError(
            f"source {name}: is built in, but {packages} adds a format of the same name: "
            "uninstall that package, or rename the format in it"
        )
    if name in BUILT_IN:
        built_in: SourceFormat[Any] = import_module(BUILT_IN[name]).FORMATS[name]
        return built_in
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
        found = point.load()
    except Exception as error:  # whatever another package's code raises
        raise UsageError(
            f"source {name}: {point.value} of {packages} cannot be imported: "
            f"{type(error).__name__}: {error}; repair or uninstall that package"
        ) from error
    if not isinstance(found, SourceFormat) or found.name != name:
        raise UsageError(
            f"source {name}: {point.value} of {packages} is not a SourceFormat with the "
            f"name {name!r}, but {found!r}; the package has to be repaired"
        )
    return found


class InstalledFormats(Mapping[str, type[SourceOptions]]):
    """The options of each format by its name, each imported when it is looked up."""

    def __getitem__(self, name: str) -> type[SourceOptions]:
        if name not in format_names():
            raise KeyError(name)
        options: type[SourceOptions] = load_format(name).options
        return options

    def __iter__(self) -> Iterator[str]:
        return iter(format_names())

    def __len__(self) -> int:
        return len(format_names())


def make_source(job: JobSpec, storage: StorageOptions = NO_OPTIONS) -> Source:
    """Makes the source of the files that a job names, not yet prepared.

    A job without options of its own has the defaults of its format.

    Raises:
      UsageError: as `load_format`.
      ValueError: the rows come from a pipeline, or the options are another format's.
    """
    found, options = _format_and_options(job)
    declared, columns = job.declared, set[str]()
    features = declared.features.values() if declared is not None else ()
    # With `map`, what is declared is what the function makes.
    as_text = declared is not None and job.map is None
    if declared is not None and as_text:
        columns = {declared.column_of(name) for name in declared.features}
        times = job.split_by_time.rpartition("=")[0] if job.split_by_time else None
        others = (job.split_column, job.split_by, job.stratify_by, times)
        columns |= {name for name in others if name is not None}
    names_files = any(feature.bytes_from for feature in features)
    request = Request(storage, as_text, tuple(sorted(columns)), names_files, job)
    return found.make_source(options, request)


def describe_inputs(job: JobSpec, files: Sequence[InputFile]) -> str:
    """Returns what fixes the bytes of a dataset beside the job and its inventory."""
    found, options = _format_and_options(job)
    return found.describe_inputs(options, files) if found.describe_inputs else ""


def _format_and_options(job: JobSpec) -> tuple[SourceFormat[Any], SourceOptions]:
    if job.source == PIPELINE_ROWS:
        raise ValueError("the rows of a pipeline have no files to be read from")
    found = load_format(job.source)
    options = job.source_options
    if type(options) is SourceOptions:
        options = found.options()
    if not isinstance(options, found.options):
        raise ValueError(
            f"source {job.source} has options of type {found.options.__name__}, "
            f"got {type(options).__name__}"
        )
    return found, options


@cache
def _entry_points() -> dict[str, tuple[EntryPoint, ...]]:
    offers: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        offers[point.name] = (*offers.get(point.name, ()), point)
    return offers


def _packages(points: tuple[EntryPoint, ...]) -> str:
    """Returns "package lines 1.0 and package rows 2.0"."""
    return " and ".join(
        f"package {point.dist.name} {point.dist.version}"
        if point.dist
        else f"the package of {point.value}"
        for point in points
    )
