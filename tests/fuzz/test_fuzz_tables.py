"""Damaged tables in every dialect and packing: rows, rejects or an error that is told."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from mutations import damaged, try_all
from source_tools import prepare, read, read_one

from recordmill.schemas.errors import InputError
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.storage import input_stream
from recordmill.transforms.storage.input_stream import RequestedPacking

pytestmark = pytest.mark.fuzz
COMPRESS: tuple[Callable[[bytes], bytes], ...] = (
    bytes,
    gzip.compress,
    bz2.compress,
    lzma.compress,
    lambda data: bytes(pa.Codec("zstd").compress(data, asbytes=True)),
)
ENCODINGS = ("utf-8", "utf-16", "utf-32", "cp1252", "shift_jis", "utf-7", "idna")


def a_table(random: Random) -> str:
    delimiter = random.choice(",;\t|")
    cells = ["1", "2.5", "NA", " 7 ", "a", "'", '"x\ny"', '"a""b"', "", "1;2", "x,y"]
    cells += ["\\N", '\\"', '"a\\"', "\\\n", '"1,5"', "1.234,5"]
    rows = [random.choices(cells, k=3) for _ in range(random.randrange(1, 9))]
    head = random.choice(["h,k,l", "a;b,c;d", "1,2,3", "h\n\nh,k,l"])
    lines = [head.replace(",", delimiter), *map(delimiter.join, rows)]
    for _ in range(random.randrange(3)):
        lines.insert(
            random.randrange(len(lines) + 1), random.choice(["#", '# a "b', "#;"])
        )
    return random.choice(["\n", "\r\n", "\r"]).join(lines) + "\n"


def asked(random: Random) -> Dialect:
    return Dialect(
        delimiter=random.choice([b"", b"", b";"]),
        quote=random.choice([b'"', b'"', b"'", b""]),
        skip_rows=random.choice([0, 0, 1, 3]),
        header=random.choice(["auto", "first", "none"]),
        null_values=random.choice([(), ("NA", "2.5"), ("\\N",)]),
        escape=random.choice([b"", b"", b"\\"]),
        comment=random.choice([b"", b"", b"#"]),
        decimal=random.choice([".", ","]),
    )


def test_plain_tables(tmp_path: Path) -> None:
    """Whatever the bytes: all of them belong to a row, a reject or what is skipped."""
    path = tmp_path / "in.csv"

    def attempt(number: int) -> bool:
        random = Random(number)
        data = damaged(a_table(random).encode(), number)
        path.write_bytes(data)
        source = CsvSource(
            requested_dialect=asked(random), range_bytes=random.choice([7, 1 << 20])
        )
        reading = read(source, path)
        found = sorted(
            [(at, raw) for part in reading.parts for at, raw in part.raws]
            + [(each.position, each.raw) for each in reading.rejects]
        )
        at = found[0][0] if found else len(data)
        mark = source.requested_dialect.comment or b"\0"
        for position, raw in [*found, (len(data), b"")]:
            between = data[at:position].splitlines()
            assert all(not line or line.startswith(mark) for line in between)
            assert data[position:].startswith(raw)
            at = position + len(raw)
        return len(reading.rows) > 0

    try_all(attempt, str(path), "every input file is")


def test_packed_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names the file; what is not one gives the same rows in all parts."""
    monkeypatch.setattr(input_stream, "TEXT_BYTES", 11)
    path = tmp_path / "in.csv"

    def attempt(number: int) -> bool:
        random = Random(number)
        text = damaged(a_table(random).encode(), number).decode(errors="replace")
        encoding = random.choice(ENCODINGS)
        data = text.encode(encoding if encoding != "idna" else "utf-8", "replace")
        packed = random.choice(COMPRESS)(data)
        path.write_bytes(damaged(packed, number) if number % 2 else packed)
        source = CsvSource(
            requested_dialect=asked(random),
            requested_packing=RequestedPacking(
                encoding=random.choice([None, encoding])
            ),
        )
        found: list[object] = []
        errors: list[InputError] = []
        for part_bytes in (5, 1 << 20):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(range_rows, "BATCH_BYTES", part_bytes)
                try:
                    reading = prepare(source, [path])
                    parts = [read_one(reading.source, one) for one in reading.ranges]
                except InputError as error:
                    errors.append(error)
                    found.append(None)
                    continue
            found.append(
                (
                    [raw for part in parts for raw in part.raws],
                    [each for part in parts for each in part.rejects],
                    [origin for part in parts for origin in part.origins],
                )
            )
        assert found[0] == found[1]
        if errors:
            raise errors[0]
        return True

    try_all(attempt, str(path), "every input file is")
