"""Fingerprints and kept jobs: what datasets that were written before compare with.

The hexadecimal values were computed with commit 25d28c4, before each format had options
of its own. They must never change: append, resume and "unchanged" go by them.
"""

from __future__ import annotations

import gzip
import json

import pytest
from pydantic import Field

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec, RejectLimit, Sharding
from recordmill.schemas.source_options import SourceOptions
from recordmill.transforms.commit.inputs import dump_inputs
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.registry import CifarOptions
from recordmill.transforms.tasks.fingerprint import fingerprint_of, fixed_fields

FILES = [InputFile("a/x.csv", "/in/a/x.csv", 1234, "1700000000000000000")]
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
            "a50526b1a98b365610ccc9a8dd8b6084",
        ),
        (IMAGENET, "7d49494d377b3eb1fd8859bccaa4069f"),
        (
            JobSpec(source="images", name="pets", source_options=ImagesOptions()),
            "cd7703fbaa2ec18b726f4a20fd7adf0b",
        ),
        (JobSpec(source="images", name="pets"), "cd7703fbaa2ec18b726f4a20fd7adf0b"),
        (
            JobSpec(
                source="cifar",
                name="digits",
                source_options=CifarOptions(variant="cifar100"),
            ),
            "aa123cc52e617a73cf261ee32e17e227",
        ),
        (
            JobSpec(source="cifar", name="digits", source_options=CifarOptions()),
            "97642346fff10f8fa64655887c07cd1a",
        ),
        (JobSpec(source="rows", name="made"), "a066532d125c5e162c1339609459f087"),
    ],
)
def test_fingerprints_stay(job: JobSpec, fingerprint: str) -> None:
    assert fingerprint_of(job, FILES) == fingerprint


def test_the_kept_job_stays() -> None:
    """To the byte: the file is the same for the same job and files."""
    head = gzip.decompress(dump_inputs("00", IMAGENET, FILES)).decode().splitlines()[0]
    assert head == (
        '{"recordmill":1,"fingerprint":"00","job":{"source":"images","name":"pets",'
        '"version":"1.0.0","splits":[{"name":"train","fraction":"1"}],"split_by":null,'
        '"sharding":{"num_shards":2,"shard_bytes":null,"num_readers":null},'
        '"shuffle":true,"seed":0,"compression":"none","feature_names":"imagenet",'
        '"variant":"auto","declared":null,"payload":"example"}}'
    )


class LinesOptions(SourceOptions):
    """Options of a format that came later."""

    skip: int = Field(0, description="lines to skip")
    mark: str = Field("#", description="what comments begin with")


def test_options_of_later_formats_stand_apart() -> None:
    """Only those that differ from their default, so that a format may get new ones."""
    plain = JobSpec(source="lines", name="a", source_options=LinesOptions())
    other = JobSpec(source="lines", name="a", source_options=LinesOptions(skip=2))
    assert "source_options" not in fixed_fields(plain)
    assert fixed_fields(other)["source_options"] == {"skip": 2}
    assert json.dumps(fixed_fields(other)).count("skip") == 1
    assert fingerprint_of(plain, FILES) != fingerprint_of(other, FILES)


def test_later_fields_count_only_if_they_are_used() -> None:
    plain = JobSpec(source="csv", name="a")
    assert "index" not in fixed_fields(plain)
    indexed = plain.model_copy(update={"index": True})
    assert fixed_fields(indexed) == fixed_fields(plain) | {"index": True}
    assert fingerprint_of(indexed, FILES) != fingerprint_of(plain, FILES)
