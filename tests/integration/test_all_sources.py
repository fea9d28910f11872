"""Every source of the contract (source_cases.py), on every engine: the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_jobs import BY_PROCESS, offer, run_case
from clusters import Engines
from job_tools import assert_whole, contents
from source_cases import CASES

from recordmill.transforms.sources.images import source as images_source


@pytest.mark.parametrize("name", CASES)
def test_every_source_gives_the_same_bytes(
    name: str, tmp_path: Path, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By threads, by a process, and through the shuffles of Prism and Flink."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    case = CASES[name]
    offer(case.source, monkeypatch)
    folder = tmp_path / "in"
    folder.mkdir()
    rows = case.make(folder)
    run_case(folder, tmp_path / "threads", "scratch")
    assert_whole(tmp_path / "threads")
    expected = contents(tmp_path / "threads")
    assert rows
    for way, beam in {
        "process": BY_PROCESS,
        "prism": engines.own_prism(),
        "flink": [*engines.flink(), "--parallelism=2"],
    }.items():
        exchange = "scratch" if way == "process" else "engine"
        run_case(folder, tmp_path / way, exchange, beam_args=tuple(beam))
        assert contents(tmp_path / way) == expected, way
