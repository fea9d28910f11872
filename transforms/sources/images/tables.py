"""Reads the tables, lists and label maps that annotate images."""

from __future__ import annotations

import re
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import PurePosixPath
from typing import NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import format_shape
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputWarning
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_bytes, format_count, format_names
from recordmill.transforms.arrow import I64, offsets_of
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.inventory import Inventory, base_names, strip_extensions
from recordmill.transforms.sources.base import RangeFindings, Source
from recordmill.transforms.sources.file_splits import AUTO, NONE, split_word
from recordmill.transforms.sources.images.folder_words import IMAGES_PARENT
from recordmill.transforms.sources.images.options import DEFAULTS, FileOptions
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.sources.registry import SourceRequest, load_format
from recordmill.transforms.sources.text_columns import (
    TypeFlag,
    convert_columns,
    count_issues,
    long_warnings,
    report_missing_cells,
)
from recordmill.transforms.storage.reading import read_head, read_summed
from recordmill.transforms.temporary import TEMPORARY

_ML_USE = "ml_use"
# The usual names of columns, by the option that replaces them.
_USUAL_COLUMNS = {
    "path_column": (
        *("path", "file", "filename", "file_name", "filepath", "file_path", "image"),
        *("image_path", "image_name", "img", "image_id", "imageGcsUri", "audio"),
        *("audio_path", "audio_file", "id"),
    ),
    "label_column": (
        *("label", "labels", "class", "classes", "class_name", "category"),
        *("categories", "classificationAnnotation/displayName"),
    ),
    "table_split_column": (
        *("split", "subset", _ML_USE),
        "dataItemResourceLabels/aiplatform.googleapis.com/ml_use",
    ),
}
# CSV import files of Vertex AI and AutoML have no header, and special words for splits.
# JSON Lines have the keys above: imageGcsUri, classificationAnnotation.displayName.
#
#     TRAIN,gs://bucket/1.jpg,cat
#     UNASSIGNED,gs://bucket/2.jpg,dog             treated as an image without a split
_IMPORT_LINE = re.compile(
    r"(?:(?P<use>TRAIN\w*|VALID\w*|TEST|UNASSIGNED)?,)?[\w+.-]+://[^,]+(?:,[^,]*)?",
    re.IGNORECASE,
)
_SPLIT_OF_USE = {
    "train": "train",
    "training": "train",
    "test": "test",
    "unassigned": None,
}
_SPLIT_OF_USE |= {"validate": "validation", "validation": "validation"}
# The fix to suggest if a column is missing. The split column is optional.
_MISSING_COLUMN_HINT = {
    "path_column": "contains the paths of the files, or add a header if there is none",
    "label_column": "contains the labels, or use `label_column=none` if there is none",
}
# Columns of annotations; columns of features have the prefix FEATURE.
SPLIT, LABEL, FEATURE = "split", "label", "feature "
MAX_BYTES = 1 << 30  # of a table, which must fit in memory
_NO_LABELS_HINT = (
    "use `label_from=none` in place of `label_table`, for files without labels"
)


class LabelColumns(NamedTuple):
    """The columns of a table by use; "" for no column. The others are features."""

    path: str
    label: str
    split: str
    features: tuple[str, ...]


def find_columns(
    table: LabelTable, options: FileOptions, *, splits_elsewhere: bool
) -> LabelColumns:
    """Finds the columns of a table, by options or by usual names.

    Args:
      table: to search.
      options: of the job.
      splits_elsewhere: whether folders, lists or tables have the splits. If so, a split
        column counts only if an option names it.

    Raises:
      InputError: a column is missing, or has two uses.
    """
    names, uri = table.rows.column_names, table.file.uri
    chosen_columns = []
    for option, usual in _USUAL_COLUMNS.items():
        column = str(getattr(options, option))
        if option == "label_column" and options.label_from == NONE:
            column = NONE
        if option == "table_split_column" and column == AUTO and splits_elsewhere:
            column = NONE
        if column == AUTO:
            column = _usual_column(names, option)
            if not column and option in _MISSING_COLUMN_HINT:
                raise InputError(
                    f"{uri}: no column is named like a {option.partition('_')[0]} "
                    f"({format_names(usual, 7)}); its columns are {format_names(names)}: "
                    f"set `{option}` to the column that {_MISSING_COLUMN_HINT[option]}"
                )
        elif column not in (NONE, *names):
            raise InputError(
                f"{uri}: has no column {column!r}, which `{option}` names; its columns "
                f"are {format_names(names)}"
            )
        chosen_columns.append("" if column == NONE else column)
    if repeated_columns := {
        name for name in chosen_columns if name and chosen_columns.count(name) > 1
    }:
        raise InputError(
            f"{uri}: column {min(repeated_columns)!r} cannot have two of the meanings path, label "
            "and split: name another column in `path_column`, `label_column` or "
            "`table_split_column`"
        )
    path, label, split = chosen_columns
    table.require_single(path, "path_column")
    feature_columns = tuple(name for name in names if name not in chosen_columns)
    return LabelColumns(path, label, split, feature_columns)


