"""Declares every option of a job and of its run, once for all front ends.

The command line, job files, their JSON Schema, the parameters of the Dataflow template
and the tables in docs/ are created from OPTIONS; a test compares WriteDataset with it.
The options of one input format are declared by the format (source_options.py).

A new option is declared here. Its value becomes the field of the same name in JobSpec if
it changes the dataset, otherwise in RunOptions.

Messages name an option in backticks, "raise `max_rejects`", "use `exchange=auto`", and
`spell` replaces it by the spelling of the user's front end. This module does not import
pydantic, because `recordmill --help` imports it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from recordmill.schemas.errors import UsageError

# Front ends. `run` and `plan` have all options of `convert`, which replace the options in
# a job file; a pipeline has the arguments of WriteDataset; the template is for Dataflow.
CONVERT, RUN, JOB_FILE, PIPELINE, TEMPLATE = "C", "R", "J", "P", "T"

WEIGHT = "sample_weight"  # the feature of `balance=COLUMN=weights`; Keras's word
Compression = Literal["none", "gzip"]
Container = Literal["tfrecord", "array_record"]
Payload = Literal["example", "sequence_example", "json", "raw"]
RequestedExchange = Literal["auto", "reference", "scratch", "engine"]
Grace = Literal["next-run", "0"]
Duplicates = Literal["ignore", "report", "fail"]
VerifyLevel = Literal["quick", "full"]
LogFormat = Literal["text", "json"]
Default = str | int | bool | dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a job or of its run."""

    name: str  # name in job files and Python
    value_kind: str  # kind of its values; job_options.py defines the type of each kind
    front_ends: str  # the front ends that have the option
    help_text: str  # one sentence for all front ends, without its full stop
    # default value; None if the default is not a single value
    default: Default = None
    # the default as text if `default` does not describe it; names other options in
    # backticks
    default_text: str = ""
    choices: tuple[str, ...] = ()  # all values of a choice
    # the lowest and the highest integer; None for no bound
    bounds: tuple[int | None, int | None] = (None, None)
    flag: str = ""  # the flag without "--" if it differs from the name
    metavar: str = ""  # placeholder of the value in the command's help
    docs_page: str = ""  # page of docs/ about the option
    # heading in the help, in the template's form and in docs/options.md
    group: str = ""

    @property
    def command_flag(self) -> str:
        """Returns the flag of the command: "--" and words joined by "-"."""
        return f"--{self.flag or self.name.replace('_', '-')}"

    @property
    def is_repeated(self) -> bool:
        """Returns whether the command accepts the option several times."""
        return self.value_kind in ("splits", "globs", "storage", "settings")

    @property
    def default_description(self) -> str:
        """Returns the default as text for users, or ""."""
        if self.default_text or self.default is None:
            return self.default_text
        text = str(self.default)
        return text.lower() if isinstance(self.default, bool) else text


def _group(title: str, *options: Option) -> tuple[Option, ...]:
    return tuple(replace(option, group=title) for option in options)


