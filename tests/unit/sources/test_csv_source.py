"""CSV files read in ranges of any size, against Python's csv module."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from content_tools import contents_of
from example_counts import fuzzed
from flaky_store import Flaky
from hypothesis import example, given
from hypothesis import strategies as st
from source_tools import GOLDEN, FileWriter, prepare, read, read_one

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.exchange.keys import position_keys
from recordmill.transforms.sources.base import RANGE_BYTES, RangeFindings, number_ranges
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv import source as small_files
from recordmill.transforms.sources.csv.quotes import (
    BOM,
    QUOTED,
    UNQUOTED,
    Dialect,
    compute_transition_map,
    pack_map,
)
from recordmill.transforms.sources.csv.source import (
    FILES_PER_RANGE,
    TAIL_BYTES,
    CsvSource,
    join_small_files,
)
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.sources.text_columns import TypeFlag
from recordmill.transforms.storage import open_store
from recordmill.transforms.storage.clouds import filesystem_of
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c


def test_columns_may_come_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_bytes(b"a,b\n1,x\n")
    (tmp_path / "2.csv").write_bytes(b"b,a\ny,2\n")
    assert read(CsvSource(), tmp_path).rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"a\n", "2.csv: its columns differ from the first file: it lacks b"),
        (b"a,b,c\n", "2.csv: its columns differ from the first file: it also has c"),
        (b"a,c\n", "it lacks b and also has c; all files of one dataset need the same"),
        (b"a,b,b\n", "2.csv: the header has column 'b' 2 times"),
        (b"\n", "2.csv: no header"),
    ],
)
def test_other_columns_are_an_error(
    tmp_path: Path, header: bytes, message: str
) -> None:
    (tmp_path / "1.csv").write_bytes(b"a,b\n1,x\n")
    (tmp_path / "2.csv").write_bytes(header)
    with pytest.raises(InputError, match=message):
        prepare(CsvSource(), [tmp_path])


def test_header_that_changed_after_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b"a,b\n1,x\n")
    reading = prepare(CsvSource(), [path])
    time = path.stat().st_mtime_ns
    path.write_bytes(b"a,c\n1,x\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(InputError, match="was written again after the run began"):
        list(reading.source.read(reading.ranges[0], (), RangeFindings()))
    os.utime(path, ns=(time, time))
    with pytest.raises(InputError, match="it lacks b and also has c"):
        read_one(reading.source, reading.ranges[0])


@pytest.mark.parametrize("body", [b"a,b\n", b"a,b", BOM + b"a,b\r\n\r\n"])
@pytest.mark.parametrize("range_bytes", [1, 1 << 20])
def test_header_only(write_csv: FileWriter, body: bytes, range_bytes: int) -> None:
    reading = read(CsvSource(range_bytes=range_bytes), write_csv(body))
    assert (reading.rows, reading.rejects) == ([], [])


def test_empty_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "0.csv").touch()
    (tmp_path / "1.csv").write_bytes(b"a\n1\n")
    (tmp_path / "2.csv").touch()
    assert read(CsvSource(), tmp_path).rows == [{"a": 1}]


def test_nothing_but_empty_files(tmp_path: Path) -> None:
    (tmp_path / "0.csv").touch()
    with pytest.raises(
        InputError, match="every input file is empty; expected a header"
    ):
        prepare(CsvSource(), [tmp_path])


def test_column_without_a_name(write_csv: FileWriter) -> None:
    rows = read(CsvSource(), write_csv(b",b,\n0,1,2\n")).rows
    assert rows == [{"column_0": 0, "b": 1, "column_2": 2}]


BODY = b"id,ratio,flag,name,none\n" + b"".join(
    b'%d,%d.5,%s,"n, %d",\n' % (n, n, b"true" if n % 2 else b"", n) for n in range(50)
)


@pytest.mark.parametrize("range_bytes", [1, 10, 33, 100, 1 << 20])
@pytest.mark.parametrize("expected", [None, (), (8, 8, 8, 8, 8)])
def test_types_and_missing_values(
    write_csv: FileWriter, range_bytes: int, expected: tuple[int, ...] | None
) -> None:
    reading = read(
        CsvSource(range_bytes=range_bytes), write_csv(BODY), expected=expected
    )
    observed = [0] * 5
    nulls = [0] * 5
    for part in reading.parts:
        for place, holds in enumerate(part.observed):
            observed[place] |= holds
            nulls[place] += part.nulls[place]
    assert nulls == [0, 0, 25, 0, 50]
    schema = reading.source.schema(tuple(observed), tuple(nulls))
    kinds = {f.name: (f.kind, f.dtype, f.optional) for f in schema.features}
    if expected:
        assert {kind for kind, _, _ in kinds.values()} == {Kind.BYTES}
        return
    assert kinds == {
        "id": (Kind.INT64, "int64", False),
        "ratio": (Kind.FLOAT, "float32", False),
        "flag": (Kind.INT64, "bool", True),
        "name": (Kind.BYTES, "string", False),
        "none": (Kind.BYTES, "string", True),
    }
    assert [row["name"] for row in reading.rows] == [f"n, {n}" for n in range(50)]


@pytest.mark.parametrize("range_bytes", [1, 3, 1 << 20])
def test_a_sample_never_sees_half_a_cell(
    write_csv: FileWriter, range_bytes: int
) -> None:
    """A minus sign cut from its number would make the column text for good."""
    path = write_csv(b"n\n-1.5\n-2.5\n-3.5\n")
    reading = prepare(CsvSource(range_bytes=range_bytes), [path])
    for input_range in reading.ranges:
        assert reading.source.sample_type_flags(input_range) in (
            (TypeFlag.DECIMAL,),
            (TypeFlag.NOTHING,),
        )


def test_a_sample_of_a_long_range_is_short_and_of_whole_rows(
    write_csv: FileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(b"n\n" + b"-10.25\n" * 50_000 + b"text\n")
    reading = prepare(CsvSource(), [path])
    read_bytes = []

    def noting(uri: str, start: int, stop: int, **options: Any) -> bytes:
        read_bytes.append(stop - start)
        return read_range(uri, start, stop, **options)

    monkeypatch.setattr("recordmill.transforms.sources.csv.rows.read_range", noting)
    assert reading.source.sample_type_flags(reading.ranges[0]) == (TypeFlag.DECIMAL,)
    assert sum(read_bytes) < 200_000


def test_a_sample_of_a_row_longer_than_the_sample_tells_nothing(
    write_csv: FileWriter,
) -> None:
    path = write_csv(b"n\n" + b"1" * 200_000 + b"\n2\n")
    reading = prepare(CsvSource(), [path])
    assert reading.source.sample_type_flags(reading.ranges[0]) == (TypeFlag.NOTHING,)


def test_touched_only_where_a_value_was_stored_otherwise() -> None:
    source = CsvSource(rows=range_rows.RangeRows(("a", "b")))
    integer, decimal, none = (
        int(TypeFlag.INTEGER),
        int(TypeFlag.DECIMAL),
        int(TypeFlag.NOTHING),
    )
    both = integer | decimal
    for observed, used, final, expected in [
        ((integer, none), (integer, none), (integer, none), False),
        ((integer, none), (integer, none), (both, none), True),  # 1 is 1.0 now
        ((none, none), (none, none), (both, none), False),  # nothing to widen
        ((decimal, none), (decimal, none), (both, none), False),  # the same type
    ]:
        assert source.needs_reencode(observed, used, final) is expected


def test_batches_of_a_range_join_to_the_range(
    write_csv: FileWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(BODY + b"bad\n" + BODY[24:])
    whole = read(CsvSource(), path)
    monkeypatch.setattr(range_rows, "BATCH_BYTES", 300)
    reading = prepare(CsvSource(), [path])
    batches = list(reading.source.read(reading.ranges[0], (), RangeFindings()))
    assert len(batches) > 5
    parts = read(CsvSource(), path)
    assert parts.rows == whole.rows
    assert parts.origins == whole.origins
    assert parts.parts[0].raws == whole.parts[0].raws
    assert parts.parts[0].nulls == whole.parts[0].nulls
    assert parts.rejects == whole.rejects
    assert len(parts.rejects) == 1


def test_ranges_without_a_row_start_give_nothing(write_csv: FileWriter) -> None:
    path = write_csv(b"a,b\n" + b"x" * 1000 + b",1\n2,3\n")
    reading = read(CsvSource(range_bytes=100), path)
    assert [len(part.rows) for part in reading.parts] == [1, *[0] * 9, 1]


def test_ranges_know_the_states_of_the_quotes_at_their_cuts() -> None:
    input_ranges = [
        InputRange(0, "a", "a", 0, 4, 0, 14),
        InputRange(1, "a", "a", 4, 8, 4, 14),
        InputRange(2, "a", "a", 8, 12, 8, 14),
        InputRange(3, "b", "b", 0, 2, 12, 14),
    ]
    blocks = [b'a,"b', b'b"c"', b'c",d', b"ab"]
    surveys = [pack_map(compute_transition_map(block)) for block in blocks]
    resolved = CsvSource().apply_boundaries(input_ranges, surveys)
    assert [input_range.quote_states for input_range in resolved] == [
        (0, QUOTED),
        (QUOTED, UNQUOTED),  # the two quotes behind the first are stray
        (UNQUOTED, 0),
        (0, 0),  # another file begins anew
    ]


def test_golden_tutorial() -> None:
    path = GOLDEN / "tutorial.csv"
    reading = read(CsvSource(range_bytes=1000), path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(reading.rows) == len(rows) == 1000
    for found, row in zip(reading.rows, rows, strict=True):
        assert found == {
            "feature0": row["feature0"].lower() == "true"
            if row["feature0"].isalpha()
            else int(row["feature0"]),
            "feature1": int(row["feature1"]),
            "feature2": row["feature2"],
            "feature3": float(row["feature3"]),
        }


def test_estimate_grows_with_names_and_is_bounded() -> None:
    files = [InputFile("a", "a", 1000)]
    short = CsvSource(rows=range_rows.RangeRows(("a",))).estimated_bytes(files)
    long = CsvSource(rows=range_rows.RangeRows(("a" * 9,))).estimated_bytes(files)
    endless = CsvSource(rows=range_rows.RangeRows(("a" * 9000,))).estimated_bytes(files)
    assert 1000 < short < long < endless == 16_000


BLOCK_BYTES = 200_000
PLAIN_TABLE = "".join(f"{n},text {n}\n" for n in range(60_000))
QUOTED_TABLE = "".join(f'{n},"text, {n}"\n' for n in range(50_000))


@pytest.mark.parametrize("text", [PLAIN_TABLE, QUOTED_TABLE], ids=["plain", "quoted"])
def test_two_requests_for_each_range(flaky: Flaky, text: str) -> None:
    flaky.direct.put_bytes(b"id,text\n" + text.encode(), "in.csv")
    filesystem_of(flaky.store.url, flaky.options)[0].connect()
    source = CsvSource(
        range_bytes=BLOCK_BYTES, rows=range_rows.RangeRows(storage=flaky.options)
    )
    _, files = list_inputs([f"{flaky.store.url}/in.csv"], flaky.options)
    before = flaky.proxy.requests
    source = source.prepare(files)
    prepared = flaky.proxy.requests
    ranges = source.cut_ranges(files)
    ranges = source.apply_boundaries(
        ranges, [source.scan_boundaries(each) for each in ranges]
    )
    surveyed = flaky.proxy.requests
    rows = sum(len(read_one(source, each).rows) for each in ranges)
    assert rows == text.count("\n")
    assert len(ranges) >= 4
    assert surveyed - prepared == len(ranges)
    assert flaky.proxy.requests - surveyed == len(ranges)
    assert prepared - before == 1  # for all that is found in the first rows
    before = flaky.proxy.requests
    for each in ranges:
        assert source.sample_type_flags(each)
    assert flaky.proxy.requests - before == len(ranges) - 1  # the first rows are known


def test_a_table_without_quotes_by_declaration_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last byte of a block tells the state behind it."""
    store = open_store("memory://read_once")
    store.put_bytes(b"id,text\n" + PLAIN_TABLE.encode(), "in.csv")
    asked = Dialect(quote=b"")
    source = CsvSource(range_bytes=BLOCK_BYTES, requested_dialect=asked)
    _, files = list_inputs(["memory://read_once/in.csv"])
    source = source.prepare(files)
    ranges = source.cut_ranges(files)
    sizes = []

    def read(*args: Any, **options: Any) -> bytes:
        data = read_range(*args, **options)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(range_rows, "read_range", read)
    surveys = [source.scan_boundaries(each) for each in ranges]
    assert max(sizes) <= TAIL_BYTES
    assert len(sizes) == len(ranges)
    rows = sum(
        len(read_one(source, each).rows)
        for each in source.apply_boundaries(ranges, surveys)
    )
    assert rows == PLAIN_TABLE.count("\n")


