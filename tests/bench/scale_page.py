"""Make the tables of docs/scale.md from scale.json and the code's constants.

    python tests/bench/scale_page.py             prints them
    python tests/bench/scale_page.py --write     puts them into the page

In the page each lies between two lines, and a test compares it with what is made here:

    <!-- scale rates -->
    <!-- end of scale -->
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from page import BUSY_CORES
from scale_limits import human, limits_table, table
from scale_runs import Run

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "scale.md"
DOLLARS_PER_CORE_HOUR = 0.07  # a vCPU with 4 GB; rough, and it changes
MOST_GROWTH = 1.15  # of peak memory, from the smallest input to the largest
MOST_SLOWDOWN = 1.10  # of seconds for a GB, at ten times the input
LEAST_GAIN = 1.8  # of two workers
MOST_FILE_BYTES = 400  # of memory for each input file
MOST_ENGINE = 1.5  # times the seconds of scratch
ROLES = ("TaskManager", "worker", "job server")  # of a cluster's processes
_BLOCK = re.compile(r"(<!-- scale (\w+) -->\n).*?(<!-- end of scale -->)", re.DOTALL)
NAMES = {
    "csv": "CSV",
    "cifar": "CIFAR",
    "images": "images",
    "parquet": "Parquet",
    "tfrecord": "TFRecord",
}


class Kept:
    """What scale.json holds."""

    def __init__(self, text: str) -> None:
        self._kept: dict[str, Any] = json.loads(text)
        self.cores: int = self._kept["machine"]["cores"]

    def runs(self, section: str) -> list[Run]:
        return [Run(**each) for each in self._kept.get(section, [])]

    def other_cores(self, section: str) -> float:
        """Returns the cores that other work had on average."""
        runs = self.runs(section)
        seconds = sum(run.seconds for run in runs)
        return sum(run.seconds * run.other_cores for run in runs) / seconds

    def is_quiet(self, section: str) -> bool:
        return self.other_cores(section) <= BUSY_CORES

    def others(self, section: str) -> str:
        """Says what else the machine did."""
        told = (
            f"Measured on {self.cores} cores, of which other work took "
            f"{self.other_cores(section):.1f} on average"
        )
        if self.is_quiet(section):
            return f"{told}."
        return f"{told}: seconds are those of a busy machine, and processor seconds say more."


def grouped(runs: Iterable[Run]) -> dict[tuple[str, str, int], Run]:
    """Returns the median of the runs of the same name, setting and size."""
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, run.setting, run.input_bytes), []).append(run)
    return {
        (name, setting, size): Run(
            name,
            setting,
            size,
            found[0].output_bytes,
            median(run.seconds for run in found),
            median(run.cpu_seconds for run in found),
            max(run.peak_bytes for run in found),
            median(run.other_cores for run in found),
        )
        for (name, setting, size), found in groups.items()
    }


def verdict(found: float, goal: float, *, is_most: bool, judged: bool = True) -> str:
    """Says a ratio, its goal and whether that is met.

    >>> verdict(1.04, 1.15, is_most=True)
    '1.04 (goal: at most 1.15, met)'
    """
    bound = "at most" if is_most else "at least"
    if not judged:
        return f"{found:.2f} (goal: {bound} {goal:g}; not judged on a busy machine)"
    met = found <= goal if is_most else found >= goal
    return f"{found:.2f} (goal: {bound} {goal:g}, {'met' if met else 'missed'})"


def series_of(runs: Iterable[Run]) -> list[tuple[str, list[Run]]]:
    """Returns the runs of each name and setting, by size."""
    series: dict[str, list[Run]] = {}
    for run in grouped(runs).values():
        name = NAMES[run.name] + (f", {run.setting}" if run.setting else "")
        series.setdefault(name, []).append(run)
    return [
        (name, sorted(found, key=lambda run: run.input_bytes))
        for name, found in series.items()
    ]


def rates_block(kept: Kept) -> list[str]:
    """Takes start-up off, by the difference of two sizes."""
    head = [
        "format, exchange",
        "seconds per GB",
        "processor seconds per GB",
        "core hours per TB",
        "$ per TB",
        "shards by input",
    ]
    rows, starts = [], []
    for name, found in series_of(kept.runs("rates")):
        small, large = found[0], found[-1]
        more = (large.input_bytes - small.input_bytes) / 1e9
        seconds = (large.seconds - small.seconds) / more
        cpu = (large.cpu_seconds - small.cpu_seconds) / more
        starts.append(small.cpu_seconds - cpu * small.input_bytes / 1e9)
        hours = cpu / 3.6
        rows.append(
            [
                name,
                f"{seconds:.1f}",
                f"{cpu:.1f}",
                f"{hours:.1f}",
                f"{hours * DOLLARS_PER_CORE_HOUR:.2f}",
                f"{large.output_bytes / large.input_bytes:.2f}x",
            ]
        )
    return [
        *table(head, rows),
        "",
        f"{kept.others('rates')} Core hours are processor seconds; an hour of a core is "
        f"taken to cost ${DOLLARS_PER_CORE_HOUR:.2f}. Start-up, which is taken off, is "
        f"{min(starts):.1f} to {max(starts):.1f} processor seconds.",
    ]


def sizes_block(kept: Kept) -> list[str]:
    head = [
        "input",
        "GB",
        "seconds",
        "seconds per GB",
        "processor seconds per GB",
        "peak memory",
    ]
    rows, verdicts = [], []
    judged = kept.is_quiet("sizes")
    for name, found in series_of(kept.runs("sizes")):
        for run in found:
            gigabytes = run.input_bytes / 1e9
            rows.append(
                [
                    name,
                    f"{gigabytes:.1f}",
                    f"{run.seconds:.1f}",
                    f"{run.seconds / gigabytes:.1f}",
                    f"{run.cpu_seconds / gigabytes:.1f}",
                    human(run.peak_bytes, "B"),
                ]
            )
        last = found[-1]
        tenth = min(found, key=lambda run: abs(run.input_bytes - last.input_bytes / 10))
        grown = last.peak_bytes / found[0].peak_bytes
        slower = last.seconds / tenth.seconds * tenth.input_bytes / last.input_bytes
        times = last.input_bytes / tenth.input_bytes
        slower_told = verdict(slower, MOST_SLOWDOWN, is_most=True, judged=judged)
        verdicts.append(
            f"- {name}: peak memory at {last.input_bytes / 1e9:.1f} GB by that at "
            f"{found[0].input_bytes / 1e9:.1f} GB {verdict(grown, MOST_GROWTH, is_most=True)}. Seconds per GB at "
            f"{times:.0f} times the input {slower_told}."
        )
    return [*table(head, rows), "", *verdicts, "", kept.others("sizes")]


def workers_block(kept: Kept) -> list[str]:
    head = ["input", "GB", "1 worker", "2 workers", "2 workers are as fast as 1, times"]
    found = grouped(kept.runs("workers"))
    judged = kept.is_quiet("workers")
    rows = []
    for (name, setting, size), one in found.items():
        if setting == "1":
            two = found[name, "2", size]
            rows.append(
                [
                    NAMES[name],
                    f"{size / 1e9:.1f}",
                    *(
                        f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} of processor"
                        for run in (one, two)
                    ),
                    verdict(
                        one.seconds / two.seconds,
                        LEAST_GAIN,
                        is_most=False,
                        judged=judged,
                    ),
                ]
            )
    return [*table(head, rows), "", kept.others("workers")]


def photos_block(kept: Kept) -> list[str]:
    head = ["images", "GB", "seconds", "images a second", "MB a second", "peak memory"]
    runs = kept.runs("photos")
    numbers = [int(run.setting.split()[0]) for run in runs]
    rows = [
        [
            f"{number:,}",
            f"{run.input_bytes / 1e9:.1f}",
            f"{run.seconds:.1f}",
            f"{number / run.seconds:,.0f}",
            f"{run.input_bytes / run.seconds / 1e6:,.0f}",
            human(run.peak_bytes, "B"),
        ]
        for number, run in zip(numbers, runs, strict=True)
    ]
    grown = runs[-1].peak_bytes - runs[0].peak_bytes
    more = numbers[-1] - numbers[0]
    return [
        *table(head, rows),
        "",
        f"Memory for each image more: {grown / more:.0f} bytes. {kept.others('photos')}",
    ]


def large_block(kept: Kept) -> list[str]:
    (run,) = kept.runs("large")
    gigabytes = run.input_bytes / 1e9
    head = ["input", "shards", "seconds", "processor seconds per GB", "peak memory"]
    row = [
        human(run.input_bytes, "B"),
        human(run.output_bytes, "B"),
        f"{run.seconds:.0f}",
        f"{run.cpu_seconds / gigabytes:.1f}",
        human(run.peak_bytes, "B"),
    ]
    return [*table(head, [row]), "", kept.others("large")]


def flink_block(kept: Kept) -> list[str]:
    head = ["input", "GB", "TaskManagers", "exchange", "seconds", "processor seconds"]
    found = grouped(kept.runs("flink"))
    judged = kept.is_quiet("flink")
    rows, verdicts = [], []
    for (name, setting, size), run in found.items():
        exchange, managers = setting.split()
        rows.append(
            [
                NAMES[name],
                f"{size / 1e9:.1f}",
                managers,
                exchange,
                f"{run.seconds:.1f}",
                f"{run.cpu_seconds:.1f}",
            ]
        )
        if exchange == "engine" and (name, f"scratch {managers}", size) in found:
            other = found[name, f"scratch {managers}", size]
            ratio = run.seconds / other.seconds
            told = verdict(ratio, MOST_ENGINE, is_most=True, judged=judged)
            verdicts.append(
                f"- {NAMES[name]}: seconds with engine by those with scratch {told}, "
                f"processor seconds {run.cpu_seconds / other.cpu_seconds:.2f}."
            )
    return [*table(head, rows), "", *verdicts, "", kept.others("flink")]


def exchange_block(kept: Kept) -> list[str]:
    """Takes start-up off, by the difference to the smallest size of the same input."""
    head = ["input", "GB", "exchange", "processor seconds", "per GB more", *ROLES]
    head += ["shuffled by input", "Flink's files by input"]
    rows, verdicts, judged = [], [], kept.is_quiet("exchange")
    for name, found in groupby(kept.runs("exchange"), lambda run: run.name):
        least, *runs = found

        def rate(run: Run, least: Run = least) -> float:
            more = (run.input_bytes - least.input_bytes) / 1e9
            return (run.cpu_seconds - least.cpu_seconds) / more

        engine = [run for run in (least, *runs) if "engine" in run.setting]
        rows += [
            [
                NAMES[name],
                f"{run.input_bytes / 1e9:.1f}",
                run.setting.split()[0],
                f"{run.cpu_seconds:.0f}",
                f"{rate(run):.1f}" if run in engine[1:] else "",
                *(human(run.peaks[role], "B") for role in ROLES),
                f"{run.shipped_bytes / run.input_bytes:.2f}x",
                f"{run.disk_bytes / run.input_bytes:.2f}x",
            ]
            for run in (least, *runs)
        ]
        told = NAMES[name]
        small, large = engine[min(1, len(engine) - 2)], engine[-1]
        for role in ROLES:
            grown = large.peaks[role] / small.peaks[role]
            verdicts.append(
                f"- {told}, {role}: peak memory at {large.input_bytes / 1e9:.1f} GB by "
                f"that at {small.input_bytes / 1e9:.1f} GB "
                f"{verdict(grown, MOST_GROWTH, is_most=True)}."
            )
        if small is not least:
            slower = rate(large) / rate(small)
            verdicts.append(
                f"- {told}: processor seconds for each GB more, at "
                f"{large.input_bytes / 1e9:.1f} GB by those at "
                f"{small.input_bytes / 1e9:.1f} GB "
                f"{verdict(slower, MOST_SLOWDOWN, is_most=True, judged=judged)}."
            )
        for run in runs:
            if "scratch" in run.setting:
                same = next(r for r in engine if r.input_bytes == run.input_bytes)
                ratio = same.cpu_seconds / run.cpu_seconds
                verdicts.append(
                    f"- {told}: processor seconds with engine by those with scratch "
                    f"{verdict(ratio, MOST_ENGINE, is_most=True, judged=judged)}."
                )
    return [*table(head, rows), "", *verdicts, "", kept.others("exchange")]


def ranges_block(kept: Kept) -> list[str]:
    told = " and ".join(
        f"{human(run.peak_bytes, 'B')} with {run.setting}"
        for run in kept.runs("ranges")
    )
    return [f"A worker with a range of a CSV at work, histogram included, has {told}."]


def file_bytes(runs: Iterable[Run], step: str) -> float:
    """Returns the memory that each file more takes in a plan or a run."""
    peaks = {
        int(run.setting.split()[1]): run.peak_bytes
        for run in runs
        if run.setting.startswith(step)
    }
    return (peaks[max(peaks)] - peaks[min(peaks)]) / (max(peaks) - min(peaks))


def files_block(kept: Kept) -> list[str]:
    runs = kept.runs("files")
    rows = []
    for run in runs:
        step, number = run.setting.split()
        seconds = f"{run.seconds:.1f} s, {run.cpu_seconds:.1f} of processor"
        rows.append([step, f"{int(number):,}", seconds, human(run.peak_bytes, "B")])
    told = [
        f"- {step}: bytes of memory for each file more "
        f"{verdict(file_bytes(runs, step), MOST_FILE_BYTES, is_most=True)}."
        for step in ("plan", "run")
    ]
    head = ["step", "images", "time", "peak memory"]
    return [*table(head, rows), "", *told, "", kept.others("files")]


def limits_block(_: Kept) -> list[str]:
    return limits_table()


BLOCKS: dict[str, Callable[[Kept], list[str]]] = {
    "rates": rates_block,
    "sizes": sizes_block,
    "ranges": ranges_block,
    "files": files_block,
    "workers": workers_block,
    "photos": photos_block,
    "large": large_block,
    "flink": flink_block,
    "exchange": exchange_block,
    "limits": limits_block,
}


def made_block(name: str, kept: Kept) -> list[str]:
    """Returns the lines of a block."""
    if name != "limits" and not kept.runs(name):
        return ["Not measured yet."]
    return BLOCKS[name](kept)


def with_blocks(page: str, kept: Kept) -> str:
    """Returns a page with its blocks made anew."""

    def made(found: re.Match[str]) -> str:
        lines = "\n".join(made_block(found[2], kept))
        return f"{found[1]}{lines}\n{found[3]}"

    return _BLOCK.sub(made, page)


def main(argv: Sequence[str]) -> None:
    """Prints all blocks, or writes the page."""
    kept = Kept((HERE / "scale.json").read_text())
    if "--write" in argv:
        PAGE.write_text(with_blocks(PAGE.read_text(), kept))
        return
    for name in BLOCKS:
        print(f"{name}:\n\n" + "\n".join(made_block(name, kept)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
