"""Measure what more cores give: pairs of one core and all, and the serial seconds of runs.

    python tests/bench/cores.py pairs [--pairs 5] [--parts csv cifar] [--scale 1]
    python tests/bench/cores.py serial [--parts csv] [--scale 0.1] [--gigabytes 100]

`pairs` runs a job with one worker that is bound to one core, then with all workers on all
cores, in turns first; then it copies the shards that were written, by one process and by as
many as there are cores. It shows medians of times, and of the ratios of pairs. Before all
it does so with processes that only compute: cores of a virtual machine may share one of the host.

`serial` runs a job at two sizes, a quarter and all, whose tasks are executed by processes, and
shows processor seconds: what the launcher needs while no task is at work (start and list
before the first, plan between them, publish behind the last), what it needs beside tasks, and
what the tasks need. On a line through both sizes it finds those of a larger input, and the
efficiency W / (N * (S + max(W / N, L))) of N cores: S is serial, L is beside tasks, W is of
tasks. Disks and memory of such a machine are not in it.

Inputs are made in bench-data. Both need the command in .venv, and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from inputs import make
from measure import Measurement, run_measured
from places import HERE

ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv/bin/python"
CORES = sorted(os.sched_getaffinity(0))
# Kind and rows of the input, about 20 s of work for one core, and the format's options.
PARTS = {
    "csv": ("csv", 3_000_000, ["csv"]),
    "cifar": ("cifar", 2_000_000, ["cifar"]),
    "images": ("images", 50_000, ["images"]),
    "resize": ("images", 8_000, ["images", "--resize", "224x224"]),
    "jsonl": ("jsonl", 1_000_000, ["jsonl"]),
}
MANY = ["--direct_running_mode=multi_processing"]
COPY = """
import os, sys
for name in sys.argv[2:]:
    with open(name, "rb") as source, open(f"{sys.argv[1]}/{os.path.basename(name)}", "wb") as target:
        while block := source.read(1 << 23):
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
"""
COMPUTED = 60_000_000  # steps, 4 s; nothing but the processor itself is shared
COMPUTE = """
import sys
value = 0
for step in range(int(sys.argv[1])):
    value = (value * 1103515245 + step) & 0xFFFFFFFF
"""
# Notes when tasks are at work: the command's own arguments follow the name of a file.
NOTED = """
import atexit, json, os, sys, threading, time
notes, lock, file = [], threading.Lock(), sys.argv[1]
def note(what):
    notes.append((what, time.time(), time.process_time()))
note("start")
from recordmill.beam_jobs.service import run
from recordmill.transforms.tasks.context import RunContext
execute, resolve = RunContext.execute, run.resolve
def executed(self, task, *arguments):
    with lock:
        note("begin")
    try:
        return execute(self, task, *arguments)
    finally:
        with lock:
            note("end")
def resolved(*arguments, **options):
    note("list")
    return resolve(*arguments, **options)
RunContext.execute, run.resolve = executed, resolved
from recordmill.beam_jobs.cli.main import run as command
status = command(sys.argv[2:])
note("done")
open(file, "w").write(json.dumps(notes))
os._exit(status)
"""


def job(part: str, given: Path, output: Path, *more: str) -> list[str]:
    """Returns the arguments of a part's command."""
    source, *options = PARTS[part][2]
    return ["convert", source, str(given), str(output), *options, *more]


def in_processes(code: str, parts: Sequence[Sequence[object]]) -> list[str]:
    """Returns a command that runs a program in a process for each list of arguments."""
    arguments = [list(map(str, part)) for part in parts]
    program = (
        "import subprocess, sys;"
        f"each = [subprocess.Popen([sys.executable, '-c', {code!r}, *p])"
        f" for p in {arguments!r}];"
        "sys.exit(any(one.wait() for one in each))"
    )
    return [str(PYTHON), "-c", program]


