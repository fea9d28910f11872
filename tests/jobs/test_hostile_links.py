"""Links and FIFOs in a dataset's folder lead no command out of it.

At each path that recordmill makes or looks for below an output, there is a link to a
folder, a file, a missing target or the folder above, or a FIFO. Each command runs on each
such output. The tree of files beside it must stay as it is.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from example_counts import FACTOR
from job_tools import IRIS, Argument, convert, recordmill
from killed_runs import failing, staged
from watched_tree import unchanged

from recordmill.schemas.errors import EXIT_STATUS, RecordmillError
from recordmill.transforms.rows.open_dataset import open_dataset

# A FIFO that is opened would block for ever. No test is ended for being slow.
GUARD_SECONDS = 600
NUM_COMBINATIONS = 500
RUN = "0123456789abcdef"


def make_broken_rows(path: Path) -> Path:
    path.write_text("a,label\n" + "".join(f"{n},x\n" for n in range(40)) + "1,2,3\n")
    return path


def dataset(folder: Path) -> None:
    """A dataset with rejects, index files, an appended part and a replaced one."""
    table = make_broken_rows(folder.parent / "table.csv")
    options: list[Argument] = ["--max-rejects", 1, "--index", "--shards", 2]
    convert("csv", table, folder, *options)
    convert("csv", table, folder, *options, "--seed", 1, "--overwrite")


def killed(folder: Path) -> None:
    """A run that was killed before its commit, with a whole workspace."""
    staged(IRIS, folder, "--shards", 2, "--memory", 0)


def versions(folder: Path) -> None:
    for seed in range(2):
        convert("csv", IRIS, folder, "--dataset-version", "auto", "--seed", seed)
    with failing("commit"):
        job: list[Argument] = ["--dataset-version", "auto", "--seed", 2]
        assert recordmill("convert", "csv", IRIS, folder, *job).status == 1


MODELS = {"dataset": dataset, "killed": killed, "versions": versions}
# Names that are not there in these models, but that recordmill makes or looks for.
EXPECTED = {
    "dataset": (
        ".recordmill/swap",
        ".recordmill/swap/.manifest.json." + "0" * 32,
        ".recordmill/lock",
        ".recordmill/lock/lease.json",
        ".recordmill/commit-00000000",
        ".recordmill/commit-00000000/files",
        ".recordmill/commit-00000000/manifest.json",
        f".recordmill/{RUN}",
        f".recordmill/{RUN}/staging",
        f".recordmill/{RUN}/staging/manifest.json",
        f".recordmill/{RUN}/live",
        ".recordmill/rows-0123456789a",
        ".recordmill/job-0123456789ab",
        ".recordmill/job-0123456789ab/alive.json",
        ".recordmill/manifest.json",
        ".recordmill/probe-" + "0" * 32,
        ".manifest.json." + "0" * 32,
        "latest.json",
        "croissant.json",
        "run-a00001.json",
        "inputs-a00001.jsonl.gz",
    ),
    "killed": (".recordmill/lock", ".recordmill/swap", "manifest.json", "rejects"),
    "versions": (
        ".recordmill",
        ".recordmill/swap",
        "0.9.9",
        "1.0.3",
        "manifest.json",
        "1.0.0/.recordmill",
    ),
}

KINDS = ("folder", "file", "fifo", "missing", "parent")


def put_link(path: Path, kind: str, outside: Path) -> None:
    """Puts a link, or a FIFO, at a path, in place of what is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
        return
    target = {
        "folder": outside / "home",
        "file": outside / "home" / "notes.txt",
        "missing": outside / "home" / "none",
        "parent": Path(),
    }[kind]
    path.symlink_to(os.path.relpath(target, path.parent) if kind != "parent" else "..")


def make_outside(outside: Path) -> None:
    """Makes files that are nobody's business, with the names of recordmill's own."""
    home = outside / "home"
    for name in (
        "notes.txt",
        "deep/er/notes.txt",
        "errors/e.json",
        "live/x",
        "staging/iris-train.tfrecord-00000-of-00002",
        "facts/range-000000.json",
        "files/features.json",
        ".manifest.json." + "1" * 32,
        f".recordmill/{RUN}/run.log",
        "lease.json",
    ):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(name)
    os.mkfifo(home / "fifo")


