"""Tells receivers on the network how a run goes: Prometheus push, OTLP, OpenLineage.

Each has a thread of its own, which imports its packages, too. So one that hangs delays
neither the others nor the run, which waits at its end for all of them together, and no
longer than WAIT_SECONDS. What fails is a warning.
Sources: the README of Prometheus' Pushgateway; OpenTelemetry's specification of
environment variables; OpenLineage 2-0-2, its naming of datasets and of parent runs.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from recordmill.beam_jobs.report.monitoring import (
    HELP,
    RunEnd,
    metrics_text,
    run_gauges,
)
from recordmill.beam_jobs.report.summary import appended_facts, outcome_facts
from recordmill.schemas.errors import INTERRUPTED, UsageError, kind_of
from recordmill.schemas.feature_spec import shape_text
from recordmill.schemas.text import printable
from recordmill.transforms.storage.reading import full_uri, is_local
from recordmill.transforms.tasks.context import RunContext

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        InputDatasetFacet,
        JobFacet,
        OutputDatasetFacet,
        RunFacet,
    )
    from openlineage.client.generated.parent_run import ParentRunFacet
    from opentelemetry.sdk.resources import Resource

WAIT_SECONDS = 2.0  # that all receivers together may delay the end of a run
_PACKAGES = ("openlineage", "opentelemetry", "urllib3")


class RunStart(NamedTuple):
    """A run whose tasks begin."""

    dataset: str  # its name
    output: str  # where the job writes
    input_root: str  # below which all inputs are; "" if that is not known
    input_bytes: int
    time: float  # Unix time


Send = Callable[[RunStart | RunEnd], None]


class Receivers:
    """The receivers of one run that the options and the environment name."""

    def __init__(self, dataset: str, output: str, metrics_push: str) -> None:
        self._job = dataset, output
        for package in _PACKAGES:  # else Python prints what they log
            logging.getLogger(package).addHandler(logging.NullHandler())
        self._lanes = [_Lane(*each) for each in _wanted(metrics_push)]

    def begin(self, context: RunContext, input_bytes: int) -> None:
        """Tells them that the tasks of a run begin; waits for nobody."""
        root = context.publishing.input_root
        start = RunStart(*self._job, root, input_bytes, time.time())
        for lane in self._lanes:
            lane.events.put(start)

    def end(self, end: RunEnd, seconds: float = WAIT_SECONDS) -> list[str]:
        """Tells them how the run ended; returns what went wrong, a line for each."""
        deadline = time.monotonic() + seconds
        for lane in self._lanes:
            lane.events.put(end)
        return [problem for each in self._lanes if (problem := each.close(deadline))]


class _Lane:
    """A thread that sends to one receiver, in order, what happens in a run."""

    def __init__(self, name: str, connect: Callable[[], Send]) -> None:
        self.events: SimpleQueue[RunStart | RunEnd] = SimpleQueue()
        self._name, self._connect, self._problem = name, connect, ""
        # A daemon: the process does not wait for it.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def close(self, deadline: float) -> str:
        """Returns what went wrong until the deadline, or ""."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        problem = "no answer in time" if self._thread.is_alive() else self._problem
        return printable(f"{self._name}: {problem}") if problem else ""

    def _work(self) -> None:
        send: Send | None = None
        event: RunStart | RunEnd | None = None
        while not isinstance(event, RunEnd):
            try:
                send = send or self._connect()
                event = self.events.get()
                send(event)
            except ModuleNotFoundError as error:
                self._problem = f"{error}: pip install 'recordmill[lineage,otel]'"
                return
            except Exception as error:
                self._problem = self._problem or f"{type(error).__name__}: {error}"
                if send is None:
                    return


def _wanted(metrics_push: str) -> Iterator[tuple[str, Callable[[], Send]]]:
    """Yields the names of the receivers, and what connects to each."""
    given = os.environ
    if metrics_push:
        yield f"`metrics_push`: {metrics_push}", partial(_prometheus, metrics_push)
    if given.get("OTEL_SDK_DISABLED", "").lower() != "true":
        for signal, connect in (("METRICS", _otlp_metrics), ("TRACES", _otlp_traces)):
            names = "OTEL_EXPORTER_OTLP", f"OTEL_EXPORTER_OTLP_{signal}"
            places = [name for each in names if given.get(name := f"{each}_ENDPOINT")]
            if places and "otlp" in given.get(f"OTEL_{signal}_EXPORTER", "otlp"):
                yield places[-1], connect
    transport = "OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT"
    if given.get("OPENLINEAGE_DISABLED", "").lower() != "true":
        if places := [name for name in given if name.startswith(transport)]:
            yield min(places, key=len), _openlineage


