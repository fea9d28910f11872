"""Output on a disk that is too small: one clear error, and the old dataset stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from job_tools import COMMAND, HANG_SECONDS, IRIS

# A disk of its own that only this shell sees; no rights are needed for that.
SCRIPT = """
set -u
mount -t tmpfs -o size=64m none "$1"
"$2" convert csv "$3" "$1/set" --shards 2 || exit 20
"$2" convert cifar "$4" "$1/set" --overwrite --exchange "$5"
echo "status $?"
"$2" verify "$1/set" || exit 21
"$2" convert csv "$3" "$1/set" --shards 2 --json
"""


@pytest.mark.parametrize("exchange", ["reference", "scratch"])
def test_disk_full(tmp_path: Path, exchange: str) -> None:
    data = np.random.default_rng(3).integers(0, 256, (26_000, 3073), np.uint8)
    data[:, 0] %= 10
    data.tofile(tmp_path / "data_batch_1.bin")
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = [disk, COMMAND, IRIS, tmp_path / "data_batch_1.bin", exchange]
    shell = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        SCRIPT,
        "sh",
    ]
    done = subprocess.run(
        [*shell, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "status 1\n" in done.stdout
    assert "No space left on device" in done.stderr
    assert "Nothing was published" in done.stderr
    assert "every checksum, count and size is right" in done.stdout
    assert '"status": "unchanged"' in done.stdout
