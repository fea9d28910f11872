"""Measure inputs in a store whose answers take 50 ms: pictures, and requests of tables.

    .venv/bin/python tests/bench/remote_inputs.py [--pictures 400 2000] [--table-mb 256]

The store is slow_store.py, in a process of its own on this machine. Pictures of 500 x 375
are converted beside a loop that reads one after the other through the same package (s3fs)
and appends them to a file; whole processes, in turns, start-up included. The ratio is the
loop's median by recordmill's.

Of tables with quotes, without any, and with long quoted texts it counts what is asked of the
store: the requests for each range of 16 MiB beside those before, and the bytes by the size
of the table.

Exit status as run.py.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from measure import Measurement, run_measured
from resized_pictures import write_photos
from slow_store import SlowStore, serving

PICTURES_GOAL = 8.0
REQUESTS_GOAL = 2.0
RANGE_BYTES = 16 << 20
LOOP = """
import sys
import s3fs

system = s3fs.S3FileSystem(endpoint_url=sys.argv[1], max_concurrency=1)
with open(sys.argv[2], "wb") as out:
    for path in system.find("bucket/pictures"):
        out.write(system.cat_file(path))
"""


def measured(words: list[str], folder: Path) -> Measurement:
    """Run a command that has to end well."""
    run = run_measured(words, log=folder / "log")
    if run.exit_code != 0:
        raise SystemExit(f"{' '.join(words)}: {(folder / 'log').read_text()}")
    return run


def convert(source: str, store: SlowStore, args: argparse.Namespace, out: Path) -> list:
    """Return the command that converts `pictures` or `table.csv` of the bucket."""
    kind = "csv" if source.endswith(".csv") else "images"
    words = [args.recordmill, "-m", "recordmill", "convert", kind]
    words += [f"s3://bucket/{source}", out, "--workers", args.workers]
    words += ["--storage-option", f"input:endpoint_url={store.address}"]
    return [*map(str, words), *args.option]


def compare_pictures(count: int, args: argparse.Namespace, folder: Path) -> bool:
    """Print the ratio of the loop's seconds by recordmill's; tell if it is enough."""
    write_photos(folder / "store/bucket/pictures", count, 500, 375)
    loops, runs, most = [], [], 0
    with serving(folder / "store", args.delay) as store:
        os.environ.update(store.environment)
        for _ in range(args.repeat):
            loop = [args.recordmill, "-c", LOOP, store.address, str(folder / "loop")]
            loops.append(measured([*map(str, loop)], folder))
            store.report()
            shutil.rmtree(folder / "out", ignore_errors=True)
            runs.append(
                measured(convert("pictures", store, args, folder / "out"), folder)
            )
            report = store.report()
            most = max(most, int(str(report["most_at_once"])))
    seconds = median(run.seconds for run in runs)
    slow = median(run.seconds for run in loops)
    print(
        f"{count:,} pictures: recordmill {seconds:.2f} s "
        f"({median(run.cpu_seconds for run in runs):.2f} s of processor time, "
        f"{max(run.peak_rss_bytes for run in runs) / 1e6:.0f} MB, at most {most} requests "
        f"at once, {report['requests']}), one after the other {slow:.2f} s: "
        f"{slow / seconds:.1f}x (goal {PICTURES_GOAL:.0f}x)",
        flush=True,
    )
    shutil.rmtree(folder / "store")
    return slow / seconds >= PICTURES_GOAL


def write_rows(path: Path, num_bytes: int, row: Callable[[int], str]) -> None:
    """Write a table of so many bytes, or a row more."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        file.write("number,name,text\n")
        number = 0
        while file.tell() < num_bytes:
            file.writelines(row(each) for each in range(number, number + 10_000))
            number += 10_000


_LINE = "a line\n"
TABLES: dict[str, Callable[[int], str]] = {
    "no quotes": lambda n: f"{n},name {n % 97},{'some text ' * 8}{n}\n",
    "quotes": lambda n: f'{n},"name, {n % 97}","{"some text " * 6}{n}"\n',
    "rare quotes": lambda n: (
        f"{n},{'name' if n % 200_000 else chr(34) * 2},{'some text ' * 8}{n}\n"
    ),
    "long texts": lambda n: f'{n},name,"{_LINE * (20_000 if n % 5000 == 7 else 9)}"\n',
}


@dataclass(frozen=True)
class Asked:
    """What was asked of the store for one table."""

    size: int
    reads: int
    sent: int
    seconds: float

    @property
    def ranges(self) -> int:
        return -(-self.size // RANGE_BYTES)


def asked_for(
    name: str, num_bytes: int, args: argparse.Namespace, folder: Path
) -> Asked:
    """Convert a table of a kind."""
    table = folder / "store/bucket/table.csv"
    write_rows(table, num_bytes, TABLES[name])
    with serving(folder / "store", args.delay) as store:
        os.environ.update(store.environment)
        shutil.rmtree(folder / "out", ignore_errors=True)
        run = measured(convert("table.csv", store, args, folder / "out"), folder)
        report = store.report()
    requests = dict(report["requests"])  # type: ignore[call-overload]
    size = table.stat().st_size
    shutil.rmtree(folder / "store")
    return Asked(size, requests["GET"], int(str(report["bytes"])), run.seconds)


def count_requests(name: str, args: argparse.Namespace, folder: Path) -> bool:
    """Print what a table of a kind costs; tell if its requests are few enough.

    Some are made before any range is read, as many for each size: two sizes tell.
    """
    whole = args.table_mb << 20
    small, large = (asked_for(name, part, args, folder) for part in (whole // 2, whole))
    each = (large.reads - small.reads) / (large.ranges - small.ranges)
    first = large.reads - each * large.ranges
    print(
        f"table with {name}: {large.size / 1e6:.0f} MB in {large.ranges} ranges: "
        f"{each:.2f} reads a range (goal {REQUESTS_GOAL:.0f}) and {first:.0f} before, "
        f"{large.sent / large.size:.2f} times its bytes, {large.seconds:.2f} s",
        flush=True,
    )
    return each <= REQUESTS_GOAL


def main() -> int:
    """Measure all; print a line of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, nargs="*", default=[400, 2000])
    parser.add_argument("--table-mb", type=int, default=256, help="0: no tables")
    parser.add_argument(
        "--delay", type=float, default=0.05, help="of an answer, seconds"
    )
    parser.add_argument("--repeat", type=int, default=3, help="pairs of runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--recordmill", default=sys.executable, help="its Python")
    parser.add_argument("--option", nargs="*", default=[], help="more for recordmill")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        met = [compare_pictures(count, args, Path(made)) for count in args.pictures]
        names = TABLES if args.table_mb else ()
        met += [count_requests(name, args, Path(made)) for name in names]
    return 0 if all(met) else 3


if __name__ == "__main__":
    sys.exit(main())
