"""What recordmill promises beside its peers, and whether results keep it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

# What a part of the JSON holds, see results.py.
PartResult = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Goal:
    """One ratio of two commands of a part, and the limit that it must keep.

    Attributes:
      part: see parts.py.
      what: as the page calls it.
      over: the command above the line, and the one below it.
      at_least: the least ratio, or None.
      at_most: the largest ratio, or None.
      measure: what is compared; "rate" is seconds by row of the input.
      lever: where the time goes and what would help, printed if the goal is missed.
    """

    part: str
    what: str
    over: tuple[str, str]
    at_least: float | None = None
    at_most: float | None = None
    measure: Literal["seconds", "rate", "peak_bytes"] = "seconds"
    lever: str = ""

    @property
    def limit(self) -> str:
        """The limit as text."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}x"
        return f"at most {self.at_most:g}x"

    def ratio(self, result: PartResult) -> float | None:
        """Divides what was measured; None if a command was left out."""
        found = {command["name"]: command for command in result["commands"]}
        if not set(self.over) <= set(found):
            return None
        above, below = (self._value(found[name]) for name in self.over)
        return above / below

    def _value(self, command: Mapping[str, Any]) -> float:
        if self.measure == "rate":
            return float(command["seconds"]) / float(command["rows"])
        return float(command[self.measure])

    def met(self, ratio: float) -> bool:
        """Tells whether a ratio keeps the limit."""
        if self.at_least is not None:
            return ratio >= self.at_least
        return self.at_most is None or ratio <= self.at_most


def faster(part: str, peer: str, what: str, at_least: float, lever: str = "") -> Goal:
    """Defines a goal against a peer: how many times recordmill's seconds it takes."""
    return Goal(part, what, (peer, "recordmill"), at_least=at_least, lever=lever)


def close(part: str, peer: str, what: str, at_most: float, lever: str = "") -> Goal:
    """Defines a goal against a floor: how many times its seconds recordmill takes."""
    return Goal(part, what, ("recordmill", peer), at_most=at_most, lever=lever)


# Shares of processor time, by where.py here.
CSV_LEVER = (
    "Of the processor time cells take a fifth to be split, encoding takes a seventh, casts a "
    "twelfth, start-up a tenth, reading and writing a tenth. The next lever is one compiled "
    "pass from cells to values, without arrays of texts between."
)
IMAGES_LEVER = (
    "Of the processor time opening and reading files takes a quarter, waiting for the disk "
    "a twelfth, start-up a tenth, lists and checks of the inputs a tenth. The next levers "
    "are reading into the block that is written, and lists without an object for each file."
)
CIFAR_LEVER = (
    "Of the processor time gathering scattered rows takes a fifth, reading ranges a tenth, "
    "start-up a seventh, waiting for the disk a twentieth. The next lever is to gather in "
    "the order of the file for more shards at once."
)
INFER_LEVER = (
    "Splitting cells takes almost half of the processor time, trying types a fifth. The next "
    "lever is one compiled pass from cells to values."
)
GZIP_LEVER = (
    "Three fifths of the processor time are deflate itself. The next lever is a faster "
    "library than zlib-ng."
)
TWO_WORKERS_LEVER = (
    "Start-up, listing, plan and publishing have one thread, and both workers share one "
    "disk. Of pictures the steps between the reads are Python, one thread at a time. The "
    "next levers are to plan while the last ranges are read, and workers that are processes."
)
FLINK_LEVER = "The input is read twice, and every record passes through the Java process and back."

GOALS = (
    faster("csv", "loop", "CSV, 1M rows: the tutorials' loop", 22, CSV_LEVER),
    faster("csv-3m", "loop", "CSV, 3M rows: the tutorials' loop", 28, CSV_LEVER),
    faster(
        "csv", "tfx", "CSV, 1M rows: pyarrow, tfx_bsl, TFRecordWriter", 3, CSV_LEVER
    ),
    faster(
        "csv-3m", "tfx", "CSV, 3M rows: pyarrow, tfx_bsl, TFRecordWriter", 3, CSV_LEVER
    ),
    close(
        "csv", "read and copy", "CSV, 1M rows, by read_csv + cp and sync", 2, CSV_LEVER
    ),
    close(
        "csv-3m",
        "read and copy",
        "CSV, 3M rows, by read_csv + cp and sync",
        2,
        CSV_LEVER,
    ),
    faster("cifar", "loop", "CIFAR, 2M records: the loop", 5, CIFAR_LEVER),
    faster("cifar", "tfds", "CIFAR, 2M records: a TFDS builder", 20, CIFAR_LEVER),
    faster(
        "images",
        "loop-header",
        "50,000 JPEGs: the loop with Pillow's header",
        3,
        IMAGES_LEVER,
    ),
    faster("images", "tfds", "50,000 JPEGs: a TFDS builder", 4, IMAGES_LEVER),
    close(
        "images",
        "copy",
        "50,000 JPEGs, by read + CRC + append + sync in one loop",
        1.25,
        IMAGES_LEVER,
    ),
    close(
        "infer",
        "pyarrow reads",
        "`schema infer`, by pyarrow's read_csv",
        1,
        INFER_LEVER,
    ),
    faster(
        "encoder",
        "tfx",
        "Encoder alone: tfx_bsl",
        6,
        "It is one compiled pass over each batch; without the compiled loops, which the page "
        "names below, it is Arrow's element-wise join.",
    ),
    faster(
        "gzip",
        "writer",
        "Output under gzip: TFRecordWriter",
        2,
        GZIP_LEVER,
    ),
    Goal(
        "growth",
        "Memory, CIFAR of 10 GB by 0.3 GB",
        ("10 GB", "0.3 GB"),
        at_most=1.15,
        measure="peak_bytes",
        lever="The plan and the lists of ranges and shards grow with the input.",
    ),
    Goal(
        "growth-csv",
        "Memory, CSV of 3.6 GB by 0.36 GB, `--memory 0`",
        ("3.6 GB", "0.36 GB"),
        at_most=1.15,
        measure="peak_bytes",
        lever="A small input does not fill all windows of both workers.",
    ),
    Goal(
        "growth",
        "Seconds per GB, CIFAR of 10 GB by 1 GB",
        ("10 GB", "1 GB"),
        at_most=1.1,
        measure="rate",
        lever="Beyond the free memory the disk sets the pace.",
    ),
    Goal(
        "growth-csv",
        "Seconds per GB, CSV of 3.6 GB by 0.36 GB",
        ("3.6 GB", "0.36 GB"),
        at_most=1.1,
        measure="rate",
        lever="Scratch goes to the disk, which takes more time by the GB once its cache "
        "is full.",
    ),
    Goal(
        "csv-3m",
        "CSV, 3M rows: one worker by two",
        ("recordmill, 1 worker", "recordmill"),
        at_least=1.8,
        lever=TWO_WORKERS_LEVER,
    ),
    Goal(
        "images",
        "50,000 JPEGs: one worker by two",
        ("recordmill, 1 worker", "recordmill"),
        at_least=1.8,
        lever=TWO_WORKERS_LEVER,
    ),
    Goal(
        "flink-csv",
        "CSV on Flink: exchange by the engine, by scratch",
        ("engine", "scratch"),
        at_most=1.5,
        lever=FLINK_LEVER,
    ),
    Goal(
        "flink-cifar",
        "CIFAR on Flink: exchange by the engine, by scratch",
        ("engine", "scratch"),
        at_most=1.5,
        lever=FLINK_LEVER,
    ),
    close("startup", "import apache_beam", "Ten rows, by `import apache_beam`", 1.4),
)
