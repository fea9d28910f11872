"""The pages show only what runs: commands and Python, options and links exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from pages import (
    NOTEBOOKS,
    PAGES,
    ROOT,
    Block,
    blocks,
    commands,
    page_name,
    run_python,
    run_shell,
)
from transcripts import matches, transcript

from recordmill.beam_jobs.cli.job_commands import convert
from recordmill.beam_jobs.cli.main import cli, run
from recordmill.beam_jobs.cli.options import DEBUG, all_commands
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.schema_file import load_schema

CONTEXT = click.Context(cli)
README = ROOT / "README.md"
FAQ = ROOT / "docs/faq.md"
RUN = ("sh", "python", "yaml")
RUNNABLE = [page for page in PAGES if any(b.language in RUN for b in blocks(page))]

# Beam's options, as it tells them itself; of its job servers, and of its worker pool.
BEAMS = {f"--{name}" for name in PipelineOptions([]).get_all_options()}
BEAMS |= {"--parallelism", "--service_port"}
# Of git, pip, pytest and scripts that CONTRIBUTING and the benchmarks show.
TOOLS = {"--follow", "--require-hashes", "--runner", "--help", "--scale", "--json"}
TOOLS |= {
    "--img2dataset",
    "--list",
    "--repeat",
    "--peer-repeat",
    "--gb",
    "--stores",
    "--version",
    "--strict",
}
TOOLS |= {
    "--editable",
    "--no-binary",
    "--flag",
    "--write",
    "--debug",
}  # the last: of all commands


@pytest.fixture
def page_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with samples and examples where a checkout has them."""
    shutil.copytree(ROOT / "tests/samples", tmp_path / "tests/samples")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUNNABLE, ids=page_name)
def test_everything_that_a_page_shows_runs(
    page_folder: Path, page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """YAML is written to the file that its first line names, the rest runs in order."""
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page):
        if block.language == "yaml":
            first = block.text.splitlines()[0]
            (page_folder / first.removeprefix("# ")).write_text(block.text)
        elif block.language == "python":
            run_python(block, page_folder, names)
        elif block.language == "sh":
            run_shell(block, run, ("make", "python", "."))
        elif block.language == "console" and page == FAQ:
            for command in transcript(block.text):
                capfd.readouterr()
                assert run(shlex.split(command.text)[1:]) != 0, command
                printed = capfd.readouterr().err.replace(f"{page_folder}/", "")
                assert matches(printed.splitlines(), command.shown), printed
    for manifest in page_folder.glob("out/*/manifest.json"):
        splits = Manifest.from_bytes(manifest.read_bytes(), str(manifest)).splits
        empty = [name for name, split in splits.items() if not split.records]
        assert not empty, f"{manifest}: {empty}"


def test_the_comparison_has_figures_that_were_measured() -> None:
    measured = set(re.findall(r"[\d.]+x", (ROOT / "docs/benchmarks.md").read_text()))
    text = (ROOT / "docs/comparison.md").read_text()
    assert set(re.findall(r"\d+\.\d+x", text)) <= measured


def test_the_quickstart_can_be_followed_after_the_readme() -> None:
    """In the same clone: nothing that one page makes is in the way of the other."""
    of_readme, of_quickstart = (
        set(re.findall(r"\bout/[\w-]+", block))
        for block in (
            "".join(b.text for b in blocks(page) if b.language != "console")
            for page in (README, ROOT / "docs/quickstart.md")
        )
    )
    assert of_readme
    assert of_quickstart
    assert of_readme & of_quickstart == set()


def test_every_schema_of_the_docs_loads() -> None:
    files = {
        block.text.splitlines()[0]: load_schema(block.text.encode(), page.name)
        for page in PAGES
        for block in blocks(page)
        if block.language == "yaml" and "features:" in block.text
    }
    assert {"# flowers.yaml", "# boxes.yaml"} <= set(files)


