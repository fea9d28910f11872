"""Sources: one file per input format, all with the interface of `base.Source`."""

from __future__ import annotations

from schemas.job import JobSpec
from transforms.sources.base import Source
from transforms.sources.csv import CsvSource
from transforms.sources.fixed_length import FixedLengthSource
from transforms.sources.images import ImagesSource


def make_source(job: JobSpec) -> Source:
    """The source that a job names, not yet prepared."""
    if job.source == "images":
        return ImagesSource(feature_names=job.feature_names)
    if job.source == "cifar":
        return FixedLengthSource(variant=job.variant)
    return CsvSource(as_text=job.declared is not None)