Command = Callable[[Path, Path], int]  # (output, an empty folder) -> exit status


def run(*arguments: Argument) -> int:
    ran = recordmill(*arguments)
    assert "Traceback" not in ran.err, ran.err
    assert "this is a bug in recordmill" not in ran.err, ran.err
    return ran.status


def read_all(output: Path, scratch: Path) -> int:
    try:
        for _ in islice(open_dataset(output), 3):
            pass
    except RecordmillError as error:
        return EXIT_STATUS[error.kind]
    return 0


OPTIONS: tuple[Argument, ...] = ("--shards", 2, "--max-rejects", 1)
COMMANDS: dict[str, Command] = {
    "convert": lambda output, _: run("convert", "csv", IRIS, output, *OPTIONS),
    "overwrite": lambda output, _: run(
        *("convert", "csv", IRIS, output, "--overwrite", "--memory", 0), *OPTIONS
    ),
    "append": lambda output, _: run(
        *("convert", "csv", output.parent / "table.csv", IRIS, output, "--append"),
        *(*OPTIONS, "--seed", 1, "--index"),
    ),
    "version auto": lambda output, _: run(
        *("convert", "csv", IRIS, output, "--dataset-version", "auto", "--seed", 7),
        *("--keep", 1),
    ),
    "clean": lambda output, _: run("clean", output),
    "verify": lambda output, _: run("verify", output, "--deep"),
    "diff": lambda output, _: run("diff", output, output),
    "inspect": lambda output, _: run("inspect", output, "--counts"),
    "report": lambda output, empty: run("report", output, "-o", empty / "page.html"),
    "rejects": lambda output, _: run("rejects", output),
    "rejects unpublished": lambda output, _: run("rejects", output, "--unpublished"),
    "export tfds": lambda output, empty: run("export", "tfds", output, empty / "new"),
    "export parquet": lambda output, empty: run(
        "export", "parquet", output, empty / "new"
    ),
    "index": lambda output, _: run("index", output),
    "open_dataset": read_all,
}


def paths_in(folder: Path) -> Iterator[str]:
    """Yields each path of a model; of the many files of a kind the first ones."""
    kinds = dict[str, int]()
    for path in sorted(folder.rglob("*")):
        kind = f"{path.parent}{''.join(c for c in path.name if not c.isdigit())}"
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 1:
            yield str(path.relative_to(folder))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for name, make in MODELS.items():
        (folder / name).mkdir()
        make(folder / name / "iris")
    return {name: folder / name for name in MODELS}


def combinations(command: str, models: dict[str, Path]) -> Iterator[tuple[str, ...]]:
    """Yields (model, path, kind), a share of them in `make test`.

    Each command takes other ones, so that all of them together come to every path.
    """
    everything = [
        (name, path, kind)
        for name, folder in models.items()
        for path in dict.fromkeys([*EXPECTED[name], *paths_in(folder / "iris")])
        for kind in KINDS
    ]
    if FACTOR > 1:
        yield from everything
        return
    count = NUM_COMBINATIONS // len(COMMANDS) + 1
    first = list(COMMANDS).index(command)
    # A stride that has no divisor in common with the number of kinds.
    stride = len(everything) // count
    stride -= stride % len(KINDS) == 0
    for number in range(count):
        yield everything[(first * 7 + number * stride) % len(everything)]


# What each of these led to was emptied, or written into, before stores looked for links.
HOLES = [
    ("a commit's record, cleaned", "dataset", ".recordmill/commit-00000000", "clean"),
    ("and replaced", "dataset", ".recordmill/commit-00000000", "overwrite"),
    ("the work folder", "dataset", ".recordmill", "overwrite"),
    ("the folder of swaps", "dataset", ".recordmill/swap", "overwrite"),
    ("the folder of the lease", "dataset", ".recordmill/lock", "clean"),
    ("an old version", "versions", "1.0.0", "version auto"),
    ("an unfinished version", "versions", "0.9.9", "version auto"),
]


