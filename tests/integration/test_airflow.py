"""deploy/airflow in a real Airflow, in an environment of its own; without a database."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from dataflow_launcher import command_line
from job_tools import IRIS, convert, manifest_of
from manifests import DAY, DEPLOY, load, our_arguments, parse, words_of
from store_servers import tool

from recordmill.schemas.errors import EXIT_STATUS, PERMANENT_KINDS

DAGS = DEPLOY / "airflow"
KINDS = {  # of the tasks convert and verify
    "recordmill_on_worker": ("RecordmillOperator", "RecordmillOperator"),
    "recordmill_in_pod": ("KubernetesPodOperator", "KubernetesPodOperator"),
    "recordmill_on_cluster": ("ConvertOperator", "BashOperator"),
    "recordmill_on_dataflow": ("DataflowStartFlexTemplateOperator", "BashOperator"),
}
# The operator of pods wants to know one, before it is asked for anything.
NO_CLUSTER = """\
clusters: [{name: none, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
users: [{name: none, user: {}}]
current-context: none
"""
Facts = dict[str, Any]


def sample_input(dags: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("airflow_facts.py")
    (folder / "kubeconfig").write_text(NO_CLUSTER)
    convert("csv", IRIS, folder / "iris")
    environment = {
        "KUBECONFIG": str(folder / "kubeconfig"),
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
    }
    return subprocess.run(
        [tool("airflow/bin/python"), script, dags, folder, sys.prefix, folder / "iris"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=environment,
        cwd=folder,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def facts(folder: Path) -> Facts:
    done = sample_input(DAGS, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Facts = json.loads((folder / "facts.json").read_text())
    return found


def filled(value: Any) -> Any:
    """As Airflow fills templates in for a run of that day."""
    return json.loads(json.dumps(value).replace("{{ ds }}", str(DAY)))


def test_the_dags_are_imported(facts: Facts) -> None:
    assert facts["errors"] == {}
    assert set(facts["dags"]) == set(KINDS)


def test_an_error_would_be_noticed(tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    shutil.copytree(DAGS, dags)
    file = dags / "recordmill_dags.py"
    file.write_text(file.read_text().replace("DataflowStartFlex", "DataflowStartFlx"))
    assert sample_input(dags, tmp_path).returncode != 0


def test_each_dag_converts_and_then_verifies(facts: Facts) -> None:
    for name, dag in facts["dags"].items():
        tasks = dag["tasks"]
        described = {"describe"} & set(tasks)
        assert set(tasks) == {"convert", "verify", "publish"} | described, name
        assert (tasks["convert"]["kind"], tasks["verify"]["kind"]) == KINDS[name]
        assert tasks["convert"]["next"] == ["verify"]
        assert tasks["verify"]["next"] == (sorted(described) or ["publish"])
        for task_id in described:
            assert tasks[task_id]["next"] == ["publish"]
        assert tasks["publish"]["next"] == []
        assert dag["max_active_runs"] == 1, name
        assert dag["catchup"] is False, name
        assert all(task["retries"] > 0 for task in tasks.values()), name


def test_each_dag_publishes_an_asset(facts: Facts, folder: Path) -> None:
    """Its URI is the folder of all days; the extra is what the dataset really is."""
    manifest = manifest_of(folder / "iris")
    for name, dag in facts["dags"].items():
        asset = facts["assets"][name]
        assert [
            task["outlets"] for task in dag["tasks"].values() if task["outlets"]
        ] == [[asset["uri"]]]
        file = "local.yaml" if name == "recordmill_on_worker" else "events.yaml"
        output = load(DAGS / file, date=str(DAY)).options.output
        assert asset["uri"].removeprefix("file://") == output.removesuffix(f"/{DAY}")
        extra = asset["extra"]
        assert extra["output"] == str(folder / "iris")
        assert extra["fingerprint"] == manifest["fingerprint"]
        assert (extra["rows_read"], extra["records"]) == (150, {"train": 150})
        assert extra["schema"]["species"] == "string"
        assert len(extra["schema"]) == 5


@pytest.mark.parametrize("dag", ["recordmill_on_worker", "recordmill_on_cluster"])
def test_only_what_can_get_better_is_tried_again(facts: Facts, dag: str) -> None:
    """Each status is one with which the real operator's process ended."""
    never = {EXIT_STATUS[kind] for kind in PERMANENT_KINDS}
    raised = {int(status): error for status, error in facts["ended"][dag].items()}
    assert {s for s, e in raised.items() if e == "AirflowFailException"} == never
    assert {s for s, e in raised.items() if e == "AirflowException"} == {1, 74, 75}


@pytest.mark.parametrize("dag", ["recordmill_in_pod", "recordmill_on_dataflow"])
def test_no_worker_waits(facts: Facts, dag: str) -> None:
    assert facts["dags"][dag]["tasks"]["convert"]["deferrable"] is True


def arguments_of(task: dict[str, Any]) -> list[str]:
    """The arguments of `recordmill` that a task gives, in a shell or in a pod."""
    task = filled(task)
    if task["pod"]:
        (container,) = task["pod"]["spec"]["containers"]
        assert container["command"] == ["recordmill"]
        return list(container["args"])
    arguments = our_arguments(words_of(task["bash"]))
    assert arguments is not None
    return arguments


@pytest.mark.parametrize("dag", ["recordmill_on_worker", "recordmill_in_pod"])
def test_the_command_is_one_that_parses(facts: Facts, dag: str) -> None:
    tasks = facts["dags"][dag]["tasks"]
    context = parse(arguments_of(tasks["convert"]))
    assert context.params["set"] == (f"date={DAY}",)
    assert context.params["job_file"].endswith(".yaml")


def test_the_pod_may_do_little_and_has_the_image(facts: Facts) -> None:
    pod = facts["dags"]["recordmill_in_pod"]["tasks"]["convert"]["pod"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/recordmill:0.1.0"
    assert pod["securityContext"]["runAsUser"] == 10001
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() <= {volume["name"] for volume in pod["volumes"]}
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert {variables["TMPDIR"], variables["XDG_CACHE_HOME"]} <= set(mounts.values())


def test_every_container_of_a_pod_may_run_where_restricted_is_enforced(
    facts: Facts,
) -> None:
    """The one that Airflow adds, too."""
    tasks = facts["dags"]["recordmill_in_pod"]["tasks"]
    numbers = {}
    for name, task in tasks.items():
        if not task["pod"]:
            continue
        containers = task["pod"]["spec"]["containers"]
        numbers[name] = len(containers)
        for container in containers:
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False, name
            assert own["capabilities"] == {"drop": ["ALL"]}, name
    assert numbers == {"convert": 1, "verify": 1, "describe": 2}
    page = (DAGS / "README.md").read_text()
    image = tasks["describe"]["pod"]["spec"]["containers"][-1]["image"]
    assert f"`{image.partition(':')[0]}`" in page
    assert "`pods/exec`" in page


def test_the_page_copies_files_that_are_there(facts: Facts) -> None:
    page = (DAGS / "README.md").read_text()
    for file in DAGS.glob("*.py"):
        assert f"deploy/airflow/{file.name}" in page
    for dag in facts["dags"]:
        assert f"| `{dag}` |" in page


def test_the_beam_operator_calls_the_file_as_it_takes_it(facts: Facts) -> None:
    """The arguments are those with which the real operator started a real process."""
    arguments = command_line(filled(facts["argv"]))
    context = parse(arguments)
    assert context.params["set"] == (f"date={DAY}",)
    assert "--runner=PortableRunner" in arguments[arguments.index("--") :]
    convert = facts["dags"]["recordmill_on_cluster"]["tasks"]["convert"]
    page = (DAGS / "README.md").read_text()
    assert f"cp deploy/dataflow/main.py {convert['file']}\n" in page
    assert convert["python"] == "/opt/recordmill/bin/python"


def test_the_template_gets_parameters_that_it_has(facts: Facts) -> None:
    convert = facts["dags"]["recordmill_on_dataflow"]["tasks"]["convert"]
    launch = filled(convert["body"])["launchParameter"]
    metadata = json.loads((DEPLOY / "dataflow" / "metadata.json").read_text())
    assert set(launch["parameters"]) <= {one["name"] for one in metadata["parameters"]}
    arguments = command_line([f"--{k}={v}" for k, v in launch["parameters"].items()])
    assert parse(arguments).params["set"] == (f"date={DAY}",)
    # What Dataflow wants of a job's name.
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", launch["jobName"])


def test_what_is_verified_is_what_the_job_writes(facts: Facts) -> None:
    for name, dag in facts["dags"].items():
        file = "local.yaml" if name == "recordmill_on_worker" else "events.yaml"
        job = load(DAGS / file, date=str(DAY))
        arguments = arguments_of(dag["tasks"]["verify"])
        assert parse(arguments).params["output"] == job.options.output
