"""Too little memory to start is told by name, not by a traceback of some library."""

from __future__ import annotations

import errno
import json
import subprocess
from pathlib import Path

import pytest
from job_tools import COMMAND, HANG_SECONDS, IRIS

from recordmill.beam_jobs.cli.main import shortage


@pytest.mark.parametrize("mebibytes", [40, 120, 300])
def test_a_limit_of_the_address_space(tmp_path: Path, mebibytes: int) -> None:
    command = [str(COMMAND), "convert", "csv", str(IRIS), str(tmp_path / "out")]
    command.append("--json")
    done = subprocess.run(
        ["bash", "-c", f'ulimit -v {mebibytes << 10}; exec "$@"', "bash", *command],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode not in (0, 2)
    assert "Traceback" not in done.stderr
    if "Error: memory is short" not in done.stderr:  # OpenBLAS ends the process itself
        assert f"Warning: this process may use {mebibytes} MiB of memory" in done.stderr
    if done.stdout:
        assert json.loads(done.stdout)["status"] == "failed"
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("error", "is_short"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "/x"), True),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), False),
        (ImportError("libarrow.so: failed to map segment from shared object"), True),
        (ImportError("No module named 'x'"), False),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("x"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_what_says_that_memory_is_short(error: BaseException, is_short: bool) -> None:
    assert bool(shortage(error)) is is_short
