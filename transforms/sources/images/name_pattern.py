"""Reads labels, splits and features from the names of pictures by a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile


def read_names(
    pattern: str, pictures: Sequence[InputFile]
) -> tuple[dict[str, pa.StringArray], pa.BooleanArray]:
    """Returns the text of each named group, and which pictures match.

    Args:
      pattern: with a "/" in it for paths below the input folder, else for names.
      pictures: all of them.

    Raises:
      InputError: none matches.
    """
    expression = re.compile(pattern)
    by_path = "/" in pattern
    # A loop, as Python's expressions are what people write and test; 1 us each.
    found = [
        expression.fullmatch(file.path if by_path else file.path.rpartition("/")[2])
        for file in pictures
    ]
    if pictures and not any(found):
        first = pictures[0].path
        what = repr(first if by_path else first.rpartition("/")[2])
        raise InputError(
            f"{pictures[0].uri}: does not match `label_pattern` {pattern!r}, and no other "
            f"picture does; expected an expression for all of {what}, such as "
            r"(?P<label>[^_]+)_.*\.jpg (with / in it, for the path below the input folder)"
        )
    groups = {
        name: pa.array(
            [match[name] if match is not None else None for match in found], pa.string()
        )
        for name in expression.groupindex
    }
    return groups, pa.array([match is not None for match in found], pa.bool_())
