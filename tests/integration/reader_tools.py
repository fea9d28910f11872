"""Runs Python where PyTorch, Hugging Face's datasets, Grain and tfrecord are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from store_servers import TOOLS, tool

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 600
TORCH = TOOLS / "torch"
TORCH_PACKAGES = TORCH / "usr/lib/python3/dist-packages"
# Where Debian keeps libraries.
LIBRARIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/blas",
    "usr/lib/x86_64-linux-gnu/lapack",
    "usr/lib",
    "lib/x86_64-linux-gnu",
)


def package_folder(folder: Path) -> Path:
    """Returns a folder from which recordmill alone can be imported, as a source tree."""
    package = folder / "package" / "recordmill"
    if not package.exists():
        package.mkdir(parents=True)
        for name in ("beam_jobs", "transforms", "schemas"):
            (package / name).symlink_to(ROOT / name)
        for file in (ROOT / "src" / "recordmill").glob("*.py"):
            (package / file.name).symlink_to(file)
    return package.parent


def reader_environment(folder: Path) -> dict[str, str]:
    """Returns the variables of a process that reads; it asks nobody on the network.

    Args:
      folder: for what the frameworks keep, and for a link to the package.
    """
    return {
        "PATH": f"{Path(tool('readers/bin/python')).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "HF_HOME": str(folder / "hugging-face"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": f"{package_folder(folder)}:{TORCH_PACKAGES}",
        "LD_LIBRARY_PATH": ":".join(str(TORCH / name) for name in LIBRARIES),
    }


def run_reader(folder: Path, *command: str | Path, cwd: Path | None = None) -> str:
    """Runs Python with the frameworks, and returns what it printed.

    Args:
      folder: see reader_environment.
      command: what follows `python`.
      cwd: the current folder of the process; by default the same folder.
    """
    done = subprocess.run(
        [tool("readers/bin/python"), *map(str, command)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env=reader_environment(folder),
        cwd=cwd or folder,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout
