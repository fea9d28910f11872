"""Joins the annotations of images from folders, tables, names and lists into one table.

The table has a row for each image: its split, label and features, or the reason why it is
a reject. Rows of input tables that name no image follow the images. The columns of the
table are stored next to the inventory.
"""

from __future__ import annotations

import math
import re
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import (
    BY_FOLDER,
    CLASSES,
    InputReport,
    InputWarning,
)
from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.arrow import I64, count_values, offsets_of
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.encode.columns import inside_lists
from recordmill.transforms.images.objects import (
    BOX,
    OBJECT_LABEL,
    OBJECTS,
    numbers_in,
    with_numbers,
)
from recordmill.transforms.inventory import BATCH_FILES, NO_FILES, Inventory
from recordmill.transforms.sources.file_splits import AUTO, NONE, canonicalize_split
from recordmill.transforms.sources.images import find
from recordmill.transforms.sources.images.annotation_draft import (
    NO_OBJECTS,
    POSITION,
    PROBLEM,
    RAW,
    STATED_SIZES,
    AnnotationDraft,
    BoolArray,
    ImageRows,
    ObjectFiles,
    null_mask,
)
from recordmill.transforms.sources.images.options import (
    FileKind,
    FileOptions,
    ImagesOptions,
)
from recordmill.transforms.sources.images.tables import (
    FEATURE,
    LABEL,
    SPLIT,
    LabelMap,
    LabelTable,
    find_columns,
    is_json,
    label_cells,
    map_labels,
    read_label_map,
    read_list,
    read_tables,
    require_no_table,
    to_array,
)
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.temporary import gather_batches, take_batches

if TYPE_CHECKING:
    from recordmill.transforms.sources.images.pairs import PartnerFeature, Partners

# Further columns of the table.
# Prefix of the columns of partners, each with path, size and version of a file.
PARTNER_PREFIX = "partner "

CONVERT_AGAIN = "or convert all inputs again without `append`"