# fmt: off
OPTIONS = (
    *_group(
        "Input and output",
        Option("source", "source", "JT",
               "format of the input: images, cifar, csv, parquet, arrow, jsonl, or "
               "one that another package adds"),
        Option("inputs", "inputs", "JT", "files, folders, archives or globs",
               docs_page="inputs.md"),
        Option("exclude", "globs", "CRJT",
               "files and folders to leave out: names at any depth, or paths relative "
               "to the input folder", default_text="no file",
               metavar="GLOB", docs_page="archives.md#leave-files-out"),
        Option("output", "folder", "RJPT",
               "output folder of the dataset, or of its versions", metavar="DIR"),
        Option("overwrite", "flag", "CRJPT",
               "replace another dataset in the output, or a damaged one",
               default=False),
        Option("grace", "choice", "CRJPT",
               "how long to keep the files of a replaced dataset for its readers; 0: "
               "delete them at once", default="next-run", choices=get_args(Grace),
               docs_page="output-files.md#replaced-datasets"),
        Option("append", "flag", "CRJT",
               "convert only new input files and add them to the dataset",
               default=False, docs_page="jobs.md#appending"),
        Option("storage", "storage", "CRJPT",
               "option of a file system, never a secret", flag="storage-option",
               metavar="KEY=VALUE", docs_page="storage.md"),
    ),
    *_group(
        "Dataset",
        Option("name", "name", "CRJPT", "name of the dataset",
               default_text="last part of the output path", metavar="NAME"),
        Option("version", "version", "CRJPT",
               "version of the dataset; auto: publish each change as the next version, "
               "in its own folder", default="1.0.0", flag="dataset-version",
               metavar="X.Y.Z|auto", docs_page="jobs.md#versions"),
        Option("keep", "integer", "CRJT",
               "number of versions to keep; requires `version=auto`", default_text="all",
               bounds=(1, None), metavar="N"),
        Option("payload", "choice", "CRJPT", "content of a record", default="example",
               choices=get_args(Payload),
               docs_page="schema.md"),
        Option("compression", "choice", "CRJPT",
               "compression of the shards; TFDS reads only uncompressed shards",
               default="none", choices=get_args(Compression)),
        Option("gzip_level", "integer", "CRJPT",
               "gzip level: 1 is fastest, 9 is smallest; requires "
               "`compression=gzip`", default=6,
               bounds=(1, 9), metavar="N"),
        Option("container", "choice", "CRJPT",
               "file format of the shards; array_record is for Grain and "
               "tfds.data_source", default="tfrecord",
               choices=get_args(Container),
               docs_page="reading-datasets.md#arrayrecord"),
        Option("index", "flag", "CRJPT",
               "write SHARD.idx next to each shard, an index that lets readers find "
               "single records", default=False, docs_page="reading-datasets.md#rows-by-number"),
    ),
    *_group(
        "Description",
        Option("description", "prose", "CRJT",
               "description of the dataset for people who find it", default_text="none",
               metavar="TEXT", docs_page="output-files.md#description"),
        Option("license", "license", "CRJT",
               "license of the dataset: an SPDX identifier like CC-BY-4.0, or a URL",
               default_text="none", metavar="TEXT"),
        Option("citation", "prose", "CRJT", "citation of the dataset, as BibTeX or "
                                            "text",
               default_text="none", metavar="TEXT"),
        Option("homepage", "url", "CRJT", "URL of the dataset's web page", default_text="none",
               metavar="URL"),
        Option("contact", "prose", "CRJT",
               "contact for questions: a name or an e-mail address",
               default_text="none", metavar="TEXT"),
        Option("card", "flag", "CRJT",
               "write croissant.json for search engines and other tools, with the "
               "SHA-256 of each shard", default=False,
               docs_page="output-files.md#croissant"),
    ),
    *_group(
        "Schema and rejects",
        Option("schema", "schema", "CRJPT",
               "schema file with the declared features: YAML or schema.pbtxt",
               default_text="inferred, or the format's own", metavar="FILE",
               docs_page="schema.md"),
        Option("expect_schema", "file", "CRJT",
               "schema file or dataset; publish nothing if the features differ from it",
               metavar="FILE|DATASET"),
        Option("map", "function", "CRJT",
               "Python function that transforms each batch of input rows: "
               "FILE.py:FUNCTION or MODULE:FUNCTION; recordmill runs its code",
               metavar="FILE.py:FUNCTION", docs_page="map.md"),
        Option("label", "text", "CRJT",
               "column to store as a class label, with the names of its classes", default_text="no column", metavar="COLUMN",
               docs_page="splits.md#class-labels"),
        Option("max_rejects", "limit", "CRJPT",
               "maximum number of rejected rows: a count like 10, or a share like 0.5%",
               default="0", metavar="N|P%"),
    ),
    *_group(
        "Splits and shards",
        Option("splits", "splits", "CRJPT",
               "name of a split and its share of the rows, like train=0.9 or train=2/3",
               default={"train": "1"}, default_text="train=1", flag="split",
               metavar="NAME=FRACTION"),
        Option("split_by", "text", "CRJPT",
               "keep rows with the same value of COLUMN in the same split",
               default_text="each row separately", metavar="COLUMN"),
        Option("split_exact", "flag", "CRJT",
               "assign exactly the requested share of the rows to each split; requires "
               "an extra pass over the input", default=False,
               docs_page="splits.md#exact-splits"),
        Option("stratify_by", "text", "CRJT",
               "split each value of COLUMN, such as the label, in exactly the "
               "requested shares",
               default_text="no column", metavar="COLUMN",
               docs_page="splits.md#exact-splits"),
        Option("limit", "integer", "CRJT",
               "keep the first N rows of the whole dataset, in the order of the "
               "dataset; requires an extra pass over the input", default_text="all rows",
               bounds=(1, None), metavar="N", docs_page="sampling.md"),
        Option("sample", "share", "CRJT",
               "keep this share of the rows, like 1% or 0.01; `seed` selects them",
               default_text="all rows", metavar="P%", docs_page="sampling.md"),
        Option("balance", "balance", "CRJT",
               "balance the classes in COLUMN: drop rows (undersample), repeat rows of "
               "the split train (oversample), or add a feature sample_weight "
               "(weights); reads the input twice",
               default_text="all rows",
               metavar="COLUMN=undersample|oversample|weights",
               docs_page="sampling.md#balanced-classes"),
        Option("split_column", "text", "CRJPT",
               "column with the split of each row; it does not become a feature",
               default_text="as `splits` says", metavar="COLUMN",
               docs_page="splits.md#by-a-column"),
        Option("split_by_time", "split_times", "CRJPT",
               "column with times or numbers, and the splits with the boundaries "
               "between them, like date=train,2026-01-01,test", default_text="as `splits` says",
               metavar="COLUMN=A,TIME,B", docs_page="splits.md#by-time"),
        Option("duplicates", "choice", "CRJT",
               "find records with the same content in different splits. report: show a "
               "warning with their number. fail: publish nothing", default="ignore",
               choices=get_args(Duplicates),
               docs_page="splits.md#the-same-content-in-several-splits"),
        Option("shuffle", "flag", "CRJT",
               "shuffle the whole dataset or keep the input order",
               default=True),
        Option("seed", "integer", "CRJPT",
               "seed of the order and of the splits", default=0,
               bounds=(0, (1 << 64) - 1), metavar="N"),
        Option("shards", "integer", "CRJPT", "number of shards of each split",
               default_text="as `shard_size` says", bounds=(1, 99_999),
               metavar="N"),
        Option("shard_size", "size", "CRJPT",
               "target size of a shard, like 128MiB or 100MB", default="128MiB",
               metavar="SIZE"),
        Option("readers", "integer", "CRJT",
               "number of training hosts; writes ten shards per host, each at least 10 "
               "MB",
               default_text="as `shard_size` says", bounds=(1, None),
               metavar="N"),
    ),
    *_group(
        "Run",
        Option("exchange", "choice", "CRJPT",
               "how records reach the writers of their shards; never changes the bytes",
               default="auto", choices=get_args(RequestedExchange),
               docs_page="architecture.md#exchange"),
        Option("scratch", "folder", "CRJP", "directory for temporary sorted files",
               default_text="in the output folder", metavar="DIR"),
        Option("memory", "memory", "CRJ",
               "memory for sorted records, before they are written to scratch; auto: a "
               "quarter of the free memory, at most 1 GiB", default="auto",
               metavar="SIZE|auto", docs_page="guarantees.md"),
        Option("verify", "choice", "CRJT",
               "check before publishing. quick: compare sizes, counts and stored "
               "checksums. full: also read every byte again", default="quick",
               choices=get_args(VerifyLevel)),
        Option("strict", "flag", "CRJT",
               "publish nothing if there is a warning; for scheduled runs",
               default=False, docs_page="jobs.md#warnings"),
        Option("workers", "integer", "CRJ",
               "number of workers of the embedded runner: threads, or processes for "
               "large inputs; 0: one per core, or two per core if inputs or output are "
               "in a store",
               default=0, default_text="by cores", bounds=(0, None), metavar="N"),
        Option("beam", "beam", "J",
               "options of Beam, like --runner=...; on the command line, write them "
               "after --",
               docs_page="clusters.md"),
        Option("detach", "flag", "CR",
               "submit the job to the runner and do not wait until it ends",
               default=False, docs_page="clusters.md"),
        Option("plan", "flag", "C", "show what would happen; write nothing",
               default=False),
    ),
    *_group(
        "Reports",
        Option("metrics_file", "file", "CRJ",
               "Prometheus textfile to write when the run ends", metavar="FILE"),
        Option("metrics_push", "text", "CRJ",
               "URL of a Prometheus Pushgateway to send the metrics to when the run ends",
               metavar="URL", docs_page="monitoring.md"),
        Option("log_format", "choice", "CRJT",
               "write log lines to stderr in this format; for scheduled runs",
               default_text="bars and a summary", choices=get_args(LogFormat)),
        Option("as_json", "flag", "CR", "print one JSON object to stdout",
               default=False, default_text="text on stderr", flag="json"),
    ),
    *_group(
        "Job file",
        Option("set", "settings", "RT", "value of the parameter {{ KEY }}",
               default_text="{{ date }} is today, UTC", metavar="KEY=VALUE"),
        Option("params", "params", "J",
               "parameters and their defaults; null: `set` must pass a value",
               docs_page="jobs.md#parameters"),
    ),
)
# fmt: on

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def options_of(front: str) -> tuple[Option, ...]:
    """Returns the options of a front end, group by group."""
    return tuple(option for option in OPTIONS if front in option.front_ends)


