"""Runs in Airflow's environment: prints what the DAGs in a folder are, as JSON.

The Beam operator really starts its Python file, which only tells how it was called, or
ends with one status after another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from kubernetes.client import ApiClient

STATUSES = (1, 2, 65, 73, 74, 75)
TELL = "import json, pathlib, sys; pathlib.Path({!r}).write_text(json.dumps(sys.argv))"


def pod_of(task: Any) -> Any:
    """The pod that would be asked for; None of other tasks."""
    if not hasattr(task, "build_pod_request_obj"):
        return None
    pod = task.build_pod_request_obj()
    return ApiClient().sanitize_for_serialization(pod)


def published(task: Any, environment: str, dataset: str) -> Any:
    """What the asset has after the task has run, with the command of an environment."""
    publish = task.python_callable
    command = f"{environment}/bin/recordmill"
    whole = "bin/recordmill" in publish.__globals__.get("RECORDMILL", "")
    publish.__globals__["RECORDMILL"] = command if whole else environment
    given = {}
    if len(task.op_args) > 1:  # what another pod found out
        text = subprocess.check_output([command, "inspect", dataset, "--json"])
        given["facts"] = json.loads(text)
    events: dict[Any, Any] = defaultdict(SimpleNamespace)
    publish(dataset, **given, outlet_events=events)
    [(asset, event)] = events.items()
    return {"uri": asset.uri, "extra": event.extra}


def main(dags: str, scratch: str, environment: str, dataset: str) -> None:
    bag = DagBag(dags)
    facts = {
        dag.dag_id: {
            "schedule": str(dag.schedule),
            "catchup": dag.catchup,
            "max_active_runs": dag.max_active_runs,
            "tasks": {
                task.task_id: {
                    "kind": type(task).__name__,
                    "next": sorted(task.downstream_task_ids),
                    "retries": task.retries,
                    "deferrable": getattr(task, "deferrable", None),
                    "body": getattr(task, "body", None),
                    "bash": getattr(task, "bash_command", None),
                    "pod": pod_of(task),
                    "outlets": [asset.uri for asset in task.outlets],
                    "python": getattr(task, "py_interpreter", None),
                    "file": getattr(task, "py_file", None),
                }
                for task in dag.tasks
            },
        }
        for dag in bag.dags.values()
    }
    assets = {
        name: published(dag.get_task("publish"), environment, dataset)
        for name, dag in bag.dags.items()
    }
    ended: dict[str, dict[int, str]] = {}
    task = bag.dags["recordmill_on_worker"].get_task("convert")
    ended["recordmill_on_worker"] = {}
    for status in STATUSES:
        task.bash_command = f"exit {status}"
        try:
            task.execute({})
        except Exception as error:
            ended["recordmill_on_worker"][status] = type(error).__name__
    task = bag.dags["recordmill_on_cluster"].get_task("convert")
    called, told = Path(scratch, "main.py"), Path(scratch, "called.json")
    called.write_text(TELL.format(str(told)))
    task.py_file, task.py_interpreter = str(called), sys.executable
    task.execute({})
    ended["recordmill_on_cluster"] = {}
    for status in STATUSES:
        called.write_text(f"raise SystemExit({status})")
        try:
            task.execute({})
        except Exception as error:
            ended["recordmill_on_cluster"][status] = type(error).__name__
    errors = {str(file): error for file, error in bag.import_errors.items()}
    argv = json.loads(told.read_text())[1:]
    found = {"errors": errors, "dags": facts, "argv": argv, "ended": ended}
    Path(scratch, "facts.json").write_text(json.dumps(found | {"assets": assets}))


main(*sys.argv[1:])
