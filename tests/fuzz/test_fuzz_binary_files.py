"""Damaged binary files given to the command: an error that is documented, or a dataset."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import convert_damaged
import pytest
from binary_damage import KINDS
from example_counts import FUZZ

pytestmark = pytest.mark.fuzz

_GUARD_SECONDS = 600  # of the end of a process
_MOST_BYTES = 1_500_000_000  # of memory, for files of some kB
_FAULT = re.compile(r"Traceback|is a bug in recordmill|unexpected \w+Error")


def test_a_damaged_file_is_a_dataset_or_a_documented_error(tmp_path: Path) -> None:
    """A process of its own converts them, as the library of a format may end it."""
    number, stop = 0, len(KINDS) * max(4, FUZZ // 20)
    statuses = Counter[int]()
    faults = list[str]()
    while number < stop:
        with subprocess.Popen(
            [
                sys.executable,
                convert_damaged.__file__,
                str(number),
                str(stop),
                tmp_path,
            ],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            outcome = {"number": number}
            for text in process.stdout:
                outcome = json.loads(text)
                if "status" in outcome:
                    statuses[outcome["status"]] += 1
                    faults += _faults(outcome)
            status = process.wait(_GUARD_SECONDS)
        number = outcome["number"]
        if status:
            faults.append(f"number {number}: the process ended with {status}")
        number += 1
    assert faults == []
    assert statuses[0] + statuses[65] == stop
    assert statuses[0]
    assert statuses[65]


def _faults(outcome: dict[str, Any]) -> list[str]:
    faults = []
    text = outcome["out"] + outcome["err"]
    if outcome["status"] not in (0, 65):
        faults.append(f"status {outcome['status']}: {text}")
    if _FAULT.search(text):
        faults.append(text)
    if outcome["peak"] > _MOST_BYTES:
        faults.append(f"{outcome['peak']:,} bytes of memory")
    if outcome["status"] == 0:
        counts = json.loads(outcome["out"])
        if counts["rows_read"] != counts["records"] + counts["rows_rejected"]:
            faults.append(f"rows are lost: {counts}")
    return [f"number {outcome['number']}: {fault}" for fault in faults]
