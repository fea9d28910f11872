"""Compares the reading of one table in other dialects and gzip with that of the plain one.

    python tests/bench/csv_dialects.py [ROWS]

Prints the processor time of each as a ratio to the plain table, the least of five rounds in
which all take turns. For gzip the time of unpacking alone is added to the plain table's.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from recordmill.transforms.sources.csv.dialect import ASK_NOTHING, AskedDialect
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.listing import list_inputs

ROUNDS = 5


def read(path: Path, asked: AskedDialect) -> None:
    _, files = list_inputs([str(path)])
    source = CsvSource(asked=asked).prepare(files)
    ranges = source.cut(files)
    if source.needs_survey(ranges):
        ranges = source.resolve_ranges(ranges, [source.survey(one) for one in ranges])
    for one in ranges:
        for _ in source.read(one, ()):
            pass


def unpack(path: Path) -> None:
    with gzip.open(path) as file:
        while file.read(1 << 20):
            pass


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f'{n},"name, {n % 977}",{n / 8:.3f},city{n % 50}' for n in range(rows)]
        plain = folder / "plain.csv"
        plain.write_text("\n".join(["id,name,price,city", *lines]))
        commented = folder / "commented.csv"
        text = [f"# {n}\n{one}" if n % 100 == 0 else one for n, one in enumerate(lines)]
        commented.write_text("\n".join(["id,name,price,city", *text]))
        comma = folder / "comma.csv"
        comma.write_text(
            "id;name;price;city\n"
            + "\n".join(
                f"{n};name {n % 977};{n / 8:.3f};a".replace(".", ",")
                for n in range(rows)
            )
        )
        packed = folder / "packed.csv.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
        todo: dict[str, Callable[[], None]] = {
            "plain": lambda: read(plain, ASK_NOTHING),
            "escape": lambda: read(plain, AskedDialect(escape=b"\\")),
            "comments": lambda: read(commented, AskedDialect(comment=b"#")),
            "decimal comma": lambda: read(comma, AskedDialect(decimal=",")),
            "gzip": lambda: read(packed, ASK_NOTHING),
            "unpacking alone": lambda: unpack(packed),
        }
        best = dict.fromkeys(todo, float("inf"))
        for _ in range(ROUNDS):
            for what, run in todo.items():
                began = time.process_time()
                run()
                best[what] = min(best[what], time.process_time() - began)
    for what, seconds in best.items():
        print(f"{what:16} {seconds:6.2f} s  {seconds / best['plain']:.2f}")
    both = best["plain"] + best["unpacking alone"]
    print(f"gzip to unpacking and plain: {best['gzip'] / both:.2f}")


if __name__ == "__main__":
    main()
