"""Kill -9 at random moments, run again: what stands there, and what it costs.

    python tests/bench/kills.py kills [--kills 50] [--seed 1]
    python tests/bench/kills.py cost [--source csv] [--rows 2500000] [--repeat 5]

kills: the command runs as a process group, which is killed at moments spread over the
time of an undisturbed run, a random one in each part. If there is a manifest then, it
must be over whole and right shards; run again to its end, the dataset must have the bytes
of an undisturbed run. On local disk, over another dataset, and into S3 (moto). Exit
status 1 if anything is otherwise.

cost: killed where an undisturbed run is at 90 % of its time, the seconds to run it
again, in shares of the undisturbed seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from inputs import make_input
from store_servers import SERVERS, Place

from recordmill.schemas.manifest import MANIFEST_NAME
from recordmill.transforms.dataset.verify import verify_dataset

COMMAND = Path(sys.executable).with_name("recordmill")
LIMIT_SECONDS = 600
GOAL_SHARE = 0.25
SMALL_ROWS = {"csv": 100_000, "cifar": 12_000}  # two ranges or more each
# Said anew for every run: what it says is not of the dataset's bytes.
NOT_COMPARED = "run.json"


@dataclass(frozen=True)
class Case:
    """What is killed.

    Attributes:
      name: for the table.
      source: csv or cifar.
      store: local or s3.
      options: of convert.
      over: whether another dataset is there, which is to be replaced.
    """

    name: str
    source: str
    store: str = "local"
    options: tuple[str, ...] = ()
    over: bool = False


@dataclass(frozen=True)
class Killed:
    """One kill: when, what stood there, and the seconds of the run after it."""

    tasks: int
    delay: float
    ranges: int
    shards: int
    manifest: str
    again: float
    wrong: str


CASES = (
    Case("csv", "csv", options=("--shards", "9")),
    Case("cifar", "cifar", options=("--shards", "5", "--exchange", "scratch")),
    Case("csv over another", "csv", options=("--shards", "4"), over=True),
    Case("csv into S3", "csv", "s3", options=("--shards", "5")),
)
SHARES = (0.4, 0.2, 0.2, 0.2)  # of all kills


class Bench:
    """Runs one case, each time in a place of its own."""

    def __init__(self, case: Case, source: Path, folder: Path, address: str) -> None:
        self.case = case
        self.source = source
        self.folder = folder
        self.address = address
        self.cache = folder / "cache"
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}
        self.environment |= SERVERS[case.store].environment(address)
        os.environ.update(SERVERS[case.store].environment(address))

    def new_place(self, name: str) -> Place:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        place = SERVERS[self.case.store].make_place(self.address, folder)
        if self.case.over:
            self.finish(self.start(place, "--seed", "7"))
        return place

    def start(self, place: Place, *more: str) -> subprocess.Popen[str]:
        reach = [
            part
            for name, value in place.options.to_dict().items()
            for part in ("--storage-option", f"output:{name}={value}")
        ]
        options = [*self.case.options, *more, "--name", "rows", *reach]
        if self.case.over:
            options.append("--overwrite")
        return subprocess.Popen(
            [COMMAND, "convert", self.case.source, self.source, place.root, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> None:
        _, error = process.communicate(timeout=LIMIT_SECONDS)
        if process.returncode:
            raise RuntimeError(f"{self.case.name}: {error}")

    def run(self, place: Place) -> float:
        """The seconds of a run to its end."""
        start = time.monotonic()
        self.finish(self.start(place))
        return time.monotonic() - start

    def done(self, place: Place) -> int:
        """How many tasks are finished."""
        return self.facts(place, "range") + self.facts(place, "shard")

    def kill_at(self, place: Place, tasks: int, delay: float) -> None:
        """Kills a run's process group so many seconds after it finished those tasks."""
        process = self.start(place)
        while process.poll() is None and self.done(place) < tasks:
            time.sleep(0.005)
        time.sleep(delay)
        with contextlib.suppress(ProcessLookupError):  # it had ended
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=LIMIT_SECONDS)

    def facts(self, place: Place, kind: str) -> int:
        """How many ranges or shards a killed run had finished."""
        root = self.cache if self.case.store != "local" else Path(place.root)
        return sum(1 for _ in root.rglob(f"facts/{kind}-*.json"))


