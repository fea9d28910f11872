"""The contract of every source: list, cut, read; each row once; nothing lost.

The cases stand in source_cases.py; a new source adds one and inherits every test.
"""

from __future__ import annotations

import builtins
import os
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import fsspec
import pytest
from content_tools import contents_of
from source_cases import CASES, Case
from source_tools import Reading, prepare, read, read_one

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.encode.waiting_rows import lengths_of
from recordmill.transforms.sources.arrays.fixed_records import CifarSource
from recordmill.transforms.sources.base import REFERENCE, RangeFindings, number_ranges
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.sources.images.source import FilesSource
from recordmill.transforms.tasks.frame_records import frame_rows
from recordmill.transforms.tfrecord import crc32c

BY_BYTES = [name for name, case in CASES.items() if case.unit == "byte"]
# Of the others the features are in the records, which are not read.
WITH_COLUMNS = [
    n for n, c in CASES.items() if getattr(c.source, "records", "") != "keep"
]
# Fields of sources that say how long ranges are, so that tests can have small ones.
RANGE_SIZES = {"range_bytes", "whole_bytes", "step_bytes"}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A case whose input is cut into several ranges."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    return CASES[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


def read_all(reading: Reading) -> None:
    for input_range in reading.ranges:
        read_one(reading.source, input_range)


def raw_rows(reading: Reading) -> list[tuple[str, int, bytes]]:
    """Path, position and raw bytes of all rows kept, in the order read."""
    source = reading.source
    if isinstance(source, FilesSource) and not source.keeps_bytes:
        # What is kept is not what was read.
        raws = [raw for part in reading.parts for raw in part.raws]
        names = [row["filename"] for row in reading.rows]
        return [(name, *raw) for name, raw in zip(names, raws, strict=True)]
    if isinstance(source, FilesSource):
        content = next(iter(source.options.column_names))
        return [(row["filename"], 0, row[content]) for row in reading.rows]
    return [(p.input_range.path, *raw) for p in reading.parts for raw in p.raws]


def read_contents(reading: Reading) -> dict[str, str]:
    """What was read of each file, by the checksums of its ranges."""
    parts = [*reading.source.checksums_of_prepare()]
    parts += [each for part in reading.parts for each in part.checksums]
    return contents_of(parts, {file.path: file.size for file in reading.files})


def test_every_row_is_read_once_and_in_order(case: Case, folder: Path) -> None:
    rows = case.make(folder)
    reading = read(case.source, folder)
    assert raw_rows(reading) == rows
    assert len(reading.rows) == len(rows)
    assert reading.rejects == []


def test_checksums_are_those_of_the_files(case: Case, folder: Path) -> None:
    """By rows or by references: of every byte that was read."""
    case.make(folder)
    reading = read(case.source, folder)
    sizes = {file.path: file.size for file in reading.files}
    whole = {
        path: f"crc32c:{crc32c((folder / path).read_bytes()):08x}" for path in sizes
    }
    assert reading.source.reports_checksums
    assert read_contents(reading) == whole
    if not reading.source.supports_references:
        return
    by_reference = [*reading.source.checksums_of_prepare()]
    for input_range in reading.ranges:
        sink = RangeFindings()
        for rows in reading.source.list_references(input_range, sink):
            list(reading.source.read_windows([rows.batch[REFERENCE]], sink))
        by_reference += sink.checksums
    assert contents_of(by_reference, sizes) == whole


def test_ranges_are_contiguous_and_cover_the_input(case: Case, folder: Path) -> None:
    case.make(folder)
    reading = prepare(case.source, [folder])
    ranges = reading.ranges
    assert [input_range.index for input_range in ranges] == list(range(len(ranges)))
    assert len(ranges) > 2
    position = 0
    for input_range in ranges:
        assert input_range.first_position == position
        position += input_range.num_positions
    assert {input_range.total_positions for input_range in ranges} == {position}
    for before, after in pairwise(ranges):
        same = before.uri == after.uri
        assert after.start == (before.stop if same else 0)
    if not isinstance(case.source, FilesSource) and case.unit == "byte":
        ends = {input_range.path: input_range.stop for input_range in ranges}
        names = {file.path for file in reading.source.checksums_of_prepare()}
        files = [file for file in reading.files if file.path not in names]
        assert ends == {file.path: file.size for file in files}


