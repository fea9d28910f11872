"""Reads tables, lists and label maps of images: their columns, cells, paths and classes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import shape_text
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names, human_bytes
from recordmill.transforms.arrow import I64
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.base import Rows, RowSink, Source
from recordmill.transforms.sources.csv.inspect import (
    count_long,
    count_missing,
    long_warnings,
    missing_fact,
)
from recordmill.transforms.sources.images.options import (
    AUTO,
    DEFAULTS,
    NONE,
    ImagesOptions,
)
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.sources.registry import Request, load_format
from recordmill.transforms.sources.text_types import TypeFlag, convert_columns
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

PATH_NAMES = (
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_path",
    "image_name",
    "img",
    "image_id",
    "id",
)
LABEL_NAMES = (
    "label",
    "labels",
    "class",
    "classes",
    "class_name",
    "category",
    "categories",
)
SPLIT_NAMES = ("split", "subset")


class LabelColumns(NamedTuple):
    """The names of a table's columns, "" for none; features are the others."""

    path: str
    label: str
    split: str
    features: tuple[str, ...]


def _known_names(options: ImagesOptions) -> list[str]:
    """Returns the names that path, label and split may have."""
    given = (options.path_column, options.label_column, options.table_split_column)
    names = [name for name in given if name not in (AUTO, NONE)]
    return [*names, *PATH_NAMES, *LABEL_NAMES, *SPLIT_NAMES]


def find_columns(
    names: Sequence[str], options: ImagesOptions, uri: str, *, splits_elsewhere: bool
) -> LabelColumns:
    """Finds the columns, by options or by usual names.

    A column of splits is only taken by its name if nothing else has the splits.
    """
    path = _find("path_column", options.path_column, PATH_NAMES, names, uri)
    if not path:
        raise InputError(
            f"{uri}: no column is named like a path ({first_names(PATH_NAMES, 5)}); "
            f"its columns are {first_names(names)}: say with `path_column` which one has "
            "the paths of the images, or add a header line if there is none"
        )
    label = split = ""
    if options.label_from != NONE:
        label = _find("label_column", options.label_column, LABEL_NAMES, names, uri)
        if not label and options.label_column != NONE:
            raise InputError(
                f"{uri}: no column is named like a label ({first_names(LABEL_NAMES)}); "
                f"its columns are {first_names(names)}: say with `label_column` which "
                "one it is, or use `label_column=none` if there is none"
            )
    if options.table_split_column != AUTO or not splits_elsewhere:
        split = _find(
            "table_split_column", options.table_split_column, SPLIT_NAMES, names, uri
        )
    taken = [name for name in (path, label, split) if name]
    if twice := {name for name in taken if taken.count(name) > 1}:
        raise InputError(
            f"{uri}: column {min(twice)!r} cannot be two of path, label and split: give "
            "another one in `path_column`, `label_column` or `table_split_column`"
        )
    others = tuple(name for name in names if name not in taken)
    return LabelColumns(path, label, split, others)


def _find(
    option: str, asked: str, usual: Sequence[str], names: Sequence[str], uri: str
) -> str:
    if asked == NONE:
        return ""
    if asked != AUTO:
        if asked not in names:
            raise InputError(
                f"{uri}: has no column {asked!r}, which `{option}` names; its columns "
                f"are {first_names(names)}"
            )
        return asked
    folded: dict[str, str] = {}
    for name in names:
        folded.setdefault(name.strip().casefold(), name)
    return next((folded[name] for name in usual if name in folded), "")


MAX_BYTES = 1 << 30  # of a table, which is held in memory
_WITHOUT = "use `label_from=none` in place of `label_table`, for images without labels"
_JSON_ENDINGS = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True, slots=True)
class LabelTable:
    """The rows of a table.

    Attributes:
      file: the table.
      split: of all its images, or "".
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
    options: ImagesOptions,
    wanted: tuple[str, ...] | None,
    storage: StorageOptions,
) -> list[LabelTable]:
    """Reads tables, whose types are those of all of them together.

    JSON Lines has the columns that a declared schema wants; cells of CSV stay text.
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
                f"{file.uri}: is empty; expected {lines} for each image. Write them, or "
                f"{_WITHOUT}"
            )
        if file.size > MAX_BYTES:
            raise InputError(
                f"{file.uri}: has {human_bytes(file.size)}; a table of labels is held in "
                f"memory and may have {human_bytes(MAX_BYTES)}: convert the images in "
                "parts, each with its own table, and append them"
            )
    if formats == {True}:
        found = load_format("jsonl")
        columns = () if wanted is None else (*wanted, *_known_names(options))
        request = Request(storage, as_text=wanted is not None, columns=columns)
        source = found.make_source(found.options(), request)
        whole = source.prepare([file for _, file in files])
        return [_read(whole, split, file) for split, file in files]
    found = load_format("csv")
    # The cells of CSV stay text until all tables are joined.
    columns = () if options.path_column == AUTO else (options.path_column,)
    request = Request(storage, as_text=True, columns=columns)
    source = found.make_source(found.options(), request)
    return [_read(source.prepare([file]), split, file) for split, file in files]


