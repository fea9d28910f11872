"""The environments that commands of the benchmark run in, and what is installed there."""

from __future__ import annotations

import dataclasses
import mmap
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
DISK_BYTES = 512 << 20


def machine() -> dict[str, Any]:
    """Describes the machine, by what does not change from run to run."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def make_input(
    python: Path, kind: str, rows: int, folder: Path, *options: str | Path
) -> Path:
    """Returns an input, made unless it is there, after reading it into the page cache."""
    command = [python, HERE / "inputs.py", kind, "--rows", rows, "--folder", folder]
    made = subprocess.run(
        [*map(str, [*command, *options])], check=True, stdout=subprocess.PIPE, text=True
    )
    source = Path(made.stdout.strip()).absolute()
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.read(1 << 20):
                    pass
    return source


def disk_speed(folder: Path, scale: float) -> dict[str, float]:
    """Measures megabytes a second of one file: written and synced, and read past caches.

    A file system without direct I/O gives no speed of reading.
    """
    path = folder / "disk-speed"
    num_bytes = max(1, round(DISK_BYTES * min(1, scale) / BLOCK)) * BLOCK
    block = os.urandom(BLOCK)
    started = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(num_bytes // BLOCK):
            file.write(block)
        os.fsync(file.fileno())
    found = {"write_mb_per_s": num_bytes / 1e6 / (time.perf_counter() - started)}
    try:
        found["read_mb_per_s"] = num_bytes / 1e6 / _read_direct(path)
    except OSError:
        pass  # tmpfs, for one
    finally:
        path.unlink()
    return {name: round(speed) for name, speed in found.items()}


def _read_direct(path: Path) -> float:
    """Reads a file past the page cache; returns the seconds."""
    started = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, BLOCK) as aligned:
            while os.readv(descriptor, [aligned]):
                pass
    finally:
        os.close(descriptor)
    return time.perf_counter() - started


HERE = Path(__file__).resolve().parent
# Where Debian keeps libraries of its PyTorch, below .tools/torch.
TORCH_PACKAGES = "usr/lib/python3/dist-packages"
TORCH_LIBRARIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/blas",
    "usr/lib/x86_64-linux-gnu/lapack",
    "usr/lib",
    "lib/x86_64-linux-gnu",
)
# What the page tells the versions of, by environment.
PACKAGES = {
    "python": ("apache-beam", "numpy", "pyarrow"),
    "interop": ("tensorflow-cpu", "tensorflow-datasets", "pillow", "protobuf"),
    "tfx": ("tfx-bsl", "tensorflow", "pyarrow"),
    "peers": ("duckdb", "polars", "webdataset"),
    "streaming": ("mosaicml-streaming",),
    "img2dataset": ("img2dataset",),
}


@dataclasses.dataclass(frozen=True)
class Places:
    """Where recordmill, its peers and the data are.

    Attributes:
      recordmill: the command.
      python: of the environment of recordmill.
      interop: Python with TensorFlow and TFDS.
      tools: the folder with an environment for each set of other peers.
      folder: for inputs and outputs.
    """

    recordmill: Path
    python: Path
    interop: Path
    tools: Path
    folder: Path

    def programs(self) -> dict[str, Path]:
        """Names what commands can begin with."""
        extra = ("tfx", "peers", "streaming", "img2dataset")
        found = {name: self.tools / f"bench-{name}/bin/python" for name in extra}
        own = {"recordmill": self.recordmill, "python": self.python}
        return {**own, "interop": self.interop, **found}

    def missing(self, line: str) -> Path | None:
        """Returns what a command needs and is not there."""
        (name,) = re.findall(r"^\{(\w+)\}", line)
        program = self.programs()[name]
        if not program.exists():
            return program
        if name == "streaming" and not (self.tools / "torch").exists():
            return self.tools / "torch"
        return None

    def words(self, line: str, given: Path, output: Path, kept: Path) -> list[str]:
        """Returns the words of a command for an input and an output."""
        names: dict[str, Path] = {**self.programs(), "here": HERE}
        names |= {"input": given, "output": output, "kept": kept}
        words = [word.format_map(names) for word in line.split()]
        return [*self._torch(), *words] if line.startswith("{streaming}") else words

    def _torch(self) -> list[str]:
        torch = (self.tools / "torch").resolve()
        libraries = ":".join(str(torch / name) for name in TORCH_LIBRARIES)
        return [
            "env",
            f"LD_LIBRARY_PATH={libraries}",
            f"PYTHONPATH={torch / TORCH_PACKAGES}",
        ]

    def version(self) -> str:
        """Returns what recordmill says of itself: a run without the native extension is slower."""
        asked = subprocess.run(
            [str(self.recordmill), "--version"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        return " ".join(asked.stdout.split())

    def versions(self) -> dict[str, dict[str, str]]:
        """Returns the versions of the packages that matter, by environment."""
        found = {}
        for name, packages in PACKAGES.items():
            folder = self.programs()[name].parent.parent
            known = {
                re.sub(r"[-_.]+", "-", match[1]).lower(): match[2]
                for path in folder.glob("lib/python3*/site-packages/*.dist-info")
                if (match := re.fullmatch(r"(.+)-([^-]+)\.dist-info", path.name))
            }
            found[name] = {key: known[key] for key in packages if key in known}
        return {name: versions for name, versions in found.items() if versions}
