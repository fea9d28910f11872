"""Measure recordmill beside its peers, whole processes in one run.

    python tests/bench/run.py [csv|cifar|images|memory|startup|all]

See README.md here for what is compared. Uses the standard library only: a small
parent keeps the kernel's peak memory of the children true (see measure.py).
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import goals
from goals import PEERS, Peer
from measure import Measurement, run_measured
from report import Line, print_lines
from tfrecord_count import count_records

HERE = Path(__file__).resolve().parent
DEFAULT_ROWS = {"csv": 1_000_000, "cifar": 500_000, "images": 5_000}
STARTUP_ROWS = 10
# Same quiet, CPU-only TensorFlow for everyone.
ENVIRONMENT = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}


class RunError(Exception):
    """A measured command failed or left the wrong number of records."""


@dataclasses.dataclass(frozen=True)
class Bench:
    """The settings of one benchmark run."""

    recordmill: Path
    python: Path
    peers: Path
    tfx_peers: Path | None
    folder: Path
    workers: int
    repeat: int
    peer_repeat: int
    scale: float
    skip: frozenset[str]

    def convert(self, kind: str, source: Path, target: Path) -> list[str]:
        """Give recordmill's command line."""
        words = [self.recordmill, "convert", kind, source, target]
        return [*map(str, words), "--workers", str(self.workers)]

    def peer(self, peer: Peer, kind: str, source: Path, target: Path) -> list[str]:
        """Give a peer's command line."""
        own = {"tfx": self.tfx_peers, "copy": self.python}
        python = own.get(peer.name, self.peers)
        words = [python, HERE / peer.script, kind, source, target]
        return [*map(str, words), *peer.options]

    def num_rows(self, kind: str) -> int:
        """Give the scaled number of rows of an input."""
        return max(1, round(DEFAULT_ROWS[kind] * self.scale))

    def active_peers(self, kind: str) -> list[Peer]:
        """List the peers that are asked for and have an environment."""
        return [
            peer
            for peer in PEERS[kind]
            if peer.name not in self.skip
            and (peer.name != "tfx" or self.tfx_peers is not None)
        ]