Style = Literal["command", "job_file", "python"]

_OPTION_REFERENCE = re.compile(r"`([a-z][a-z_]*)(?:=([^`\n]+))?`")
# Values that need quotes in YAML to be read as this text.
_NEEDS_QUOTES = re.compile(r"^[?:,\[\]{}#&*!|>'\"%@]|^- |: | #|:$")
_POSITIONAL = {"inputs": "INPUT", "output": "OUTPUT"}  # arguments of convert


def spell_options(message: str, style: Style) -> str:
    """Replaces the options in backticks in a message by their spelling in a front end.

    A name that is not declared here is treated as an option of an input format.

    >>> message = "raise `max_rejects`, or use `shuffle=false` and `exchange=auto`"
    >>> spell_options(message, "command")
    'raise --max-rejects, or use --no-shuffle and --exchange auto'
    >>> spell_options(message, "job_file")
    'raise max_rejects, or use shuffle: false and exchange: auto'
    >>> spell_options(message, "python")
    "raise max_rejects=, or use shuffle=False and exchange='auto'"
    >>> spell_options("use `label_table=my table.csv`", "command")  # as a shell reads it
    "use --label-table 'my table.csv'"
    >>> spell_options("use `exclude=*_mask.png`", "job_file")  # as YAML reads it
    "use exclude: '*_mask.png'"
    >>> spell_options("`expect_schema`: other features; run without `append`", "job_file")
    'expect_schema: other features; run without append: true'
    """

    def spelled(match: re.Match[str]) -> str:
        name, value = match[1], match[2] or ""
        option = BY_NAME.get(name) or Option(name, "text", "CJ", "")
        flag, is_flag = option.command_flag, option.value_kind == "flag"
        in_file = style == "job_file" and JOB_FILE in option.front_ends
        if style != "python" and not in_file:
            if name in _POSITIONAL:
                return _POSITIONAL[name]
            if is_flag and value:
                return flag if value == "true" else flag.replace("--", "--no-", 1)
            return f"{flag} {value and shlex.quote(value)}".rstrip()
        if in_file:
            if message.startswith(":", match.end()):
                return name
            if _NEEDS_QUOTES.search(value):
                value = "'" + value.replace("'", "''") + "'"
            value = value or ("true" if is_flag else "")
            return f"{name}: {value}" if value else name
        if is_flag:
            value = value.capitalize()
        elif value and option.value_kind != "integer":
            value = repr(value)
        return f"{name}={value}"

    return _OPTION_REFERENCE.sub(spelled, message)


def parse_pairs(
    option: str, form: str, texts: Iterable[str], keys: str = ".*"
) -> dict[str, str]:
    """Parses texts of a form like KEY=VALUE with different keys.

    Args:
      option: Name of the option, for messages.
      form: The form, for messages.
      texts: The texts.
      keys: Regular expression for the keys.

    Raises:
      UsageError: a text has another form, or a key is repeated.
    """
    texts_by_key: dict[str, str] = {}
    for text in texts:
        key, equals, value_text = text.partition("=")
        if not equals or not re.fullmatch(keys, key, re.ASCII | re.DOTALL):
            raise UsageError(f"`{option}`: expected {form}, found {text!r}")
        if key in texts_by_key:
            raise UsageError(f"`{option}`: {key} is given twice")
        texts_by_key[key] = value_text
    return texts_by_key
