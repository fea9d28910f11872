"""Infers the types of columns of text, converts their cells, and counts the odd ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntFlag
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import FeatureSpec, Schema, usual_kind
from recordmill.schemas.input_summary import InputWarning
from recordmill.schemas.ranges import RowIssue, TypeFlags
from recordmill.schemas.text import count
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, value_offsets
from recordmill.transforms.cast.text_values import ARROW_TYPES as _ARROW_TYPES
from recordmill.transforms.cast.text_values import (
    are_long_texts,
    matches,
    present,
    read_column,
    read_each,
    shown,
    swap_points,
    without_missing,
)
from recordmill.transforms.encode.row_errors import Mask


class TypeFlag(IntFlag):
    """What the cells of a column were observed to hold; NOTHING if all were empty.

    Checkpoints keep them, so none ever gets another meaning that is narrower.
    """

    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2  # whole and within int64: 7, 7.0
    DECIMAL = 4  # within float32
    TEXT = 8
    MISSING = 16  # words like NA, and nothing but blanks
    # Not of cells: the type is decided, and cells that do not fit it are rejected.
    DECIDED = 32


# How the cells are read, by the feature's dtype. Decimals stay float64 until they are
# encoded.
_READ_AS = {"bool": "bool", "int64": "int64", "float32": "float64", "string": "string"}
ARROW_TYPES = {dtype: _ARROW_TYPES[read_as] for dtype, read_as in _READ_AS.items()}

_DTYPE_OF: dict[int, str] = {
    TypeFlag.BOOLEAN: "bool",
    TypeFlag.INTEGER: "int64",
    TypeFlag.DECIMAL: "float32",
    TypeFlag.INTEGER | TypeFlag.DECIMAL: "float32",
}
_MISSING = int(TypeFlag.MISSING)  # as a number: flags take some microseconds
_NO_TYPES = int(TypeFlag.MISSING | TypeFlag.DECIDED)
NUMBERS = int(TypeFlag.INTEGER | TypeFlag.DECIMAL)


def column_dtype(flags: int) -> str:
    """Returns the narrowest dtype that holds all cells with these flags.

    >>> column_dtype(TypeFlag.INTEGER | TypeFlag.DECIMAL)
    'float32'
    """
    return _DTYPE_OF.get(int(flags) & ~_NO_TYPES, "string")


def is_text(flags: int) -> bool:
    """Tells whether a column is text, whatever its other cells hold."""
    known = int(flags) & ~_NO_TYPES
    return bool(known) and column_dtype(known) == "string"


def has_missing_words(flags: int) -> bool:
    """Tells whether cells of a column with these flags stand for missing values."""
    return bool(int(flags) & _MISSING) and column_dtype(flags) != "string"


# Asked for each batch: a schema of 20,000 columns takes longer than a batch of them.
@lru_cache(maxsize=8)
def infer_schema(
    names: tuple[str, ...], observed: TypeFlags, nulls: tuple[int, ...]
) -> Schema:
    """Returns the features of columns whose types follow from their cells."""
    features = []
    for name, flags, missing in zip(names, observed, nulls, strict=True):
        dtype = column_dtype(flags)
        optional = missing > 0 or has_missing_words(flags)
        features.append(
            FeatureSpec(name, usual_kind(dtype), dtype=dtype, optional=optional)
        )
    return Schema(tuple(features))


#     integer, boolean -> int64_list    decimal -> float_list    the rest -> bytes_list
#
# The type flags of a column are those of all its cells, merged by OR, so the order in
# which ranges are read cannot matter: ["1", "2.0"] has INTEGER, ["2.5"] has DECIMAL, both
# together have INTEGER | DECIMAL, which is float32. A whole number is an integer also
# where it is written as a decimal (2.0, as pandas writes integers with gaps), but not with
# an exponent (2e3), which is how floats are written. What would lose something stays text:
# leading zeros, a leading plus, integers beyond int64, decimals beyond float32 (they would
# become infinity), booleans among numbers.
#
# Blanks around a value, and words that stand for a missing one (NA, null), count for
# nothing where all other cells are numbers or booleans; in a column of text all cells stay
# as they are.


def _flags_of(cells: pa.StringArray) -> I64:
    """Returns the flag of each cell; none is null or has blanks around it."""
    found = np.full(len(cells), int(TypeFlag.TEXT), np.int64)
    rest = np.arange(len(cells))
    flags = (TypeFlag.INTEGER, TypeFlag.DECIMAL, TypeFlag.BOOLEAN)
    for flag, dtype in zip(flags, ("int64", "float64", "bool"), strict=True):
        if not len(rest):
            break
        own = cells.take(pa.array(rest))
        valid = present(read_each(own, dtype, strict=True)[0])
        found[rest[valid]] = int(flag)
        rest = rest[~valid]
    return found


def flags_of_each(cells: pa.StringArray) -> I64:
    """Returns the flag of each cell; NOTHING where it is missing."""
    is_long = are_long_texts(cells)
    if is_long.any():  # not copied
        flags = np.full(len(cells), int(TypeFlag.TEXT), np.int64)
        flags[~is_long] = flags_of_each(cells.filter(pa.array(~is_long)))
        return flags
    cells = without_missing(cells)
    found = np.zeros(len(cells), np.int64)
    found[present(cells)] = _flags_of(cells.drop_null())
    return found


def are_invalid(cells: pa.StringArray, dtype: str) -> Mask:
    """Returns which cells are not valid for a dtype; missing ones are."""
    is_long = are_long_texts(cells)
    if is_long.any():  # not copied
        is_long[~is_long] = are_invalid(cells.filter(pa.array(~is_long)), dtype)
        return is_long
    cells = without_missing(cells)
    values, _ = read_each(cells, _READ_AS[dtype], strict=True)
    invalid: Mask = present(cells) & ~present(values)
    return invalid


def read_as(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns the cells as a dtype, or None if some cell is not valid for it."""
    if dtype == "string":
        return cells
    return read_column(cells, _READ_AS[dtype], strict=True)


