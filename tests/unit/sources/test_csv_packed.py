"""Tables in any dialect, encoding and compression, against Python's csv module."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import random
import shutil
from collections.abc import Callable
from functools import reduce
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from csv_cases import classify
from decode_cases import decode_batch
from frames import records_of
from hypothesis import example, given
from hypothesis import strategies as st
from source_tools import FileWriter, prepare, read, read_text

from recordmill.schemas.errors import InputError
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import TypeFlags, merge_type_flags
from recordmill.transforms.sources.base import RangeFindings
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv import rows as stream_rows
from recordmill.transforms.sources.csv import source as ranges
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.text_columns import column_dtype
from recordmill.transforms.storage import LocalStore, input_stream
from recordmill.transforms.storage.input_stream import RequestedPacking
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.convert_range import convert_range, measure_range
from recordmill.transforms.tasks.workspace import Workspace


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd,
}
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1", "cp1252", "cp437")
DIALECTS = (
    (",", '"', "\r\n"),
    (";", '"', "\n"),
    ("\t", "", "\n"),
    ("|", "'", "\r"),
    ("#", '"', "\n"),
)


def pairs() -> list[tuple[tuple[str, str, str], str, str]]:
    """Every pair of a dialect, an encoding and a compression, in 40 triples."""
    wanted = list(product(range(5), range(7), range(5)))
    seen: set[tuple[int, int, int, int]] = set()
    chosen = []

    def new(one: tuple[int, int, int]) -> set[tuple[int, int, int, int]]:
        a, b, c = one
        return {(0, a, 1, b), (0, a, 2, c), (1, b, 2, c)} - seen

    while len(chosen) < 40:
        best = max(wanted, key=lambda one: len(new(one)))
        seen |= new(best)
        wanted.remove(best)
        chosen.append(best)
    assert len(seen) == 5 * 7 + 5 * 5 + 7 * 5
    names = list(COMPRESS)
    return [(DIALECTS[a], ENCODINGS[b], names[c]) for a, b, c in chosen]


def table(delimiter: str, quote: str, newline: str, seed: int) -> str:
    """A table of two columns, of text with all that matters in it."""
    rng = random.Random(seed)
    out = io.StringIO(newline="")
    style = csv.QUOTE_NONNUMERIC if quote else csv.QUOTE_NONE
    writer = csv.writer(
        out,
        delimiter=delimiter,
        quotechar=quote or None,
        quoting=style,
        lineterminator=newline,
    )
    marks = [delimiter, quote, "\n", "\r\n"] if quote else []
    writer.writerow(["id", "text"])
    for number in range(300):
        text = "".join(rng.choices(["ä", "é", "a ", *marks], k=rng.randrange(6)))
        writer.writerow([number, f"x{text}"])
    return out.getvalue()


@pytest.mark.parametrize(("dialect", "encoding", "compression"), pairs())
def test_rows_are_those_of_python(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dialect: tuple[str, str, str],
    encoding: str,
    compression: str,
) -> None:
    monkeypatch.setattr(range_rows, "BATCH_BYTES", 500)
    monkeypatch.setattr(input_stream, "TEXT_BYTES", 777)
    monkeypatch.setattr(input_stream, "STEP_BYTES", 64)
    delimiter, quote, _ = dialect
    text = table(*dialect, seed=len(compression))
    path = tmp_path / "in.csv"
    path.write_bytes(COMPRESS[compression](text.encode(encoding)))
    found = encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32")
    source = CsvSource(
        requested_dialect=Dialect(
            # What cannot be found is said.
            delimiter=b"#" if delimiter == "#" else b"",
            quote=quote.encode(),
        ),
        requested_packing=RequestedPacking(encoding=None if found else encoding),
        range_bytes=1000,
    )
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
    )
    assert read_text(source, path) == [*rows][1:]


@pytest.mark.parametrize("part_bytes", [1, 7, 40, 1 << 20])
@pytest.mark.parametrize(
    "body",
    [
        b'h,k\n1,2\n"a\nb",3\r\n4,"5\n6',
        b"h,k\r1,2\r\r3,4",
        b'h,k\n1,"x' + b"y" * 90 + b'\n2,3\n4,5\n"6",7',
        b"h,k\n\xff,1\n1,2,3\n" + b"4,5\n" * 9,
    ],
)
def test_the_rows_and_rejects_are_those_of_the_plain_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, part_bytes: int
) -> None:
    """With the same origins, positions in the text and raw bytes."""
    monkeypatch.setattr(range_rows, "BATCH_BYTES", part_bytes)
    monkeypatch.setattr(ranges, "UNCLOSED_BYTES", 60)
    monkeypatch.setattr(stream_rows, "UNCLOSED_BYTES", 60)
    monkeypatch.setattr(input_stream, "TEXT_BYTES", 9)
    path = tmp_path / "in.csv"
    path.write_bytes(body)
    (plain,) = read(CsvSource(), path).parts
    path.write_bytes(gzip.compress(body))
    (packed,) = read(CsvSource(), path).parts
    assert packed.rows == plain.rows
    assert packed.origins == plain.origins
    assert packed.raws == plain.raws
    assert packed.observed == plain.observed
    assert packed.positions == sorted(packed.positions)
    if len(body) < 90 or b"y" not in body:  # in blocks a quote is masked, not in one
        assert packed.rejects == plain.rejects


def test_what_cannot_be_decoded_is_a_reject(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    rows = ["h,k", "1,\ud800", "2,ä", "3,\udc00x"]
    path.write_bytes("\n".join(rows).encode("utf-16", "surrogatepass") + b"\n\0" + b"7")
    reading = read(CsvSource(), path)
    assert [row["k"] for row in reading.rows] == ["ä"]
    reasons = [reject.reason for reject in reading.rejects]
    assert len(reasons) == 3
    assert all("UTF-8" in reason for reason in reasons[:2])


@pytest.mark.parametrize("name", ["gzip", "bz2", "xz", "zstd"])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "in.csv"
    data = COMPRESS[name](table(",", '"', "\n", 3).encode())
    for end in (len(data) - 3, len(data) // 2, 7):
        path.write_bytes(data[:end])
        with pytest.raises(InputError, match=f"cannot be decompressed as {name}"):
            read(CsvSource(), path)


def test_files_are_all_packed_alike(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"h,k\n1,2\n")
    (tmp_path / "b.csv").write_bytes(gzip.compress(b"h,k\n1,2\n"))
    with pytest.raises(InputError, match=r"b.csv: .* It is gzip compressed, but the"):
        read(CsvSource(), tmp_path)
    (tmp_path / "0.csv").write_bytes(gzip.compress(b"h,k\n1,2\n"))
    with pytest.raises(InputError, match=r"a.csv: is not compressed, but the first"):
        read(CsvSource(), tmp_path)


def test_samples_of_packed_files_are_small(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    rng = random.Random(5)
    lines = [f"{rng.random()},{rng.random()}" for _ in range(30_000)]
    path.write_bytes(gzip.compress("\n".join(["h,k", *lines]).encode()))
    reading = read(CsvSource(), path)
    assert len(reading.rows) == 30_000
    (sample,) = reading.source.sample_ranges(reading.ranges)
    assert sample.stop < reading.ranges[0].stop
    rows = sum(
        part.batch.num_rows for part in reading.source.read(sample, (), RangeFindings())
    )
    assert 5_000 < rows < 29_000


CELLS = st.sampled_from(["", "", "", "7", "1.5", "true", "x", "2001", "7.0", "1e39"])
VALUE_OF: dict[str, Callable[[str], object]] = {
    "bool": lambda cell: cell == "true",
    "int64": lambda cell: int(cell.removesuffix(".0")),
    "float32": float,
    "string": str,
}


def flags_of(rows: list[tuple[str, ...]], num_columns: int) -> TypeFlags:
    """What a look at every cell of these rows finds."""
    columns = [[row[place] or None for row in rows] for place in range(num_columns)]
    return tuple(int(classify(pa.array(cells, pa.string()))) for cells in columns)


@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=10),
    sampled=st.sets(st.integers(0, 9)),
    part_bytes=st.integers(1, 40),
    range_bytes=st.integers(2, 80),
)
# Nothing in the sample, text in one part, a number in a later part, or before it.
@example(
    rows=[("", "a"), ("x", "a"), ("7", "a")], sampled={0}, part_bytes=1, range_bytes=99
)
@example(
    rows=[("", "a"), ("7", "a"), ("x", "a")], sampled={0}, part_bytes=1, range_bytes=99
)
@example(rows=[("7.0", "1"), ("x", "1.5")], sampled={0}, part_bytes=9, range_bytes=9)
@example(rows=[("7", "a"), ("true", "a")], sampled=set(), part_bytes=1, range_bytes=99)
def test_records_are_those_of_a_look_at_all_cells(
    write_csv: FileWriter,
    rows: list[tuple[str, str]],
    sampled: set[int],
    part_bytes: int,
    range_bytes: int,
) -> None:
    """Whatever was guessed, and wherever parts and ranges begin."""
    # Two names, so that a row of empty cells is not a blank line.
    path = write_csv(b"a,b\n" + "".join(f"{a},{b}\n" for a, b in rows).encode())
    guess = flags_of([row for at, row in enumerate(rows) if at in sampled], 2)
    final = flags_of(list(rows), 2)
    work = path.parent / "work"
    shutil.rmtree(work, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_rows, "BATCH_BYTES", part_bytes)
        found = convert(path, work, range_bytes, guess)
    dtypes = [column_dtype(flags) for flags in final]
    assert found == [
        [
            VALUE_OF[dtype](cell) if cell else None
            for cell, dtype in zip(row, dtypes, strict=True)
        ]
        for row in rows
    ]


def convert(
    path: Path, work: Path, range_bytes: int, guess: TypeFlags
) -> list[list[object]]:
    """Converts a file as a run does; the values of all records, in order."""
    reading = prepare(CsvSource(range_bytes=range_bytes), [path])
    context = RunContext(
        job=JobSpec(source="csv", name="a", shuffle=False),
        source=reading.source,
        split_names=("train",),
        bucket_bits=4,
        exchange="scratch",
        run_key="0" * 32,
        workspace=Workspace.for_run(LocalStore(str(work)), "0" * 32),
    )
    context.workspace.create("scratch")
    results = [convert_range(context, each, guess) for each in reading.ranges]
    final: TypeFlags = reduce(
        merge_type_flags, [one.observed_types for one in results], ()
    )
    schema = context.schema(final)
    values = []
    for result in results:
        measured = measure_range(context, result.range, guess)
        assert measured.encoded_types == result.encoded_types
        if context.source.needs_reencode(
            result.observed_types, result.encoded_types, final
        ):
            result = convert_range(context, result.range, final, redo=True)
        for run in result.sorted_runs:
            file = Path(context.workspace.scratch_root, "runs", f"{run.stem}.records")
            records = records_of(file.read_bytes())
            batch = decode_batch(pa.array(records, pa.binary()), schema)
            values += [list(row.values()) for row in batch.to_pylist()]
    return values


@pytest.mark.parametrize("method", ["none", "gzip"])
@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        (b'a,b\r\n1,"x\n""y"\n2\n\n3,\xff\n4,"5"\r6,7', Dialect(b",")),
        (b'a,b\n#c\n1,2\n#d\n3,"#e\n"\n4,5\n', Dialect(b",", comment=b"#")),
        (b'a,b\n1,2\n3,"open\n4,5\n6,7,8\n', Dialect(b",")),
        (b'a,b\n1,2\n3,"open' + b"\n4,5" * 20, Dialect(b",")),
    ],
)
def test_a_long_body_that_is_read_again_is_the_same(
    write_csv: FileWriter,
    monkeypatch: pytest.MonkeyPatch,
    text: bytes,
    dialect: Dialect,
    method: str,
) -> None:
    path = write_csv(COMPRESS[method](text))
    monkeypatch.setattr(ranges, "UNCLOSED_BYTES", 60)
    monkeypatch.setattr(stream_rows, "UNCLOSED_BYTES", 60)
    monkeypatch.setattr(stream_rows, "BATCH_BYTES", 8)
    source = CsvSource(requested_dialect=dialect, range_bytes=16)
    short = read(source, path)
    monkeypatch.setattr(stream_rows, "_LONG_BODY_BYTES", 0)
    long = read(source, path)
    assert long.parts == short.parts
    assert any(part.raws for part in long.parts)
