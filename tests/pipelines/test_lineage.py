"""What Beam's lineage has of a job and of the transforms: each place once."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import Lineage
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult
from job_tools import IRIS, convert

from recordmill.beam_jobs.pipelines import lineage
from recordmill.beam_jobs.pipelines.read_dataset import ReadDataset
from recordmill.beam_jobs.pipelines.write_dataset import WriteDataset


def lineage_of(result: PipelineResult) -> tuple[set[str], set[str]]:
    """The sources and sinks of a pipeline that ran."""
    result.wait_until_finish()
    found = result.metrics()
    sources = Lineage.query(found, Lineage.SOURCE)
    return sources, Lineage.query(found, Lineage.SINK)


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_lineage_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    """With one range, and with all steps."""
    results = []
    run = beam.Pipeline.run

    def keep(self: beam.Pipeline, *args: object, **more: object) -> PipelineResult:
        results.append(run(self, *args, **more))
        return results[-1]

    monkeypatch.setattr(beam.Pipeline, "run", keep)
    convert("csv", IRIS, tmp_path / "out", "--exchange", exchange)
    source, sink = (
        f"filesystem:localhost.{IRIS.parent}",
        f"filesystem:localhost.{tmp_path}/out",
    )
    assert lineage_of(results[0]) == ({source}, {sink})


def test_lineage_of_the_transforms(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    convert("csv", IRIS, first)
    pipeline = beam.Pipeline()
    _ = pipeline | ReadDataset(first, as_="example") | WriteDataset(second, name="iris")
    place = "filesystem:localhost."
    assert lineage_of(pipeline.run()) == ({place + first}, {place + second})


def test_places_are_named_as_beam_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file systems of the clouds need their packages, so here the names alone."""
    told: list[str] = []
    monkeypatch.setattr(
        Lineage, "add_raw", lambda self, *segments: told.append("".join(segments))
    )
    lineage.report_lineage(
        sources=["gs://bucket/sets/a/"], range_findings="s3://bucket"
    )
    assert told == ["gcs:bucket.sets/a", "s3:bucket"]


def test_places_in_azure_are_named_as_beam_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Beam's own file system; without an account there is no such name."""
    azure = pytest.importorskip("apache_beam.io.azure.blobstoragefilesystem")
    told: list[str] = []
    monkeypatch.setattr(
        Lineage, "add_raw", lambda self, *segments: told.append("".join(segments))
    )
    theirs = azure.BlobStorageFileSystem(PipelineOptions())
    theirs.report_lineage("azfs://account/container/sets/a", Lineage.sinks())
    assert told == ["abs:account.container.sets/a"]
    ours = "abfss://container@account.dfs.core.windows.net/sets/a"
    lineage.report_lineage(sources=[ours])
    lineage.report_lineage(range_findings="az://container/sets/a")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    lineage.report_lineage(range_findings="az://container/sets/a/")
    assert told == told[:1] * 3