def _read(source: Source, split: str, file: InputFile) -> LabelTable:
    ranges = source.cut([file])
    if source.needs_survey(ranges):
        surveys = [source.survey(each) for each in ranges]
        ranges = source.resolve_ranges(ranges, surveys)
    sink = RowSink()
    parts = [rows for each in ranges for rows in source.read(each, (), sink)]
    filled = [rows for rows in parts if rows.batch.num_rows]
    if not filled:
        raise InputError(_without_rows(file, source.columns().names, sink.rejects))
    return LabelTable(
        file,
        split,
        pa.Table.from_batches([rows.batch for rows in filled], source.columns()),
        tuple(sink.rejects),
        tuple(sink.checksums),
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
        "and a row for each image. Add the rows (if that line is a row, a header above "
        f"it), or {_WITHOUT}"
    )


def require_single(
    table: LabelTable, column: str, option: str, *, lists: bool = False
) -> None:
    """Refuses a column whose values are not single ones, or lists of such."""
    kind = table.rows.schema.field(column).type
    inner = kind.value_type if lists and pa.types.is_list(kind) else kind
    if pa.types.is_nested(inner):
        raise InputError(
            f"{table.file.uri}: column {column!r} is {kind}, expected text or whole "
            f"numbers{' or lists of these' if lists else ''}: name another one with "
            f"`{option}`"
        )


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # without a chunk
        return pa.array([], column.type)
    return column


