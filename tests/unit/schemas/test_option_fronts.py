"""Every option is the same wherever it is offered: six front ends, one declaration."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from dataflow_form import FILE, updated_form

from recordmill.beam_jobs.cli.job_commands import convert, run_command
from recordmill.beam_jobs.cli.options import all_commands
from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.job_file import create_job_schema
from recordmill.schemas.job_options import check_options, create_job, job_file_model
from recordmill.schemas.options import (
    BY_NAME,
    CONVERT,
    JOB_FILE,
    OPTIONS,
    PIPELINE,
    RUN,
    Option,
    options_of,
    spell_options,
)
from recordmill.schemas.source_options import declare_options
from recordmill.schemas.text import parse_size
from recordmill.transforms.sources.registry import BUILT_IN, CsvOptions, load_format

FORMATS = {name: load_format(name).options for name in BUILT_IN}
FORMAT_OPTIONS = {name: declare_options(name, model) for name, model in FORMATS.items()}
ARGUMENTS = inspect.signature(WriteDataset.__init__).parameters


def options(front: str) -> list[Any]:
    return [pytest.param(each, id=each.name) for each in options_of(front)]


def click_options(command: click.Command) -> dict[str, click.Option]:
    return {
        option.opts[0]: option
        for option in command.params
        if isinstance(option, click.Option)
    }


def test_names_and_flags_differ() -> None:
    assert len(BY_NAME) == len(OPTIONS)
    assert len({option.command_flag for option in OPTIONS}) == len(OPTIONS)
    assert all(
        option.help_text and option.group and option.front_ends for option in OPTIONS
    )


@pytest.mark.parametrize("source", [*BUILT_IN, "run"])
def test_the_command_offers_what_is_declared(source: str) -> None:
    if source == "run":
        offered, declared = click_options(run_command), options_of(RUN)
        assert offered.pop("--job-schema")
    else:
        offered = click_options(all_commands(convert)[source])
        declared = (*FORMAT_OPTIONS[source], *options_of(CONVERT))
    assert list(offered) == [option.command_flag for option in declared]
    for option in declared:
        assert_same(offered[option.command_flag], option)


def assert_same(offered: click.Option, option: Option) -> None:
    assert offered.help
    assert spell_options(option.help_text, "command")[1:] in offered.help
    assert offered.multiple == option.is_repeated
    assert offered.is_flag == (option.value_kind == "flag")
    if option.value_kind == "choice":
        assert isinstance(offered.type, click.Choice)
        assert tuple(offered.type.choices) == option.choices


@pytest.mark.parametrize("option", options(JOB_FILE))
def test_job_files_take_it(option: Option) -> None:
    field = create_job_schema(FORMATS)["properties"][option.name]
    assert field["description"] == option.help_text
    branches = field.get("anyOf", [field])
    if option.value_kind == "choice":
        assert any(branch.get("enum") == list(option.choices) for branch in branches)
    for key, bound in zip(("minimum", "maximum"), option.bounds, strict=True):
        if bound is not None:
            assert any(branch.get(key) == bound for branch in branches)


def test_job_files_take_nothing_else() -> None:
    names = {
        field.alias or name for name, field in job_file_model().model_fields.items()
    }
    assert names == {option.name for option in options_of(JOB_FILE)}
    assert set(create_job_schema(FORMATS)["properties"]) == names | set(BUILT_IN)


def test_defaults_are_those_of_the_values() -> None:
    """A job of which nothing is said is the one that its classes make by themselves."""
    given = {"source": "csv", "inputs": ["a"], "output": "/b/users"}
    made = create_job(check_options(given, FORMATS, {}), "command", bytes)
    assert made.job == JobSpec(source="csv", name="users", source_options=CsvOptions())
    assert made.options == RunOptions(inputs=("a",), output="/b/users")


def test_every_option_has_a_use() -> None:
    """Each is a field of a class that the work is done with, or is named here."""
    used = {*JobSpec.model_fields}
    used |= {field.name for field in fields(RunOptions)}
    elsewhere = {"shards", "shard_size", "readers"}  # JobSpec.sharding
    elsewhere |= {"schema", "beam"}  # JobSpec.declared, RunOptions.beam_args
    # RunOptions.description
    elsewhere |= {"license", "citation", "homepage", "contact", "card"}
    elsewhere |= {"plan", "set", "params"}  # before there is a job
    assert set(BY_NAME) - used == elsewhere


@pytest.mark.parametrize("option", options(PIPELINE))
def test_write_dataset_takes_it(option: Option) -> None:
    argument = ARGUMENTS[option.name]
    if option.name == "output":
        assert argument.default is inspect.Parameter.empty
    elif option.value_kind in ("choice", "version", "flag", "integer"):
        assert argument.default == option.default
    elif option.value_kind == "size":
        assert argument.default == parse_size(str(option.default))
    elif option.value_kind == "limit":
        assert str(argument.default) == option.default
    else:
        assert not argument.default


def test_write_dataset_takes_nothing_else() -> None:
    assert set(ARGUMENTS) - {"self"} == {o.name for o in options_of(PIPELINE)}


def test_the_templates_form_is_up_to_date() -> None:
    """If not: python tests/helpers/dataflow_form.py"""
    assert json.loads(FILE.read_text()) == updated_form()


@pytest.mark.parametrize(
    ("message", "command", "job_file", "python"),
    [
        ("`version=auto`", "--dataset-version auto", "version: auto", "version='auto'"),
        ("`overwrite=true`", "--overwrite", "overwrite: true", "overwrite=True"),
        ("`overwrite`", "--overwrite", "overwrite: true", "overwrite="),
        ("`keep`: 0", "--keep: 0", "keep: 0", "keep=: 0"),
        ("`shards=2`", "--shards 2", "shards: 2", "shards=2"),
        ("`inputs`", "INPUT", "inputs", "inputs="),
        ("`detach`", "--detach", "--detach", "detach="),
        ("`variant=cifar10`", "--variant cifar10", "variant: cifar10", "variant='cifar10'"),
        ("`exclude=*_it's.png`", """--exclude '*_it'"'"'s.png'""", "exclude: '*_it''s.png'", """exclude="*_it's.png\""""),
        ("`comment=#`", "--comment '#'", "comment: '#'", "comment='#'"),
        ("`exclude=a: b #c`", "--exclude 'a: b #c'", "exclude: 'a: b #c'", "exclude='a: b #c'"),
        ("`recordmill verify OUT`", "`recordmill verify OUT`", "`recordmill verify OUT`", "`recordmill verify OUT`"),
    ],
)  # fmt: skip
def test_front_ends_spell_options(
    message: str, command: str, job_file: str, python: str
) -> None:
    spelled = [
        spell_options(message, style) for style in ("command", "job_file", "python")
    ]
    assert spelled == [command, job_file, python]
    _, equals, value = message.strip("`").partition("=")
    if equals:  # a shell and YAML read the value that is meant
        assert shlex.split(command)[1:] in ([value], [])
        assert str(*yaml.safe_load(job_file).values()) in (value, value.capitalize())


def test_messages_below_the_front_ends_name_options() -> None:
    """No --flag in schemas/ or transforms/: who reads a message may have typed none."""
    root = Path(__file__).parents[3]
    # Which spell them; a whole command; examples for the help.
    exempt = {"options.py", "format.py", "rejects.py", "registry.py"}
    flags = {option.command_flag for option in OPTIONS}
    flags |= {option.command_flag for own in FORMAT_OPTIONS.values() for option in own}
    found = [
        f"{path.relative_to(root)}: {flag}"
        for folder in ("schemas", "transforms")
        for path in sorted((root / folder).rglob("*.py"))
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text())
        if flag in flags and path.name not in exempt
    ]
    assert found == []
