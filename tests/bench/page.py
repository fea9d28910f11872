"""The pages that are made from bench.json: ratios first, then each part, then the machine.

    python tests/bench/page.py [bench-data/bench.json]

Keeps the results as docs/bench.json, and writes README's table and docs/benchmarks.md
between their markers. Without a file the pages are written again from what is kept.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goals import GOALS, Goal
from parts import PARTS
from results import flink_parts

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs/bench.json"
SCALE = Path(__file__).resolve().parent / "scale.json"
MET, MISSED = "met", "**missed**"
NOT_MEASURED, TOO_SMALL = "not measured", "input too small to judge"
BUSY = "not judged on a busy machine"
BUSY_CORES = 0.5  # of other work; writing back to disks takes some of it
MARKER = "<!-- made by tests/bench/page.py: {} -->"
Results = Mapping[str, Any]
PEER_COLUMNS = {
    "loop": "loop of the tutorials",
    "tfx": "pyarrow, tfx_bsl",
    "beam": "Beam `WriteToTFRecord`",
    "tfds": "TFDS builder",
}
# What README compares; of parts in one place the first that was measured.
README_PARTS = (("csv",), ("cifar-500k",), ("cifar",), ("images", "images-5k"))
README_WORDS = (
    ("shuffles the whole dataset", "yes", "no", "no", "no", "yes"),
    ("finds the types of a CSV", "yes", "no", "of the first block", "no", ""),
    ("manifest with checksums, resume", "yes", "no", "no", "no", "no"),
)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lays out a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|" for line in lines
    )


def seconds_text(seconds: float) -> str:
    """Writes seconds with three digits that count."""
    return f"{seconds:.{0 if seconds >= 100 else 1 if seconds >= 10 else 2}f} s"


def ratio_text(ratio: float) -> str:
    """Writes a ratio with about three digits that count."""
    return f"{ratio:.{1 if ratio >= 10 else 2}f}x"


def size_text(num_bytes: float) -> str:
    """Writes bytes as MB or GB."""
    if num_bytes >= 10**9:
        return f"{num_bytes / 1e9:.1f} GB"
    return f"{num_bytes / 1e6:,.0f} MB" if num_bytes >= 10**6 else "0 MB"


def ratio_of(goal: Goal, results: Results) -> float | None:
    """Returns the ratio of a goal, or None if it was not measured."""
    part = results["parts"].get(goal.part)
    return goal.ratio(part) if part else None


def other_cores(part: Mapping[str, Any]) -> float:
    """Returns the cores that other work had while a part was measured, on average."""
    commands = [c for c in part["commands"] if c.get("other_cores") is not None]
    seconds = sum(command["seconds"] for command in commands)
    taken = sum(command["seconds"] * command["other_cores"] for command in commands)
    return taken / seconds if seconds else 0.0


def verdict(goal: Goal, results: Results) -> str:
    """Tells whether a goal was met."""
    ratio = ratio_of(goal, results)
    if ratio is None:
        return NOT_MEASURED
    if results["parts"][goal.part]["scale"] != 1:
        return TOO_SMALL
    if other_cores(results["parts"][goal.part]) > BUSY_CORES:
        return BUSY
    return MET if goal.met(ratio) else MISSED


def goals_table(results: Results) -> str:
    """Lists all goals: ratio, limit, and whether it was met."""
    rows = []
    for goal in GOALS:
        ratio = ratio_of(goal, results)
        text = "" if ratio is None else ratio_text(ratio)
        rows.append([goal.what, text, goal.limit, verdict(goal, results)])
    return table(["what", "measured", "goal", ""], rows)


def levers(results: Results) -> str:
    """Says of each missed goal where the time goes, goals with one answer together."""
    found: dict[str, list[str]] = {}
    for goal in GOALS:
        if goal.lever and verdict(goal, results) == MISSED:
            found.setdefault(goal.lever, []).append(goal.what)
    return "\n".join(f"- {'. '.join(names)}. {text}" for text, names in found.items())


def part_table(part: Mapping[str, Any]) -> str:
    """Lists what the commands of a part took, by recordmill's seconds first."""
    commands = part["commands"]
    own = next((c["seconds"] for c in commands if c["name"] == "recordmill"), None)
    rows = []
    for command in commands:
        ratio = ratio_text(command["seconds"] / own) if own else ""
        seconds = [command["seconds"], command["cpu_seconds"]]
        sizes = [command[f"{key}_bytes"] for key in ("peak", "written", "output")]
        cells = [command["name"], ratio]
        cells += ["" if each is None else seconds_text(each) for each in seconds]
        cells += ["" if each is None else size_text(each) for each in sizes]
        rows.append([*cells, str(command["runs"])])
    head = ["command", "by recordmill", "seconds", "processor", "memory", "to disk"]
    return table([*head, "output", "runs"], rows)


