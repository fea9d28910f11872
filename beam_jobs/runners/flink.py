"""Whether a pipeline runs on Flink, whose portable runner wants things its own way.

Its batch runner makes one value of all that GroupByKey groups, in memory, and one bundle of
all that a slot gets of a step. A step with state gets values one by one there, and a
bundle for each key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import apache_beam as beam

ASK_SECONDS = 10.0


def is_flink(pipeline: beam.Pipeline) -> bool:
    """Whether Flink runs a pipeline, by Beam's FlinkRunner or behind a job server."""
    # Several runners come with these; most pipelines have the embedded one.
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
    """Whether a job server has options of Flink; may be starting just now."""
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
            return False  # submitting the job tells why
    return any(option.name == "flink_master" for option in answer.options)
