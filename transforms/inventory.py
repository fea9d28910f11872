"""The input files of a run, in columns; a long list is mapped from temporary files.

No function here builds a text column for all files together: each works part by part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import chain, islice
from operator import eq
from typing import Any, Self, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.input_files import InputFile
from recordmill.transforms.arrow import I64, value_offsets
from recordmill.transforms.join import ROW_INDEX, ROW_INDEX_TYPE, are_sorted, join_rows
from recordmill.transforms.native.numpy_loops import offsets_of
from recordmill.transforms.temporary import (
    BATCH_ROWS,
    TEMPORARY,
    gather_batches,
    is_long,
    spill_bytes,
    take_batches,
)

BATCH_FILES = BATCH_ROWS
"""Maximum number of files that are Python objects at the same time."""

_SCHEMA = pa.schema(
    {name: pa.int64() if name == "size" else pa.string() for name in InputFile._fields}
)


@dataclass(frozen=True, eq=False)
class FileTable:
    """Files in columns, a row for each, with `path` and `size` among them."""

    table: pa.Table

    @property
    def paths(self) -> pa.ChunkedArray:
        """Returns the paths, relative to the input root."""
        return self.table["path"]

    @property
    def sizes(self) -> I64:
        """Returns the size of each file in bytes."""
        return np.asarray(self.table["size"])

    def filter(self, mask: Any) -> Self:
        """Returns the files for which a mask is true."""
        if pc.all(mask, skip_nulls=False).as_py():
            return self
        if not is_long(self.table):
            return replace(self, table=self.table.filter(mask))
        flat = mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask
        batches = list(self.batches())
        starts = offsets_of(np.array([batch.num_rows for batch in batches])).tolist()
        kept_batches = (
            batch.filter(flat.slice(start, batch.num_rows))
            for start, batch in zip(starts, batches, strict=False)
        )
        return replace(self, table=gather_batches(kept_batches, self.table.schema))

    def parts(self) -> Iterator[Self]:
        """Yields the files in parts that are small enough to process in memory."""
        for batch in self.batches():
            yield replace(self, table=pa.Table.from_batches([batch]))

    def map_parts(self, question: Callable[[Self], pa.ChunkedArray]) -> pa.ChunkedArray:
        """Returns a column with the answer of `question` for each file, part by part."""
        if len(self) <= BATCH_FILES:
            return question(self)
        answers = (question(part).combine_chunks() for part in self.parts())
        return pa.chunked_array([*answers])

    def without_paths(self, paths: Iterable[str] | pa.ChunkedArray) -> Self:
        """Returns the files whose paths are not among these."""
        if not isinstance(paths, pa.ChunkedArray):
            paths = pa.chunked_array([pa.array(list(paths), pa.string())])
        if not (len(paths) and len(self)):
            return self
        excluded_files = FileTable(pa.table({"path": paths}))
        return self.filter(excluded_files.find_paths(self.paths).is_null())

    def find_paths(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """Returns the row index of each path; null if the path is not in the table."""
        if len(self) <= BATCH_FILES:
            return pc.index_in(paths, value_set=self.paths)
        return self.look_up_column(ROW_INDEX, ROW_INDEX_TYPE, paths)

    def look_up_column(
        self, name: str, kind: pa.DataType, paths: pa.ChunkedArray
    ) -> pa.ChunkedArray:
        """Returns a column's cell for each path; null if the path is not in the table."""

        def find_cells(requested_rows: pa.Table, file_rows: pa.Table) -> pa.Array:
            at = pc.index_in(requested_rows["path"], value_set=file_rows["path"])
            return file_rows[name].take(at).combine_chunks()

        return join_rows(pa.table({"path": paths}), self.table, find_cells, kind)

    def unique_paths(self) -> Self:
        """Returns each path once: its last row, at the position of its first one.

        Two names that are not UTF-8 may become the same path.
        """
        if are_sorted((batch["path"] for batch in self.batches()), strictly=True):
            return self
        at = np.arange(len(self))
        first = np.asarray(self.find_paths(self.paths))
        again = np.flatnonzero(first != at)
        at[first[again]] = again
        return self.take(pa.array(np.delete(at, again))) if len(again) else self

    def take(self, positions: pa.Array | pa.ChunkedArray) -> Self:
        """Returns the files at these positions."""
        if not is_long(self.table):
            return replace(self, table=self.table.take(positions))
        batches = take_batches(self.table, positions)
        return replace(self, table=gather_batches(batches, self.table.schema))

    def with_column(self, name: str, column: pa.Array | pa.ChunkedArray) -> Self:
        """Returns the files with one column replaced."""
        at = self.table.column_names.index(name)
        return replace(self, table=self.table.set_column(at, name, column))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the columns in batches that are small enough to process in memory."""
        for batch in self.table.to_batches(BATCH_FILES):
            yield batch
            TEMPORARY.drop_pages()

    def __len__(self) -> int:
        return int(self.table.num_rows)


@dataclass(frozen=True, eq=False)
class Inventory(FileTable, Sequence[InputFile]):
    """A list of input files.

    `uri` is null if the URI of the file is `root` followed by its path. `problem` is null
    if there is none. Slices share the columns.
    """

    root: str = ""

    @classmethod
    def from_files(cls, files: Iterable[InputFile]) -> Inventory:
        """Returns the inventory of some files, in their order."""
        if isinstance(files, Inventory):
            return files
        left = iter(files)
        start = list(islice(left, 1))
        root = start[0].uri.removesuffix(start[0].path) if start else ""
        left = chain(start, left)

        def batches() -> Iterator[pa.RecordBatch]:
            while part := list(islice(left, BATCH_FILES)):
                paths, uris, sizes, versions, kinds_of_versions, problems = zip(
                    *part, strict=True
                )
                separate_uris = [
                    None if uri == root + path else uri
                    for path, uri in zip(paths, uris, strict=True)
                ]
                problems_or_null = [problem or None for problem in problems]
                columns = (
                    paths,
                    separate_uris,
                    sizes,
                    versions,
                    kinds_of_versions,
                    problems_or_null,
                )
                arrays = map(pa.array, columns, _SCHEMA.types)
                yield pa.RecordBatch.from_arrays(list(arrays), schema=_SCHEMA)

        return cls.from_batches(batches(), root)

    @classmethod
    def from_batches(cls, batches: Iterable[pa.RecordBatch], root: str) -> Inventory:
        """Returns the inventory of batches with its columns."""
        return cls(gather_batches(batches, _SCHEMA), root)

    @property
    def uris(self) -> pa.ChunkedArray:
        """Returns the URI of each file."""
        joined = pc.binary_join_element_wise(self.root, self.paths, "")
        return pc.coalesce(self.table["uri"], joined)

    @property
    def num_bytes(self) -> int:
        """Returns the total size of all files in bytes."""
        return pc.sum(self.table["size"]).as_py() or 0

    @property
    def unreadable(self) -> Inventory:
        """Returns the files that have a problem."""
        return self.filter(self.table["problem"].is_valid())

    def ends_with(self, endings: Iterable[str]) -> pa.ChunkedArray:
        """Returns a mask of the files with one of these endings; case is ignored."""

        def has_ending(part: Inventory) -> pa.ChunkedArray:
            lower = pc.ascii_lower(part.paths)
            return reduce(pc.or_, (pc.ends_with(lower, ending) for ending in endings))

        return self.map_parts(has_ending)

    @cached_property
    def folders(self) -> pa.DictionaryArray:
        """Returns the folder of each path, as a dictionary array."""
        return parent_folders(self.paths)

    def __add__(self, other: Inventory) -> Inventory:
        if not (self and other):
            return self or other
        if self.root != other.root:
            return Inventory.from_files([*self, *other])
        return Inventory(pa.concat_tables([self.table, other.table]), self.root)

    def __iter__(self) -> Iterator[InputFile]:
        for batch in self.batches():
            paths, uris, *other_columns, problems = (
                column.to_pylist() for column in batch.columns
            )
            uris = [
                self.root + path if uri is None else uri
                for path, uri in zip(paths, uris, strict=True)
            ]
            problem_texts = (problem or "" for problem in problems)
            yield from map(InputFile, paths, uris, *other_columns, problem_texts)

    @overload
    def __getitem__(self, index: int) -> InputFile: ...
    @overload
    def __getitem__(self, index: slice) -> Inventory: ...
    def __getitem__(self, index: int | slice) -> InputFile | Inventory:
        if not isinstance(index, slice):
            at = range(len(self))[index]
            return next(iter(self[at : at + 1]))
        start, stop, step = index.indices(len(self))
        if step != 1:
            return self.take(pa.array(range(start, stop, step), pa.int64()))
        return Inventory(self.table.slice(start, max(0, stop - start)), self.root)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented
        return all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        # Most tasks have no files; a name pickles smaller than an empty table.
        return "NO_FILES" if self is NO_FILES else (Inventory, (self.table, self.root))


NO_FILES = Inventory(_SCHEMA.empty_table())


def parent_folders(paths: pa.ChunkedArray) -> pa.DictionaryArray:
    """Returns the text before the last "/" of each path, as a dictionary array.

    >>> parent_folders(pa.chunked_array([["a/b/1.jpg", "2.jpg", "a/b/3.jpg"]])).to_pylist()
    ['a/b', '', 'a/b']
    """
    codes_by_folder = dict[str, int]()

    def codes() -> Iterator[bytes]:
        for part in paths.chunks:
            folders = pc.replace_substring_regex(part, "(^|/)[^/]*$", "")
            folders = folders.dictionary_encode()
            texts = folders.dictionary.to_pylist()
            folder_codes = np.array(
                [
                    codes_by_folder.setdefault(folder, len(codes_by_folder))
                    for folder in texts
                ],
                np.int64,
            )
            yield folder_codes[folders.indices].tobytes()

    data = pa.py_buffer(spill_bytes(codes()))
    indices = pa.Array.from_buffers(pa.int64(), len(paths), [None, data])
    return pa.DictionaryArray.from_arrays(
        indices, pa.array(codes_by_folder, pa.string())
    )


def base_names(paths: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Returns the text after the last "/" of each path."""
    names = pc.replace_substring_regex(paths, "^.*/", "")
    return names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names


def strip_extensions(paths: pa.StringArray) -> pa.StringArray:
    """Returns each path without the file extension of its name."""
    return pc.replace_substring_regex(paths, r"\.[^./]*$", "")


def join_texts(*parts: Any) -> memoryview:
    """Returns the bytes of all rows, each the concatenation of its texts."""
    row_texts = pc.binary_join_element_wise(*parts, "")
    offsets = value_offsets(row_texts)
    return memoryview(row_texts.buffers()[2] or b"")[offsets[0] : offsets[-1]]
