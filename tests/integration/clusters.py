"""Engines to run jobs on, each of separate processes on this machine.

    launcher -> Prism                                         one Go process
    launcher -> job server with Spark                         one Java process
    launcher -> job server -> JobManager -> TaskManagers      four Java processes
                                              |
                  Python workers, from a worker pool or from Beam's boot program

All listen on free ports of 127.0.0.1 (the worker pool, which cannot be told so, on all
addresses), keep their logs in a folder of the test's, and are ended by their own process
groups. Their parts are where `make test-integration` puts them; one that is missing is
an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Self

from flink_cluster import CACHED_WORKERS, FlinkCluster, flink_job_server
from job_tools import UNLISTED
from services import Service, python_first, service, tail
from spark_server import spark_job_server
from store_servers import free_port, listens, tool

# Threads of the launcher as workers: no process imports Beam first.
THREADS = ["--environment_type=LOOPBACK", CACHED_WORKERS, UNLISTED]


@contextmanager
def prism(folder: Path) -> Iterator[str]:
    """A Prism that serves many jobs; gives its job endpoint."""
    port = free_port()
    command = [prism_binary(), f"--job_port={port}", "--serve_http=false"]
    with service(command, folder / "prism.log") as server:
        server.wait_for("Prism", lambda: listens(port))
        yield f"127.0.0.1:{port}"


def prism_binary() -> str:
    return tool("prism-*/prism")


def boot_binary() -> str:
    """Beam's program that starts a Python worker."""
    return tool("beam-boot-*/container")


@contextmanager
def worker_pool(folder: Path) -> Iterator[tuple[str, Service]]:
    """Beam's worker pool; gives its address, and itself.

    It starts each worker as plain `python`, so PATH must lead to ours; and never reads
    what a worker prints, so nobody may print much.
    """
    port = free_port()
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"]
    command += [f"--service_port={port}"]
    with service(command, folder / "pool.log", python_first()) as pool:
        pool.wait_for("the worker pool", lambda: listens(port))
        yield f"127.0.0.1:{port}", pool


class Engines:
    """All engines, each started when it is first asked for, and how to reach them."""

    def __init__(
        self, folder: Path, heap_mb: int = 256, task_managers: int = 2
    ) -> None:
        self.folder = folder
        self._heap_mb = heap_mb
        self._task_managers = task_managers
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @cached_property
    def cluster(self) -> FlinkCluster:
        return self._stack.enter_context(
            FlinkCluster(self.folder, heap_mb=self._heap_mb, size=self._task_managers)
        )

    @cached_property
    def _job_server(self) -> tuple[str, Service]:
        return self._stack.enter_context(flink_job_server(self.cluster))

    @cached_property
    def _pool(self) -> tuple[str, Service]:
        return self._stack.enter_context(worker_pool(self.folder))

    @property
    def job_server(self) -> Service:
        return self._job_server[1]

    @property
    def pool(self) -> Service:
        """The worker pool, for all TaskManagers: Beam knows but one address of it."""
        return self._pool[1]

    def own_prism(self) -> list[str]:
        """Beam options for a Prism that the launcher starts, with itself as worker."""
        return ["--runner=PrismRunner", f"--prism_location={prism_binary()}", UNLISTED]

    @cached_property
    def _spark(self) -> str:
        return self._stack.enter_context(spark_job_server(self.folder))

    def spark(self, *, in_threads: bool = False) -> list[str]:
        """Beam options for Spark with workers from the worker pool, or in threads."""
        server = ["--runner=PortableRunner", f"--job_endpoint={self._spark}"]
        return [*server, *(THREADS if in_threads else self.external())]

    def external(self) -> list[str]:
        """Beam options for workers from the worker pool."""
        return [
            "--environment_type=EXTERNAL",
            f"--environment_config={self._pool[0]}",
            CACHED_WORKERS,
        ]

    def flink(self, *, in_threads: bool = False) -> list[str]:
        """Beam options for Flink with workers from the worker pool, or in threads."""
        workers = THREADS if in_threads else self.external()
        return [*self._portable_flink(), *workers]

    def _portable_flink(self) -> list[str]:
        """The job server knows the cluster; the launcher, only to cancel its job."""
        return [
            "--runner=PortableRunner",
            f"--job_endpoint={self._job_server[0]}",
            f"--flink_master={self.cluster.rest}",
        ]

    def flink_with_processes(self) -> list[str]:
        """Beam options for Flink with workers that the TaskManagers start."""
        # Else the boot program makes an environment without our packages.
        variables = {"RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT": "1"}
        config = json.dumps({"command": boot_binary(), "env": variables})
        return [
            *self._portable_flink(),
            "--environment_type=PROCESS",
            f"--environment_config={config}",
            CACHED_WORKERS,
        ]

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(tail(log) for log in sorted(self.folder.glob("*.log")))