def contents(place: Place) -> dict[str, bytes]:
    """All files of a dataset that must be the same for the same run."""
    store = place.store
    names = [name for name in store.list() if name != NOT_COMPARED]
    return {name: store.read(name) for name in names}


def dataset_there(place: Place, known: dict[str, dict[str, bytes]]) -> tuple[str, str]:
    """Which dataset the manifest names, of the known ones; and what is wrong."""
    if place.store.size(MANIFEST_NAME) is None:
        return "none", ""
    found = contents(place)
    result = verify_dataset(place.root, storage=place.options)
    extra = [problem for problem in result.problems if "left over" in problem.message]
    wrong = [problem for problem in result.problems if problem not in extra]
    if wrong:
        return "?", f"{wrong[0].file}: {wrong[0].message}"
    for name, files in known.items():
        if found[MANIFEST_NAME] == files[MANIFEST_NAME]:
            differ = [file for file, data in files.items() if found.get(file) != data]
            shards = [file for file in differ if ".tfrecord" in file]
            return name, f"{shards[0]} differs" if shards else ""
    return "?", "the manifest is of no dataset that was made here"


def kill_and_run_again(
    bench: Bench, tasks: int, delay: float, known: dict[str, dict[str, bytes]]
) -> Killed:
    place = bench.new_place("killed")
    shutil.rmtree(bench.cache, ignore_errors=True)
    bench.kill_at(place, tasks, delay)
    ranges, shards = bench.facts(place, "range"), bench.facts(place, "shard")
    manifest, wrong = dataset_there(place, known)
    again = bench.run(place)
    files = contents(place)
    if not wrong and files != known["new"]:
        names = set(files | known["new"])
        differ = [n for n in sorted(names) if files.get(n) != known["new"].get(n)]
        wrong = f"after the second run {differ[0]} differs"
    return Killed(tasks, delay, ranges, shards, manifest, again, wrong)


def kill_case(bench: Bench, kills: int, seed: int) -> list[Killed]:
    """Kills one case so many times and prints a line for each."""
    place = bench.new_place("undisturbed")
    known = {"old": contents(place)} if bench.case.over else {}
    whole, times = watched(bench, place, None)
    seconds = whole.seconds
    known["new"] = contents(place)
    size = sum(map(len, known["new"].values())) / 1e6
    print(f"\n{bench.case.name}: undisturbed {seconds:.2f} s, {size:.0f} MB")
    print(f"{'killed at':>18} {'ranges':>7} {'shards':>7} {'dataset':>8} {'again':>8}")
    draw = random.Random(f"{seed} {bench.case.name}")
    found = []
    for number in range(kills):
        # A random moment of the undisturbed run, in each part of it: told by the tasks
        # finished by then and the time since, as the machine's speed changes.
        moment = (number + draw.random()) / kills * seconds
        tasks = sum(each <= moment for each in times) - 1
        killed = kill_and_run_again(bench, tasks, moment - times[tasks], known)
        found.append(killed)
        print(
            f"{moment:7.2f} s ({moment / seconds:4.0%}) {killed.ranges:7} "
            f"{killed.shards:7} {killed.manifest:>8} {killed.again:6.2f} s "
            f"{killed.wrong or 'same bytes'}",
            flush=True,
        )
    return found


def parts_of(total: int, shares: tuple[float, ...]) -> list[int]:
    """Whole numbers in these shares that add up to the total."""
    edges = [round(total * sum(shares[:n])) for n in range(len(shares) + 1)]
    return [b - a for a, b in itertools.pairwise(edges)]


