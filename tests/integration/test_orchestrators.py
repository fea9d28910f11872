"""deploy/dagster, deploy/argo and deploy/kubeflow: read, and run with stand-ins.

Dagster and Kubeflow are no packages of the tests; the stand-ins keep what they are given.
"""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from job_tools import COMMAND, IRIS
from manifests import DEPLOY, parse

from recordmill.schemas.errors import EXIT_STATUS, PERMANENT_KINDS

NEVER = {EXIT_STATUS[kind] for kind in PERMANENT_KINDS}


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


def workflow() -> dict[str, Any]:
    text = (DEPLOY / "argo" / "workflowtemplate.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)["spec"]
    return found


def test_the_workflow_runs_commands_that_there_are(
    tmp_path: Path, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script of the pod is run by a shell, with a setting and without."""
    templates = {each["name"]: each for each in workflow()["templates"]}
    container = templates["convert"]["container"]
    facts, plain = tmp_path / "facts.json", tmp_path / "plain.yaml"
    plain.write_text(f"source: csv\ninputs: {IRIS}\noutput: sets/plain\n")
    monkeypatch.setenv("PATH", str(COMMAND.parent), prepend=":")
    command = [
        one.replace("/tmp/facts.json", str(facts)) for one in container["command"]
    ]
    for file, settings, name in (
        (job, "date=2026-11-20", "2026-11-20"),
        (plain, "", "plain"),
    ):
        given = {"job-file": str(file), "settings": settings}
        arguments = [filled(one, "inputs", given) for one in container["args"]]
        subprocess.run([*command, *arguments], check=True)
        output = json.loads(facts.read_text())["output"]
        assert output == str(tmp_path / "sets" / name)
    arguments = templates["verify"]["container"]["args"]
    parse([filled(one, "inputs", {"output": output}) for one in arguments])


def filled(text: str, place: str, values: dict[str, str]) -> str:
    """As Argo's controller fills in parameters; nothing else may be left."""
    for name, value in values.items():
        text = text.replace(f"{{{{{place}.parameters.{name}}}}}", value)
    assert "{{" not in text
    return text


def test_a_template_can_be_called_by_other_workflows() -> None:
    """All that it names is in it; parameters come with the step."""
    spec = workflow()
    names = {p["name"] for p in spec["arguments"]["parameters"]}
    templates = {each["name"]: each for each in spec["templates"]}
    steps = [step for (step,) in templates["dataset"]["steps"]]
    assert [step["template"] for step in steps] == ["convert", "verify"]
    assert {p["name"] for p in templates["dataset"]["inputs"]["parameters"]} == names
    assert "workflow.parameters" not in json.dumps(spec["templates"])
    for step in steps:
        template = templates[step["template"]]
        inputs = {p["name"] for p in template["inputs"]["parameters"]}
        assert inputs == {p["name"] for p in step["arguments"]["parameters"]}
        container = template["container"]
        own = container["securityContext"]
        assert own["readOnlyRootFilesystem"] is True
        assert own["capabilities"] == {"drop": ["ALL"]}
        volumes = {volume["name"] for volume in template["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        never = template["retryStrategy"]["expression"]
        assert never == f"lastRetry.exitCode not in {[str(s) for s in sorted(NEVER)]}"
        assert template["securityContext"]["runAsNonRoot"] is True
    page = (DEPLOY / "argo" / "README.md").read_text()
    [called] = re.findall(r"templateRef: \{name: recordmill, template: (\w+)\}", page)
    assert called in templates


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
    monkeypatch.setenv("PATH", str(COMMAND.parent), prepend=":")
    subprocess.run([*spec.command, *spec.args], check=True)
    assert output.read_text() == str(tmp_path / "sets" / "2026-11-20")
    assert json.loads(facts.read_text())["records"] == 150
    job.write_text(job.read_text().replace("{{ date }}", "plain"))
    spec = found["recordmill"](str(job), "", str(facts), str(output))
    subprocess.run([*spec.command, *spec.args], check=True)
    assert output.read_text() == str(tmp_path / "sets" / "plain")
