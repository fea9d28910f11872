"""Makes the cases of the oracle: inputs, the same in every run, and commands on them.

A case is its files and its commands. A command is a string as in a shell, with out as the
output, or a dict: {"python": PROGRAM}, {"do": [cp | rm | write | damage, PATH, ...]}.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from cases_arrays import array_cases
from cases_commands import command_cases
from cases_csv import csv_cases
from cases_images import image_cases
from cases_tables import table_cases

S = "../../samples"
G = "../../golden"
# Commands after which most modules are imported.
WARM_UP = [
    "convert csv ../../samples/iris/iris.csv out",
    "convert images ../../samples/images out --resize 8x8",
    "convert parquet ../../samples/typed/iris.parquet out --exchange engine",
    *(f"convert {name} --help" for name in ("csv", "images", "binary", "tfrecord")),
]


def all_cases() -> Iterator[dict[str, Any]]:
    """Yields all cases, numbered in their groups."""
    for group, cases in (
        ("csv", csv_cases()),
        ("images", image_cases()),
        ("arrays", array_cases()),
        ("tables", table_cases()),
        ("commands", command_cases()),
    ):
        counts: dict[str, int] = {}
        for kind, name, files, commands in cases:
            place = kind or group
            counts[place] = number = counts.get(place, -1) + 1
            listed = [
                {"args": shlex.split(each)} if isinstance(each, str) else each
                for each in commands
            ]
            encoded = {
                path: data.encode() if isinstance(data, str) else data
                for path, data in files.items()
            }
            yield {
                "name": f"{place}/{number:03}-{name}",
                "files": encoded,
                "commands": listed,
            }
