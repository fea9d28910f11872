"""Infers the types of columns of text, converts their cells, and counts odd cells."""

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
from recordmill.schemas.text import format_count
from recordmill.transforms import native
from recordmill.transforms.arrow import I64, value_offsets
from recordmill.transforms.cast.text_values import ARROW_TYPES as _ARROW_TYPES
from recordmill.transforms.cast.text_values import (
    long_text_mask,
    match_cells,
    match_values,
    read_column,
    shorten,
    swap_points,
    valid_mask,
    without_missing,
)
from recordmill.transforms.encode.row_errors import Mask


class TypeFlag(IntFlag):
    """A set of flags for the contents of a column's cells; NOTHING if all are empty.

    Checkpoints store the flags, so the meaning of a flag must never become narrower.
    """

    NOTHING = 0
    BOOLEAN = 1
    INTEGER = 2  # an integer in the range of int64: 7, 7.0
    DECIMAL = 4  # a decimal in the range of float32
    TEXT = 8
    MISSING = 16  # a word such as NA, or only blanks
    # Set for a column, not a cell: the type is decided, and other cells are rejected.
    DECIDED = 32


# dtype of a feature -> type as which its cells are read. Decimals remain float64 until
# they are encoded.
_READ_AS = {"bool": "bool", "int64": "int64", "float32": "float64", "string": "string"}
ARROW_TYPES = {dtype: _ARROW_TYPES[read_as] for dtype, read_as in _READ_AS.items()}

_DTYPE_OF: dict[int, str] = {
    TypeFlag.BOOLEAN: "bool",
    TypeFlag.INTEGER: "int64",
    TypeFlag.DECIMAL: "float32",
    TypeFlag.INTEGER | TypeFlag.DECIMAL: "float32",
}
_MISSING = int(
    TypeFlag.MISSING
)  # an int, because operations on flags take microseconds
_NO_TYPES = int(TypeFlag.MISSING | TypeFlag.DECIDED)
NUMBERS = int(TypeFlag.INTEGER | TypeFlag.DECIMAL)


def column_dtype(flags: int) -> str:
    """Returns the narrowest dtype that holds all cells with these flags.

    >>> column_dtype(TypeFlag.INTEGER | TypeFlag.DECIMAL)
    'float32'
    """
    return _DTYPE_OF.get(int(flags) & ~_NO_TYPES, "string")


def is_text(flags: int) -> bool:
    """Returns True if a column with these flags is text, whatever flags are added."""
    type_flags = int(flags) & ~_NO_TYPES
    return bool(type_flags) and column_dtype(type_flags) == "string"


def has_missing_words(flags: int) -> bool:
    """Returns True if a column with these flags has words for missing values."""
    return bool(int(flags) & _MISSING) and column_dtype(flags) != "string"


# Cached because it is called for each batch: creating the schema of 20,000 columns takes
# longer than reading a batch.
@lru_cache(maxsize=8)
def infer_schema(
    names: tuple[str, ...], observed: TypeFlags, nulls: tuple[int, ...]
) -> Schema:
    """Returns the features of columns whose types are inferred from their cells."""
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
# The type flags of a column are the flags of all its cells, merged by OR, so they do not
# depend on the order in which ranges are read: ["1", "2.0"] has INTEGER, ["2.5"] has
# DECIMAL, and both together have INTEGER | DECIMAL, which is float32. A whole number
# written as a decimal is an integer (2.0, as pandas writes integers with gaps). With an
# exponent (2e3) it is a decimal, because floats are written so. Cells that a number could
# not represent exactly are text: leading zeros, a leading plus, integers outside int64,
# decimals outside float32 (they would become infinity), booleans among numbers.
#
# If all other cells of a column are numbers or booleans, blanks around a cell are ignored
# and words such as NA and null are missing values. In a column of text, all cells are
# unchanged.


