"""Many small files are one range; their rows are those of the single files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from example_counts import fuzzed
from hypothesis import example, given
from hypothesis import strategies as st
from source_tools import prepare

from recordmill.schemas.errors import ChangedInputError
from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import cut_of
from recordmill.transforms.exchange.keys import position_keys
from recordmill.transforms.sources.base import RANGE_BYTES, RowSink, number_ranges
from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv import source as small_files
from recordmill.transforms.sources.csv.source import (
    FILES_PER_RANGE,
    CsvSource,
    join_small_files,
)

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
        patch.setattr(small_files, "RANGES_KEPT", 1)
        yield


def everything_read(source: CsvSource, folder: Path) -> dict[str, Any]:
    """All that a run uses of the rows, in order, whatever the ranges and batches."""
    reading = prepare(source, [folder])
    found: dict[str, Any] = {
        name: [] for name in ("rows", "origins", "keys", "raws", "rejects", "checksums")
    }
    for input_range in reading.ranges:
        sink = RowSink(found["rejects"], found["checksums"])
        for rows in reading.source.read(input_range, (0, 0), sink):
            count = rows.batch.num_rows
            paths = rows.paths or [input_range.path] * count
            raws = [rows.raw(row) for row in range(count)]
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
    again = [each for input_range in ranges for each in input_range.by_file()]
    facts = [(r.uri, r.start, r.stop, r.first_position, r.seen) for r in single]
    assert [(r.uri, r.start, r.stop, r.first_position, r.seen) for r in again] == facts
    assert [each.index for each in ranges] == list(range(len(ranges)))
    assert all(len(each.files) <= FILES_PER_RANGE for each in ranges)
    assert all(each.num_positions <= RANGE_BYTES for each in ranges)
    assert all(f.size <= RANGE_BYTES // 16 for each in ranges for f in each.files)
    for one, two in pairwise(ranges):
        is_full = len(one.files) == FILES_PER_RANGE or (
            one.num_positions + (two.files[0].size if two.files else two.stop)
            > RANGE_BYTES
        )
        large = max(one.by_file()[-1].stop, two.by_file()[0].stop) > RANGE_BYTES // 16
        assert is_full or large
    assert (cut_of(ranges) == "") == (len(ranges) == len(single))


@pytest.mark.parametrize(
    ("files", "ranges"),
    [(3, 3), (64, 64), (127, 127), (128, 64), (1000, 67), (16_384, 64), (20_000, 79)],
)
def test_workers_have_ranges_to_share(files: int, ranges: int) -> None:
    single = number_ranges(
        [(InputFile(f"{i}", f"/{i}", 20, "v"), 0, 20, "") for i in range(files)]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_files, "RANGES_KEPT", 64)
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
    flags = [whole.source.sample(each)[0] for each in whole.ranges]
    assert reading.source.sample(input_range) == (flags[0] | flags[-1],)


def test_one_of_the_files_changed(tmp_path: Path) -> None:
    for index in range(3):
        (tmp_path / f"{index}.csv").write_text("a\n1\n")
    reading = prepare(CsvSource(), [tmp_path])
    (tmp_path / "1.csv").write_text("a\n1\n2\n")
    with pytest.raises(ChangedInputError, match=r"1\.csv: has 6 bytes, but had 4"):
        list(reading.source.read(reading.ranges[0], (), RowSink()))
