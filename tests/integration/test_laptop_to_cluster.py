"""The commands of docs/clusters.md, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from clusters import Engines, prism_binary
from job_tools import COMMAND, HANG_SECONDS, assert_whole, contents

ROOT = Path(__file__).parents[2]


def shown_script() -> str:
    """Returns the commands of the page as one script."""
    text = (ROOT / "docs" / "clusters.md").read_text()
    (script,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    return str(script)


def test_the_commands_run_and_give_the_same_bytes(
    tmp_path: Path, engines: Engines
) -> None:
    shutil.copytree(ROOT / "tests/samples", tmp_path / "tests/samples")
    options = dict(o.split("=") for o in engines.flink() if "=" in o)
    # The ports are those that were free here.
    places = {
        "--prism_location=prism": f"--prism_location={prism_binary()}",
        "localhost:8099": options["--job_endpoint"],
        "localhost:8081": options["--flink_master"],
        "localhost:50000": options["--environment_config"],
    }
    script = shown_script()
    for there, here in places.items():
        assert there in script
        script = script.replace(there, here)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{COMMAND.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stderr}\n{engines.tails()}"
    detached = tmp_path / "out" / "detached"
    deadline = time.monotonic() + HANG_SECONDS
    while (detached / ".recordmill").exists() or not detached.exists():
        assert time.monotonic() < deadline, engines.tails()
        time.sleep(0.1)
    for name in ("prism", "flink", "detached"):
        assert_whole(tmp_path / "out" / name)
        assert contents(tmp_path / "out" / name) == contents(tmp_path / "out" / "iris")
