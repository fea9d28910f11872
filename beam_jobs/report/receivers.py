"""Reports a run to receivers on the network: Prometheus push, OTLP, OpenLineage.

Each receiver has its own thread, so a receiver that hangs delays neither the others nor
the run. At its end, the run waits for all receivers together, at most WAIT_SECONDS. A
failure is a warning; every status except 200 to 299 is a failure. Redirects are not
followed.
Sources: the README of Prometheus' Pushgateway; OpenTelemetry's specification of
environment variables; OpenLineage 2-0-2, its naming of datasets and of parent runs.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from recordmill.beam_jobs.report.monitoring import (
    HELP,
    RunEnd,
    metrics_text,
    run_gauges,
)
from recordmill.beam_jobs.report.summary import appended_totals, outcome_fields
from recordmill.schemas.errors import (
    INTERRUPTED,
    RecordmillError,
    UsageError,
    error_kind,
)
from recordmill.schemas.feature_spec import format_shape
from recordmill.schemas.text import escape_unprintable
from recordmill.transforms.storage.errors import hide_secrets
from recordmill.transforms.storage.reading import full_uri, is_local
from recordmill.transforms.tasks.context import RunContext

if TYPE_CHECKING:
    import requests
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets
    from openlineage.client.generated.parent_run import ParentRunFacet
    from opentelemetry.sdk.resources import Resource

WAIT_SECONDS = 2.0  # maximum delay at the end of a run, for all receivers together
_PACKAGES = ("openlineage", "opentelemetry", "urllib3")
# In messages of packages, addresses, their paths, and values of headers may be secret.
_SECRET = re.compile(r"\w*://[^\s'\"]*|(?<=url: )\S+|(?<=header value: ).*")


class RunStart(NamedTuple):
    """A run whose tasks begin."""

    dataset: str  # name of the dataset
    output: str  # folder that the job writes to
    input_roots: tuple[str, ...]  # folders of the inputs; empty if unknown
    input_bytes: int
    started: float  # Unix time


SendEvent = Callable[[RunStart | RunEnd], None]


class Receivers:
    """The receivers of one run that the options and the environment name."""

    def __init__(self, dataset: str, output: str, metrics_push: str) -> None:
        self._dataset_and_output = dataset, output
        for package in _PACKAGES:  # otherwise Python prints their log messages
            logging.getLogger(package).addHandler(logging.NullHandler())
        self._threads = [
            _ReceiverThread(*receiver)
            for receiver in _find_receivers(metrics_push, dataset)
        ]

    def begin(self, context: RunContext, input_bytes: int) -> None:
        """Sends the start of a run's tasks to all receivers, without waiting."""
        roots = context.publishing.input_roots
        start = RunStart(*self._dataset_and_output, roots, input_bytes, time.time())
        for lane in self._threads:
            lane.events.put(start)

    def end(self, end: RunEnd, seconds: float = WAIT_SECONDS) -> list[str]:
        """Sends the end of the run to all receivers; returns one line per problem."""
        deadline = time.monotonic() + seconds
        for lane in self._threads:
            lane.events.put(end)
        return [
            problem
            for open_lane in self._threads
            for problem in open_lane.close(deadline)
        ]


