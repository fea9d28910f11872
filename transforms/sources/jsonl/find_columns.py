"""Finds the columns of JSON Lines and their types, by the first rows of each file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.sources.jsonl.json_values import (
    ObservedColumn,
    is_text,
    parse_line,
)
from recordmill.transforms.sources.jsonl.read_lines import Line

SAMPLE_BYTES = 64 << 20  # of all files, whose rows tell columns and types
_LEAST_BYTES = 1 << 16  # of a file that is looked at


@dataclass(frozen=True, slots=True)
class FoundColumns:
    """The columns of an input.

    Attributes:
      types: their names and types.
      rows: how many rows told them.
      is_sampled: whether there are more.
    """

    types: tuple[tuple[str, pa.DataType], ...]
    rows: int
    is_sampled: bool


def find_columns(
    files: Sequence[InputFile],
    first_lines: Callable[[InputFile, int], Iterator[list[Line]]],
    wanted: Sequence[str] | None,
    *,
    is_packed: bool,
) -> FoundColumns:
    """Looks at the first rows of files.

    Args:
      files: none of them is empty.
      first_lines: yields the lines of that many bytes at the start of a file; all
        lines of a compressed one.
      wanted: the columns that a declared schema uses; None for all, without one.
      is_packed: whether the files are compressed.

    Raises:
      InputError: no line is an object, or a column can be no feature.
    """
    observed: dict[str, ObservedColumn] = {}
    share = max(_LEAST_BYTES, SAMPLE_BYTES // len(files))
    chosen = files[:: -(-len(files) * _LEAST_BYTES // SAMPLE_BYTES)]
    rows, problem, is_sampled = 0, "", len(chosen) < len(files)
    if not is_packed:
        is_sampled = is_sampled or max(file.size for file in files) > share
    for file in chosen:
        for lines in first_lines(file, share):
            parsed = [parse_line(line) for _, line in lines]
            found = [row for row in parsed if not isinstance(row, str)]
            wrong = [row for row in parsed if isinstance(row, str)]
            problem = problem or (f"{file.uri}: {wrong[0]}" if wrong else "")
            rows += len(found)
            for name in dict.fromkeys(chain.from_iterable(found)):
                column = observed.setdefault(name, ObservedColumn())
                column.add([row.get(name) for row in found])
            if is_packed and lines and lines[-1][0] >= share:
                is_sampled = True
                break
    if not rows:
        problem = problem or f"{files[0].uri}: only blank lines"
        raise InputError(
            f"no line of {count(len(files), 'input file')} is a JSON object: {problem}"
        )
    types = _types(observed, files[0].uri, wanted)
    return FoundColumns(tuple(types.items()), rows, is_sampled)


def _types(
    observed: Mapping[str, ObservedColumn], uri: str, wanted: Sequence[str] | None
) -> dict[str, pa.DataType]:
    types, problems = {}, []
    for name, column in observed.items():
        if wanted is not None and name not in wanted:
            continue
        found = column.arrow_type
        if found is None:
            problems.append(name)
        elif name and is_text(name):  # rows with any other are rejects
            types[name] = found
    if problems:
        raise InputError(
            f"{uri}: {', '.join(map(repr, problems))}: lists of objects, or of "
            "values of several types, can be no feature. Declare the other columns "
            "in a schema file (`schema`)"
        )
    if not types and wanted is None:
        raise InputError(f"{uri}: its objects have no keys")
    return types
