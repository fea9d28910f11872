from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import Engines


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with Engines(tmp_path_factory.mktemp("engines")) as engines:
        yield engines
