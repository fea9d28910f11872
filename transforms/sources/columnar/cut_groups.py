"""Finds the tables among the inputs, and where a table is cut: at groups of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from recordmill.schemas.ranges import InputFile
from recordmill.schemas.understood import PassedOver
from recordmill.transforms.sources.columnar.table_files import Group

Cut = tuple[int, int]
"""Where a range ends: the row of the file, and the group."""


def find_tables(
    files: Sequence[InputFile],
) -> tuple[list[InputFile], tuple[PassedOver, ...]]:
    """Returns the files that can be tables, and the others.

    What writes many files leaves others beside them: _SUCCESS, _metadata, .part.crc.
    """
    tables, others = [], []
    for file in files:
        if PurePosixPath(file.path).name.startswith(("_", ".")):
            others.append(("the name begins with '_' or '.'", file.path))
        elif not file.size:
            others.append(("empty", file.path))
        else:
            tables.append(file)
    return tables, PassedOver.counted(others)


def cut_groups(groups: Sequence[Group], range_bytes: int) -> tuple[Cut, ...]:
    """Returns where ranges end: after the group that makes a range large enough."""
    ends: list[Cut] = []
    row, num_bytes = 0, 0
    for index, group in enumerate(groups, 1):
        row, num_bytes = row + group.rows, num_bytes + max(0, group.size)
        if num_bytes >= range_bytes and row > (ends[-1][0] if ends else 0):
            ends.append((row, index))
            num_bytes = 0
    if row > (ends[-1][0] if ends else 0):
        ends.append((row, len(groups)))
    return tuple(ends)
