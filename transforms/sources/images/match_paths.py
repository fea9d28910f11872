"""Finds the pictures that the rows of a table or the lines of a list name.

A path may be relative to the folder of the table, to the input folder, to an input
folder below it or to the folder above it, or the name of the file if all differ; with its
ending or without. All rows of a table are read in one way: the one by which most of them
name a picture.

    table /data/train.csv, picture /data/train/1.jpg     "train/1.jpg", "train/1"
    input /data/train                                    "1.jpg", "1"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.input_files import InputFile
from recordmill.transforms.arrow import I64

_ENDING = r"\.[^./]+$"


@dataclass(frozen=True, slots=True)
class MatchedPaths:
    """Which pictures some paths name.

    Attributes:
      indices: of the picture of each path, or -1.
      way: how the paths are read, in words.
    """

    indices: I64
    way: str

    @property
    def num_found(self) -> int:
        return int(np.count_nonzero(self.indices >= 0))


def match_paths(
    named: pa.StringArray, pictures: Sequence[InputFile], root: str, table: str
) -> MatchedPaths:
    """Finds the picture of each path.

    Args:
      named: the paths; null for none.
      pictures: all there are.
      root: what every uri of them begins with, before the path.
      table: the uri of the file that names them.
    """
    paths = pa.array([file.path for file in pictures], pa.string())
    given = sorted({file.given for file in pictures})
    wanted = _tidy(named, root)
    best = MatchedPaths(np.full(len(named), -1, np.int64), "")
    total = len(named) - named.null_count
    for keys, way in _ways(paths, root, given, table):
        for ending in (False, True):
            if ending:
                keys = pc.replace_substring_regex(keys, _ENDING, "")
                way += ", without their endings"
            if ending or not way.startswith("relative"):
                if len(keys.unique()) < len(keys) - max(0, keys.null_count - 1):
                    continue  # two pictures would have one name
            found = pc.index_in(wanted, value_set=keys, skip_nulls=True)
            indices = pc.fill_null(found, -1).to_numpy(zero_copy_only=False)
            matched = MatchedPaths(indices.astype(np.int64), way)
            if matched.num_found > best.num_found:
                best = matched
            if best.num_found == total:
                return best
    return best


def _tidy(named: pa.StringArray, root: str) -> pa.StringArray:
    """Returns paths without blanks around them, "./" and the input folder in front."""
    trimmed = pc.utf8_trim_whitespace(named)
    if root.strip("/"):
        absolute = pc.starts_with(trimmed, root)
        below = pc.utf8_slice_codeunits(trimmed, len(root))
        trimmed = pc.if_else(pc.fill_null(absolute, False), below, trimmed)
    return pc.replace_substring_regex(trimmed, r"^(\./)+", "")


def _ways(
    paths: pa.StringArray, root: str, given: Sequence[str], table: str
) -> Iterator[tuple[pa.StringArray, str]]:
    """Yields what pictures are called in each way, and the way in words."""
    folder = table.rpartition("/")[0] + "/"
    bases = {folder: "relative to the folder of the table"}
    bases.setdefault(root, "relative to the input folder")
    if len(given) == 1:
        bases.setdefault(f"{root}{given[0]}/", "relative to the folder of the pictures")
    above = root.rstrip("/").rpartition("/")[0]
    bases.setdefault(f"{above}/", "relative to the folder above the input")
    for base, way in bases.items():
        if root.startswith(base):  # /data/ for pictures of /data/train/
            before = root.removeprefix(base)
            yield pc.binary_join_element_wise(before, paths, ""), way
        elif base.startswith(root):
            within = base.removeprefix(root)
            is_below = pc.starts_with(paths, within)
            below = pc.utf8_slice_codeunits(paths, len(within))
            yield pc.if_else(is_below, below, None), way
    yield pc.replace_substring_regex(paths, "^.*/", ""), "the names of the files"