def part_text(part: Mapping[str, Any]) -> str:
    """Writes the heading of a part, when it was measured, and its table."""
    size = size_text(part["input_bytes"])
    note = f"Input: {part['rows']:,} rows, {size}" if part["rows"] else f"Input: {size}"
    if part["scale"] != 1:
        note += f", {part['scale']:g} of its full size"
    note += "."
    if part["at"]:
        note += f" Measured on {part['at'][:10]}"
        note += f" at commit {part['commit']}." if part["commit"] else "."
    if part.get("load_before") is not None:
        note += f" Load before: {part['load_before']:.1f}."
    if any("other_cores" in command for command in part["commands"]):
        note += f" Other work took {other_cores(part):.1f} cores meanwhile."
    return f"### {part['title']}\n\n{note}\n\n{part_table(part)}\n"


def machine_text(machine: Mapping[str, Any]) -> str:
    """Describes the machine and what was installed."""
    lines = [
        f"- {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB of memory, {machine['kernel']}, "
        f"Python {machine['python']}"
    ]
    if "recordmill" in machine:
        lines.append(f"- {machine['recordmill']}")
    disk = machine.get("disk", {})
    if disk:
        speeds = [f"{disk['write_mb_per_s']:,} MB/s written and synced"]
        if "read_mb_per_s" in disk:
            speeds.append(f"{disk['read_mb_per_s']:,} MB/s read past caches")
        lines.append(f"- Disk, one file: {', '.join(speeds)}")
    lines += [
        f"- Environment {name}: {', '.join(f'{key} {v}' for key, v in found.items())}"
        for name, found in machine.get("versions", {}).items()
    ]
    return "\n".join(lines)


def measured(results: Results) -> str:
    """Writes all of the page that comes from the results, and from runs on Flink."""
    results = {**results, "parts": {**results["parts"], **flink_parts(SCALE)}}
    order = {part.name: number for number, part in enumerate(PARTS)}
    names = sorted(results["parts"], key=lambda name: order.get(name, len(order)))
    missed = levers(results)
    blocks = [
        "## Goals",
        goals_table(results),
        *(["Where the time goes where a goal was missed:", missed] if missed else []),
        "## All figures",
        *(part_text(results["parts"][name]).strip() for name in names),
        "## The machine",
        machine_text(results["machine"]),
    ]
    return "\n".join(["", "\n\n".join(blocks), ""])


def whole(results: Results) -> str:
    """Writes a page of its own."""
    return f"# Benchmark\n{measured(results)}"


def peer_cell(found: Mapping[str, Mapping[str, Any]], peer: str) -> str:
    """Writes what a peer took; in place of the loop stands its faster kind."""
    note = ""
    if peer == "loop" and peer not in found:
        peer, note = "loop-header", ", heads alone"
    if peer not in found:
        return ""
    command = found[peer]
    ratio = ratio_text(command["seconds"] / found["recordmill"]["seconds"])
    text = seconds_text(command["seconds"])
    if command["peak_bytes"] is not None:
        text += f", {size_text(command['peak_bytes'])}"
    return f"{text} ({ratio}{note})"


def readme_table(results: Results) -> str:
    """Writes README's table: recordmill and the peers that people know."""
    rows = []
    whole_parts = {k: p for k, p in results["parts"].items() if p["scale"] == 1}
    for names in README_PARTS:
        part = next((whole_parts[name] for name in names if name in whole_parts), None)
        if part is None:
            continue
        found = {command["name"]: command for command in part["commands"]}
        own = found["recordmill"]
        size = size_text(part["input_bytes"])
        cells = [f"**{seconds_text(own['seconds'])}**, {size_text(own['peak_bytes'])}"]
        cells += [peer_cell(found, peer) for peer in PEER_COLUMNS]
        rows.append([f"{part['title']} ({size})", *cells])
    return table(["", "recordmill", *PEER_COLUMNS.values()], [*rows, *README_WORDS])


PAGES = {ROOT / "README.md": readme_table, ROOT / "docs/benchmarks.md": measured}


def filled(page: str, text: str) -> str:
    """Puts a text between the markers of a page."""
    begin, end = MARKER.format("begin"), MARKER.format("end")
    pattern = f"{re.escape(begin)}.*{re.escape(end)}"
    made = f"{begin}\n{text}\n{end}"
    page, count = re.subn(pattern, lambda _: made, page, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"the page needs {begin} and {end}, once")
    return page


def main(argv: list[str]) -> int:
    """Keeps results, and writes the pages."""
    if argv:
        shutil.copyfile(argv[0], KEPT)
    results = json.loads(KEPT.read_bytes())
    for path, make in PAGES.items():
        path.write_text(filled(path.read_text(), make(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
