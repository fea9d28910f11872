"""Lines that the compiled loop splits are rows of what json reads; the others it leaves to json."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from example_counts import fuzzed
from hypothesis import event, example, given
from hypothesis import strategies as st
from source_tools import Reading, read

from recordmill.transforms import native
from recordmill.transforms.native import numpy_loops
from recordmill.transforms.native.interface import _load
from recordmill.transforms.sources import json_lines as jsonl
from recordmill.transforms.sources.json_lines import JsonLinesSource, split_block

pytestmark = pytest.mark.fuzz

_loops = _load()
# What writers write, then what is odd about numbers, text and structure.
NUMBERS = [
    "0",
    "7",
    "-12",
    "3.5",
    "-0.0",
    "1e5",
    "0.30000000000000004",
    "123456789012345678",
]
ODD_NUMBERS = [
    *(
        "-0",
        "-0e1",
        "1.",
        ".5",
        "01",
        "+1",
        "1e400",
        "-1e999",
        "1e-400",
        "5e-324",
        "NaN",
    ),
    *(
        "9007199254740993",
        "9223372036854775808",
        "-Infinity",
        "1" * 50,
        "0x1",
        "1_0",
        "1E+5",
    ),
]
TEXTS = [
    '"a"',
    '""',
    '"é"',
    '"\\u00e9"',
    '"\\ud83d\\ude00"',
    '"\\n\\"\\\\/"',
    f'"{"x" * 40}"',
]
ODD_TEXTS = [
    *('"\\ud800"', '"\\ude00\\ud83d"', '"\\x"', '"\\u12g4"', '"\t"', '"open', "'a'"),
    *('"\\ud83d\\u0041"', '"\x7f"', '"\\u0000"', '"\ufeff"', '"\\ud83dx"', '"\\"'),
]
OTHERS = [
    "true",
    "false",
    "null",
    "[]",
    "[1, 2]",
    "[1.5]",
    "[[1], []]",
    '["a,]", "\\""]',
]
ODD_OTHERS = [
    *(
        "tru",
        "nul",
        "None",
        "[1, ]",
        "[1 2]",
        "[",
        "[,]",
        "{}",
        '{"x": 1}',
        '[{"x": 1}]',
    ),
    *(
        '{"x": {"y": 2}, "z": null}',
        '{"x": 1, "x": 2}',
        '{"": 1}',
        "[" * 99,
        "[NaN]",
        "[-0]",
    ),
]
KEYS = [
    '"a"',
    '"b"',
    '"é"',
    '"\\u00e9"',
    '"a/b"',
    '"o"',
    '"x"',
    '"o/x"',
    '""',
    '"\\ud800"',
    "a",
]
BLANKS = st.sampled_from(["", "", "", " ", "\t", "\r", "\x0b"])
ENDS = st.sampled_from(
    ["\n", "\n", "\n", "\r\n", "\n\n", " \r\n", "\n\x0b\n", "", "\n\ufeff"]
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    columns = draw(st.lists(st.sampled_from(KEYS[:8]), min_size=1, max_size=4))
    kinds = [draw(st.sampled_from([NUMBERS, TEXTS, OTHERS])) for _ in columns]
    is_odd = draw(st.booleans())
    odd = st.sampled_from([*ODD_NUMBERS, *ODD_TEXTS, *ODD_OTHERS, *NUMBERS, *TEXTS])
    lines = []
    for _ in range(draw(st.integers(1, 8))):
        members = []
        for key, kind in zip(columns, kinds, strict=True):
            some_odd = is_odd and draw(st.integers(0, 5)) == 0
            value = draw(odd if some_odd else st.sampled_from([*kind, "null"]))
            if some_odd and draw(st.booleans()):
                key = draw(st.sampled_from(KEYS))
            if draw(st.integers(0, 6)):
                members.append(
                    f"{draw(BLANKS)}{key}{draw(BLANKS)}:{draw(BLANKS)}{value}"
                )
        line = "{" + f"{draw(BLANKS)},".join(members) + "}"
        if is_odd and draw(st.integers(0, 9)) == 0:
            cut = draw(st.integers(0, len(line)))
            line = (
                line[:cut]
                + draw(st.sampled_from(["", "}", "{", ",", '"', "null"]))
                + line[cut:]
            )
        lines.append(line + draw(ENDS))
    return "".join(lines)


def told(reading: Reading) -> str:
    """Returns all that was read, so that NaN, -0.0 and 0.0 are told apart."""
    more = [(part.raws, part.issues, part.nulls) for part in reading.parts]
    return repr(
        (reading.source.types, reading.rows, reading.origins, more, reading.rejects)
    )


def by_both(source: JsonLinesSource, path: Path) -> tuple[str, str]:
    found = []
    for loops in (native.loops, numpy_loops):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "loops", loops)
            patch.setattr(jsonl, "BATCH_BYTES", 60)  # the first lines tell the types
            try:
                found.append(told(read(source, path)))
            except Exception as error:
                found.append(f"{type(error)}: {error}")
    return found[0], found[1]


@fuzzed()
@given(text=texts(), widen=st.booleans())
@example(
    text='{"a": 1}\n{"a": 1}{"a": 2}\n{"a": 3,\n"b": 4}\nnull\n{} null {}\n',
    widen=False,
)
@example(
    text='{"o": {"x": 1}, "o": {"y": 1}}\n{"o": {"x": 1}, "o/x": 2}\n', widen=False
)
def test_rows_and_rejects_are_those_of_json(
    text: str, widen: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "plain.jsonl"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    source = JsonLinesSource(odd_cells="widen" if widen else "refuse")
    compiled, by_json = by_both(source, path)
    assert compiled == by_json
    event(f"read: {by_json[0] == '('}")


TYPES = (
    *(("a", pa.int64()), ("b", pa.string()), ("é", pa.float64()), ("t", pa.bool_())),
    *(("o/x", pa.int64()), ("o/p/y", pa.string()), ("l", pa.list_(pa.int64()))),
    ("n", pa.null()),
)


def row_of(seeded: random.Random, number: int) -> dict[str, Any]:
    row = {
        "a": number,
        "b": "é\n" * (number % 40),
        "é": number / 7,
        "t": number % 2 == 0,
        "o": {"x": -number, "p": {"y": "\U0001f600" * (number % 9)}},
        "l": [number] * (number % 3),
        "n": None,
    }
    names = seeded.sample([*row], seeded.randrange(len(row) + 1))
    return {name: row[name] for name in names}


@pytest.mark.parametrize("ascii_only", [True, False])
def test_plain_lines_are_split(ascii_only: bool) -> None:
    """In any order of keys, with escapes, and with one odd line among them."""
    seeded = random.Random(7)
    rows = [row_of(seeded, number) for number in range(500)]
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    lines[77] = '{"a": "odd"}'
    found = split_block(1000, "\n".join(lines).encode(), TYPES, ())
    assert found.batch is not None
    found.batch.validate(full=True)
    assert found.odd_lines == {77: b'{"a": "odd"}'}
    assert found.plain_indices.tolist() == [
        number for number in range(500) if number != 77
    ]
    wanted = []
    for row in rows[:77] + rows[78:]:
        inner = row.pop("o", {})
        flat = row | {"o/x": inner.get("x"), "o/p/y": inner.get("p", {}).get("y")}
        wanted.append({name: flat.get(name) for name, _ in TYPES})
    assert found.batch.to_pylist() == wanted
    raws = [found.positions.raw_row(number).decode() for number in range(500)]
    assert raws == lines


def objects(text: bytes, **changed: Any) -> tuple[int, int]:
    parts = {
        "text": text,
        "names": b"a",
        "ends": np.array([0, 1], np.int32),
        "paths": np.zeros(1, np.int32),
        "holds": b"i",
        "seen": np.zeros(1, np.int64),
        "spans": np.zeros(4, np.int32),
        "places": np.zeros(2, np.int64),
        "offsets": np.zeros(3, np.int32),
        "valid": np.zeros(1, np.uint8),
        "facts": np.zeros(2, np.int64),
        "target": bytearray(len(text) + 32),
    } | changed
    found: tuple[int, int] = _loops.split_objects(*parts.values())
    return found


@pytest.mark.parametrize(
    "changed",
    [
        {"text": b""},
        {"text": b'{"a": 1}'},
        {"text": b"{}\n{}\n{}\n"},
        {"ends": np.array([0, 2], np.int32)},
        {"paths": np.array([1], np.int32)},
        {"paths": np.array([-1], np.int32)},
        {"seen": np.zeros(0, np.int64)},
        {"spans": np.zeros(3, np.int32)},
        {"offsets": np.zeros(2, np.int32)},
        {"valid": np.zeros(0, np.uint8)},
        {"facts": np.zeros(4, np.int64)},
        {"target": bytearray(30)},
    ],
)
def test_places_that_do_not_fit_are_refused(changed: dict[str, Any]) -> None:
    assert objects(b'{"a": 1}\n{"b": 1}\n') == (1, 1)
    with pytest.raises(ValueError, match="no place for so many rows"):
        objects(**({"text": b'{"a": 1}\n'} | changed))