@given(
    st.lists(
        st.sampled_from([b"1", b",", b"\n", b'"', b"x" * 9, b"\r\n"]), max_size=60
    ),
    st.integers(7, 40),
)
def test_every_byte_once(write_csv: FileWriter, body: list[bytes], size: int) -> None:
    """Long rows, in which no range begins one; stray quotes, open ones; no line end."""
    path = write_csv(b"a,b\n" + b"".join(body))
    source = CsvSource(
        as_text=True, rows=range_rows.RangeRows(("a", "b")), range_bytes=size
    )
    reading = read(source, path, expected=())
    data = path.read_bytes()
    found = [each for part in reading.parts for each in part.checksums]
    assert len(found) == len(reading.ranges)
    assert contents_of(found, {path.name: len(data)}) == {
        path.name: f"crc32c:{crc32c(data):08x}"
    }


HEADS = [b"h,k\n", b"h,k\r\n", b"h,k\r", b"k,h\n", b'"h",k\n', b"\xef\xbb\xbfh,k\n"]
TOKENS = [
    *(b"1,2\n", b"3,x\r\n", b"4,\r", b"\n", b"5,6", b"7\n", b"\xff,8\n"),
    *(b'"a\nb",9\n', b'5" pipe,1\n', b'"', b'"c",d\n', b"\xef\xbb\xbf,2\n"),
]
FILES = st.lists(
    st.tuples(
        st.sampled_from(HEADS), st.lists(st.sampled_from(TOKENS), max_size=4)
    ).map(lambda file: b"".join((file[0], *file[1]))),
    min_size=1,
    max_size=6,
)
FIXED = Schema(
    (
        FeatureSpec("h", Kind.INT64, dtype="int64", optional=True),
        FeatureSpec("k", Kind.BYTES, dtype="string"),
    )
)


