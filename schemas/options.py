"""Declares every option of a job and of its run, once for all front ends.

The command line, job files, their JSON Schema, the parameters of the Dataflow template
and the tables in docs/ are made from OPTIONS; that WriteDataset agrees is tested. The
options of one input format alone are declared by the format (source_options.py).

A new option is declared here, and used where its value is a field of JobSpec (if it
changes the dataset), RunOptions (if not) or ReportOptions, which take values by name.

Messages name an option in backticks, "raise `max_rejects`", "use `exchange=auto`", and
`spell` puts there what the reader has typed or can type. Nothing here imports pydantic:
`recordmill --help` reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

# convert: the command's options; run: those of `run` and `plan`, which replace what a
# job file says; job_file; pipeline: WriteDataset's arguments; template: Dataflow's.
Front = Literal["convert", "run", "job_file", "pipeline", "template"]
Kind = Literal[
    "text",
    "file",
    "folder",
    "flag",
    "integer",
    "choice",
    "size",
    "memory",
    "name",
    "version",
    "limit",
    "splits",
    "split_times",
    "inputs",
    "globs",
    "source",
    "schema",
    "function",
    "storage",
    "beam",
    "params",
    "settings",
]
Default = str | int | bool | dict[str, str] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One option.

    Attributes:
      name: as job files and Python spell it.
      kind: what its values are.
      help: one sentence for all front ends, without its full stop.
      fronts: the front ends that offer it.
      default: what holds if it is not given; None if that is not one value.
      default_text: the default in words, where `default` does not tell it; texts name
        other options in backticks.
      choices: all values, of a choice.
      minimum, maximum: bounds of an integer, both included.
      flag: the command's spelling without "--", where it is not the name.
      metavar: how the command's help shows a value.
      label: title in the template's form.
      group: heading in the template's form and in docs/options.md.
      pattern: regular expression of a value in the template's form.
      page: of docs/, with more about it.
    """

    name: str
    kind: Kind
    help: str
    fronts: frozenset[Front]
    default: Default = None
    default_text: str = ""
    choices: tuple[str, ...] = ()
    minimum: int | None = None
    maximum: int | None = None
    flag: str = ""
    metavar: str = ""
    label: str = ""
    group: str = ""
    pattern: str = ""
    page: str = ""

    @property
    def command_flag(self) -> str:
        """Returns what the command takes: "--" and words with "-" between."""
        return f"--{self.flag or self.name.replace('_', '-')}"

    @property
    def parameter(self) -> str:
        """Returns its name among the parameters of the Dataflow template."""
        return self.command_flag.removeprefix("--").replace("-", "_")

    @property
    def is_repeated(self) -> bool:
        """Tests whether the command takes it several times."""
        return self.kind in ("splits", "globs", "storage", "settings")

    @property
    def shown_default(self) -> str:
        """Returns the default as people read it, or ""."""
        if self.default_text or self.default is None:
            return self.default_text
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return str(self.default)


def fronts_of(letters: str) -> frozenset[Front]:
    """Returns the front ends that the letters of a text like "CJ" stand for."""
    fronts: dict[str, Front] = {
        "C": "convert",
        "R": "run",
        "J": "job_file",
        "P": "pipeline",
        "T": "template",
    }
    return frozenset(fronts[letter] for letter in letters)


_DATASET, _FILES = "Dataset", "Input and output"
_SCHEMA, _SHARDS = "Schema and rejects", "Splits and shards"
_RUN, _REPORTS = "Run", "Reports"
_JOB_FILE = "Job file"

