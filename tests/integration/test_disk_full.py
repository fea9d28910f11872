"""Output on a disk that is too small: one clear error, and the old dataset stays."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
from job_tools import COMMAND, HANG_SECONDS, IRIS, Argument

RECORD_BYTES = 3073  # in the input; some 3.1 kB in a shard

# A disk of its own that only this shell sees; no rights are needed for that.
MOUNT = """
set -u
disk=$1 command=$2 table=$3 images=$4
shift 4
mount -t tmpfs -o size=64m none "$disk"
set_of_iris() { "$command" convert csv "$table" "$disk/set" --shards 2 "$@"; }
"""

OVER_IRIS = """
set_of_iris || exit 20
"$command" convert cifar "$images" "$disk/set" --overwrite "$@"
echo "status $?"
find "$disk" -path '*/runs/*' -o -path '*/staging/*' | sed 's/^/left /'
"$command" verify "$disk/set" || exit 21
set_of_iris --json
"""


def on_small_disk(
    folder: Path, script: str, records: int, *options: Argument
) -> subprocess.CompletedProcess[str]:
    """Runs a script beside a disk of 64 MiB, with CIFAR images of random noise."""
    images = folder / "data_batch_1.bin"
    shape = (records, RECORD_BYTES)
    data = np.random.default_rng(3).integers(0, 256, shape, np.uint8)
    data[:, 0] %= 10
    data.tofile(images)
    disk = folder / "disk"
    disk.mkdir()
    shell = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    arguments = [MOUNT + script, "sh", disk, COMMAND, IRIS, images, *options]
    return subprocess.run(
        [*shell, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    done = on_small_disk(tmp_path, OVER_IRIS, 26_000, "--compression", "gzip")
    assert done.returncode == 0, done.stderr
    assert "status 74\n" in done.stdout
    assert "No space left on device" in done.stderr
    assert "Nothing was published" in done.stderr
    assert "every checksum, count and size is right" in done.stdout
    assert '"status": "unchanged"' in done.stdout


def test_a_run_that_just_fits_is_not_refused(tmp_path: Path) -> None:
    """Scratch and shards fill the disk to 97 %."""
    done = on_small_disk(tmp_path, OVER_IRIS, 10_400, "--exchange", "scratch")
    assert "status 0\n" in done.stdout, done.stderr


def test_what_a_killed_run_finished_is_not_needed_again(tmp_path: Path) -> None:
    script = """
    convert() {
        exec "$command" convert cifar "$images" "$disk/set" --exchange scratch --shards 9
    }
    (convert) &
    until ls "$disk"/set/.recordmill/*/facts/shard-* > /dev/null 2>&1; do
        kill -0 $! || exit 20
        sleep 0.005
    done
    kill -9 $!
    test -e "$disk/set/manifest.json" && exit 21
    (convert)
    """
    # Room for scratch, all shards and the two that were half written.
    done = on_small_disk(tmp_path, script, 9_000)
    assert done.returncode == 0, done.stderr


def test_the_old_dataset_and_the_new_one_need_room_side_by_side(tmp_path: Path) -> None:
    script = """
    convert() { "$command" convert cifar "$images" "$disk/set" "$@"; }
    convert || exit 20
    convert --seed 1 --overwrite
    echo "status $?"
    "$command" verify "$disk/set" || exit 21
    rm -r "$disk/set"
    convert --seed 1 --overwrite
    """
    done = on_small_disk(tmp_path, script, 12_000)
    assert done.returncode == 0, done.stderr
    assert "status 74\n" in done.stdout
    assert "No space left on device" in done.stderr