@pytest.mark.parametrize(
    ("model", "path", "command"),
    [hole[1:] for hole in HOLES],
    ids=[hole[0] for hole in HOLES],
)
def test_a_link_to_a_folder_leads_nowhere(
    model: str, path: str, command: str, models: dict[str, Path], tmp_path: Path
) -> None:
    make_outside(tmp_path / "outside")
    shutil.copytree(models[model], tmp_path / "place", symlinks=True)
    put_link(tmp_path / "place" / "iris" / path, "folder", tmp_path / "outside")
    with unchanged(tmp_path / "outside"):
        status = COMMANDS[command](tmp_path / "place" / "iris", tmp_path)
    # A link among the versions is somebody's own; elsewhere it is an error.
    assert status == (0 if model == "versions" else 73)


def test_the_workspace_of_a_run_may_be_no_link(
    models: dict[str, Path], tmp_path: Path
) -> None:
    make_outside(tmp_path / "outside")
    shutil.copytree(models["killed"], tmp_path / "place")
    output = tmp_path / "place" / "iris"
    (workspace,) = (output / ".recordmill").glob("[0-9a-f]" * 16)
    put_link(workspace, "folder", tmp_path / "outside")
    with unchanged(tmp_path / "outside"):
        ran = recordmill("convert", "csv", IRIS, output, "--shards", 2, "--memory", 0)
    assert ran.status == 73
    assert f"{workspace}: is a symbolic link" in ran.err
    workspace.unlink()  # as the message suggests
    convert("csv", IRIS, output, "--shards", 2, "--memory", 0)


@pytest.mark.parametrize("folder", ["", "runs", "facts"])
def test_scratch_of_a_run_may_be_no_link(folder: str, tmp_path: Path) -> None:
    make_outside(tmp_path / "outside")
    job: list[Argument] = ["--shards", 2, "--memory", 0]
    job += ["--scratch", tmp_path / "scratch"]
    with failing("stage"):
        assert recordmill("convert", "csv", IRIS, tmp_path / "iris", *job).status == 1
    (workspace,) = (tmp_path / "scratch").iterdir()
    put_link(workspace / folder, "folder", tmp_path / "outside")
    with unchanged(tmp_path / "outside"):
        ran = recordmill("convert", "csv", IRIS, tmp_path / "iris", *job)
    assert ran.status == 73
    assert f"{workspace / folder}: is a symbolic link" in ran.err


def test_a_dataset_of_links_is_read_and_replaced(tmp_path: Path) -> None:
    """As DVC, git-annex and caches make them: each file is a link to a regular one."""
    cache, output = tmp_path / "cache", tmp_path / "place" / "iris"
    table = make_broken_rows(tmp_path / "table.csv")
    convert("csv", table, cache, "--name", "iris", "--index", *OPTIONS)
    for path in sorted(cache.rglob("*")):
        link = output / path.relative_to(cache)
        if path.is_file():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(path, link.parent))
    for number, name in enumerate(
        ("verify", "inspect", "rejects", "export tfds", "diff")
    ):
        (tmp_path / str(number)).mkdir()
        assert COMMANDS[name](output, tmp_path / str(number)) == 0, name
    exported = recordmill("inspect", tmp_path / "3" / "new")
    assert "is missing" not in exported.err
    assert all(p.resolve().is_file() for p in (tmp_path / "3" / "new").iterdir())
    with unchanged(cache):
        assert COMMANDS["overwrite"](output, tmp_path) == 0
    assert COMMANDS["verify"](output, tmp_path) == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_leaves_the_folder(
    command: str, models: dict[str, Path], tmp_path: Path
) -> None:
    documented = {*EXIT_STATUS.values(), 0}
    outside = tmp_path / "outside"
    make_outside(outside)
    faulthandler.dump_traceback_later(GUARD_SECONDS, exit=True)
    try:
        for number, (model, path, kind) in enumerate(combinations(command, models)):
            place = tmp_path / str(number)
            shutil.copytree(models[model], place, symlinks=True)
            put_link(place / "iris" / path, kind, outside)
            (place / "empty").mkdir()
            with unchanged(outside):
                status = COMMANDS[command](place / "iris", place / "empty")
            assert status in documented, (model, path, kind, status)
            shutil.rmtree(place)
    finally:
        faulthandler.cancel_dump_traceback_later()
