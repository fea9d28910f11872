"""Notes what tables and lists say of pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.text import count, first_names
from recordmill.transforms.arrow import offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.images.label_cells import (
    joined,
    label_cells,
    one_array,
    text_cells,
    told_types,
    typed_features,
)
from recordmill.transforms.sources.images.label_columns import (
    LabelColumns,
    find_columns,
)
from recordmill.transforms.sources.images.label_tables import LabelTable, is_json
from recordmill.transforms.sources.images.match_paths import MatchedPaths, match_paths
from recordmill.transforms.sources.images.noted import Gathered
from recordmill.transforms.sources.images.rows_of_pictures import (
    RowsOfPictures,
    find_rows,
)
from recordmill.transforms.sources.images.split_lists import SplitList

Raw = Callable[[int], tuple[int, bytes]]


def note_tables(
    found: Gathered,
    tables: Sequence[LabelTable],
    asked: AskedLabels,
    reserved: frozenset[str],
    *,
    splits_elsewhere: bool,
) -> None:
    """Notes labels, splits and features of tables with rows of pictures.

    Args:
      found: is told.
      tables: all of them.
      asked: what the options say of them.
      reserved: names that features of a table cannot have.
      splits_elsewhere: whether something else than a column says the splits.

    Raises:
      InputError: a table lacks a column, or names no picture.
    """
    elsewhere = splits_elsewhere or any(table.split for table in tables)
    columns = [
        find_columns(
            table.rows.column_names, asked, table.file.uri, splits_elsewhere=elsewhere
        )
        for table in tables
    ]
    indices = []
    for table, named in zip(tables, columns, strict=True):
        paths = _paths(table, named)
        matched = _match(found, paths, table.file, "row", table.raw)
        indices.append(matched.indices)
        found.rejects += [(table.file, reject) for reject in table.rejects]
        found.checksums += table.checksums
        found.facts.append(_told(table, named, matched))
    told = first_names([table.file.path for table in tables], 3)
    of_objects = asked.table_rows == "object"
    rows = find_rows(found, np.concatenate(indices), told, of_objects=of_objects)
    if not asked.without_labels and columns[0].label:
        for table, named in zip(tables, columns, strict=True):
            _require_single(table, named.label, "label_column", lists=not of_objects)
        cells = [
            label_cells(table.rows[named.label], asked.separator)
            for table, named in zip(tables, columns, strict=True)
        ]
        labels = joined(cells)
        found.labels = rows.values_of(labels)
        found.reject(rows.lacking(labels), f"its row of {told} has no label: add it")
    _note_splits(found, tables, columns, rows, told)
    as_text = asked.as_text and not of_objects
    _note_features(found, tables, columns, reserved, rows, as_text=as_text)


def _paths(table: LabelTable, named: LabelColumns) -> pa.StringArray:
    _require_single(table, named.path, "path_column")
    return text_cells(table.rows[named.path])


def _require_single(
    table: LabelTable, column: str, option: str, *, lists: bool = False
) -> None:
    """Checks that the values of a column are single ones, or lists of such.

    Raises:
      InputError: they are not.
    """
    kind = table.rows.schema.field(column).type
    inner = kind.value_type if lists and pa.types.is_list(kind) else kind
    if pa.types.is_nested(inner):
        raise InputError(
            f"{table.file.uri}: column {column!r} is {kind}, expected text or whole "
            f"numbers{' or lists of these' if lists else ''}: name another one with "
            f"`{option}`"
        )


def _match(
    found: Gathered, paths: pa.StringArray, file: InputFile, noun: str, raw: Raw
) -> MatchedPaths:
    """Finds the pictures of a table or list; rows without one become rejects."""
    matched = match_paths(paths, found.pictures, found.root, file.uri)
    if not matched.num_found:
        named = paths.drop_null()
        example = shown(named[0].as_py()) if len(named) else "no path"
        raise InputError(
            f"{file.uri}: none of {count(len(paths), noun)} names a picture; the first has "
            f"{example}, expected a path like {shown(found.pictures[0].path)}, below "
            f"{found.root} or the folder of this file"
        )
    # A loop over the rows that name no picture; the others are done in columns.
    for row in np.flatnonzero(matched.indices < 0).tolist():
        path = paths[row].as_py()
        if path is None and noun == "line":
            continue  # a blank line
        at, data = raw(row)
        reason = (
            f"{shown(path)}: there is no such picture in the input"
            if path
            else "has no path of a picture"
        )
        found.rejects.append((file, Reject(file.path, at, reason, data)))
    return matched


def _told(
    table: LabelTable, named: LabelColumns, matched: MatchedPaths
) -> tuple[str, str]:
    label = f"labels in column {named.label!r}" if named.label else "no labels"
    return (
        f"table {table.file.path}",
        f"{count(len(matched.indices), 'row')}, {matched.num_found:,} of pictures; paths "
        f"in column {named.path!r}, {matched.way}; {label}",
    )


def _note_splits(
    found: Gathered,
    tables: Sequence[LabelTable],
    columns: Sequence[LabelColumns],
    rows: RowsOfPictures,
    told: str,
) -> None:
    if not any(t.split or c.split for t, c in zip(tables, columns, strict=True)):
        return
    parts = []
    for table, named in zip(tables, columns, strict=True):
        if named.split:
            _require_single(table, named.split, "table_split_column")
            cells = text_cells(table.rows[named.split]).fill_null("")
            parts.append(cells.to_numpy(zero_copy_only=False))
        else:
            parts.append(np.full(table.rows.num_rows, table.split, np.object_))
    splits = np.concatenate(parts).astype(np.object_)
    listed = rows.first >= 0
    found.splits[listed] = splits[rows.first[listed]]
    if rows.joined is not None and rows.starts is not None:
        others = splits[rows.joined] != np.repeat(found.splits, np.diff(rows.starts))
        differ = np.diff(offsets_of(others)[rows.starts]) > 0
        found.reject(differ, f"its rows of {told} are in several splits: give them one")
    by = "table" if tables[0].split else f"column {columns[0].split!r}"
    found.facts.append(("splits", f"by {by}"))


def _note_features(
    found: Gathered,
    tables: Sequence[LabelTable],
    columns: Sequence[LabelColumns],
    reserved: frozenset[str],
    rows: RowsOfPictures,
    *,
    as_text: bool,
) -> None:
    names = list(dict.fromkeys(name for each in columns for name in each.features))
    for name in names:
        if name in reserved:
            found.warnings.append(
                f"column {name!r} of {tables[0].file.path} is left out: the pictures have "
                "a feature of this name. Rename the column to keep it"
            )
    kept = [name for name in names if name not in reserved]
    cells = {
        name: joined(
            [
                one_array(table.rows[name])
                if name in named.features
                else pa.nulls(table.rows.num_rows)
                for table, named in zip(tables, columns, strict=True)
            ]
        )
        for name in kept
    }
    if not as_text and not is_json(tables[0].file):
        cells, facts, warnings = typed_features(cells)
        found.facts += facts
        found.warnings += warnings
    noted = {name: rows.values_of(column) for name, column in cells.items()}
    if rows.joined is not None:  # a list has a value for each object
        for name, column in cells.items():
            found.reject(
                rows.lacking(column),
                f"a row of it has no value in column {name!r}, which a list needs: add "
                "it, or leave out the column",
            )
    found.features |= noted
    if kept:
        found.facts.append(("features", told_types(noted)))


def note_lists(found: Gathered, lists: Sequence[SplitList]) -> None:
    """Notes the splits of pictures by lists of their paths.

    Raises:
      InputError: a list names no picture.
    """
    seen = np.zeros(len(found.pictures), np.bool_)
    told = first_names([each.file.path for each in lists], 5)
    for each in lists:
        matched = _match(found, each.paths, each.file, "line", each.raw)
        mine = np.zeros(len(found.pictures), np.bool_)
        mine[matched.indices[matched.indices >= 0]] = True
        found.reject(
            mine & seen & (found.splits != each.split),
            f"is in several splits by {told}: leave it in one of these lists",
        )
        found.splits[mine] = each.split
        seen |= mine
        found.checksums += each.checksums
        number = int(np.count_nonzero(mine))
        fact = f"{count(number, 'picture')} of split {each.split}, {matched.way}"
        found.facts.append((f"list {each.file.path}", fact))
    found.leave_unlisted(~seen, f"is in none of the lists {told}")
