"""Reads scale.json: medians of runs, what else the machine did, goals met or missed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from statistics import median
from typing import Any

from page import BUSY_CORES
from scale_runs import Run

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
        if self.is_quiet(section):
            return (
                f"Measured on {self.cores} cores, of which other work took "
                f"{self.other_cores(section):.1f} on average."
            )
        return (
            f"Measured on {self.cores} cores, of which other work took "
            f"{self.other_cores(section):.1f} on average: seconds are those of a busy "
            "machine, and processor seconds say more."
        )


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