def _classify_present_cells(cells: pa.StringArray) -> I64:
    """Returns the flag of each cell; no cell may be null or have surrounding blanks."""
    cell_flags = np.full(len(cells), int(TypeFlag.TEXT), np.int64)
    untyped_rows = np.arange(len(cells))
    flags = (TypeFlag.INTEGER, TypeFlag.DECIMAL, TypeFlag.BOOLEAN)
    for flag, dtype in zip(flags, ("int64", "float64", "bool"), strict=True):
        if not len(untyped_rows):
            break
        untyped_cells = cells.take(pa.array(untyped_rows))
        valid = valid_mask(match_values(untyped_cells, dtype, strict=True)[0])
        cell_flags[untyped_rows[valid]] = int(flag)
        untyped_rows = untyped_rows[~valid]
    return cell_flags


def classify_cells(cells: pa.StringArray) -> I64:
    """Returns the flag of each cell; NOTHING for a missing cell."""
    is_long = long_text_mask(cells)
    if is_long.any():  # long texts are filtered out, so that they are not copied
        flags = np.full(len(cells), int(TypeFlag.TEXT), np.int64)
        flags[~is_long] = classify_cells(cells.filter(pa.array(~is_long)))
        return flags
    cells = without_missing(cells)
    cell_flags = np.zeros(len(cells), np.int64)
    cell_flags[valid_mask(cells)] = _classify_present_cells(cells.drop_null())
    return cell_flags


def find_invalid_cells(cells: pa.StringArray, dtype: str) -> Mask:
    """Returns a mask of cells that are invalid for a dtype; missing cells are valid."""
    is_long = long_text_mask(cells)
    if is_long.any():  # long texts are filtered out, so that they are not copied
        is_long[~is_long] = find_invalid_cells(cells.filter(pa.array(~is_long)), dtype)
        return is_long
    cells = without_missing(cells)
    numbers, _ = match_values(cells, _READ_AS[dtype], strict=True)
    invalid: Mask = valid_mask(cells) & ~valid_mask(numbers)
    return invalid


def read_as_dtype(cells: pa.StringArray, dtype: str) -> pa.Array | None:
    """Returns the cells as an array of a dtype, or None if a cell is invalid for it."""
    if dtype == "string":
        return cells
    return read_column(cells, _READ_AS[dtype], strict=True)


# A call of Arrow takes some microseconds even for few cells, and each column needs dozens
# of calls. In a table of 20,000 columns and 60 rows, these calls would take almost all of
# the time. Short columns of one type are therefore concatenated and processed as one
# column. The result for each column is the same.

# maximum number of cells of a column that is joined with others
_MAX_JOINED_CELLS = 1024
_GROUP_BYTES = 8 << 20  # maximum size of columns that are joined


def classify_columns(columns: Sequence[pa.StringArray]) -> list[TypeFlag]:
    """Returns the type flags of each column of text."""
    flags = [TypeFlag.NOTHING] * len(columns)
    filled = [
        column_index
        for column_index, cells in enumerate(columns)
        if cells.null_count < len(cells)
    ]
    for group in _groups(columns, filled):
        cells = _join_columns(
            [columns[column_index] for column_index in group]
        ).drop_null()
        counts = [
            len(columns[column_index]) - columns[column_index].null_count
            for column_index in group
        ]
        starts = [0, *accumulate(counts[:-1])]
        cell_flags = classify_cells(cells)
        # No cell is null, so cells without a flag are words for missing values.
        cell_flags[cell_flags == TypeFlag.NOTHING] = _MISSING
        sums = np.bitwise_or.reduceat(cell_flags, starts)
        for column_index, total in zip(group, sums.tolist(), strict=True):
            flags[column_index] = TypeFlag(total)
    return flags