def _prometheus(url: str) -> Send:
    import requests

    def send(event: RunStart | RunEnd) -> None:
        if isinstance(event, RunStart):
            return
        place = url.rstrip("/")
        if "/metrics/job/" not in urlsplit(place).path:
            label = f"dataset/{event.dataset}" if event.dataset else "dataset@base64/="
            place += f"/metrics/job/recordmill/{label}"
        # PUT replaces all of the group. POST replaces the series that it has, so a
        # failed run leaves the last success and the dataset's numbers.
        requests.request(
            "PUT" if event.outcome else "POST",
            place,
            data=metrics_text(run_gauges(event), event.dataset),
            headers={"Content-Type": "text/plain; version=0.0.4"},
            timeout=WAIT_SECONDS,
        ).raise_for_status()

    return send


def _otlp_resource() -> Resource:
    from opentelemetry.sdk.resources import Resource

    wanted = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    if wanted != "http/protobuf":
        raise UsageError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {wanted}, but only http/protobuf is spoken "
            "here: set that, and an endpoint for it (port 4318)"
        )
    found = Resource.create()
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "recordmill"}))
    return found.merge(Resource({"service.version": version("recordmill")}))


def _otlp_metrics() -> Send:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        InMemoryMetricReader,
        MetricExportResult,
    )

    reader, exporter = InMemoryMetricReader(), OTLPMetricExporter()
    provider = MeterProvider([reader], _otlp_resource(), shutdown_on_exit=False)
    meter = provider.get_meter("recordmill")

    def send(event: RunStart | RunEnd) -> None:
        if isinstance(event, RunStart):
            return
        for name, samples in run_gauges(event).items():
            gauge = meter.create_gauge(f"recordmill_{name}", description=HELP[name])
            for labels, value in samples:
                gauge.set(value, {"dataset": event.dataset, **labels})
        data = reader.get_metrics_data()
        if data and exporter.export(data) is not MetricExportResult.SUCCESS:
            raise ConnectionError("the metrics were not taken")

    return send


def _otlp_traces() -> Send:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
        InMemorySpanExporter,
    )
    from opentelemetry.trace import Status, StatusCode, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )

    spans, exporter = InMemorySpanExporter(), OTLPSpanExporter()
    provider = TracerProvider(resource=_otlp_resource(), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("recordmill")
    names = "traceparent", "tracestate"  # of the program that started the run
    carrier = {name: os.environ.get(name.upper(), "") for name in names}
    caller = TraceContextTextMapPropagator().extract(carrier)

    def send(event: RunStart | RunEnd) -> None:
        if isinstance(event, RunStart):
            return
        begun = event.started * 1e9
        run = tracer.start_span(
            "recordmill run", caller, start_time=int(begun), attributes=_facts_of(event)
        )
        if event.error:
            run.set_status(Status(StatusCode.ERROR, event.message))
        for stage, seconds in event.stages.items():
            inside = set_span_in_context(run)
            span = tracer.start_span(stage, inside, start_time=int(begun))
            begun += seconds * 1e9
            span.end(int(begun))
        run.end(int(event.ended * 1e9))
        if exporter.export(spans.get_finished_spans()) is not SpanExportResult.SUCCESS:
            raise ConnectionError("the spans were not taken")

    return send


def _facts_of(event: RunEnd) -> dict[str, str | int]:
    """Returns the attributes of a run's span."""
    facts: dict[str, str | int] = {"dataset": event.dataset, "output": event.output}
    if event.outcome is None:
        return facts | {"error.type": kind_of(event.error)} if event.error else facts
    manifest = event.outcome.manifest
    return facts | {
        "status": event.outcome.status,
        "version": manifest.version,
        "fingerprint": manifest.fingerprint,
        "rows_read": manifest.rows_read,
        "rows_rejected": manifest.rows_rejected,
    }


def _openlineage() -> Send:
    from openlineage.client import OpenLineageClient
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets
    from openlineage.client.uuid import generate_new_uuid

    ours, run_id = version("recordmill"), str(generate_new_uuid())
    client = OpenLineageClient()
    facets.set_producer(f"urn:recordmill:{ours}")
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "default")
    of_job: dict[str, JobFacet] = {
        "jobType": facets.job_type_job.JobTypeJobFacet("BATCH", "RECORDMILL", "JOB")
    }
    engine = facets.processing_engine_run.ProcessingEngineRunFacet(ours, "recordmill")
    of_run: dict[str, RunFacet] = {"processing_engine": engine}
    if parent := _parent_run():
        of_run["parent"] = parent
    begun: RunStart | None = None

    def emit(
        state: events.RunState, start: RunStart, end: RunEnd | None = None
    ) -> None:
        at = datetime.fromtimestamp(end.ended if end else start.time, UTC)
        failed = {}
        if end and end.error:
            error = facets.error_message_run.ErrorMessageRunFacet(end.message, "python")
            failed = {"errorMessage": error}
        client.emit(
            events.RunEvent(
                eventTime=at.isoformat().replace("+00:00", "Z"),
                eventType=state,
                run=events.Run(run_id, {**of_run, **failed}),
                job=events.Job(namespace, start.dataset, of_job),
                inputs=_inputs(start, end),
                outputs=_outputs(start, end),
            )
        )

    def send(event: RunStart | RunEnd) -> None:
        nonlocal begun
        if isinstance(event, RunStart):
            emit(events.RunState.START, begun := event)
            return
        if not event.output:
            return  # of a job that could not be read nothing is known
        if begun is None:  # it failed before, or found nothing to do
            root = event.outcome.locator.root if event.outcome else ""
            begun = RunStart(event.dataset, event.output, root, 0, event.started)
            emit(events.RunState.START, begun)
        state = events.RunState.COMPLETE
        if event.error:
            is_stopped = kind_of(event.error) == INTERRUPTED
            state = events.RunState.ABORT if is_stopped else events.RunState.FAIL
        emit(state, begun, event)

    return send