def measured(command: list[str], output: Path, cores: int) -> Measurement:
    """Runs a command on the first cores, into a folder that is empty before."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    os.sync()
    bound = ["taskset", "-c", ",".join(map(str, CORES[:cores]))]
    found = run_measured([*bound, *command], log=output.with_name("cores.log"))
    if found.exit_code:
        raise SystemExit(output.with_name("cores.log").read_text()[-2000:])
    return found


def show(name: str, one: list[Measurement], all_: list[Measurement]) -> None:
    """Prints the medians of both sides, and of the ratios of pairs."""
    pairs = zip(one, all_, strict=True)
    ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
    words = [f"{name:14}"]
    for cores, side in ((1, one), (len(CORES), all_)):
        seconds, cpu, busy = (
            statistics.median(getattr(each, field) for each in side)
            for field in ("seconds", "cpu_seconds", "other_cores")
        )
        peak = max(each.peak_rss_bytes for each in side) / 1e6
        words.append(f"{cores} core{'s' * (cores > 1)} {seconds:6.1f} s")
        words.append(f"({cpu:.1f} of processor, {peak:.0f} MB, others {busy:.1f})")
    print(*words, f"{ratio:.2f}x", flush=True)


def compare(asked: argparse.Namespace) -> None:
    """Measures one core against all, for each part."""
    output, copies = asked.folder / "cores-out", asked.folder / "cores-copy"
    alone: dict[int, list[Measurement]] = {1: [], len(CORES): []}
    for pair in range(asked.pairs):
        for cores in sorted(alone, reverse=bool(pair % 2)):
            command = in_processes(COMPUTE, [[COMPUTED // cores]] * cores)
            alone[cores].append(measured(command, output, cores))
    show("computing alone", *alone.values())
    for part in asked.parts:
        kind, rows, _ = PARTS[part]
        given = make(kind, max(100, int(rows * asked.scale)), asked.folder, Path())
        sides: dict[int, list[Measurement]] = {1: [], len(CORES): []}
        copied: dict[int, list[Measurement]] = {1: [], len(CORES): []}
        for pair in range(asked.pairs):
            for cores in sorted(sides, reverse=bool(pair % 2)):
                words = job(part, given, output / "out", "--workers", str(cores))
                command = [str(PYTHON), "-m", "recordmill", *words]
                sides[cores].append(measured(command, output, cores))
        shards = sorted(output.glob("out/*-of-*"))
        for pair in range(asked.pairs):
            for cores in sorted(copied, reverse=bool(pair % 2)):
                parts = [[copies, *shards[each::cores]] for each in range(cores)]
                command = in_processes(COPY, parts)
                copied[cores].append(measured(command, copies, cores))
        show(part, *sides.values())
        show(f"{part}, copied", *copied.values())
        shutil.rmtree(output)
        shutil.rmtree(copies)


def launcher_parts(notes: list[tuple[str, float, float]]) -> dict[str, float]:
    """Returns the processor seconds of the launcher, by what it does."""
    names = [what for what, _, _ in notes]
    first, last = names.index("begin"), len(names) - 1 - names[::-1].index("end")
    found = dict.fromkeys(("start", "list", "plan", "publish", "beside tasks"), 0.0)
    at_work = 0
    for number, (this, after) in enumerate(pairwise(notes)):
        at_work += {"begin": 1, "end": -1}.get(this[0], 0)
        name = "publish" if number >= last else "plan"
        if number < first:
            name = this[0]
        found["beside tasks" if at_work else name] += after[2] - this[2]
    return found


def tell_serial(asked: argparse.Namespace) -> None:
    """Prints the serial seconds of each part at two sizes, and what follows from them."""
    output, notes = asked.folder / "cores-out", asked.folder / "cores-notes.json"
    print("| input | GB | start | list | plan | publish | beside tasks | tasks |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    told = []
    for part in asked.parts:
        kind, rows, _ = PARTS[part]
        points = []
        for scale in (asked.scale / 4, asked.scale):
            given = make(kind, max(100, int(rows * scale)), asked.folder, Path())
            files = [given, *given.rglob("*")]
            size = sum(path.stat().st_size for path in files if path.is_file()) / 1e9
            words = job(part, given, output / "out", "--", *MANY)
            command = [str(PYTHON), "-c", NOTED, str(notes), *words]
            cpu = measured(command, output, len(CORES)).cpu_seconds
            noted = json.loads(notes.read_text())
            parts = launcher_parts(noted)
            tasks = cpu - noted[-1][2]
            cells = " | ".join(f"{each:.2f}" for each in (*parts.values(), tasks))
            print(f"| {part} | {size:.2f} | {cells} |", flush=True)
            start, *serial, beside = parts.values()
            points.append((size, sum(serial), beside, tasks))
            shutil.rmtree(output)
        serial_s, beside, work = (
            reach(*[(one[0], one[index]) for one in points], asked.gigabytes)
            for index in (1, 2, 3)
        )
        serial_s += start  # which does not grow
        reached = [
            work / (cores * (serial_s + max(work / cores, beside)))
            for cores in (8, 16, 64)
        ]
        cells = " | ".join(f"{each:.2f}" for each in reached)
        told.append(
            f"| {part} | {serial_s:.1f} | {beside:.1f} | {work:.0f} | {cells} |"
        )
    print(
        f"\n| {asked.gigabytes:g} GB of | serial s | beside tasks | tasks | 8 | 16 | 64 |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(*told, sep="\n")


def reach(small: tuple[float, float], large: tuple[float, float], size: float) -> float:
    """Returns what is expected at a size, from two (size, seconds) on a line."""
    slope = max(0.0, (large[1] - small[1]) / (large[0] - small[0]))
    return large[1] + slope * (size - large[0])


def main() -> int:
    """Measures what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["pairs", "serial"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--gigabytes", type=float, default=100.0)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench-data")
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    compare(asked) if asked.what == "pairs" else tell_serial(asked)
    return 0


if __name__ == "__main__":
    subprocess.run(["taskset", "--version"], check=True, stdout=subprocess.DEVNULL)
    sys.exit(main())
