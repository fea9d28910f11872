"""Detects pipelines on Flink, whose portable batch runner needs other steps.

It holds each group of GroupByKey in memory as one value, and makes one bundle of all
that a slot gets of a step. A stateful step gets values one by one, with one bundle per
key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apache_beam as beam

ASK_SECONDS = 10.0


def is_flink(pipeline: beam.Pipeline) -> bool:
    """Returns whether Flink runs a pipeline, also through a job server."""
    # Imported here: most pipelines use the embedded runner, and do not need these.
    from apache_beam.options.pipeline_options import PortableOptions
    from apache_beam.runners.portability.flink_runner import FlinkRunner
    from apache_beam.runners.portability.portable_runner import PortableRunner

    runner = pipeline.runner
    if isinstance(runner, FlinkRunner):
        return True
    if type(runner) is not PortableRunner:
        return False
    endpoint = pipeline.options.view_as(PortableOptions).job_endpoint
    return bool(endpoint) and endpoint != "embed" and _serves_flink(endpoint)


def _serves_flink(endpoint: str) -> bool:
    """Returns whether a job server (it may still be starting) has Flink's options."""
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            answer = service.DescribePipelineOptions(
                request, timeout=ASK_SECONDS, wait_for_ready=True
            )
        except grpc.RpcError:
            return False  # submitting the job will show the error
    return any(option.name == "flink_master" for option in answer.options)
