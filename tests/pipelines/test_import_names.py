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
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the image is built from."""
    folder = tmp_path_factory.mktemp("files") / "checkout"
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    before_install = dockerfile[: dockerfile.index("--no-build-isolation .")]
    copied = re.findall(
        r"^COPY (?!--from|deploy/)(.*) \S+$", before_install, re.MULTILINE
    )
    ignored = shutil.ignore_patterns("__pycache__")
    for name in " ".join(copied).split():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(checkout, tmp_path_factory.mktemp("wheel"))


def build_wheel(checkout: Path, folder: Path) -> Path:
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
        return Install(ROOT / "src/recordmill", command, {})
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


def test_a_script_beside_a_clone_of_the_same_name(tmp_path: Path) -> None:
    """A folder without __init__.py must not stand in for the package."""
    (tmp_path / "recordmill").symlink_to(ROOT)
    (tmp_path / "train.py").write_text(
        "from recordmill import open_dataset\nprint(open_dataset.__module__)\n"
    )
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == (
        "recordmill.transforms.rows.open_dataset\n",
        "",
    )


def test_the_wheel_holds_the_one_package(wheel: Path) -> None:
    own = ("__init__.py", "__main__.py", "py.typed")
    expected = {f"recordmill/{name}" for name in own}
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            name = path.relative_to(ROOT).as_posix()
            if name.endswith(KINDS):
                expected.add(f"recordmill/{name}")
    assert names_in(wheel) == expected


def test_a_checkout_without_links_makes_the_same_wheel(
    checkout: Path, wheel: Path, tmp_path: Path
) -> None:
    """As on Windows, and after unzip: each link is a small text file."""
    git = ["git", "-C", checkout]
    plain = tmp_path / "plain"
    for words in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["-c", "core.symlinks=false", "checkout-index", "-a", f"--prefix={plain}/"],
    ):
        subprocess.run([*git, *words], check=True)
    shutil.rmtree(checkout / ".git")
    for room in ROOMS:
        assert (plain / "src/recordmill" / room).read_text() == f"../../{room}"
    assert names_in(build_wheel(plain, tmp_path)) == names_in(wheel)


def names_in(wheel: Path) -> set[str]:
    with ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}
