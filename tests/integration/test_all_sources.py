"""Every source of the contract (source_cases.py), on every engine: the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from case_jobs import BY_PROCESS, offer, run_case
from clusters import THREADS, Engines, prism
from example_counts import FACTOR
from job_tools import assert_whole, contents
from source_cases import CASES

from recordmill.transforms.sources.images import source as images_source


@pytest.fixture(scope="module")
def ways(engines: Engines) -> Iterator[dict[str, list[str]]]:
    """Beam options of each way to run, with threads of the launcher as workers.

    What workers of their own do to each other is tested in test_clusters.py.
    """
    with prism(engines.folder) as endpoint:
        found = {
            "process": [*BY_PROCESS],
            "prism": [
                "--runner=PortableRunner",
                *THREADS,
                f"--job_endpoint={endpoint}",
            ],
        }
        if FACTOR > 1:
            found["flink"] = [*engines.flink(in_threads=True), "--parallelism=2"]
        yield found


@pytest.mark.parametrize("name", CASES)
def test_every_source_gives_the_same_bytes(
    name: str,
    tmp_path: Path,
    ways: dict[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By threads, by a process, and through the shuffle of Prism.

    In `make test-long` through that of Flink, too, which takes four times as long as
    Prism: test_clusters.py has three sources on it.
    """
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
    for way, beam in ways.items():
        exchange = "scratch" if way == "process" else "engine"
        run_case(folder, tmp_path / way, exchange, beam_args=tuple(beam))
        assert contents(tmp_path / way) == expected, way
