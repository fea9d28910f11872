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
      max_count: the largest ratio, or None.
      measure: what is compared; "rate" is seconds by row of the input.
      lever: where the time goes and what would help, printed if the goal is missed.
    """

    part: str
    what: str
    over: tuple[str, str]
    at_least: float | None = None
    at_most: float | None = None
    measure: Literal["seconds", "cpu_seconds", "rate", "peak_bytes"] = "seconds"
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


# Shares of processor time.
CSV_LEVER = (
    "Of the processor time writing records takes almost a quarter, splitting rows into cells "
    "an eighth, numbers a tenth, ordering the values a sixteenth, start-up a twelfth. The next "
    "levers are to keep the prefixes of features between the runs that a window is read from "
    "(a window has some 130 rows of each), and numbers in the pass that splits."
)
RESIZE_LEVER = (
    "Of the processor time of an image of 400 x 400 Pillow's filter takes more than half, "
    "decoding three tenths. Imports of two workers take a twentieth of a run of 10 s. The rest "
    "is encoding, and the Python of Pillow and of recordmill. The next lever is a filter with "
    "wide instructions that gives the same pixels."
)
IMAGES_LEVER = (
    "The shards are written at 1.2 GB/s, about what the disk takes; start-up, listing and "
    "publishing take two of the five seconds, in one thread. Of the processor time opening and "
    "reading files takes a fifth, start-up a tenth, heads of images a twelfth. The next "
    "lever is to list and to publish in fewer passes over the files."
)
CIFAR_LEVER = (
    "Reading rows from where they lie in the input takes a quarter of the processor time. "
    "Nearly all of it is in the kernel: 2 us for each row, as each has a page of its own. The "
    "first reading of the input takes a tenth, layout, encoding and copies a fifth. The next "
    "lever is one copy less: pixels laid out in the record itself."
)
INFER_LEVER = (
    "Splitting cells takes almost half of the processor time, trying types a fifth. The next "
    "lever is one compiled pass from cells to values."
)
GZIP_LEVER = (
    "Three fifths of the processor time are deflate itself. The next lever is a faster "
    "library than zlib-ng."
)
ENCODER_LEVER = (
    "It is one compiled pass over each batch; without the native extension, which the page "
    "names below, it is Arrow's element-wise join."
)
TWO_TABLE_WORKERS_LEVER = (
    "One worker has threads of its own that read ahead and write behind, so it gains from the "
    "second core, too. Start-up, the first look and publishing have one thread, 1.5 s of the "
    "whole. Two workers write shards at 0.6 GB/s, which is what the disk takes of one file. "
    "The next lever is to begin with shards while the last ranges are read."
)
TWO_IMAGE_WORKERS_LEVER = (
    "One worker keeps the disk as busy as two, and the work before and after the shards "
    "has one thread. A faster disk would show whether two workers wait for the interpreter."
)
CIFAR_MEMORY_LEVER = (
    "The small input does not fill the buffers of all threads: from 1 to 10 GB memory grows "
    "by less than a tenth. What grows are the index of each range and the plan."
)
FLINK_LEVER = (
    "A table is read twice, and the values of its rows pass through the Java process and back. "
    "The next step would be to keep what the first reading cast, as Arrow files beside the run."
)

LEVERS = {
    "csv": CSV_LEVER,
    "csv-3m": CSV_LEVER,
    "cifar": CIFAR_LEVER,
    "images": IMAGES_LEVER,
    "infer": INFER_LEVER,
    "gzip": GZIP_LEVER,
    "encoder": ENCODER_LEVER,
}


def faster(part: str, peer: str, what: str, at_least: float) -> Goal:
    """Defines a goal against a peer: how many times recordmill's seconds it takes."""
    return Goal(
        part, what, (peer, "recordmill"), at_least=at_least, lever=LEVERS.get(part, "")
    )


def close(part: str, peer: str, what: str, at_most: float) -> Goal:
    """Defines a goal against a floor: how many times its seconds recordmill takes."""
    return Goal(
        part, what, ("recordmill", peer), at_most=at_most, lever=LEVERS.get(part, "")
    )


GOALS = (
    faster("csv", "loop", "CSV, 1M rows: the tutorials' loop", 22),
    faster("csv-3m", "loop", "CSV, 3M rows: the tutorials' loop", 28),
    faster("csv", "tfx", "CSV, 1M rows: pyarrow, tfx_bsl, TFRecordWriter", 3),
    faster("csv-3m", "tfx", "CSV, 3M rows: pyarrow, tfx_bsl, TFRecordWriter", 3),
    close("csv", "read and copy", "CSV, 1M rows, by read_csv + cp and sync", 2),
    close("csv-3m", "read and copy", "CSV, 3M rows, by read_csv + cp and sync", 2),
    faster("cifar", "loop", "CIFAR, 2M records: the loop", 5),
    faster("cifar", "tfds", "CIFAR, 2M records: a TFDS builder", 20),
    faster("images", "loop-header", "50,000 JPEGs: the loop with Pillow's header", 3),
    faster("images", "tfds", "50,000 JPEGs: a TFDS builder", 4),
    close(
        "images",
        "copy",
        "50,000 JPEGs, by read + CRC + append + sync in one loop",
        1.25,
    ),
    *(
        Goal(
            *(part, f"{what} to 224 x 224, processor time: a loop that only does this"),
            ("loop", "recordmill"),
            at_least=0.95,
            measure="cpu_seconds",
            lever=RESIZE_LEVER,
        )
        for part, what in (
            ("resize", "20,000 JPEGs scaled"),
            ("resize-large", "8,000 JPEGs of 1024 x 768 scaled"),
        )
    ),
    close("infer", "pyarrow reads", "`schema infer`, by pyarrow's read_csv", 1),
    faster("encoder", "tfx", "Encoder alone: tfx_bsl", 6),
    faster("gzip", "writer", "Output under gzip: TFRecordWriter", 2),
    Goal(
        "growth",
        "Memory, CIFAR of 10 GB by 0.3 GB",
        ("10 GB", "0.3 GB"),
        at_most=1.15,
        measure="peak_bytes",
        lever=CIFAR_MEMORY_LEVER,
    ),
    Goal(
        "growth-csv",
        "Memory, CSV of 3.6 GB by 0.36 GB, `--memory 0`",
        ("3.6 GB", "0.36 GB"),
        at_most=1.15,
        measure="peak_bytes",
        lever="A small input does not fill all buffers of both workers.",
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
        lever=TWO_TABLE_WORKERS_LEVER,
    ),
    Goal(
        "images",
        "50,000 JPEGs: one worker by two",
        ("recordmill, 1 worker", "recordmill"),
        at_least=1.8,
        lever=TWO_IMAGE_WORKERS_LEVER,
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
