"""Runs on Flink clusters of 1, 2 and 4 TaskManagers, for docs/scale.md.

The cluster is that of the integration tests, on this machine (`make test-integration`
gets its parts). As many tasks run at once as there are TaskManagers, each with a Python
worker; all share the cores.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "integration")]

from clusters import Engines  # noqa: E402
from scale_runs import (  # noqa: E402
    DISK_BYTES,
    UNIT_BYTES,
    Run,
    link_units,
    make_unit,
    require_disk,
    run_convert,
)

NAMES = ("csv", "cifar")
EXCHANGES = ("engine", "scratch")
TASK_MANAGERS = (1, 2, 4)
COMPARED = 2  # TaskManagers where both exchanges are measured


def run_on(
    asked: argparse.Namespace, engines: Engines, name: str, exchange: str, units: int
) -> Run:
    """Runs one job on a cluster, with all its TaskManagers."""
    managers = engines.cluster.size
    # All TaskManagers number their workers alike, and share a pool here, which would end
    # the one's worker when another lets go of its own.
    beam = [*engines.flink(), f"--parallelism={managers}"]
    beam.append("--environment_cache_millis=600000")
    source = asked.folder / f"linked-{name}"
    size = link_units(make_unit(name, asked.folder), units, source)
    words = [name, source, "--exchange", exchange, "--", *beam]
    setting, output = f"{exchange} {managers}", asked.folder / "out"
    return run_convert(name, setting, size, words, output, on_cluster=True)


def measure_flink(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs CSV by engine on all clusters, and both formats by both exchanges on one."""
    require_disk(2 * DISK_BYTES["csv"] * asked.flink_gb * 1e9, asked.folder)
    units = max(1, round(asked.flink_gb * 1e9 / UNIT_BYTES))
    for managers in TASK_MANAGERS:
        names = NAMES if managers == COMPARED else NAMES[:1]
        exchanges = EXCHANGES if managers == COMPARED else EXCHANGES[:1]
        with (
            tempfile.TemporaryDirectory(prefix="flink-", dir=asked.folder) as logs,
            Engines(Path(logs), task_managers=managers) as engines,
        ):
            # Not counted: Java loads its classes.
            run_on(asked, engines, names[0], exchanges[0], units=1)
            for name in names:
                for _ in range(asked.repeat):
                    for exchange in exchanges:
                        yield run_on(asked, engines, name, exchange, units)
