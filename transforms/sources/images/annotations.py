"""Joins what tables, lists and names say of images into one table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import BY_SPLIT, CLASSES, PassedOver, Understood
from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.images.classes import (
    LabelMap,
    order_classes,
    read_label_map,
)
from recordmill.transforms.sources.images.find import AskedLabels, NamedInputs
from recordmill.transforms.sources.images.layout import Place
from recordmill.transforms.sources.images.rows import (
    AT,
    FEATURE,
    LABEL,
    PROBLEM,
    RAW,
    SPLIT,
    NoteTypes,
)
from recordmill.transforms.sources.images.tables import (
    Gathered,
    LabelColumns,
    LabelTable,
    MatchedPaths,
    SplitList,
    find_columns,
    is_json,
    joined,
    label_cells,
    match_paths,
    one_array,
    read_list,
    read_tables,
    text_cells,
    told_types,
    typed_features,
)


@dataclass(frozen=True, slots=True)
class RowsOfPictures:
    """The rows of each picture.

    Attributes:
      first: the first row of each, or -1.
      joined: all rows of the first picture, then those of the next, ...; None if each
        picture has one row.
      starts: where the rows of each begin among them, and the end of the last.
    """

    first: I64
    joined: I64 | None = None
    starts: I64 | None = None

    def values_of(self, column: pa.Array) -> pa.Array:
        """Returns the value of each picture, or the list of those of its rows.

        Pictures of the rows [0, 2] and [1] have the lists [a, c] and [b] of a, b, c.
        """
        if self.joined is None or self.starts is None:
            return column.take(pa.array(self.first, mask=self.first < 0))
        values = column.take(pa.array(self.joined))
        offsets = pa.array(self.starts, pa.int32())
        return pa.ListArray.from_arrays(offsets, values)

    def lacking(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        """Tells which pictures have a row without a value."""
        missing = column.is_null().to_numpy(zero_copy_only=False)
        if self.joined is None or self.starts is None:
            lacks: npt.NDArray[np.bool_] = missing[self.first]
            return lacks & (self.first >= 0)
        before = offsets_of(missing[self.joined])
        return np.asarray(np.diff(before[self.starts]) > 0)


def find_rows(
    found: Gathered, indices: I64, told: str, *, of_objects: bool
) -> RowsOfPictures:
    """Finds the rows of each picture; what has none, or too many, is told.

    Args:
      found: is told.
      indices: the picture of each row, or -1.
      told: names of the tables.
      of_objects: whether a picture has a row for each object in it.
    """
    size = len(found.pictures)
    rows = np.flatnonzero(indices >= 0)
    counts = np.bincount(indices[rows], minlength=size)
    first = np.full(size, -1, np.int64)
    first[indices[rows][::-1]] = rows[::-1]
    found.leave_unlisted(counts == 0, f"no row of {told} names it")
    if of_objects:
        order = rows[np.argsort(indices[rows], kind="stable")]
        return RowsOfPictures(first, order, offsets_of(counts))
    for number in np.unique(counts[counts > 1]).tolist():
        found.reject(
            counts == number,
            f"{number:,} rows of {told} name it, expected one: join them into one row, "
            "with lists for what is there several times, or use `table_rows=object`",
        )
    return RowsOfPictures(first)


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


@dataclass(frozen=True, slots=True)
class NotedPictures:
    """The pictures of an input, and what is noted of each.

    Attributes:
      listing: the pictures, those of a split together; then rows that name none.
      notes: a row for each.
      types: of the labels and features.
      classes: the names that labels count.
      splits: those that the pictures are in, if each is in one.
      told: what was found.
      checksums: of the tables and lists.
    """

    listing: tuple[InputFile, ...]
    notes: pa.Table
    types: NoteTypes
    classes: tuple[str, ...]
    splits: tuple[str, ...]
    told: Understood
    checksums: tuple[FileChecksum, ...]


def finish_notes(
    found: Gathered,
    asked: AskedLabels,
    label_map: LabelMap | None,
    map_file: InputFile | None,
) -> NotedPictures:
    """Puts the pictures into order, and counts what is left out.

    Args:
      found: all that is noted of them.
      asked: what the options say.
      label_map: names of the classes of labels, or None.
      map_file: the file that it was read from.

    Raises:
      InputError: nothing is left, or there cannot be such splits.
    """
    passed_over: list[tuple[str, str]] = []
    kept = np.ones(len(found.pictures), np.bool_)
    if asked.unlisted == "leave_out":
        kept = found.unlisted == ""
        passed_over += [
            (found.unlisted[index], found.pictures[index].path)
            for index in np.flatnonzero(~kept).tolist()
        ]
    else:
        unlisted = np.flatnonzero(found.unlisted != "")
        found.problems[unlisted] = found.unlisted[unlisted]
        if len(unlisted):
            first = int(unlisted[0])
            found.warnings.append(
                f"{count(len(unlisted), 'picture')} will be rejected, such as "
                f"{found.pictures[first].path}: {found.unlisted[first]}. Use "
                "`unlisted=leave_out` to leave them out"
            )
    valid = kept & (found.problems == "")
    classes: tuple[str, ...] = ()
    if found.labels is not None:
        map_uri = map_file.uri if map_file else ""
        ordered = order_classes(found, valid, label_map, map_uri)
        found.labels, classes = ordered.labels, ordered.classes
        found.warnings += ordered.warnings
    if not kept.any():
        raise InputError(
            f"{found.root}: nothing is left of {len(found.pictures):,} pictures: "
            f"{passed_over[0][0]}"
        )
    splits = _checked_splits(found, valid)
    order = np.flatnonzero(kept)
    order = order[np.argsort(found.splits[order].astype(str), kind="stable")]
    types = NoteTypes(
        has_labels=found.labels is not None,
        has_several=found.labels is not None and pa.types.is_list(found.labels.type),
        features=tuple((name, each.type) for name, each in found.features.items()),
        optional=tuple(
            name
            for name, each in found.features.items()
            if each.filter(pa.array(valid)).null_count
        ),
    )
    listing = [found.pictures[index] for index in order.tolist()]
    listing += [
        InputFile(file.path, file.uri, 0, problem=reject.reason)
        for file, reject in found.rejects
    ]
    return NotedPictures(
        tuple(listing),
        _columns(found, order),
        types,
        classes,
        splits,
        _summary(found, valid, classes, passed_over),
        tuple(found.checksums),
    )


def _checked_splits(found: Gathered, valid: np.ndarray) -> tuple[str, ...]:
    """Returns the splits, if every picture is in one; a reject is put into the first."""
    counts = Counter(found.splits[valid].tolist())
    names = sorted(counts.keys() - {""}, key=lambda name: (name != "train", name))
    for name in names:
        if not SPLIT_PATTERN.fullmatch(name):
            first = found.pictures[int(np.flatnonzero(found.splits == name)[0])].path
            raise InputError(
                f"{first}: is in the split {shown(name)}, expected letters, digits, '_' "
                "and '-': rename it, or use `table_split_column=none` if that column is not one "
                "of splits"
            )
    if len(names) > MAX_SPLITS:
        raise InputError(
            f"{found.root}: its pictures are in {len(names):,} splits, expected at most "
            f"{MAX_SPLITS}: use `table_split_column=none` if that column is not one of splits"
        )
    found.splits[~valid] = names[0] if names and not counts[""] else ""
    return tuple(names) if names and not counts[""] else ()


def _columns(found: Gathered, order: np.ndarray) -> pa.Table:
    """Returns the notes of the pictures in this order, then those of rejected rows."""
    num_rows = len(found.rejects)
    last = found.splits[order[-1]] if len(order) else ""
    indices = pa.array(order)
    rejects = [reject for _, reject in found.rejects]
    columns = {
        SPLIT: pa.array(
            [*found.splits[order].tolist(), *[last] * num_rows], pa.string()
        ),
        PROBLEM: pa.array(
            [*found.problems[order].tolist(), *[""] * num_rows], pa.string()
        ),
        AT: pa.array(
            [*[0] * len(order), *map(attrgetter("position"), rejects)], pa.int64()
        ),
        RAW: pa.array(
            [*[None] * len(order), *map(attrgetter("raw"), rejects)], pa.binary()
        ),
    }
    more = dict({LABEL: found.labels} if found.labels is not None else {})
    more |= {FEATURE + name: each for name, each in found.features.items()}
    for name, each in more.items():
        columns[name] = pa.concat_arrays(
            [each.take(indices), pa.nulls(num_rows, each.type)]
        )
    return pa.table(columns)


def _summary(
    found: Gathered,
    valid: np.ndarray,
    classes: Sequence[str],
    passed_over: Sequence[tuple[str, str]],
) -> Understood:
    facts = list(found.facts)
    if found.labels is None:
        facts.append((CLASSES, "none, as there are no labels"))
    else:
        labels = found.labels.filter(pa.array(valid))
        if pa.types.is_list(labels.type):
            labels = labels.flatten()
        counts = {
            each["values"]: each["counts"]
            for each in pc.value_counts(labels).to_pylist()
        }
        told = [f"{name} {counts.get(name, 0):,}" for name in classes]
        facts.append((CLASSES, f"{len(classes):,} ({first_names(told)})"))
        if empty := [name for name in classes if not counts.get(name)]:
            found.warnings.append(
                f"no picture has the label {first_names(empty)}, which `label_map` names"
            )
    splits = Counter(found.splits[valid].tolist())
    if set(splits) - {""}:
        named = [f"{name or 'no split'} {n:,}" for name, n in sorted(splits.items())]
        facts.append((BY_SPLIT, first_names(named)))
    return Understood(
        tuple(facts), tuple(found.warnings), PassedOver.counted(passed_over)
    )


def note_pictures(
    pictures: Sequence[InputFile],
    places: Sequence[Place],
    named: NamedInputs,
    asked: AskedLabels,
    reserved: frozenset[str],
    storage: StorageOptions,
) -> NotedPictures:
    """Notes what is said of each picture.

    Args:
      pictures: all of them; at least one.
      places: split and class of each by its folders.
      named: the files that options name.
      asked: what else the options say.
      reserved: names that features of tables cannot have.
      storage: options of the files' storage.

    Raises:
      InputError: what is said cannot be.
    """
    root = pictures[0].uri.removesuffix(pictures[0].path)
    found = Gathered(pictures, root)
    by_folder = np.array([place.split for place in places], np.object_)
    found.splits[:] = by_folder
    if asked.labels_by_folder:
        labels = pa.array([place.label for place in places], pa.string())
        found.labels = text_cells(labels)
        without = found.labels.is_null().to_numpy(zero_copy_only=False)
        found.reject(without, "is not in the folder of a class")
    if asked.pattern:
        _note_names(found, asked, reserved)
    if named.tables:
        note_tables(
            found,
            read_tables(named.tables, asked, storage),
            asked,
            reserved,
            splits_elsewhere=bool(named.lists) or bool(set(by_folder) - {""}),
        )
    if named.lists:
        found.splits[:] = ""
        lists = [read_list(split, file, storage) for split, file in named.lists]
        note_lists(found, lists)
    label_map = None
    if named.label_map is not None:
        label_map, checksums = read_label_map(named.label_map, storage)
        found.checksums += checksums
    return finish_notes(found, asked, label_map, named.label_map)


def _note_names(found: Gathered, asked: AskedLabels, reserved: frozenset[str]) -> None:
    groups, matches = read_names(asked.pattern, found.pictures)
    without = ~matches.to_numpy(zero_copy_only=False)
    found.leave_unlisted(without, "its name does not match the pattern of labels")
    if "label" in groups:
        found.labels = label_cells(groups.pop("label"), asked.separator)
        missing = found.labels.is_null().to_numpy(zero_copy_only=False)
        found.reject(
            missing & ~without, "the pattern of labels finds no label in its name"
        )
    if "split" in groups:
        splits = groups.pop("split").fill_null("").to_numpy(zero_copy_only=False)
        found.splits[:] = splits
        found.facts.append(("splits", "by `label_pattern`"))
    if taken := groups.keys() & reserved:
        raise InputError(
            f"`label_pattern`: the group {min(taken)!r} is named like a feature of the "
            "pictures: give it another name"
        )
    columns = dict(groups)
    if not asked.as_text:
        columns, facts, warnings = typed_features(columns)
        found.facts += facts
        found.warnings += warnings
    found.features |= columns
    found.facts.append(("names", f"by the pattern {asked.pattern}"))
    if columns:
        found.facts.append(("features", told_types(columns)))