def _usual_column(names: Sequence[str], option: str) -> str:
    """Returns the first column with a usual name for an option, or ""."""
    folded = {name.strip().casefold(): name for name in reversed(names)}
    matching_names = (folded.get(name.casefold()) for name in _USUAL_COLUMNS[option])
    return next(filter(None, matching_names), "")


# row -> the path of its file, its position in bytes, and its raw bytes
Raw = Callable[[int], tuple[str, int, bytes]]


def no_raw(row: int) -> NoReturn:
    """Raises AssertionError: every row of the table names an image."""
    raise AssertionError(row)


class LabelTable(NamedTuple):
    """The rows of a table, or the lines of a list."""

    file: InputFile
    split: str  # of all images in the table, or ""
    # cells of CSV are text; a list has a column of paths, null for a blank line
    rows: pa.Table
    raw: Raw = no_raw
    checksums: tuple[FileChecksum, ...] = ()  # of the whole file
    rejects: tuple[Reject, ...] = ()  # rows that could not be read

    def require_single(self, column: str, option: str, *, lists: bool = False) -> None:
        """Raises InputError if cells of a column are nested.

        Args:
          column: to check.
          option: that names the column, for the message.
          lists: whether cells may be lists of single values.
        """
        kind = self.rows.schema.field(column).type
        inner = kind.value_type if lists and pa.types.is_list(kind) else kind
        if pa.types.is_nested(inner):
            raise InputError(
                f"{self.file.uri}: column {column!r} is {kind}, expected text or whole "
                f"numbers{' or lists of these' if lists else ''}: name another one with "
                f"`{option}`"
            )

    def select_columns(self, columns: LabelColumns, options: FileOptions) -> LabelTable:
        """Returns the table with its columns renamed to "path" and annotation columns."""
        table_columns = {"path": self.rows[columns.path]}
        if columns.label:
            lists = options.table_rows != "object"
            self.require_single(columns.label, "label_column", lists=lists)
            labels = label_cells(self.rows[columns.label], options.label_separator)
            table_columns[LABEL] = labels
        if columns.split:
            self.require_single(columns.split, "table_split_column")
            table_columns[SPLIT] = splits = text_cells(self.rows[columns.split])
            if columns.split.rpartition("/")[2] == _ML_USE:
                uses = pc.index_in(pc.utf8_lower(splits), pa.array(_SPLIT_OF_USE))
                known_splits = pa.array(_SPLIT_OF_USE.values(), pa.string()).take(uses)
                table_columns[SPLIT] = pc.if_else(uses.is_valid(), known_splits, splits)
        elif self.split:
            table_columns[SPLIT] = pa.array([self.split] * self.rows.num_rows)
        table_columns |= {FEATURE + name: self.rows[name] for name in columns.features}
        return self._replace(rows=pa.table(table_columns))


def is_json(file: InputFile) -> bool:
    """Tests whether the name of a table means JSON Lines."""
    return file.path.lower().endswith((".jsonl", ".ndjson", ".json"))


