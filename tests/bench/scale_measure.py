"""Measure what docs/scale.md tells, section by section, into scale.json.

    python tests/bench/scale_measure.py SECTION... [--folder bench-data]

| section | what |
|---|---|
| rates | one worker, by format, at two sizes: what a GB more takes |
| sizes | time and peak memory from 0.3 to 10 GB of CSV and CIFAR, as far as they fit |
| workers | one worker against two, in turns |
| photos | images of 75 kB kept as they are, as many as the disk holds: images a second |
| large | CIFAR of 100 GB in sparse files, which take no disk |
| ranges | peak memory of a worker with a range of a CSV |
| files | tiny images, two numbers of them, planned and converted: memory for each file |
| flink | 1, 2 and 4 TaskManagers; engine against scratch |
| exchange | 2 TaskManagers, growing inputs: memory of each process, bytes shipped, disk |

A section that was measured before is replaced. Then `python tests/bench/scale_page.py
--write` makes the page's tables anew. Exit status 1: a run failed, or did not fit on the
disk; its section is left as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from measure import process_tree, resident_bytes
from places import machine
from scale_runs import (
    DISK_BYTES,
    FORMATS,
    UNIT_BYTES,
    Run,
    RunError,
    link_images,
    link_units,
    make_sparse,
    make_unit,
    require_disk,
    run_convert,
)

KEPT = Path(__file__).with_name("scale.json")
# What a terabyte takes: nothing is held in memory, and no page cache has the input.
ON_DISK = ("--exchange", "scratch", "--memory", "0")
AS_FILES = ("--exchange", "reference")
VARIANTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("csv", "", ()),
    ("csv", "memory 0", ("--memory", "0")),
    ("cifar", "", ()),
)
TASK_MANAGERS = (1, 2, 4)
COMPARED = 2  # TaskManagers where both exchanges are measured


def linked(name: str, gigabytes: float, folder: Path) -> tuple[Path, int]:
    """Returns an input of about that size, and its bytes."""
    target = folder / f"linked-{name}"
    count = max(1, round(gigabytes * 1e9 / UNIT_BYTES))
    return target, link_units(make_unit(name, folder), count, target)


def measure_rates(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs each format at two sizes with one worker."""
    for name in FORMATS:
        exchange = AS_FILES if name == "images" else ON_DISK
        for _ in range(asked.repeat):
            for gigabytes in asked.rate_gb:
                require_disk(DISK_BYTES[name] * gigabytes * 1e9, asked.folder)
                source, size = linked(name, gigabytes, asked.folder)
                words = [name, source, *exchange, "--workers", 1]
                yield run_convert(name, exchange[1], size, words, asked.folder / "out")