def text_cells(column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Returns values as text without blanks around it; null where nothing is left."""
    text = pc.utf8_trim_whitespace(one_array(column).cast(pa.string()))
    return pc.if_else(pc.equal(pc.binary_length(text), 0), None, text)


def label_cells(column: pa.Array | pa.ChunkedArray, separator: str) -> pa.Array:
    """Returns the labels of each row: a name, or with a separator a list of names."""
    array = one_array(column)
    if pa.types.is_list(array.type):
        return full_lists(array, text_cells(array.flatten()))
    cells = text_cells(array)
    if not separator:
        return cells
    lists = pc.split_pattern(cells, separator)
    return full_lists(lists, text_cells(lists.flatten()))


def full_lists(lists: pa.ListArray, values: pa.StringArray) -> pa.ListArray:
    """Returns lists of the values that are not null.

    Of the lists [a, null] and [b]: lengths 1 1, values a b.
    """
    kept = values.is_valid().to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(
        zero_copy_only=False
    )
    ends = np.cumsum(lengths)
    before = np.concatenate([[0], np.cumsum(kept)])
    offsets = before[np.concatenate([[0], ends])].astype(np.int32)
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values.drop_null(), mask=mask
    )


def typed_features(
    cells: dict[str, pa.StringArray],
) -> tuple[dict[str, pa.Array], list[tuple[str, str]], list[str]]:
    """Returns columns of text with the types that all of their cells have.

    And facts and warnings of cells that mean a missing value or lose digits.
    """
    if not cells:
        return {}, [], []
    names, text = list(cells), list(cells.values())
    columns, observed = convert_columns(text, [int(TypeFlag.NOTHING)] * len(text))
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    cells_batch = pa.record_batch(cells)
    missing = count_missing(cells_batch, batch, tuple(observed))
    facts = missing_fact(missing, plain_schema(batch.schema))
    long = count_long(cells_batch, batch)
    return (
        dict(zip(names, columns, strict=True)),
        list(facts),
        long_warnings(long, names),
    )


def describe_types(columns: dict[str, pa.Array]) -> str:
    """Returns names and types of columns, in words."""
    if not columns:
        return "none"
    schema = plain_schema(pa.schema([(n, each.type) for n, each in columns.items()]))
    told = [(name, schema[name]) for name in columns]
    return first_names(
        [f"{n} {f.dtype}{shape_text(f.shape) if f.shape else ''}" for n, f in told]
    )


def joined(columns: Sequence[pa.Array]) -> pa.Array:
    """Returns columns of several tables one after the other."""
    kinds = {column.type for column in columns}
    if len(kinds) > 1:  # a column without any value in one of them
        wanted = max(kinds, key=lambda kind: kind != pa.null())
        columns = [column.cast(wanted) for column in columns]
    return pa.concat_arrays(columns)


# A path may be relative to the folder of the table, to the input folder, to an input
# folder below it or to the folder above it, or the name of the file if all differ; with its
# ending or without. All rows of a table are read in one way: the one by which most of them
# name an image.
#
#     table /data/train.csv, image /data/train/1.jpg     "train/1.jpg", "train/1"
#     input /data/train                                    "1.jpg", "1"

_ENDING = r"\.[^./]+$"


@dataclass(frozen=True, slots=True)
class MatchedPaths:
    """The image of each path by its index, or -1; and how paths are read, in words."""

    indices: I64
    way: str

    @property
    def num_found(self) -> int:
        return int(np.count_nonzero(self.indices >= 0))


def match_paths(
    named: pa.StringArray, images: Sequence[InputFile], root: str, table: str
) -> MatchedPaths:
    """Finds the image of each path, null for none; paths may begin where the table is."""
    paths = pa.array([file.path for file in images], pa.string())
    given = sorted({file.given for file in images})
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
                    continue  # two images would have one name
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
    """Yields what images are called in each way, and the way in words."""
    folder = table.rpartition("/")[0] + "/"
    bases = {folder: "relative to the folder of the table"}
    bases.setdefault(root, "relative to the input folder")
    if len(given) == 1:
        bases.setdefault(f"{root}{given[0]}/", "relative to the folder of the images")
    above = root.rstrip("/").rpartition("/")[0]
    bases.setdefault(f"{above}/", "relative to the folder above the input")
    for base, way in bases.items():
        if root.startswith(base):  # /data/ for images of /data/train/
            before = root.removeprefix(base)
            yield pc.binary_join_element_wise(before, paths, ""), way
        elif base.startswith(root):
            within = base.removeprefix(root)
            is_below = pc.starts_with(paths, within)
            below = pc.utf8_slice_codeunits(paths, len(within))
            yield pc.if_else(is_below, below, None), way
    yield pc.replace_substring_regex(paths, "^.*/", ""), "the names of the files"


@dataclass(frozen=True, slots=True)
class SplitList:
    """The paths of a list, null for a blank line, and where each line begins."""

    file: InputFile
    split: str
    paths: pa.StringArray
    offsets: I64
    checksums: tuple[FileChecksum, ...]

    def raw(self, row: int) -> tuple[int, bytes]:
        """Returns where a line begins, and its bytes."""
        return int(self.offsets[row]), self.paths[row].as_py().encode()


def read_list(split: str, file: InputFile, storage: StorageOptions) -> SplitList:
    """Reads a list; refuses one that is not text, or is empty."""
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    checksums = (FileChecksum(file.path, 0, len(data), crc32c(data)),)
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: is not UTF-8 (byte {error.start}); expected a path in each line"
        ) from None
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")).astype(np.int64)
    starts = np.concatenate([[0], ends + 1]).astype(np.int64)
    # From the array's buffer: no object for each line.
    bounds = np.concatenate([starts, [len(data) + 1]]).astype(np.int64)
    whole = pa.LargeStringArray.from_buffers(
        len(starts), pa.py_buffer(bounds.tobytes()), pa.py_buffer(data + b"\n")
    )
    lines = pc.utf8_trim_whitespace(whole).cast(pa.string())
    paths = pc.if_else(pc.equal(pc.binary_length(lines), 0), None, lines)
    if paths.null_count == len(paths):
        raise InputError(f"{file.uri}: is empty; expected a path in each line")
    return SplitList(file, split, paths, starts, checksums)


_TABLES = (".csv", ".tsv")
_FORMS = "expected a name in each line, or CSV with the columns id,name"


@dataclass(frozen=True, slots=True)
class LabelMap:
    """Classes in the order of their numbers, and the class of each label of the input.

    A label is the name of a class, or its number in the file. `renumbered` is the first class
    whose number is another one in the file, with it, or "".
    """

    classes: tuple[str, ...]
    class_of: Mapping[str, str]
    renumbered: str = ""


def read_label_map(
    file: InputFile, storage: StorageOptions
) -> tuple[LabelMap, tuple[FileChecksum, ...]]:
    """Reads a file of classes; returns them and the file's checksum."""
    if file.path.lower().endswith(_TABLES):
        (table,) = read_tables([("", file)], DEFAULTS, None, storage)
        if table.rejects:
            first = table.rejects[0]
            raise InputError(f"{file.uri}: byte {first.position}: {first.reason}")
        columns = {name.strip().casefold(): name for name in table.rows.column_names}
        if columns.keys() == {"id", "name"}:
            numbers, names = (
                [_text(cell) for cell in table.rows[columns[name]].to_pylist()]
                for name in ("id", "name")
            )
            pairs = zip(numbers, names, strict=True)
            return _by_number(pairs, file.uri), table.checksums
        found = ",".join(table.rows.column_names)
        raise InputError(f"{file.uri}: has the columns {found}; {_FORMS}")
    if file.path.lower().endswith(".json"):
        raise InputError(f"{file.uri}: is JSON; {_FORMS}")
    data = read_range(file.uri, 0, file.size, storage, file.seen)
    checksums = (FileChecksum(file.path, 0, len(data), crc32c(data)),)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file.uri}: is not UTF-8 (byte {error.start}): save it as UTF-8"
        ) from None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return _in_order(lines, file.uri), checksums


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _in_order(names: Sequence[str], uri: str) -> LabelMap:
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"{uri}: names class {shown(min(twice))} twice: remove one")
    if not names or "" in names:
        raise InputError(f"{uri}: names no class; {_FORMS}")
    return LabelMap(tuple(names), {name: name for name in names})