@dataclass(frozen=True)
class Annotations:
    """The images of an input, with the annotations of each."""

    # the images, grouped by split; then a table or list once for each of its rows that
    # names no image
    files: Inventory
    table: pa.Table  # a row for each file, with the columns above
    root: str = ""  # the prefix of every uri, before the path
    classes: tuple[str, ...] = ()  # class names; a label is an index into them
    splits: tuple[str, ...] = ()  # the splits of the images, if every image has one
    # the names of the features that some images lack
    optional_features: frozenset[str] = frozenset()
    facts: tuple[tuple[str, str], ...] = ()  # (name, text) for the input report
    warnings: tuple[InputWarning, ...] = ()  # probable mistakes in the input
    skipped_files: tuple[
        tuple[str, str], ...
    ] = ()  # (reason, path) of each skipped file
    # checksums of the tables and lists, and of the first bytes of files
    checksums: tuple[FileChecksum, ...] = ()
    partners: tuple[
        PartnerFeature, ...
    ] = ()  # features stored in a second file per image

    @property
    def label_type(self) -> pa.DataType | None:
        """Returns the type of the label numbers; None if images have no labels."""
        if LABEL not in self.table.column_names:
            return None
        has_several = pa.types.is_list(self.table.schema.field(LABEL).type)
        return pa.list_(pa.int64()) if has_several else pa.int64()

    @property
    def label_name(self) -> str:
        """Returns the name of the column with the label numbers."""
        return OBJECT_LABEL if self.has_objects else LABEL

    @cached_property
    def has_objects(self) -> bool:
        """Tests whether images have objects, each with a box and a label."""
        return FEATURE + BOX in self.table.column_names

    @property
    def features(self) -> dict[str, pa.DataType]:
        """Returns the features as a mapping from name to type."""
        return {
            field.name.removeprefix(FEATURE): field.type
            for field in self.table.schema
            if field.name.startswith(FEATURE)
        }

    @property
    def images(self) -> Inventory:
        """Returns the files that are images."""
        return self.files.filter(self.table[RAW].is_null())

    def without_files(self) -> Annotations:
        """Returns a copy without files and rows, for workers with an inventory file."""
        empty_table = self.table.schema.empty_table()
        return Annotations(
            *(
                NO_FILES,
                empty_table,
                self.root,
                self.classes,
                (),
                self.optional_features,
            ),
            partners=self.partners,
        )

    @cached_property
    def value_types(self) -> dict[str, pa.DataType]:
        """Returns the values of a reference as a mapping from name to type."""
        label_type = self.label_type
        kinds = {} if label_type is None else {self.label_name: label_type}
        kinds |= self.features
        return kinds | (
            dict.fromkeys(STATED_SIZES, pa.int64()) if self.has_objects else {}
        )

    def feature_specs(self) -> list[FeatureSpec]:
        """Returns the specs of the features that come from annotations."""
        if not (features := self.features):
            return []
        nulls = [int(name in self.optional_features) for name in features]
        plain = plain_schema(pa.schema(list(features.items())), nulls).features
        return [
            replace(spec, is_nested=self.has_objects and spec.name.startswith(OBJECTS))
            for spec in plain
        ]

    def build_columns(self, rows: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
        """Returns the columns of images, given the values of their references.

        Args:
          rows: for each image, the values in the order of `value_types`.
        """
        columns = {}
        for at, (name, kind) in enumerate(self.value_types.items()):
            cells = [row[at] for row in rows]
            is_packed = self.has_objects and is_number_list(kind)
            columns[name] = (
                unpack_numbers(cells, kind) if is_packed else pa.array(cells, kind)
            )
        if self.label_type is not None and not self.has_objects:
            names = pa.array(self.classes, pa.string())
            columns.setdefault("text", map_labels(columns[LABEL], names.take))
        return columns

    def reference_columns(self, table: pa.Table) -> dict[str, pa.Array]:
        """Returns the columns of rows of the table, with partners but without "text"."""
        columns = {}
        if LABEL in table.column_names:
            names = pa.array(self.classes, pa.string())
            columns[self.label_name] = map_labels(
                to_array(table[LABEL]),
                lambda labels: pc.index_in(labels, value_set=names).cast(pa.int64()),
            )
        columns |= {n: to_array(table[FEATURE + n]) for n in self.features}
        if self.has_objects:
            columns |= {n: to_array(table[n]) for n in STATED_SIZES}
        names = [PARTNER_PREFIX + partner.name for partner in self.partners]
        return columns | {name: to_array(table[name]) for name in names}

    def to_json_cells(self, column: pa.Array) -> list[Any]:
        """Returns the values of a column in the form that `columns` takes.

        Lists of numbers of objects are packed.
        """
        is_packed = self.has_objects and is_number_list(column.type)
        return pack_numbers(column) if is_packed else column.to_pylist()

    def partner_bytes(self, table: pa.Table) -> I64 | np.int64:
        """Returns the total size in bytes of the partners, for each row of the table."""
        columns = [table[PARTNER_PREFIX + partner.name] for partner in self.partners]
        sizes = (pc.fill_null(pc.struct_field(column, "size"), 0) for column in columns)
        return sum((partner_sizes.to_numpy() for partner_sizes in sizes), np.int64(0))

    def input_report(self, kind: FileKind) -> InputReport:
        """Returns the input report: facts, warnings and skipped files."""
        facts = list(self.facts)
        if self.label_type is None:
            facts.append((CLASSES, "none, because there are no labels"))
        else:
            counts = Counter[Any]()
            for batch in self.table.to_batches(BATCH_FILES):
                is_valid = pc.equal(batch[PROBLEM], "")
                counts.update(count_values(batch[LABEL].filter(is_valid)))
            class_counts = [f"{name} {counts[name]:,}" for name in self.classes]
            facts.append(
                (CLASSES, f"{len(class_counts):,} ({format_names(class_counts)})")
            )
        facts.append((f"{kind.noun}s", find.count_endings(self.images)))
        skipped = find.count_skipped(self.skipped_files, kind.noun)
        warnings = [
            InputWarning(
                kind.unsupported,
                f"{format_count(skipped_files.num_files, kind.noun)} skipped, such as {skipped_files.example}: "
                f"{skipped_files.reason}; save them as {kind.recommended_formats}",
            )
            for skipped_files in skipped
            if skipped_files.reason.endswith("not supported")
        ]
        return InputReport(tuple(facts), (*self.warnings, *warnings), skipped)


# Lists of numbers in references are packed: writing and reading 25 boxes takes 50 us as
# JSON, and 1 us as bytes in base64. The numbers of objects are never null.
#
#     [[0.5, 0.25, 1, 1]], of float32        "AAAAPwAAgD4AAIA/AACAPw=="


def is_number_list(kind: pa.DataType) -> bool:
    """Tests whether a type is a list of numbers, or of fixed-size lists of numbers."""
    leaf, _ = inside_lists(kind)
    return pt.is_list(kind) and (pt.is_primitive(leaf) and not pt.is_temporal(leaf))


def pack_numbers(column: pa.Array) -> list[str]:
    """Returns the bytes of each row's numbers, in base64."""
    packed_bytes = numbers_in(column.flatten()).tobytes()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    steps = offsets_of(lengths) * (len(packed_bytes) // max(1, lengths.sum()))
    return [
        b2a_base64(packed_bytes[a:b], newline=False).decode()
        for a, b in pairwise(steps)
    ]


def unpack_numbers(texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Returns the column that `pack` was given.

    Args:
      texts: the packed numbers of each row.
      kind: the type of the column.
    """
    leaf, shape = inside_lists(kind)
    dtype = pa.array([], leaf).to_numpy(zero_copy_only=False).dtype
    row_bytes = dtype.itemsize * math.prod(side or 1 for side in shape[1:])
    cells = [a2b_base64(text) for text in texts]
    numbers = np.frombuffer(b"".join(cells), dtype)
    offsets = offsets_of(np.array([len(cell) for cell in cells], np.int64) // row_bytes)
    list_elements = with_numbers(kind.value_type, numbers)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), list_elements)


NO_ANNOTATIONS = Annotations(NO_FILES, pa.table({SPLIT: pa.array([], pa.string())}))


def annotate_images(
    image_files: find.ImageFiles,
    named_inputs: find.NamedInputs,
    options: FileOptions,
    schema_columns: tuple[str, ...] | None,
    storage: StorageOptions,
    paired: Partners | None = None,
    *,
    is_new: bool = False,
) -> Annotations:
    """Joins the annotations of each image into one table.

    Args:
      image_files: the images, and the other files of the input.
      named_inputs: the files that options name.
      options: of the job.
      schema_columns: the columns that a declared schema uses; None without a schema.
      storage: options of the inputs' storage.
      paired: the partners of images; None if there are none.
      is_new: whether the input becomes a new dataset. If so, tables that no option names
        and annotation files in an unsupported format raise an error.
    """
    find.require_images(image_files, options.kind)
    is_guessed = options.finds_objects and options.finds_pairs
    if is_new and paired is not None and is_guessed:
        from recordmill.transforms.sources.images.object_files import (
            SAMPLED_FILES,
            require_supported_formats,
        )

        for pair in paired.pairs:
            if pair.kind == "json":
                require_supported_formats([*pair.files[:SAMPLED_FILES]], storage)
    objects = _find_objects(image_files, named_inputs, options, storage, is_new=is_new)
    has_objects = bool(objects.tables)
    option_updates = {}
    if options.finds_objects:
        option_updates["annotations"] = "found" if has_objects else NONE
    may_be_paired = options.finds_pairs and paired is None
    if may_be_paired:
        option_updates["pair"] = NONE
    if option_updates:
        options = options.model_copy(update=option_updates)
        options.require_consistent()
    if may_be_paired and not (has_objects or options.tables):
        from recordmill.transforms.sources.images.pairs import (
            require_no_masks_in_folder,
        )

        require_no_masks_in_folder(image_files.images)
    laid_out = image_files
    if paired is not None:
        images, options = paired.cut_image_folders(image_files.images, options)
        laid_out = find.ImageFiles(images, ())
    if is_new and options.labels_by_folder and options.label_from == AUTO:
        other_files = [file for file, _ in image_files.other_files]
        require_no_table(image_files.images, other_files, options.kind.noun, storage)
    layout, warnings = find.find_layout(laid_out.images, options)
    folders = laid_out.images.folders
    places = layout.find_labels(folders.dictionary.to_pylist())
    folder_indices = codes = folders.indices.to_numpy()
    images = image_files.images
    # If folders are the only annotations, the first image of a folder represents all.
    by_folder = not (options.has_annotations or paired or has_objects)
    if by_folder:
        codes = np.arange(len(places))
        images = images.take(pa.array(find.first_indices(folder_indices, len(places))))
    splits = np.array([place.split for place in places], np.object_)
    draft = AnnotationDraft(images, options, schema_columns, splits[codes])
    draft.warnings += (*warnings, *objects.warnings)
    draft.facts += objects.facts
    if options.labels_by_folder:
        labels = pa.array([place.label or None for place in places], pa.string())
        draft.labels = labels.take(pa.array(codes))
        draft.reject(null_mask(draft.labels), "is not in the folder of a class")
        if not options.label_map:
            find.require_distinct_names(places, draft.root)
        for files in (
            find.group_similar_classes(image_files.images, places)
            if may_be_paired
            else ()
        ):
            from recordmill.transforms.sources.images.pairs import (
                require_no_mask_classes,
            )

            require_no_mask_classes(files, draft.root, storage)
    if not options.has_annotations:
        draft.warnings += find.check_class_folders(layout, laid_out, options)
        if any(splits):
            numbers = np.bincount(folder_indices, minlength=len(places)).tolist()
            by_split = Counter[str]()
            for split, number in zip(splits.tolist(), numbers, strict=True):
                by_split[split] += number
            draft.facts.append((BY_FOLDER, _format_counts(by_split)))
    if options.label_pattern:
        _add_pattern_groups(draft)
    lists = [*named_inputs.get("split_lists", ()), *objects.split_lists]
    if paired is not None and not has_objects and options.split_level == AUTO:
        from recordmill.transforms.sources.images.voc_yolo import find_voc_lists

        lists += find_voc_lists(
            [file for file, _ in image_files.other_files], "Segmentation"
        )
    used = objects.used_paths.union(file.path for _, file in lists)
    if used:
        skipped_files = (
            file_and_reason
            for file_and_reason in image_files.other_files
            if file_and_reason[0].path not in used
        )
        image_files = image_files._replace(other_files=tuple(skipped_files))
    if table_files := named_inputs.get("label_table"):
        tables = read_tables(table_files, options, schema_columns, storage)
        elsewhere = "split_lists" in named_inputs or any(splits)
        _add_tables(draft, tables, splits_elsewhere=elsewhere)
    if has_objects:
        _add_objects(draft, objects.tables)
    if lists:
        splits_before = draft.splits.copy()
        _add_lists(
            draft, [read_list(*split_and_file, storage) for split_and_file in lists]
        )
        if is_new:
            _require_one_split(draft, splits_before, lists)
    maps = [
        read_label_map(file, storage) for _, file in named_inputs.get("label_map", ())
    ]
    draft.checksums += [
        checksum for label_map in maps for checksum in label_map.checksums
    ]
    partners: tuple[PartnerFeature, ...] = ()
    if paired is not None:
        partners, unmatched_files = paired.add_to(
            draft, storage, has_objects=has_objects
        )
        image_files = image_files._replace(
            other_files=(*image_files.other_files, *unmatched_files)
        )
    annotations = _build_annotations(
        draft, image_files, maps[0] if maps else None, objects.classes
    )
    annotations = replace(annotations, partners=partners)
    if by_folder:
        rows = gather_batches(
            take_batches(annotations.table, folder_indices), annotations.table.schema
        )
        annotations = replace(annotations, files=image_files.images, table=rows)
    return annotations


def _find_objects(
    image_files: find.ImageFiles,
    named_inputs: find.NamedInputs,
    options: FileOptions,
    storage: StorageOptions,
    *,
    is_new: bool,
) -> ObjectFiles:
    """Finds the objects of the images, in named files or by the content of files."""
    annotation_files = named_inputs.get("annotations", ())
    other_files = [file for file, _ in image_files.other_files]
    endings = (".json", ".xml", ".yaml", ".yml", ".names", ".labels", ".txt")
    may_have = options.finds_objects and any(
        file.path.lower().endswith(endings) for file in other_files
    )
    if not (annotation_files or may_have) or not isinstance(options, ImagesOptions):
        return NO_OBJECTS
    # Imported only for inputs that may have objects.
    from recordmill.transforms.sources.images.object_files import find_objects

    images = image_files.images
    return find_objects(
        annotation_files, other_files, images, options, storage, is_new=is_new
    )


def _format_counts(numbers: Mapping[str, int]) -> str:
    return format_names([f"{name or 'no split'} {n:,}" for name, n in numbers.items()])


def _add_pattern_groups(draft: AnnotationDraft) -> None:
    """Adds the labels, splits and features that `label_pattern` finds in image names."""
    pattern = draft.options.label_pattern
    expression = re.compile(pattern)
    by_path = "/" in pattern
    paths = draft.images.paths.to_pylist()
    names = paths if by_path else [path.rpartition("/")[2] for path in paths]
    # A loop, because users write and test Python's regular expressions; 1 us per name.
    matches = [expression.fullmatch(name) for name in names]
    if not any(matches):
        raise InputError(
            f"{draft.images[0].uri}: does not match `label_pattern` {pattern!r}, and no "
            f"other {draft.noun} does; expected an expression for all of {names[0]!r}, such as "
            r"(?P<label>[^_]+)_.*\.jpg (with / in it, for the path below the input folder)"
        )
    groups = {
        name: pa.array([m and m[name] for m in matches], pa.string())
        for name in expression.groupindex
    }
    without = np.array([match is None for match in matches])
    draft.mark_unlisted(without, "its name does not match `label_pattern`")
    if "label" in groups:
        draft.labels = label_cells(groups.pop("label"), draft.options.label_separator)
        reason = "`label_pattern` matches no label in its name"
        draft.reject(null_mask(draft.labels) & ~without, reason)
    if "split" in groups:
        draft.splits[:] = groups.pop("split").fill_null("").to_pylist()
        draft.facts.append(("splits", "by `label_pattern`"))
    if reserved_groups := groups.keys() & draft.options.reserved_names:
        raise InputError(
            f"`label_pattern`: the group {min(reserved_groups)!r} has the name of a feature of "
            f"the {draft.noun}s: rename it"
        )
    draft.facts.append(("names", f"by the pattern {pattern}"))
    draft.add_features(groups, are_text=draft.schema_columns is None)


def _join_tables(
    draft: AnnotationDraft,
    tables: Sequence[LabelTable],
    noun: str,
    *,
    become_lists: bool,
) -> tuple[ImageRows, dict[str, pa.Array], list[tuple[I64, str]], str]:
    """Adds the labels and splits of table rows; column "path" names the image of a row.

    Returns:
      The rows of each image; the other columns, with a cell for each row of all tables;
        for each table the image indices of its rows and how its paths were matched; the
        names of the tables, as text.
    """
    matched = [draft.match_rows(table, noun) for table in tables]
    names = format_names([table.file.path for table in tables], 3)
    images = np.concatenate([indices for indices, _ in matched])
    rows = ImageRows.from_images(images, len(draft.images), become_lists=become_lists)
    row_noun, tables_noun = ("line", "lists") if noun == "line" else ("row", "tables")
    draft.mark_unlisted(rows.counts == 0, f"no {row_noun} of {names} names it")
    parts = [table.rows for table in tables]
    joined = pa.concat_tables(parts, promote_options="default").drop_columns("path")
    cells = {name: to_array(joined[name]) for name in joined.column_names}
    if (labels_of := cells.pop(LABEL, None)) is not None:
        draft.labels = rows.cells_of(labels_of)
        reason = f"its row of {names} has no label: add it"
        draft.reject(rows.has_any(null_mask(labels_of)), reason)
    if (splits_of := cells.pop(SPLIT, None)) is not None:
        splits = np.array(splits_of.fill_null("").to_pylist(), np.object_)
        listed = rows.first_rows >= 0
        draft.splits[listed] = splits[rows.first_rows[listed]]
        image_splits = np.full(len(splits), "", np.object_)
        image_splits[rows.rows_by_image] = np.repeat(draft.splits, rows.counts)
        way_out = "assign one split"
        if any(table.split for table in tables):
            way_out = f"keep it in only one of these {tables_noun}"
        reason = f"its {noun}s of {names} put it into several splits: {way_out}"
        draft.reject(rows.has_any(splits != image_splits), reason)
    return rows, cells, matched, names


def _add_tables(
    draft: AnnotationDraft,
    label_tables: Sequence[LabelTable],
    *,
    splits_elsewhere: bool,
) -> None:
    """Adds the labels, splits and features of tables, after concatenating their rows."""
    elsewhere = splits_elsewhere or any(table.split for table in label_tables)
    columns = [
        find_columns(table, draft.options, splits_elsewhere=elsewhere)
        for table in label_tables
    ]
    tables = [
        table.select_columns(table_columns, draft.options)
        for table, table_columns in zip(label_tables, columns, strict=True)
    ]
    become_lists = draft.options.table_rows == "object"
    rows, cells, matched, names = _join_tables(
        draft, tables, "row", become_lists=become_lists
    )
    for number in () if become_lists else np.unique(rows.counts).tolist():
        if number > 1:
            draft.reject(
                rows.counts == number,
                f"{number:,} rows of {names} name it, expected one: join them into one "
                "row, with lists for columns with several values, or use "
                "`table_rows=object`",
            )
    for table, table_columns, (images, way) in zip(
        tables, columns, matched, strict=True
    ):
        labels = (
            f"labels in column {table_columns.label!r}"
            if table_columns.label
            else "no labels"
        )
        fact = (
            f"{format_count(len(images), 'row')}, {np.count_nonzero(images >= 0):,} of files; "
            f"paths in column {table_columns.path!r}, {way}; {labels}"
        )
        draft.facts.append((f"table {table.file.path}", fact))
    first = tables[0]
    if SPLIT in first.rows.column_names:
        by_split = "table" if first.split else f"column {columns[0].split!r}"
        draft.facts.append(("splits", f"by {by_split}"))
    features = {name.removeprefix(FEATURE): column for name, column in cells.items()}
    # An imagefolder has boxes under the same column name as COCO, but may use pixels.
    reserved = {*draft.options.reserved_names, BOX}
    for name in [name for name in features if name in reserved]:
        del features[name]
        draft.warn(
            "reserved-column",
            f"column {name!r} of {first.file.path} is left out: the {draft.noun}s have a "
            "feature of this name. Rename the column to keep it",
        )
    are_text = (draft.schema_columns is None or become_lists) and not is_json(
        first.file
    )
    draft.add_features(features, rows, are_text=are_text)


def _add_objects(draft: AnnotationDraft, tables: Sequence[LabelTable]) -> None:
    """Adds the objects of images, as lists for each image, and the stated image sizes."""
    rows, cells, matched, names = _join_tables(
        draft, tables, "image", become_lists=False
    )
    for table, (_, way) in zip(tables, matched, strict=True):
        draft.facts.append((f"annotations {table.file.path}", f"paths are {way}"))
    if (max_rows := int(rows.counts.max())) > 1:
        path = draft.images[int(np.argmax(rows.counts))].path
        raise InputError(
            f"{draft.root}: {names} have {path} {format_count(max_rows, 'time')}, expected each "
            "image once: name the files to use in `annotations`"
        )
    problems = rows.cells_of(cells.pop(PROBLEM)).fill_null("").to_pylist()
    draft.problems = np.where(draft.problems == "", problems, draft.problems)
    draft.stated_sizes = {name: rows.cells_of(cells.pop(name)) for name in STATED_SIZES}
    boxes = rows.cells_of(cells[FEATURE + BOX])
    numbers = pc.fill_null(pc.list_value_length(boxes), -1).to_numpy()
    empty = (numbers == 0) & (draft.problems == "")
    if getattr(draft.options, "without_objects", "") == "leave_out":
        draft.left_out_reasons[empty] = "no objects in it"
    without = format_count(int(np.count_nonzero(empty)), "image")
    total = format_count(int(numbers.clip(0).sum()), "object")
    draft.facts.append(("objects", f"{total}; {without} without any"))
    features = {name.removeprefix(FEATURE): column for name, column in cells.items()}
    draft.add_features(features, rows, are_text=False)


def _add_lists(draft: AnnotationDraft, lists: Sequence[LabelTable]) -> None:
    """Adds the splits of images from lists of image paths."""
    _, _, matched, _ = _join_tables(draft, lists, "line", become_lists=False)
    for split_list, (images, way) in zip(lists, matched, strict=True):
        number = len(np.unique(images[images >= 0]))
        fact = f"{format_count(number, draft.noun)} of split {split_list.split}, {way}"
        draft.facts.append((f"list {split_list.file.path}", fact))


def _require_one_split(
    draft: AnnotationDraft,
    splits_before: BoolArray,
    lists: Sequence[tuple[str, InputFile]],
) -> None:
    """Raises InputError if a list and a folder or table disagree on an image's split."""
    is_valid = draft.problems == ""
    for folder_split, listed_split in product(
        sorted({*splits_before} - {""}), sorted({*draft.splits})
    ):
        is_conflict = (
            (splits_before == folder_split) & (draft.splits == listed_split) & is_valid
        )
        if (
            canonicalize_split(folder_split) != canonicalize_split(listed_split)
            and is_conflict.any()
        ):
            names = format_names([file.path for _, file in lists], len(lists))
            raise InputError(
                f"{draft.images[int(np.argmax(is_conflict))].uri}: is in the split {folder_split} by "
                f"its folder or table, but in {listed_split} by a list of splits; expected "
                f"one. Leave out {names} with `exclude`, or use `split_from=none` for "
                "one split"
            )


def _build_annotations(
    draft: AnnotationDraft,
    image_files: find.ImageFiles,
    label_map: LabelMap | None,
    classes: tuple[str, ...],
) -> Annotations:
    """Sorts the images by split, and returns them with their annotations.

    Labels are numbered by `label_map`, else by `classes`, else by sorted class names.
    """
    options = draft.options
    unlisted = np.flatnonzero(draft.unlisted_reasons != "")
    if options.unlisted == "leave_out":
        draft.left_out_reasons[unlisted] = draft.unlisted_reasons[unlisted]
    elif len(unlisted):
        draft.problems[unlisted] = draft.unlisted_reasons[unlisted]
        first = int(unlisted[0])
        pair = (
            ", or leave out the folder of the other files with `exclude`"
            if draft.partners
            else ""
        )
        if pair and getattr(options, "pair", "") == "auto":
            pair += (
                "; if the folder does not contain their masks or texts, use `pair=none`"
            )
        draft.warn(
            options.kind.unlisted,
            f"{format_count(len(unlisted), draft.noun)} will be rejected, such as "
            f"{draft.images[first].path}: {draft.unlisted_reasons[first]}. Use "
            f"`unlisted=leave_out` to leave them out{pair}",
        )
    is_kept = draft.left_out_reasons == ""
    paths = draft.images.paths.filter(pa.array(~is_kept)).to_pylist()
    skipped = [*zip(draft.left_out_reasons[~is_kept].tolist(), paths, strict=True)]
    valid = is_kept & (draft.problems == "")
    classes = _number_labels(draft, valid, label_map, classes)
    if not is_kept.any():
        raise InputError(
            f"{draft.root}: all {len(draft.images):,} {draft.noun}s were left out: "
            f"{skipped[0][0]}"
        )
    splits = _check_splits(draft, valid)
    order = np.flatnonzero(is_kept)
    if options.has_annotations:
        by_split = Counter(draft.splits[valid].tolist())
        keys = pa.array(draft.splits[order], pa.string())
        order = order[pc.array_sort_indices(keys).to_numpy()]  # a stable sort
        if set(by_split) - {""}:
            split_counts = _format_counts(dict(sorted(by_split.items())))
            draft.facts.append((f"{draft.noun}s by split", split_counts))
    # Images are usually in order already; the columns are shared then.
    is_same = len(order) == len(draft.images) and (np.diff(order) == 1).all()
    files = draft.images if is_same else draft.images.take(pa.array(order))
    files += Inventory.from_files(
        InputFile(reject.path, draft.root + reject.path, 0, problem=reject.reason)
        for reject in draft.rejects
    )
    is_valid = pa.array(valid)
    features = draft.features.items()
    return Annotations(
        files,
        _build_table(draft, order),
        draft.root,
        classes,
        splits,
        frozenset(n for n, column in features if column.filter(is_valid).null_count),
        tuple(draft.facts),
        tuple(draft.warnings),
        (*skipped, *((reason, file.path) for file, reason in image_files.other_files)),
        (*draft.checksums, *image_files.signatures),
    )


def _number_labels(
    draft: AnnotationDraft,
    valid: BoolArray,
    label_map: LabelMap | None,
    known_names: tuple[str, ...],
) -> tuple[str, ...]:
    """Returns the classes in label order; applies the label map to labels."""
    labels = draft.labels
    if labels is None:
        return ()
    if not draft.options.has_annotations:  # folders
        return find.sort_classes(labels.drop_null().to_pylist())
    names = list(count_values(labels.filter(pa.array(valid))))
    if label_map is None:
        if known_names:
            assert {*known_names}.issuperset(names), names  # as many labels as boxes
            return known_names
        if not names and valid.any():
            raise InputError(f"{draft.root}: no {draft.noun} has a label")
        classes = find.sort_classes(names)
        numbers = map(int, classes) if all(map(find.is_whole_number, classes)) else ()
        gap_index = next(
            (at for at, number in enumerate(numbers) if at != number), None
        )
        if gap_index is not None:
            draft.warn(
                "renumbered-labels",
                "the classes are numbers that are not consecutive from 0: class "
                f"{classes[gap_index]!r} gets the label {gap_index}. Name them with `label_map`, "
                "or use `label_column=none` to keep the numbers of a table unchanged",
            )
        return classes
    uri, class_of = label_map.uri, label_map.class_by_label
    for name in names:
        if name not in class_of:
            first = next(
                index
                for index, row in enumerate(labels.to_pylist())
                if valid[index] and name in (row if isinstance(row, list) else [row])
            )
            raise InputError(
                f"{draft.images[first].path}: its label {shorten(name)} is not in {uri}, "
                f"which has {format_names(list(class_of))}: add it there"
            )
    if label_map.first_renumbering:
        draft.warn(
            "renumbered-labels",
            f"the numbers of {uri} are not consecutive from 0 "
            f"({label_map.first_renumbering}): the labels of the dataset do, in the same "
            "order",
        )
    known_names, classes_of = (
        pa.array(list(texts), pa.string()) for texts in (class_of, class_of.values())
    )
    draft.labels = map_labels(
        labels,
        lambda label_array: classes_of.take(
            pc.index_in(label_array, value_set=known_names)
        ),
    )
    counts = count_values(draft.labels.filter(pa.array(valid)))
    if empty := [name for name in label_map.classes if not counts[name]]:
        draft.warn(
            "unused-class",
            f"no {draft.noun} has the label {format_names(empty)}, which `label_map` names",
        )
    return label_map.classes


def _check_splits(draft: AnnotationDraft, valid: BoolArray) -> tuple[str, ...]:
    """Returns the splits if every valid image has one; assigns rejects to the first."""
    hint = "use `table_split_column=none` if that column does not contain splits"
    if not draft.options.has_annotations:
        valid = np.ones(len(valid), np.bool_)
        hint = "set `split_from` to another level"
    counts = Counter(draft.splits[valid].tolist())
    names = sorted(counts.keys() - {""}, key=lambda name: (name != "train", name))
    for name in names:
        if not SPLIT_PATTERN.fullmatch(name):
            # A list, because NumPy's == ignores a NUL at the end of a text.
            first = draft.images[draft.splits.tolist().index(name)].path
            raise InputError(
                f"{first}: is in the split {shorten(name)}, expected letters, digits, '_' "
                f"and '-': rename it, or {hint}"
            )
    if len(names) > MAX_SPLITS:
        raise InputError(
            f"{draft.root}: its files are in {len(names):,} splits, expected at most "
            f"{MAX_SPLITS}: {hint}"
        )
    names = [] if counts[""] else names
    draft.splits[~valid] = names[0] if names else ""
    return tuple(names)


def _build_table(draft: AnnotationDraft, order: I64) -> pa.Table:
    """Returns the table of the images in the given order, followed by rejected rows."""
    rejects, size = draft.rejects, len(order)
    at = pa.concat_arrays([pa.array(order), pa.nulls(len(rejects), pa.int64())])
    splits, problems = (
        pa.array(texts, pa.string()).take(at)
        for texts in (draft.splits, draft.problems)
    )
    places = np.zeros(size + len(rejects), np.int64)
    places[size:] = [reject.position for reject in rejects]
    raw = pa.array([reject.raw for reject in rejects], pa.binary())
    more_columns = {} if draft.labels is None else {LABEL: draft.labels}
    more_columns |= {FEATURE + name: column for name, column in draft.features.items()}
    more_columns |= draft.stated_sizes
    more_columns |= {
        PARTNER_PREFIX + name: column for name, column in draft.partners.items()
    }
    return pa.table(
        {
            SPLIT: splits.fill_null(draft.splits[order[-1]]),
            PROBLEM: problems.fill_null(""),
            POSITION: pa.array(places),
            RAW: pa.concat_arrays([pa.nulls(size, pa.binary()), raw]),
            **{name: column.take(at) for name, column in more_columns.items()},
        }
    )


def annotate_append(
    annotations_before: Annotations,
    all_annotations: Annotations,
    new_paths: pa.ChunkedArray,
    schema: Schema | None,
) -> Annotations:
    """Returns the annotations of the images that an append adds to a dataset.

    Args:
      annotations_before: the images of the dataset, annotated by the dataset's files.
      all_annotations: the images of dataset and append, annotated by all files.
      new_paths: the paths of the files that the append adds.
      schema: of the dataset. If given, a new image that lacks a required feature is
        rejected.
    """
    is_new = pc.is_in(all_annotations.files.paths, value_set=new_paths)
    if all_annotations.has_objects and not annotations_before.has_objects:
        raise InputError(
            f"{all_annotations.root}: the new files have objects in images ({all_annotations.facts[0][1]}), but "
            "the dataset has none. Leave their files out with `exclude`, "
            + CONVERT_AGAIN
        )
    _require_unchanged(annotations_before, all_annotations, pc.invert(is_new))
    files, table = (
        all_annotations.files.filter(is_new),
        all_annotations.table.filter(is_new),
    )
    labels = table[LABEL].to_pylist() if all_annotations.label_type is not None else ()
    known_labels = {*annotations_before.classes, None}
    for file, row in zip(files, labels, strict=False):
        if new_labels := {*(row if isinstance(row, list) else [row])} - known_labels:
            raise InputError(
                f"{file.uri}: {min(new_labels)!r} is a new class; the dataset has "
                f"{format_names(list(annotations_before.classes))}, and its labels are positions in "
                f"that list. Use one of these labels, {CONVERT_AGAIN}"
            )
    listed_paths = {*new_paths.to_pylist()} if all_annotations.skipped_files else ()
    # New images must have every feature that all images of the dataset have.
    required = (
        set(all_annotations.features) - annotations_before.optional_features
        if schema is not None
        else ()
    )
    problems = table[PROBLEM]
    for name in sorted(required):
        lacks = pc.and_(pc.is_null(table[FEATURE + name]), pc.equal(problems, ""))
        reason = f"column {name!r}: has no value, but all other rows of the dataset do"
        problems = pc.if_else(lacks, reason, problems)
    table = table.set_column(table.column_names.index(PROBLEM), PROBLEM, problems)
    return replace(
        all_annotations,
        files=files,
        table=table,
        classes=annotations_before.classes,
        optional_features=annotations_before.optional_features,
        partners=annotations_before.partners,
        skipped_files=tuple(
            reason_and_path
            for reason_and_path in all_annotations.skipped_files
            if reason_and_path[1] in listed_paths
        ),
    )


def _require_unchanged(
    annotations_before: Annotations,
    all_annotations: Annotations,
    is_kept: pa.ChunkedArray,
) -> None:
    """Raises InputError if new files change the annotations of a dataset's images."""
    partners = [
        PARTNER_PREFIX + partner.name for partner in annotations_before.partners
    ]
    of_both = annotations_before.features.items() & all_annotations.features.items()
    names = {SPLIT, LABEL, PROBLEM, *partners, *(FEATURE + name for name, _ in of_both)}
    names &= {*annotations_before.table.column_names}

    def select_rows(
        image_annotations: Annotations, is_selected: pa.ChunkedArray
    ) -> pa.Table:
        rows = image_annotations.table.select(sorted(names)).append_column(
            "path", image_annotations.files.paths
        )
        return rows.filter(pc.and_(is_selected, image_annotations.table[RAW].is_null()))

    tables = (
        select_rows(annotations_before, annotations_before.table[RAW].is_null()),
        select_rows(all_annotations, is_kept),
    )
    if tables[0].equals(tables[1]):  # both tables have the images in the same order
        return
    old_rows, new_rows = (
        {row["path"]: row for row in table.to_pylist()} for table in tables
    )
    for path in {**old_rows, **new_rows}:
        if path not in old_rows:
            raise InputError(
                f"{path}: is not in the dataset, but the new files name it: convert "
                "all inputs again without `append`"
            )
        was, becomes = (
            _describe_place(rows_by_path.get(path, old_rows[path]))
            for rows_by_path in (old_rows, new_rows)
        )
        problem = "the new files change its annotations in the dataset"
        if was != becomes:
            problem = f"is {was} in the dataset, but with the new files it is {becomes}"
        if repr(old_rows[path]) != repr(new_rows.get(path)):  # repr, because NaN != NaN
            raise InputError(
                f"{annotations_before.root}{path}: {problem}. Use the same folders for new files, "
                "name only new files in new tables and lists, " + CONVERT_AGAIN
            )


def _describe_place(row: Mapping[str, Any]) -> str:
    split = f" of split {row[SPLIT]!r}" if row[SPLIT] else ""
    return f"in class {row.get(LABEL) or ''!r}{split}"