def measure_sizes(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs CSV and CIFAR at growing sizes, with the command's defaults and two workers."""
    for name, setting, options in VARIANTS:
        for gigabytes in asked.size_gb:
            try:
                require_disk(DISK_BYTES[name] * gigabytes * 1e9, asked.folder)
            except RunError as error:
                print(f"{name}, {gigabytes:g} GB: left out: {error}", file=sys.stderr)
                continue
            source, size = linked(name, gigabytes, asked.folder)
            words = [name, source, *options, "--workers", 2]
            yield run_convert(name, setting, size, words, asked.folder / "out")


def measure_workers(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs CSV and images with one worker and with two, in turns."""
    for name, gigabytes in zip(("csv", "images"), asked.worker_gb, strict=True):
        require_disk(DISK_BYTES[name] * gigabytes * 1e9, asked.folder)
        source, size = linked(name, gigabytes, asked.folder)
        for _ in range(asked.repeat):
            for workers in (1, 2):
                words = [name, source, "--workers", workers]
                yield run_convert(name, str(workers), size, words, asked.folder / "out")


def measure_photos(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs images at two sizes, with the command's defaults."""
    for gigabytes in asked.photos_gb:
        require_disk(DISK_BYTES["images"] * gigabytes * 1e9, asked.folder)
        source, size = linked("images", gigabytes, asked.folder)
        count = sum(1 for path in source.rglob("*") if path.is_file())
        words = ["images", source]
        yield run_convert("images", f"{count} files", size, words, asked.folder / "out")


def measure_large(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs sparse CIFAR files, whose shards gzip makes small, without scratch."""
    source = asked.folder / "sparse"
    size = make_sparse(round(asked.large_gb * 1e9), source)
    require_disk(0.03 * size, asked.folder)
    words = ["cifar", source, *AS_FILES, "--compression", "gzip", "--gzip-level", 1]
    yield run_convert("cifar", "sparse", size, words, asked.folder / "out")


def measure_ranges(asked: argparse.Namespace) -> Iterator[Run]:
    """Takes two ranges of a CSV through an exchange, in one process (worker_memory.py)."""
    table = make_unit("csv", asked.folder) / "rows.csv"
    for exchange in ("scratch", "engine"):
        script = Path(__file__).with_name("worker_memory.py")
        command = [sys.executable, script, exchange, 16, table]
        told = subprocess.run(
            [*map(str, command)], check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        peak = int(told.split()[-2]) << 20  # "imported 168 MiB, peak 359 MiB"
        yield Run("csv", exchange, 2 * (16 << 20), 0, 0, 0, peak, 0)


def measure_files(asked: argparse.Namespace) -> Iterator[Run]:
    """Plans and converts folders of tiny images, as memory may grow with their number."""
    for number in asked.files:
        source = asked.folder / f"linked-{number}"
        size = link_images(number, source)
        for step, options in (("plan", ["--plan"]), ("run", [])):
            words = ["images", source, *options]
            yield run_convert(
                *("images", f"{step} {number}", size, words, asked.folder / "out"),
                writes=step == "run",
            )


def run_on_flink(
    asked: argparse.Namespace, engines: Any, name: str, exchange: str, gigabytes: float
) -> Run:
    """Runs one job on a cluster, with all its TaskManagers."""
    managers = engines.cluster.size
    # All TaskManagers number their workers alike, and share a pool here, which would end
    # the one's worker when another lets go of its own.
    beam = [*engines.flink(), f"--parallelism={managers}"]
    beam.append("--environment_cache_millis=600000")
    source, size = linked(name, gigabytes, asked.folder)
    words = [name, source, "--exchange", exchange, "--", *beam]
    setting, output = f"{exchange} {managers}", asked.folder / "out"
    return run_convert(name, setting, size, words, output, on_cluster=True)


@contextmanager
def started_engines(
    asked: argparse.Namespace, managers: int, *, warm: bool = False
) -> Iterator[Any]:
    """Starts the cluster of the integration tests; runs a job first to make it `warm`.

    `make test-integration` gets its parts. As many tasks run at once as there are
    TaskManagers, each with a Python worker; all share the cores.
    """
    tests = Path(__file__).parents[1]
    sys.path[:0] = [str(tests / "helpers"), str(tests / "integration")]
    from clusters import Engines

    with (
        tempfile.TemporaryDirectory(prefix="flink-", dir=asked.folder) as logs,
        Engines(Path(logs), task_managers=managers) as engines,
    ):
        if warm:  # Java has loaded its classes
            run_on_flink(asked, engines, "csv", "engine", UNIT_BYTES / 1e9)
        yield engines


def measure_flink(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs CSV by engine on clusters of 1, 2 and 4, and both formats and exchanges on one."""
    require_disk(2 * DISK_BYTES["csv"] * asked.flink_gb * 1e9, asked.folder)
    for managers in TASK_MANAGERS:
        both = managers == COMPARED
        names = ("csv", "cifar") if both else ("csv",)
        exchanges = ("engine", "scratch") if both else ("engine",)
        with started_engines(asked, managers, warm=True) as engines:
            for name in names:
                for _ in range(asked.repeat):
                    for exchange in exchanges:
                        yield run_on_flink(
                            asked, engines, name, exchange, asked.flink_gb
                        )


@contextmanager
def watched(engines: Any) -> Iterator[Counter[str]]:
    """Fills in what was the most of a cluster.

    That is the resident memory of the largest process of each role, and "disk": the bytes
    of the files of all TaskManagers.
    """
    peaks = Counter[str]()
    roots = {"job server": engines.job_server.pid, "worker": engines.pool.pid}

    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(0.5):
            managers = [("TaskManager", each.pid) for each in engines.cluster.living()]
            for role, root in (*roots.items(), *managers):
                tree = process_tree(root)
                for pid in tree[1:] if role == "worker" else tree:
                    peaks[role] = max(peaks[role], resident_bytes(pid)[0])
            peaks["disk"] = max(peaks["disk"], folder_bytes(engines.folder / "tmp"))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        stopped.set()
        thread.join()


def folder_bytes(folder: Path) -> int:
    """Returns the bytes of the files in a folder, some of which go meanwhile."""
    found = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += Path(root, name).stat().st_size
    return found


def measure_exchange(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs growing inputs by engine, and one by scratch, each on a cluster of its own."""
    for name in asked.exchange_formats:
        sizes = asked.exchange_gb
        runs = [("engine", size) for size in sizes]
        runs += [("scratch", size) for size in sizes[1:2]]
        for exchange, gigabytes in runs:
            require_disk(DISK_BYTES[name] * gigabytes * 1e9, asked.folder)
            with started_engines(asked, COMPARED) as engines, watched(engines) as peaks:
                run = run_on_flink(asked, engines, name, exchange, gigabytes)
                shipped = engines.cluster.shipped_bytes()
            disk = peaks.pop("disk")
            run = replace(run, peaks={**peaks}, shipped_bytes=shipped, disk_bytes=disk)
            print(run, file=sys.stderr, flush=True)
            yield run


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Run]]] = {
    "rates": measure_rates,
    "sizes": measure_sizes,
    "workers": measure_workers,
    "photos": measure_photos,
    "large": measure_large,
    "ranges": measure_ranges,
    "files": measure_files,
    "flink": measure_flink,
    "exchange": measure_exchange,
}


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--json", type=Path, default=KEPT)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rate-gb", type=float, nargs=2, default=[0.2, 1.0])
    parser.add_argument("--size-gb", type=float, nargs="+", default=[0.3, 1, 3, 5, 10])
    parser.add_argument("--worker-gb", type=float, nargs=2, default=[1.0, 4.0])
    parser.add_argument("--photos-gb", type=float, nargs="+", default=[5.0, 30.0])
    parser.add_argument("--large-gb", type=float, default=100.0)
    parser.add_argument("--files", type=int, nargs=2, default=[400_000, 1_200_000])
    parser.add_argument("--flink-gb", type=float, default=1.0)
    parser.add_argument("--exchange-gb", type=float, nargs="+", default=[0.5, 1, 5])
    parser.add_argument("--exchange-formats", nargs="+", default=["csv", "cifar"])
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Measures the sections asked for, and keeps each as soon as it is done."""
    asked = parse_arguments(argv)
    asked.folder.mkdir(parents=True, exist_ok=True)
    asked.folder = asked.folder.absolute()
    status = 0
    for section in asked.sections:
        try:
            runs = [asdict(run) for run in SECTIONS[section](asked)]
        except (RunError, OSError, subprocess.CalledProcessError) as error:
            print(f"{section}: {error}", file=sys.stderr)
            status = 1
            continue
        kept = json.loads(asked.json.read_text()) if asked.json.exists() else {}
        kept |= {"machine": machine(), section: runs}
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    for linked_input in (*asked.folder.glob("linked-*"), asked.folder / "sparse"):
        shutil.rmtree(linked_input, ignore_errors=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
