"""A DAG that runs a job file in a pod of Kubernetes, and verifies the dataset.

It needs Airflow 3 and the provider cncf.kubernetes, and the image of deploy/Dockerfile.
Files and datasets are in a store: a pod has no disk that stays.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, Asset, task
from kubernetes.client import models as k8s

IMAGE = "registry.example/recordmill:0.1.0"
NAMESPACE, SERVICE_ACCOUNT = "recordmill", "recordmill"
JOB_FILE = "gs://example-bucket/jobs/events.yaml"
OUTPUT = "gs://example-bucket/sets/events/{{ ds }}"
SETTINGS = "date={{ ds }}"  # a repeated run of a day has that day's date
EVENTS = Asset("events", uri="gs://example-bucket/sets/events")


# What a namespace that enforces `restricted` wants of every container.
CAREFUL = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def recordmill(
    task_id: str,
    *arguments: str,
    command: tuple[str, ...] = ("recordmill",),
    **more: Any,
) -> KubernetesPodOperator:
    """Makes a task that runs the command in a pod of its own.

    Args:
      task_id: of the task, and the beginning of the pod's name.
      arguments: of the command.
      command: what is run.
      more: arguments of the operator.
    """
    return KubernetesPodOperator(
        task_id=task_id,
        name=f"recordmill-{task_id}",
        namespace=NAMESPACE,
        service_account_name=SERVICE_ACCOUNT,
        image=IMAGE,
        cmds=list(command),
        arguments=list(arguments),
        env_vars={"TMPDIR": "/scratch", "XDG_CACHE_HOME": "/scratch"},
        # As in deploy/kubernetes: workers: 4 in the job file, and its sorted runs.
        container_resources=k8s.V1ResourceRequirements(
            requests={"cpu": "4", "memory": "4Gi", "ephemeral-storage": "20Gi"},
            limits={"cpu": "4", "memory": "4Gi", "ephemeral-storage": "24Gi"},
        ),
        security_context={
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        container_security_context=CAREFUL,
        xcom_sidecar_container_security_context=CAREFUL,  # of the task `describe`
        volumes=[
            k8s.V1Volume(name=name, empty_dir=k8s.V1EmptyDirVolumeSource())
            for name in ("scratch", "tmp")
        ],
        volume_mounts=[
            k8s.V1VolumeMount(name="scratch", mount_path="/scratch"),
            k8s.V1VolumeMount(name="tmp", mount_path="/tmp"),
        ],
        termination_grace_period=60,
        deferrable=True,  # occupies no Airflow worker meanwhile
        **more,
    )


# What a pod writes to this file, the operator returns.
DESCRIBE = ("sh", "-c", 'recordmill inspect "$0" --json > /airflow/xcom/return.json')


@task(outlets=[EVENTS])
def publish(output: str, facts: dict[str, Any], *, outlet_events: Any) -> None:
    """Tells Airflow what the dataset is now, which starts DAGs that wait for it."""
    outlet_events[EVENTS].extra = {
        "output": output,
        **{name: facts[name] for name in ("version", "fingerprint", "rows_read")},
        "records": {name: each["records"] for name, each in facts["splits"].items()},
        "schema": {each["name"]: each["dtype"] for each in facts["features"]},
    }


with DAG(
    "recordmill_in_pod",
    schedule="15 2 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    # A second run would fail, as the first one holds the output.
    max_active_runs=1,
    default_args={
        # The operator does not tell why a pod failed: one more try, whatever it was.
        "retries": 1,
        "retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=6),
    },
    tags=["recordmill"],
):
    convert = recordmill("convert", "run", JOB_FILE, "--set", SETTINGS)
    verify = recordmill("verify", "verify", OUTPUT)
    describe = recordmill("describe", OUTPUT, command=DESCRIBE, do_xcom_push=True)
    convert >> verify >> describe
    publish(OUTPUT, describe.output)