class _ReceiverThread:
    """A thread that sends the events of a run to one receiver, in order."""

    def __init__(
        self, name: str, connect: Callable[[_ReceiverThread], SendEvent]
    ) -> None:
        self.events: SimpleQueue[RunStart | RunEnd] = SimpleQueue()
        self.notes: list[str] = []  # problems that do not prevent sending
        self._name, self._problem = name, ""
        self._problems_by_url: dict[
            str, str
        ] = {}  # by URL: problem of the last response
        send: SendEvent | None = None
        try:
            # Not in the thread: an import of these packages sets Python's warning
            # filters, while another thread may be about to restore them.
            send = connect(self)
        except ModuleNotFoundError as error:
            self._problem = f"{error}: pip install 'recordmill[lineage,otel]'"
        except Exception as error:
            self._problem = _describe_error(error)
        # A daemon thread: the process does not wait for it.
        self._thread = threading.Thread(
            target=self._work, args=[send], name=name, daemon=True
        )
        self._thread.start()

    def close(self, deadline: float) -> list[str]:
        """Waits until the deadline; returns the problems of this receiver."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        late = "no response in time" if self._thread.is_alive() else ""
        problems = *self.notes, self._problem or self._join_problems() or late
        return [
            escape_unprintable(f"{self._name}: {problem}")
            for problem in problems
            if problem
        ]

    def create_session(self) -> requests.Session:
        """Returns a session that records the response to each request in this object."""
        import requests

        session = requests.Session()
        session.send = partial(self._send, session.send)  # type: ignore[method-assign]
        return session

    def _send(self, send: Callable[..., Any], request: Any, **more: Any) -> Any:
        try:
            # A redirect may lead to a login page, which answers any request with 200.
            answer = send(request, **more | {"allow_redirects": False})
        except Exception as error:
            self._problems_by_url[request.url] = _describe_error(error)
            raise
        is_taken = 200 <= answer.status_code < 300
        problem = f"answered {answer.status_code} {answer.reason}"
        self._problems_by_url[request.url] = "" if is_taken else problem
        return answer

    def _join_problems(self) -> str:
        return ", ".join(filter(None, list(self._problems_by_url.values())))

    def _work(self, send: SendEvent | None) -> None:
        event: RunStart | RunEnd | None = None
        while send and not isinstance(event, RunEnd):
            event, problem = self.events.get(), ""
            try:
                send(event)
            except Exception as error:
                problem = _describe_error(error)
            self._problem = self._problem or self._join_problems() or problem


def _describe_error(error: Exception) -> str:
    """Returns the message of an error, without parts that may be secret."""
    if isinstance(error, RecordmillError):
        return str(error)
    return f"{type(error).__name__}: {_SECRET.sub('...', hide_secrets(str(error)))}"


def _find_receivers(
    push: str, dataset: str
) -> Iterator[tuple[str, Callable[[_ReceiverThread], SendEvent]]]:
    """Yields the name and the connect function of each requested receiver."""
    environment = os.environ
    if push:
        yield f"`metrics_push`: {push}", partial(_connect_prometheus, push, dataset)
    if environment.get("OTEL_SDK_DISABLED", "").lower() != "true":
        for signal, connect in (
            ("METRICS", _connect_otlp_metrics),
            ("TRACES", _connect_otlp_traces),
        ):
            names = "OTEL_EXPORTER_OTLP", f"OTEL_EXPORTER_OTLP_{signal}"
            variables = [
                name
                for prefix in names
                if environment.get(name := f"{prefix}_ENDPOINT")
            ]
            if variables and "otlp" in (
                environment.get(f"OTEL_{signal}_EXPORTER") or "otlp"
            ):
                yield variables[-1], connect
    transport = "OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT"
    if environment.get("OPENLINEAGE_DISABLED", "").lower() != "true":
        if variables := [
            n for n in environment if n.startswith(transport) and environment[n]
        ]:
            yield min(variables, key=len), _connect_openlineage


def _connect_prometheus(url: str, dataset: str, lane: _ReceiverThread) -> SendEvent:
    session, group = lane.create_session(), url.rstrip("/")
    if not re.search(r"/metrics/job(@base64)?/", url):
        group += f"/metrics/job/recordmill/dataset/{dataset or 'NAME'}"
        if not dataset:
            raise UsageError(
                "the dataset's name is not known, so nothing is sent, because no later "
                f"run would replace it: name a group, as in `metrics_push={group}`"
            )

    def send(event: RunStart | RunEnd) -> None:
        if isinstance(event, RunStart):
            return
        # PUT replaces the whole group. POST replaces only the series in the request, so
        # after a failed run the last success and the dataset's numbers remain.
        session.request(
            "PUT" if event.outcome else "POST",
            group,
            data=metrics_text(run_gauges(event), event.dataset),
            headers={"Content-Type": "text/plain; version=0.0.4"},
            timeout=WAIT_SECONDS,
        )

    return send


def _create_otlp_resource(
    signal: str, lane: _ReceiverThread
) -> tuple[Resource, requests.Session | None]:
    """Returns the resource and the session.

    The session is None if a variable names a credential provider.
    """
    from opentelemetry.sdk.resources import Resource

    names = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"
    variable = next((name for name in names if os.environ.get(name)), "")
    if variable and os.environ[variable] != "http/protobuf":
        raise UsageError(
            f"{variable} is {os.environ[variable]}, but only http/protobuf is supported: set "
            "it, and an endpoint for it (port 4318)"
        )
    resource = Resource.create()
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "recordmill"}))
    resource = resource.merge(Resource({"service.version": version("recordmill")}))
    has_credential_provider = any(
        v and "_CREDENTIAL_PROVIDER" in n for n, v in os.environ.items()
    )
    return resource, None if has_credential_provider else lane.create_session()


def _connect_otlp_metrics(lane: _ReceiverThread) -> SendEvent:
    from opentelemetry.exporter.otlp.proto.http import metric_exporter
    from opentelemetry.sdk.metrics import MeterProvider, export

    resource, session = _create_otlp_resource("METRICS", lane)
    reader = export.InMemoryMetricReader()
    exporter = metric_exporter.OTLPMetricExporter(session=session)
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("recordmill")

    def send(event: RunStart | RunEnd) -> None:
        if isinstance(event, RunStart) or not event.dataset:
            return  # no later run would replace series without a dataset
        for name, samples in run_gauges(event).items():
            gauge = meter.create_gauge(f"recordmill_{name}", description=HELP[name])
            for labels, value in samples:
                gauge.set(value, {"dataset": event.dataset, **labels})
        metrics = reader.get_metrics_data()
        if (
            metrics
            and exporter.export(metrics) is not export.MetricExportResult.SUCCESS
        ):
            raise ConnectionError("the metrics were not accepted")

    return send


def _connect_otlp_traces(lane: _ReceiverThread) -> SendEvent:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.trace import TracerProvider, export
    from opentelemetry.sdk.trace.export import in_memory_span_exporter as in_memory
    from opentelemetry.trace.propagation import tracecontext

    resource, session = _create_otlp_resource("TRACES", lane)
    spans = in_memory.InMemorySpanExporter()
    exporter = trace_exporter.OTLPSpanExporter(session=session)
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("recordmill")
    names = "traceparent", "tracestate"  # set by the program that started the run
    carrier = {name: os.environ.get(name.upper(), "") for name in names}
    caller = tracecontext.TraceContextTextMapPropagator().extract(carrier)

    def send(event: RunStart | RunEnd) -> None:
        if isinstance(event, RunStart):
            return
        begun = event.started * 1e9
        run = tracer.start_span(
            "recordmill run",
            caller,
            start_time=int(begun),
            attributes=_span_attributes(event),
        )
        if event.error:
            run.set_status(trace.Status(trace.StatusCode.ERROR, event.message))
        for stage, seconds in event.stages.items():
            inside = trace.set_span_in_context(run)
            span = tracer.start_span(stage, inside, start_time=int(begun))
            begun += seconds * 1e9
            span.end(int(begun))
        run.end(int(event.ended * 1e9))
        sent = exporter.export(spans.get_finished_spans())
        if sent is not export.SpanExportResult.SUCCESS:
            raise ConnectionError("the spans were not accepted")

    return send


def _span_attributes(event: RunEnd) -> dict[str, str | int]:
    """Returns the attributes of a run's span."""
    facts: dict[str, str | int] = {"dataset": event.dataset, "output": event.output}
    if event.outcome is None:
        return facts | {"error.type": error_kind(event.error)} if event.error else facts
    manifest = event.outcome.manifest
    return facts | {
        "status": event.outcome.status,
        "version": manifest.version,
        "fingerprint": manifest.fingerprint,
        "rows_read": manifest.rows_read,
        "rows_rejected": manifest.rows_rejected,
    }


