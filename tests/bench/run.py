"""Measure recordmill beside its peers, whole processes, in turns on one machine.

    python tests/bench/run.py [PART ...] [--json bench-data/bench.json]

Without a PART all of them. `--list` tells what there is, and the minutes of each. Results
are added to the JSON file, so parts can be run one by one; a page of the same name beside
it (.md) has the ratios first. README.md here says what is compared. Uses the standard
library only: a small parent keeps the kernel's peak memory of the children true.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import page
import results
from compare import RunError, Settings, compare
from goals import GOALS
from parts import BY_NAME, PARTS, Part
from places import Places, disk_speed, machine

QUICK_SCALE = 0.02


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="see --list")
    parser.add_argument("--list", action="store_true", help="name all parts, and end")
    parser.add_argument("--quick", action="store_true", help="small inputs, once each")
    parser.add_argument("--repeat", type=int, default=3, help="runs of recordmill")
    parser.add_argument("--peer-repeat", type=int, default=1, help="runs of slow peers")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--skip", action="append", default=[], metavar="PEER")
    parser.add_argument("--recordmill", type=Path, default=Path(".venv/bin/recordmill"))
    parser.add_argument("--python", type=Path, help="default: beside --recordmill")
    parser.add_argument(
        "--interop", type=Path, default=Path(".venv-interop/bin/python")
    )
    parser.add_argument("--tools", type=Path, default=Path(".tools"))
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--json", type=Path, help="default: bench.json in --folder")
    arguments = parser.parse_args(argv)
    for name in arguments.parts:
        if name not in BY_NAME:
            parser.error(f"there is no part {name!r}: {', '.join(BY_NAME)}")
    return arguments


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Returns the settings that a command line asks for."""
    return Settings(
        places=Places(
            recordmill=arguments.recordmill,
            python=arguments.python or arguments.recordmill.parent / "python",
            interop=arguments.interop,
            tools=arguments.tools,
            folder=arguments.folder,
        ),
        repeat=1 if arguments.quick else arguments.repeat,
        peer_repeat=1 if arguments.quick else arguments.peer_repeat,
        scale=QUICK_SCALE if arguments.quick else arguments.scale,
        skip=frozenset(arguments.skip),
    )


def facts(settings: Settings) -> dict[str, object]:
    """Describes the machine, its disk, and what is installed."""
    return {
        **machine(),
        "disk": disk_speed(settings.places.folder, settings.scale),
        "recordmill": settings.places.version(),
        "versions": settings.places.versions(),
    }


def measure(chosen: list[Part], settings: Settings, target: Path) -> bool:
    """Measures some parts, and adds each to the JSON; False if one of them failed."""
    here = facts(settings)
    print(here["recordmill"], file=sys.stderr)
    good = True
    for part in chosen:
        try:
            found = compare(part, settings)
        except (RunError, OSError, subprocess.CalledProcessError) as error:
            print(f"{part.name}: {error}", file=sys.stderr)
            good = False
            continue
        collected = results.merged(results.load(target), here, {part.name: found})
        results.save(target, collected)
        target.with_suffix(".md").write_text(page.whole(collected))
    return good


def main(argv: list[str]) -> int:
    """Runs the parts asked for; 1: a run failed, 3: a goal was missed."""
    arguments = parse_arguments(argv)
    if arguments.list:
        for part in PARTS:
            print(f"{part.name:12} {part.minutes:4.1f} min  {part.title}")
        return 0
    settings = settings_of(arguments)
    settings.places.folder.mkdir(parents=True, exist_ok=True)
    chosen = [BY_NAME[name] for name in arguments.parts] or list(PARTS)
    target = arguments.json or settings.places.folder / "bench.json"
    good = measure(chosen, settings, target)
    collected = results.load(target)
    print(page.goals_table(collected))
    if not good:
        return 1
    measured = {part.name for part in chosen}
    missed = [
        goal
        for goal in GOALS
        if goal.part in measured and page.verdict(goal, collected) == page.MISSED
    ]
    return 3 if missed else 0


if __name__ == "__main__":
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    os.environ.update(NO_ALBUMENTATIONS_UPDATE="1")
    sys.exit(main(sys.argv[1:]))
