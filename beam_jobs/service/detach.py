"""Handing a job over to a runner without waiting for its end.

The dataset is published by the pipeline's last step (recordmill.transforms.commit.detached), under a
lease that the step takes itself: when rows are converted, nobody waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recordmill.beam_jobs.service.inputs import Inputs
from recordmill.beam_jobs.service.set_up import prepare_workspace, run_metadata
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.job.job_spec import RunOptions
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.storage.lease import require_idle
from recordmill.transforms.tasks.context import RunContext

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions


class JobSubmitted(Exception):  # noqa: N818  no error: the end that was asked for
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


def require_detachable(options: RunOptions) -> None:
    """Refuses what cannot work once the launcher is gone.

    Raises:
      UsageError: says what.
    """
    if not options.detach:
        return
    if options.is_embedded:
        raise UsageError(
            "--detach hands the job over to a runner, but the embedded one ends with "
            "this process: name another behind --, or leave out --detach"
        )
    if options.auto_version:
        raise UsageError(
            "--detach goes without version: auto, whose latest.json moves when the "
            "launcher has seen the end: give the version itself"
        )


def submit_detached(
    context: RunContext,
    ranges: Sequence[InputRange],
    inputs: Inputs,
    beam_options: PipelineOptions,
    *,
    detach: bool,
) -> None:
    """Gives the job to the runner if it is to be translated or detached.

    Returns:
      If it is to be run and waited for, as most are.

    Raises:
      JobSubmitted: the runner has it.
      RecordmillError: the runner does not take it, or another run is at work here.
    """
    from recordmill.beam_jobs.runners.embedded import only_translates

    translates = only_translates(beam_options)
    if not (translates or detach):
        return
    # Half of Beam's runners come with these: only where they are needed.
    from apache_beam.options.pipeline_options import GoogleCloudOptions, TestOptions

    from recordmill.beam_jobs.pipelines.convert import convert_dataset
    from recordmill.beam_jobs.runners.portable import submit

    if not beam_options.view_as(TestOptions).dry_run:  # which makes nothing
        context.workspace.store.preflight()
        require_idle(context.workspace.store)
        context = prepare_workspace(context, inputs)
    facts = run_metadata(context, beam_options)
    try:
        job = submit(lambda p: convert_dataset(p, context, ranges, facts), beam_options)
    except RecordmillError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise RecordmillError(f"the runner does not take the job: {what}") from error
    template = beam_options.view_as(GoogleCloudOptions).template_location or ""
    status = "translated" if translates else "submitted"
    raise JobSubmitted(status, context.output, template=template, job=job)
