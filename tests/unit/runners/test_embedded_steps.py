"""What the embedded runner spares a pipeline, and no other one."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.internal import pickler

from recordmill.beam_jobs.runners.embedded import pipeline_options, run_pipeline


def is_compressed(pickled: bytes) -> bool:
    return base64.b64decode(pickled).startswith(b"BZh")


def test_steps_are_compressed_only_where_they_may_leave_the_process() -> None:
    before, found = pickler.dumps([7]), dict[str, Any]()

    def build(pipeline: beam.Pipeline) -> None:
        found["own"] = pickler.dumps([8])
        with ThreadPoolExecutor(1) as others:
            found["other"] = others.submit(pickler.dumps, [9]).result()
        found["loaded"] = [
            pickler.loads(each) for each in (before, found["own"], found["other"])
        ]
        rows = (
            pipeline | beam.Create([1, 2, 3]) | beam.Map(lambda row: row * found["by"])
        )
        rows | beam.combiners.Count.Globally() | beam.Map(print)

    found["by"] = 2
    run_pipeline(build, pipeline_options((), 1))
    assert found["loaded"] == [[7], [8], [9]]
    assert [is_compressed(found[name]) for name in ("own", "other")] == [False, True]
    assert is_compressed(pickler.dumps([10]))
    assert is_compressed(before)
