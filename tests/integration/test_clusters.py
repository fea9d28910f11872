"""The command on engines of their own: the same bytes, whatever runs and whatever dies."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from clusters import THREADS, Engines, prism
from example_counts import FACTOR
from flink_cluster import FlinkCluster, flink_job_server
from job_inputs import MixedInput
from job_tools import (
    HANG_SECONDS,
    IRIS,
    SAMPLES,
    Argument,
    Ran,
    assert_unpublished,
    assert_whole,
    command,
    contents,
    convert,
    ended,
    is_alive,
    recordmill,
    started,
)
from map_tools import UNEVEN
from services import descendants

# How rows of each source may travel. All exchanges give the same bytes.
EXCHANGES = {
    "csv": ("engine", "scratch"),
    "cifar": ("engine", "scratch", "reference"),
    "images": ("engine", "scratch", "reference"),
}
KILLED = os.environ.get("RECORDMILL_KILLED", "").partition(":")[0] or "csv"
OPTIONS: list[Argument] = ["--name", "same", "--shards", 5, "--split", "train=0.8"]
OPTIONS += ["--split", "validation=0.2"]


@pytest.fixture
def cluster(engines: Engines) -> FlinkCluster:
    """The Flink cluster, with two living TaskManagers and all of their slots free."""
    engines.cluster.replace_dead()
    return engines.cluster


@pytest.fixture(scope="session")
def inputs(
    mixed: MixedInput, cifar_folder: Path, image_folder: Path
) -> dict[str, list[Path]]:
    """Several input ranges of each source, in one file or many.

    RECORDMILL_KILLED=csv:FILE takes another one, such as a GB, for `-k is_killed`.
    """
    found = {
        "csv": list(mixed.files),
        "cifar": [cifar_folder],
        "images": [image_folder],
    }
    path = os.environ.get("RECORDMILL_KILLED", "").partition(":")[2]
    return {**found, KILLED: [Path(path).absolute()] if path else found[KILLED]}


@pytest.fixture(scope="session")
def expected(
    tmp_path_factory: pytest.TempPathFactory, inputs: dict[str, list[Path]]
) -> Callable[[str], dict[str, str]]:
    """The digests that one worker of the embedded runner makes of each source."""
    known: dict[str, dict[str, str]] = {}

    def of(source: str) -> dict[str, str]:
        if source not in known:
            output = tmp_path_factory.mktemp("expected") / "same"
            convert(source, *inputs[source], output, *OPTIONS, "--workers", 1)
            known[source] = contents(output)
        return known[source]

    return of


def run_well(*arguments: Argument, engines: Engines) -> Ran:
    ran = command(*arguments)
    assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
    return ran


ENGINES = ["embedded x 1", "embedded x 2", "prism", "spark"]
# All pairs of a source, an exchange and a number of slots: a job takes Flink four times as
# long as Prism.
ON_FLINK = [
    ("flink x 1", "csv", "engine"),
    ("flink x 1", "cifar", "scratch"),
    ("flink x 1", "images", "reference"),
    ("flink x 2", "csv", "scratch"),
    ("flink x 2", "cifar", "reference"),
    ("flink x 2", "images", "engine"),
    ("flink x 4", "csv", "engine"),
    ("flink x 4", "cifar", "engine"),
    ("flink x 4", "cifar", "reference"),
    ("flink x 4", "images", "scratch"),
]
if FACTOR > 1:
    ENGINES, ON_FLINK = [*ENGINES, "flink x 1", "flink x 2", "flink x 4"], []


@pytest.mark.parametrize(
    ("engine", "source", "exchange"),
    [
        (engine, source, exchange)
        for engine in ENGINES
        for source in EXCHANGES
        for exchange in EXCHANGES[source]
    ]
    + ON_FLINK,
)
def test_same_bytes(
    tmp_path: Path,
    engines: Engines,
    inputs: dict[str, list[Path]],
    expected: Callable[[str], dict[str, str]],
    engine: str,
    source: str,
    exchange: str,
) -> None:
    name, _, workers = engine.partition(" x ")
    beam = {
        "embedded": lambda: [f"--direct_num_workers={workers}"],
        "prism": lambda: engines.own_prism(),
        "spark": lambda: engines.spark(in_threads=source != "csv"),
        "flink": lambda: [*engines.flink(in_threads=True), f"--parallelism={workers}"],
    }[name]()
    output = tmp_path / "same"
    arguments = ["convert", source, *inputs[source], output, *OPTIONS]
    # In this process: fifty more imports of Beam would prove nothing.
    ran = recordmill(*arguments, "--exchange", exchange, "--", *beam)
    assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
    assert_whole(output)
    assert contents(output) == expected(source)


@pytest.mark.parametrize("source", EXCHANGES)
def test_a_sample_is_the_same_on_prism(
    tmp_path: Path, engines: Engines, inputs: dict[str, list[Path]], source: str
) -> None:
    more: list[Argument] = ["--sample", "60%", "--limit", 5]
    job: list[Argument] = ["convert", source, *inputs[source]]
    for output, behind in (("alone", []), ("prism", ["--", *engines.own_prism()])):
        ran = recordmill(*job, tmp_path / output, *OPTIONS, *more, *behind)
        assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
        assert_whole(tmp_path / output)
    assert contents(tmp_path / "prism") == contents(tmp_path / "alone")


def test_flink_ships_each_piece_once(
    tmp_path: Path, engines: Engines, cluster: FlinkCluster
) -> None:
    """Flink writes what a step emits once for each of its outputs, and for a Flatten."""
    lines = "".join(f"{n},{n * 7919 % 100_003},{n % 11}\n" for n in range(200_000))
    table = tmp_path / "rows.csv"
    table.write_text("id,value,kind\n" + lines)
    output = tmp_path / "same"
    ran = recordmill(
        *("convert", "csv", table, output, *OPTIONS, "--exchange", "engine"),
        *("--", *engines.flink(in_threads=True), "--parallelism=2"),
    )
    assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
    shipped = cluster.shipped_bytes()
    # A row takes 20 bytes: 12 of values, 8 of its key.
    assert shipped < 200_000 * 30, shipped


def test_flink_ships_no_image(
    tmp_path: Path, engines: Engines, cluster: FlinkCluster
) -> None:
    """But references: whoever writes a shard reads the images, as on one machine."""
    folder = tmp_path / "in"
    (folder / "a").mkdir(parents=True)
    (image, *_) = sorted((SAMPLES / "images").rglob("*.jpg"))
    for number in range(200):
        file = folder / "a" / f"{number}.jpg"
        file.write_bytes(image.read_bytes() + bytes([number]) * 40_000)
    convert("images", folder, tmp_path / "here" / "same", *OPTIONS)
    arguments = ["convert", "images", folder, tmp_path / "there" / "same", *OPTIONS]
    beam = [*engines.flink(in_threads=True), "--parallelism=2"]
    ran = recordmill(*arguments, "--", *beam)
    assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    # Of 8 MB; 200 references, and what steps say of ranges and shards.
    assert cluster.shipped_bytes() < 400_000


@pytest.mark.parametrize("engine", ["prism", "flink"])
def test_workers_run_a_function_whose_text_goes_with_the_job(
    tmp_path: Path, engines: Engines, inputs: dict[str, list[Path]], engine: str
) -> None:
    """The file is no module that they could import."""
    script = tmp_path / "uneven_rows.py"
    script.write_text(UNEVEN)
    job: list[Argument] = ["convert", "images", *inputs["images"]]
    job_options: list[Argument] = [*OPTIONS, "--max-rejects", "90%"]
    job_options += ["--map", f"{script}:uneven", "--exchange", "engine"]
    beam = {"prism": engines.own_prism, "flink": engines.flink}[engine]()
    for output, behind in (("alone", []), (engine, ["--", *beam])):
        ran = recordmill(*job, tmp_path / output, *job_options, *behind)
        assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
        assert_whole(tmp_path / output)
    assert contents(tmp_path / engine) == contents(tmp_path / "alone")


def test_one_prism_serves_many_jobs(
    tmp_path: Path, engines: Engines, iris: Path
) -> None:
    with prism(engines.folder) as endpoint:
        beam = ["--runner=PortableRunner", f"--job_endpoint={endpoint}"]
        # The second by workers in threads: Beam is not imported by a process more.
        for name, workers in (("first", engines.external()), ("second", THREADS)):
            output = tmp_path / name / "iris"
            arguments = ["convert", "csv", IRIS, output, "--shards", 2, "--"]
            ran = recordmill(*arguments, *beam, *workers)
            assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
            assert contents(output) == contents(iris)


A_RANGE_IS_DONE = "facts/range-*.json"
A_RANGE_IS_SENT = "facts/range-engine-*.json"
A_SHARD_IS_BEGUN = "staging/.*.tfrecord-*"
THIRDS = (A_RANGE_IS_DONE, A_RANGE_IS_SENT, A_SHARD_IS_BEGUN)
# Each takes up to 40 processor seconds: `make test-long` has more.
# A worker dies while one bundle after the other is at work. Beam waits for ever for one that
# dies as it starts (ExternalEnvironmentFactory), or just as a bundle is sent to it between two
# steps (FnApiControlClient). docs/clusters.md says how people see that, and what to do.
WORKER_IN = THIRDS[:1] if FACTOR <= 1 else THIRDS[::2]
TASK_MANAGER_IN = THIRDS[2:] if FACTOR <= 1 else THIRDS
# One takes the same way as the other; test_signals.py has all, without an engine.
INTERRUPTED_BY = [signal.SIGTERM] if FACTOR <= 1 else [signal.SIGINT, signal.SIGTERM]


def in_mid_run(output: Path, moment: str = A_RANGE_IS_DONE) -> Callable[[], bool]:
    def reached() -> bool:
        with suppress(FileNotFoundError):  # a folder that is there comes and goes
            return bool(list(output.glob(f".recordmill/*/{moment}")))
        return False

    return reached


def is_connected(pid: int) -> bool:
    """Tells whether a worker has begun to talk to its TaskManager."""
    with suppress(FileNotFoundError):  # a file is closed, or the process has ended
        files = Path(f"/proc/{pid}/fd").iterdir()
        return any(os.readlink(file).startswith("socket:") for file in files)  # noqa: PTH115
    return False


def wait_until(true: Callable[[], bool], running: Callable[[], bool]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while not true():
        assert running(), "ended before its time"
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("moment", TASK_MANAGER_IN)
def test_task_manager_is_killed(
    tmp_path: Path,
    engines: Engines,
    cluster: FlinkCluster,
    inputs: dict[str, list[Path]],
    expected: Callable[[str], dict[str, str]],
    moment: str,
) -> None:
    """While ranges are read, sent, or shards written: Flink begins again on the other.

    Each TaskManager starts its own workers by Beam's boot program, without a pool.
    """
    output = tmp_path / "same"
    arguments = ["convert", KILLED, *inputs[KILLED], output, *OPTIONS, "--"]
    beam = [*engines.flink_with_processes(), "--parallelism=2"]
    with started(*arguments, *beam) as process:
        wait_until(in_mid_run(output, moment), lambda: process.poll() is None)
        victim = cluster.busy_task_manager()
        workers = descendants(victim.pid)
        victim.kill()
        ran = ended(process)
    assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
    assert workers, "the TaskManager had no worker: nothing was lost with it"
    assert cluster.restarts() > 0, "Flink never began again: killed too late"
    assert_whole(output)
    assert contents(output) == expected(KILLED)
    # Beam's boot program outlives its TaskManager, with a worker that waits for ever.
    victim.stop()
    wait_until(lambda: not any(map(is_alive, workers)), lambda: True)


@pytest.mark.parametrize("moment", WORKER_IN)
def test_worker_is_killed(
    tmp_path: Path,
    engines: Engines,
    cluster: FlinkCluster,
    inputs: dict[str, list[Path]],
    expected: Callable[[str], dict[str, str]],
    moment: str,
) -> None:
    output = tmp_path / "same"
    arguments = ["convert", KILLED, *inputs[KILLED], output, *OPTIONS, "--"]
    beam = [*engines.flink(), "--parallelism=2"]
    with started(*arguments, *beam) as process:
        wait_until(in_mid_run(output, moment), lambda: process.poll() is None)
        workers: list[int] = []
        while not workers:
            assert process.poll() is None, "ended before its time"
            workers += filter(is_connected, descendants(engines.pool.pid))
        os.kill(workers[-1], signal.SIGKILL)
        ran = ended(process)
    assert ran.status == 0, f"{ran.err}\n{engines.tails()}"
    assert cluster.restarts() > 0, "Flink never began again: killed too late"
    assert_whole(output)
    assert contents(output) == expected(KILLED)


@pytest.mark.parametrize("number", INTERRUPTED_BY)
def test_interrupted_launcher_cancels_its_job(
    tmp_path: Path,
    engines: Engines,
    cluster: FlinkCluster,
    inputs: dict[str, list[Path]],
    expected: Callable[[str], dict[str, str]],
    number: signal.Signals,
) -> None:
    output = tmp_path / "same"
    arguments = ["convert", "csv", *inputs["csv"], output, *OPTIONS, "--"]
    beam = [*engines.flink(), "--parallelism=1"]
    with started(*arguments, *beam) as process:
        wait_until(in_mid_run(output), lambda: process.poll() is None)
        process.send_signal(number)
        ran = ended(process)
    assert ran.status == 128 + number
    assert cluster.last_job()["state"] == "CANCELED"
    assert_unpublished(output)
    run_well(*arguments, *beam, engines=engines)
    assert contents(output) == expected("csv")


def test_lost_job_server(
    tmp_path: Path,
    engines: Engines,
    cluster: FlinkCluster,
    inputs: dict[str, list[Path]],
) -> None:
    output = tmp_path / "same"
    with flink_job_server(cluster) as (endpoint, server):
        beam = [*engines.flink(), f"--job_endpoint={endpoint}", "--parallelism=1"]
        arguments = ["convert", "csv", *inputs["csv"], output, *OPTIONS, "--", *beam]
        with started(*arguments) as process:
            wait_until(in_mid_run(output), lambda: process.poll() is None)
            server.kill()
            ran = ended(process)
    assert ran.status == 1
    assert f"the job server was lost ({endpoint}: UNAVAILABLE)" in ran.err
    # What goes on there cannot publish.
    over = {"FINISHED", "FAILED", "CANCELED"}
    wait_until(lambda: set(cluster.jobs().values()) <= over, lambda: True)
    assert_unpublished(output)


@pytest.mark.parametrize("engine", ["prism", "flink"])
def test_error_of_a_worker(tmp_path: Path, engines: Engines, engine: str) -> None:
    """Told as on the embedded runner, and at once: no try can help."""
    beam = engines.own_prism() if engine == "prism" else engines.flink()
    output = tmp_path / "iris"
    ran = command("convert", "csv", IRIS, output, "--split-by", "colour", "--", *beam)
    assert (ran.status, ran.out) == (2, "")
    assert "Error: --split-by colour: no such column" in ran.err
    assert_unpublished(output)


def test_option_that_nobody_knows(tmp_path: Path, engines: Engines) -> None:
    options = [*engines.flink(), "--wrokers=2"]
    ran = command("convert", "csv", IRIS, tmp_path / "iris", "--", *options)
    assert ran.status == 2
    assert "neither Beam nor the job server has an option --wrokers=2" in ran.err


def test_option_that_only_the_job_server_knows(
    tmp_path: Path, engines: Engines, iris: Path
) -> None:
    options = [*engines.flink(), "--execution_retry_delay=1000"]
    output = tmp_path / "iris"
    arguments = ["convert", "csv", IRIS, output, "--shards", 2, "--", *options]
    run_well(*arguments, engines=engines)
    assert contents(output) == contents(iris)
    assert json.loads((output / "run.json").read_text())["runner"] == "PortableRunner"


def test_detached_job_publishes_by_itself(
    tmp_path: Path,
    engines: Engines,
    cluster: FlinkCluster,
    inputs: dict[str, list[Path]],
    expected: Callable[[str], dict[str, str]],
) -> None:
    """The launcher is gone long before the end; nobody else moves a file."""
    output = tmp_path / "same"
    arguments = ["convert", "csv", *inputs["csv"], output, *OPTIONS, "--detach"]
    beam = [*engines.flink(), "--parallelism=2"]
    ran = run_well(*arguments, "--json", "--", *beam, engines=engines)
    facts = json.loads(ran.out)
    assert facts["status"] == "submitted"
    assert facts["job"]
    assert not (output / "manifest.json").exists()
    wait_until((output / "manifest.json").exists, lambda: True)
    wait_until(lambda: cluster.last_job()["state"] == "FINISHED", lambda: True)
    assert_whole(output)
    assert contents(output) == expected("csv")
    again = run_well(*arguments, "--json", "--", *beam, engines=engines)
    assert json.loads(again.out)["status"] == "unchanged"
