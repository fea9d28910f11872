"""WriteDataset and ReadDataset in pipelines on engines of their own."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from clusters import Engines, prism
from job_tools import assert_whole, contents
from rows_tools import JOB, ROWS, SCHEMA

from recordmill.beam_jobs.pipelines.read_dataset import ReadDataset
from recordmill.beam_jobs.pipelines.write_dataset import (
    WriteDataset,
    choose_rows_exchange,
)
from recordmill.beam_jobs.runners.embedded import is_flink


def test_flink_is_known_behind_its_job_server(engines: Engines) -> None:
    with prism(engines.folder) as endpoint:
        for flags, known in (
            (engines.flink(in_threads=True), True),
            (engines.spark(in_threads=True), False),
            (engines.own_prism(), False),
            (["--runner=PortableRunner", f"--job_endpoint={endpoint}"], False),
        ):
            pipeline = beam.Pipeline(options=PipelineOptions(flags))
            assert is_flink(pipeline) == known
            assert choose_rows_exchange(pipeline) == ("scratch" if known else "engine")


@pytest.mark.parametrize("exchange", ["engine", "scratch"])
@pytest.mark.parametrize("engine", ["prism", "flink", "spark"])
def test_rows_of_a_pipeline(
    tmp_path: Path, engines: Engines, rows_dataset: Path, engine: str, exchange: str
) -> None:
    """Rows come to it as the engine hands them out."""
    beam_options = {
        "prism": engines.own_prism,
        "flink": lambda: engines.flink(in_threads=True),
        "spark": lambda: engines.spark(in_threads=True),
    }[engine]()
    options = PipelineOptions([*beam_options, "--parallelism=2"])
    with beam.Pipeline(options=options) as p:
        rows = p | beam.Create(ROWS) | beam.Reshuffle()
        rows | WriteDataset(tmp_path / "out", SCHEMA, exchange=exchange, **JOB)
    assert_whole(tmp_path / "out")
    assert contents(tmp_path / "out") == contents(rows_dataset)
    with beam.Pipeline(options=options) as p:
        found = p | ReadDataset(tmp_path / "out") | beam.combiners.Count.Globally()
        found | beam.io.WriteToText(str(tmp_path / "count"), shard_name_template="")
    assert (tmp_path / "count").read_text() == f"{len(ROWS)}\n"
