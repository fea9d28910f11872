"""Compare two commits: whole processes in pairs, on one machine.

    python tests/bench/quick.py [COMMIT] [--pairs 15] [--parts csv cifar]

COMMIT (default: main) and what is checked out here, with its changes, are installed side
by side into bench-data/quick, each with its native extension and its own command; the
packages are those of .venv. The two of a pair run one after the other on the same input,
in turns first. A line has the medians, the ratio of the paired times and of the peak memory
of the process (ru_maxrss), each with the 90 % interval of its median. A ratio below 1 means
that what is checked out here takes less. What is surely beyond 1.03 in time or 1.05 in
memory is flagged. The bytes of the shards are compared, too.
"""

import argparse
import dataclasses
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from places import HERE, make_input

ROOT = HERE.parents[1]
TIME_LIMIT, MEMORY_LIMIT = 1.03, 1.05
# What is measured: kind and rows of the input, and the command.
PARTS = {
    "csv": ("csv", 300_000, "convert csv {input} {output}"),
    "jsonl": ("jsonl", 50_000, "convert jsonl {input} {output}"),
    "arrow": ("batches", 300_000, "convert arrow {input} {output}"),
    "cifar": ("cifar", 150_000, "convert cifar {input} {output}"),
    "images": ("images", 3_000, "convert images {input} {output}"),
    "engine": ("csv", 60_000, "convert csv {input} {output} --exchange engine"),
    "engine-images": (
        "images",
        1_000,
        "convert images {input} {output} --exchange engine",
    ),
    "ten-rows": ("csv", 10, "convert csv {input} {output}"),
    "help": ("", 0, "--help"),
}


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two: its name, and the folder that it is installed in."""

    name: str
    site: Path


@dataclasses.dataclass(frozen=True)
class Run:
    """What a process took, and a digest of the shards that it wrote."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    digest: str


def install(python: Path, source: Path, site: Path) -> None:
    """Install a checkout alone, without the packages it needs."""
    shutil.rmtree(site, ignore_errors=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    own = ["--no-build-isolation", "--disable-pip-version-check", "--target", site]
    subprocess.run([*map(str, [*pip, *own]), str(source)], check=True)
    where = subprocess.run(
        [python, "-c", "import recordmill; print(recordmill.__file__)"],
        env=os.environ | {"PYTHONPATH": str(site)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not where.stdout.startswith(str(site)):
        sys.exit(f"recordmill of {site} is imported from {where.stdout}")


def two_sides(python: Path, commit: str, folder: Path) -> tuple[Side, Side]:
    """Install what is checked out here, and a commit."""
    here, there = folder / "here", folder / "there"
    install(python, ROOT, here)
    checkout = folder / "checkout"
    shutil.rmtree(checkout, ignore_errors=True)
    checkout.mkdir(parents=True)
    files = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit], check=True, stdout=subprocess.PIPE
    )
    subprocess.run(["tar", "-x", "-C", str(checkout)], check=True, input=files.stdout)
    install(python, checkout, there)
    return Side("here", here), Side(commit, there)


def run(side: Side, command: str, source: Path | None, folder: Path) -> Run:
    """Run one command by the script that was installed with a side."""
    target, log = folder / "output", folder / "log"
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    words = [each.format(input=source, output=target) for each in command.split()]
    with log.open("wb") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            [side.site / "bin" / "recordmill", *words],
            env=os.environ | {"PYTHONPATH": str(side.site)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(
            f"{side.name}: exit status {process.returncode}\n{log.read_text()[-2000:]}"
        )
    digest = hashlib.sha256()
    for shard in sorted(target.glob("*.tfrecord*")):
        with shard.open("rb") as file:  # a process starts with the peak of this one
            while part := file.read(1 << 20):
                digest.update(part)
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu_seconds, usage.ru_maxrss * 1024, digest.hexdigest())


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns the 90 % interval of the median of paired ratios, by bootstrap."""
    random = Random(0)
    medians = sorted(
        statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(4_000)
    )
    return medians[200], medians[3_799]


def compared(ratios: Sequence[float], limit: float, flag: str) -> tuple[str, str]:
    """Returns the ratio with its interval, and the flag if all of it is beyond a limit."""
    low, high = interval(ratios)
    text = f"{statistics.median(ratios):6.3f} ({low:.3f} to {high:.3f})"
    return text, f"  {flag}" if low > limit else ""


def main(argv: list[str]) -> None:
    """Compare, and print a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", nargs="?", default="main")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    options = parser.parse_args(argv)
    python = ROOT / ".venv" / "bin" / "python"
    folder = (options.folder / "quick").absolute()
    sides = two_sides(python, options.commit, folder)
    there = options.commit[:9]
    print(
        f"{'':14}{'here':>8}{there:>10}  {'time':>6} {'90 %':16}{'of CPU':>8}"
        f"{'here':>9}{there:>11}  {'memory':>6} {'90 %':16} bytes"
    )
    for part in options.parts:
        kind, rows, command = PARTS[part]
        source = make_input(python, kind, rows, options.folder) if kind else None
        pairs: list[tuple[Run, Run]] = []
        for number in range(-1, options.pairs):
            turns = sides if number % 2 else sides[::-1]
            runs = {side.name: run(side, command, source, folder) for side in turns}
            if number >= 0:  # the first pair compiles and fills caches
                pairs.append((runs["here"], runs[options.commit]))
        ours, theirs = zip(*pairs, strict=True)
        seconds = [
            statistics.median(each.seconds for each in side) for side in (ours, theirs)
        ]
        peaks = [
            statistics.median(each.peak_bytes for each in side) / 1e6
            for side in (ours, theirs)
        ]
        wall, slower = compared(
            [a.seconds / b.seconds for a, b in pairs], TIME_LIMIT, "SLOWER"
        )
        memory, more = compared(
            [a.peak_bytes / b.peak_bytes for a, b in pairs], MEMORY_LIMIT, "MORE MEMORY"
        )
        cpu = statistics.median(a.cpu_seconds / b.cpu_seconds for a, b in pairs)
        same = (
            "same" if len({each.digest for each in (*ours, *theirs)}) == 1 else "DIFFER"
        )
        print(
            f"{part:14}{seconds[0]:7.2f}s{seconds[1]:9.2f}s  {wall}{cpu:8.2f}"
            f"{peaks[0]:6.0f} MB{peaks[1]:8.0f} MB  {memory}  {same}{slower}{more}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
