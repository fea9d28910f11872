"""Reads folders named `key=value` as columns; Spark, Hive and DuckDB write such folders.

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
# At most 7 digits, which float32 represents, and no trailing zero, which a number would
# lose: the version 1.10 is text.
_DECIMAL = re.compile(r"(?!(?:\D*\d){8})-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")
# Key folders at the end of the input root; as in Spark, they do not become columns.
_ABOVE = re.compile(r".*?/((?:[^/=]+=[^/]*/)*[^/=]+=[^/]*)/")
_SPLIT = "split"  # folders of this key define splits if names define splits


def values_in(path: str) -> dict[str, str | None]:
    """Returns the key -> value pairs in the folders of a path; None is a missing value.

    >>> values_in("a=1/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'a': '1', 'b': 'x/y', 'c': None}
    """
    parts = (folder.partition("=") for folder in path.split("/")[:-1])
    pairs = (
        (unquote(key), unquote(value)) for key, mark, value in parts if key and mark
    )
    return {key: None if value == MISSING else value for key, value in pairs}


def partition_keys(files: Iterable[InputFile]) -> list[str]:
    """Returns the distinct keys in the folders of files, in order of appearance."""
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in files)
    return list({key: None for folder in folders for key in values_in(f"{folder}/")})


@dataclass(frozen=True, slots=True)
class Partitions:
    """The columns that key folders define."""

    are_read: bool = False  # True if key folders become columns
    as_text: bool = False  # True if a declared schema converts the values
    # path -> values of columns from the metadata of the file's table, in case the file
    # lacks the columns
    constants: Mapping[str, Mapping[str, pa.Scalar]] = field(default_factory=dict)
    types: tuple[tuple[str, pa.DataType], ...] = ()  # of the columns, after `found_in`
    above: str = ""  # a note about key folders above the files

    def found_in(
        self,
        files: Sequence[InputFile],
        splits: FileSplits,
        kept: Sequence[InputFile] = (),
    ) -> Self:
        """Returns the columns that the folders of files define, with their types.

        Args:
          files: the files to convert.
          splits: the rule by which names define splits.
          existing_files: the files of the dataset to which `files` are appended.

        Raises:
          InputError: a file is not in a folder of each key, or new files would change
            the type of a column.
        """
        if not self.are_read:
            return self
        found = self._found([*kept, *files], splits)
        if kept:
            self._found(kept, splits)._require_kept(found, files)
        return found

    def _found(self, files: Sequence[InputFile], splits: FileSplits) -> Self:
        """Returns the columns of these files, without regard to other files."""
        files = [file for file in files if file.path not in self.constants]
        above = _ABOVE.fullmatch(input_root(files))
        told = (
            above
            and f"not {above[1]}, above the files: use its parent folder as the input"
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
        """Raises InputError if a new file would change the type of a column."""
        for (key, kind), (_, found) in zip(self.types, now.types, strict=True):
            for file in files if found != kind else ():
                value = values_in(file.path)[key]
                own = kind if value is None else _type_of({value})
                if _TYPES.index(own) > _TYPES.index(kind):
                    raise InputError(
                        f"{file.uri}: its folder {key}={value} is {own}, but in the "
                        f"dataset it is {kind}; expected such a value. Rename the "
                        "folder, leave it out with `exclude`, or convert all inputs "
                        "again without `append`"
                    )

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the names of the columns."""
        return tuple(key for key, _ in self.types)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Returns the lines about the columns for the input report."""
        told = "; ".join(filter(None, (", ".join(self.keys), self.above)))
        return (("columns by folder", told),) if told else ()

    def only(self, wanted: Iterable[str]) -> tuple[Self, set[str]]:
        """Returns the partitions with only `columns`, and the names that were removed."""
        known = {*wanted}
        types = tuple(each for each in self.types if each[0] in known)
        return replace(self, types=types), {*self.keys} - known

    def require_apart(self, uri: str, names: Iterable[str]) -> None:
        """Raises InputError if a file and one of its folders define the same column."""
        if both := [name for name in names if name in self.keys]:
            raise InputError(
                f"{uri}: has a column {both[0]!r}, and is in a folder {both[0]}=...; "
                "expected one of them. Use `partitions=none` to read the column of the "
                "file"
            )

    def merged(self, file: InputFile, columns: pa.Schema) -> pa.Schema:
        """Returns the columns of a file extended by the columns from its folders."""
        if file.path not in self.constants:
            self.require_apart(file.uri, columns.names)
        for key, value in self._values(file.path, columns).items():
            columns = columns.append(pa.field(key, value.type))
        return columns

    def added(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Returns the rows of a file with the values from its folders or its table."""
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
        """Returns the rows of files with the values from their folders as text.

        Args:
          batch: the rows.
          paths: the files.
          owners: the index of each row's file in `paths`; None if there is one file.
          decimal: the decimal separator of numbers in the text.
        """
        for key, kind in self.types:
            texts = pa.array([values_in(path)[key] for path in paths], pa.string())
            if decimal == "," and pa.types.is_floating(kind):
                texts = swap_points(texts)
            rows = np.zeros(batch.num_rows, np.int64) if owners is None else owners
            batch = batch.append_column(key, texts.take(pa.array(rows)))
        return batch

    def _values(self, path: str, columns: pa.Schema) -> dict[str, pa.Scalar]:
        """Returns the values that a file lacks, by column."""
        if (own := self.constants.get(path)) is not None:
            return {key: own[key] for key in own if key not in columns.names}
        texts = values_in(path) if self.types else {}
        return {
            key: pa.scalar(texts[key], pa.string()).cast(kind)
            for key, kind in self.types
        }


# From narrow to wide; the type of a column is the first one that fits all values.
_TYPES = pa.int64(), pa.float64(), pa.string()


def _type_of(values: set[str | None]) -> pa.DataType:
    """Returns the narrowest type for these values; None is a missing value."""
    texts = [value for value in values if value is not None]
    if texts and all(map(_WHOLE.fullmatch, texts)):
        return pa.int64()
    if texts and all(map(_DECIMAL.fullmatch, texts)):
        return pa.float64()
    return pa.string()


NO_PARTITIONS = Partitions()
