"""Compare two commits: whole processes in pairs, under five minutes.

    python tests/bench/quick.py [COMMIT] [--pairs 5] [--kinds csv cifar images]

COMMIT (default: main) and what is checked out here, with its changes, are installed side
by side into bench-data/quick, each with its native extension; the packages are those of
.venv. Each pair runs one after the other on the same input. A ratio below 1 means that
what is checked out here is faster. The bytes of the shards are compared, too.
"""

import argparse
import dataclasses
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from measure import Measurement, run_measured

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROWS = {"csv": 300_000, "cifar": 150_000, "images": 3_000}


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two: its name, and the folder that it is installed in."""

    name: str
    site: Path


def install(python: Path, source: Path, site: Path) -> None:
    """Install a checkout alone, without the packages it needs."""
    shutil.rmtree(site, ignore_errors=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    own = ["--no-build-isolation", "--disable-pip-version-check", "--target", site]
    subprocess.run([*map(str, [*pip, *own]), str(source)], check=True)


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


def convert(
    python: Path, side: Side, kind: str, source: Path, log: Path
) -> tuple[Measurement, str]:
    """Run one conversion; returns what it took, and a digest of its shards."""
    target = log.parent / "output"
    shutil.rmtree(target, ignore_errors=True)
    os.sync()
    command = [python, "-m", "recordmill", "convert", kind, source, target]
    measured = run_measured(
        list(map(str, command)),
        env=os.environ | {"PYTHONPATH": str(side.site)},
        log=log,
    )
    if measured.exit_code != 0:
        sys.exit(
            f"{side.name}: exit status {measured.exit_code}\n{log.read_text()[-2000:]}"
        )
    digest = hashlib.sha256()
    for shard in sorted(target.glob("*.tfrecord*")):
        digest.update(shard.name.encode() + shard.read_bytes())
    return measured, digest.hexdigest()


def make_input(python: Path, kind: str, folder: Path) -> Path:
    """Make an input, or find it; it is read once, so that it is in the page cache."""
    command = [python, HERE / "inputs.py", kind, "--rows", ROWS[kind]]
    made = subprocess.run(
        [*map(str, command), "--folder", str(folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    source = Path(made.stdout.strip())
    for path in source.rglob("*"):
        if path.is_file():
            path.read_bytes()
    return source / "rows.csv" if kind == "csv" else source


def main(argv: list[str]) -> None:
    """Compare, and print a line for each kind of input."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="main")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--kinds", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    asked = parser.parse_args(argv)
    python = ROOT / ".venv" / "bin" / "python"
    folder = (asked.folder / "quick").absolute()
    sides = two_sides(python, asked.commit, folder)
    print(f"{'':8}{'here':>9}{asked.commit[:12]:>13}{'ratio':>8}{'of CPU':>8}  bytes")
    for kind in asked.kinds:
        source = make_input(python, kind, asked.folder).absolute()
        runs: list[list[Measurement]] = [[], []]
        digests = set()
        for pair in range(asked.pairs + 1):
            for number, side in enumerate(sides):
                measured, digest = convert(python, side, kind, source, folder / "log")
                digests.add(digest)
                if pair:  # the first pair compiles and fills caches
                    runs[number].append(measured)
        pairs = list(zip(*runs, strict=True))
        here, there = (statistics.median(one.seconds for one in side) for side in runs)
        wall = statistics.median(a.seconds / b.seconds for a, b in pairs)
        cpu = statistics.median(a.cpu_seconds / b.cpu_seconds for a, b in pairs)
        same = "same" if len(digests) == 1 else "DIFFER"
        print(f"{kind:8}{here:8.2f}s{there:12.2f}s{wall:8.2f}{cpu:8.2f}  {same}")


if __name__ == "__main__":
    main(sys.argv[1:])