def read_tables(
    files: Sequence[tuple[str, InputFile]],
    options: FileOptions,
    schema_columns: tuple[str, ...] | None,
    storage: StorageOptions,
) -> list[LabelTable]:
    """Reads tables of one format; types of JSON Lines are inferred from all tables.

    Args:
      files: (split, file) of each table.
      options: of the job.
      schema_columns: the columns that a declared schema uses; None without a schema.
      storage: options of the inputs' storage.

    Returns:
      The tables. Cells of CSV are text, as are cells of JSON Lines with a schema.
    """
    of_json = is_json(files[0][1])
    if any(is_json(file) != of_json for _, file in files):
        names = " and ".join(file.uri for _, file in files[:2])
        raise InputError(
            f"`label_table`: {names} are of CSV and of JSON Lines; expected all tables "
            "in one format"
        )
    for _, file in files:
        if not file.size:
            lines = "JSON objects, one per line," if of_json else "a header and a row"
            raise InputError(
                f"{file.uri}: is empty; expected {lines} for each file. Write them, or "
                f"{_NO_LABELS_HINT}"
            )
        if file.size > MAX_BYTES:
            raise InputError(
                f"{file.uri}: has {format_bytes(file.size)}; a table of labels is kept "
                f"in memory and may have at most {format_bytes(MAX_BYTES)}: convert the "
                "files in parts, each with a separate table, and append them"
            )
    option_columns = [getattr(options, option) for option in _USUAL_COLUMNS]
    if not of_json:  # cells of CSV stay text until all tables are joined
        columns = tuple(name for name in option_columns[:1] if name != AUTO)
    elif schema_columns is None:
        columns = ()
    else:
        named_columns = [name for name in option_columns if name not in (AUTO, NONE)]
        columns = (
            *schema_columns,
            *named_columns,
            *chain.from_iterable(_USUAL_COLUMNS.values()),
        )
    source_format = load_format("jsonl" if of_json else "csv")
    as_text = not of_json or schema_columns is not None
    format_options = source_format.options()
    if not of_json and (names := _import_columns(files[0][1], storage)):
        format_options = source_format.options(header="none", columns=names)
        columns = ()
    source = source_format.make_source(
        format_options, SourceRequest(storage, as_text=as_text, columns=columns)
    )
    if of_json:
        source = source.prepare([file for _, file in files])
        return [_read_table(source, split, file) for split, file in files]
    return [
        _read_table(_prepare_source(source, file), split, file) for split, file in files
    ]


def _prepare_source(source: Source, file: InputFile) -> Source:
    """Prepares to read a table; errors do not mention options of `convert csv`."""
    try:
        return source.prepare([file])
    except InputError as error:
        sentences = str(error).split(". ")
        kept_sentences = [sentence for sentence in sentences if "`" not in sentence]
        if len(kept_sentences) == len(sentences):
            raise
        raise InputError(
            f"{'. '.join(kept_sentences)}. Write it as CSV in UTF-8 with a header, or as JSON "
            f"Lines, or {_NO_LABELS_HINT}"
        ) from None


def _import_columns(file: InputFile, storage: StorageOptions) -> str:
    """Returns the columns of an import file of Vertex AI; "" for any other table."""
    head = read_head(file, 4096, storage)
    line = head.decode("utf-8-sig", "replace").partition("\n")[0].strip()
    match = _IMPORT_LINE.fullmatch(line)
    if match is None:
        return ""
    has_use = bool(match["use"]) or line.startswith(",")
    names = ["image", "label"][: 1 + (line.count(",") > has_use)]
    return ",".join([_ML_USE] * has_use + names)


def _read_table(source: Source, split: str, file: InputFile) -> LabelTable:
    ranges = source.with_boundaries(source.cut_ranges([file]))
    range_findings = RangeFindings()
    parts = [
        rows
        for input_range in ranges
        for rows in source.read(input_range, (), range_findings)
    ]
    filled = [rows for rows in parts if rows.batch.num_rows]
    if not filled and range_findings.rejects:
        first = range_findings.rejects[0]
        raise InputError(
            f"{file.uri}: no row ({format_count(len(range_findings.rejects), 'row')}) can be read; the "
            f"first, at byte {first.position:,}: {first.reason}. Fix it, or {_NO_LABELS_HINT}"
        )
    if not filled:
        raise InputError(
            f"{file.uri}: has no rows, only a header "
            f"({format_names(source.columns().names)}); expected a header and a row for "
            "each file. Add the rows (if that line is a row, add a header above it), "
            f"or {_NO_LABELS_HINT}"
        )
    ends = list(accumulate(rows.batch.num_rows for rows in filled))

    def raw(row: int) -> tuple[str, int, bytes]:
        part = bisect_right(ends, row)
        return (file.path, *filled[part].raw_row(row - (ends[part - 1] if part else 0)))

    table = pa.Table.from_batches([rows.batch for rows in filled], source.columns())
    checksums_and_rejects = (
        tuple(range_findings.checksums),
        tuple(range_findings.rejects),
    )
    return LabelTable(file, split, table, raw, *checksums_and_rejects)


