"""How a pipeline's rows reach their shards, by the runner that the pipeline has."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions

from recordmill.beam_jobs.runners.flink import is_flink
from recordmill.schemas.job.job_spec import is_embedded_runner
from recordmill.transforms.rows.rows_job import RowsExchange


def is_embedded(pipeline: beam.Pipeline) -> bool:
    """Returns whether Beam's embedded runner, on this machine, runs the pipeline."""
    if pipeline.runner is None:
        return is_embedded_runner(pipeline.options.view_as(StandardOptions).runner)
    return is_embedded_runner(type(pipeline.runner).__name__)


def exchange_for(pipeline: beam.Pipeline) -> RowsExchange:
    """The exchange for rows that somebody else's steps give.

    The embedded runner's shuffle holds all in memory. Flink's batch runner gives a step
    all that a slot gets as one bundle, and stands still for ever when the bundle has
    given a hundred messages (1 GB; Beam 2.62). A job of ours sends each input range in a
    bundle of its own; here the bundles are as the steps before left them.
    """
    if is_embedded(pipeline) or is_flink(pipeline):
        return "scratch"
    return "engine"