def _parent_run() -> ParentRunFacet | None:
    """Returns the run that started this one, as the environment names it."""
    from openlineage.client.facet_v2 import parent_run as facets

    given = os.environ
    if found := given.get("OPENLINEAGE_CONTEXT"):
        parent = json.loads(found)["parent"]
        parent.setdefault("root", {"run": parent["run"], "job": parent["job"]})
    elif found := given.get("OPENLINEAGE_PARENT_ID"):
        parent = _named_run(found)
        parent["root"] = _named_run(given.get("OPENLINEAGE_ROOT_PARENT_ID", found))
    else:
        return None
    root = parent["root"]
    return facets.ParentRunFacet(
        facets.Run(**parent["run"]),
        facets.Job(**parent["job"]),
        facets.Root(facets.RootRun(**root["run"]), facets.RootJob(**root["job"])),
    )


def _named_run(text: str) -> dict[str, Any]:
    """Returns the run of a text like airflow/dag.task/UUID."""
    namespace, name, run_id = text.rsplit("/", 2)
    return {"run": {"runId": run_id}, "job": {"namespace": namespace, "name": name}}


def _inputs(start: RunStart, end: RunEnd | None) -> list[InputDataset]:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as facets

    if not start.input_root:
        return []
    found: dict[str, InputDatasetFacet] = {}
    if end and end.outcome and end.outcome.status == "done":
        rows = (appended_facts(end.outcome) or outcome_facts(end.outcome))["rows_read"]
        numbers = facets.InputStatisticsInputDatasetFacet(rows, start.input_bytes)
        found = {"inputStatistics": numbers}
    return [InputDataset(*_place(start.input_root), inputFacets=found)]


def _outputs(start: RunStart, end: RunEnd | None) -> list[OutputDataset]:
    from openlineage.client import facet_v2 as facets
    from openlineage.client.event_v2 import OutputDataset

    if end is None or end.outcome is None:
        return [OutputDataset(*_place(start.output))]
    outcome, manifest = end.outcome, end.outcome.manifest
    fields = [
        facets.schema_dataset.SchemaDatasetFacetFields(
            feature.name, f"{feature.dtype}{shape_text(feature.shape)}"
        )
        for feature in manifest.features
    ]
    described: dict[str, DatasetFacet] = {
        "schema": facets.schema_dataset.SchemaDatasetFacet(fields),
        "version": facets.dataset_version_dataset.DatasetVersionDatasetFacet(
            f"{manifest.version}+{manifest.fingerprint}"
        ),
    }
    written: dict[str, OutputDatasetFacet] = {}
    if outcome.status == "done":
        made = appended_facts(outcome) or outcome_facts(outcome)
        numbers = (made[name] for name in ("records", "bytes", "shards"))
        statistics = facets.output_statistics_output_dataset
        written["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
            *numbers
        )
    return [
        OutputDataset(*_place(start.output), facets=described, outputFacets=written)
    ]


def _place(uri: str) -> tuple[str, str]:
    """Returns the namespace and the name that OpenLineage has for a folder."""
    if is_local(uri):
        return "file", full_uri(uri)
    scheme, _, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    return f"{scheme}://{bucket}", path.rstrip("/") or "/"