def make_input(bench: Bench, kind: str, num_rows: int) -> Path:
    """Make an input in a process of its own and read it once into the page cache."""
    command = [bench.python, HERE / "inputs.py", kind, "--rows", str(num_rows)]
    made = subprocess.run(
        [*map(str, command), "--folder", str(bench.folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    source = Path(made.stdout.strip())
    for path in source.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
    return source / "rows.csv" if kind == "csv" else source


def run_once(bench: Bench, command: Sequence[str], target: Path | None) -> Measurement:
    """Run a command with its output folder removed and earlier writes on disk."""
    if target is not None:
        shutil.rmtree(target, ignore_errors=True)
    os.sync()
    log = bench.folder / "last-run.log"
    measurement = run_measured(command, env=ENVIRONMENT, log=log)
    if measurement.exit_code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RunError(
            f"exit status {measurement.exit_code}: {' '.join(command)}\n{tail}"
        )
    return measurement


def run_conversion(
    bench: Bench, command: Sequence[str], target: Path, num_rows: int
) -> Measurement:
    """Run a conversion, check its number of records, and remove its output."""
    measurement = run_once(bench, command, target)
    num_records = count_records(target)
    if num_records != num_rows:
        raise RunError(f"{num_records} records of {num_rows} rows: {' '.join(command)}")
    is_recordmill = command[0] == str(bench.recordmill)
    if is_recordmill and not (target / "manifest.json").is_file():
        raise RunError(f"no manifest.json: {' '.join(command)}")
    shutil.rmtree(target)
    return measurement


def require_memory(peer: Peer, num_rows: int) -> None:
    """Refuse a run that would not fit into the memory that is free now."""
    meminfo = Path("/proc/meminfo").read_text().split()
    free_bytes = int(meminfo[meminfo.index("MemAvailable:") + 1]) * 1024
    need_bytes = peer.row_memory_bytes * num_rows
    if need_bytes > 0.8 * free_bytes:
        raise RunError(
            f"{peer.script} may hold {need_bytes / 1e9:.1f} GB for {num_rows} rows and"
            f" {free_bytes / 1e9:.1f} GB are free: use --skip {peer.name} or --scale"
        )


def compare(bench: Bench, kind: str) -> list[Line]:
    """Measure recordmill and the peers of one input, interleaved."""
    num_rows = bench.num_rows(kind)
    peers = bench.active_peers(kind)
    for peer in peers:
        require_memory(peer, num_rows)
    source = make_input(bench, kind, num_rows)
    target = bench.folder / "output"
    runs: dict[str, list[Measurement]] = {}
    for repetition in range(max(bench.repeat, bench.peer_repeat)):
        commands = {}
        if repetition < bench.repeat:
            commands["recordmill"] = bench.convert(kind, source, target)
        if repetition < bench.peer_repeat:
            for peer in peers:
                commands[peer.name] = bench.peer(peer, kind, source, target)
        for name, command in commands.items():
            measurement = run_conversion(bench, command, target, num_rows)
            runs.setdefault(name, []).append(measurement)
            print(f"{kind} {name}: {measurement.seconds:.2f} s", file=sys.stderr)
    lines = [Line.of_runs(f"{kind} recordmill", num_rows, runs["recordmill"])]
    own_seconds = lines[0].seconds
    for peer in peers:
        line = Line.of_runs(f"{kind} {peer.name}", num_rows, runs[peer.name])
        lines.append(line.beside(own_seconds, at_least=peer.goal))
    return lines


def measure_memory(bench: Bench) -> list[Line]:
    """Measure the peak memory of converting CIFAR at three sizes."""
    lines = []
    for full_rows in goals.MEMORY_ROWS:
        num_rows = max(1, round(full_rows * bench.scale))
        source = make_input(bench, "cifar", num_rows)
        target = bench.folder / "output"
        command = bench.convert("cifar", source, target)
        measurement = run_conversion(bench, command, target, num_rows)
        line = Line.of_runs(
            f"memory {num_rows * 3073 / 1e9:.2f} GB", num_rows, [measurement]
        )
        lines.append(line.within_peak(goals.MAX_PEAK_BYTES))
    return lines


def measure_startup(bench: Bench) -> list[Line]:
    """Measure a ten-row CSV beside Beam's import, and the help text."""
    source = make_input(bench, "csv", STARTUP_ROWS)
    target = bench.folder / "output"
    commands = {
        "import apache_beam": [str(bench.python), "-c", "import apache_beam"],
        "ten-row CSV": bench.convert("csv", source, target),
        "recordmill --help": [str(bench.recordmill), "--help"],
    }
    runs: dict[str, list[Measurement]] = {name: [] for name in commands}
    # One round more, not counted: it compiles and caches what all rounds load.
    for repetition in range(goals.STARTUP_REPEAT + 1):
        for name, command in commands.items():
            measurement = run_once(bench, command, target)
            if repetition > 0:
                runs[name].append(measurement)
    shutil.rmtree(target, ignore_errors=True)
    beam_import, ten_rows, help_text = (
        Line.of_runs(f"startup {name}", None, measured)
        for name, measured in runs.items()
    )
    return [
        beam_import,
        ten_rows.over(beam_import.seconds, below=goals.MAX_STARTUP_RATIO),
        help_text.within_seconds(goals.MAX_HELP_SECONDS),
    ]


def machine() -> dict[str, str | int | None]:
    """Describe the machine: figures of two machines are not comparable."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    choices = (*PEERS, "memory", "startup", "all")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=choices, default="all")
    parser.add_argument("--repeat", type=int, default=3, help="runs of recordmill")
    parser.add_argument("--peer-repeat", type=int, default=1, help="runs of each peer")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--workers", type=int, default=2, help="for recordmill")
    parser.add_argument("--skip", action="append", default=[], metavar="PEER")
    parser.add_argument("--recordmill", type=Path, default=Path(".venv/bin/recordmill"))
    parser.add_argument("--python", type=Path, help="default: beside --recordmill")
    parser.add_argument("--peers", type=Path, default=Path(".venv-interop/bin/python"))
    parser.add_argument("--tfx-peers", type=Path, help="python with tfx_bsl")
    parser.add_argument("--folder", type=Path, default=Path("bench-data"))
    parser.add_argument("--json", type=Path, help="write the table as JSON, too")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Run the benchmarks asked for; 1: a run failed, 3: a goal was missed."""
    arguments = parse_arguments(argv)
    bench = Bench(
        recordmill=arguments.recordmill,
        python=arguments.python or arguments.recordmill.parent / "python",
        peers=arguments.peers,
        tfx_peers=arguments.tfx_peers,
        folder=arguments.folder,
        workers=arguments.workers,
        repeat=arguments.repeat,
        peer_repeat=arguments.peer_repeat,
        scale=arguments.scale,
        skip=frozenset(arguments.skip),
    )
    bench.folder.mkdir(parents=True, exist_ok=True)
    whats = (
        (*PEERS, "memory", "startup") if arguments.what == "all" else [arguments.what]
    )
    lines: list[Line] = []
    failed = False
    for what in whats:
        try:
            if what == "memory":
                lines += measure_memory(bench)
            elif what == "startup":
                lines += measure_startup(bench)
            else:
                lines += compare(bench, what)
        except (RunError, OSError, subprocess.CalledProcessError) as error:
            print(f"{what}: {error}", file=sys.stderr)
            failed = True
    print_lines(lines)
    if arguments.json:
        table = [dataclasses.asdict(line) for line in lines]
        report = {"machine": machine(), "scale": bench.scale, "lines": table}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    if failed:
        return 1
    return 3 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
