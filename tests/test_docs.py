"""The README shows only what runs: its commands are run, its options all exist."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from beam_jobs.cli import cli, run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def shell_lines() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_every_command_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    shutil.copytree(ROOT / "tests/samples", tmp_path / "tests/samples")
    monkeypatch.chdir(tmp_path)
    commands = [line for line in shell_lines() if line.startswith("recordmill ")]
    assert len(commands) >= 6
    for command in commands:
        assert run(shlex.split(command)[1:]) == 0, command


def test_every_make_target_of_the_readme_exists() -> None:
    targets = re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_option_of_convert_is_in_the_readme() -> None:
    context = click.Context(cli)
    group = cli.get_command(context, "convert")
    assert isinstance(group, click.Group)
    for command in group.commands.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                names = [*parameter.opts, *parameter.secondary_opts]
                assert all(f"`{n}" in README for n in names), names


def test_the_readme_names_no_option_that_does_not_exist() -> None:
    context = click.Context(cli)
    known = {"--runner", "--help"}  # Beam's, and click's own
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        commands = (
            command.commands.values() if isinstance(command, click.Group) else [command]
        )
        for each in commands:
            assert each is not None
            for parameter in each.params:
                known |= {*parameter.opts, *parameter.secondary_opts}
    assert set(re.findall(r"--[a-z][a-z-]+", README)) <= known


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