# A call of Arrow costs some microseconds however few cells it gets, and a column takes
# dozens of calls: in a table of 20,000 columns and 60 rows they would be nearly all of the
# time. So where columns are short, those of one type are put end to end, and taken for
# one column. What comes out for each is the same.

_SHORT = 1024  # cells of a column that is put together with others
_GROUP_BYTES = 8 << 20  # of columns that are put together


def classify_columns(columns: Sequence[pa.StringArray]) -> list[TypeFlag]:
    """Returns the type flags of each column of text."""
    flags = [TypeFlag.NOTHING] * len(columns)
    filled = [at for at, cells in enumerate(columns) if cells.null_count < len(cells)]
    for group in _groups(columns, filled):
        cells = _joined([columns[at] for at in group]).drop_null()
        counts = [len(columns[at]) - columns[at].null_count for at in group]
        starts = [0, *accumulate(counts[:-1])]
        found = flags_of_each(cells)
        found[found == TypeFlag.NOTHING] = _MISSING  # words: no cell is empty
        sums = np.bitwise_or.reduceat(found, starts)
        for at, total in zip(group, sums.tolist(), strict=True):
            flags[at] = TypeFlag(total)
    return flags


def convert_columns(
    columns: Sequence[pa.StringArray], expected: Sequence[int]
) -> tuple[list[pa.Array], list[int]]:
    """Converts columns of text to the types that are expected, if they fit.

    Returns the columns, and the type flags that were seen in each; where these ask for
    another type than the one expected, the cells have the type that holds both.
    """
    arrays: list[pa.Array] = [None] * len(columns)
    observed = [int(TypeFlag.NOTHING)] * len(columns)
    members: dict[str, list[int]] = {}  # by the dtype that is expected
    unknown = []
    for at, (cells, flags) in enumerate(zip(columns, expected, strict=True)):
        dtype = column_dtype(flags)
        if cells.null_count == len(cells):
            arrays[at] = cells.cast(ARROW_TYPES[dtype])
        elif is_text(flags):  # whatever the cells hold
            arrays[at], observed[at] = cells, int(flags) & ~_MISSING
        elif dtype == "string":
            unknown.append(at)
        else:
            members.setdefault(dtype, []).append(at)
            observed[at] = int(flags) & ~_MISSING

    def read(group: list[int], dtype: str) -> bool:
        """Converts columns together; returns False if a cell of theirs is not valid."""
        cells = [columns[at] for at in group]
        joined = read_as(_joined(cells), dtype)
        if joined is None:
            return False
        found = joined.null_count > sum(column.null_count for column in cells)
        start = 0
        for at, column in zip(group, cells, strict=True):
            done = arrays[at] = joined.slice(start, len(column))
            start += len(done)
            if found and done.null_count > column.null_count:
                observed[at] |= _MISSING
                if done.null_count == len(done):
                    observed[at] = _MISSING
        return True

    for dtype, own in members.items():
        for group in _groups(columns, own):
            if not read(group, dtype):  # some column needs a wider type
                one_by_one = len(group) > 1
                unknown += [
                    at for at in group if not (one_by_one and read([at], dtype))
                ]
    members.clear()
    seen = classify_columns([columns[at] for at in unknown])
    for at, flags in zip(unknown, seen, strict=True):
        observed[at] = int(expected[at]) | int(flags)
        members.setdefault(column_dtype(observed[at]), []).append(at)
    for at in members.pop("string", ()):
        arrays[at] = columns[at]
    for dtype, own in members.items():
        for group in _groups(columns, own):
            read(group, dtype)
    return arrays, observed


