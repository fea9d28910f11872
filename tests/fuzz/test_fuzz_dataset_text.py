"""Text in the files of a dataset leads to no path, no address and no traceback.

RECORDMILL_FUZZ_EXAMPLES says how many changes are tried; 500 by default.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from example_counts import FUZZ
from hostile_text import (
    Template,
    World,
    change,
    copy_of,
    hostile_world,
    make_templates,
    put,
    text_files,
)
from job_tools import Ran, recordmill

from recordmill import open_dataset, read_rows
from recordmill.schemas.errors import EXIT_STATUS, RecordmillError, exit_status

CHANGES = max(FUZZ, 500)
GROUPS = 5  # of changes, which workers of pytest-xdist share
HANG_SECONDS = 600
DOCUMENTED = {0, *EXIT_STATUS.values()}

Arguments = Sequence[str | Path]


@dataclass(frozen=True)
class Act:
    """One way to use a dataset.

    Attributes:
      run: uses the dataset of a world, made by the command of a template.
      reads_inputs: whether the user names the inputs in this command.
      share: how often it is chosen, beside others.
    """

    run: Callable[[World, Template], Ran]
    reads_inputs: bool = False
    share: int = 8


def with_options(*arguments: str, share: int = 8) -> Act:
    """Returns the act of a command: DS and OUT stand for the dataset and an export."""

    def run(world: World, template: Template) -> Ran:
        names = {"DS": str(world.dataset), "OUT": str(world.export)}
        names["PAGE"] = str(world.dataset.parent / "page.html")
        names["OTHER"] = str(template.folder)
        return recordmill(*(names.get(word, word) for word in arguments))

    return Act(run, share=share)


def convert_again(*options: str) -> Act:
    def run(world: World, template: Template) -> Ran:
        if template.command is None:
            return Ran(0, "", "")
        source, path, *others = template.command
        names = {"METRICS": str(world.dataset.parent / "metrics.prom")}
        more = (names.get(word, word) for word in options)
        return recordmill("convert", source, path, world.dataset, *others, *more)

    return Act(run, reads_inputs=True, share=1)


def in_python(read: Callable[[Path], object]) -> Act:
    def run(world: World, template: Template) -> Ran:
        try:
            read(world.dataset)
        except RecordmillError as error:
            return Ran(exit_status(error), "", str(error))
        return Ran(0, "", "")

    return Act(run)


ACTS = {
    "inspect": with_options("inspect", "DS"),
    "inspect --json": with_options("inspect", "DS", "--json", "--counts"),
    "inspect --tf": with_options("inspect", "DS", "--tf"),
    "inspect --image": with_options("inspect", "DS", "--image", "OUT"),
    "verify": with_options("verify", "DS"),
    "verify --quick": with_options("verify", "DS", "--quick", "--json"),
    "verify --deep": with_options("verify", "DS", "--deep", "--duplicates"),
    "rejects": with_options("rejects", "DS"),
    "rejects --json": with_options("rejects", "DS", "--json"),
    "report": with_options("report", "DS", "-o", "PAGE", share=3),
    "export tfds": with_options("export", "tfds", "DS", "OUT"),
    "export parquet": with_options("export", "parquet", "DS", "OUT"),
    "export webdataset": with_options("export", "webdataset", "DS", "OUT"),
    "index": with_options("index", "DS"),
    "diff": with_options("diff", "DS", "OTHER"),
    "diff other": with_options("diff", "OTHER", "DS", "--json"),
    "clean --dry-run": with_options("clean", "DS", "--dry-run"),
    "clean": with_options("clean", "DS"),
    "append": convert_again("--append"),
    "overwrite": convert_again("--overwrite"),
    "again": convert_again("--metrics-file", "METRICS"),
    "of the dataset": with_options("schema", "infer", "tfrecord", "DS"),
    "open_dataset": in_python(lambda path: list(islice(open_dataset(path), 2))),
    "read_rows": in_python(lambda path: list(islice(read_rows(path), 2))),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with hostile_world(tmp_path_factory.mktemp("world") / "w") as made:
        yield made


@pytest.fixture(scope="module")
def templates(world: World) -> dict[str, Template]:
    return make_templates(world)


@pytest.fixture(autouse=True)
def guarded(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs in a folder of the world; a hang ends with the stacks of all threads."""
    monkeypatch.chdir(world.folder / "cwd")
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