def convert_columns(
    columns: Sequence[pa.StringArray], expected: Sequence[int]
) -> tuple[list[pa.Array], list[int]]:
    """Converts columns of text to the expected types, or to wider types if necessary.

    Args:
      columns: the cells as text.
      expected: the type flags to assume for each column.

    Returns:
      The converted columns, and the observed type flags of each. If these require
        another type, the column has the type for the expected and observed flags.
    """
    arrays: list[pa.Array] = [None] * len(columns)
    observed = [int(TypeFlag.NOTHING)] * len(columns)
    members: dict[str, list[int]] = {}  # expected dtype -> indices of columns
    unknown_columns = []
    for column_index, (cells, flags) in enumerate(zip(columns, expected, strict=True)):
        dtype = column_dtype(flags)
        if cells.null_count == len(cells):
            arrays[column_index] = cells.cast(ARROW_TYPES[dtype])
        elif is_text(flags):  # the cells cannot change the type
            arrays[column_index], observed[column_index] = cells, int(flags) & ~_MISSING
        elif dtype == "string":
            unknown_columns.append(column_index)
        else:
            members.setdefault(dtype, []).append(column_index)
            observed[column_index] = int(flags) & ~_MISSING

    def read(group: list[int], dtype: str) -> bool:
        """Converts columns as one; returns False if a cell is invalid for the dtype."""
        cells = [columns[column_index] for column_index in group]
        joined_column = read_as_dtype(_join_columns(cells), dtype)
        if joined_column is None:
            return False
        has_missing = joined_column.null_count > sum(
            column.null_count for column in cells
        )
        start = 0
        for column_index, column in zip(group, cells, strict=True):
            converted = arrays[column_index] = joined_column.slice(start, len(column))
            start += len(converted)
            if has_missing and converted.null_count > column.null_count:
                observed[column_index] |= _MISSING
                if converted.null_count == len(converted):
                    observed[column_index] = _MISSING
        return True

    for dtype, column_indices in members.items():
        for group in _groups(columns, column_indices):
            if not read(group, dtype):  # some column needs a wider type
                one_by_one = len(group) > 1
                unknown_columns += [
                    column_index
                    for column_index in group
                    if not (one_by_one and read([column_index], dtype))
                ]
    members.clear()
    column_flags = classify_columns(
        [columns[column_index] for column_index in unknown_columns]
    )
    for column_index, flags in zip(unknown_columns, column_flags, strict=True):
        observed[column_index] = int(expected[column_index]) | int(flags)
        members.setdefault(column_dtype(observed[column_index]), []).append(
            column_index
        )
    for column_index in members.pop("string", ()):
        arrays[column_index] = columns[column_index]
    for dtype, column_indices in members.items():
        for group in _groups(columns, column_indices):
            read(group, dtype)
    return arrays, observed


def _groups(
    columns: Sequence[pa.StringArray], members: Sequence[int]
) -> list[list[int]]:
    """Groups columns to be joined; a column of many cells or bytes is a group alone."""
    groups: list[list[int]] = []
    free_bytes = 0  # bytes that fit into the last group of short columns
    for column_index in members:
        size = columns[column_index].nbytes
        is_short = (
            len(columns[column_index]) <= _MAX_JOINED_CELLS and size <= _GROUP_BYTES
        )
        if is_short and size <= free_bytes:
            groups[-1].append(column_index)
            free_bytes -= size
        elif is_short:
            groups.append([column_index])
            free_bytes = _GROUP_BYTES - size
        else:
            groups.insert(0, [column_index])
    return groups


def _join_columns(columns: Sequence[pa.StringArray]) -> pa.StringArray:
    """Joins columns into one."""
    return columns[0] if len(columns) == 1 else pa.concat_arrays(columns)


def with_decimal_points(
    columns: list[pa.StringArray], decimal: str
) -> list[pa.StringArray]:
    """Returns columns of text in which numbers have a decimal point."""
    if decimal == ",":
        return [swap_points(column) for column in columns]
    return columns


# Odd cells are the few cells of a column that prevent a narrower type.
#
# With one odd cell `12.5o`, a column of 2,000 prices would be text. A range with such a
# cell is read again with a wider type. The cells of the column are then counted by class,
# as issues with examples of the first odd cells. After all ranges are read, columns with
# few odd cells are found:
#
#     class       numbers 1,999      text 1, "t.csv line 17: '12.5o'"     of 2,000 cells
#
# Odd cells are few if they are at most 1 % of the cells of the column and at most 1,000.
#
# This module also counts cells that are read as missing, cells with more digits than
# float32 can represent, and cells with a decimal comma or thousands separators.

