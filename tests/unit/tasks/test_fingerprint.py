"""Fingerprints and kept jobs: what datasets that were written before compare with.

From the first release on the hexadecimal values must never change: append, resume and
"unchanged" go by them.
"""

from __future__ import annotations

import gzip
import json

import pytest
from content_tools import dump_inputs
from pydantic import Field

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec, RejectLimit, Sharding
from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.registry import CifarOptions
from recordmill.transforms.tasks.fingerprint import fingerprint_of, fixed_fields

FILES = Inventory.from_files(
    [InputFile("a/x.csv", "/in/a/x.csv", 1234, "1700000000000000000")]
)
IMAGENET = JobSpec(
    source="images",
    name="pets",
    source_options=ImagesOptions(feature_names="imagenet"),
    sharding=Sharding(num_shards=2),
)


@pytest.mark.parametrize(
    ("job", "fingerprint"),
    [
        (
            JobSpec(source="csv", name="users", max_rejects=RejectLimit(text="3")),
            "f562ba2aa6f0819d50412ac1b17eb360",
        ),
        (IMAGENET, "d5a4ddd3bfb16dddc3bae105fee67d6f"),
        (
            JobSpec(source="images", name="pets", source_options=ImagesOptions()),
            "4edc520845ebc76e2d94db1a867768cc",
        ),
        (JobSpec(source="images", name="pets"), "4edc520845ebc76e2d94db1a867768cc"),
        (
            JobSpec(
                source="cifar",
                name="digits",
                source_options=CifarOptions(variant="cifar100"),
            ),
            "e16fc2903aa9d8e45e1034dcb1f86966",
        ),
        (
            JobSpec(source="cifar", name="digits", source_options=CifarOptions()),
            "37b0778de8d0bfc8a3a89a4418fe14ca",
        ),
        (JobSpec(source="rows", name="made"), "4a6dbe2cbb79fed3ef401c695c980901"),
    ],
)
def test_fingerprints_stay(job: JobSpec, fingerprint: str) -> None:
    assert fingerprint_of(job, FILES) == fingerprint


def test_the_kept_job_stays() -> None:
    """To the byte: the file is the same for the same job and files."""
    head = gzip.decompress(dump_inputs("00", IMAGENET, FILES)).decode().splitlines()[0]
    assert head == (
        '{"recordmill":1,"fingerprint":"00","job":{"source":"images","name":"pets",'
        '"sharding":{"num_shards":2},"source_options":{"feature_names":"imagenet"}}}'
    )


class LinesOptions(SourceOptions):
    """Options of another package's format."""

    skip: int = Field(0, description="lines to skip")
    mark: str = Field("#", description="what comments begin with")


def test_options_count_only_if_they_are_used() -> None:
    """Only those that differ from their default, so that a format may get new ones."""
    plain = JobSpec(source="lines", name="a", source_options=LinesOptions())
    other = JobSpec(source="lines", name="a", source_options=LinesOptions(skip=2))
    assert "source_options" not in fixed_fields(plain)
    assert fixed_fields(other)["source_options"] == {"skip": 2}
    assert json.dumps(fixed_fields(other)).count("skip") == 1
    assert fingerprint_of(plain, FILES) != fingerprint_of(other, FILES)


def test_fields_count_only_if_they_are_used() -> None:
    plain = JobSpec(source="csv", name="a")
    assert "index" not in fixed_fields(plain)
    indexed = plain.model_copy(update={"index": True})
    assert fixed_fields(indexed) == fixed_fields(plain) | {"index": True}
    assert fingerprint_of(indexed, FILES) != fingerprint_of(plain, FILES)
