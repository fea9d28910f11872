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
from recordmill.transforms.sources.file_splits import MISSING_PARTITION, FileSplits
from recordmill.transforms.sources.listing import input_root

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})")  # 007 is text
# At most 7 digits, which float32 represents, and no trailing zero, which a number would
# lose: the version 1.10 is text.
_DECIMAL = re.compile(r"(?!(?:\D*\d){8})-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")
# Key folders at the end of the input root; as in Spark, they do not become columns.
_KEY_FOLDERS_ABOVE = re.compile(r".*?/((?:[^/=]+=[^/]*/)*[^/=]+=[^/]*)/")
_SPLIT_KEY = "split"  # folders of this key define splits if names define splits


def parse_key_folders(path: str) -> dict[str, str | None]:
    """Returns the key -> value pairs in the folders of a path; None is a missing value.

    >>> parse_key_folders("a=1/b=x%2Fy/c=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'a': '1', 'b': 'x/y', 'c': None}
    """
    parts = (folder.partition("=") for folder in path.split("/")[:-1])
    pairs = ((unquote(key), unquote(text)) for key, mark, text in parts if key and mark)
    return {key: None if text == MISSING_PARTITION else text for key, text in pairs}


def partition_keys(files: Iterable[InputFile]) -> list[str]:
    """Returns the distinct keys in the folders of files, in order of appearance."""
    folders = dict.fromkeys(file.path.rpartition("/")[0] for file in files)
    return list(
        {key: None for folder in folders for key in parse_key_folders(f"{folder}/")}
    )


@dataclass(frozen=True, slots=True)
class Partitions:
    """The columns that key folders define."""

    are_read: bool = False  # True if key folders become columns
    as_text: bool = False  # True if a declared schema converts the values
    # path -> values of columns from the metadata of the file's table, in case the file
    # lacks the columns
    constants: Mapping[str, Mapping[str, pa.Scalar]] = field(default_factory=dict)
    types: tuple[tuple[str, pa.DataType], ...] = ()  # of the columns, after `found_in`
    above_note: str = ""  # a note about key folders above the files

    def find_columns(
        self,
        files: Sequence[InputFile],
        splits: FileSplits,
        existing_files: Sequence[InputFile] = (),
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
        partitions = self._find_columns([*existing_files, *files], splits)
        if existing_files:
            self._find_columns(existing_files, splits)._require_same_types(
                partitions, files
            )
        return partitions

    def _find_columns(self, files: Sequence[InputFile], splits: FileSplits) -> Self:
        """Returns the columns of these files, without regard to other files."""
        files = [file for file in files if file.path not in self.constants]
        above_match = _KEY_FOLDERS_ABOVE.fullmatch(input_root(files))
        above_note = (
            above_match
            and f"not {above_match[1]}, above the files: use its parent folder as the input"
        )
        keys = partition_keys(files)
        keys = [key for key in keys if key != _SPLIT_KEY or not splits.uses_key_folders]
        values_by_key: dict[str, set[str | None]] = {key: set() for key in keys}
        for file in files if keys else ():
            path_values = parse_key_folders(file.path)
            for key in keys:
                if key not in path_values:
                    raise InputError(
                        f"{file.uri}: is in no folder {key}=..., but others are; expected "
                        "the same keys for all files. Leave such files out with "
                        "`exclude`, or use `partitions=none`"
                    )
                values_by_key[key].add(path_values[key])
        types = [
            (key, pa.string() if self.as_text else _type_of(values - {None}))
            for key, values in values_by_key.items()
        ]
        return replace(self, types=tuple(types), above_note=above_note or "")

    def _require_same_types(
        self, new_partitions: Self, files: Iterable[InputFile]
    ) -> None:
        """Raises InputError if a new file would change the type of a column."""
        for (key, existing_type), (_, new_type) in zip(
            self.types, new_partitions.types, strict=True
        ):
            for file in files if new_type != existing_type else ():
                text = parse_key_folders(file.path)[key]
                folder_type = existing_type if text is None else _type_of({text})
                if _TYPES.index(folder_type) > _TYPES.index(existing_type):
                    raise InputError(
                        f"{file.uri}: its folder {key}={text} is {folder_type}, but in the "
                        f"dataset it is {existing_type}; expected such a value. Rename the "
                        "folder, leave it out with `exclude`, or convert all inputs "
                        "again without `append`"
                    )

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the names of the columns."""
        return tuple(key for key, _ in self.types)

    @property
    def report_lines(self) -> tuple[tuple[str, str], ...]:
        """Returns the lines about the columns for the input report."""
        description = "; ".join(filter(None, (", ".join(self.keys), self.above_note)))
        return (("columns by folder", description),) if description else ()

    def select(self, columns: Iterable[str]) -> tuple[Self, set[str]]:
        """Returns the partitions with only `columns`, and the names that were removed."""
        requested_names = {*columns}
        types = tuple(column for column in self.types if column[0] in requested_names)
        return replace(self, types=types), {*self.keys} - requested_names

    def require_apart(self, uri: str, names: Iterable[str]) -> None:
        """Raises InputError if a file and one of its folders define the same column."""
        if shared_names := [name for name in names if name in self.keys]:
            raise InputError(
                f"{uri}: has a column {shared_names[0]!r}, and is in a folder {shared_names[0]}=...; "
                "expected one of them. Use `partitions=none` to read the column of the "
                "file"
            )

    def extend_columns(self, file: InputFile, columns: pa.Schema) -> pa.Schema:
        """Returns the columns of a file extended by the columns from its folders."""
        if file.path not in self.constants:
            self.require_apart(file.uri, columns.names)
        for key, scalar in self._values(file.path, columns).items():
            columns = columns.append(pa.field(key, scalar.type))
        return columns

    def add_columns(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        """Returns the rows of a file with the values from its folders or its table."""
        for key, scalar in self._values(path, batch.schema).items():
            batch = batch.append_column(key, pa.repeat(scalar, batch.num_rows))
        return batch

    def add_text_columns(
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
        for key, arrow_type in self.types:
            texts = pa.array(
                [parse_key_folders(path)[key] for path in paths], pa.string()
            )
            if decimal == "," and pa.types.is_floating(arrow_type):
                texts = swap_points(texts)
            rows = np.zeros(batch.num_rows, np.int64) if owners is None else owners
            batch = batch.append_column(key, texts.take(pa.array(rows)))
        return batch

    def _values(self, path: str, columns: pa.Schema) -> dict[str, pa.Scalar]:
        """Returns the values that a file lacks, by column."""
        if (constants := self.constants.get(path)) is not None:
            return {
                key: constants[key] for key in constants if key not in columns.names
            }
        texts = parse_key_folders(path) if self.types else {}
        return {
            key: pa.scalar(texts[key], pa.string()).cast(arrow_type)
            for key, arrow_type in self.types
        }


# From narrow to wide; the type of a column is the first one that fits all values.
_TYPES = pa.int64(), pa.float64(), pa.string()


def _type_of(values: set[str | None]) -> pa.DataType:
    """Returns the narrowest type for these values; None is a missing value."""
    texts = [text for text in values if text is not None]
    if texts and all(map(_INTEGER.fullmatch, texts)):
        return pa.int64()
    if texts and all(map(_DECIMAL.fullmatch, texts)):
        return pa.float64()
    return pa.string()


NO_PARTITIONS = Partitions()