def shell_blocks() -> Iterator[Block]:
    for page in PAGES:
        yield from (block for block in blocks(page) if block.language == "sh")


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = {w[1] for b in shell_blocks() for w in commands(b) if w[0] == "make"}
    for page in PAGES:
        targets |= set(re.findall(r"`make ([a-z-]+)`", page.read_text()))
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def make_commands(page: Path) -> list[list[str]]:
    """Returns the make commands of a page, in its blocks and in its sentences."""
    in_blocks = [
        words for b in blocks(page) if b.language == "sh" for words in commands(b)
    ]
    in_text = map(shlex.split, re.findall(r"`(make [^`\n]+)`", page.read_text()))
    return [words for words in (*in_blocks, *in_text) if words[0] == "make"]


def test_the_readme_names_the_demo_and_the_tests() -> None:
    named = {words[1] for words in make_commands(README)}
    assert {"demo", "test"} <= named


# The only commands of the README that the tests of its blocks do not execute. `make test`
# runs this test, so make prints the recipe instead of running it.
@pytest.mark.parametrize("words", make_commands(README), ids=" ".join)
def test_make_finds_a_recipe_for_each_command_of_the_readme(words: list[str]) -> None:
    bare = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    printed = subprocess.run(
        [*words, "--dry-run"],
        cwd=ROOT,
        env=bare,
        capture_output=True,
        text=True,
        check=True,
    )
    ends = {"demo": "sh tests/demo.sh .venv/bin/recordmill", "test": "worksteal"}
    assert printed.stdout.rstrip().endswith(ends[words[1]])


def test_every_command_of_the_demo_runs(page_folder: Path) -> None:
    """Those that `make demo` runs: a recorder takes the place of recordmill."""
    recorder, log = page_folder / "recorder", page_folder / "log"
    recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(log))}\n')
    recorder.chmod(0o755)
    shutil.copy(ROOT / "tests/demo.sh", page_folder / "tests")
    subprocess.run(["sh", "tests/demo.sh", recorder], check=True, capture_output=True)
    lines = log.read_text().splitlines()
    assert len(lines) == 9
    for line in lines:
        assert run(shlex.split(line)) == 0, line


def test_every_script_exists() -> None:
    scripts = [w[1] for b in shell_blocks() for w in commands(b) if w[0] == "python"]
    for script in scripts:
        assert (ROOT / script).is_file(), script


def test_the_readme_stays_short() -> None:
    assert len(README.read_text().splitlines()) <= 130


def commands_below(group: click.Group) -> Iterator[click.Command]:
    for name in group.list_commands(CONTEXT):
        command = group.get_command(CONTEXT, name)
        assert command
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


def test_every_option_of_convert_is_on_its_page() -> None:
    text = (ROOT / "docs/options.md").read_text()
    for command in all_commands(convert).values():
        for name in options_of(command):
            assert f"`{name}" in text or f" / `{name}" in text, name


def test_every_command_is_on_the_page_of_options() -> None:
    text = (ROOT / "docs/options.md").read_text()
    shown = set(re.findall(r"^\| `recordmill (\w+)` \|", text, re.MULTILINE))
    assert shown == set(cli.commands)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_a_page_names_no_option_that_does_not_exist(page: Path) -> None:
    known = TOOLS | BEAMS | set(DEBUG.opts)
    known |= {name for command in commands_below(cli) for name in options_of(command)}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z_-]+", page.read_text()))
    assert named - known == set()


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=page_name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def test_every_page_is_in_the_list_of_pages() -> None:
    index = ROOT / "docs/README.md"
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for target in re.findall(r"\]\(([^)]+)\)", index.read_text())
    }
    pages = {*(ROOT / "docs").rglob("*.md"), *NOTEBOOKS}
    assert pages - linked == {index}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=page_name)
def test_a_notebook_has_no_outputs(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs"), cell
        assert cell.get("execution_count") is None, cell