def test_ranges_are_cut_by_constants(case: Case, folder: Path) -> None:
    """The same again, and the same whatever lies in the other files."""
    case.make(folder)
    reading = prepare(case.source, [folder])
    again = prepare(case.source, [folder])
    assert reading.ranges == again.ranges
    if isinstance(case.source, FilesSource):
        return
    last = reading.files[-1]
    alone = reading.source.cut_ranges([last])
    assert [(s.start, s.stop) for s in alone] == [
        (s.start, s.stop) for s in reading.ranges if s.path == last.path
    ]


def test_wherever_ranges_are_cut_the_rows_are_the_same(
    case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their order and rejects, too; some ranges are less than a row."""
    case.make(folder)
    path, kept_bytes = case.cut_short
    if case.unit == "byte" and case.pack is bytes:  # with a reject
        (folder / path).write_bytes((folder / path).read_bytes()[:kept_bytes])
    whole = read(case.source, folder)
    cuts = set()
    for size in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 987, 100_000):
        own = 3073 + size * 100 if isinstance(case.source, CifarSource) else size
        sizes = {f.name: own for f in fields(case.source) if f.name in RANGE_SIZES}
        monkeypatch.setattr(images_source, "FILES_PER_RANGE", size)
        reading = read(replace(case.source, **sizes), folder)
        cuts.add(tuple((each.path, each.start) for each in reading.ranges))
        assert reading.rows == whole.rows
        assert len(set(reading.origins)) == len(whole.origins)
        assert raw_rows(reading) == raw_rows(whole)
        assert sorted(reading.rejects) == sorted(whole.rejects)
        keys = [key for part in reading.parts for key in part.keys]
        assert keys == sorted(set(keys))
        assert read_contents(reading) == read_contents(whole)
    assert len(cuts) > 1 or {start for cut in cuts for _, start in cut} == {0}


def test_ranges_can_be_read_in_any_order(case: Case, folder: Path) -> None:
    case.make(folder)
    reading = read(case.source, folder)
    backwards = [
        read_one(pickle.loads(pickle.dumps(reading.source)), input_range).origins
        for input_range in reversed(reading.ranges)
    ]
    assert [o for part in reversed(backwards) for o in part] == reading.origins


def test_origins_are_unique_and_stable(case: Case, folder: Path) -> None:
    case.make(folder)
    first = read(case.source, folder).origins
    assert len(set(first)) == len(first)
    assert read(case.source, folder).origins == first


def test_origins_do_not_depend_on_where_the_folder_lies(
    case: Case, folder: Path, tmp_path: Path
) -> None:
    case.make(folder)
    elsewhere = tmp_path / "quite" / "another" / "spot"
    shutil.copytree(folder, elsewhere)
    assert read(case.source, elsewhere).origins == read(case.source, folder).origins


def test_the_input_may_lie_in_another_store(case: Case, folder: Path) -> None:
    case.make(folder)
    local = read(case.source, folder)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), "/sources-in", recursive=True)
    try:
        remote = read(case.source, "memory://sources-in")
    finally:
        memory.rm("/sources-in", recursive=True)
    assert remote.rows == local.rows
    assert remote.origins == local.origins


def test_places_rise_within_a_range_and_keys_over_the_input(
    case: Case, folder: Path
) -> None:
    case.make(folder)
    reading = read(case.source, folder)
    for part in reading.parts:
        assert all(a < b for a, b in pairwise(part.positions))
        assert all(
            0 <= input_range < part.input_range.num_positions
            for input_range in part.positions
        )
    keys = [key for part in reading.parts for key in part.keys]
    assert all(a < b for a, b in pairwise(keys))


def test_a_source_is_small_and_touches_no_storage(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("storage was touched")

    for module, name in (
        *((os, n) for n in ("open", "stat", "scandir", "listdir")),
        (builtins, "open"),
        (fsspec.core, "url_to_fs"),
    ):
        monkeypatch.setattr(module, name, refuse)
    built = replace(case.source)
    pickled = pickle.dumps(built)
    restored = pickle.loads(pickled)
    monkeypatch.undo()
    assert restored == built
    assert len(pickled) < 1600


def test_an_empty_file_among_others(case: Case, folder: Path) -> None:
    rows = case.make(folder)
    (folder / case.empty).touch()
    reading = read(case.source, folder)
    assert raw_rows(reading) == rows
    found = [(r.path, r.position, r.raw) for r in reading.rejects]
    assert found == ([(case.empty, 0, b"")] if case.empty_reason else [])
    assert all(r.reason.startswith(case.empty_reason) for r in reading.rejects)


def test_a_truncated_file_is_rejected_where_it_ends(case: Case, folder: Path) -> None:
    rows = case.make(folder)
    path, kept_bytes = case.cut_short
    data = (folder / path).read_bytes()[:kept_bytes]
    (folder / path).write_bytes(data)

    if case.pack is not bytes or case.unit == "row":
        with pytest.raises(InputError, match=case.reason):
            read(case.source, folder)
        return
    reading = read(case.source, folder)

    whole = [
        (name, at, raw)
        for name, at, raw in rows
        if name != path or at + len(raw) <= kept_bytes
    ]
    assert raw_rows(reading) == whole
    (reject,) = reading.rejects
    assert reject.path == path
    assert reject.raw == data[reject.position :] != b""
    assert reject.reason.startswith(case.reason)
    cut = [at for name, at, raw in rows if name == path and at < kept_bytes]
    assert reject.position == cut[-1]
    assert len(reading.rows) + len(reading.rejects) == len(whole) + 1


# Other rows are rejects only when they are encoded: see test_columnar.
@pytest.mark.parametrize("case", BY_BYTES, indirect=True)
def test_rejects_keep_the_bytes_that_stand_at_their_position(
    case: Case, folder: Path
) -> None:
    rows = case.make(folder)
    path, _, raw = rows[1]
    bad = b"\xfe" + raw[1:]  # no label, no UTF-8, no image
    data = case.unpack((folder / path).read_bytes()).replace(raw, bad)
    (folder / path).write_bytes(case.pack(data))
    reading = read(case.source, folder)
    (reject,) = reading.rejects
    stored = case.unpack((folder / reject.path).read_bytes())
    assert stored[reject.position : reject.position + len(reject.raw)] == reject.raw
    assert reject.raw == bad
    assert raw_rows(reading) == [row for row in rows if row != rows[1]]


@pytest.mark.parametrize("left", [0.0, 0.5, 0.99], ids=["nothing", "half", "most"])
def test_a_file_that_shrank_after_the_inventory(
    case: Case, folder: Path, left: float
) -> None:
    case.make(folder)
    reading = prepare(case.source, [folder])
    file = reading.files[0]
    with Path(file.uri).open("r+b") as stored:
        stored.truncate(int(file.size * left))
    with pytest.raises(InputError, match=rf"{file.path}: (has|ends at|no header)"):
        read_all(reading)


def test_a_file_that_vanished_after_the_inventory(case: Case, folder: Path) -> None:
    case.make(folder)
    reading = prepare(case.source, [folder])
    Path(reading.files[0].uri).unlink()
    with pytest.raises(InputError, match=f"{reading.files[0].path}: cannot be read"):
        read_all(reading)


@pytest.mark.parametrize("case", WITH_COLUMNS, indirect=True)
def test_the_schema_names_columns_that_are_read(case: Case, folder: Path) -> None:
    case.make(folder)
    reading = read(case.source, folder)
    columns = {feature.column for feature in reading.source.schema().features}
    assert columns <= reading.rows[0].keys()


def test_estimate_is_no_less_than_the_input(case: Case, folder: Path) -> None:
    case.make(folder)
    reading = prepare(case.source, [folder])
    size = sum(file.size for file in reading.files)
    assert reading.source.estimated_bytes(reading.files) >= size


def test_no_input_at_all(case: Case) -> None:
    with pytest.raises(InputError):
        case.source.prepare([])


def test_number_ranges_counts_on_over_files() -> None:
    one, two = InputFile("a", "/a", 5), InputFile("b", "/b", 2)
    input_ranges = number_ranges([(one, 0, 3, "x"), (one, 3, 5, "x"), (two, 0, 2, "")])
    assert [(s.index, s.path, s.first_position, s.split) for s in input_ranges] == [
        (0, "a", 0, "x"),
        (1, "a", 3, "x"),
        (2, "b", 5, ""),
    ]
    assert {input_range.total_positions for input_range in input_ranges} == {7}


def test_a_source_needs_little_more_than_cut_and_read() -> None:
    """What the base class offers to a format without surveys and samples."""

    class Plain(CifarSource):
        pass

    source = Plain()
    input_range = InputRange(0, "a", "/a", 0, 1, 0, 1)
    steps: Sequence[object] = (
        source.needs_boundary_scan([]),
        source.scan_boundaries(input_range),
    )
    assert steps == (False, 0)
    assert source.apply_boundaries([input_range], [0]) == [input_range]
    assert source.sample_type_flags(input_range) == ()
    assert not source.needs_reencode((), (), ())


REFERRING = (
    "images",
    "images with a table",
    "audio",
    "cifar",
    "binary, by reference",
    "tfrecord",
)


@pytest.mark.parametrize("case", [CASES[name] for name in REFERRING], ids=REFERRING)
def test_rows_by_reference_are_the_rows_read(case: Case, folder: Path) -> None:
    case.make(folder)
    name, size = case.cut_short
    (folder / name).write_bytes((folder / name).read_bytes()[:size])
    reading = read(case.source, folder)
    assert reading.source.supports_references
    windows, alone = [], []
    for input_range, part in zip(reading.ranges, reading.parts, strict=True):
        rows, origins, positions, sink = [], [], [], RangeFindings()
        for referred in reading.source.list_references(input_range, sink):
            window = referred.batch[REFERENCE]
            (fetched,) = reading.source.read_windows([window], sink)
            rows += fetched.batch.to_pylist()
            windows.append(window)
            alone.append(fetched.batch)
            origins += referred.origins[fetched.row_indices].tolist()
            positions += referred.positions[fetched.row_indices].tolist()
        assert rows == part.rows
        assert sink.rejects == part.rejects
        assert (origins, positions) == (part.origins, part.positions)
    together = reading.source.read_windows(iter(windows), RangeFindings())
    assert [found.batch for found in together] == alone


@pytest.mark.parametrize("name", CASES)
def test_columns_are_known_before_reading(folder: Path, name: str) -> None:
    CASES[name].make(folder)
    reading = prepare(CASES[name].source, [folder])
    known = reading.source.columns()
    (first, *_) = reading.source.read(reading.ranges[0], (), RangeFindings())
    assert known.names == first.batch.schema.names
    if not reading.source.infers_types:
        assert known.equals(first.batch.schema)


def test_references_of_fixed_length_weigh_what_their_records_do(folder: Path) -> None:
    CASES["cifar"].make(folder)
    reading = prepare(CASES["cifar"].source, [folder])
    schema = reading.source.schema()
    for input_range in reading.ranges:
        (rows,) = reading.source.read(input_range, (), RangeFindings())
        (referred,) = reading.source.list_references(input_range, RangeFindings())
        (framed,) = frame_rows(rows.batch, schema, JobSpec(source="cifar", name="a"))
        lengths = lengths_of(framed.rows)
        assert referred.planned_bytes is not None
        assert referred.planned_bytes.tolist() == lengths.tolist()


def test_rows_without_a_size_unread_cannot_be_referred_to() -> None:
    input_range = InputRange(0, "a", "a", 0, 4, 0, 10)
    with pytest.raises(NotImplementedError):
        next(iter(CsvSource().list_references(input_range, RangeFindings())))
