"""Peak memory of every worker of a Flink run on CIFAR-like input.

    python tests/bench/flink_memory.py [--gb 3] [--exchange engine] [--folder bench-data]

Runs on the integration tests' Flink cluster (`make test-integration` gets its parts) with
parallelism 2, so with a Python worker on each of two TaskManagers, and fails if one of
them ever holds more than 700 MB. Memory is the resident set (RSS), polled.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE),
    str(HERE.parent / "helpers"),
    str(HERE.parent / "integration"),
]

from clusters import Engines  # noqa: E402
from inputs import CIFAR_RECORD_BYTES, make_input  # noqa: E402
from measure import process_tree, resident_bytes  # noqa: E402
from services import descendants  # noqa: E402

LIMIT_BYTES = 700_000_000
POLL_SECONDS = 0.1


def run_and_watch(
    command: list[str], engines: Engines
) -> tuple[int, dict[int, int], dict[int, int]]:
    """Runs a command; its exit status, peak RSS of the workers and of the JVMs by pid."""
    workers: dict[int, int] = {}
    machines: dict[int, int] = {}
    roots = [manager.pid for manager in engines.cluster.task_managers]
    process = subprocess.Popen(command)
    try:
        while process.poll() is None:
            for peaks, pids in (
                (workers, descendants(engines.pool.pid)),
                (machines, [pid for root in roots for pid in process_tree(root)]),
            ):
                for pid in pids:
                    peaks[pid] = max(peaks.get(pid, 0), resident_bytes(pid)[0])
            time.sleep(POLL_SECONDS)
    finally:
        process.kill()
        process.wait()
    return process.returncode, workers, machines


def main(argv: list[str]) -> int:
    """Makes the input, runs, prints the peaks; 1 if a worker held too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=3.0, help="10**9 bytes of input")
    parser.add_argument("--exchange", default="engine")
    parser.add_argument("--shard-size", default="128MiB")
    parser.add_argument("--heap-mb", type=int, default=256, help="of a TaskManager")
    parser.add_argument("--logs", type=Path, help="an empty folder for the cluster's")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    arguments = parser.parse_args(argv)
    rows = int(arguments.gb * 1e9 / CIFAR_RECORD_BYTES)
    source = make_input("cifar", rows, arguments.folder)
    output = arguments.folder / "flink-memory"
    shutil.rmtree(output, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix="flink-memory-") as logs,
        Engines(arguments.logs or Path(logs), arguments.heap_mb) as engines,
    ):
        command = [str(Path(sys.executable).with_name("recordmill")), "convert"]
        command += [
            "cifar",
            str(source),
            str(output),
            "--shard-size",
            arguments.shard_size,
        ]
        command += ["--exchange", arguments.exchange]
        command += ["--", *engines.flink(), "--parallelism=2"]
        # Both TaskManagers number their workers alike, and share a pool here, which
        # would end the one's worker when the other lets go of its own.
        command += ["--environment_cache_millis=600000"]
        start = time.perf_counter()
        status, workers, machines = run_and_watch(command, engines)
        seconds = time.perf_counter() - start
        if status:
            print(engines.tails(), file=sys.stderr)
    shutil.rmtree(output, ignore_errors=True)
    if status or not workers:
        print(f"the run failed ({status}), or no worker was seen", file=sys.stderr)
        return 1
    print(f"{arguments.gb} GB, {rows} records, {arguments.exchange}: {seconds:.1f} s")
    for what, peaks in (("Python worker", workers), ("TaskManager", machines)):
        for pid, peak in sorted(peaks.items()):
            print(f"{what} {pid}: {peak / 1e6:.0f} MB")
    worst = max(workers.values())
    if worst > LIMIT_BYTES:
        print(f"a worker held {worst / 1e6:.0f} MB, more than {LIMIT_BYTES / 1e6:.0f}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
