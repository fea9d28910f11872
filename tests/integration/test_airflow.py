"""deploy/airflow in a real Airflow, in an environment of its own; without a database."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from manifests import DAY, DEPLOY, load, our_arguments, parse, words_of
from store_servers import tool

from recordmill.beam_jobs.cli.flex_template import command_line
from recordmill.schemas.errors import EXIT_STATUS, PERMANENT

DAGS = DEPLOY / "airflow"
Facts = dict[str, Any]


def sample_input(dags: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(__file__).with_name("airflow_facts.py")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
    }
    return subprocess.run(
        [tool("airflow/bin/python"), str(script), str(dags), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
        cwd=folder,
    )


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    folder = tmp_path_factory.mktemp("airflow")
    done = sample_input(DAGS, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    found: Facts = json.loads((folder / "facts.json").read_text())
    return found


def filled(value: Any) -> Any:
    """As Airflow fills templates in for a run of that day."""
    return json.loads(json.dumps(value).replace("{{ ds }}", str(DAY)))


def test_the_dags_are_imported(facts: Facts) -> None:
    assert facts["errors"] == {}
    assert set(facts["dags"]) == {"recordmill_on_cluster", "recordmill_on_dataflow"}


def test_an_error_would_be_noticed(tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    shutil.copytree(DAGS, dags)
    file = dags / "recordmill_dags.py"
    file.write_text(file.read_text().replace("DataflowStartFlex", "DataflowStartFlx"))
    assert sample_input(dags, tmp_path).returncode != 0


def test_each_dag_converts_and_then_verifies(facts: Facts) -> None:
    kinds = {
        "recordmill_on_cluster": "ConvertOperator",
        "recordmill_on_dataflow": "DataflowStartFlexTemplateOperator",
    }
    for name, dag in facts["dags"].items():
        tasks = dag["tasks"]
        assert set(tasks) == {"convert", "verify"}, name
        assert tasks["convert"]["kind"] == kinds[name]
        assert tasks["convert"]["next"] == ["verify"]
        assert tasks["verify"]["kind"] == "BashOperator"
        assert tasks["verify"]["next"] == []
        assert dag["max_active_runs"] == 1, name
        assert dag["catchup"] is False, name
        assert all(task["retries"] > 0 for task in tasks.values()), name


def test_only_what_can_get_better_is_tried_again(facts: Facts) -> None:
    """Each status is one with which the real operator's process ended."""
    never = {EXIT_STATUS[kind] for kind in PERMANENT}
    raised = {int(status): error for status, error in facts["ended"].items()}
    assert {s for s, e in raised.items() if e == "AirflowFailException"} == never
    assert {s for s, e in raised.items() if e == "AirflowException"} == {1, 74, 75}


def test_no_worker_waits_for_dataflow(facts: Facts) -> None:
    convert = facts["dags"]["recordmill_on_dataflow"]["tasks"]["convert"]
    assert convert["deferrable"] is True


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
    job = load(DAGS / "events.yaml", date=str(DAY))
    for dag in facts["dags"].values():
        words = words_of(filled(dag["tasks"]["verify"]["bash"]))
        arguments = our_arguments(words)
        assert arguments is not None
        assert parse(arguments).params["output"] == job.options.output