# fmt: off
OPTIONS = (
    Option(name="source", kind="source", fronts=fronts_of("JT"),
           help="format of the input: images, cifar, csv, parquet, arrow, jsonl, or one that another package adds",
           label="Format of the input", group=_FILES),
    Option(name="inputs", kind="inputs", fronts=fronts_of("JT"),
           help="files, folders, archives or globs", label="Input", group=_FILES,
           page="inputs.md"),
    Option(name="exclude", kind="globs", fronts=fronts_of("CJT"), metavar="GLOB",
           default_text="no file",
           help="files and folders below the inputs to leave out: names at any depth, or "
           "paths below the input folder",
           label="Files to leave out", group=_FILES, page="archives.md#leave-files-out"),
    Option(name="output", kind="folder", fronts=fronts_of("RJPT"), metavar="DIR",
           help="folder of the dataset, or of its versions",
           label="Output", group=_FILES),
    Option(name="name", kind="name", fronts=fronts_of("CJPT"), metavar="NAME",
           default_text="the output's last part", help="name of the dataset",
           label="Name", group=_DATASET, pattern=r"[a-zA-Z]\w*"),
    Option(name="version", kind="version", fronts=fronts_of("CJPT"), default="1.0.0",
           flag="dataset-version", metavar="X.Y.Z|auto",
           help="version of the dataset; auto: each change is published as the next "
           "one, in a folder of its own",
           label="Version", group=_DATASET, pattern=r"\d+\.\d+\.\d+|auto",
           page="jobs.md#versions"),
    Option(name="keep", kind="integer", fronts=fronts_of("CJT"), minimum=1, metavar="N",
           default_text="all", help="number of versions to keep, with `version=auto`",
           label="Versions to keep", group=_DATASET),
    Option(name="schema", kind="schema", fronts=fronts_of("CJPT"), metavar="FILE",
           default_text="inferred, or the format's own",
           help="declared features: a file in YAML or schema.pbtxt",
           label="Schema", group=_SCHEMA,
           page="schema.md"),
    Option(name="expect_schema", kind="file", fronts=fronts_of("CJT"),
           metavar="FILE|DATASET",
           help="schema file or dataset; publish nothing whose features differ from it",
           label="Expected schema", group=_SCHEMA),
    Option(name="map", kind="function", fronts=fronts_of("CJT"),
           metavar="FILE.py:FUNCTION",
           help="Python function of your own that makes the rows from those that are read, "
           "batch by batch: FILE.py:FUNCTION or MODULE:FUNCTION; it is run",
           label="Function on batches", group=_SCHEMA, page="map.md"),
    Option(name="payload", kind="choice", fronts=fronts_of("CJPT"), default="example",
           choices=("example", "sequence_example", "json", "raw"),
           help="what a record holds", label="Payload", group=_DATASET,
           page="schema.md"),
    Option(name="label", kind="text", fronts=fronts_of("CJT"), metavar="COLUMN",
           default_text="no column",
           help="column of a table that becomes a class label, with the names of its classes",
           label="Column that is the class label", group=_SCHEMA,
           page="splits.md#class-labels"),
    Option(name="splits", kind="splits", fronts=fronts_of("CJPT"), flag="split",
           default={"train": "1"}, default_text="train=1", metavar="NAME=FRACTION",
           help="a split and its share of the rows, like train=0.9 or train=2/3",
           label="Splits", group=_SHARDS),
    Option(name="split_by", kind="text", fronts=fronts_of("CJPT"), metavar="COLUMN",
           default_text="every row by itself",
           help="column; rows with the same value in it stay in one split",
           label="Column that decides the split", group=_SHARDS),
    Option(name="split_exact", kind="flag", fronts=fronts_of("CJPT"), default=False,
           help="give each split exactly its share of the rows; the input is read once more",
           label="Exact splits", group=_SHARDS, page="splits.md#exact-splits"),
    Option(name="stratify_by", kind="text", fronts=fronts_of("CJPT"), metavar="COLUMN",
           default_text="no column",
           help="column, such as the label; each of its values has exact splits",
           label="Column of which each value is divided exactly", group=_SHARDS,
           page="splits.md#exact-splits"),
    Option(name="split_column", kind="text", fronts=fronts_of("CJPT"), metavar="COLUMN",
           default_text="`splits` decide",
           help="column of a table that names the split of each row; it is no feature",
           label="Column that names the split", group=_SHARDS,
           page="splits.md#by-a-column"),
    Option(name="split_by_time", kind="split_times", fronts=fronts_of("CJPT"),
           metavar="COLUMN=A,TIME,B", default_text="`splits` decide",
           help="column of a table, and splits with the times or numbers between them, like "
           "date=train,2026-01-01,test",
           label="Splits by time", group=_SHARDS, page="splits.md#by-time"),
    Option(name="duplicates", kind="choice", fronts=fronts_of("CJT"), default="ignore",
           choices=("ignore", "report", "fail"),
           help="look for records with the same content in several splits: report tells, "
           "fail publishes nothing", label="Same content in several splits",
           group=_SHARDS, page="splits.md#the-same-content-in-several-splits"),
    Option(name="shuffle", kind="flag", fronts=fronts_of("CJT"), default=True,
           help="shuffle the whole dataset, or keep the order of the input",
           label="Shuffle", group=_SHARDS),
    Option(name="seed", kind="integer", fronts=fronts_of("CJPT"), default=0, minimum=0,
           maximum=(1 << 64) - 1, metavar="N",
           help="another seed gives another order and other splits",
           label="Seed", group=_SHARDS),
    Option(name="shards", kind="integer", fronts=fronts_of("CJPT"), minimum=1,
           maximum=99_999, metavar="N", default_text="as `shard_size` asks for",
           help="number of shards of each split", label="Shards of each split",
           group=_SHARDS),
    Option(name="shard_size", kind="size", fronts=fronts_of("CJPT"), default="128MiB",
           metavar="SIZE", help="size of a shard in bytes, like 128MiB or 100MB",
           label="Size of a shard", group=_SHARDS, pattern=r"[\d.]+ ?[a-zA-Z]*"),
    Option(name="readers", kind="integer", fronts=fronts_of("CJT"), minimum=1,
           metavar="N", default_text="as `shard_size` asks for",
           help="number of hosts that will read: ten shards for each, none under 10 MB",
           label="Hosts that will read", group=_SHARDS),
    Option(name="compression", kind="choice", fronts=fronts_of("CJPT"), default="none",
           choices=("none", "gzip"),
           help="compression of the shards; TFDS reads only those without",
           label="Compression of the shards", group=_DATASET),
    Option(name="gzip_level", kind="integer", fronts=fronts_of("CJPT"), default=6,
           minimum=1, maximum=9, metavar="N",
           help="1 is fast, 9 is small; with `compression=gzip`",
           label="Level of gzip", group=_DATASET),
    Option(name="container", kind="choice", fronts=fronts_of("CJPT"), default="tfrecord",
           choices=("tfrecord", "array_record"),
           help="file format of the shards; array_record is for Grain and tfds.data_source",
           label="File format of the shards", group=_DATASET,
           page="reading-datasets.md#arrayrecord"),
    Option(name="index", kind="flag", fronts=fronts_of("CJPT"), default=False,
           help="write SHARD.idx beside each shard, by which readers find single records",
           label="Index files", group=_DATASET,
           page="reading-datasets.md#rows-by-number"),
    Option(name="max_rejects", kind="limit", fronts=fronts_of("CJPT"), default="0",
           metavar="N|P%",
           help="rows that may be rejected: a count like 10, or a share like 0.5%",
           label="Rows that may be rejected", group=_SCHEMA,
           pattern=r"\d+|\d+(\.\d+)?%"),
    Option(name="overwrite", kind="flag", fronts=fronts_of("CJPT"), default=False,
           help="replace another dataset in the output, or this one if it is damaged",
           label="Overwrite", group=_FILES),
    Option(name="grace", kind="choice", fronts=fronts_of("CRJPT"), default="next-run",
           choices=("next-run", "0"),
           help="how long the files of a replaced dataset stay for its readers; 0: not "
           "at all", label="Grace", group=_FILES,
           page="output-files.md#replaced-datasets"),
    Option(name="append", kind="flag", fronts=fronts_of("CJT"), default=False,
           help="convert new input files only, and add them to the dataset",
           label="Append", group=_FILES,
           page="jobs.md#appending"),
    Option(name="storage", kind="storage", fronts=fronts_of("CJPT"),
           flag="storage-option", metavar="KEY=VALUE",
           help="options of the file systems, never a secret",
           label="Options of the file systems", group=_FILES,
           page="storage.md"),
    Option(name="exchange", kind="choice", fronts=fronts_of("CJPT"), default="auto",
           choices=("auto", "reference", "scratch", "engine"),
           help="how records reach the writers of their shards; gives the same bytes",
           label="Exchange", group=_RUN,
           page="architecture.md#exchange"),
    Option(name="scratch", kind="folder", fronts=fronts_of("CJP"), metavar="DIR",
           default_text="inside the output",
           help="directory for temporary sorted files",
           group=_RUN),
    Option(name="memory", kind="memory", fronts=fronts_of("CRJ"), default="auto",
           metavar="SIZE|auto",
           help="memory for sorted records, before they go to scratch; auto: a quarter "
           "of what is free, at most 1 GiB", group=_RUN,
           page="guarantees.md"),
    Option(name="verify", kind="choice", fronts=fronts_of("CJT"), default="quick",
           choices=("quick", "full"),
           help="check before publishing: quick compares sizes, counts and stored "
           "checksums, full reads every byte again", label="Verify", group=_RUN),
    Option(name="workers", kind="integer", fronts=fronts_of("CRJ"), default=0, minimum=0,
           default_text="all cores", metavar="N",
           help="threads of the embedded runner; 0: all cores",
           group=_RUN),
    Option(name="beam", kind="beam", fronts=fronts_of("J"),
           help="options of Beam, like --runner=...; the command takes them after --",
           group=_RUN,
           page="clusters.md"),
    Option(name="metrics_file", kind="file", fronts=fronts_of("CRJ"), metavar="FILE",
           help="Prometheus textfile, written when the run ends",
           group=_REPORTS),
    Option(name="log_format", kind="choice", fronts=fronts_of("CRJT"),
           choices=("text", "json"), default_text="bars and a summary",
           help="log lines on stderr, for runs that nobody watches",
           label="Log lines", group=_REPORTS),
    Option(name="as_json", flag="json", kind="flag", fronts=fronts_of("CR"), default=False,
           default_text="text on stderr", help="print one JSON object to stdout",
           group=_REPORTS),
    Option(name="detach", kind="flag", fronts=fronts_of("CR"), default=False,
           help="submit the job to the runner, and do not wait for its end",
           group=_RUN,
           page="clusters.md"),
    Option(name="plan", kind="flag", fronts=fronts_of("C"), default=False,
           help="show what would happen, and do nothing",
           group=_RUN),
    Option(name="set", kind="settings", fronts=fronts_of("RT"), metavar="KEY=VALUE",
           default_text="{{ date }} is today, UTC", help="a value for {{ KEY }}",
           label="Parameters of the job file", group=_JOB_FILE),
    Option(name="params", kind="params", fronts=fronts_of("J"),
           help="parameters and their defaults; null: must be set by the command",
           group=_JOB_FILE,
           page="jobs.md#parameters"),
)
# fmt: on

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def offered_by(front: Front) -> tuple[Option, ...]:
    """Returns the options that a front end offers, in their order."""
    return tuple(option for option in OPTIONS if front in option.fronts)


