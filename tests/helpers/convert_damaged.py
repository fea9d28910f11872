"""Converts damaged files one after the other: a program of its own, as one may kill it.

    python convert_damaged.py FIRST STOP FOLDER [KIND]

Numbers go round the kinds, or are of one of them. Prints a line of JSON before each number,
and one with its outcome behind it.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
from pathlib import Path

from binary_damage import KINDS
from job_tools import recordmill

_ADDRESS_BYTES = 16 << 30  # what Arrow reserves is a part of it


def _main(first: int, stop: int, folder: Path, *names: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_BYTES, _ADDRESS_BYTES))
    kinds = [KINDS[name] for name in names or KINDS]
    output = folder / "out"
    for number in range(first, stop):
        turn, index = divmod(number, len(kinds))
        kind = kinds[index]
        source = folder / f"in-{index}"
        path = source / kind.path
        print(json.dumps({"number": number, "kind": kind.path}), flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kind.file(turn))
        shutil.rmtree(output, ignore_errors=True)
        options = kind.options[turn % len(kind.options)]
        given = source if kind.format in ("audio", "images") else path
        ran = recordmill(
            *("convert", kind.format, given, output, "--json"),
            *("--max-rejects", "100%", *options),
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        line = {"number": number, "status": ran.status, "peak": peak}
        print(json.dumps({**line, "out": ran.out, "err": ran.err}), flush=True)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])
