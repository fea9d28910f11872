"""The lowest versions that pyproject.toml allows give the same datasets as the newest."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
import tomllib
from pathlib import Path

from reader_tools import ROOT, package_folder
from store_servers import tool

LIMIT_SECONDS = 900
# Every step of a pipeline, every source and every exchange; the command, by the last one.
TESTS = (
    "tests/pipelines/test_read_dataset.py",
    "tests/pipelines/test_write_dataset.py",
    "tests/pipelines/test_write_elements.py",
    "tests/contracts/test_source_jobs.py",
)


def lowest() -> dict[str, str]:
    """Returns the lowest version of each package that is required."""
    text = (ROOT / "pyproject.toml").read_text()
    required = tomllib.loads(text)["project"]["dependencies"]
    found = [re.match(r"([\w-]+)>=([\d.]+)", each) for each in required]
    return {each[1]: each[2] for each in found if each}


def test_a_lowest_version_is_locked_for_each_requirement() -> None:
    """Of those that no index has, as 1.17 of a package that began at 1.17.2, the next."""
    lock = Path(__file__).with_name("requirements-lowest.lock").read_text()
    locked = dict(re.findall(r"(?m)^([\w-]+)==([\w.]+)", lock))
    assert len(lowest()) > 10
    for name, version in lowest().items():
        assert f"{locked[name]}.".startswith(f"{version}."), (name, locked[name])


def test_pipelines_and_sources_with_the_lowest_versions(tmp_path: Path) -> None:
    package = package_folder(tmp_path)
    (metadata,) = Path(sysconfig.get_path("purelib")).glob("recordmill-*.dist-info")
    (package / metadata.name).symlink_to(metadata)
    python = tool("lowest/bin/python")
    done = subprocess.run(
        # The store `folders://` of the tests needs a newer fsspec to know its own paths; a
        # sample's rows are chosen by our own code, whatever is installed; a large shard
        # takes seconds.
        [
            *(python, "-m", "pytest", "-p", "no:cacheprovider"),
            *("-k", "not folders and not test_a_sample and not bounded_memory", *TESTS),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