ODD_CELLS = "odd cells"  # issue code: the cells of one class in a column
MAX_ODD_CELLS = 1_000  # maximum number of cells that are few
_FEW_SHARE = 100  # at most one in this many cells is few
_WARNED_SHARE = 10  # at most one in this many cells causes a warning
_MAX_EXAMPLES = 3  # odd cells of a range that are examples
_COUNTED_BYTES = 64 << 20  # maximum offset of a row whose line number is counted
_WARNED_COLUMNS = 5
_MARKED_SHARE = 0.9  # minimum share of cells that are numbers, with or without marks
_SURE_SAMPLE = 20  # minimum number of cells; in a smaller sample, chance may decide
_CLASSES = {"number": NUMBERS, "boolean": int(TypeFlag.BOOLEAN)}


class OddColumn(NamedTuple):
    """A column with odd cells."""

    name: str
    cell_class: str  # the class of all other cells: "number" or "boolean"
    num_odd: int  # number of odd cells
    num_cells: int  # number of cells of the column, without missing cells
    examples: str  # the first odd cells with their locations

    @property
    def is_few(self) -> bool:
        """Returns True if the odd cells are too few to make the column text."""
        return self.num_odd <= min(MAX_ODD_CELLS, self.num_cells // _FEW_SHARE)

    def flags_without_odd_cells(self, flags: int) -> int:
        """Returns the type flags of the column after its odd cells are rejected."""
        return flags & _CLASSES[self.cell_class] | int(TypeFlag.DECIDED)

    @property
    def description(self) -> str:
        """Returns a description of the column with its odd cells and examples."""
        return (
            f"column {self.name!r}: {format_count(self.num_odd, 'cell')} of {self.num_cells:,} "
            f"{'is' if self.num_odd == 1 else 'are'} not a {self.cell_class}, unlike all others: "
            f"{'first ' * (self.num_odd > 1)}{self.examples.partition(' ')[2]}"
        )


def format_row_location(path: str, offset: int, line: Callable[[], int] | None) -> str:
    """Returns the location of a row for messages.

    This is the path and the line, or the byte offset if lines cannot be counted.
    """
    if line is None or offset > _COUNTED_BYTES:
        return f"{path} byte {offset:,}"
    return f"{path} line {line():,}"


def columns_with_examples(issues: Iterable[RowIssue]) -> set[str]:
    """Returns the columns for which the issues have an example of an odd cell."""
    return {
        issue.column for issue in issues if issue.code == ODD_CELLS and issue.example
    }


def format_sortable_example(position: int, text: str) -> str:
    """Returns the text of an example, prefixed so that examples sort by position."""
    return f"{position:020d} {text}"


def is_mixed(flags: int) -> bool:
    """Returns True if a column is text although some cells are numbers or booleans."""
    return column_dtype(flags) == "string" and bool(
        flags & (NUMBERS | TypeFlag.BOOLEAN)
    )


def flags_without_odd_cells(flags: int, cells: pa.StringArray) -> int:
    """Returns the flags of a sample without its odd cells; TEXT if these are many."""
    if not is_mixed(flags):
        return flags
    cell_flags = classify_cells(cells)
    for family in _CLASSES.values():
        family_flags = cell_flags & family
        num_members, num_cells = (
            np.count_nonzero(family_flags),
            np.count_nonzero(cell_flags),
        )
        if num_members * 5 >= num_cells * 4 or (
            num_cells < _SURE_SAMPLE and num_members * 2 >= num_cells
        ):
            return int(np.bitwise_or.reduce(family_flags)) | (
                flags & int(TypeFlag.MISSING)
            )
    return int(TypeFlag.TEXT)


def count_classes(
    name: str, cells: pa.StringArray, describe_cells: Callable[[Sequence[int]], str]
) -> tuple[list[RowIssue], int, bool]:
    """Counts the cells of each class in a batch of a mixed column.

    Args:
      name: the column.
      cells: its cells.
      describe_cells: returns a description of the cells in the given rows.

    Returns:
      The issues, the type flags of all cells, and True if the column has too many cells
        of text for them to be odd cells.
    """
    cell_flags = classify_cells(cells)
    masks: dict[str, Mask] = {
        kind: (cell_flags & family) != 0 for kind, family in _CLASSES.items()
    }
    masks["text"] = (cell_flags != 0) & ~np.logical_or.reduce([*masks.values()])
    main_class = max(_CLASSES, key=lambda kind: np.count_nonzero(masks[kind]))
    issues = []
    for kind, mask in masks.items():
        if len(rows := np.flatnonzero(mask)):
            example = (
                ""
                if kind == main_class
                else describe_cells(rows[:_MAX_EXAMPLES].tolist())
            )
            issues.append(RowIssue(ODD_CELLS, name, len(rows), example, (kind,)))
    num_odd, num_cells = np.count_nonzero(masks["text"]), np.count_nonzero(cell_flags)
    is_text = bool(num_odd > MAX_ODD_CELLS and num_odd * _WARNED_SHARE > num_cells)
    return issues, int(np.bitwise_or.reduce(cell_flags, initial=0)), is_text


def odd_columns(
    issues: Iterable[RowIssue], cells: Mapping[str, int]
) -> list[OddColumn]:
    """Returns the columns with odd cells.

    Args:
      issues: the issues of all ranges.
      cells: the number of cells of each column, without missing cells.
    """
    classes: dict[str, dict[str, RowIssue]] = {}
    for class_issue in issues:
        if class_issue.code == ODD_CELLS:
            classes.setdefault(class_issue.column, {})[class_issue.changes[0]] = (
                class_issue
            )
    columns = []
    for name, issue_by_kind in classes.items():
        kinds = [kind for kind in _CLASSES if kind in issue_by_kind]
        kind = max(
            kinds, key=lambda class_kind: issue_by_kind[class_kind].count, default=""
        )
        odd_issues = [
            issue for issue_kind, issue in issue_by_kind.items() if issue_kind != kind
        ]
        num_odd = sum(issue.count for issue in odd_issues)
        if kind and num_odd:
            examples = min(
                filter(None, (issue.example for issue in odd_issues)), default=""
            )
            columns.append(OddColumn(name, kind, num_odd, cells.get(name, 0), examples))
    return columns


def odd_problem(columns: Sequence[OddColumn]) -> str:
    """Returns the error message for columns with few odd cells; "" if there are none."""
    few = [column.description for column in columns if column.is_few]
    if not few:
        return ""
    return (
        f"odd cells in {format_count(len(few), 'column')}:{_column_lines(few)}\n"
        "Correct them, or use one of these: `odd_cells=reject` rejects their rows "
        "(allow them with `max_rejects`), `odd_cells=widen` makes the column text"
    )


def _column_lines(columns: Sequence[str]) -> str:
    """Returns a line for each of the first columns, and one line for the remaining."""
    lines = [f"\n  {column}" for column in columns[:_WARNED_COLUMNS]]
    if num_more := len(columns) - len(lines):
        lines.append(f"\n  and {format_count(num_more, 'more column')}")
    return "".join(lines)


def odd_warnings(columns: Sequence[OddColumn]) -> list[InputWarning]:
    """Returns a warning for each column that is text because of at most 10 % of cells."""
    return [
        InputWarning(
            "odd-cells",
            f"{column.description}. So the column is text; if they are mistakes, correct "
            "them, or name those that mean a missing value with `null_values`",
        )
        for column in columns
        if not column.is_few and column.num_odd * _WARNED_SHARE <= column.num_cells
    ][:_WARNED_COLUMNS]


def report_odd_cells(columns: Sequence[OddColumn]) -> tuple[tuple[str, str], ...]:
    """Returns a line for the input report about columns with few odd cells, or ()."""
    few = [column.description for column in columns if column.is_few]
    return (("odd cells", "; ".join(few[:_WARNED_COLUMNS])),) if few else ()


_READ_AS_MISSING, _MANY_DIGITS = "missing", "digits"  # issue codes
MARKED_NUMBERS = "marks"  # issue code
_COUNTED_COLUMNS = 100  # first columns of a table that are counted separately
_SHOWN_COLUMNS = 10
_FLOAT32_DIGITS = 7
_LONG_NUMBER = r"[1-9](?:[.,]?[0-9]){6,}[.,]?[1-9]"
_MAX_SHOWN_CHARACTERS = 40  # characters of a cell


def count_issues(
    text_batch: pa.RecordBatch,
    batch: pa.RecordBatch,
    observed: Sequence[int] = (),
    marked: Sequence[RowIssue] = (),
    decimal: str = ".",
) -> tuple[RowIssue, ...]:
    """Counts cells read as missing, cells with many digits, and numbers with marks.

    Args:
      text_batch: the cells as text.
      batch: the same cells, converted.
      observed: the type flags of each column; () if types are not inferred.
      marked: the issues of columns whose first rows were numbers with marks.
      decimal: the decimal separator.
    """
    issues: list[RowIssue] = []
    for index, field in enumerate(batch.schema):
        name = field.name if index < _COUNTED_COLUMNS else ""
        flags = observed[index] if observed else 0
        if flags & TypeFlag.MISSING and not is_text(flags):
            cells, converted_cells = text_batch.column(index), batch.column(index)
            if pa.types.is_string(converted_cells.type):
                # The final type is not yet known.
                converted_cells = without_missing(cells)
            issues += _count_mask(
                _READ_AS_MISSING,
                name,
                cells,
                valid_mask(cells) & ~valid_mask(converted_cells),
            )
        if pa.types.is_float64(field.type):
            cells = text_batch.column(index)
            for issue in _count_mask(
                _MANY_DIGITS, name, cells, _find_long_numbers(cells)
            ):
                issues.append(
                    replace(
                        issue, example=issue.example.strip()[:_MAX_SHOWN_CHARACTERS]
                    )
                )
    for issue in marked:
        cells = text_batch.column(issue.column)
        issues += _count_mask(
            MARKED_NUMBERS, issue.column, cells, _find_marked_cells(cells, decimal)
        )
    return RowIssue.merge_issues([tuple(issues)])


def _count_mask(
    code: str, name: str, cells: pa.StringArray, mask: Mask
) -> tuple[RowIssue, ...]:
    """Returns an issue with the number of cells in a mask and the first, or ()."""
    rows = np.flatnonzero(mask)
    if not len(rows):
        return ()
    return (RowIssue(code, name, len(rows), cells[int(rows[0])].as_py()),)


def report_missing_cells(
    issues: Sequence[RowIssue], schema: Schema
) -> tuple[tuple[str, str], ...]:
    """Returns a line for the input report about cells read as missing, or ()."""
    # Columns whose final type is text have unchanged cells.
    text_columns = {
        feature.name for feature in schema.features if feature.dtype == "string"
    }
    descriptions = [
        f"{format_count(issue.count, 'cell')} like {shorten(issue.example)} in "
        + (f"column {issue.column}" if issue.column else "other columns")
        for issue in issues
        if issue.code == _READ_AS_MISSING and issue.column not in text_columns
    ]
    if len(descriptions) > _SHOWN_COLUMNS:
        descriptions[_SHOWN_COLUMNS:] = [
            f"{len(descriptions) - _SHOWN_COLUMNS:,} more columns"
        ]
    return (("taken as missing", "; ".join(descriptions)),) if descriptions else ()


def _find_long_numbers(cells: pa.StringArray) -> Mask:
    """Returns a mask of numbers with more than 7 digits, not counting outer zeros."""
    long: Mask = np.empty(len(cells), np.bool_)
    data = cells.buffers()[2] or b""
    if not native.loops.mark_long_numbers(value_offsets(cells), data, long):
        return match_cells(cells, _LONG_NUMBER)
    return long & valid_mask(cells) if cells.null_count else long


def long_warnings(
    issues: Sequence[RowIssue], names: Sequence[str]
) -> list[InputWarning]:
    """Returns a warning for each of the first columns, and one for the remaining ones."""
    descriptions = _long_columns(issues, names)
    warnings = [
        f"{description}: float32 may lose some of them. To keep them, declare the column "
        "{dtype: float64, stored: tensor} or string in a schema file (`schema`)"
        for description in descriptions[:_WARNED_COLUMNS]
    ]
    if num_more := len(descriptions) - len(warnings):
        warnings.append(
            f"{format_count(num_more, 'more column')} of float32 with numbers of more than "
            f"{_FLOAT32_DIGITS} digits"
        )
    return [InputWarning("long-numbers", warning) for warning in warnings]


def exact_problem(issues: Sequence[RowIssue], names: Sequence[str]) -> str:
    """Returns the error message for `exact` if float32 loses digits; otherwise ""."""
    descriptions = _long_columns(issues, names)
    if not descriptions:
        return ""
    return (
        f"float32 would lose digits of {format_count(len(descriptions), 'column')}, and `exact` allows "
        f"none:{_column_lines(descriptions)}\nDeclare these columns {{dtype: float64, stored: tensor}} or "
        "string in a schema file (`schema`), or leave out `exact`"
    )


def _long_columns(issues: Sequence[RowIssue], names: Sequence[str]) -> list[str]:
    """Returns a description of each column with long numbers."""
    issue_by_column = {
        issue.column: issue for issue in issues if issue.code == _MANY_DIGITS
    }
    return [
        (f"column {name!r}: " if name else "other columns: ")
        + f"{format_count(issue_by_column[name].count, 'value')} with more than {_FLOAT32_DIGITS} digits, "
        f"such as {issue_by_column[name].example}"
        for name in (*names[:_COUNTED_COLUMNS], "")
        if name in issue_by_column
    ]


_PLAIN_NUMBER = r"^[ \t]*[+-]?[0-9]*[{}]?[0-9]+[ \t]*$"  # with its decimal mark
_MARKED_NUMBER = (
    r"^[ \t]*[+-]?(?:[0-9]*,[0-9]+|[0-9]{1,3}(?:[.,' ][0-9]{3})+(?:[.,][0-9]+)?)[ \t]*$"
)


def marked_numbers(
    name: str, cells: pa.StringArray, decimal: str
) -> tuple[RowIssue, ...]:
    """Returns the issue of the numbers with marks, if nearly all cells are numbers."""
    cells = without_missing(cells)
    marked = _find_marked_cells(cells, decimal)
    is_number = (marked | match_cells(cells, _PLAIN_NUMBER.format(decimal)))[
        valid_mask(cells)
    ]
    if np.count_nonzero(is_number) < _MARKED_SHARE * len(is_number):
        return ()
    return _count_mask(MARKED_NUMBERS, name, cells, marked)


def _find_marked_cells(cells: pa.StringArray, decimal: str) -> Mask:
    """Returns a mask of cells with a decimal comma or thousands separators (1,234)."""
    return match_cells(cells, _MARKED_NUMBER) & ~match_cells(
        cells, _PLAIN_NUMBER.format(decimal)
    )


def marked_warnings(issues: Sequence[RowIssue], decimal: str) -> list[InputWarning]:
    """Returns a warning for each column with issues of numbers with marks."""
    mark_names, remedy = "thousands separators", "To store numbers, write them without"
    if decimal == ".":
        mark_names = f"a decimal comma or {mark_names}"
        remedy = f"If it is a decimal comma, use `decimal=comma`; {remedy.lower()}"
    return [
        InputWarning(
            "number-marks",
            f"column {issue.column} is text, but looks like numbers with {mark_names}: cells "
            f"like {shorten(issue.example)}. {remedy}",
        )
        for issue in issues
        if issue.code == MARKED_NUMBERS
    ]