def by_group(options: Iterable[Option]) -> list[Option]:
    """Returns options sorted by their groups, which are in the order of OPTIONS."""
    groups = list(dict.fromkeys(option.group for option in OPTIONS))
    return sorted(options, key=lambda option: groups.index(option.group))


Style = Literal["command", "job_file", "python"]

_MARKED = re.compile(r"`([a-z][a-z_]*)(?:=([^`\s]+))?`")
_POSITIONAL = {"inputs": "INPUT", "output": "OUTPUT"}  # of convert


def spell(message: str, style: Style) -> str:
    """Replaces the options that a message names in backticks by their spelling.

    A name that is not declared here is taken for an option of one input format.

    >>> message = "raise `max_rejects`, or use `shuffle=false` and `exchange=auto`"
    >>> spell(message, "command")
    'raise --max-rejects, or use --no-shuffle and --exchange auto'
    >>> spell(message, "job_file")
    'raise max_rejects:, or use shuffle: false and exchange: auto'
    >>> spell(message, "python")
    "raise max_rejects=, or use shuffle=False and exchange='auto'"
    """

    def spelled(found: re.Match[str]) -> str:
        option = BY_NAME.get(found[1]) or _own_option(found[1])
        return _spell_one(option, found[2] or "", style)

    return _MARKED.sub(spelled, message)


def _spell_one(option: Option, value: str, style: Style) -> str:
    is_flag = option.kind == "flag"
    if style == "command" or (style == "job_file" and "job_file" not in option.fronts):
        if option.name in _POSITIONAL:
            return _POSITIONAL[option.name]
        flag = option.command_flag
        if is_flag and value:
            return flag if value == "true" else flag.replace("--", "--no-", 1)
        return f"{flag} {value}" if value else flag
    if style == "job_file":
        return f"{option.name}: {value}" if value else f"{option.name}:"
    if is_flag and value:
        value = value.capitalize()
    elif value and option.kind != "integer":
        value = repr(value)
    return f"{option.name}={value}"


def _own_option(name: str) -> Option:
    return Option(
        name=name, kind="text", help="", fronts=frozenset({"convert", "job_file"})
    )
