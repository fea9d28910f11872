"""README and docs show only what runs: commands and Python, options and links exist."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.beam_jobs.cli.main import cli, run
from recordmill.schemas.parsing.schema_file import load_schema

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# Beam's options, as it tells them itself; of its job servers, and of its worker pool.
BEAMS = {f"--{name}" for name in PipelineOptions([]).get_all_options()}
BEAMS |= {"--parallelism", "--service_port"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copytree(ROOT / "tests/samples", tmp_path / "tests/samples")
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "yaml"):  # named by their first line
        (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), {})
    lines = "".join(blocks(page, "sh")).splitlines()
    commands = [line for line in lines if line.startswith("recordmill ")]
    assert commands or page.name == "storage.md"  # URLs lead nowhere from here
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, command


def test_every_schema_of_the_docs_loads() -> None:
    files = {
        block.splitlines()[0]: load_schema(block.encode(), page.name)
        for page in PAGES
        for block in blocks(page, "yaml")
        if "features:" in block
    }
    assert {"# flowers.yaml", "# boxes.yaml"} <= set(files)


def test_every_make_target_of_the_readme_exists() -> None:
    targets = re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def commands_below(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from commands_below(command)
        else:
            yield command


def options_of(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def test_every_option_of_convert_is_in_the_readme() -> None:
    group = cli.get_command(click.Context(cli), "convert")
    assert isinstance(group, click.Group)
    for command in group.commands.values():
        for name in options_of(command):
            assert f"`{name}" in README or f" / `{name}" in README, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_no_option_that_does_not_exist(page: Path) -> None:
    known = {"--runner", "--help"}  # Beam's, and click's own
    known |= {name for command in commands_below(cli) for name in options_of(command)}
    named = set(re.findall(r"--[a-z][a-z_-]+", page.read_text()))
    assert {name for name in named - known if name not in BEAMS} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
