"""Runs in Airflow's environment: prints what the DAGs in a folder are, as JSON.

The Beam operator really starts its Python file, which only tells how it was called, or
ends with one status after another.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
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


def main(dags: str, scratch: str) -> None:
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
                    "python": getattr(task, "py_interpreter", None),
                    "file": getattr(task, "py_file", None),
                }
                for task in dag.tasks
            },
        }
        for dag in bag.dags.values()
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
    Path(scratch, "facts.json").write_text(
        json.dumps({"errors": errors, "dags": facts, "argv": argv, "ended": ended})
    )


main(*sys.argv[1:])
