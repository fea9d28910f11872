"""The pages say what docs/bench.json says, and the benchmark runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "tests/bench"
sys.path.append(str(BENCH))

import goals  # noqa: E402
import page  # noqa: E402
import parts  # noqa: E402
import results  # noqa: E402

KEPT = json.loads(page.KEPT.read_bytes())
MACHINE = {"cpu": "x", "cores": 2, "memory_bytes": 1 << 34}


@pytest.mark.parametrize("path", page.PAGES, ids=lambda path: path.name)
def test_a_page_says_what_the_kept_results_say(path: Path) -> None:
    made = page.filled(path.read_text(), page.PAGES[path](KEPT))
    assert path.read_text() == made, "python tests/bench/page.py writes the pages"


def result(scale: float = 1.0, others: float = 0.1, **seconds: float) -> dict[str, Any]:
    commands = [
        {"name": name, "seconds": each, "rows": 10, "other_cores": others}
        for name, each in seconds.items()
    ]
    return {
        "machine": MACHINE,
        "parts": {"csv": {"scale": scale, "commands": commands}},
    }


@pytest.mark.parametrize(
    ("goal", "peer", "verdict"),
    [
        (goals.faster("csv", "peer", "", 3), 6.0, page.MET),
        (goals.faster("csv", "peer", "", 3), 5.9, page.MISSED),
        (goals.close("csv", "peer", "", 2), 1.0, page.MET),
        (goals.close("csv", "peer", "", 2), 0.9, page.MISSED),
        (goals.faster("csv", "other", "", 3), 6.0, page.NOT_MEASURED),
        (goals.faster("images", "peer", "", 3), 6.0, page.NOT_MEASURED),
    ],
)
def test_a_goal_is_met_missed_or_not_measured(
    goal: goals.Goal, peer: float, verdict: str
) -> None:
    found = result(recordmill=2.0, peer=peer)
    assert page.verdict(goal, found) == verdict
    if verdict != page.NOT_MEASURED:
        small = result(0.01, recordmill=2.0, peer=peer)
        assert page.verdict(goal, small) == page.TOO_SMALL
        busy = result(others=1.2, recordmill=2.0, peer=peer)
        assert page.verdict(goal, busy) == page.BUSY


def test_goals_name_commands_that_there_are() -> None:
    names = {part.name: {c.name for c in part.commands} for part in parts.PARTS}
    found = results.flink_parts(page.SCALE)  # measured by a script of its own
    names |= {key: {c["name"] for c in part["commands"]} for key, part in found.items()}
    for goal in goals.GOALS:
        assert set(goal.over) <= names[goal.part], goal.what


def test_parts_are_collected_and_never_of_two_machines() -> None:
    old = {"machine": MACHINE, "parts": {"csv": 1, "cifar": 2}}
    found = results.merged(old, {**MACHINE, "disk": {}}, {"csv": 3})
    assert found == {
        "machine": {**MACHINE, "disk": {}},
        "parts": {"csv": 3, "cifar": 2},
    }
    with pytest.raises(results.OtherMachineError, match="give another file"):
        results.merged(old, {**MACHINE, "cores": 4}, {})


@pytest.mark.slow
def test_a_part_of_the_benchmark_runs(tmp_path: Path) -> None:
    """With twenty images, and the peer that needs nothing."""
    words = ["run.py", "images-5k", "--scale", "0.004", "--repeat", "1"]
    words += ["--recordmill", str(Path(sys.executable).with_name("recordmill"))]
    words += ["--interop", "none", "--tools", "none", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(BENCH / words[0]), *words[1:]],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "bench.json").read_bytes())
    commands = found["parts"]["images-5k"]["commands"]
    assert [(c["name"], c["rows"], c["runs"]) for c in commands] == [
        ("recordmill", 20, 1),
        ("copy", 20, 1),
    ]
    assert all(c["seconds"] and c["peak_bytes"] and c["output_bytes"] for c in commands)
    assert "images-5k loop: no none" in done.stderr
    assert "5,000 JPEG files" in (tmp_path / "bench.md").read_text()
