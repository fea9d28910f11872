"""Sources: one file per input format, all with the interface of `base.Source`."""

from __future__ import annotations

from recordmill.schemas.job.job_spec import PIPELINE_ROWS, JobSpec
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.cifar.source import FixedLengthSource
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images.source import ImagesSource


def make_source(job: JobSpec, storage: StorageOptions = NO_OPTIONS) -> Source:
    """The source of the files that a job names, not yet prepared."""
    if job.source == "images":
        return ImagesSource(feature_names=job.feature_names, storage=storage)
    if job.source == "cifar":
        return FixedLengthSource(variant=job.variant, storage=storage)
    if job.source == PIPELINE_ROWS:
        raise ValueError("the rows of a pipeline have no files to be read from")
    return CsvSource(as_text=job.declared is not None, storage=storage)
