"""Beam options that ask for a translation alone, where no Dataflow is at hand.

What DataflowRunner makes of the pipeline is in integration/test_dataflow.py: it needs
the packages of the extra dataflow.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import IRIS, recordmill


@pytest.mark.parametrize("wish", ["--dry_run=True", "--template_location=job.json"])
@pytest.mark.parametrize("runner", [[], ["--runner=FlinkRunner"]])
def test_a_runner_that_would_run_all_the_same(
    tmp_path: Path, wish: str, runner: list[str]
) -> None:
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--", wish, *runner)
    assert ran.status == 2
    assert f"{wish.partition('=')[0]} needs --runner=DataflowRunner, got " in ran.err
    assert not (tmp_path / "out").exists()