# A table next to the images may have their labels although no option names it:
# metadata.csv in an imagefolder of Hugging Face, or train.csv next to train/. Few tables
# are checked: train first, then the other splits.
_TABLE_ENDINGS = (".csv", ".tsv", ".jsonl")
_MAX_CHECKED_TABLES = 3
_HEAD_BYTES = 1 << 14


def require_no_table(
    images: Inventory,
    other_files: Sequence[InputFile],
    noun: str,
    storage: StorageOptions,
) -> None:
    """Raises InputError if a table names images, but folders would become the classes.

    Args:
      images: of the input.
      other_files: the input files that are no images.
      noun: of the images, for the message.
      storage: options of the inputs' storage.
    """
    table_files = [
        file for file in other_files if file.path.lower().endswith(_TABLE_ENDINGS)
    ]
    names = {file: file.path.rpartition("/")[2] for file in table_files}
    splits = {file: split_word(name) for file, name in names.items()}
    table_files.sort(
        key=lambda f: (f.path.count("/"), splits[f] != "train", not splits[f])
    )
    looked_at = (
        _find_naming_column(f, images, storage)
        for f in table_files[:_MAX_CHECKED_TABLES]
    )
    if not (
        tables := [
            naming_table for naming_table in looked_at if naming_table is not None
        ]
    ):
        return
    (first, column, cell), *_ = tables
    file, columns = first.file, first.rows.column_names
    similar_files = [
        table.file for table, *_ in tables if table.rows.column_names == columns
    ]
    of_splits = {
        splits[table_file]: _as_glob(table_file.path)
        for table_file in similar_files
        if splits[table_file]
    }
    table_option = _as_glob(file.path)
    if splits[file] and len(of_splits) > 1:
        table_option = ",".join(f"{split}={path}" for split, path in of_splits.items())
    elif list(names.values()).count(names[file]) > 1:
        table_option = f"**/{_as_glob(names[file])}"
    hint = ""
    if column != _usual_column(columns, "path_column"):
        hint += f" with `path_column={column}`"
    if not _usual_column(columns, "label_column"):
        other_columns = format_names([repr(name) for name in columns if name != column])
        hint += f" with `label_column=none` (or that of the labels, of {other_columns})"
    is_only = {names[table.file] for table, *_ in tables} == {names[file]}
    exclude_glob = (
        _as_glob(names[file]) if is_only else f"*{PurePosixPath(file.path).suffix}"
    )
    raise InputError(
        f"{file.uri}: column {column!r} names {noun}s, such as {shorten(cell)}, but no "
        "option names this table. For labels or features from it, use "
        f"`label_table={table_option}`{hint}; `unlisted=leave_out` leaves out files without a row. "
        "If the folders that hold the files are the classes, use `label_from=parent`, or "
        f"leave the table out with `exclude={exclude_glob}`; if there are no labels, "
        "`label_from=none`"
    )


def _as_glob(path: str) -> str:
    """Returns a path as a glob for options; special characters become "?"."""
    return re.sub(r"[][*?{},=`]", "?", path)


