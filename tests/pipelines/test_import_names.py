"""A pipeline whose folder has modules named like ours: schemas, transforms, beam_jobs.

Once with the checkout as it is installed for work on it, once with a built wheel. Python
looks in the script's folder first, so a name that we took from the top level would be
the user's module.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("beam_jobs", "schemas", "transforms")
KINDS = (".py", ".pyi", ".proto", ".schema.json", ".html", ".css")

USER_FILES = {
    "schemas.py": 'SCHEMA = {"number": "int64"}\n',
    "transforms/__init__.py": "",
    "transforms/rows.py": 'def to_row(number):\n    return {"number": number}\n',
    "beam_jobs.py": "NUMBERS = range(100)\n",
    "pipeline.py": """\
import sys

import apache_beam as beam
import beam_jobs
import schemas
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from transforms.rows import to_row

import recordmill
from recordmill import ReadDataset, WriteDataset

if __name__ == "__main__":
    print(recordmill.__file__)
    output, *arguments = sys.argv[1:]
    options = PipelineOptions(arguments)
    with beam.Pipeline("FnApiRunner", options=options) as p:
        rows = p | beam.Create(beam_jobs.NUMBERS) | beam.Map(to_row)
        rows | WriteDataset(output, schemas.SCHEMA, shards=2)
    with beam.Pipeline("FnApiRunner", options=options) as p:
        rows = p | ReadDataset(output, as_="dict")
        assert_that(rows, equal_to([to_row(number) for number in beam_jobs.NUMBERS]))
""",
}


@dataclass(frozen=True)
class Install:
    """An installed recordmill: its folder, the command, and variables that reach it."""

    package: Path
    command: Path
    variables: dict[str, str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the files that the image is built from."""
    folder = tmp_path_factory.mktemp("wheel")
    checkout = folder / "checkout"
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    before_install = dockerfile[: dockerfile.index("--no-build-isolation .")]
    copied = re.findall(
        r"^COPY (?!--from|deploy/)(.*) \S+$", before_install, re.MULTILINE
    )
    ignored = shutil.ignore_patterns("__pycache__")
    for name in " ".join(copied).split():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
        else:
            checkout.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, checkout)
    pip("wheel", "--no-deps", "--no-build-isolation", checkout, "-w", folder)
    (built,) = folder.glob("*.whl")
    return built


def pip(command: str, *arguments: str | Path) -> None:
    quiet = ["-m", "pip", command, "--quiet", "--disable-pip-version-check"]
    # Nothing is compiled anew: wheels with what is are tested in test_release.py.
    without = os.environ | {"RECORDMILL_COMPILED": "no"}
    subprocess.run([sys.executable, *quiet, *arguments], check=True, env=without)


@pytest.fixture(params=["editable", "wheel"])
def install(request: pytest.FixtureRequest, tmp_path: Path) -> Install:
    if request.param == "editable":
        command = Path(sys.executable).with_name("recordmill")
        return Install(ROOT / "beam_jobs/recordmill", command, {})
    target = tmp_path / "installed"
    wheel = request.getfixturevalue("wheel")
    pip("install", "--no-deps", "--target", target, wheel)
    variables = {"PYTHONPATH": str(target)}  # comes before the editable install
    return Install(target / "recordmill", target / "bin/recordmill", variables)


def test_user_modules_of_the_same_names(install: Install, tmp_path: Path) -> None:
    folder = tmp_path / "user"
    for name, text in USER_FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | install.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    options = processes if install.variables else []
    printed = run(sys.executable, "pipeline.py", "out", *options)
    assert Path(printed.strip()).resolve().parent == install.package
    assert "100 records" in run(sys.executable, "-m", "recordmill", "verify", "out")
    assert "convert" in run(install.command, "--help")


def test_the_wheel_holds_the_one_package(wheel: Path) -> None:
    expected = {"recordmill/py.typed"}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if name.endswith(KINDS):
                public = name.removeprefix("beam_jobs/recordmill/")
                expected.add(f"recordmill/{public}")
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected
