"""Parquet and Arrow IPC: the rows of any table, one schema of several files, messages."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given
from source_cases import write_typed
from source_tools import Reading, prepare, read, read_one

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.feature_spec import Kind
from recordmill.transforms.encode.examples import encode
from recordmill.transforms.sources import tables
from recordmill.transforms.sources.base import Append, RangeFindings
from recordmill.transforms.sources.tables import ColumnarSource, TableFormat

KINDS: tuple[TableFormat, ...] = ("parquet", "arrow")
BOX = pa.struct({"x": pa.float64(), "c": pa.string()})
# Type in the file, values, type of the rows.
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any], pa.DataType]] = [
    (pa.int8(), st.integers(-128, 127), pa.int64()),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1), pa.int64()),
    (pa.uint64(), st.integers(0, (1 << 64) - 1), pa.uint64()),
    (pa.bool_(), st.booleans(), pa.bool_()),
    (pa.float32(), st.floats(width=32, allow_nan=False), pa.float32()),
    (pa.float64(), st.floats(allow_nan=False), pa.float64()),
    (pa.string(), st.text(max_size=3), pa.string()),
    (pa.large_string(), st.text(max_size=3), pa.string()),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from("abc"), pa.string()),
    (pa.binary(), st.binary(max_size=3), pa.binary()),
    (pa.binary(2), st.binary(min_size=2, max_size=2), pa.binary()),
    (pa.timestamp("us"), st.datetimes(datetime.datetime(1990, 1, 1), datetime.datetime(2090, 1, 1)), pa.timestamp("us")),
    (pa.date32(), st.dates(), pa.date32()),
    (pa.list_(pa.int16()), st.lists(st.none() | st.integers(0, 9), max_size=3), pa.list_(pa.int64())),
    (pa.list_(pa.int16(), 2), st.lists(st.integers(0, 9), min_size=2, max_size=2), pa.list_(pa.int64(), 2)),
    (pa.list_(pa.list_(pa.string())), st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=2), pa.list_(pa.list_(pa.string()))),
]  # fmt: skip


def table_in(
    path: Path, kind: TableFormat, columns: dict[str, Any], rows: int = 99
) -> Path:
    file = path / f"table.{kind}"
    write_typed(pa.table(columns), kind, file, rows)
    return file


@st.composite
def columns(
    draw: st.DrawFn,
) -> tuple[pa.Table, dict[str, tuple[list[Any], pa.DataType]]]:
    """A table, and the values and the type that each column of the rows has."""
    rows = draw(st.integers(1, 8))
    made, expected = {}, {}
    for index, of in enumerate(draw(st.lists(st.sampled_from(TYPES), max_size=4))):
        arrow_type, values, wanted = of
        # Arrow cannot read a missing list of a fixed size from Parquet.
        missing = st.nothing() if pa.types.is_fixed_size_list(arrow_type) else st.none()
        cells = [draw(missing | values) for _ in range(rows)]
        made[f"c{index}"] = pa.array(cells, arrow_type)
        expected[f"c{index}"] = cells, wanted
    boxes = st.fixed_dictionaries(
        {"x": st.none() | st.floats(0, 9), "c": st.text(max_size=2)}
    )
    one = [draw(st.none() | boxes) for _ in range(rows)]
    many = [draw(st.none() | st.lists(boxes, max_size=3)) for _ in range(rows)]
    made |= {"one": pa.array(one, BOX), "many": pa.array(many, pa.list_(BOX))}
    for name, leaf in (("x", pa.float64()), ("c", pa.string())):
        expected[f"one/{name}"] = [box and box[name] for box in one], leaf
        lists = [boxes and [box[name] for box in boxes] for boxes in many]
        lists = [
            [] if boxes == [] else of for boxes, of in zip(many, lists, strict=True)
        ]
        expected[f"many/{name}"] = lists, pa.list_(leaf)
    return pa.table(made), expected


@pytest.mark.parametrize("kind", KINDS)
@examples(100)
@given(made=columns(), sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_rows_are_those_of_the_table_however_it_is_cut(
    kind: TableFormat,
    made: tuple[pa.Table, dict[str, tuple[list[Any], pa.DataType]]],
    sizes: tuple[int, int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    table, expected = made
    file = tmp_path_factory.getbasetemp() / f"any.{kind}"
    origins = []
    for group_rows, range_bytes in zip(sizes, (1, 1 << 20), strict=True):
        write_typed(table, kind, file, group_rows)
        reading = read(ColumnarSource(format_name=kind, range_bytes=range_bytes), file)
        assert {n: [row[n] for row in reading.rows] for n in expected} == {
            name: values for name, (values, _) in expected.items()
        }
        assert {f.name: f.type for f in reading.source.columns()} == {
            name: arrow_type for name, (_, arrow_type) in expected.items()
        }
        origins.append(reading.origins)
        groups = -(-table.num_rows // group_rows)
        assert len(reading.ranges) == (groups if range_bytes == 1 else 1)
    assert origins[0] == origins[1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_group_is_read_in_parts(
    kind: TableFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 3)
    file = table_in(tmp_path, kind, {"a": range(10)})
    reading = prepare(ColumnarSource(format_name=kind), [file])
    (whole,) = reading.ranges
    sizes = [
        rows.batch.num_rows for rows in reading.source.read(whole, (), RangeFindings())
    ]
    assert sizes == [3, 3, 3, 1]
    part = read_one(reading.source, whole)
    assert [row["a"] for row in part.rows] == part.positions == list(range(10))
    assert part.raws[4] == (4, b'{"a": 4}')


def test_a_decimal_is_a_float_unless_a_schema_takes_it(tmp_path: Path) -> None:
    value = Decimal("1234567890.12")
    file = table_in(tmp_path, "parquet", {"a": [value, None]})
    plain = read(ColumnarSource(), file)
    assert plain.rows == [{"a": float(value)}, {"a": None}]
    declared = read(ColumnarSource(as_declared=True), file)
    assert declared.rows == [{"a": value}, {"a": None}]
    assert ("stored as float32", "a") in plain.source.input_report().fields
    (feature,) = plain.source.schema((), (1,)).features
    assert (feature.kind, feature.optional) == (Kind.FLOAT, True)


@pytest.mark.parametrize("size", [-1, 2])
def test_decimals_in_lists(tmp_path: Path, size: int) -> None:
    """They are the nearest floats, too, in lists of one length and of any."""
    pair = [Decimal("1234567890.12"), Decimal("0.10")]
    values = pa.array([pair], pa.list_(pa.decimal128(12, 2), size))
    write_typed(pa.table({"a": values}), "parquet", tmp_path / "a", 9)
    assert read(ColumnarSource(), tmp_path).rows == [{"a": [1234567890.12, 0.1]}]


def two_files(tmp_path: Path, one: pa.Array, other: pa.Array) -> Reading:
    for name, values in (("1", one), ("2", other)):
        write_typed(pa.table({"k": [1], "v": values}), "parquet", tmp_path / name, 9)
    return read(ColumnarSource(), tmp_path)


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        (pa.array([1], pa.int8()), pa.array([300]), pa.int64()),
        (pa.nulls(1), pa.array(["a"]), pa.string()),
        (pa.array(["a"]), pa.nulls(1), pa.string()),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"], pa.large_string()), pa.string()),
        (pa.array([1.0], pa.float32()), pa.array([0.1]), pa.float64()),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), pa.array([[1]]), pa.list_(pa.int64())),
        (pa.array([[]], pa.list_(pa.null())), pa.array([["a"]]), pa.list_(pa.string())),
    ],
)  # fmt: skip
def test_files_of_one_input_have_one_schema(
    one: pa.Array, other: pa.Array, merged: pa.DataType, tmp_path: Path
) -> None:
    reading = two_files(tmp_path, one, other)
    assert reading.source.columns().field("v").type == merged
    assert [row["v"] for row in reading.rows] == [*one.to_pylist(), *other.to_pylist()]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1]), pa.array(["a"])),
        (pa.array([1]), pa.array([1.0])),
        (pa.array([[1]]), pa.array([1])),
        (pa.array([1], pa.timestamp("us")), pa.array([1], pa.timestamp("ms"))),
    ],
)
def test_files_that_differ_are_named_with_the_column(
    one: pa.Array, other: pa.Array, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        two_files(tmp_path, one, other)
    told = str(caught.value)
    for part in (tmp_path / "1", tmp_path / "2", "'v'", one.type, other.type):
        assert str(part) in told
    for name in ("1", "2"):  # the way out
        assert len(read(ColumnarSource(), tmp_path / name).rows) == 1


def test_files_with_other_columns_are_named(tmp_path: Path) -> None:
    write_typed(pa.table({"a": [1]}), "parquet", tmp_path / "1", 9)
    write_typed(pa.table({"a": [1], "b": [2]}), "parquet", tmp_path / "2", 9)
    with pytest.raises(InputError, match=r"/2: its columns differ .* also has b"):
        read(ColumnarSource(), tmp_path)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([[[("k", 1)]]], pa.list_(pa.map_(pa.string(), pa.int64()))),
    ],
)
def test_a_column_that_can_be_no_feature(values: pa.Array, tmp_path: Path) -> None:
    """Refused by name; where a schema says what to take, the others are read."""
    file = table_in(tmp_path, "arrow", {"a": [1], "odd": values})
    with pytest.raises(InputError, match=r"column 'odd' of type .*cannot be features"):
        read(ColumnarSource(format_name="arrow"), file)
    assert read(ColumnarSource(format_name="arrow", as_declared=True), file).rows == [
        {"a": 1}
    ]


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": 1}], "a/b": [2]})
    write_typed(table, "parquet", tmp_path / "x", 9)
    with pytest.raises(InputError, match="two columns 'a/b'"):
        read(ColumnarSource(), tmp_path / "x")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_such_file(kind: TableFormat, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("not a table at all, but a long text")
    with pytest.raises(InputError, match=r"note.txt: cannot be read as a.*name only"):
        read(ColumnarSource(format_name=kind), tmp_path)
    file = table_in(tmp_path, kind, {"a": [1]})
    assert len(read(ColumnarSource(format_name=kind), file).rows) == 1


def test_files_without_rows(tmp_path: Path) -> None:
    """What Spark leaves beside tables is told; a table of no rows is none."""
    write_typed(pa.table({"a": pa.array([], pa.int64())}), "parquet", tmp_path / "0", 9)
    write_typed(pa.table({"a": [7]}), "parquet", tmp_path / "1", 9)
    for name in ("_SUCCESS", "_metadata", "x"):
        (tmp_path / name).touch()
    reading = read(ColumnarSource(), tmp_path)
    assert reading.rows == [{"a": 7}]
    told = {
        each.reason: each.num_files
        for each in reading.source.input_report().skipped_files
    }
    assert told == {"the name begins with '_' or '.'": 2, "empty": 1, "no rows": 1}
    (unread,) = reading.source.checksums_of_prepare()
    assert (unread.path, unread.stop) == ("0", (tmp_path / "0").stat().st_size)


def test_text_that_is_not_utf8_rejects_its_row(tmp_path: Path) -> None:
    """Told when the row is encoded; its raw form shows the bytes."""
    text = pa.array([b"ok", b"\xfe\xff", b"z"]).view(pa.string())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), text)
    file = table_in(tmp_path, "parquet", {"t": text, "l": lists})
    reading = prepare(ColumnarSource(), [file])
    (rows,) = reading.source.read(reading.ranges[0], (), RangeFindings())
    shown = json.dumps({"t": r"\xfe\xff", "l": [r"\xfe\xff"]})
    assert rows.raw_row(1) == (1, shown.encode())
    with pytest.raises(Exception, match="UTF-8"):
        encode(rows.batch, reading.source.schema())


def appended(schema_of: Path, new: Iterable[Path]) -> tuple[Reading, ColumnarSource]:
    old = prepare(ColumnarSource(), [schema_of])
    reading = prepare(ColumnarSource(), list(new))
    source = ColumnarSource().prepare(
        reading.files, Append(old.files, old.source.schema((), (0, 1)))
    )
    return reading, source


def test_an_append_keeps_the_schema(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in "abc")
    write_typed(pa.table({"k": [1, 2], "v": [None, 2.5]}), "parquet", old, 9)
    write_typed(pa.table({"k": [3, None], "v": [1.5, 2.5]}), "parquet", new, 9)
    write_typed(pa.table({"k": [3]}), "parquet", other, 9)
    reading, source = appended(old, [new])
    part = read_one(source, reading.ranges[0])
    assert part.rows == [{"k": 3, "v": 1.5}]
    (reject,) = part.rejects
    assert (reject.position, reject.raw) == (1, b'{"k": null, "v": 2.5}')
    assert reject.reason == "k: missing; every record of the dataset has it"
    assert source.schema()["v"].optional
    with pytest.raises(SchemaError, match="they lack v; convert all inputs"):
        appended(old, [other])


def test_groups_are_joined_up_to_a_constant(tmp_path: Path) -> None:
    file = table_in(tmp_path, "parquet", {"a": range(100)}, rows=10)
    ranges = prepare(ColumnarSource(range_bytes=200), [file]).ranges
    assert 1 < len(ranges) < 10
    assert all(each.stop % 10 == 0 for each in ranges)


def _with_text_before(array: pa.Array) -> pa.Array:
    """A struct whose first field is text that is not UTF-8."""
    offsets = pa.py_buffer(np.arange(4, dtype=np.int32))
    text = [None, offsets, pa.py_buffer(b"\xff\xfe\xfd")]
    odd_text = pa.Array.from_buffers(pa.string(), 3, text)
    return pa.StructArray.from_arrays([odd_text, array], ["s", "y"])


def _odd_text_in(make: Callable[[pa.Array], pa.Array]) -> pa.Array:
    odd_text = _with_text_before(pa.array([1, 2, 3])).field(0)
    return make(odd_text)


_OFFSETS = pa.array([0, 1, 1, 3], pa.int32())
_INDICES = pa.array([1, 2, 1], pa.int32())
_WITH_ODD_TEXT = {
    "list behind": lambda: _with_text_before(
        pa.ListArray.from_arrays(_OFFSETS, pa.array([1, 2, 3]))
    ),
    "text behind": lambda: _with_text_before(
        pa.Array.from_buffers(
            pa.string(), 3, [None, _OFFSETS.buffers()[1], pa.py_buffer(b"abc")]
        )
    ),
    "index behind": lambda: _with_text_before(
        pa.DictionaryArray.from_arrays(_INDICES, ["a", "b", "c"])
    ),
    "list around": lambda: _odd_text_in(
        lambda text: pa.ListArray.from_arrays(_OFFSETS, text)
    ),
    "index around": lambda: _odd_text_in(
        lambda text: pa.DictionaryArray.from_arrays(_INDICES, text, safe=False)
    ),
}


@pytest.mark.parametrize("form", _WITH_ODD_TEXT)
@pytest.mark.parametrize("odd", [[0, 1 << 30, 1, 3], [0, -5, 1, 3]])
def test_offsets_are_checked_where_text_is_not_utf_8(
    tmp_path: Path, form: str, odd: list[int]
) -> None:
    """Arrow reports the text first: what is behind it led out of the memory."""
    batch = pa.record_batch([_WITH_ODD_TEXT[form]()], ["a"])
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    source = ColumnarSource(format_name="arrow")
    integers = _INDICES if "index" in form else _OFFSETS
    expected = integers.to_numpy().tobytes()
    assert path.read_bytes().count(expected) == 1
    changed = np.array(odd, np.int32)[: len(integers)].tobytes()
    path.write_bytes(path.read_bytes().replace(expected, changed))
    with pytest.raises(InputError, match=r"a\.arrow.*cannot be read as an Arrow IPC"):
        read(source, path)
