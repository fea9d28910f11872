"""Flink as separate processes: a JobManager, TaskManagers, and Beam's job server.

job server -> JobManager -> TaskManagers -> Python workers
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from job_tools import is_alive
from services import (
    JAVA_OPTIONS,
    Service,
    class_path,
    descendants,
    java,
    python_first,
    service,
)
from store_servers import free_port, listens

WORKER_CACHE_MS = 2000
# Else each stage of a job starts workers anew.
CACHED_WORKERS = f"--environment_cache_millis={WORKER_CACHE_MS}"

_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""


@dataclass
class FlinkCluster:
    """A JobManager and TaskManagers.

    Attributes:
      folder: of configuration, logs and Flink's own files.
      slots: of each TaskManager.
      heap_mb: of each TaskManager's tasks.
      size: how many TaskManagers there are.
      rest: address of the JobManager's REST API, host:port.
      task_managers: those that were started, dead ones too.
    """

    folder: Path
    slots: int = 2
    heap_mb: int = 256
    size: int = 2
    rest: str = ""
    task_managers: list[Service] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        conf = self.folder / "conf"
        conf.mkdir()
        (conf / "log4j.properties").write_text(_LOG4J)
        rest_port, rpc_port = free_port(), free_port()
        self.rest = f"127.0.0.1:{rest_port}"
        settings = flink_settings(self.folder, rpc_port, rest_port, self.slots)
        settings["taskmanager.memory.task.heap.size"] = f"{self.heap_mb}m"
        text = "".join(f"{key}: {value}\n" for key, value in settings.items())
        (conf / "flink-conf.yaml").write_text(text)
        entry = "runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        log = self.folder / "jobmanager.log"
        command = self._java(entry, "-Xmx384m", "-XX:MaxMetaspaceSize=192m")
        manager = self._stack.enter_context(service(command, log))
        manager.wait_for("the JobManager", lambda: self.overview() is not None)
        self.replace_dead()

    def replace_dead(self) -> None:
        """Makes sure of as many living TaskManagers as asked, with nothing to do."""
        for _ in range(self.size - len(self.living())):
            self.add_task_manager()
        self.wait_for_slots(self.size * self.slots)

    def living(self) -> list[Service]:
        return [manager for manager in self.task_managers if is_alive(manager.pid)]

    def add_task_manager(self) -> Service:
        log = self.folder / f"taskmanager{len(self.task_managers)}.log"
        command = self._java(
            "runtime.taskexecutor.TaskManagerRunner",
            # All of the heap from the start, as Flink's own scripts have it.
            f"-Xmx{self.heap_mb + 128}m",
            f"-Xms{self.heap_mb + 128}m",
            "-XX:+AlwaysPreTouch",
            "-XX:MaxDirectMemorySize=320m",
            # Left alone, Beam's runner lives on without the thread that ran out of it.
            "-XX:+ExitOnOutOfMemoryError",
            "-XX:MaxMetaspaceSize=256m",
        )
        # Beam's boot program starts plain `python`, too.
        started = service(command, log, python_first())
        self.task_managers.append(self._stack.enter_context(started))
        return self.task_managers[-1]

    def _java(self, entry: str, *memory: str) -> list[str]:
        conf = self.folder / "conf"
        logging = f"-Dlog4j.configurationFile={conf}/log4j.properties"
        command = [java(), *JAVA_OPTIONS, *memory, logging, "-cp", class_path("flink")]
        return [*command, f"org.apache.flink.{entry}", "--configDir", str(conf)]

    def overview(self) -> dict[str, Any] | None:
        """What the JobManager tells of the cluster, or None if it does not answer."""
        with suppress(OSError, ValueError):
            return self.ask("/overview")
        return None

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self.rest}{path}", timeout=5) as answer:
            return json.load(answer)

    def wait_for_slots(self, count: int) -> None:
        """Waits until that many slots are there and free."""

        def free() -> bool:
            seen = self.overview() or {}
            return bool(seen.get("slots-available") == count)

        self.task_managers[-1].wait_for(f"{count} free slots", free)

    def jobs(self) -> dict[str, str]:
        """The state of every job, by its id."""
        return {job["id"]: job["status"] for job in self.ask("/jobs")["jobs"]}

    def last_job(self) -> dict[str, Any]:
        """What the JobManager tells of the job that was started last."""
        jobs = [self.ask(f"/jobs/{job}") for job in self.jobs()]
        last: dict[str, Any] = max(jobs, key=lambda job: job["start-time"])
        return last

    def shipped_bytes(self) -> int:
        """How many bytes the steps of the last job wrote for one another."""
        steps = self.ask(f"/jobs/{self.last_job()['jid']}")["vertices"]
        return sum(step["metrics"]["write-bytes"] for step in steps)

    def restarts(self) -> int:
        """How often the last job began again after a failure."""
        metrics = self.ask(f"/jobs/{self.last_job()['jid']}/exceptions")
        return len(metrics["exceptionHistory"]["entries"])

    def busy_task_manager(self) -> Service:
        """A living TaskManager that has workers."""
        return max(self.living(), key=lambda manager: len(descendants(manager.pid)))


def flink_settings(
    folder: Path, rpc_port: int, rest_port: int, slots: int
) -> dict[str, object]:
    return {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": rpc_port,
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.memory.process.size": "1024m",
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": rest_port,
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.numberOfTaskSlots": slots,
        # All of these must be said where Flink's start scripts do not work them out.
        "taskmanager.cpu.cores": 2.0,
        "taskmanager.memory.framework.heap.size": "64m",
        "taskmanager.memory.framework.off-heap.size": "64m",
        "taskmanager.memory.task.heap.size": "256m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.network.min": "128m",
        "taskmanager.memory.network.max": "128m",
        # 16 MB for each exchange of a job, as it is by default, is too much here.
        "taskmanager.network.sort-shuffle.min-buffers": 64,
        "taskmanager.memory.managed.size": "128m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "128m",
        "taskmanager.memory.jvm-overhead.max": "128m",
        # Else two slots of one TaskManager would do for a parallelism of 2.
        "cluster.evenly-spread-out-slots": "true",
        "cluster.uncaught-exception-handling": "FAIL",
        # A dead TaskManager is known dead at once: nothing answers at its address.
        "heartbeat.interval": 1000,
        "heartbeat.timeout": 30000,
        "heartbeat.rpc-failure-threshold": 2,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        # Longer than workers are cached: else each new try meets a dead one again.
        "restart-strategy.fixed-delay.delay": f"{WORKER_CACHE_MS + 2000} ms",
        "io.tmp.dirs": folder / "tmp",
        "blob.storage.directory": folder / "blobs",
    }


@contextmanager
def flink_job_server(cluster: FlinkCluster) -> Iterator[tuple[str, Service]]:
    """Beam's job server for a cluster; gives its job endpoint, and itself."""
    port = free_port()
    command = [java(), *JAVA_OPTIONS, "-Xmx384m"]
    command += [f"-Dlog4j.configurationFile={cluster.folder}/conf/log4j.properties"]
    command += [
        "-cp",
        class_path("flink"),
        str(Path(__file__).with_name("JobServer.java")),
    ]
    command += [f"--flink-master=http://{cluster.rest}", "--job-host=127.0.0.1"]
    command += [f"--job-port={port}", "--artifact-port=0", "--expansion-port=0"]
    command += [f"--artifacts-dir={cluster.folder}/artifacts"]
    with service(command, cluster.folder / f"jobserver{port}.log") as server:
        server.wait_for("the job server", lambda: listens(port))
        yield f"127.0.0.1:{port}", server
