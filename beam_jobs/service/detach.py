"""Submits a job to a runner without waiting for its end.

The dataset is published by the pipeline's last step (transforms/commit/detached.py),
under a lease that the step takes itself: when rows are converted, nobody waits. Until
then a sign of life keeps the job's files (transforms/tasks/launches.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.prepare import PreparedRun
from recordmill.beam_jobs.service.resolve import ResolvedRun, find_published
from recordmill.beam_jobs.service.set_up import prepare_workspace, run_metadata
from recordmill.schemas.errors import RecordmillError
from recordmill.transforms.commit.commit import seen_manifest
from recordmill.transforms.storage.lease import require_idle
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.launches import (
    begin_launch,
    is_launch,
    new_launch_name,
)

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


class JobSubmitted(Exception):  # noqa: N818  not an error: what was asked for
    """The runner has the job, but there is no dataset yet.

    Attributes:
      status: "submitted", or "translated" if the runner was asked for no more.
      output: where the dataset goes once the job has run.
      template: where the pipeline was written to, or "".
      job: the runner's name of the job, or "".
    """

    def __init__(
        self, status: str, output: str, *, template: str = "", job: str = ""
    ) -> None:
        super().__init__(status, output, template, job)
        self.status = status
        self.output = output
        self.template = template
        self.job = job


def prepare_launch(run: ResolvedRun, prepared: PreparedRun) -> RunContext:
    """Prepares what the workers of a detached job need: a workspace of its own.

    Which manifest the job may replace is decided here, not when it publishes.

    Returns:
      The context that workers get.

    Raises:
      OutputError: another run is at work here, or the job must not write here.
    """
    store = run.store
    store.preflight()
    require_idle(store)
    replaces = seen_manifest(store)
    find_published(run, store)
    workspace = run.workspace_of(new_launch_name())
    begin_launch(workspace, run.run_key)
    context = replace(prepared.context, workspace=workspace, replaces=replaces)
    return prepare_workspace(context, prepared.inputs, prepared.ranges)


def submit_detached(
    run: ResolvedRun,
    prepared: PreparedRun,
    beam_options: PipelineOptions,
) -> None:
    """Submits the job if nobody waits for its end; returns if it is to be waited for.

    Args:
      run: what is to be published.
      prepared: the run, prepared.
      beam_options: of its pipeline; they may ask for no more than a translation.

    Raises:
      JobSubmitted: the runner has it.
      RecordmillError: the runner refuses it, or another run is at work here.
    """
    from recordmill.beam_jobs.runners.embedded import only_translates

    translates = only_translates(beam_options)
    if not (translates or run.options.detach):
        return
    # Half of Beam's runners come with these: only where they are needed.
    from apache_beam.options.pipeline_options import GoogleCloudOptions, TestOptions

    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.portable import submit

    context, ranges = prepared.context, prepared.ranges
    if not beam_options.view_as(TestOptions).dry_run:  # which makes nothing
        context = prepare_launch(run, prepared)
    facts = run_metadata(context, beam_options, understood=prepared.understood)
    try:
        job = submit(lambda p: convert_dataset(p, context, ranges, facts), beam_options)
    except Exception as error:
        # If it has the job all the same, that stops: its sign of life is gone.
        if is_launch(context.workspace.name):
            context.workspace.remove()
        if isinstance(error, RecordmillError):
            raise
        what = f"{type(error).__name__}: {error}"
        raise RecordmillError(f"the runner refused the job: {what}") from error
    template = beam_options.view_as(GoogleCloudOptions).template_location or ""
    status = "translated" if translates else "submitted"
    raise JobSubmitted(status, context.output, template=template, job=job)