def _by_number(pairs: Iterable[tuple[str, str]], uri: str) -> LabelMap:
    """Returns the classes by (number, name): a label is either of both."""
    numbers: dict[int, str] = {}
    for text, name in pairs:
        if not _is_number(text) or not name or int(text) in numbers:
            raise InputError(
                f"{uri}: class {shown(name)} has the number {shown(text)}; expected a "
                "name and another whole number from 0 for each class"
            )
        numbers[int(text)] = name
    names = [numbers[number] for number in sorted(numbers)]
    made = _in_order(names, uri)
    class_of = {str(number): name for number, name in numbers.items()}
    class_of |= made.class_of
    moved = [(i, n) for i, n in enumerate(sorted(numbers)) if i != n]
    renumbered = ""
    if moved:
        index, number = moved[0]
        renumbered = f"class {names[index]!r} has the number {number}"
    return LabelMap(made.classes, class_of, renumbered)


def _unknown_label(label: str, found: LabelMap, uri: str, where: str) -> str:
    """Describes a label that a file of classes does not name, and the way out."""
    return (
        f"{where}: its label {shown(label)} is not in {uri}, which has "
        f"{first_names(list(found.class_of))}: add it there"
    )


def number_classes(
    labels: pa.Array,
    valid: npt.NDArray[np.bool_],
    label_map: LabelMap | None,
    paths: Sequence[str],
    uri: str,
) -> tuple[pa.Array, tuple[str, ...], list[str]]:
    """Finds the classes of labels, in their order.

    Returns the labels of the images by the names of their classes, these names, and warnings;
    refuses valid images whose label is in no class of the label map, and an input without
    any label.
    """
    used = labels.filter(pa.array(valid))
    is_list = pa.types.is_list(labels.type)
    names = (used.flatten() if is_list else used).unique().drop_null().to_pylist()
    if label_map is None:
        if not names and valid.any():
            raise InputError(f"{uri}: no image has a label")
        classes = sorted_classes(names)
        return labels, classes, _number_warnings(classes)
    for name in names:
        if name not in label_map.class_of:
            where = paths[_first_with(labels, valid, name)]
            raise InputError(_unknown_label(name, label_map, uri, where))
    known = pa.array(list(label_map.class_of), pa.string())
    class_of = pa.array(list(label_map.class_of.values()), pa.string())
    warnings = []
    if label_map.renumbered:
        warnings.append(
            f"the numbers of {uri} do not count from 0 without gaps "
            f"({label_map.renumbered}): labels of the dataset do, in the same order"
        )
    values = labels.flatten() if is_list else labels
    mapped = class_of.take(pc.index_in(values, value_set=known))
    if is_list:
        mapped = full_lists(labels, mapped)
    return mapped, label_map.classes, warnings


def sorted_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns names in order; if all are whole numbers, by their values.

    >>> sorted_classes(["10", "9"]), sorted_classes(["b", "10"])
    (('9', '10'), ('10', 'b'))
    """
    found = set(names)
    if found and all(_is_whole_number(name) for name in found):
        return tuple(sorted(found, key=lambda name: (int(name), name)))
    return tuple(sorted(found))


def _is_whole_number(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit() and len(name) < 19


def _number_warnings(classes: Sequence[str]) -> list[str]:
    """Returns a warning if classes are numbers, but not those that labels get."""
    if not all(map(_is_whole_number, classes)):
        return []
    for index, name in enumerate(classes):
        if int(name) != index:
            return [
                f"the classes are numbers that do not count from 0 without gaps: class "
                f"{name!r} gets the label {index}. Name them with `label_map`, or use "
                "`label_column=none` to keep numbers of a table as they are"
            ]
    return []


def _first_with(labels: pa.Array, valid: npt.NDArray[Any], name: str) -> int:
    rows: list[Any] = labels.to_pylist()
    return next(
        index
        for index, row in enumerate(rows)
        if valid[index] and (row == name or (isinstance(row, list) and name in row))
    )
