"""docs/scale.md has the tables that scale_page.py makes of what was measured."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace

from pages import ROOT

BENCH = ROOT / "tests/bench"
sys.path.append(str(BENCH))

import scale_page  # noqa: E402
from scale_page import Kept  # noqa: E402
from scale_runs import Run  # noqa: E402


def test_the_page_says_what_was_measured() -> None:
    """If not: python tests/bench/scale_page.py --write"""
    page = (ROOT / "docs" / "scale.md").read_text()
    kept = Kept((BENCH / "scale.json").read_text())
    assert scale_page.with_blocks(page, kept) == page
    for name in scale_page.BLOCKS:
        assert f"<!-- scale {name} -->" in page


def kept(others: float = 0.0, **sections: list[object]) -> Kept:
    """Returns what is kept of some runs: (name, setting, GB, s, processor s, MB)."""
    runs = {
        section: [
            asdict(
                Run(
                    name,
                    setting,
                    int(size * 1e9),
                    int(size * 2e9),
                    seconds,
                    cpu,
                    int(peak * 1e6),
                    others,
                )
            )
            for name, setting, size, seconds, cpu, peak in rows
        ]
        for section, rows in sections.items()
    }
    return Kept(json.dumps({"machine": {"cores": 2}} | runs))


def test_a_rate_is_that_of_the_gigabytes_more() -> None:
    """Start-up of 1 s is in both sizes; the third run is an outlier."""
    runs = [
        ("csv", "scratch", 1, 11.0, 11.0, 300),
        ("csv", "scratch", 3, 31.0, 31.0, 300),
        ("csv", "scratch", 3, 31.0, 31.0, 300),
        ("csv", "scratch", 3, 90.0, 80.0, 300),
    ]
    found = scale_page.rates_block(kept(rates=runs))
    assert found[2] == "| CSV, scratch | 10.0 | 10.0 | 2.8 | 0.19 | 2.00x |"
    assert "1.0 to 1.0 processor seconds" in found[-1]
    assert "other work took 0.0 on average. " in found[-1]


def test_growth_is_compared_with_its_goals() -> None:
    runs = [
        ("cifar", "", 0.3, 3.0, 3.0, 300),
        ("cifar", "", 1, 10.0, 10.0, 310),
        ("cifar", "", 10, 120.0, 90.0, 330),
    ]
    found = "\n".join(scale_page.sizes_block(kept(sizes=runs)))
    assert (
        "peak memory at 10.0 GB by that at 0.3 GB 1.10 (goal: at most 1.15, met)"
        in found
    )
    assert "at 10 times the input 1.20 (goal: at most 1.1, missed)" in found


def test_two_workers_and_exchanges_are_compared() -> None:
    found = kept(
        workers=[("csv", "1", 1, 19.0, 18.0, 1), ("csv", "2", 1, 10.0, 18.0, 1)],
        flink=[
            ("csv", "engine 2", 1, 32.0, 60.0, 1),
            ("csv", "scratch 2", 1, 20.0, 40.0, 1),
        ],
    )
    workers = "\n".join(scale_page.workers_block(found))
    assert "| 1.90 (goal: at least 1.8, met) |" in workers
    flink = "\n".join(scale_page.flink_block(found))
    assert "scratch 1.60 (goal: at most 1.5, missed), processor seconds 1.50." in flink


def test_growth_on_a_cluster_is_that_behind_start_up() -> None:
    """10 s of it are in all sizes, 30 s a GB behind them."""
    runs = [
        Run("csv", setting, int(size * 1e9), 0, cpu, cpu, 1, 0.0)
        for setting, size, cpu in (
            ("engine 2", 0.2, 16.0),
            ("engine 2", 1, 40.0),
            ("engine 2", 5, 160.0),
            ("scratch 2", 1, 25.0),
        )
    ]
    roles = dict.fromkeys(scale_page.ROLES, 500_000_000)
    several = [
        replace(
            run, peaks={**roles}, shipped_bytes=run.input_bytes, disk_bytes=2 * 10**8
        )
        for run in runs
    ]
    several[2].peaks["worker"] = 600_000_000
    kept = Kept(
        json.dumps({"machine": {"cores": 2}, "exchange": [*map(asdict, several)]})
    )
    found = "\n".join(scale_page.exchange_block(kept))
    assert (
        "| CSV | 1.0 | engine | 40 | 30.0 | 500 MB | 500 MB | 500 MB | 1.00x | 0.20x |"
        in found
    )
    assert (
        "worker: peak memory at 5.0 GB by that at 1.0 GB 1.20 (goal: at most 1.15, "
        "missed)" in found
    )
    assert "at 5.0 GB by those at 1.0 GB 1.00 (goal: at most 1.1, met)" in found
    assert "engine by those with scratch 1.60 (goal: at most 1.5, missed)" in found


def test_photos_are_counted_by_the_second() -> None:
    runs = [("images", "1000 files", 0.1, 2.0, 2.0, 300)]
    runs += [("images", "5000 files", 0.5, 4.0, 4.0, 302)]
    found = "\n".join(scale_page.photos_block(kept(photos=runs)))
    assert "| 5,000 | 0.5 | 4.0 | 1,250 | 125 | 302 MB |" in found
    assert "Memory for each image more: 500 bytes." in found


def test_seconds_of_a_busy_machine_are_not_judged() -> None:
    runs = [("csv", "1", 1, 20.0, 18.0, 1), ("csv", "2", 1, 20.0, 18.0, 1)]
    found = "\n".join(scale_page.workers_block(kept(1.2, workers=runs)))
    assert "1.00 (goal: at least 1.8; not judged on a busy machine)" in found
    assert "of which other work took 1.2 on average" in found


def test_what_was_not_measured_is_told() -> None:
    assert scale_page.made_block("large", kept()) == ["Not measured yet."]
