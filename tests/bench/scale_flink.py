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

from scale_runs import (
    DISK_BYTES,
    UNIT_BYTES,
    Run,
    link_units,
    make_unit,
    require_disk,
    run_convert,
)

HERE = Path(__file__).parent
NAMES = ("csv", "cifar")
EXCHANGES = ("engine", "scratch")
TASK_MANAGERS = (1, 2, 4)
COMPARED = 2  # TaskManagers where both exchanges are measured


def measure_flink(asked: argparse.Namespace) -> Iterator[Run]:
    """Runs CSV by engine on all clusters, and both formats by both exchanges on one."""
    sys.path[:0] = [str(HERE.parent / "helpers"), str(HERE.parent / "integration")]
    from clusters import Engines

    require_disk(2 * max(DISK_BYTES.values()) * asked.flink_gb * 1e9, asked.folder)
    for managers in TASK_MANAGERS:
        names = NAMES if managers == COMPARED else NAMES[:1]
        exchanges = EXCHANGES if managers == COMPARED else EXCHANGES[:1]
        with (
            tempfile.TemporaryDirectory(prefix="flink-", dir=asked.folder) as logs,
            Engines(Path(logs), task_managers=managers) as engines,
        ):
            # Both TaskManagers number their workers alike, and share a pool here, which
            # would end the one's worker when the other lets go of its own.
            beam = [*engines.flink(), f"--parallelism={managers}"]
            beam.append("--environment_cache_millis=600000")
            for name in names:
                source = asked.folder / f"linked-{name}"
                count = max(1, round(asked.flink_gb * 1e9 / UNIT_BYTES))
                size = link_units(make_unit(name, asked.folder), count, source)
                # The first run starts the workers, and is not counted.
                for number in range(asked.repeat + 1):
                    for exchange in exchanges:
                        run = run_convert(
                            name,
                            f"{exchange} {managers}",
                            size,
                            [name, source, "--exchange", exchange, "--", *beam],
                            asked.folder / "out",
                            on_cluster=True,
                        )
                        if number:
                            yield run
