"""Declares every option of a job and of its run, once for all front ends.

The command line, job files, their JSON Schema, the parameters of the Dataflow template
and the tables in docs/ are made from OPTIONS; that WriteDataset agrees is tested. The
options of one input format alone are declared by the format (source_options.py).

A new option is declared here, and used where its value is a field of JobSpec (if it
changes the dataset) or RunOptions (if not), which take values by name.

Messages name an option in backticks, "raise `max_rejects`", "use `exchange=auto`", and
`spell` puts there what the reader has typed or can type. Nothing here imports pydantic:
`recordmill --help` reads it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from recordmill.schemas.errors import UsageError

# Front ends. `run` and `plan` replace by options what a job file says, so they have all of
# `convert`; a pipeline has the arguments of WriteDataset; the template is Dataflow's.
CONVERT, RUN, JOB_FILE, PIPELINE, TEMPLATE = "C", "R", "J", "P", "T"

WEIGHT = "sample_weight"  # the feature of `balance=COLUMN=weights`; Keras's word
Compression = Literal["none", "gzip"]
Container = Literal["tfrecord", "array_record"]
Payload = Literal["example", "sequence_example", "json", "raw"]
WantedExchange = Literal["auto", "reference", "scratch", "engine"]
Grace = Literal["next-run", "0"]
Duplicates = Literal["ignore", "report", "fail"]
VerifyLevel = Literal["quick", "full"]
LogFormat = Literal["text", "json"]
Default = str | int | bool | dict[str, str] | None


@dataclass(frozen=True, slots=True)
class Option:
    """One option."""

    name: str  # as job files and Python spell it
    kind: str  # what its values are; job_options.py has the type of each
    fronts: str  # the front ends that offer it
    help: str  # one sentence for all front ends, without its full stop
    # what holds if it is not given; None if that is not one value
    default: Default = None
    # the default in words, where `default` does not say it; texts name other options in
    # backticks
    default_text: str = ""
    choices: tuple[str, ...] = ()  # all values, of a choice
    # the lowest and the highest integer; None if there is none
    bounds: tuple[int | None, int | None] = (None, None)
    flag: str = ""  # the command's spelling without "--", where it is not the name
    metavar: str = ""  # how the command's help shows a value
    page: str = ""  # of docs/, with more about it
    # heading in the help, in the template's form and in docs/options.md
    group: str = ""

    @property
    def command_flag(self) -> str:
        """Returns what the command takes: "--" and words with "-" between."""
        return f"--{self.flag or self.name.replace('_', '-')}"

    @property
    def is_repeated(self) -> bool:
        """Returns whether the command takes it several times."""
        return self.kind in ("splits", "globs", "storage", "settings")

    @property
    def shown_default(self) -> str:
        """Returns the default as users read it, or ""."""
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
               page="inputs.md"),
        Option("exclude", "globs", "CRJT",
               "files and folders below the inputs to leave out: names at any depth, "
               "or paths below the input folder", default_text="no file",
               metavar="GLOB", page="archives.md#leave-files-out"),
        Option("output", "folder", "RJPT",
               "folder of the dataset, or of its versions", metavar="DIR"),
        Option("overwrite", "flag", "CRJPT",
               "replace another dataset in the output, or a damaged one",
               default=False),
        Option("grace", "choice", "CRJPT",
               "how long the files of a replaced dataset stay for its readers; 0: "
               "not at all", default="next-run", choices=get_args(Grace),
               page="output-files.md#replaced-datasets"),
        Option("append", "flag", "CRJT",
               "convert new input files only, and add them to the dataset",
               default=False, page="jobs.md#appending"),
        Option("storage", "storage", "CRJPT",
               "options of the file systems, never a secret", flag="storage-option",
               metavar="KEY=VALUE", page="storage.md"),
    ),
    *_group(
        "Dataset",
        Option("name", "name", "CRJPT", "name of the dataset",
               default_text="the output's last part", metavar="NAME"),
        Option("version", "version", "CRJPT",
               "version of the dataset; auto: publish each change as the next "
               "one, in a folder of its own", default="1.0.0", flag="dataset-version",
               metavar="X.Y.Z|auto", page="jobs.md#versions"),
        Option("keep", "integer", "CRJT",
               "number of versions to keep, with `version=auto`", default_text="all",
               bounds=(1, None), metavar="N"),
        Option("payload", "choice", "CRJPT", "what a record holds", default="example",
               choices=get_args(Payload),
               page="schema.md"),
        Option("compression", "choice", "CRJPT",
               "compression of the shards; TFDS reads only those without",
               default="none", choices=get_args(Compression)),
        Option("gzip_level", "integer", "CRJPT",
               "1 is fast, 9 is small; with `compression=gzip`", default=6,
               bounds=(1, 9), metavar="N"),
        Option("container", "choice", "CRJPT",
               "file format of the shards; array_record is for Grain and "
               "tfds.data_source", default="tfrecord",
               choices=get_args(Container),
               page="reading-datasets.md#arrayrecord"),
        Option("index", "flag", "CRJPT",
               "write SHARD.idx beside each shard, by which readers find single "
               "records", default=False, page="reading-datasets.md#rows-by-number"),
    ),
    *_group(
        "Description",
        Option("description", "prose", "CRJT",
               "what the dataset is, for people who find it", default_text="none",
               metavar="TEXT", page="output-files.md#description"),
        Option("license", "license", "CRJT",
               "its license: an SPDX identifier like CC-BY-4.0, or a URL",
               default_text="none", metavar="TEXT"),
        Option("citation", "prose", "CRJT", "how to cite it, as BibTeX or text",
               default_text="none", metavar="TEXT"),
        Option("homepage", "url", "CRJT", "URL of its page", default_text="none",
               metavar="URL"),
        Option("contact", "prose", "CRJT",
               "who answers questions: a name, or an e-mail address",
               default_text="none", metavar="TEXT"),
        Option("card", "flag", "CRJT",
               "write croissant.json, by which search engines and other tools find "
               "the dataset, with the SHA-256 of each shard", default=False,
               page="output-files.md#croissant"),
    ),
    *_group(
        "Schema and rejects",
        Option("schema", "schema", "CRJPT",
               "declared features: a file in YAML or schema.pbtxt",
               default_text="inferred, or the format's own", metavar="FILE",
               page="schema.md"),
        Option("expect_schema", "file", "CRJT",
               "schema file or dataset; publish nothing whose features differ from it",
               metavar="FILE|DATASET"),
        Option("map", "function", "CRJT",
               "Python function of your own that makes the rows from each batch of input "
               "rows: FILE.py:FUNCTION or MODULE:FUNCTION; recordmill runs its code",
               metavar="FILE.py:FUNCTION", page="map.md"),
        Option("label", "text", "CRJT",
               "column of a table that becomes a class label, with the names of its "
               "classes", default_text="no column", metavar="COLUMN",
               page="splits.md#class-labels"),
        Option("max_rejects", "limit", "CRJPT",
               "limit of rejected rows: a count like 10, or a share like 0.5%",
               default="0", metavar="N|P%"),
    ),
    *_group(
        "Splits and shards",
        Option("splits", "splits", "CRJPT",
               "a split and its share of the rows, like train=0.9 or train=2/3",
               default={"train": "1"}, default_text="train=1", flag="split",
               metavar="NAME=FRACTION"),
        Option("split_by", "text", "CRJPT",
               "column; rows with the same value in it stay in one split",
               default_text="every row by itself", metavar="COLUMN"),
        Option("split_exact", "flag", "CRJT",
               "give each split exactly its share of the rows, which takes a "
               "reading of the input before the run", default=False,
               page="splits.md#exact-splits"),
        Option("stratify_by", "text", "CRJT",
               "column, such as the label; each of its values has exact splits",
               default_text="no column", metavar="COLUMN",
               page="splits.md#exact-splits"),
        Option("limit", "integer", "CRJT",
               "keep the first N rows of the whole dataset, in its own order, which "
               "takes a reading of the input before the run", default_text="all rows",
               bounds=(1, None), metavar="N", page="sampling.md"),
        Option("sample", "share", "CRJT",
               "keep this share of the rows, chosen by `seed`: 1% or 0.01",
               default_text="all rows", metavar="P%", page="sampling.md"),
        Option("balance", "balance", "CRJT",
               "column of classes, and what gives them equal weight: fewer rows, copies "
               "in the split train, or a feature sample_weight; reads the input twice",
               default_text="all rows",
               metavar="COLUMN=undersample|oversample|weights",
               page="sampling.md#balanced-classes"),
        Option("split_column", "text", "CRJPT",
               "column of a table that names the split of each row; it is not a feature",
               default_text="`splits` decide", metavar="COLUMN",
               page="splits.md#by-a-column"),
        Option("split_by_time", "split_times", "CRJPT",
               "column of a table, and splits with the times or numbers between "
               "them, like date=train,2026-01-01,test", default_text="`splits` decide",
               metavar="COLUMN=A,TIME,B", page="splits.md#by-time"),
        Option("duplicates", "choice", "CRJT",
               "look for records with the same content in several splits. report: count "
               "them, with a warning. fail: publish nothing", default="ignore",
               choices=get_args(Duplicates),
               page="splits.md#the-same-content-in-several-splits"),
        Option("shuffle", "flag", "CRJT",
               "shuffle the whole dataset, or keep the order of the input",
               default=True),
        Option("seed", "integer", "CRJPT",
               "another seed gives another order and other splits", default=0,
               bounds=(0, (1 << 64) - 1), metavar="N"),
        Option("shards", "integer", "CRJPT", "number of shards of each split",
               default_text="as `shard_size` asks for", bounds=(1, 99_999),
               metavar="N"),
        Option("shard_size", "size", "CRJPT",
               "size of a shard in bytes, like 128MiB or 100MB", default="128MiB",
               metavar="SIZE"),
        Option("readers", "integer", "CRJT",
               "number of hosts that will read: ten shards for each, none under 10 MB",
               default_text="as `shard_size` asks for", bounds=(1, None),
               metavar="N"),
    ),
    *_group(
        "Run",
        Option("exchange", "choice", "CRJPT",
               "how records reach the writers of their shards; gives the same bytes",
               default="auto", choices=get_args(WantedExchange),
               page="architecture.md#exchange"),
        Option("scratch", "folder", "CRJP", "directory for temporary sorted files",
               default_text="inside the output", metavar="DIR"),
        Option("memory", "memory", "CRJ",
               "memory for sorted records, before they go to scratch; auto: a "
               "quarter of what is free, at most 1 GiB", default="auto",
               metavar="SIZE|auto", page="guarantees.md"),
        Option("verify", "choice", "CRJT",
               "check before publishing: quick compares sizes, counts and stored "
               "checksums, full reads every byte again", default="quick",
               choices=get_args(VerifyLevel)),
        Option("strict", "flag", "CRJT",
               "publish nothing if there is a warning, for scheduled runs",
               default=False, page="jobs.md#warnings"),
        Option("workers", "integer", "CRJ",
               "workers of the embedded runner: threads, or processes for large inputs; "
               "0: one a core, or two if inputs or output are in a store",
               default=0, default_text="by cores", bounds=(0, None), metavar="N"),
        Option("beam", "beam", "J",
               "options of Beam, like --runner=...; the command takes them after --",
               page="clusters.md"),
        Option("detach", "flag", "CR",
               "submit the job to the runner, and do not wait for its end",
               default=False, page="clusters.md"),
        Option("plan", "flag", "C", "show what would happen, and do nothing",
               default=False),
    ),
    *_group(
        "Reports",
        Option("metrics_file", "file", "CRJ",
               "Prometheus textfile, written when the run ends", metavar="FILE"),
        Option("metrics_push", "text", "CRJ",
               "URL of a Prometheus Pushgateway that gets the metrics when the run ends",
               metavar="URL", page="monitoring.md"),
        Option("log_format", "choice", "CRJT",
               "log lines on stderr, for scheduled runs",
               default_text="bars and a summary", choices=get_args(LogFormat)),
        Option("as_json", "flag", "CR", "print one JSON object to stdout",
               default=False, default_text="text on stderr", flag="json"),
    ),
    *_group(
        "Job file",
        Option("set", "settings", "RT", "a value for {{ KEY }}",
               default_text="{{ date }} is today, UTC", metavar="KEY=VALUE"),
        Option("params", "params", "J",
               "parameters and their defaults; null: the command must set it",
               page="jobs.md#parameters"),
    ),
)
# fmt: on

BY_NAME: Mapping[str, Option] = {option.name: option for option in OPTIONS}


def offered_by(front: str) -> tuple[Option, ...]:
    """Returns the options that a front end offers, group by group."""
    return tuple(option for option in OPTIONS if front in option.fronts)


Style = Literal["command", "job_file", "python"]

_MARKED = re.compile(r"`([a-z][a-z_]*)(?:=([^`\n]+))?`")
# Values that YAML reads as something else than this text, unless they are in quotes.
_NOT_PLAIN = re.compile(r"^[?:,\[\]{}#&*!|>'\"%@]|^- |: | #|:$")
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
    >>> spell("use `label_table=my table.csv`", "command")  # as a shell reads it
    "use --label-table 'my table.csv'"
    >>> spell("use `exclude=*_mask.png`", "job_file")  # as YAML reads it
    "use exclude: '*_mask.png'"
    >>> spell("`expect_schema`: other features; run without `append`", "job_file")
    'expect_schema: other features; run without append: true'
    """

    def spelled(found: re.Match[str]) -> str:
        name, value = found[1], found[2] or ""
        option = BY_NAME.get(name) or Option(name, "text", "CJ", "")
        flag, is_flag = option.command_flag, option.kind == "flag"
        in_file = style == "job_file" and JOB_FILE in option.fronts
        if style != "python" and not in_file:
            if name in _POSITIONAL:
                return _POSITIONAL[name]
            if is_flag and value:
                return flag if value == "true" else flag.replace("--", "--no-", 1)
            return f"{flag} {value and shlex.quote(value)}".rstrip()
        if in_file:
            if message.startswith(":", found.end()):
                return name
            if _NOT_PLAIN.search(value):
                value = "'" + value.replace("'", "''") + "'"
            return f"{name}: {value or ('true' if is_flag else '')}".rstrip()
        if is_flag:
            value = value.capitalize()
        elif value and option.kind != "integer":
            value = repr(value)
        return f"{name}={value}"

    return _MARKED.sub(spelled, message)


def parse_pairs(
    option: str, form: str, texts: Iterable[str], keys: str = ".*"
) -> dict[str, str]:
    """Parses texts of a form like KEY=VALUE, of which each has a key of its own."""
    values: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not re.fullmatch(keys, key, re.ASCII | re.DOTALL):
            raise UsageError(f"`{option}`: expected {form}, found {text!r}")
        if key in values:
            raise UsageError(f"`{option}`: {key} is given twice")
        values[key] = value
    return values
