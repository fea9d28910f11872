"""A DAG that runs a job file on Airflow's own workers, and verifies the dataset.

This is the common case: files that the workers reach, and a dataset that one machine
writes in a night. It needs nothing but Airflow 3. recordmill is in its own environment
on the workers, never in Airflow's: RECORDMILL is its path.
"""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.exceptions import AirflowException, AirflowFailException
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset, task

RECORDMILL = "/opt/recordmill/bin/recordmill"
JOB_FILE = "/etc/recordmill/local.yaml"
OUTPUT = "/srv/datasets/events/{{ ds }}"
SETTINGS = "date={{ ds }}"  # a repeated run of a day has that day's date
EVENTS = Asset("events", uri="file:///srv/datasets/events")

# Exit statuses of usage, data and output refused (docs/options.md).
NEVER_AGAIN = (2, 65, 73)


class RecordmillOperator(BashOperator):
    """Airflow's operator; it tries again only what can be better the next time."""

    def execute(self, context: Any) -> Any:
        """Runs the command.

        Raises:
          AirflowFailException: a person has to mend something first.
        """
        try:
            return super().execute(context)
        except AirflowException as error:
            # The operator knows the status only in its message.
            status = re.search(r"exit code (\d+)", str(error))
            if status and int(status[1]) in NEVER_AGAIN:
                raise AirflowFailException(str(error)) from error
            raise


@task(outlets=[EVENTS])
def publish(output: str, *, outlet_events: Any) -> None:
    """Tells Airflow what the dataset is now, which starts DAGs that wait for it."""
    command = [RECORDMILL, "inspect", output, "--json"]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    facts = json.loads(ran.stdout)
    outlet_events[EVENTS].extra = {
        "output": output,
        **{name: facts[name] for name in ("version", "fingerprint", "rows_read")},
        "records": {name: each["records"] for name, each in facts["splits"].items()},
        "schema": {each["name"]: each["dtype"] for each in facts["features"]},
    }


with DAG(
    "recordmill_on_worker",
    schedule="15 2 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    # A second run would fail, as the first one holds the output.
    max_active_runs=1,
    default_args={
        "retries": 3,
        "retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=6),
    },
    tags=["recordmill"],
):
    convert = RecordmillOperator(
        task_id="convert",
        bash_command=f"{RECORDMILL} run {JOB_FILE} --set {SETTINGS} --log-format text",
    )
    verify = RecordmillOperator(
        task_id="verify", bash_command=f"{RECORDMILL} verify {OUTPUT}"
    )
    convert >> verify >> publish(OUTPUT)
