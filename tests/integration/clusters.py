"""Engines to run jobs on, each of separate processes on this machine.

    launcher -> Prism                                         one Go process
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
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from job_tools import children, is_alive
from store_servers import free_port, tool

READY_SECONDS = 60  # for a Java process on a machine that does much else
STOP_SECONDS = 15
WORKER_CACHE_MS = 2000
# Else each stage of a job starts workers anew.
CACHED_WORKERS = f"--environment_cache_millis={WORKER_CACHE_MS}"

# Flink and Kryo reach into the JDK; its own scripts give these options, too.
_OPEN = (
    "java.lang", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.text",
    "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic",
    "java.util.concurrent.locks", "sun.nio.ch",
)  # fmt: skip
_OPENED = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN]
_EXPORTED = ["--add-exports=java.base/sun.net.util=ALL-UNNAMED"]
# The serial collector has no threads of its own, and gives memory back.
_JAVA_OPTIONS = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *_EXPORTED, *_OPENED]

_LOG4J = """\
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} %m%n
"""


class Service:
    """A process group that a test started, with its log."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] = {}
    ) -> None:
        """Starts it in the folder of its log: Beam's boot program leaves files there."""
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=log.parent,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, what: str, ready: Callable[[], bool]) -> None:
        """Waits until it is ready; RuntimeError with its log if it never is."""
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{what} ended: {tail(self.log)}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{what}: not there after {READY_SECONDS} s: {tail(self.log)}"
                )
            time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of the process itself; what it started lives on."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it and what it started."""
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # nobody of the group is left
            os.killpg(self._process.pid, number)


def tail(log: Path, lines: int = 40) -> str:
    text = log.read_text(errors="replace").splitlines()
    return "\n".join([f"{log}:", *text[-lines:]])


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    found = children(pid)
    for child in found:
        found += children(child)
    return found


@contextmanager
def service(
    command: Sequence[str], log: Path, environment: Mapping[str, str] = {}
) -> Iterator[Service]:
    started = Service(command, log, environment)
    try:
        yield started
    finally:
        started.stop()


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


def python_first() -> dict[str, str]:
    """Makes plain `python` ours."""
    return {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def java() -> str:
    found = shutil.which("java")
    if found is None:
        raise FileNotFoundError("java: the Flink cluster needs Java 11 or 17 on PATH")
    return found


def class_path() -> str:
    return str(Path(tool("flink/.ready")).parent / "*")


@dataclass
class FlinkCluster:
    """A JobManager and TaskManagers.

    Attributes:
      folder: of configuration, logs and Flink's own files.
      slots: of each TaskManager.
      heap_mb: of each TaskManager's tasks: for a shard of the engine exchange, which
        Beam's runner holds in several copies there, several times its size.
      rest: address of the JobManager's REST API, host:port.
      task_managers: those that were started, dead ones too.
    """

    folder: Path
    slots: int = 2
    heap_mb: int = 256
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
        """Makes sure of two living TaskManagers with nothing to do."""
        for _ in range(2 - len(self.living())):
            self.add_task_manager()
        self.wait_for_slots(2 * self.slots)

    def living(self) -> list[Service]:
        return [manager for manager in self.task_managers if is_alive(manager.pid)]

    def add_task_manager(self) -> Service:
        log = self.folder / f"taskmanager{len(self.task_managers)}.log"
        command = self._java(
            "runtime.taskexecutor.TaskManagerRunner",
            f"-Xmx{self.heap_mb + 128}m",
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
        command = [java(), *_JAVA_OPTIONS, *memory, logging, "-cp", class_path()]
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
    command = [java(), *_JAVA_OPTIONS, "-Xmx384m"]
    command += [f"-Dlog4j.configurationFile={cluster.folder}/conf/log4j.properties"]
    command += ["-cp", class_path(), str(Path(__file__).with_name("JobServer.java"))]
    command += [f"--flink-master=http://{cluster.rest}", "--job-host=127.0.0.1"]
    command += [f"--job-port={port}", "--artifact-port=0", "--expansion-port=0"]
    command += [f"--artifacts-dir={cluster.folder}/artifacts"]
    with service(command, cluster.folder / f"jobserver{port}.log") as server:
        server.wait_for("the job server", lambda: listens(port))
        yield f"127.0.0.1:{port}", server


class Engines:
    """All engines, each started when it is first asked for, and how to reach them."""

    def __init__(self, folder: Path, heap_mb: int = 256) -> None:
        self.folder = folder
        self._heap_mb = heap_mb
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @cached_property
    def cluster(self) -> FlinkCluster:
        return self._stack.enter_context(
            FlinkCluster(self.folder, heap_mb=self._heap_mb)
        )

    @cached_property
    def _job_server(self) -> tuple[str, Service]:
        return self._stack.enter_context(flink_job_server(self.cluster))

    @cached_property
    def _pool(self) -> tuple[str, Service]:
        return self._stack.enter_context(worker_pool(self.folder))

    @property
    def pool(self) -> Service:
        """The worker pool, for all TaskManagers: Beam knows but one address of it."""
        return self._pool[1]

    def own_prism(self) -> list[str]:
        """Beam options for a Prism that the launcher starts, with itself as worker."""
        return ["--runner=PrismRunner", f"--prism_location={prism_binary()}"]

    def external(self) -> list[str]:
        """Beam options for workers from the worker pool."""
        return [
            "--environment_type=EXTERNAL",
            f"--environment_config={self._pool[0]}",
            CACHED_WORKERS,
        ]

    def flink(self) -> list[str]:
        """Beam options for Flink with workers from the worker pool."""
        return [*self._portable_flink(), *self.external()]

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
