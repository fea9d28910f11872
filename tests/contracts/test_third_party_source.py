"""A format of another package: installed by pip, it works like those built in.

The packages are examples/third_party_source and examples/svhn_source;
docs/adding-a-source.md explains them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job_tools import HANG_SECONDS, SAMPLES, Argument, Ran

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = ["first", "", "a line of text", "x", "last"]


# Runs a command for each line that it reads.
WAITING = """
import json, sys
from job_tools import recordmill
for line in sys.stdin:
    ran = recordmill(*json.loads(line))
    print(json.dumps([ran.status, ran.out, ran.err]), flush=True)
"""
Run = Callable[..., Ran]


@pytest.fixture(scope="module")
def run_there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs commands in a process that finds the packages, which pip has installed."""
    folder = tmp_path_factory.mktemp("third_party")
    sources = [folder / name for name in ("third_party_source", "svhn_source")]
    for source in sources:  # a build writes beside its source
        shutil.copytree(EXAMPLES / source.name, source)
    target = folder / "installed"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", target]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *sources],
        check=True,
        timeout=HANG_SECONDS,
    )
    paths = [
        target,
        Path(__file__).parents[1] / "helpers",
        os.environ.get("PYTHONPATH"),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", WAITING],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, filter(None, paths))),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asked, answers = process.stdin, process.stdout
        assert asked
        assert answers

        def run(*arguments: Argument) -> Ran:
            print(json.dumps([*map(str, arguments)]), file=asked, flush=True)
            return Ran(*json.loads(answers.readline()))

        yield run


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def good(ran: Ran) -> Ran:
    assert ran.status == 0, ran.err
    return ran


def test_help_lists_it(run_there: Run) -> None:
    for group in (["convert"], ["schema", "infer"]):
        listed = " ".join(good(run_there(*group, "--help")).out.split())
        assert "lines A record for each line of a text file." in listed
    assert "--min-length" in good(run_there("convert", "lines", "-h")).out
    schema = json.loads(good(run_there("run", "--job-schema")).out)
    assert "lines" in schema["properties"]


def test_the_command_and_a_job_file_give_the_same_dataset(
    run_there: Run, text_file: Path, tmp_path: Path
) -> None:
    by_command, by_file = tmp_path / "command" / "text", tmp_path / "file" / "text"
    words: list[Argument] = ["convert", "lines", text_file, by_command]
    good(run_there(*words, "--min-length", 2, "--shards", 2))
    job = tmp_path / "job.yaml"
    job.write_text(
        f"source: lines\nlines: {{min_length: 2}}\ninputs: in.txt\noutput: {by_file}\n"
        "shards: 2\n"
    )
    good(run_there("run", job))
    verified = good(run_there("verify", by_file))
    assert "2 shards, 3 records" in verified.out + verified.err
    names = sorted(path.name for path in by_file.glob("*.tfrecord-*"))
    assert len(names) == 2
    for name in [*names, "manifest.json"]:
        assert (by_command / name).read_bytes() == (by_file / name).read_bytes()
    again = good(run_there("run", job))
    assert "nothing to do" in again.err


def test_its_schema_is_inferred(run_there: Run, text_file: Path) -> None:
    inferred = good(run_there("schema", "infer", "lines", text_file))
    assert "text: string" in inferred.out
    assert "4 distinct" in inferred.out
    assert "4 rows" in inferred.err


def test_wrong_options_are_told(
    run_there: Run, text_file: Path, tmp_path: Path
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("source: lines\nlines: {min_lenght: 2}\ninputs: a\noutput: b\n")
    ran = run_there("run", job)
    assert ran.status == 2
    assert "unknown field 'min_lenght'; did you mean min_length?" in ran.err


def test_svhn_is_the_same_as_when_it_was_built_in(
    run_there: Run, tmp_path: Path
) -> None:
    output = tmp_path / "svhn"
    good(run_there("convert", "svhn", SAMPLES / "digits/svhn", output))
    (shard,) = output.glob("svhn-test.*.tfrecord-00000-of-00001")
    for path, expected in (
        (shard, "87a31a6b7044"),
        (output / "features.json", "10fc67c85516"),
    ):
        assert hashlib.sha256(path.read_bytes()).hexdigest()[:12] == expected
    broken = tmp_path / "train_32x32.mat"
    broken.write_bytes(b"no MATLAB file")
    ran = run_there("convert", "svhn", broken, tmp_path / "broken")
    assert ran.status != 0
    assert "train_32x32.mat: is not a MATLAB file" in ran.err
