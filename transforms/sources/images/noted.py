"""Gathers what is found out about each picture, until all of it is noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject


@dataclass
class Gathered:
    """What is known of each picture so far.

    Attributes:
      pictures: all of them.
      root: what every uri begins with, before the path.
      splits: of each picture, "" for none.
      problems: why each is a reject, or "".
      unlisted: why nothing says anything of it, or "".
      labels: names, or lists of names; None without labels.
      features: a column for each.
      rejects: rows of tables and lines of lists that name no picture, with their file.
      facts, warnings: what is told.
      checksums: of the tables and lists.
    """

    pictures: Sequence[InputFile]
    root: str
    splits: npt.NDArray[np.object_] = field(init=False)
    problems: npt.NDArray[np.object_] = field(init=False)
    unlisted: npt.NDArray[np.object_] = field(init=False)
    labels: pa.Array | None = None
    features: dict[str, pa.Array] = field(default_factory=dict)
    rejects: list[tuple[InputFile, Reject]] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checksums: list[FileChecksum] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = len(self.pictures)
        self.splits, self.problems, self.unlisted = (
            np.full(size, "", np.object_) for _ in range(3)
        )

    def reject(self, where: npt.NDArray[Any], reason: str) -> None:
        """Makes rejects of pictures that are none yet."""
        self.problems[where & (self.problems == "")] = reason

    def leave_unlisted(self, where: npt.NDArray[Any], reason: str) -> None:
        """Notes why nothing names these pictures."""
        self.unlisted[where & (self.unlisted == "")] = reason
