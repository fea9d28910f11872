"""What receivers on the network get of a run: Prometheus push, OTLP, OpenLineage."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from http_receiver import HttpReceiver, receiver
from job_tools import COMMAND, IRIS, convert, manifest_of, recordmill
from jsonschema import Draft202012Validator
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from referencing import Registry, Resource

from recordmill.beam_jobs.report import receivers
from recordmill.transforms.storage import open_store

SPEC = Path(__file__).parents[1] / "data" / "openlineage"
STAGES = ["prepare", "read", "write", "publish"]
PARENT = "01938a1c-7c6d-7bd5-8a3e-4b1c2d3e4f50"
ROOT = "01938a1c-7c6d-7bd5-8a3e-000000000001"
Event = dict[str, Any]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits until all is sent: this machine may be busy."""
    end = receivers.Receivers.end
    monkeypatch.setattr(
        receivers.Receivers, "end", lambda self, told, *_: end(self, told, 100)
    )


@pytest.fixture
def server() -> Iterator[HttpReceiver]:
    with receiver() as found:
        yield found


# --- Prometheus push ---


@pytest.mark.usefixtures("patient")
def test_a_run_is_pushed(tmp_path: Path, server: HttpReceiver) -> None:
    """The group is replaced, by the text that the textfile has."""
    file = tmp_path / "m.prom"
    options = ["--metrics-push", server.url, "--metrics-file", file]
    convert("csv", IRIS, tmp_path / "iris", *options)
    [request] = server.requests
    assert request.method == "PUT"
    assert request.path == "/metrics/job/recordmill/dataset/iris"
    assert request.kind == "text/plain; version=0.0.4"
    assert request.body == file.read_bytes()


