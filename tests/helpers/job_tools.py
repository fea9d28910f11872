"""Runs the command, and reads what it wrote with protobuf alone."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from recordmill.beam_jobs.cli.main import run
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.transforms.dataset.verify import verify_dataset

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
SAMPLES = Path(__file__).parents[1] / "samples"
IRIS = SAMPLES / "iris" / "iris.csv"
COMMAND = Path(sys.executable).with_name("recordmill")
# What Beam's launcher stages for workers to log, as a list that pip makes for each job.
UNLISTED = "--experiments=disable_logging_submission_environment"
# The job server within Beam, which downloads nothing, and workers in threads.
PORTABLE = [
    *("--runner=PortableRunner", "--job_endpoint=embed"),
    *("--environment_type=LOOPBACK", UNLISTED),
]
# A generous limit: nothing here takes a tenth of it, but for runs with inputs by hand.
HANG_SECONDS = 1200 if os.environ.get("RECORDMILL_KILLED") else 600
# Packages whose import takes long, so that some commands go without.
HEAVY = (
    "apache_beam", "yaml", "pyarrow", "pydantic", "numpy", "fsspec", "grpc", "rich",
)  # fmt: skip

Argument = str | Path | int


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str


def recordmill(*arguments: Argument) -> Ran:
    """Runs the command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run([str(argument) for argument in arguments])
    return Ran(status, out.getvalue(), err.getvalue())


def convert(source: str, *arguments: Argument) -> Ran:
    """Converts, and makes sure that it went well."""
    ran = recordmill("convert", source, *arguments)
    assert ran.status == 0, ran.err
    return ran


def codes_of(facts: Mapping[str, Any]) -> list[str]:
    """The codes of the warnings in what run.json or `--json` tells."""
    return [each["code"] for each in facts["understood"]["warnings"]]


@contextmanager
def started(*arguments: Argument) -> Iterator[subprocess.Popen[str]]:
    """The real command in a process of its own, ended at the latest with the block."""
    process = subprocess.Popen(
        [str(COMMAND), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> Ran:
    """Waits for the end of a command that was started."""
    out, err = process.communicate(timeout=HANG_SECONDS)
    return Ran(process.returncode, out, err)


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[str] | None = None
) -> None:
    """Waits until something holds; the process, if there is one, must not end before."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.001)


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def command(*arguments: Argument) -> Ran:
    """Runs the real command to its end."""
    with started(*arguments) as process:
        return ended(process)


def python(code: str, *arguments: Argument) -> Ran:
    """Runs a piece of Python in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def contents(folder: Path) -> dict[str, str]:
    """The digest of every file that is the same for the same run."""
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "run.json"
    }


def states(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of change of everything below a folder, itself included."""
    return {
        str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns)
        for path in sorted([folder, *folder.rglob("*")])
    }


def manifest_of(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    return facts


def shards_of(folder: Path, split: str = "train") -> list[Path]:
    """The shards of a split, in the manifest's order."""
    shards = manifest_of(folder)["splits"][split]["shards"]
    return [folder / shard["file"] for shard in shards]


def payloads(shard: Path) -> Iterator[bytes]:
    """The data of each record; `recordmill verify` looks at the checksums."""
    data = shard.read_bytes()
    if shard.suffix == ".gz":
        data = gzip.decompress(data)
    offset = 0
    while offset < len(data):
        (length,) = struct.unpack_from("<Q", data, offset)
        yield data[offset + 12 : offset + 12 + length]
        offset += length + 16


def examples_of(folder: Path, split: str = "train") -> Iterator[Example]:
    """The examples of a split, shard after shard."""
    for shard in shards_of(folder, split):
        for data in payloads(shard):
            yield Example.FromString(data)


def ints(folder: Path, name: str, split: str = "train") -> list[int]:
    """One integer feature of every example of a split."""
    return [
        example.features.feature[name].int64_list.value[0]
        for example in examples_of(folder, split)
    ]


def assert_whole(folder: Path) -> None:
    """Makes sure that a dataset verifies and that nothing else lies beside it.

    The files of the dataset that it replaced stay until the next run.
    """
    assert verify_dataset(str(folder)).problems == ()
    shards = [
        s for split in manifest_of(folder)["splits"] for s in shards_of(folder, split)
    ]
    found = {p for p in folder.iterdir() if ".tfrecord" in p.name}
    left = [p for p in folder.rglob(".recordmill/**/*") if p.is_file()]
    for record in left:
        assert record.name == "replaced.json", record
        replaced = json.loads(record.read_bytes())["splits"].values()
        old = {folder / s["file"] for split in replaced for s in split["shards"]}
        found -= old - set(shards)
    assert len(left) < 2
    assert found == set(shards)
    assert left or not (folder / ".recordmill").exists()


def assert_unpublished(folder: Path) -> None:
    """Makes sure that nobody can take a folder for a dataset."""
    assert not (folder / "manifest.json").exists()
    left = [path.name for path in folder.iterdir()] if folder.exists() else []
    assert left in ([], [".recordmill"])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def copy_golden(root: Path) -> None:
    """Copies golden inputs: two tables in csv, one file in cifar, a tree in images."""
    shutil.copytree(GOLDEN / "images", root / "images")
    for name, copy in (
        ("tutorial.csv", "csv/a.csv"),
        ("tutorial.csv", "csv/b.csv"),
        ("cifar10.bin", "cifar/data_batch_1.bin"),
    ):
        (root / copy).parent.mkdir(exist_ok=True)
        shutil.copyfile(GOLDEN / name, root / copy)