def _connect_openlineage(lane: _ReceiverThread) -> SendEvent:
    from openlineage.client import OpenLineageClient
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets
    from openlineage.client.transport import get_default_factory
    from openlineage.client.transport.http import HttpTransport
    from openlineage.client.uuid import generate_new_uuid

    ours, run_id = version("recordmill"), str(generate_new_uuid())
    # The asynchronous transport follows redirects, and is useless in a thread that waits.
    get_default_factory().register_transport("async_http", HttpTransport)
    client = OpenLineageClient()
    if client.transport.kind == "console":
        if not (client.config.transport or {}).get("type"):
            raise UsageError(
                "no transport is configured there, so no event is sent: name a file "
                "with a transport, or set OPENLINEAGE_URL"
            )
    for transport in (client.transport, *getattr(client.transport, "transports", ())):
        if isinstance(transport, HttpTransport):
            transport.session = lane.create_session()
    facets.set_producer(f"urn:recordmill:{ours}")
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
    of_job: dict[str, facets.JobFacet] = {
        "jobType": facets.job_type_job.JobTypeJobFacet("BATCH", "RECORDMILL", "JOB")
    }
    engine = facets.processing_engine_run.ProcessingEngineRunFacet(ours, "recordmill")
    of_run: dict[str, facets.RunFacet] = {"processing_engine": engine}
    if parent := _find_parent_run(lane.notes):
        of_run["parent"] = parent
    begun: RunStart | None = None

    def emit(
        state: events.RunState, start: RunStart, end: RunEnd | None = None
    ) -> None:
        at = datetime.fromtimestamp(end.ended if end else start.started, UTC)
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
                inputs=_lineage_inputs(start, end),
                outputs=_lineage_outputs(start, end),
            )
        )

    def send(event: RunStart | RunEnd) -> None:
        nonlocal begun
        if isinstance(event, RunStart):
            emit(events.RunState.START, begun := event)
            return
        if not event.output:
            return  # the job could not be read, so nothing is known about it
        if begun is None:  # the run failed before its tasks, or had nothing to do
            roots = event.outcome.input_roots if event.outcome else ()
            begun = RunStart(event.dataset, event.output, roots, 0, event.started)
            emit(events.RunState.START, begun)
        state = events.RunState.COMPLETE
        if event.error:
            is_stopped = error_kind(event.error) == INTERRUPTED
            state = events.RunState.ABORT if is_stopped else events.RunState.FAIL
        emit(state, begun, event)
        if not client.close(WAIT_SECONDS):  # some transports send later
            raise TimeoutError("not all events were accepted in time")

    return send