@pytest.fixture(scope="module", autouse=True)
def few_files_are_many() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_files, "MIN_RANGES", 1)
        yield


def everything_read(source: CsvSource, folder: Path) -> dict[str, Any]:
    """All that a run uses of the rows, in order, whatever the ranges and batches."""
    reading = prepare(source, [folder])
    found: dict[str, Any] = {
        name: [] for name in ("rows", "origins", "keys", "raws", "rejects", "checksums")
    }
    for input_range in reading.ranges:
        sink = RangeFindings(found["rejects"], found["checksums"])
        for rows in reading.source.read(input_range, (0, 0), sink):
            count = rows.batch.num_rows
            paths = rows.paths or [input_range.path] * count
            raws = [rows.raw_row(row) for row in range(count)]
            keys = position_keys(input_range, rows.positions)
            cells = rows.batch.to_pylist()
            found["rows"] += [{n: str(v) for n, v in row.items()} for row in cells]
            found["origins"] += rows.origins.tolist()
            found["keys"] += keys.tolist()
            found["raws"] += [
                (path, *raw) for path, raw in zip(paths, raws, strict=True)
            ]
    return found


@pytest.mark.fuzz
@fuzzed()
@given(
    files=FILES,
    per_range=st.integers(1, 4),
    batch_bytes=st.integers(0, 60),
    fixed=st.sampled_from([None, FIXED]),
)
@example([b"h,k\n1,2", b"h,k\n\n\n3,4\n"], 4, 60, None)  # no newline at the end
@example([b"h,k\n1,2\n", b'h,k\n"a,2\n', b"h,k\n5,6\n"], 4, 60, None)  # never closed
@example([b"h,k\n1,2\n", b"k,h\n3,4\n", b"h,k\n5\n"], 4, 60, FIXED)  # other order
def test_the_rows_of_the_single_files(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[bytes],
    per_range: int,
    batch_bytes: int,
    fixed: Schema | None,
) -> None:
    folder = tmp_path_factory.mktemp("in")
    for index, data in enumerate(files):
        (folder / f"{index}.csv").write_bytes(data)
    alone = everything_read(CsvSource(names_files=True, fixed_schema=fixed), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_files, "FILES_PER_RANGE", per_range)
        # A small file is never cut into batches.
        patch.setattr(range_rows, "BATCH_BYTES", batch_bytes + max(map(len, files)))
        joined = everything_read(CsvSource(fixed_schema=fixed), folder)
    assert joined == alone


