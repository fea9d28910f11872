"""JSON Lines against Python's json: any objects, however the file is cut, and bad lines."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from example_counts import examples
from hypothesis import given
from source_tools import Reading, prepare, read, read_one

from recordmill.schemas.errors import InputError, SchemaError
from recordmill.transforms.sources import json_lines as jsonl
from recordmill.transforms.sources.base import Append
from recordmill.transforms.sources.json_lines import JsonLinesSource, split_block
from recordmill.transforms.sources.lines import read_blocks
from recordmill.transforms.storage import input_stream
from recordmill.transforms.storage.input_stream import InputStream

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LISTS = st.lists(st.lists(st.text(max_size=2), max_size=2), max_size=2)
NUMBERS = st.lists(st.integers(0, 9), max_size=3)
VALUES = st.sampled_from(
    [INTEGERS, FLOATS, st.booleans(), st.text(max_size=4), NUMBERS, LISTS]
)


@st.composite
def objects(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Objects with the same kinds of values; keys may be missing or null."""
    kinds = draw(st.lists(VALUES, min_size=1, max_size=3))
    plain = {f"k{index}": st.none() | of for index, of in enumerate(kinds)}
    inner = st.fixed_dictionaries({"x": INTEGERS}, optional={"y": FLOATS})
    rows = st.fixed_dictionaries(
        {"id": st.integers(0, 9)}, optional={**plain, "in": inner}
    )
    return draw(st.lists(rows, min_size=1, max_size=8))


def flat(row: dict[str, Any]) -> dict[str, Any]:
    nested = {f"in/{key}": value for key, value in row.get("in", {}).items()}
    return {key: value for key, value in row.items() if key != "in"} | nested


@examples(200)
@given(
    rows=objects(),
    sizes=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    newline=st.sampled_from(["\n", "\r\n", "\n\n", "\n \n"]),
    ends=st.booleans(),
    ascii_only=st.booleans(),
    bom=st.booleans(),
)
def test_rows_are_those_of_json_however_the_file_is_cut(
    rows: list[dict[str, Any]],
    sizes: tuple[int, int],
    newline: str,
    ends: bool,
    ascii_only: bool,
    bom: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    lines[0] = "\ufeff" * bom + lines[0]
    text = newline.join(lines) + newline * ends
    path.write_bytes(text.encode())
    whole = read(JsonLinesSource(), path)
    assert whole.rejects == []
    names = whole.source.columns().names
    wanted = [flat(row) for row in rows]
    assert set(names) == {name for row in wanted for name in row}
    assert whole.rows == [{name: row.get(name) for name in names} for row in wanted]
    raws = [raw for part in whole.parts for raw in part.raws]
    assert [raw.decode() for _, raw in raws] == lines
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "BATCH_BYTES", sizes[1])
        cut = read(JsonLinesSource(range_bytes=sizes[0]), path)
    assert (cut.rows, cut.origins) == (whole.rows, whole.origins)
    assert [raw for part in cut.parts for raw in part.raws] == raws


@examples(200)
@given(
    data=st.lists(st.sampled_from([b"a", b"bc", b"\n", b" ", b"\r\n"]), max_size=12).map(b"".join),
    step=st.integers(1, 9),
)  # fmt: skip
def test_each_line_is_of_the_part_it_begins_in(data: bytes, step: int) -> None:
    wanted, at = [], 0
    for line in data.split(b"\n"):
        if line.strip():
            wanted.append((at, line.removesuffix(b"\r")))
        at += len(line) + 1
    for size in range(1, len(data) + 1):
        found = []
        for start in range(0, len(data), size):
            part = (start, min(start + size, len(data)))
            stream = InputStream(lambda a, b: data[a:b], len(data), part=part)
            for begin, block in read_blocks(stream, step):
                lines = split_block(begin, block, (), ())
                starts = lines.positions.starts.tolist()
                assert all(part[0] <= at < part[1] for at in starts)
                found += zip(starts, lines.odd_lines.values(), strict=True)
        assert found == wanted


def lines_in(tmp_path: Path, *lines: str | bytes) -> Reading:
    path = tmp_path / "in.jsonl"
    path.write_bytes(
        b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines)
    )
    return read(JsonLinesSource(), path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a": 1', "not JSON: Expecting ',' delimiter at character 7"),
        ('{"a": 1}{"a": 2}', "not JSON: Extra data at character 8"),
        (b'{"a": "\xe9"}', r"""not UTF-8: b'\xe9"}' at byte 7 of the line"""),
        ("null", "expected a JSON object, found None"),
        ("[1]", "expected a JSON object, found [1]"),
        ('{"a": "x"}', "a: 'x' is not int64, its type in most rows"),
        ('{"a": true}', "a: True is not int64"),
        ('{"a": [1]}', "a: [1] is not int64"),
        ('{"a": 9223372036854775808}', "a: 9223372036854775808 is not int64"),
        ('{"t": "\\ud800"}', "t: '\\ud800' is not string"),
        ('{"l": [1, "x"]}', "l: [1, 'x'] is not list<item: int64>"),
        ('{"o": {"x": 1}, "o/x": 2}', "'o/x': there twice"),
        ("[" * 99999, "not JSON that can be read"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON that can be read"),
    ],
)
def test_a_bad_line_costs_itself_only(
    line: str | bytes, reason: str, tmp_path: Path
) -> None:
    good = '{"a": 1, "t": "x", "l": [1], "o": {"x": 1}}'
    reading = lines_in(tmp_path, good, line, good, good)
    assert len(reading.rows) == 3
    (reject,) = reading.rejects
    assert reject.reason.startswith(reason)
    assert reject.reason.encode()
    assert reject.position == len(good) + 1
    assert reject.raw == (line if isinstance(line, bytes) else line.encode())


