"""Nightly runs under all that can go wrong: `make soak`, or for so many seconds

    python tests/bench/soak.py --seconds 900 [--seed 1]

Each night a dataset is to be replaced or appended to, on a disk, on a disk that is too
small, and on S3 (moto) behind a proxy that fails 10 % of all requests. The run is killed,
paused, its disk is filled, its input replaced, or a second run begins beside it. Then the
dataset must be the old one or the new one, whole; and in the morning the same command,
undisturbed, must end well and give the bytes of a run that nothing disturbed. Exit status
1 if anything is otherwise.

The small disk is a mount that only this process sees: it starts itself anew for that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from soak_night import DISTURBANCES, Night, Site, WrongError
from store_servers import SERVERS
from tcp_proxy import proxy_to

from recordmill.schemas.storage_options import StorageOptions

FAILING = 0.10  # of all requests to S3
SMALL_DISK_BYTES = 24 << 20
OWN_MOUNTS = "SOAK_HAS_MOUNTS_OF_ITS_OWN"


@contextlib.contextmanager
def sites(folder: Path, seed: int) -> Iterator[list[Site]]:
    """The places of all datasets."""
    small = folder / "small"
    small.mkdir()
    size = f"size={SMALL_DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", small], check=True)
    draw = random.Random(seed)

    def fail(number: int, line: bytes) -> str:
        return draw.choice(("cut", "mute")) if draw.random() < FAILING else ""

    server = SERVERS["s3"]
    (folder / "s3").mkdir()
    try:
        with server.run(folder / "s3") as address, proxy_to(address) as proxy:
            os.environ.update(server.environment(address))
            place = server.make_place(address, folder / "s3")
            proxy.judge = fail
            spoiled = place.options.to_dict() | {"endpoint_url": proxy.address}
            yield [
                Site("disk", folder / "disk", str(folder / "disk/out")),
                Site("small disk", folder / "small-work", str(small / "out"), small),
                Site(
                    "S3",
                    folder / "s3-work",
                    place.root,
                    direct=place.options,
                    options=StorageOptions.from_values(spoiled),
                ),
            ]
            print(
                f"\nS3: {proxy.requests:,} requests, {proxy.spoiled:,} of them failed"
            )
    finally:
        subprocess.run(["umount", small], check=False)


def soak(seconds: float, seed: int) -> bool:
    """Whether all went well."""
    until = time.monotonic() + seconds
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    wrong = nights = reads = 0
    with (
        tempfile.TemporaryDirectory(prefix="soak") as name,
        contextlib.ExitStack() as s,
    ):
        places = s.enter_context(sites(Path(name), seed))
        while time.monotonic() < until:
            site = places[nights % len(places)]
            night = Night(site, random.Random(f"{seed} {nights}"), nights)
            found = counts[site.name, night.disturbance]
            found["nights"] += 1
            try:
                found[night.run()] += 1
                found["failed"] += night.failed
            except WrongError as error:
                wrong += 1
                found["wrong"] += 1
                print(f"night {nights}, {site.name}, {night}: {error}", flush=True)
                site.start_anew()
            nights += 1
            reads += night.reads
    _print_table(counts)
    print(f"\n{nights} nights, {reads:,} looks of a reader beside them, {wrong} wrong")
    return not wrong


def _print_table(counts: dict[tuple[str, str], Counter[str]]) -> None:
    print(
        "\n| where | what happened | nights | command failed | old left | new there | wrong |"
    )
    print("|---|---|---|---|---|---|---|")
    for (site, what), found in sorted(
        counts.items(), key=lambda each: (each[0][0], [*DISTURBANCES].index(each[0][1]))
    ):
        columns = ("nights", "failed", "old", "new", "wrong")
        print(f"| {site} | {what} | {' | '.join(str(found[c]) for c in columns)} |")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    if OWN_MOUNTS not in os.environ:
        shell = ["unshare", "--user", "--map-root-user", "--mount", sys.executable]
        if shutil.which("unshare") is None:
            parser.error("unshare: is missing; it makes the small disk")
        os.environ[OWN_MOUNTS] = "1"
        os.execvp(shell[0], [*shell, __file__, *argv])
    began = time.monotonic()
    good = soak(given.seconds, given.seed)
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
