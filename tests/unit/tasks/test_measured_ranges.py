"""What was measured of a range is kept, and measured again if its file is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from job_tools import IRIS
from source_tools import prepare

from recordmill.schemas.job import JobSpec
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import measure_range
from recordmill.transforms.tasks.workspace import Workspace

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "a few zeros": lambda data: bytes(4),
    "cut short": lambda data: data[:40],
    "zeros behind its head": lambda data: data[:32] + bytes(len(data) - 32),
    "of an earlier version": lambda data: data[:-4],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_histogram_is_measured_again(tmp_path: Path, damage: str) -> None:
    """A power loss may leave anything of a file that was not synced."""
    reading = prepare(CsvSource(), [IRIS])
    [input_range] = reading.ranges
    context = RunContext(
        job=JobSpec(source="csv", name="a"),
        source=reading.source,
        split_names=("train",),
        bucket_bits=6,
        exchange="engine",
        run_key="0" * 32,
        workspace=Workspace.for_run(LocalStore(str(tmp_path)), "0" * 32),
    )
    context.workspace.create("engine")
    guess = context.source.sample_type_flags(input_range)
    first = measure_range(context, input_range, guess)
    [kept] = tmp_path.glob(".recordmill/*/facts/*.histogram")
    whole = kept.read_bytes()
    assert measure_range(context, input_range, guess) == first
    kept.write_bytes(DAMAGES[damage](whole))
    assert measure_range(context, input_range, guess) == first
    assert kept.read_bytes() == whole
