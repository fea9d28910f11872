"""Reads tables with a row for each picture, by the sources of CSV and JSON Lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names, human_bytes
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.images.asked_labels import AUTO, AskedLabels
from recordmill.transforms.sources.images.label_columns import known_names
from recordmill.transforms.sources.registry import load_format
from recordmill.transforms.sources.source_rows import Rows

MAX_BYTES = 1 << 30  # of a table, which is held in memory
_WITHOUT = (
    "use `label_from=none` in place of `label_table`, for pictures without labels"
)
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True, slots=True)
class LabelTable:
    """The rows of a table.

    Attributes:
      file: the table.
      split: of all its pictures, or "".
      rows: the columns; cells of CSV are text.
      rejects: rows that could not be read.
      checksums: of all its bytes.
    """

    file: InputFile
    split: str
    rows: pa.Table
    rejects: tuple[Reject, ...]
    checksums: tuple[FileChecksum, ...]
    _parts: tuple[Rows, ...]
    _ends: tuple[int, ...]

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns where a row begins in the file, and its bytes."""
        part = bisect_right(self._ends, row)
        before = self._ends[part - 1] if part else 0
        return self._parts[part].raw(row - before)


def is_json(file: InputFile) -> bool:
    """Tells whether a table is of JSON Lines, by its name."""
    return file.path.lower().endswith(_JSON_ENDINGS)


def read_tables(
    files: Sequence[tuple[str, InputFile]],
    asked: AskedLabels,
    storage: StorageOptions,
) -> list[LabelTable]:
    """Reads tables, whose types are those of all of them together.

    Args:
      files: (split, file) of each.
      asked: what the options say of them.
      storage: options of their storage.

    Raises:
      InputError: a table cannot be read, has no row, or is too large.
    """
    formats = {is_json(file) for _, file in files}
    if len(formats) > 1:
        names = " and ".join(file.uri for _, file in files[:2])
        raise InputError(
            f"`label_table`: {names} are of CSV and of JSON Lines; expected all tables "
            "in one format"
        )
    for _, file in files:
        if not file.size:
            lines = (
                "JSON objects in lines, one" if is_json(file) else "a header and a row"
            )
            raise InputError(
                f"{file.uri}: is empty; expected {lines} for each picture. Write them, or "
                f"{_WITHOUT}"
            )
        if file.size > MAX_BYTES:
            raise InputError(
                f"{file.uri}: has {human_bytes(file.size)}; a table of labels is held in "
                f"memory and may have {human_bytes(MAX_BYTES)}: convert the pictures in "
                "parts, each with its own table, and append them"
            )
    if formats == {True}:
        found = load_format("jsonl")
        source = found.make_source(found.options(), asked.as_text, storage)
        if asked.as_text:
            source = source.expecting([*asked.wanted, *known_names(asked)])
        whole = source.prepare([file for _, file in files])
        return [_read(whole, split, file) for split, file in files]
    found = load_format("csv")
    # The cells of CSV stay text until all tables are joined.
    source = found.make_source(found.options(), True, storage)
    if asked.path_column != AUTO:
        source = source.expecting([asked.path_column])
    return [_read(source.prepare([file]), split, file) for split, file in files]


def _read(source: Source, split: str, file: InputFile) -> LabelTable:
    ranges = source.cut([file])
    if source.needs_survey(ranges):
        surveys = [source.survey(each) for each in ranges]
        ranges = source.resolve_ranges(ranges, surveys)
    parts = [rows for each in ranges for rows in source.read(each, ())]
    filled = [rows for rows in parts if rows.batch.num_rows]
    rejects = tuple(reject for rows in parts for reject in rows.rejects)
    if not filled:
        raise InputError(_without_rows(file, source.columns().names, rejects))
    return LabelTable(
        file,
        split,
        pa.Table.from_batches([rows.batch for rows in filled], source.columns()),
        rejects,
        tuple(each for rows in parts for each in rows.checksums),
        tuple(filled),
        tuple(accumulate(rows.batch.num_rows for rows in filled)),
    )


def _without_rows(
    file: InputFile, names: Sequence[str], rejects: Sequence[Reject]
) -> str:
    """Returns the error for a table of which no row can be read."""
    if rejects:
        return (
            f"{file.uri}: none of its {count(len(rejects), 'row')} can be read; the first, "
            f"at byte {rejects[0].position:,}: {rejects[0].reason}. Mend it, or {_WITHOUT}"
        )
    return (
        f"{file.uri}: has no rows, only a header ({first_names(names)}); expected a header "
        "and a row for each picture. Add the rows (if that line is a row, a header above "
        f"it), or {_WITHOUT}"
    )