@contextlib.contextmanager
def benches(cases: tuple[Case, ...], data: Path) -> Iterator[Callable[[Case], Bench]]:
    """A bench for each case, in a folder that goes in the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills")))
        addresses = {}
        for kind in sorted({case.store for case in cases}):
            (folder / kind).mkdir()
            run = SERVERS[kind].run(folder / kind)
            addresses[kind] = stack.enter_context(run)

        def bench(case: Case) -> Bench:
            source = make_input(case.source, SMALL_ROWS[case.source], data)
            own = folder / case.name.replace(" ", "-")
            return Bench(case, source, own, addresses[case.store])

        yield bench


def run_kills(kills: int, seed: int, data: Path) -> bool:
    """Whether all went well."""
    everything: list[Killed] = []
    with benches(CASES, data) as bench:
        for case, count in zip(CASES, parts_of(kills, SHARES), strict=True):
            everything += kill_case(bench(case), count, seed)
    wrong = [killed for killed in everything if killed.wrong]
    midway = [killed for killed in everything if killed.ranges or killed.shards]
    print(
        f"\n{len(everything)} kills, {len(midway)} of them with finished work to take "
        f"up, {len(wrong)} wrong"
    )
    return not wrong


@dataclass(frozen=True)
class Cost:
    """What a run took: wall seconds, and seconds of all processors."""

    seconds: float
    cpu: float


def cpu_seconds() -> float:
    """Of all processes that ended so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def watched(bench: Bench, place: Place, until: int | None) -> tuple[Cost, list[float]]:
    """Runs to the end, or kills when so many tasks are finished.

    Returns:
      What it took, and the seconds after which each number of tasks was finished.
    """
    cpu, start = cpu_seconds(), time.monotonic()
    process = bench.start(place)
    times = [0.0]
    while process.poll() is None:
        done = bench.done(place)
        times += [time.monotonic() - start] * (done + 1 - len(times))
        if until is not None and done >= until:
            os.killpg(process.pid, signal.SIGKILL)
            break
        time.sleep(0.02)
    _, error = process.communicate(timeout=LIMIT_SECONDS)
    if process.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{bench.case.name}: {error}")
    return Cost(time.monotonic() - start, cpu_seconds() - cpu), times


def run_cost(source: str, rows: int, repeat: int, data: Path, options: str) -> bool:
    """Whether running again after a kill at 90 % costs less than the goal.

    The moment is told by the tasks that an undisturbed run had finished at 90 % of its
    time: how fast the machine is just then changes nothing.
    """
    path = make_input(source, rows, data)
    undisturbed: list[Cost] = []
    again: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="kills", dir=data) as folder:
        case = Case(source, source, options=tuple(options.split()))
        bench = Bench(case, path, Path(folder), "")
        for _ in range(repeat):
            whole, times = watched(bench, bench.new_place("undisturbed"), None)
            undisturbed.append(whole)
            tasks = sum(seconds <= 0.9 * whole.seconds for seconds in times) - 1
            place = bench.new_place("killed")
            watched(bench, place, tasks)
            done = bench.facts(place, "shard")
            rest, _ = watched(bench, place, None)
            again.append(rest)
            print(
                f"{source}: undisturbed {whole.seconds:.2f} s ({whole.cpu:.2f} s CPU); "
                f"killed after {tasks} of {len(times) - 1} tasks, {done} shards; again "
                f"{rest.seconds:.2f} s ({rest.cpu:.2f} s CPU)",
                flush=True,
            )
    wall = statistics.median(
        b.seconds / a.seconds for a, b in zip(undisturbed, again, strict=True)
    )
    cpu = statistics.median(
        b.cpu / a.cpu for a, b in zip(undisturbed, again, strict=True)
    )
    print(
        f"{source}, {rows:,} rows: again / undisturbed, medians of {repeat}: "
        f"{wall:.0%} of the seconds (goal: below {GOAL_SHARE:.0%}), {cpu:.0%} of the CPU"
    )
    return wall < GOAL_SHARE


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["kills", "cost"])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", choices=SMALL_ROWS, default="csv")
    parser.add_argument("--rows", type=int, default=2_500_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--options", default="", help="more options of convert")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    given = parser.parse_args(argv)
    if given.what == "kills":
        good = run_kills(given.kills, given.seed, given.folder)
    else:
        good = run_cost(
            given.source, given.rows, given.repeat, given.folder, given.options
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
