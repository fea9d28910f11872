"""Print how much of each room the tests run: lines and branches.

    python tests/proof/coverage_by_room.py coverage.json

The file is that of `coverage json`.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath

ROOMS = ("schemas", "transforms", "beam_jobs")


def room_of(file: str) -> str:
    """Return the folder of a file below the project's root."""
    parts = PurePosixPath(file).parts
    first = max(number for number, part in enumerate(parts) if part in ROOMS)
    return "/".join(parts[first:-1])


def main(report: str) -> None:
    """Print a table, the room with the fewest branches run first."""
    files = json.loads(Path(report).read_text())["files"]
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for file, found in files.items():
        totals = found["summary"]
        for number, name in enumerate(
            ("covered_lines", "num_statements", "covered_branches", "num_branches")
        ):
            sums[room_of(file)][number] += totals[name]
            sums["all"][number] += totals[name]
    print("| room | lines | branches |\n|---|---|---|")
    for room, (lines, of_lines, branches, of_branches) in sorted(
        sums.items(), key=lambda item: item[1][2] / max(1, item[1][3])
    ):
        shown = [
            f"{part / whole:.1%} of {whole:,}" if whole else "-"
            for part, whole in ((lines, of_lines), (branches, of_branches))
        ]
        print(f"| `{room}` | {shown[0]} | {shown[1]} |")


if __name__ == "__main__":
    main(sys.argv[1])
