"""Sets up what a pipeline needs when it starts: folders, inventory, facts of the run."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.schemas.errors import (
    NO_ROOM,
    NoRoomError,
    OutputRefusedError,
    kind_of,
)
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.ranges import InputRange, cut_of
from recordmill.transforms.commit.staging import keep_inventory
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.kept_checksums import PREPARE, save_checksums
from recordmill.transforms.tasks.launches import is_launch
from recordmill.transforms.tasks.read_rejects import note_input
from recordmill.transforms.tasks.workspace import Workspace

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


def prepare_workspace(
    context: RunContext, inputs: Inputs, ranges: Sequence[InputRange]
) -> RunContext:
    """Creates a run's folders and puts there what its workers read.

    Returns:
      The context that workers get.

    Raises:
      OutputError: the storage refuses.
    """
    workspace = context.workspace
    make_folders(workspace, context.exchange, cut_of(ranges))
    note_input(workspace, context.input_root, context.job.source)
    keep_inventory(context, inputs.files, inputs.side_files, inputs.listed_at)
    save_checksums(workspace, PREPARE, context.source.checksums_of_prepare())
    source = context.source.spill_inventory(
        *workspace.shared_location("inventory.arrow")
    )
    return replace(context, source=source)


def make_folders(workspace: Workspace, exchange: str, cut: str) -> None:
    """Creates a run's folders on this machine.

    Raises:
      OutputError: one of them cannot be made, or the disk is full.
    """
    try:
        workspace.create(exchange, cut)
    except OSError as error:
        refused = NoRoomError if kind_of(error) == NO_ROOM else OutputRefusedError
        raise refused(
            f"{error.filename}: cannot create the folder: {error.strerror}; choose one "
            "that you may write to"
        ) from error
    free = shutil.disk_usage(workspace.root).free
    if free < 1 << 20:
        raise NoRoomError(
            f"{workspace.root}: the disk is full ({free:,} bytes free); make room"
        )


def run_metadata(
    context: RunContext,
    beam_options: PipelineOptions,
    started: float | None = None,
    understood: Understood = NOTHING,
) -> dict[str, object]:
    """Returns what run.json will say, except how long the run took.

    Args:
      context: the run.
      beam_options: of its pipeline.
      started: when, in Unix seconds; None: now.
      understood: what the source took the input for.
    """
    from recordmill.beam_jobs.runners.embedded import runner_name

    launch = context.workspace.name
    return {
        **({"launch": launch} if is_launch(launch) else {}),
        "recordmill": version("recordmill"),
        "beam": version("apache-beam"),
        "python": platform.python_version(),
        "runner": runner_name(beam_options),
        "exchange": context.exchange,
        "source": context.job.source,
        "input_root": context.input_root,
        "understood": understood.to_dict(),
        "started_unix": round(time.time() if started is None else started, 3),
    }
