"""deploy/dagster, deploy/argo and deploy/kubeflow: read, and run with stand-ins.

Dagster and Kubeflow are no packages of the tests; the stand-ins keep what they are given.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from job_tools import COMMAND, IRIS
from manifests import DEPLOY, our_arguments, parse, words_of

from recordmill.schemas.errors import EXIT_STATUS, PERMANENT

NEVER = {EXIT_STATUS[kind] for kind in PERMANENT}


class Kept(SimpleNamespace):
    """What a class or a decorator was given."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(given=given, **named)


class Failure(Exception):  # noqa: N818  as Dagster calls it
    def __init__(self, text: str, allow_retries: bool) -> None:
        super().__init__(text)
        self.allow_retries = allow_retries


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(
        f"source: csv\ninputs: {IRIS}\noutput: sets/{{{{ date }}}}\nname: events\n"
    )
    return file


# --- Dagster ---


@pytest.fixture
def dagster(monkeypatch: pytest.MonkeyPatch, job: Path) -> dict[str, Any]:
    """The names of the file, with Dagster's replaced."""
    stand_in = ModuleType("dagster")
    names = ("DailyPartitionsDefinition", "DataVersion", "Definitions", "RetryPolicy")
    for name in (*names, "MaterializeResult", "TableColumn", "TableSchema"):
        setattr(stand_in, name, type(name, (Kept,), {}))
    stand_in.Failure = Failure  # type: ignore[attr-defined]
    stand_in.AssetExecutionContext = object  # type: ignore[attr-defined]
    stand_in.asset = lambda **_: lambda function: function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dagster", stand_in)
    found = runpy.run_path(str(DEPLOY / "dagster" / "recordmill_assets.py"))
    given = found["events"].__globals__
    monkeypatch.setitem(given, "RECORDMILL", str(COMMAND))
    monkeypatch.setitem(given, "JOB_FILE", str(job))
    return found


def test_an_asset_has_what_the_dataset_has(dagster: dict[str, Any], job: Path) -> None:
    made = dagster["events"](SimpleNamespace(partition_key="2026-11-20"))
    output = job.parent / "sets" / "2026-11-20"
    manifest = json.loads((output / "manifest.json").read_text())
    assert made.data_version.given == (manifest["fingerprint"],)
    assert made.metadata["dagster/row_count"] == 150
    assert made.metadata["dagster/uri"] == str(output)
    columns = made.metadata["dagster/column_schema"].given[0]
    assert [c.given for c in columns][-1] == ("species", "string")


def test_an_asset_is_retried_where_it_can_get_better(
    dagster: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for status in (1, 2, 65, 73, 74, 75):
        monkeypatch.setitem(dagster["events"].__globals__, "RECORDMILL", "sh")
        monkeypatch.setattr(
            subprocess,
            "run",
            lambda *_, status=status, **__: SimpleNamespace(returncode=status),
        )
        with pytest.raises(Failure) as failed:
            dagster["events"](SimpleNamespace(partition_key="2026-11-20"))
        assert failed.value.allow_retries is (status not in NEVER)


# --- Argo ---


def test_the_workflow_runs_commands_that_there_are() -> None:
    template = yaml.safe_load((DEPLOY / "argo" / "workflowtemplate.yaml").read_text())
    spec = template["spec"]
    given = {p["name"]: p["value"] for p in spec["arguments"]["parameters"]}
    templates = {each["name"]: each for each in spec["templates"]}
    steps = [step["template"] for (step,) in templates["dataset"]["steps"]]
    assert steps == ["convert", "verify"]
    for name in steps:
        container = templates[name]["container"]
        arguments = list(container["args"])
        for parameter, value in given.items():
            mark = f"{{{{workflow.parameters.{parameter}}}}}"
            arguments = [one.replace(mark, value) for one in arguments]
        if name == "convert":  # a shell adds this
            assert container["command"][-2:] == [
                'recordmill "$@" --json > /tmp/facts.json',
                "recordmill",
            ]
            arguments.append("--json")
        parse(arguments)
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        never = templates[name]["retryStrategy"]["expression"]
        assert never == f"lastRetry.exitCode not in {[str(s) for s in sorted(NEVER)]}"
    assert spec["securityContext"]["runAsNonRoot"] is True


# --- Kubeflow ---


def test_the_component_makes_a_dataset(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script, run by a shell as in the pod."""
    dsl = ModuleType("kfp.dsl")
    dsl.container_component = lambda function: function  # type: ignore[attr-defined]
    dsl.pipeline = lambda **_: lambda function: function  # type: ignore[attr-defined]
    dsl.OutputPath = lambda kind: kind  # type: ignore[attr-defined]
    dsl.ContainerSpec = Kept  # type: ignore[attr-defined]
    kfp = ModuleType("kfp")
    kfp.dsl = dsl  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kfp", kfp)
    found = runpy.run_path(str(DEPLOY / "kubeflow" / "recordmill_component.py"))
    facts, output = tmp_path / "a" / "facts", tmp_path / "b" / "output"
    spec = found["recordmill"](str(job), "date=2026-11-20", str(facts), str(output))
    line = next(line for line in spec.command[-1].splitlines() if "--json" in line)
    assert our_arguments(words_of(line)) is not None
    monkeypatch.setenv("PATH", str(COMMAND.parent), prepend=":")
    subprocess.run([*spec.command, *spec.args], check=True)
    assert output.read_text() == str(tmp_path / "sets" / "2026-11-20")
    assert json.loads(facts.read_text())["records"] == 150
