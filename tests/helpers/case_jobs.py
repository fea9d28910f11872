"""Runs whole jobs of the sources' contract (source_cases.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recordmill.beam_jobs.service.outcome import Outcome
from recordmill.beam_jobs.service.run import FailureReport, run_versioned
from recordmill.schemas.job import JobSpec, RejectLimit, RunOptions, Sharding
from recordmill.schemas.options import RequestedExchange
from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.sources import registry
from recordmill.transforms.sources.base import Source
from recordmill.transforms.tasks.progress_reader import Reporter

FORMAT = "a_case"
BY_PROCESS = ("--direct_running_mode=multi_processing",)


def offer(source: Source, patch: pytest.MonkeyPatch) -> None:
    """Makes a source one of the formats that jobs can name."""
    made = registry.SourceFormat(
        name=FORMAT,
        summary="A source of the contract suite.",
        options=SourceOptions,
        make_source=lambda options, request: source,
    )
    patch.setitem(registry.BUILT_IN, FORMAT, made)


def run_case(
    given: Path,
    output: Path,
    exchange: RequestedExchange,
    *,
    append: bool = False,
    beam_args: tuple[str, ...] = (),
    **more: Any,
) -> Outcome:
    """Runs the job of the source that was offered; all that waits is on the disk.

    With BY_PROCESS, one executes its tasks, and what waits is in its memory.

    Raises:
      RecordmillError: as the command would tell it.
    """
    job = JobSpec(
        source=FORMAT,
        name="set",
        sharding=Sharding(num_shards=2),
        max_rejects=RejectLimit(text="1"),
        **more,
    )
    options = RunOptions(
        inputs=(str(given),),
        output=str(output),
        exchange=exchange,
        memory="auto" if beam_args == BY_PROCESS else "0",
        workers=1,
        append=append,
        beam_args=beam_args,
    )
    return run_versioned(job, options, Reporter(), FailureReport())