def _find_parent_run(notes: list[str]) -> ParentRunFacet | None:
    """Returns the run that started this run, if the environment names one."""
    from openlineage.client.facet_v2 import parent_run as facets

    environment, name, form = os.environ, "OPENLINEAGE_PARENT_ID", "namespace/job/UUID"
    try:
        if text := environment.get("OPENLINEAGE_CONTEXT"):
            name, form = "OPENLINEAGE_CONTEXT", 'JSON with a "parent"'
            parent = json.loads(text)["parent"]
            root = parent.get("root") or parent
        elif text := environment.get(name):
            root = parent = _parse_run_name(text)
            if text := environment.get("OPENLINEAGE_ROOT_PARENT_ID"):
                name = "OPENLINEAGE_ROOT_PARENT_ID"
                root = _parse_run_name(text)
        else:
            return None
        return facets.ParentRunFacet(
            facets.Run(**parent["run"]),
            facets.Job(**parent["job"]),
            facets.Root(facets.RootRun(**root["run"]), facets.RootJob(**root["job"])),
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        notes.append(
            f"{name} is {environment[name]}, expected {form}: correct or unset it. The "
            "events have no parent"
        )
        return None


def _parse_run_name(text: str) -> dict[str, Any]:
    """Returns the run that a text like airflow/dag.task/UUID names."""
    namespace, name, run_id = text.rsplit("/", 2)
    run = {"runId": str(UUID(run_id))}
    return {"run": run, "job": {"namespace": namespace, "name": name}}


def _lineage_inputs(start: RunStart, end: RunEnd | None) -> list[events.InputDataset]:
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets

    input_facets: dict[str, facets.InputDatasetFacet] = {}
    outcome = end.outcome if end else None
    # The statistics cover all inputs together, so they need a single input root.
    if outcome and outcome.status == "done" and len(start.input_roots) == 1:
        rows = (appended_totals(outcome) or outcome_fields(outcome))["rows_read"]
        statistics = facets.input_statistics_input_dataset
        numbers = statistics.InputStatisticsInputDatasetFacet(rows, start.input_bytes)
        input_facets = {"inputStatistics": numbers}
    places = map(_dataset_address, start.input_roots)
    return [events.InputDataset(*place, inputFacets=input_facets) for place in places]


def _lineage_outputs(start: RunStart, end: RunEnd | None) -> list[events.OutputDataset]:
    from openlineage.client import event_v2 as events
    from openlineage.client import facet_v2 as facets

    place = _dataset_address(start.output)
    if end is None or end.outcome is None:
        return [events.OutputDataset(*place)]
    outcome, manifest = end.outcome, end.outcome.manifest
    schema, dataset_version = facets.schema_dataset, facets.dataset_version_dataset
    fields = [
        schema.SchemaDatasetFacetFields(
            feature.name, feature.dtype + format_shape(feature.shape)
        )
        for feature in manifest.features
    ]
    number = f"{manifest.version}+{manifest.fingerprint}"
    described: dict[str, facets.DatasetFacet] = {
        "schema": schema.SchemaDatasetFacet(fields),
        "version": dataset_version.DatasetVersionDatasetFacet(number),
    }
    written: dict[str, facets.OutputDatasetFacet] = {}
    if outcome.status == "done":
        totals = appended_totals(outcome) or outcome_fields(outcome)
        numbers = (totals[name] for name in ("records", "bytes", "shards"))
        statistics = facets.output_statistics_output_dataset
        facet = statistics.OutputStatisticsOutputDatasetFacet(*numbers)
        written["outputStatistics"] = facet
    return [events.OutputDataset(*place, facets=described, outputFacets=written)]


def _dataset_address(uri: str) -> tuple[str, str]:
    """Returns OpenLineage's namespace and name of a folder."""
    if is_local(uri):
        return "file", full_uri(uri)
    scheme, _, address = uri.partition("://")
    bucket, _, path = address.partition("/")
    return f"{scheme}://{bucket}", path.rstrip("/") or "/"