@given(
    st.lists(st.sampled_from([1, 100, 60_000, 1 << 20, (1 << 20) + 1, 40 << 20])),
    st.integers(0, 600),
)
def test_what_is_joined(sizes: list[int], more: int) -> None:
    """Small files, in order, no more than a range may hold; others stay as they are."""
    sizes += [20] * more
    files = [
        InputFile(f"{i}.csv", f"/in/{i}.csv", size, f"v{i}")
        for i, size in enumerate(sizes)
    ]
    single = number_ranges(
        [
            (file, start, min(start + RANGE_BYTES, file.size), "")
            for file in files
            for start in range(0, file.size, RANGE_BYTES)
        ]
    )
    ranges = join_small_files(single, RANGE_BYTES)
    again = [each for input_range in ranges for each in input_range.split_by_file()]
    facts = [(r.uri, r.start, r.stop, r.first_position, r.stat) for r in single]
    assert [(r.uri, r.start, r.stop, r.first_position, r.stat) for r in again] == facts
    assert [each.index for each in ranges] == list(range(len(ranges)))
    assert all(len(each.files) <= FILES_PER_RANGE for each in ranges)
    assert all(each.num_positions <= RANGE_BYTES for each in ranges)
    assert all(f.size <= RANGE_BYTES // 16 for each in ranges for f in each.files)
    for one, two in pairwise(ranges):
        is_full = len(one.files) == FILES_PER_RANGE or (
            one.num_positions + (two.files[0].size if two.files else two.stop)
            > RANGE_BYTES
        )
        large = (
            max(one.split_by_file()[-1].stop, two.split_by_file()[0].stop)
            > RANGE_BYTES // 16
        )
        assert is_full or large


@pytest.mark.parametrize(
    ("files", "ranges"),
    [(3, 3), (64, 64), (127, 127), (128, 64), (1000, 67), (16_384, 64), (20_000, 79)],
)
def test_workers_have_ranges_to_share(files: int, ranges: int) -> None:
    single = number_ranges(
        [(InputFile(f"{i}", f"/{i}", 20, "v"), 0, 20, "") for i in range(files)]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_files, "MIN_RANGES", 64)
        assert len(join_small_files(single, RANGE_BYTES)) == ranges


def test_tables_that_name_files_are_not_joined(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index}.csv").write_text("path\nx.jpg\n")
    assert len(prepare(CsvSource(), [tmp_path]).ranges) == 1
    assert len(prepare(CsvSource(names_files=True), [tmp_path]).ranges) == 3


def test_a_sample_looks_at_files_of_the_whole_range(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"{index:02d}.csv").write_text(f"a\n{'x' if index > 9 else 1}\n")
    reading = prepare(CsvSource(), [tmp_path])
    [input_range] = reading.ranges
    whole = prepare(CsvSource(names_files=True), [tmp_path])
    flags = [whole.source.sample_type_flags(each)[0] for each in whole.ranges]
    assert reading.source.sample_type_flags(input_range) == (flags[0] | flags[-1],)


def test_one_of_the_files_changed(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index}.csv").write_text("a\n1\n")
    reading = prepare(CsvSource(), [tmp_path])
    (tmp_path / "1.csv").write_text("a\n1\n2\n")
    with pytest.raises(ChangedInputError, match=r"1\.csv: has 6 bytes, but had 4"):
        list(reading.source.read(reading.ranges[0], (), RangeFindings()))