def test_of_kinds_that_are_as_frequent_the_first_counts(tmp_path: Path) -> None:
    """However many lines are looked at together: of unpacked ones they are fewer."""
    data = b'{"l": []}\n{"l": 7}\n{"l": [0.5]}'
    for name, content in (("a.jsonl", data), ("a.jsonl.gz", gzip.compress(data))):
        (tmp_path / name).write_bytes(content)
        assert read(JsonLinesSource(), tmp_path / name).rows == [{"l": 7}]


def test_types_of_mixed_numbers_and_empty_lists(tmp_path: Path) -> None:
    reading = lines_in(tmp_path, '{"n": 1, "l": [], "e": []}', '{"n": 0.5, "l": [[1.5]], "e": [[]], "z": null}')  # fmt: skip
    assert {field.name: field.type for field in reading.source.columns()} == {
        "n": pa.float64(),
        "l": pa.list_(pa.list_(pa.float64())),
        "e": pa.list_(pa.list_(pa.string())),
        "z": pa.null(),
    }
    assert reading.rejects == []


def test_what_comes_after_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another key and another type are rejects, and told as such."""
    monkeypatch.setattr("recordmill.transforms.sources.json_lines.SAMPLE_BYTES", 8)
    monkeypatch.setattr(JsonLinesSource, "min_sample_bytes", 8)
    reading = lines_in(
        tmp_path, '{"a": 1}', '{"a": 2.5}', '{"a": 3, "b": 4}', '{"a": 5}'
    )
    assert [row["a"] for row in reading.rows] == [1, 5]
    assert [reject.reason.split(":")[0] for reject in reading.rejects] == ["a", "'b'"]
    assert ("types", "by the first 1 row") in reading.source.input_report().fields


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "every input file is empty"),
        ("\n \n", "no line of 1 input file is a JSON object"),
        ("a,b\n1,2\n", "no line of 1 input file is a JSON object: .*not JSON"),
        ("{}\n", "its objects have no keys"),
        ('{"a": [{"b": 1}]}', "'a': lists of objects"),
        ('{"a": [1, "b"], "c": 1}', "'a': lists of objects, or of values of several"),
    ],
)
def test_what_cannot_be_converted(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError, match=message):
        prepare(JsonLinesSource(), [tmp_path])


@pytest.mark.parametrize("step", [1, 9, 1 << 20])
def test_compressed_files(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give the rows, rejects and origins of plain ones, in parts of whatever size."""
    text = b"".join(b'{"n": %d}%s\n' % (n, b"\r" * (n % 2)) for n in range(50))
    text += b'\n{"n": }\n{"n": 50}'
    path = tmp_path / "x"
    path.write_bytes(text)
    plain = read(JsonLinesSource(), path)
    monkeypatch.setattr(input_stream, "TEXT_BYTES", 7)
    monkeypatch.setattr(jsonl, "BATCH_BYTES", step)
    for compress in (gzip.compress, bz2.compress, lzma.compress):
        path.write_bytes(compress(text))
        packed = read(JsonLinesSource(range_bytes=20), path)
        assert packed.rows == plain.rows
        assert packed.rejects == plain.rejects
        assert packed.origins == plain.origins
        positions = [at for part in packed.parts for at in part.positions]
        assert positions == sorted(positions)
        assert positions[-1] < path.stat().st_size
    assert dict(packed.source.input_report().fields)["file"] == "xz"


def test_files_that_are_compressed_in_two_ways(tmp_path: Path) -> None:
    """Are refused, whichever comes first."""
    (tmp_path / "2").write_bytes(gzip.compress(b'{"n": 1}\n'))
    for first in (b'{"n": 1}\n', bz2.compress(b'{"n": 1}\n')):
        (tmp_path / "1").write_bytes(first)
        with pytest.raises(InputError, match="/2: is gzip compressed, but the first"):
            read(JsonLinesSource(), tmp_path)


def test_a_declared_schema_says_which_keys_matter(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"a": [{"b": 1}], "c": 1}\n{"c": 2, "d": "new"}\n')
    source = JsonLinesSource(as_declared=True, requested_columns=("c",))
    assert read(source, tmp_path).rows == [{"c": 1}, {"c": 2}]


def test_an_append_keeps_the_schema(tmp_path: Path) -> None:
    old, new, other = (tmp_path / name for name in "abc")
    old.write_text('{"k": 1, "v": 0.5, "l": [1]}\n{"k": 1}\n')
    new.write_text('{"k": 3, "v": 2}\n{"v": 1.5}\n{"k": 4.5}\n')
    other.write_text('{"k": 3, "w": 2}\n')
    first = prepare(JsonLinesSource(), [old])
    schema = first.source.schema((), (0, 1, 1))
    reading = prepare(JsonLinesSource(), [new])
    source = JsonLinesSource().prepare(reading.files, Append(first.files, schema))
    part = read_one(source, reading.ranges[0])
    assert part.rows == [{"k": 3, "l": None, "v": 2.0}]
    assert [reject.reason for reject in part.rejects] == [
        "k: missing; every record of the dataset has it",
        "k: 4.5 is not int64, its type in the dataset",
    ]
    files = prepare(JsonLinesSource(), [other]).files
    with pytest.raises(SchemaError, match="they also have w; use `extra_columns"):
        JsonLinesSource().prepare(files, Append(first.files, schema))