@pytest.mark.usefixtures("patient")
def test_a_failure_is_pushed_beside_the_last_success(
    tmp_path: Path, server: HttpReceiver
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text("source: csv\ninputs: no.csv\noutput: out\n")
    options = ["--metrics-push", f"{server.url}/metrics/job/nightly"]
    assert recordmill("run", job, *options).status == 65
    job.write_text("source: nothing\n")
    assert recordmill("run", job, *options).status == 2
    for request, kind in zip(server.requests, ("data", "usage"), strict=True):
        assert (request.method, request.path) == ("POST", "/metrics/job/nightly")
        assert b"recordmill_last_run_success{" in request.body
        failures = re.findall(r'kind="(\w+)"} 1\n', request.body.decode())
        assert failures == [kind]
        assert b"last_success" not in request.body


@pytest.mark.usefixtures("patient")
def test_a_job_without_a_name_is_pushed_to_a_group_that_is_named(
    tmp_path: Path, server: HttpReceiver
) -> None:
    """No later run would replace another one; the group of the message works."""
    job = tmp_path / "job.yaml"
    job.write_text("source: nothing\n")
    ran = recordmill("run", job, "--metrics-push", server.url)
    assert (ran.status, server.requests) == (2, [])
    found = re.search(r"metrics_push: (http\S+)", ran.err.split("as in")[-1])
    assert found
    url = found[1].replace("NAME", "iris")
    assert recordmill("run", job, "--metrics-push", url).status == 2
    convert("csv", IRIS, tmp_path / "iris", "--metrics-push", server.url)
    failed, done = server.requests
    assert (failed.method, done.method) == ("POST", "PUT")
    assert failed.path == done.path == "/metrics/job/recordmill/dataset/iris"


@pytest.mark.usefixtures("patient")
def test_a_group_in_base64_is_taken_as_it_is(
    tmp_path: Path, server: HttpReceiver
) -> None:
    group = "/metrics/job@base64/bmlnaHRseS9vbmU="
    convert("csv", IRIS, tmp_path / "out", "--metrics-push", server.url + group)
    assert [request.path for request in server.requests] == [group]


@pytest.mark.parametrize(
    "url",
    [
        "http://me:planted@127.0.0.1:1",
        "http://planted@127.0.0.1:1",
        "http://127.0.0.1:1/?token=planted",
        "http://127.0.0.1:1/#planted",
    ],
)
def test_a_push_url_is_an_address_alone(tmp_path: Path, url: str) -> None:
    push = ["--metrics-push", url]
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", *push)
    assert ran.status == 2
    assert "--metrics-push http://" in ran.err
    assert "planted" not in ran.err + ran.out
    assert not (tmp_path / "out").exists()


# --- OTLP ---


@pytest.mark.usefixtures("patient")
def test_otlp(
    tmp_path: Path, server: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The series of the textfile, and a span for the run and each of its stages."""
    trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("TRACEPARENT", f"00-{trace}-{caller}-01")
    file, output = tmp_path / "m.prom", tmp_path / "iris"
    convert("csv", IRIS, output, "--shards", 2, "--metrics-file", file)
    found = {request.path: request.body for request in server.requests}
    metrics = ExportMetricsServiceRequest.FromString(found["/v1/metrics"])
    [of_run] = metrics.resource_metrics
    resource = {
        each.key: each.value.string_value for each in of_run.resource.attributes
    }
    assert resource["service.name"] == "recordmill"
    series = {}
    for metric in of_run.scope_metrics[0].metrics:
        for point in metric.gauge.data_points:
            pairs = ((a.key, a.value.string_value) for a in point.attributes)
            labels = ",".join(f'{key}="{text}"' for key, text in pairs)
            series[f"{metric.name}{{{labels}}}"] = point.as_double or point.as_int
    written = dict(
        line.rsplit(" ", 1)
        for line in file.read_text().splitlines()
        if not line.startswith("#")
    )
    assert series == {
        name: pytest.approx(float(value)) for name, value in written.items()
    }

    spans = ExportTraceServiceRequest.FromString(found["/v1/traces"])
    *stages, run = spans.resource_spans[0].scope_spans[0].spans
    assert [span.name for span in stages] == STAGES
    assert {span.parent_span_id for span in stages} == {run.span_id}
    assert run.parent_span_id.hex() == caller
    assert {span.trace_id.hex() for span in (run, *stages)} == {trace}
    for before, after in pairwise(stages):
        assert before.end_time_unix_nano == after.start_time_unix_nano
    assert run.start_time_unix_nano <= stages[0].start_time_unix_nano
    facts = {each.key: each.value.string_value for each in run.attributes}
    assert facts["fingerprint"] == manifest_of(output)["fingerprint"]
    assert run.status.code == 0


@pytest.mark.usefixtures("patient")
def test_otlp_of_a_failure(
    tmp_path: Path, server: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{server.url}/spans")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "nightly")
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1\n")
    assert recordmill("convert", "csv", source, tmp_path / "out").status == 65
    [request] = server.requests
    assert request.path == "/spans"
    [sent] = ExportTraceServiceRequest.FromString(request.body).resource_spans
    names = {each.key: each.value.string_value for each in sent.resource.attributes}
    assert names["service.name"] == "nightly"
    run = sent.scope_spans[0].spans[-1]
    assert run.status.code == 2
    assert run.status.message.startswith("1 of 1 row rejected")


@pytest.mark.usefixtures("patient")
def test_otlp_of_another_protocol(
    tmp_path: Path, server: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way out that the warning names works."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in ran.err
    assert server.requests == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "Warning" not in ran.err
    assert len(server.requests) == 1


@pytest.mark.usefixtures("patient")
def test_the_protocol_of_a_signal_decides(
    tmp_path: Path, server: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that are empty are not set."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in ran.err
    assert [request.path for request in server.requests] == ["/v1/metrics"]
    server.requests.clear()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is http/json" in ran.err
    assert [request.path for request in server.requests] == ["/v1/traces"]


@pytest.mark.usefixtures("patient")
def test_otlp_of_a_job_without_a_name(
    tmp_path: Path, server: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Series without a dataset would stay; the trace has the error."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    job = tmp_path / "job.yaml"
    job.write_text("source: nothing\n")
    assert recordmill("run", job).status == 2
    assert [request.path for request in server.requests] == ["/v1/traces"]


# --- OpenLineage ---


def lineage_of(server: HttpReceiver) -> list[Event]:
    """The events that came, each and its facets as the specification has them."""
    contents = [json.loads(path.read_bytes()) for path in SPEC.glob("*.json")]
    specs = Registry().with_resources(
        (content["$id"], Resource.from_contents(content)) for content in contents
    )

    def check(value: Any, url: str) -> None:
        form = {"$ref": url}
        validator = Draft202012Validator(
            form, registry=specs, format_checker=Draft202012Validator.FORMAT_CHECKER
        )
        validator.validate(value)

    found = [json.loads(request.body) for request in server.requests]
    for event in found:
        check(event, event["schemaURL"])
        holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
        for holder in holders:
            for kind in ("facets", "inputFacets", "outputFacets"):
                for facet in holder.get(kind, {}).values():
                    check(facet, facet["_schemaURL"])
    return found


@pytest.fixture
def lineage(
    server: HttpReceiver, monkeypatch: pytest.MonkeyPatch, patient: None
) -> HttpReceiver:
    monkeypatch.setenv("OPENLINEAGE_URL", server.url)
    for name in ("TRANSPORTS__DEFAULT_HTTP__TYPE", "TYPE"):  # the client sets such ones
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", "")
        monkeypatch.delenv(f"OPENLINEAGE__TRANSPORT__{name}")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    return server


def test_lineage_of_a_run(
    tmp_path: Path, lineage: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "OPENLINEAGE_NAMESPACE", "nights")
    monkeypatch.setitem(
        os.environ, "OPENLINEAGE_PARENT_ID", f"air/dag.convert/{PARENT}"
    )
    monkeypatch.setitem(os.environ, "OPENLINEAGE_ROOT_PARENT_ID", f"air/dag/{ROOT}")
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.csv").write_text("a,b\n1,x\n2\n3,y\n")
    job = ["--max-rejects", 1, "--dataset-version", "auto", "--name", "rows"]
    convert("csv", source, output, *job)
    begun, done = lineage_of(lineage)
    assert [begun["eventType"], done["eventType"]] == ["START", "COMPLETE"]
    assert begun["run"]["runId"] == done["run"]["runId"]
    for event in (begun, done):
        assert event["job"]["namespace"] == "nights"
        assert event["job"]["name"] == "rows"
        [read], [written] = event["inputs"], event["outputs"]
        assert (read["namespace"], read["name"]) == ("file", str(source))
        assert (written["namespace"], written["name"]) == ("file", str(output))
        parent = event["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == PARENT
        assert (parent["job"]["namespace"], parent["job"]["name"]) == (
            "air",
            "dag.convert",
        )
        assert parent["root"]["run"]["runId"] == ROOT
    manifest = manifest_of(output / "1.0.0")
    fields = written["facets"]["schema"]["fields"]
    assert {f["name"]: f["type"] for f in fields} == {"a": "int64[]", "b": "string[]"}
    version = written["facets"]["version"]["datasetVersion"]
    assert version == f"1.0.0+{manifest['fingerprint']}"
    statistics = written["outputFacets"]["outputStatistics"]
    shards = manifest["splits"]["train"]
    size = shards["bytes"]
    assert (statistics["rowCount"], statistics["size"]) == (2, size)
    assert statistics["fileCount"] == 1
    numbers = read["inputFacets"]["inputStatistics"]
    assert numbers["rowCount"] == 3
    assert numbers["size"] == (source / "a.csv").stat().st_size

    lineage.requests.clear()
    convert("csv", source, output, *job)  # nothing to do
    begun, done = lineage_of(lineage)
    assert [begun["eventType"], done["eventType"]] == ["START", "COMPLETE"]
    assert "outputStatistics" not in done["outputs"][0].get("outputFacets", {})
    assert done["outputs"][0]["facets"]["version"]["datasetVersion"] == version


def test_lineage_of_a_failure(tmp_path: Path, lineage: HttpReceiver) -> None:
    source = tmp_path / "in.csv"
    for rows, begins in (("a,b\n1\n", "1 of 1 row rejected"), ("", "")):
        source.write_text(rows)
        assert recordmill("convert", "csv", source, tmp_path / "out").status == 65
        begun, failed = lineage_of(lineage)
        assert [begun["eventType"], failed["eventType"]] == ["START", "FAIL"]
        assert failed["run"]["facets"]["errorMessage"]["message"].startswith(begins)
        assert failed["outputs"][0]["name"] == str(tmp_path / "out")
        lineage.requests.clear()


def test_lineage_of_an_append_has_what_it_added(
    tmp_path: Path, lineage: HttpReceiver
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for night, rows in enumerate(("1,2\n3,4\n", "5,6\n")):
        (folder / f"{night}.csv").write_text(f"a,b\n{rows}")
        convert("csv", folder, tmp_path / "out", "--append")
    *_, done = lineage_of(lineage)
    assert done["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert done["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 1


def test_lineage_in_the_context_of_an_orchestrator(
    tmp_path: Path, lineage: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"namespace": "dagster", "name": "assets"}
    context = {"parent": {"run": {"runId": PARENT}, "job": job}}
    monkeypatch.setitem(os.environ, "OPENLINEAGE_CONTEXT", json.dumps(context))
    convert("csv", IRIS, tmp_path / "out")
    parent = lineage_of(lineage)[-1]["run"]["facets"]["parent"]
    assert parent["job"]["name"] == parent["root"]["job"]["name"] == "assets"


def test_lineage_of_folders_that_are_apart(
    tmp_path: Path, lineage: HttpReceiver
) -> None:
    """Each is an input, also where there is nothing to do."""
    folders = [tmp_path / "raw" / "a", tmp_path / "other" / "b"]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        (folder / f"{number}.csv").write_text(f"a,b\n{number},2\n")
    for _ in range(2):
        convert("csv", *folders, tmp_path / "out")
    events = lineage_of(lineage)
    assert len(events) == 4
    for event in events:
        assert [each["name"] for each in event["inputs"]] == [*map(str, folders)]
    lineage.requests.clear()
    convert("csv", f"{tmp_path}/*/*/*.csv", tmp_path / "all")
    [read] = lineage_of(lineage)[-1]["inputs"]
    assert read["name"] == str(tmp_path)
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENLINEAGE_PARENT_ID", "air/dag"),
        ("OPENLINEAGE_PARENT_ID", "air/dag.convert/monday"),
        ("OPENLINEAGE_CONTEXT", "{"),
        ("OPENLINEAGE_CONTEXT", '{"parent": {"run": {"runId": "x"}, "job": 1}}'),
    ],
)
def test_a_parent_that_is_none_is_told(
    tmp_path: Path,
    lineage: HttpReceiver,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    """The events come without it; an empty variable is not set."""
    monkeypatch.setitem(os.environ, name, value)
    ran = convert("csv", IRIS, tmp_path / "out")
    assert f"{name} is {value}, expected" in ran.err
    monkeypatch.setitem(os.environ, name, "")
    assert "Warning" not in convert("csv", IRIS, tmp_path / "out").err
    events = lineage_of(lineage)
    assert len(events) == 4
    assert not any("parent" in event["run"]["facets"] for event in events)


def test_a_root_that_is_none_is_told(
    tmp_path: Path, lineage: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, run in (("PARENT", PARENT), ("ROOT_PARENT", "none")):
        monkeypatch.setitem(os.environ, f"OPENLINEAGE_{name}_ID", f"air/dag/{run}")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "OPENLINEAGE_ROOT_PARENT_ID is air/dag/none, expected" in ran.err
    assert len(lineage_of(lineage)) == 2


def test_the_transport_that_sends_later(
    tmp_path: Path, lineage: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All events are there when the run has ended."""
    monkeypatch.setitem(os.environ, "OPENLINEAGE__TRANSPORT__TYPE", "async_http")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "Warning" not in ran.err
    states = [event["eventType"] for event in lineage_of(lineage)]
    assert states == ["START", "COMPLETE"]


def test_a_configuration_without_a_transport_is_told(
    tmp_path: Path, lineage: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = os.environ.pop("OPENLINEAGE_URL")
    monkeypatch.setitem(os.environ, "OPENLINEAGE_CONFIG", "/nowhere.yml")
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "OPENLINEAGE_CONFIG: no transport is configured there" in ran.err
    file = tmp_path / "openlineage.yml"
    file.write_text(f"transport: {{url: '{lineage.url}'}}\n")
    monkeypatch.setitem(os.environ, "OPENLINEAGE_CONFIG", str(file))
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "set OPENLINEAGE_URL" in ran.err
    assert lineage.requests == []
    monkeypatch.setitem(os.environ, "OPENLINEAGE_URL", url)
    assert "Warning" not in convert("csv", IRIS, tmp_path / "out").err
    assert len(lineage_of(lineage)) == 2


def test_places_of_stores() -> None:
    """As OpenLineage's page on naming has them."""
    assert receivers._dataset_address("s3://bucket/sets/a/") == (
        "s3://bucket",
        "sets/a",
    )
    assert receivers._dataset_address("gs://bucket") == ("gs://bucket", "/")
    assert receivers._dataset_address("file:///data/a") == ("file", "/data/a")


# --- receivers that fail ---

VARIABLES = ("OPENLINEAGE_URL", "OTEL_EXPORTER_OTLP_ENDPOINT")


def with_receivers(url: str) -> dict[str, str]:
    return dict(os.environ) | dict.fromkeys(VARIABLES, url)


@pytest.mark.parametrize("status", [302, 307, 401, 503])
@pytest.mark.parametrize("transport", ["http", "async_http"])
@pytest.mark.usefixtures("patient")
def test_only_a_status_of_success_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, transport: str
) -> None:
    """A page to log in takes nothing; each warning has the status."""
    if (status == 503) and transport == "async_http":
        return  # as the other one
    with receiver(status) as server:
        given = with_receivers(server.url) | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
        if transport == "async_http":
            given["OPENLINEAGE__TRANSPORT__TYPE"] = transport
        if status == 503:  # OpenLineage's tries again for ten seconds
            del given["OPENLINEAGE_URL"]
        monkeypatch.setattr(os, "environ", given)
        ran = convert("csv", IRIS, tmp_path / "out", "--metrics-push", server.url)
    warnings = [line for line in ran.err.splitlines() if "Warning" in line]
    assert len(warnings) == (3 if status == 503 else 4)
    for warning in warnings:
        assert f"answered {status}" in warning


@pytest.mark.parametrize(
    "url",
    [
        "http://me:planted@127.0.0.1:1",
        "http://planted@127.0.0.1:1/x",
        "http://me:plan/planted@127.0.0.1",
        "://me:planted@127.0.0.1",
        "ftp://me:planted@127.0.0.1/x?key=planted",
    ],
)
@pytest.mark.usefixtures("patient")
def test_no_warning_has_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    given = with_receivers(url) | {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    retry = {"OPENLINEAGE__TRANSPORT__RETRY": '{"total": 0}'}
    where = {"OPENLINEAGE__TRANSPORT__TYPE": "http", "OPENLINEAGE__TRANSPORT__URL": url}
    end = {"OPENLINEAGE__TRANSPORT__ENDPOINT": "lineage?key=planted"}
    monkeypatch.setattr(os, "environ", given | retry | where | end)
    ran = convert("csv", IRIS, tmp_path / "out")
    assert ran.err.count("Warning: ") == 3
    assert "planted" not in ran.err
    monkeypatch.setitem(os.environ, "OPENLINEAGE_API_KEY", "planted\n")
    auth = '{"type": "api_key", "apiKey": "planted\\n"}'
    monkeypatch.setitem(os.environ, "OPENLINEAGE__TRANSPORT__AUTH", auth)
    assert "planted" not in convert("csv", IRIS, tmp_path / "out").err


@pytest.mark.parametrize("status", [None, 500])
def test_a_receiver_that_fails_changes_no_run(
    tmp_path: Path, status: int | None
) -> None:
    """The process ends as it would; what hangs is left to itself after two seconds."""
    with receiver(status) as server:
        job = [
            "convert",
            "csv",
            IRIS,
            tmp_path / "out",
            "--log-format",
            "json",
            "--json",
        ]
        ran = subprocess.run(
            [COMMAND, *map(str, job), "--metrics-push", server.url],
            capture_output=True, text=True, check=False, env=with_receivers(server.url),
        )  # fmt: skip
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["records"] == 150
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    failed = [line for line in lines if line["event"] == "receiver_failed"]
    assert any(server.url in line["message"] for line in failed)
    assert all(line["level"] == "warning" for line in failed)
    assert lines[-1]["event"] == "run_done"


def test_all_that_hang_are_waited_for_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds in all, at the end of a run: each has the same moment to end at."""
    assert inspect.signature(receivers.Receivers.end).parameters["seconds"].default == 2
    monkeypatch.setattr(receivers, "WAIT_SECONDS", 60)  # nothing ends by itself
    close, deadlines = receivers._ReceiverThread.close, []

    def noted(lane: receivers._ReceiverThread, deadline: float) -> list[str]:
        deadlines.append(deadline)
        return close(lane, deadline)

    monkeypatch.setattr(receivers._ReceiverThread, "close", noted)
    with receiver(None) as server:
        patient = {"OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
        patient["OPENLINEAGE__TRANSPORT__TIMEOUT"] = "60"
        monkeypatch.setattr(os, "environ", with_receivers(server.url) | patient)
        told = receivers.Receivers("rows", str(tmp_path), server.url)
        end = receivers.RunEnd("rows", str(tmp_path), 1.0, 2.0, {}, None, OSError("x"))
        problems = told.end(end, 0.2)
    assert len(deadlines) == 4
    assert len(set(deadlines)) == 1
    assert len(problems) == 4
    assert all(problem.endswith("no response in time") for problem in problems)


def test_packages_are_imported_before_threads_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that import would change filters of warnings under others."""
    monkeypatch.setattr(os, "environ", with_receivers("http://127.0.0.1:1"))
    places = []
    session = receivers._ReceiverThread.create_session

    def told(self: receivers._ReceiverThread) -> Any:
        places.append(threading.current_thread())
        return session(self)

    monkeypatch.setattr(receivers._ReceiverThread, "create_session", told)
    found = receivers.Receivers("rows", str(tmp_path), "http://127.0.0.1:1")
    assert places == [threading.current_thread()] * 4
    found.end(receivers.RunEnd("", "", 1.0, 2.0, {}, None, OSError("x")), 0.0)


@pytest.mark.usefixtures("patient")
def test_a_package_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)  # type: ignore[arg-type]
    ran = convert("csv", IRIS, tmp_path / "out")
    assert "pip install 'recordmill[lineage,otel]'" in ran.err


def test_nothing_is_imported_unasked(tmp_path: Path) -> None:
    """A variable that is empty asks for nothing."""
    code = (
        "import sys; from recordmill.beam_jobs.cli.main import run;"
        f"run(['convert', 'csv', {str(IRIS)!r}, {str(tmp_path / 'out')!r}]);"
        "heavy = ('openlineage', 'opentelemetry.exporter', 'recordmill.beam_jobs.report.receivers');"
        "sys.exit(any(name.startswith(heavy) for name in sys.modules))"
    )
    empty = with_receivers("")
    ran = subprocess.run([sys.executable, "-c", code], check=False, env=empty)
    assert ran.returncode == 0
    assert open_store(str(tmp_path / "out")).read_if_exists("manifest.json") is not None
