"""Chooses the exchange of WriteDataset by the runner of the pipeline."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions

from recordmill.beam_jobs.runners.flink import is_flink
from recordmill.schemas.job.run_options import is_embedded_runner
from recordmill.transforms.rows.rows_job import RowsExchange


def is_embedded(pipeline: beam.Pipeline) -> bool:
    """Returns whether Beam's embedded runner, on this machine, runs the pipeline."""
    if pipeline.runner is None:
        return is_embedded_runner(pipeline.options.view_as(StandardOptions).runner)
    return is_embedded_runner(type(pipeline.runner).__name__)


def exchange_for(pipeline: beam.Pipeline) -> RowsExchange:
    """Returns the exchange for rows that a user's own steps make.

    The embedded runner's shuffle holds all in memory. Flink's batch runner makes one
    bundle of all that a slot gets of a step, and hangs when the step has emitted a
    hundred messages for it (1 GB; Beam 2.62). Our own jobs send each input range in its
    own bundle; here the bundles are those of the user's steps.
    """
    if is_embedded(pipeline) or is_flink(pipeline):
        return "scratch"
    return "engine"
