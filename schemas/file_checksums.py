"""Defines the checksums of what a run reads of its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class FileChecksum(NamedTuple):
    """The CRC-32C of a part of an input file, computed where it was read.

    Attributes:
      path: of the file, relative to the input root.
      start: first byte.
      stop: one after the last byte.
      crc32c: of these bytes.
    """

    path: str
    start: int
    stop: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class TaskChecksums:
    """The checksums of what one task read.

    Attributes:
      few: them, where they are few enough to pass through the runner.
      in_file: how many there are in a file of the workspace instead.
    """

    few: tuple[FileChecksum, ...] = ()
    in_file: int = 0
