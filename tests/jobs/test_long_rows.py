"""The peak memory of a table with one long row, as a multiple of the row."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from example_counts import FACTOR
from job_tools import COMMAND

_ROW_BYTES = 200_000_000 if FACTOR > 1 else 40_000_000
# Copies of the row beside what the command takes for a small table: the text as it is
# read and as it is cut, or its cells and its record. The rest is that of blocks of 16 MiB.
_COPIES = 3
_BLOCKS_BYTES = 64 << 20
_WORDS = b"lorem ipsum dolor sit amet "


def _filled(num_bytes: int) -> bytes:
    return (_WORDS * (num_bytes // len(_WORDS) + 1))[:num_bytes]


def _in_quotes(num_bytes: int) -> bytes:
    line = b'lorem ipsum, dolor "" sit amet\nconsectetur; '
    cell = line * (num_bytes // len(line))
    return b'id,text\n1,a\n2,"' + cell + b'"\n3,c\n'


def _behind_numbers(num_bytes: int) -> bytes:
    return b"id,text\n1,5\n2," + _filled(num_bytes) + b"\n3,7\n"


def _many_cells(num_bytes: int) -> bytes:
    names = b",".join(b"c%d" % column for column in range(2_000))
    row = b",".join([_filled(num_bytes // 2_000)] * 2_000)
    numbers = b",".join([b"12"] * 2_000)
    return b"\n".join([names, numbers, row, numbers, b""])


def _peak_bytes(table: Path, output: Path) -> int:
    with subprocess.Popen(
        [COMMAND, "convert", "csv", table, output, "--workers", "1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


@pytest.mark.slow
@pytest.mark.parametrize(
    "table_of", [_behind_numbers, *((_in_quotes, _many_cells) if FACTOR > 1 else ())]
)
def test_a_long_row_takes_a_bounded_multiple_of_its_size(
    tmp_path: Path, table_of: Callable[[int], bytes]
) -> None:
    small, long = tmp_path / "small.csv", tmp_path / "long.csv"
    small.write_bytes(table_of(40_000))
    long.write_bytes(table_of(_ROW_BYTES))
    base = _peak_bytes(small, tmp_path / "small")
    peak = _peak_bytes(long, tmp_path / "long")
    assert peak - base <= _COPIES * _ROW_BYTES + _BLOCKS_BYTES
