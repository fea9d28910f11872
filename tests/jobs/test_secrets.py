"""No option takes an address with a password, and nothing shows one that was refused."""

from __future__ import annotations

import inspect
import json
import pickle
import shlex
import traceback
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import click
import pytest
from job_tools import recordmill as run_recordmill

import recordmill
from recordmill.beam_jobs.cli.main import cli
from recordmill.beam_jobs.cli.options import FormatGroup, all_commands
from recordmill.schemas.errors import UsageError
from recordmill.schemas.job_file import load_job
from recordmill.schemas.options import JOB_FILE, options_of
from recordmill.schemas.source_options import declare_options
from recordmill.transforms.sources.registry import InstalledFormats, load_format

SECRET = "hunter2wJalrXUtnFEMI"
ADDRESSES = {
    "password": f"http://u:{SECRET}@h.invalid/f.py:f",
    "one slash": f"http:/u:{SECRET}@h.invalid/f",
    "slash inside": f"s3://u:{SECRET}/x@bucket/f",
    "space inside": f"s3://u:{SECRET} x@bucket/f",
    "escaped colon": f"https://u%3A{SECRET}@h.invalid/f",
    "local": f"file://u:{SECRET}@h.invalid/f",
    "chained": f"zip://a.csv::http://u:{SECRET}@h.invalid/a.zip",
    "second of two": f"s3://bucket/a,s3://u:{SECRET}@bucket/b",
    "named": f"mask=http://u:{SECRET}@h.invalid/f",
    "signature": f"https://h.invalid/f?sv=1&sig={SECRET}",
    "escaped name": f"https://h.invalid/f?%73ig={SECRET}",
    "fragment": f"https://h.invalid/f#access_token={SECRET}",
}
ADDRESS = ADDRESSES["password"]
REFUSAL = "the URL contains a secret; remove it: credentials come from the"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def leaf_commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yields every command with the words that call it."""
    if isinstance(group, FormatGroup):
        subcommands: Mapping[str, click.Command] = all_commands(group)
    else:
        subcommands = group.commands
    for name, command in subcommands.items():
        if isinstance(command, click.Group):
            yield from leaf_commands(command, (*words, name))
        else:
            yield (*words, name), command


def command_lines() -> Iterator[tuple[str, ...]]:
    """Yields a command line for each argument and each option that takes a value."""
    for words, command in leaf_commands(cli):
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                yield (*words, ADDRESS, ADDRESS)
            elif isinstance(parameter, click.Option) and not parameter.is_flag:
                yield from ((*words, flag, ADDRESS) for flag in parameter.opts)
                yield (*words, f"{parameter.opts[-1]}={ADDRESS}")


LINES = sorted({shlex.join(words): words for words in command_lines()}.items())


def assert_refused_in_silence(words: tuple[str, ...], name: str) -> None:
    ran = run_recordmill(*words)
    assert ran.status == 2, words
    assert SECRET not in ran.out + ran.err, words
    assert name in ran.err, words
    assert REFUSAL in ran.err, words


def test_no_argument_of_the_command_takes_a_password() -> None:
    """Each place of each command, whatever its kind: a new option is one of them."""
    assert len(LINES) > 300
    for _, words in LINES:
        flag = words[-2] if words[-2].startswith("-") else words[-1].partition("=")[0]
        flag = flag if flag.startswith("-") else "http://***@h.invalid/f.py:f"
        assert_refused_in_silence(words, flag)
    assert not list(Path().iterdir())


@pytest.mark.parametrize("form", ["", "--json", "--debug", "--log-format json"])
@pytest.mark.parametrize("kind", ADDRESSES)
def test_each_form_of_a_secret_is_refused(kind: str, form: str) -> None:
    words = ("convert", "csv", "a.csv", "out", "--map", ADDRESSES[kind], *form.split())
    assert_refused_in_silence(words, "--map ")


@pytest.mark.parametrize(
    "words",
    [
        (ADDRESS,),
        ("convert", ADDRESS, "out"),
        ("convert", "csv", "a.csv", "out", f"--{ADDRESS}"),
        ("convert", "csv", "a.csv", "out", "--", f"--job_endpoint={ADDRESS}"),
        ("inspect", "out", "--", ADDRESS),
        ("run", "job.yaml", "--set", f"key={ADDRESS}"),
        ("completion", ADDRESS),
    ],
    ids=" ".join,
)
def test_a_wrong_command_shows_no_secret(words: tuple[str, ...]) -> None:
    ran = run_recordmill(*words)
    assert ran.status == 2
    assert SECRET not in ran.out + ran.err


def job_options() -> Iterator[tuple[str, str]]:
    """Yields every option of a job file: its section, or "", and its name."""
    yield from (("", option.name) for option in options_of(JOB_FILE))
    for name in InstalledFormats():
        options = declare_options(name, load_format(name).options)
        yield from ((name, option.name) for option in options)


def job_files() -> Iterator[tuple[str, str]]:
    """Yields job files with a secret in one option, as a text, in a list and a mapping."""
    for section, name in job_options():
        for given in (ADDRESS, [ADDRESS], {"a": ADDRESS}, {ADDRESS: "a"}):
            job: dict[str, Any] = {
                "source": section or "csv",
                "inputs": "a.csv",
                "output": "out",
            }
            (job.setdefault(section, {}) if section else job)[name] = given
            yield f"{section}: {name}", json.dumps(job)  # which YAML includes


def test_no_option_of_a_job_file_takes_a_password() -> None:
    """Each option of each format, by its declaration: a new option is one of them."""
    read: list[str] = []

    def reader(uri: str) -> bytes:
        read.append(uri)
        return b""

    files = list(job_files())
    assert len(files) > 400
    for name, text in files:
        with pytest.raises(UsageError) as error:
            load_job(
                text.encode(), "job.yaml", {}, date.min, reader, InstalledFormats()
            )
        shown = "".join(traceback.format_exception(error.value))
        assert SECRET not in shown, name
        assert SECRET.encode() not in pickle.dumps(error.value), name
        assert name.removeprefix(": ") in str(error.value), name
        assert REFUSAL in str(error.value), name
    assert read == []


def test_a_password_that_a_parameter_completes_is_refused() -> None:
    text = b"{source: csv, inputs: 'http://u:{{ p }}@h.invalid/a.csv', output: out}"
    with pytest.raises(UsageError) as error:
        load_job(
            *(text, "job.yaml", {"p": SECRET}, date.min),
            *(lambda _: b"", InstalledFormats()),
        )
    assert SECRET not in str(error.value)
    assert REFUSAL in str(error.value)


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"source": "csv", "inputs": ADDRESS, "output": "out"}),
        f"{{source: csv, '{ADDRESS}': 1, '{ADDRESS}': 2}}",
        f"source: !!int '{ADDRESS}'",
        f"source: !<{ADDRESS}> a",
    ],
)
def test_the_log_of_a_refused_job_shows_no_secret(text: str, form: str) -> None:
    Path("job.yaml").write_text(text)
    reports = "--log-format", form, "--metrics-file", "metrics.prom", "--debug"
    ran = run_recordmill("run", "job.yaml", *reports)
    assert ran.status in (2, 65)
    assert "event" in ran.err or "run_failed" in ran.err
    assert SECRET not in ran.out + ran.err
    assert SECRET not in Path("metrics.prom").read_text()
    assert {path.name for path in Path().iterdir()} == {"job.yaml", "metrics.prom"}


def path_arguments() -> Iterator[tuple[str, str]]:
    """Yields the public functions, and their arguments that take a path or an address."""
    for name in recordmill.__all__:
        public = getattr(recordmill, name)
        for argument in inspect.signature(public).parameters.values():
            if any(
                kind in str(argument.annotation) for kind in ("PathLike", "AnySchema")
            ):
                yield name, argument.name


def test_every_public_path_is_in_the_table() -> None:
    assert {
        *(("WriteDataset", name) for name in ("output", "scratch", "schema")),
        *(("open_dataset", name) for name in ("dataset", "cache")),
        *((name, "dataset") for name in ("ReadDataset", "read_batches", "read_rows")),
    } <= {*path_arguments()}


@pytest.mark.parametrize("kind", ADDRESSES)
@pytest.mark.parametrize(("name", "argument"), [*path_arguments()])
def test_no_path_in_python_takes_a_password(
    name: str, argument: str, kind: str, small: Path
) -> None:
    given: dict[str, Any] = {argument: ADDRESSES[kind]}
    if name == "WriteDataset":
        given = {"output": "out", "schema": {"a": "string"}} | given
    elif argument != "dataset":
        given["dataset"] = small
    with pytest.raises(UsageError) as error:
        next(iter(getattr(recordmill, name)(**given)))
    shown = "".join(traceback.format_exception(error.value))
    assert SECRET not in shown
    assert SECRET.encode() not in pickle.dumps(error.value)
    assert REFUSAL in str(error.value)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    (folder / "a.csv").write_text("a\n1\n")
    ran = run_recordmill("convert", "csv", folder / "a.csv", folder / "out")
    assert ran.status == 0, ran.err
    return folder / "out"


@pytest.mark.parametrize(
    "given", [SECRET, f"{SECRET}=", f"{SECRET}==", f"a b {SECRET}=1"]
)
@pytest.mark.parametrize("side", ["", "input:", "output:", "other:"])
def test_a_storage_option_without_a_name_is_not_shown(side: str, given: str) -> None:
    ran = run_recordmill("inspect", "out", "--storage-option", side + given, "--json")
    assert ran.status == 2
    assert SECRET not in ran.out + ran.err
    assert "--storage-option: expected key=value" in ran.err


HARMLESS = [
    "http://127.0.0.1:9000/a@b.csv",
    "http://[::1]:9000/a@b.csv",
    "abfss://container@account.dfs.core.windows.net/a",
    "hf://datasets/owner/name@revision/a:b",
    "s3://bucket/a.csv?versionId=x",
    "gs://b[/a?.csv",
    "/data/key=a/b:c@d",
    "https://example.org: write to me@example.org",
    "see https://example.org/token=1",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_taken(text: str) -> None:
    job = {"source": "csv", "inputs": text, "output": "out", "description": text}
    loaded = load_job(
        *(json.dumps(job).encode(), "/job.yaml", {}, date.min),
        *(lambda _: b"", InstalledFormats()),
    )
    assert loaded.options.inputs == (text,) if "://" in text else True
