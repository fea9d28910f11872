"""The table of a benchmark run."""

import dataclasses
import statistics
from collections.abc import Sequence

from measure import Measurement

MEGABYTE = 1_000_000


@dataclasses.dataclass(frozen=True)
class Line:
    """One command: medians over its runs, and its goal if it has one."""

    name: str
    rows: int | None
    runs: int
    seconds: float
    cpu_seconds: float
    all_seconds: tuple[float, ...]
    peak_bytes: int
    peak_private_bytes: int
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None

    @classmethod
    def of_runs(
        cls, name: str, rows: int | None, runs: Sequence[Measurement]
    ) -> "Line":
        """Summarise runs: median seconds, largest memory (bytes)."""
        seconds = tuple(run.seconds for run in runs)
        return cls(
            name=name,
            rows=rows,
            runs=len(runs),
            seconds=statistics.median(seconds),
            cpu_seconds=statistics.median(run.cpu_seconds for run in runs),
            all_seconds=seconds,
            peak_bytes=max(run.peak_rss_bytes for run in runs),
            peak_private_bytes=max(run.peak_private_bytes for run in runs),
        )

    def beside(self, own_seconds: float, *, at_least: float | None) -> "Line":
        """Add how many times recordmill's seconds this peer took, and the goal."""
        ratio = self.seconds / own_seconds
        if at_least is None:
            return dataclasses.replace(self, ratio=ratio)
        goal = f">= {at_least:g}x"
        return dataclasses.replace(self, ratio=ratio, goal=goal, met=ratio >= at_least)

    def over(self, base_seconds: float, *, below: float) -> "Line":
        """Add how many times a base command's seconds this one took, and the goal."""
        ratio = self.seconds / base_seconds
        goal = f"< {below:g}x"
        return dataclasses.replace(self, ratio=ratio, goal=goal, met=ratio < below)

    def within_peak(self, max_bytes: int) -> "Line":
        """Add a goal for the peak memory."""
        goal = f"<= {max_bytes / MEGABYTE:g} MB"
        return dataclasses.replace(self, goal=goal, met=self.peak_bytes <= max_bytes)

    def within_seconds(self, max_seconds: float) -> "Line":
        """Add a goal for the median seconds."""
        goal = f"< {max_seconds:g} s"
        return dataclasses.replace(self, goal=goal, met=self.seconds < max_seconds)

    def cells(self) -> list[str]:
        """Give the printed cells, see HEADER."""
        rate = f"{self.rows / self.seconds:,.0f}" if self.rows else "-"
        return [
            self.name,
            f"{self.rows:,}" if self.rows else "-",
            str(self.runs),
            f"{self.seconds:.2f}",
            f"{self.cpu_seconds:.2f}",
            rate,
            f"{self.peak_bytes / MEGABYTE:,.0f}",
            f"{self.peak_private_bytes / MEGABYTE:,.0f}",
            f"{self.ratio:.2f}x" if self.ratio is not None else "-",
            self.goal or "-",
            {None: "-", True: "met", False: "NOT MET"}[self.met],
        ]


HEADER = [
    "name",
    "rows",
    "runs",
    "median s",
    "cpu s",
    "rows/s",
    "peak MB",
    "private MB",
    "ratio",
    "goal",
    "result",
]


def print_lines(lines: Sequence[Line]) -> None:
    """Print the table on stdout, names to the left, figures to the right."""
    table = [HEADER, *(line.cells() for line in lines)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADER))]
    for row in table:
        cells = [row[0].ljust(widths[0])]
        cells += [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(cells))