def _groups(
    columns: Sequence[pa.StringArray], members: Sequence[int]
) -> list[list[int]]:
    """Groups columns to be joined; one of many cells or many bytes is alone."""
    groups: list[list[int]] = []
    room = 0  # bytes that the last group of short columns can take
    for at in members:
        size = columns[at].nbytes
        is_short = len(columns[at]) <= _SHORT and size <= _GROUP_BYTES
        if is_short and size <= room:
            groups[-1].append(at)
            room -= size
        elif is_short:
            groups.append([at])
            room = _GROUP_BYTES - size
        else:
            groups.insert(0, [at])
    return groups


def _joined(columns: Sequence[pa.StringArray]) -> pa.StringArray:
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def with_points(columns: list[pa.StringArray], decimal: str) -> list[pa.StringArray]:
    """Returns columns of text with a point in numbers."""
    if decimal == ",":
        return [swap_points(column) for column in columns]
    return columns


# Odd cells are the few of a column that keep it from being of a narrower type.
#
# A column of 2,000 prices and one `12.5o` would be text. A range that meets such a cell is
# read once more with a wider type; then the cells of the column are counted by their class,
# as issues with the first odd ones. At the end, columns with few of them are found:
#
#     class       numbers 1,999      text 1, "t.csv line 17: '12.5o'"     of 2,000 cells
#
# A column of 100 cells or more has few if they are 1 % at most, and 1,000 at most.
#
# Counted are also cells that were taken for missing, have more digits than float32, or look
# like numbers with a decimal comma or marks of thousands.

ODD = "odd cells"  # code of the issues: a column's cells of one class
MAX_ODD = 1_000  # cells of a column that are few
_SHARE = 100  # one in so many is few
_WARNED_SHARE = 10  # one in so many is warned of
_NAMED = 3  # cells of a range that are named
_COUNTED_BYTES = 64 << 20  # of a file, whose lines are counted to name one
_WARNED_COLUMNS = 5
_MARKED_SHARE = 0.9  # of the cells of a column, that are numbers with marks or without
_SURE_SAMPLE = 20  # cells; fewer may be odd by chance
_CLASSES = {"number": NUMBERS, "boolean": int(TypeFlag.BOOLEAN)}


