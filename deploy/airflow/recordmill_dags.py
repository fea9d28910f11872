"""Two DAGs that run job files: on a cluster that Beam reaches, and on Dataflow.

Both run the same file; a run with unchanged input ends at once with success. recordmill
is in its own environment on the workers, never in Airflow's: RECORDMILL is its path.
"""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.providers.google.cloud.operators.dataflow import (
    DataflowStartFlexTemplateOperator,
)
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, task

RECORDMILL = "/opt/recordmill"
JOB_FILE = "gs://example-bucket/jobs/events.yaml"
OUTPUT = "gs://example-bucket/sets/events/{{ ds }}"
SETTINGS = "date={{ ds }}"  # a repeated run of a day has that day's date
EVENTS = Asset("events", uri="gs://example-bucket/sets/events")

PROJECT, REGION = "example-project", "europe-west1"
TEMPLATE = "gs://example-bucket/templates/recordmill.json"
IMAGE = "registry.example/recordmill:0.1.0"

# Exit statuses of usage, data and output refused (docs/options.md).
NEVER_AGAIN = (2, 65, 73)

USUAL = {
    "schedule": "15 2 * * *",
    "start_date": datetime(2026, 11, 1, tzinfo=UTC),
    "catchup": False,
    # A second run would fail, as the first one holds the output.
    "max_active_runs": 1,
    "default_args": {
        "retries": 3,
        "retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=12),
    },
    "tags": ["recordmill"],
}


class ConvertOperator(BeamRunPythonPipelineOperator):
    """Beam's operator; it tries again only what can be better the next time."""

    def execute(self, context: Any) -> Any:
        """Runs the job.

        Raises:
          AirflowFailException: a person has to mend something first.
        """
        try:
            return super().execute(context)
        except AirflowException as error:
            # The operator knows the status only in its message.
            status = re.search(r"return code (\d+)", str(error))
            if status and int(status[1]) in NEVER_AGAIN:
                raise AirflowFailException(str(error)) from error
            raise


def verify() -> BashOperator:
    """Makes a task that reads the whole dataset and verifies every checksum."""
    return BashOperator(
        task_id="verify", bash_command=f"{RECORDMILL}/bin/recordmill verify {OUTPUT}"
    )


@task(outlets=[EVENTS])
def publish(output: str, *, outlet_events: Any) -> None:
    """Tells Airflow what the dataset is now, which starts DAGs that wait for it."""
    command = [f"{RECORDMILL}/bin/recordmill", "inspect", output, "--json"]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    facts = json.loads(ran.stdout)
    outlet_events[EVENTS].extra = {
        "output": output,
        **{name: facts[name] for name in ("version", "fingerprint", "rows_read")},
        "records": {name: each["records"] for name, each in facts["splits"].items()},
        "schema": {each["name"]: each["dtype"] for each in facts["features"]},
    }


with DAG("recordmill_on_cluster", **USUAL):
    convert = ConvertOperator(
        task_id="convert",
        py_interpreter=f"{RECORDMILL}/bin/python",
        # deploy/dataflow/main.py: takes options in the form of this operator.
        py_file=f"{RECORDMILL}/main.py",
        runner="PortableRunner",
        pipeline_options={
            "job_file": JOB_FILE,
            "set": SETTINGS,
            "log_format": "json",
            "job_endpoint": "flink-jobserver:8099",
            "artifact_endpoint": "flink-jobserver:8098",
            "environment_type": "EXTERNAL",
            "environment_config": "localhost:50000",
            "parallelism": "4",
        },
    )
    convert >> verify() >> publish(OUTPUT)


with DAG("recordmill_on_dataflow", **USUAL):
    convert = DataflowStartFlexTemplateOperator(
        task_id="convert",
        project_id=PROJECT,
        location=REGION,
        deferrable=True,  # occupies no Airflow worker meanwhile
        append_job_name=True,
        body={
            "launchParameter": {
                "jobName": "recordmill-events",
                "containerSpecGcsPath": TEMPLATE,
                "parameters": {
                    "job_file": JOB_FILE,
                    "set": SETTINGS,
                    "log_format": "json",
                    "sdk_container_image": IMAGE,
                    "sdk_location": "container",
                },
                "environment": {
                    "maxWorkers": 50,
                    "autoscalingAlgorithm": "AUTOSCALING_ALGORITHM_BASIC",
                },
            }
        },
    )
    convert >> verify() >> publish(OUTPUT)