def faults_of(act: str, world: World, template: Template) -> list[str]:
    """Does one thing with the dataset of a world; returns what was wrong with it."""
    used = ACTS[act]
    faults: list[str] = []
    with world.watched(reads_inputs=used.reads_inputs) as outside:
        try:
            ran = used.run(world, template)
        except Exception as error:
            faults.append(f"traceback: {type(error).__name__}: {str(error)[:200]}")
            ran = Ran(0, "", "")
    if ran.status not in DOCUMENTED:
        faults.append(f"status {ran.status}")
    if "Traceback" in ran.err or "is a bug in recordmill" in ran.err:
        faults.append(f"traceback: {ran.err[-300:]}")
    return faults + outside


@pytest.mark.fuzz
@pytest.mark.parametrize("group", range(GROUPS))
def test_changes(world: World, templates: dict[str, Template], group: int) -> None:
    faults = []
    for number in range(group, CHANGES, GROUPS):
        random = Random(number)
        template = templates[random.choice(("table", "table", "zoo", "versions"))]
        names = text_files(template.folder)
        manifests = [name for name in names if name.endswith("manifest.json")]
        name = random.choice((*names, *manifests * 4))
        act = random.choices([*ACTS], [each.share for each in ACTS.values()])[0]
        copy_of(template, world.dataset)
        change(world.dataset, name, world.hostile, number)
        faults += [
            f"{number}: {act} with {name} of {template.folder.name}: {fault}"
            for fault in faults_of(act, world, template)
        ]
    assert not faults, "\n".join(faults)


HOLES = [
    ("manifest.json", ["name"], "../../evil/x", "export tfds"),
    ("manifest.json", ["name"], "{folder}/evil/x", "export tfds"),
    ("manifest.json", ["name"], "x" * 300, "export tfds"),
    ("manifest.json", ["splits", "train=>../../../evil/x"], "rename", "export webdataset"),
    ("manifest.json", ["splits", "train=>{folder}/evil/x"], "rename", "export webdataset"),
    ("manifest.json", ["splits", "train=>../../../../evil/x"], "rename", "export parquet"),
    ("manifest.json", ["splits", "train=>" + "s" * 300], "rename", "export webdataset"),
    ("manifest.json", ["fingerprint"], "../../../evil", "verify"),
    ("manifest.json", ["seed"], 10**400, "inspect"),
    ("run.json", ["input_root"], "{folder}/secret", "rejects"),
    ("run.json", ["input_root"], "{folder}/pipes", "rejects --json"),
    ("run.json", ["input_root"], "{folder}/secret", "report"),
    ("run.json", ["input_root"], "{url}", "rejects"),
    ("run.json", ["understood"], "@@deep@@", "rejects"),
    ("run.json", ["understood"], "@@deep@@", "report"),
    ("run.json", ["understood"], {"facts": {"a": [1]}, "warnings": [{}]}, "report"),
    ("rejects", ["uri"], "../secret/t.csv", "rejects"),
    ("rejects", ["code"], ["row"], "again"),
    ("rejects", ["code"], ["row"], "rejects"),
    ("rejects", ["position"], 1 << 70, "rejects"),
    ("rejects", ["reason"], "\ud800", "rejects --json"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "field", "value", "act"),
    HOLES,
    ids=[f"{act}-{file}-{number}" for number, (file, _, _, act) in enumerate(HOLES)],
)
def test_holes(
    world: World,
    templates: dict[str, Template],
    file: str,
    field: list[str],
    value: object,
    act: str,
) -> None:
    """Each is refused by name; before, it was written, opened, or ended in a traceback."""

    def filled(text: str) -> str:
        return text.replace("{folder}", str(world.folder)).replace("{url}", world.url)

    template = templates["table"]
    copy_of(template, world.dataset)
    [name] = [name for name in text_files(world.dataset) if name.startswith(file)]
    field = [*map(filled, field)]
    put(world.dataset, name, field, filled(value) if isinstance(value, str) else value)
    faults = faults_of(act, world, template)
    assert not faults, "\n".join(faults)
