"""The results as JSON: parts are measured one by one, and collected in one file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measure import Measurement

# Figures of two machines do not stand in one file.
SAME = ("cpu", "cores", "memory_bytes")


class OtherMachineError(Exception):
    """The file holds results of another machine."""


def command_result(
    name: str,
    rows: int,
    runs: Sequence[Measurement],
    *,
    output_bytes: int,
    inside: Sequence[float] = (),
) -> dict[str, Any]:
    """Summarizes the runs of one command: medians, and the largest memory.

    Args:
      name: of the command.
      rows: of its input.
      runs: all that count.
      output_bytes: the size of what it left, 0 if nothing.
      inside: its own seconds, if those count in place of the process's.
    """
    seconds = inside or [run.seconds for run in runs]
    cpu_seconds = [run.cpu_seconds for run in runs]
    return {
        "name": name,
        "rows": rows,
        "runs": len(runs),
        "seconds": round(statistics.median(seconds), 4),
        "all_seconds": [round(each, 4) for each in seconds],
        "cpu_seconds": None if inside else round(statistics.median(cpu_seconds), 3),
        "peak_bytes": max(run.peak_rss_bytes for run in runs),
        "private_bytes": max(run.peak_private_bytes for run in runs),
        "written_bytes": max(run.written_bytes for run in runs),
        "output_bytes": output_bytes,
        "other_cores": round(statistics.median(run.other_cores for run in runs), 2),
    }


def load(path: Path) -> dict[str, Any]:
    """Returns what a file holds; nothing, if it is not there."""
    if not path.exists():
        return {"machine": {}, "parts": {}}
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return loaded


def merged(
    old: dict[str, Any], facts: dict[str, Any], parts: dict[str, Any]
) -> dict[str, Any]:
    """Adds parts to older results; a part that was there before is replaced.

    Raises:
      OtherMachineError: the older ones are of another machine.
    """
    known = old["machine"]
    for key in SAME:
        if known and known[key] != facts[key]:
            raise OtherMachineError(
                f"these results are of another machine, whose {key} is {known[key]!r}, "
                f"here it is {facts[key]!r}: give another file to --json"
            )
    return {"machine": facts, "parts": {**old["parts"], **parts}}


def save(path: Path, results: dict[str, Any]) -> None:
    """Writes a file, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)


def flink_parts(path: Path) -> dict[str, Any]:
    """Returns what scale_measure.py kept of two TaskManagers, as a part for each input."""
    runs = json.loads(path.read_bytes()).get("flink", [])
    parts: dict[str, Any] = {}
    for name, title in (("csv", "CSV"), ("cifar", "CIFAR")):
        commands = []
        for exchange in ("engine", "scratch"):
            found = [
                run
                for run in runs
                if (run["name"], run["setting"]) == (name, f"{exchange} 2")
            ]
            if not found:
                continue
            keys = (
                "seconds",
                "cpu_seconds",
                "peak_bytes",
                "output_bytes",
                "other_cores",
            )
            medians = {
                key: statistics.median(run[key] for run in found) for key in keys
            }
            commands.append(
                {"name": exchange, "rows": 0, "runs": len(found), "written_bytes": None}
                | medians
            )
        if commands:
            parts[f"flink-{name}"] = {
                "title": f"Flink on this machine, two TaskManagers, {title}",
                "rows": 0,
                "input_bytes": next(
                    r["input_bytes"] for r in runs if r["name"] == name
                ),
                "scale": 1.0,
                "at": "",
                "commit": "",
                "commands": commands,
            }
    return parts
