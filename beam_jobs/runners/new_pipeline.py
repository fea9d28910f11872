"""Creates pipelines that leave no temporary folder behind."""

from __future__ import annotations

import shutil

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineRunner

from recordmill.transforms.temporary import temporary_folders_in


def new_pipeline(
    runner: PipelineRunner, options: PipelineOptions, folder: str
) -> beam.Pipeline:
    """Returns a pipeline without steps, which leaves no temporary folder.

    Beam creates a temporary folder for each pipeline, and removes it at the pipeline's
    end, which a killed process does not reach. Only steps in other languages use the
    folder. This function creates it in `folder`, or in TMPDIR by default, and removes it
    at once.
    """
    with temporary_folders_in(folder):
        pipeline = beam.Pipeline(runner=runner, options=options)
    shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
    return pipeline