class OddColumn(NamedTuple):
    """A column with odd cells."""

    name: str
    kind: str  # what all others are: "number" or "boolean"
    odd: int  # how many
    cells: int  # of the column, but for missing ones
    examples: str  # the first ones

    @property
    def is_few(self) -> bool:
        """Tells whether they are so few that the column is not text because of them."""
        return self.odd <= min(MAX_ODD, self.cells // _SHARE)

    def types_of_others(self, flags: int) -> int:
        """Returns the type flags of the column with its odd cells rejected."""
        return flags & _CLASSES[self.kind] | int(TypeFlag.DECIDED)

    @property
    def described(self) -> str:
        """Returns the column, its odd cells and where the first are."""
        return (
            f"column {self.name!r}: {count(self.odd, 'cell')} of {self.cells:,} "
            f"{'is' if self.odd == 1 else 'are'} not a {self.kind}, as all others are: "
            f"{'first ' * (self.odd > 1)}{self.examples.partition(' ')[2]}"
        )


def place_of(path: str, offset: int, line: Callable[[], int] | None) -> str:
    """Returns where a row is, for people: the line, if it can be counted."""
    if line is None or offset > _COUNTED_BYTES:
        return f"{path} byte {offset:,}"
    return f"{path} line {line():,}"


def columns_with_examples(issues: Iterable[RowIssue]) -> set[str]:
    """Returns the columns whose first odd cells are in the issues."""
    return {issue.column for issue in issues if issue.code == ODD and issue.example}


def first_example(position: int, text: str) -> str:
    """Returns an example that comes first, of several, if its position does."""
    return f"{position:020d} {text}"


def is_mixed(flags: int) -> bool:
    """Tells whether a column is text although some of its cells are of a narrower type."""
    return column_dtype(flags) == "string" and bool(
        flags & (NUMBERS | TypeFlag.BOOLEAN)
    )


def without_odd(flags: int, cells: pa.StringArray) -> int:
    """Returns the flags of a sample's cells without odd ones; TEXT if there are many."""
    if not is_mixed(flags):
        return flags
    found = flags_of_each(cells)
    for family in _CLASSES.values():
        own = found & family
        share, total = np.count_nonzero(own), np.count_nonzero(found)
        if share * 5 >= total * 4 or (total < _SURE_SAMPLE and share * 2 >= total):
            return int(np.bitwise_or.reduce(own)) | (flags & int(TypeFlag.MISSING))
    return int(TypeFlag.TEXT)


def count_classes(
    name: str, cells: pa.StringArray, named: Callable[[Sequence[int]], str]
) -> tuple[list[RowIssue], int, bool]:
    """Counts the cells of each class in a batch of a mixed column.

    `named` describes cells by their rows. Returns the issues, the type flags of all cells,
    and whether it is clear that those of no class are many.
    """
    found = flags_of_each(cells)
    masks: dict[str, Mask] = {
        kind: (found & family) != 0 for kind, family in _CLASSES.items()
    }
    masks["text"] = (found != 0) & ~np.logical_or.reduce([*masks.values()])
    most = max(_CLASSES, key=lambda kind: np.count_nonzero(masks[kind]))
    issues = []
    for kind, mask in masks.items():
        if len(rows := np.flatnonzero(mask)):
            example = "" if kind == most else named(rows[:_NAMED].tolist())
            issues.append(RowIssue(ODD, name, len(rows), example, (kind,)))
    odd, total = np.count_nonzero(masks["text"]), np.count_nonzero(found)
    is_text = bool(odd > MAX_ODD and odd * _WARNED_SHARE > total)
    return issues, int(np.bitwise_or.reduce(found, initial=0)), is_text


def odd_columns(
    issues: Iterable[RowIssue], cells: Mapping[str, int]
) -> list[OddColumn]:
    """Returns the columns with odd cells, by the issues of all ranges.

    `cells` are those of each column that are not missing.
    """
    classes: dict[str, dict[str, RowIssue]] = {}
    for each in issues:
        if each.code == ODD:
            classes.setdefault(each.column, {})[each.changes[0]] = each
    found = []
    for name, own in classes.items():
        kinds = [kind for kind in _CLASSES if kind in own]
        kind = max(kinds, key=lambda each: own[each].count, default="")
        others = [issue for each, issue in own.items() if each != kind]
        odd = sum(issue.count for issue in others)
        if kind and odd:
            examples = min(filter(None, (each.example for each in others)), default="")
            found.append(OddColumn(name, kind, odd, cells.get(name, 0), examples))
    return found


def odd_problem(found: Sequence[OddColumn]) -> str:
    """Returns why a run is refused that would make text of columns with few odd cells."""
    few = [column.described for column in found if column.is_few]
    if not few:
        return ""
    return (
        f"odd cells in {count(len(few), 'column')}:{_lines(few)}\nCorrect them, or say what "
        "to do with them: `odd_cells=reject` rejects their rows (allow them with "
        "`max_rejects`), `odd_cells=widen` makes the column text"
    )


def _lines(columns: Sequence[str]) -> str:
    """Returns a line for each of the first columns, and one for all others."""
    lines = [f"\n  {each}" for each in columns[:_WARNED_COLUMNS]]
    if more := len(columns) - len(lines):
        lines.append(f"\n  and {count(more, 'more column')}")
    return "".join(lines)


def odd_warnings(found: Sequence[OddColumn]) -> list[InputWarning]:
    """Returns a warning for each column that is text because of one cell in ten or less."""
    return [
        InputWarning(
            "odd-cells",
            f"{column.described}. So the column is text; if they are mistakes, correct "
            "them, or name those that mean a missing value with `null_values`",
        )
        for column in found
        if not column.is_few and column.odd * _WARNED_SHARE <= column.cells
    ][:_WARNED_COLUMNS]


def odd_fact(found: Sequence[OddColumn]) -> tuple[tuple[str, str], ...]:
    """Returns a fact on the few odd cells of columns that were made text of, or none."""
    few = [column.described for column in found if column.is_few]
    return (("odd cells", "; ".join(few[:_WARNED_COLUMNS])),) if few else ()


_TAKEN, _LONG = "missing", "digits"  # codes of issues
MARKED = "marks"
_COUNTED_COLUMNS = 100  # of which each is told by itself; the first ones of a table
_SHOWN_COLUMNS = 10
_FLOAT32_DIGITS = 7
_LONG_NUMBER = r"[1-9](?:[.,]?[0-9]){6,}[.,]?[1-9]"
_SHOWN = 40  # characters of a cell


def count_issues(
    text: pa.RecordBatch,
    batch: pa.RecordBatch,
    observed: Sequence[int] = (),
    marked: Sequence[RowIssue] = (),
    decimal: str = ".",
) -> tuple[RowIssue, ...]:
    """Counts what is odd about cells: words for missing, many digits, other marks.

    The batch has the same cells, converted; of inferred types, flags were observed.
    Columns that are marked looked like numbers with marks in the first rows.
    """
    found: list[RowIssue] = []
    for index, field in enumerate(batch.schema):
        name = field.name if index < _COUNTED_COLUMNS else ""
        flags = observed[index] if observed else 0
        if flags & TypeFlag.MISSING and not is_text(flags):
            cells, kept = text.column(index), batch.column(index)
            if pa.types.is_string(kept.type):  # whether it is text is not yet known
                kept = without_missing(cells)
            found += _counted(_TAKEN, name, cells, present(cells) & ~present(kept))
        if pa.types.is_float64(field.type):
            cells = text.column(index)
            for each in _counted(_LONG, name, cells, _is_long(cells)):
                found.append(replace(each, example=each.example.strip()[:_SHOWN]))
    for each in marked:
        cells = text.column(each.column)
        found += _counted(MARKED, each.column, cells, _are_marked(cells, decimal))
    return RowIssue.merged([tuple(found)])


def _counted(
    code: str, name: str, cells: pa.StringArray, found: Mask
) -> tuple[RowIssue, ...]:
    """Returns how many cells of a column were found, with the first; or nothing."""
    rows = np.flatnonzero(found)
    if not len(rows):
        return ()
    return (RowIssue(code, name, len(rows), cells[int(rows[0])].as_py()),)


def missing_fact(
    issues: Sequence[RowIssue], schema: Schema
) -> tuple[tuple[str, str], ...]:
    """Returns a fact about the cells of all rows that were taken for missing, or none."""
    # Columns that came out as text have kept their cells.
    text = {feature.name for feature in schema.features if feature.dtype == "string"}
    found = [
        f"{count(each.count, 'cell')} like {shown(each.example)} in "
        + (f"column {each.column}" if each.column else "other columns")
        for each in issues
        if each.code == _TAKEN and each.column not in text
    ]
    if len(found) > _SHOWN_COLUMNS:
        found[_SHOWN_COLUMNS:] = [f"{len(found) - _SHOWN_COLUMNS:,} more columns"]
    return (("taken as missing", "; ".join(found)),) if found else ()


def _is_long(cells: pa.StringArray) -> Mask:
    """Returns which numbers have more than seven digits, but for zeros at either end."""
    long: Mask = np.empty(len(cells), np.bool_)
    data = cells.buffers()[2] or b""
    if not native.loops.long_numbers(value_offsets(cells), data, long):
        return matches(cells, _LONG_NUMBER)
    return long & present(cells) if cells.null_count else long


def long_warnings(
    issues: Sequence[RowIssue], names: Sequence[str]
) -> list[InputWarning]:
    """Returns a warning for each of the first columns, and one for all others."""
    found = _long_columns(issues, names)
    warnings = [
        f"{each}: float32 may lose some of them. To keep them, declare the column "
        "{dtype: float64, stored: tensor} or string in a schema file (`schema`)"
        for each in found[:_WARNED_COLUMNS]
    ]
    if more := len(found) - len(warnings):
        warnings.append(
            f"{count(more, 'more column')} of float32 with numbers of more than "
            f"{_FLOAT32_DIGITS} digits"
        )
    return [InputWarning("long-numbers", each) for each in warnings]


def exact_problem(issues: Sequence[RowIssue], names: Sequence[str]) -> str:
    """Returns the message of a run that may lose no digit, but could; or ""."""
    found = _long_columns(issues, names)
    if not found:
        return ""
    return (
        f"float32 would lose digits of {count(len(found), 'column')}, and `exact` allows "
        f"none:{_lines(found)}\nDeclare these columns {{dtype: float64, stored: tensor}} or "
        "string in a schema file (`schema`), or leave out `exact`"
    )


def _long_columns(issues: Sequence[RowIssue], names: Sequence[str]) -> list[str]:
    found = {each.column: each for each in issues if each.code == _LONG}
    return [
        (f"column {name!r}: " if name else "other columns: ")
        + f"{count(found[name].count, 'value')} with more than {_FLOAT32_DIGITS} digits, "
        f"such as {found[name].example}"
        for name in (*names[:_COUNTED_COLUMNS], "")
        if name in found
    ]


_PLAIN_NUMBER = r"^[ \t]*[+-]?[0-9]*[{}]?[0-9]+[ \t]*$"  # with its decimal mark
_MARKED_NUMBER = (
    r"^[ \t]*[+-]?(?:[0-9]*,[0-9]+|[0-9]{1,3}(?:[.,' ][0-9]{3})+(?:[.,][0-9]+)?)[ \t]*$"
)


def marked_numbers(
    name: str, cells: pa.StringArray, decimal: str
) -> tuple[RowIssue, ...]:
    """Returns how many cells are numbers with marks, if nearly all are some number."""
    cells = without_missing(cells)
    marked = _are_marked(cells, decimal)
    alike = (marked | matches(cells, _PLAIN_NUMBER.format(decimal)))[present(cells)]
    if np.count_nonzero(alike) < _MARKED_SHARE * len(alike):
        return ()
    return _counted(MARKED, name, cells, marked)


def _are_marked(cells: pa.StringArray, decimal: str) -> Mask:
    """Returns which cells have a decimal comma or marks of thousands, such as 1,234."""
    return matches(cells, _MARKED_NUMBER) & ~matches(
        cells, _PLAIN_NUMBER.format(decimal)
    )


def marked_warnings(issues: Sequence[RowIssue], decimal: str) -> list[InputWarning]:
    """Returns a warning for each such column, by the first rows or by all of them."""
    what, way = "thousands separators", "To store numbers, write them without"
    if decimal == ".":
        what = f"a decimal comma or {what}"
        way = f"If it is a decimal comma, use `decimal=comma`; {way.lower()}"
    return [
        InputWarning(
            "number-marks",
            f"column {each.column} is text, but looks like numbers with {what}: cells "
            f"like {shown(each.example)}. {way}",
        )
        for each in issues
        if each.code == MARKED
    ]
