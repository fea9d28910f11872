"""Reads folders named `key=value` as columns, as Spark, Hive and DuckDB write them.

sales/year=2026/shop=a%20b/0.parquet    year 2026 (int64), shop "a b" (text)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.text_values import swap_points
from recordmill.transforms.sources.file_splits import MISSING, FileSplits
from recordmill.transforms.sources.listing import input_root

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")  # 007 is text
# With at most 7 digits, which float32 keeps, and none behind them that a number loses: a
# version 1.10 is text.
_DECIMAL = re.compile(r"(?!(?:\D*\d){8})-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")
# Such folders that end the name of the input itself are no columns, as in Spark.
_ABOVE = re.compile(r".*?/((?:[^/=]+=[^/]*/)*[^/=]+=[^/]*)/")
_SPLIT = "split"  # a folder of this key is a split, where names tell them


def values_in(path: str) -> dict[str, str | None]:
    """Returns the values that the folders of a path name; None is a missing one.

    >>> values_in("a=1/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'a': '1', 'b': 'x/y', 'c': None}
    """
    parts = (folder.partition("=") for folder in path.split("/")[:-1])
    pairs = (
        (unquote(key), unquote(value)) for key, mark, value in parts if key and mark
    )
    return {key: None if value == MISSING else value for key, value in pairs}


def partition_keys(files: Iterable[InputFile]) -> list[str]:
    """Returns the keys of the folders of files, in order."""
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in files)
    return list({key: None for folder in folders for key in values_in(f"{folder}/")})


@dataclass(frozen=True, slots=True)
class Partitions:
    """The columns that folders make."""

    are_read: bool = False
    as_text: bool = False  # whether a declared schema says what becomes of them
    # by path, of files of a table whose metadata tell them: what the file may lack
    constants: Mapping[str, Mapping[str, pa.Scalar]] = field(default_factory=dict)
    types: tuple[tuple[str, pa.DataType], ...] = ()  # of the columns, once found
    above: str = ""  # what is told of such folders above the files

    def found_in(
        self,
        files: Sequence[InputFile],
        splits: FileSplits,
        kept: Sequence[InputFile] = (),
    ) -> Self:
        """Returns the columns of files; a column has one type in all of them.

        `kept` are those of the dataset that files are appended to.

        Raises:
          InputError: a file is not in a folder of each key, or new files would give a
            column another type.
        """
        if not self.are_read:
            return self
        found = self._found([*kept, *files], splits)
        if kept:
            self._found(kept, splits)._require_kept(found, files)
        return found

    def _found(self, files: Sequence[InputFile], splits: FileSplits) -> Self:
        files = [file for file in files if file.path not in self.constants]
        above = _ABOVE.fullmatch(input_root(files))
        told = (
            above and f"not {above[1]}, above the files: give the folder that holds it"
        )
        keys = partition_keys(files)
        keys = [key for key in keys if key != _SPLIT or not splits.by_key]
        seen: dict[str, set[str | None]] = {key: set() for key in keys}
        for file in files if keys else ():
            values = values_in(file.path)
            for key in keys:
                if key not in values:
                    raise InputError(
                        f"{file.uri}: is in no folder {key}=..., but others are; expected "
                        "the same keys for all files. Leave such files out with "
                        "`exclude`, or use `partitions=none`"
                    )
                seen[key].add(values[key])
        types = [
            (key, pa.string() if self.as_text else _type_of(values - {None}))
            for key, values in seen.items()
        ]
        return replace(self, types=tuple(types), above=told or "")

    def _require_kept(self, now: Self, files: Iterable[InputFile]) -> None:
        """Refuses new files for which these columns would get another type."""
        for (key, kind), (_, found) in zip(self.types, now.types, strict=True):
            for file in files if found != kind else ():
                value = values_in(file.path)[key]
                own = kind if value is None else _type_of({value})
                if _TYPES.index(own) > _TYPES.index(kind):
                    raise InputError(
                        f"{file.uri}: its folder {key}={value} is {own}, "
                        f"those of the dataset are {kind}; expected such a value. Rename "
                        f"the folder, leave it out with `exclude`, or convert everything "
                        "again without appending"
                    )

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the names of the columns."""
        return tuple(key for key, _ in self.types)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Returns what is told of the columns before and after a run."""
        told = "; ".join(filter(None, (", ".join(self.keys), self.above)))
        return (("columns by folder", told),) if told else ()

    def only(self, wanted: Iterable[str]) -> tuple[Self, set[str]]:
        """Returns the columns that are wanted, and the names of the others."""
        known = {*wanted}
        types = tuple(each for each in self.types if each[0] in known)
        return replace(self, types=types), {*self.keys} - known

    def require_apart(self, uri: str, names: Iterable[str]) -> None:
        """Refuses a file with a column that one of its folders is, too."""
        if both := [name for name in names if name in self.keys]:
            raise InputError(
                f"{uri}: has a column {both[0]!r}, and lies in a folder {both[0]}=..., "
                "too; expected one of them. Use `partitions=none` to read that of the "
                "file"
            )

    def merged(self, file: InputFile, columns: pa.Schema) -> pa.Schema:
        """Returns the columns of a file with those that it lacks."""
        if file.path not in self.constants:
            self.require_apart(file.uri, columns.names)
        for key, value in self._values(file.path, columns).items():
            columns = columns.append(pa.field(key, value.type))
        return columns

    def added(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Returns rows of a file with the values of its folders, or of its table."""
        for key, value in self._values(path, batch.schema).items():
            batch = batch.append_column(key, pa.repeat(value, batch.num_rows))
        return batch

    def added_as_text(
        self,
        batch: pa.RecordBatch,
        paths: Sequence[str],
        owners: I64 | None = None,
        decimal: str = ".",
    ) -> pa.RecordBatch:
        """Returns rows of files with the values of their folders as text.

        `owners` are the index of each row's file, of several.
        """
        for key, kind in self.types:
            texts = pa.array([values_in(path)[key] for path in paths], pa.string())
            if decimal == "," and pa.types.is_floating(kind):
                texts = swap_points(texts)
            rows = np.zeros(batch.num_rows, np.int64) if owners is None else owners
            batch = batch.append_column(key, texts.take(pa.array(rows)))
        return batch

    def _values(self, path: str, columns: pa.Schema) -> dict[str, pa.Scalar]:
        if (own := self.constants.get(path)) is not None:
            return {key: own[key] for key in own if key not in columns.names}
        texts = values_in(path) if self.types else {}
        return {
            key: pa.scalar(texts[key], pa.string()).cast(kind)
            for key, kind in self.types
        }


# The first that has all values is the type of a column.
_TYPES = pa.int64(), pa.float64(), pa.string()


def _type_of(values: set[str | None]) -> pa.DataType:
    texts = [value for value in values if value is not None]
    if texts and all(map(_WHOLE.fullmatch, texts)):
        return pa.int64()
    if texts and all(map(_DECIMAL.fullmatch, texts)):
        return pa.float64()
    return pa.string()


NO_PARTITIONS = Partitions()
