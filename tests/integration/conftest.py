from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Engines

# A second cluster starts for all of these; test_clusters.py takes as long as they do.
TOGETHER = {"test_all_sources.py", "test_pipelines.py"}
# Beam's workers in threads end with an error when an engine hangs up at the end of a job.
HUNG_UP = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Makes a group of each module, or of these: one process runs all of it."""
    for item in items:
        group = "engines" if item.path.name in TOGETHER else item.path.name
        item.add_marker(pytest.mark.xdist_group(group))
        if "engines" in getattr(item, "fixturenames", ()):
            item.add_marker(HUNG_UP)


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with Engines(tmp_path_factory.mktemp("engines")) as engines:
        yield engines