def _find_naming_column(
    file: InputFile, images: Inventory, storage: StorageOptions
) -> tuple[LabelTable, str, str] | None:
    """Returns the first rows of a file, and the column and the cell that name an image.

    Returns None if the file is no table, is a label map, or names no image.
    """
    first_bytes = read_head(file, _HEAD_BYTES, storage)
    first_bytes = (
        first_bytes
        if len(first_bytes) == file.size
        else first_bytes[: first_bytes.rfind(b"\n") + 1]
    )
    folder, suffix = TEMPORARY.usable_folder(), PurePosixPath(file.path).suffix
    with tempfile.NamedTemporaryFile(dir=folder, suffix=suffix) as head:
        head.write(first_bytes)
        head.flush()
        copy = InputFile(head.name, head.name, len(first_bytes))
        try:
            (table,) = read_tables([("", copy)], DEFAULTS, None, NO_OPTIONS)
        except InputError:
            return None
    rows, usual = table.rows, _usual_column(table.rows.column_names, "path_column")
    cells = {}
    for name in sorted(rows.column_names, key=usual.__ne__):
        if pa.types.is_nested(rows.schema.field(name).type):
            continue
        text = text_cells(rows[name])
        # Numbers name images only in a column with a usual name; else they are classes.
        numbers = pc.match_substring_regex(text, r"^-?\d+$")
        if name == usual or not pc.all(numbers).as_py():
            cells[name] = text
    if (
        not cells
        or {name.strip().casefold() for name in rows.column_names} == _LABEL_MAP_COLUMNS
    ):
        return None
    all_cells = pa.concat_arrays(cells.values())
    # Selecting images by name first takes a tenth of the time, with a million images.
    names = base_names(pa.concat_arrays([all_cells, strip_extensions(all_cells)]))
    image_names = strip_extensions(base_names(images.paths))
    images = images.filter(pc.is_in(image_names, value_set=names))
    image_indices, _ = match_paths(all_cells, images, input_root(images), file.uri)
    if not (image_indices >= 0).any():
        return None
    at = int(np.argmax(image_indices >= 0))
    column = list(cells)[at // rows.num_rows]
    return table._replace(file=file), column, all_cells[at].as_py()


def read_list(split: str, file: InputFile, storage: StorageOptions) -> LabelTable:
    """Reads a list of paths; raises InputError if it is empty or not UTF-8."""
    file_bytes, checksum = read_summed(file, storage)
    hint = "expected a path in each line"
    try:
        file_bytes.decode()
    except UnicodeDecodeError as error:
        message = f"{file.uri}: is not UTF-8 (byte {error.start}); {hint}"
        raise InputError(message) from None
    lines = pa.array(file_bytes.split(b"\n"), pa.binary())
    offsets = offsets_of(pc.binary_length(lines).to_numpy() + 1)
    paths = text_cells(lines)
    if paths.null_count == len(paths):
        raise InputError(f"{file.uri}: is empty; {hint}")
    return LabelTable(
        file,
        split,
        pa.table({"path": paths, SPLIT: pa.array([split] * len(paths))}),
        lambda row: (file.path, int(offsets[row]), paths[row].as_py().encode()),
        (checksum,),
    )


_EXPECTED_FORMS = "expected a name in each line, or CSV with the columns id,name"
_LABEL_MAP_COLUMNS = {"id", "name"}


class LabelMap(NamedTuple):
    """The classes in label order, and the class of each label of the input."""

    uri: str
    classes: tuple[str, ...]
    # by label: the name of a class, or its number in the file
    class_by_label: Mapping[str, str]
    checksums: tuple[FileChecksum, ...]
    # text on the first class whose number in the file differs from its label, or ""
    first_renumbering: str = ""


def read_label_map(file: InputFile, storage: StorageOptions) -> LabelMap:
    """Reads a file of classes: a name in each line, or a table of numbers and names."""
    uri, renumbered = file.uri, ""
    if file.path.lower().endswith(".json"):
        raise InputError(f"{uri}: is JSON; {_EXPECTED_FORMS}")
    if not file.path.lower().endswith((".csv", ".tsv")):
        from recordmill.transforms.sources.arrays.array_parts import read_names

        classes, checksum = read_names(file, storage)
        class_of = {name: name for name in classes}
        return LabelMap(uri, classes, class_of, (checksum,))
    (table,) = read_tables([("", file)], DEFAULTS, None, storage)
    if table.rejects:
        first = table.rejects[0]
        raise InputError(f"{uri}: byte {first.position}: {first.reason}")
    columns = {name.strip().casefold(): name for name in table.rows.column_names}
    if columns.keys() != _LABEL_MAP_COLUMNS:
        column_list = ",".join(table.rows.column_names)
        raise InputError(f"{uri}: has the columns {column_list}; {_EXPECTED_FORMS}")
    ids, texts = (
        text_cells(table.rows[columns[name]]).fill_null("").to_pylist()
        for name in ("id", "name")
    )
    numbers = dict[int, str]()
    for text, name in zip(ids, texts, strict=True):
        is_number = text.isascii() and text.isdigit()
        if not is_number or not name or int(text) in numbers:
            raise InputError(
                f"{uri}: class {shorten(name)} has the number {shorten(text)}; expected "
                "a name and another whole number from 0 for each class"
            )
        if name in numbers.values():
            raise InputError(f"{uri}: names class {shorten(name)} twice: remove one")
        numbers[int(text)] = name
    ordered = sorted(numbers.items())
    for index, (number, name) in reversed([*enumerate(ordered)]):
        if index != number:
            renumbered = f"class {name!r} has the number {number}"
    classes = tuple(name for _, name in ordered)
    class_of = {str(number): name for number, name in ordered}
    class_of |= {name: name for name in classes}
    return LabelMap(uri, classes, class_of, table.checksums, renumbered)


def to_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def text_cells(column: pa.Array | pa.ChunkedArray) -> pa.StringArray:
    """Returns cells as text without surrounding blanks; empty text becomes null."""
    text = pc.utf8_trim_whitespace(to_array(column).cast(pa.string()))
    return pc.if_else(pc.equal(pc.binary_length(text), 0), None, text)


def label_cells(column: pa.Array | pa.ChunkedArray, separator: str) -> pa.Array:
    """Returns the labels of each row: a name, or with a separator a list of names."""
    array = to_array(column)
    if separator and not pa.types.is_list(array.type):
        array = pc.split_pattern(text_cells(array), separator)
    return map_labels(array, text_cells)


def map_labels(labels: pa.Array, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Returns labels, or lists of labels, with a function applied to each label.

    Labels that become null are removed from lists: [a, null] and [b] have the offsets
    0, 1, 2 and the flat labels a, b.

    Args:
      labels: an array of labels, or of lists of labels.
      change: returns the new labels of an array.
    """
    if not pa.types.is_list(labels.type):
        return change(labels)
    flat_labels = change(labels.flatten())
    lengths = pc.fill_null(pc.list_value_length(labels), 0).to_numpy()
    valid_offsets = offsets_of(flat_labels.is_valid().to_numpy(zero_copy_only=False))
    offsets = valid_offsets[offsets_of(lengths)].astype(np.int32)
    mask = labels.is_null() if labels.null_count else None
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), flat_labels.drop_null(), mask=mask
    )


def infer_features(
    cells: dict[str, pa.StringArray],
) -> tuple[dict[str, pa.Array], list[tuple[str, str]], list[InputWarning]]:
    """Returns columns of text converted to the types that all of their cells have.

    The other elements of the tuple are facts on cells that mean a missing value, and
    warnings of numbers that lose digits.
    """
    if not cells:
        return {}, [], []
    names, text = list(cells), list(cells.values())
    columns, observed = convert_columns(text, [int(TypeFlag.NOTHING)] * len(text))
    batch = pa.RecordBatch.from_arrays(columns, names=names)
    cells_batch = pa.record_batch(cells)
    issues = count_issues(cells_batch, batch, observed)
    facts = report_missing_cells(issues, plain_schema(batch.schema))
    warnings = long_warnings(issues, names)
    return dict(zip(names, columns, strict=True)), list(facts), warnings


def describe_types(columns: Mapping[str, pa.Array]) -> str:
    """Returns the names and types of columns as text."""
    schema = plain_schema(
        pa.schema([(n, column.type) for n, column in columns.items()])
    )
    names_and_features = [(name, schema[name]) for name in columns]
    return format_names(
        [
            f"{n} {f.dtype}{format_shape(f.shape) if f.shape else ''}"
            for n, f in names_and_features
        ]
    )


# A path in a table may be relative to the folder of the table, to the input folder, to a
# given folder below it or to its parent, or a file name if all file names are unique;
# with the ending or without. All rows of a table are matched in the same way: the way by
# which most rows name an image.
#
#     table /data/train.csv, image /data/train/1.jpg     "train/1.jpg", "train/1"
#     input /data/train                                    "1.jpg", "1"

_MAX_PARENTS = 8
_ENDING = r"([^/])\.[^./]+$"  # does not match the name in a/.hidden


def match_paths(
    table_paths: pa.StringArray, images: Inventory, root: str, table: str
) -> tuple[I64, str]:
    """Finds the image that each path in a table names.

    Args:
      table_paths: the paths in the table; null for no path.
      images: of the input.
      root: of the input.
      table: the URI of the table.

    Returns:
      The index of each path's image, or -1; and how paths were matched, as text.
    """
    paths = images.paths.combine_chunks()
    # Without "./" and the input folder in front.
    relative_paths = pc.utf8_trim_whitespace(table_paths)
    if root.strip("/"):
        is_absolute = pc.fill_null(pc.starts_with(relative_paths, root), False)
        relative_part = pc.utf8_slice_codeunits(relative_paths, len(root))
        relative_paths = pc.if_else(is_absolute, relative_part, relative_paths)
    # A cell may have the former URI of an image, as in gs://bucket/cat/1.jpg.
    relative_paths = pc.replace_substring_regex(
        relative_paths, r"^(\./)+|^[\w+.-]+://[^/]+/", ""
    )
    best, best_way = pa.nulls(len(table_paths), pa.int32()), ""
    for keys, way in _iterate_keys(images, root, table):
        indices = pc.index_in(relative_paths, value_set=keys, skip_nulls=True)
        if indices.null_count < best.null_count:
            best, best_way = indices, way
        if best.null_count == table_paths.null_count:
            break
    # Parent folders may have had other names, as data/ in exports of CVAT. At least one
    # folder must match, because 1.jpg may exist in any folder.
    for _ in range(_MAX_PARENTS if not best_way else 0):
        relative_paths = pc.replace_substring_regex(
            relative_paths, r"^/*[^/]+/(.*/)", r"\1"
        )
        best = pc.index_in(relative_paths, value_set=paths, skip_nulls=True)
        if best.is_valid().true_count:
            best_way = "relative to the input folder, without the first folders"
            break
    return pc.fill_null(best, -1).to_numpy().astype(np.int64), best_way


def _iterate_keys(
    images: Inventory, root: str, table: str
) -> Iterator[tuple[pa.StringArray, str]]:
    """Yields the keys of images for each way to match paths, and the way as text."""
    for keys, way in _iterate_paths(images, root, table):
        bare = pc.replace_substring_regex(keys, _ENDING, r"\1")
        for names, description in (keys, way), (bare, f"{way}, without their endings"):
            is_one_each = len(names.unique()) == len(names) - max(
                0, names.null_count - 1
            )
            if is_one_each or (names is keys and way.startswith("relative")):
                yield names, description


def _iterate_paths(
    images: Inventory, root: str, table: str
) -> Iterator[tuple[pa.StringArray, str]]:
    """Yields the paths of images relative to each possible base, and the way as text."""
    paths = images.paths.combine_chunks()
    input_folders = images.table["given_folder"].unique().to_pylist()
    folder = table.rpartition("/")[0] + "/"
    bases = {folder: "relative to the folder of the table"}
    bases.setdefault(root, "relative to the input folder")
    if len(input_folders) == 1:
        bases.setdefault(
            f"{root}{input_folders[0]}/", "relative to the folder of the files"
        )
    parent = root.rstrip("/").rpartition("/")[0]
    bases.setdefault(f"{parent}/", "relative to the folder above the input")
    for base, way in bases.items():
        if root.startswith(base):  # /data/ for images of /data/train/
            prefix = root.removeprefix(base)
            yield pc.binary_join_element_wise(prefix, paths, ""), way
        elif base.startswith(root):
            within = base.removeprefix(root)
            is_below = pc.starts_with(paths, within)
            relative_paths = pc.utf8_slice_codeunits(paths, len(within))
            yield pc.if_else(is_below, relative_paths, None), way
    yield base_names(paths), "the names of the files"
    # Tools that write boxes use paths below the only folder of images, or, if file names
    # repeat, below the folder of the table's split.
    folders = images.folders.dictionary.to_pylist()
    holders = {
        match[0]
        for image_folder in folders
        if (match := IMAGES_PARENT.match(image_folder))
    }
    word = split_word(table.rpartition("/")[2])
    split = [
        image_folder
        for image_folder in folders
        if word and split_word(image_folder) == word
    ]
    for base in (*(holders if len(holders) == 1 else ()), *sorted(split)):
        relative_paths = pc.utf8_slice_codeunits(paths, len(base) + 1)
        is_below = pc.starts_with(paths, f"{base}/")
        yield pc.if_else(is_below, relative_paths, None), f"relative to {base}"
