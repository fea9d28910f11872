"""Makes tables of text whose columns, types and oddities are known.

A number is a case: the same number is the same table. What is odd about a table is
drawn independently, so that oddities meet.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass, field

WORDS = [
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jasper",
    "knoll",
    "ledge",
    "mesa",
    "north",
    "oasis",
    "prairie",
    "quarry",
    "ridge",
    "slope",
    "tundra",
    "upland",
    "valley",
    "willow",
    "yonder",
    "zephyr",
]
NAMES = [
    "id",
    "name",
    "price",
    "amount",
    "city",
    "date",
    "time",
    "qty",
    "rate",
    "score",
    "label",
    "weight",
    "height",
    "country",
    "status",
    "code",
    "comment",
    "value",
    "total",
    "year",
    "month",
    "first_name",
    "lat",
    "lon",
    "email",
    "species",
]
DELIMITERS = (*(16 * ","), *(10 * ";"), *(6 * "\t"), *(5 * "|"), ":", "\x01", " ", "^")
MISSING = ("NA", "null", "N/A")  # words that mean a missing number
ODD_CELLS = ("12.5o", "n.a.", "unknown", "1.2.3", "-", "O5", "see below", "12 kg")


@dataclass
class Column:
    """One column: its name, its cells, and what all but its odd cells are."""

    name: str
    kind: str
    dtype: str
    cells: list[str]
    odd: list[int] = field(default_factory=list)  # rows


@dataclass
class Table:
    """A table with what is true of it."""

    number: int
    text: bytes
    columns: list[Column]
    delimiter: str
    has_header: bool
    oddities: set[str]  # what a person would have to be asked about
    defects: set[str]  # what no reader could pass over: rows that are none

    @property
    def num_rows(self) -> int:
        return len(self.columns[0].cells)

    @property
    def is_plain(self) -> bool:
        """Whether it should be read without a question."""
        return self.has_header and not self.oddities and not self.defects

    @property
    def is_undecidable(self) -> bool:
        """Whether nothing in it says if the first row is a header."""
        if self.has_header:
            return False
        return all(
            column.kind in _TEXTS or 0 in column.odd or not column.cells[0]
            for column in self.columns
        )


def _digits(rng: random.Random, places: int) -> str:
    return "".join(rng.choices(string.digits, k=places))


def _makers(rng: random.Random) -> dict[str, Callable[[int], str]]:
    """Returns what makes the cell of a row, for each kind of column."""
    start, prefix = rng.randint(0, 5000), rng.choice("ABX")
    low = rng.choice((0, 10, 1000))
    return {
        "serial": lambda row: str(start + row),
        "integer": lambda _: str(rng.randint(-low, 10 * low + 9)),
        "decimal": lambda _: f"{rng.uniform(-low, low + 1):.{rng.randint(1, 3)}f}",
        "boolean": lambda _: rng.choice(("true", "false")),
        "date": lambda _: (
            f"20{rng.randint(10, 29)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}"
        ),
        "clock": lambda _: f"{rng.randint(10, 23)}:{rng.randint(10, 59)}",
        "code": lambda _: f"{prefix}-{_digits(rng, 4)}",
        "zip": lambda _: f"0{_digits(rng, 4)}",
        "money": lambda _: f"${rng.uniform(1, 99):.2f}",
        "percent": lambda _: f"{rng.randint(0, 99)}%",
        "word": lambda _: rng.choice(WORDS),
        "person": lambda _: f"{rng.choice(WORDS)} {rng.choice(WORDS)}".title(),
        "class": lambda _: rng.choice(WORDS[:3]),
        "sentence": lambda _: " ".join(rng.choices(WORDS, k=rng.randint(1, 6))),
        "blank": lambda _: "",
    }


_DTYPES = {
    "serial": "int64", "integer": "int64", "decimal": "float32", "boolean": "bool",
}  # fmt: skip
_TEXTS = frozenset(("word", "person", "class", "sentence", "blank"))
_WEIGHTS = {
    "serial": 4, "integer": 5, "decimal": 6, "boolean": 1, "date": 2, "clock": 1,
    "code": 1, "zip": 1, "money": 1, "percent": 1, "word": 4, "person": 3, "class": 3,
    "sentence": 2, "blank": 1,
}  # fmt: skip


def _columns(rng: random.Random, num_rows: int) -> list[Column]:
    kinds = rng.choices(
        [*_WEIGHTS], weights=[*_WEIGHTS.values()], k=rng.choice((1, *range(2, 9)))
    )
    if set(kinds) == {"blank"}:
        kinds[0] = "integer"
    names = rng.sample(NAMES, len(kinds))
    columns = []
    for name, kind in zip(names, kinds, strict=True):
        make = _makers(rng)[kind]
        cells = [make(row) for row in range(num_rows)]
        column = Column(name, kind, _DTYPES.get(kind, "string"), cells)
        if kind == "decimal" and all(float(cell).is_integer() for cell in cells):
            column.dtype = "int64"
        columns.append(column)
    return columns


def _spoil(rng: random.Random, columns: list[Column]) -> bool:
    """Puts missing values into some columns; and odd cells into one, of a true type."""
    num_rows = len(columns[0].cells)
    for column in columns[1:]:  # a row without any cell would be a blank line
        if column.kind != "serial" and num_rows > 8 and rng.random() < 0.2:
            word = rng.choice(("", "", *MISSING)) if column.kind in _DTYPES else ""
            for row in rng.sample(range(1, num_rows), num_rows // rng.randint(4, 9)):
                column.cells[row] = word
    typed = [column for column in columns if column.kind in _DTYPES]
    if num_rows < 14 or not typed or rng.random() > 0.15:
        return False
    column = rng.choice(typed)
    # One among ten or more (in fewer nobody can tell), or at most one in a hundred.
    most = max(1, num_rows // 100)
    column.odd = rng.sample(range(num_rows), rng.randint(1, most))
    for row in column.odd:
        column.cells[row] = rng.choice(ODD_CELLS)
    return True


def _quoted(cell: str, delimiter: str, *, always: bool) -> str:
    needs = any(mark in cell for mark in (delimiter, '"', "\n"))
    return '"' + cell.replace('"', '""') + '"' if needs or always else cell


def make_table(number: int) -> Table:
    """Makes the table of a number."""
    rng = random.Random(number)
    num_rows = rng.choice(
        (rng.randint(2, 12), rng.randint(12, 99), rng.randint(100, 300))
    )
    columns = _columns(rng, num_rows)
    oddities: set[str] = set()
    defects: set[str] = set()
    has_header = rng.random() < 0.75
    if not has_header:
        oddities.add("no header")
    if _spoil(rng, columns):
        oddities.add("odd cell")
    delimiter = rng.choice(DELIMITERS) if len(columns) > 1 else ","
    if delimiter not in ",;\t|":
        oddities.add("delimiter")
    if delimiter == ";" and rng.random() < 0.3:
        for column in columns:
            if column.kind == "decimal":
                column.cells = [cell.replace(".", ",") for cell in column.cells]
                oddities.add("decimal comma")
    always = rng.random() < 0.06
    rows = [[column.cells[row] for column in columns] for row in range(num_rows)]
    if has_header:
        rows.insert(0, [column.name for column in columns])
    joint = delimiter
    if delimiter == " " and rng.random() < 0.5:
        joint = "  "
        oddities.add("runs of spaces")
    quote = rng.random() < 0.5 or always
    lines = [
        joint.join(
            _quoted(cell, delimiter, always=always and quote)
            or ('""' if delimiter == " " else "")
            for cell in row
        )
        for row in rows
    ]
    if len(columns) > 1 and rng.random() < 0.06:
        lines = [line + delimiter for line in lines]
        columns.append(Column("", "blank", "string", [""] * num_rows))
    if len(columns) > 1 and rng.random() < 0.06:
        footer = rng.choice(("total", "15 rows", "-- end --", "(c) willow"))
        lines += [footer]
        defects.add("footer")
    if rng.random() < 0.04 and len(columns) > 1:
        before = rng.choice(
            (["report of june"], ["quarterly values", "by willow"], ["# made by hand"])
        )
        lines = before + lines
        defects.add("lines before")
    elif delimiter in ",;\t|" and rng.random() < 0.04:
        lines.insert(0, f"sep={delimiter}")
        oddities.discard("delimiter")
    end = rng.choice(("\n", "\n", "\r\n"))
    text = end.join(lines) + end * (rng.random() < 0.8)
    data = (b"\xef\xbb\xbf" * (rng.random() < 0.05)) + text.encode()
    return Table(number, data, columns, delimiter, has_header, oddities, defects)
