from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clusters import Engines
from xdist.scheduler import LoadFileScheduling

# One process runs these, as it does each other module: a cluster starts for them. Parts of
# it are killed in the last one.
TOGETHER = {"test_pipelines.py", "test_laptop_to_cluster.py", "test_clusters.py"}
_LONGEST = """
pipelines laptop_to_cluster clusters all_sources lowest_versions frameworks release
foreign_tables airflow same_rows torch_state
"""
LONGEST = [f"test_{name}.py" for name in _LONGEST.split()]
# Beam's workers in threads end with an error when an engine hangs up at the end of a job.
HUNG_UP = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


class _ByModule(LoadFileScheduling):
    """As `--dist loadfile`, with some modules as one. (`loadgroup` fails in pytest 9.2.)"""

    def _split_scope(self, nodeid: str) -> str:
        module = super()._split_scope(nodeid)
        return "engines" if Path(module).name in TOGETHER else module


def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Any
) -> LoadFileScheduling | None:
    return _ByModule(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts first what takes longest: with it last, one process works and others wait."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    for item in items:
        if "engines" in getattr(item, "fixturenames", ()):
            item.add_marker(HUNG_UP)


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with Engines(tmp_path_factory.mktemp("engines")) as engines:
        yield engines
