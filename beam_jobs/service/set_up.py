"""What a run finds when its pipeline starts: folders, inventory, facts about itself."""

from __future__ import annotations

import platform
import shutil
import time
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.schemas.errors import OutputError
from recordmill.transforms.commit.staging import stage_inputs
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.workspace import Scratch

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def prepare_workplace(context: RunContext, inputs: Inputs) -> RunContext:
    """Makes a run's folders and puts there what its workers read.

    Returns:
      The context that workers get.

    Raises:
      OutputError: the storage refuses.
    """
    scratch = context.scratch
    make_folders(scratch, context.exchange)
    stage_inputs(context, inputs.files, inputs.side_files)
    source = context.source.spill_inventory(*scratch.shared_location("inventory.arrow"))
    return replace(context, source=source)


def make_folders(scratch: Scratch, exchange: str) -> None:
    try:
        scratch.create(exchange)
    except OSError as error:
        raise OutputError(
            f"{error.filename}: cannot be made: {error.strerror}; choose a folder "
            "that you may write to"
        ) from error
    free = shutil.disk_usage(scratch.work_root).free
    if free < 1 << 20:
        raise OutputError(f"{scratch.work_root}: the disk is full ({free} bytes free)")


def run_facts(
    context: RunContext, beam_options: PipelineOptions, started: float | None = None
) -> dict[str, object]:
    """What run.json will tell, but for how long the run took.

    Args:
      context: the run.
      beam_options: of its pipeline.
      started: when, in Unix seconds; None: now.
    """
    from recordmill.beam_jobs.runners.embedded import runner_name

    return {
        "recordmill": version("recordmill"),
        "beam": version("apache-beam"),
        "python": platform.python_version(),
        "runner": runner_name(beam_options),
        "exchange": context.exchange,
        "started_unix": round(time.time() if started is None else started, 3),
    }
