"""Joins what folders, tables, names and lists have on images into one table.

The table has a row for each image: its split, its label, its features, or why it is a
reject. Rows of tables that name no image come behind them. Its columns are kept beside
the inventory.
"""

from __future__ import annotations

import math
import re
from binascii import a2b_base64, b2a_base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import (
    BY_FOLDER,
    CLASSES,
    InputSummary,
    InputWarning,
    WarningCode,
)
from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN
from recordmill.schemas.ranges import Reject
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import a_or_an, count, first_names
from recordmill.transforms.arrow import I64, count_values, offsets_of
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.encode.columns import inside_lists
from recordmill.transforms.images.objects import (
    BOX,
    OBJECT_LABEL,
    OBJECTS,
    numbers_in,
    with_numbers,
)
from recordmill.transforms.inventory import BATCH_FILES, NO_FILES, Inventory
from recordmill.transforms.sources.file_splits import AUTO, NONE, meant
from recordmill.transforms.sources.images import find
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
    describe_types,
    each_label,
    find_columns,
    is_json,
    label_cells,
    match_paths,
    one_array,
    read_label_map,
    read_list,
    read_tables,
    require_no_table,
    text_cells,
    typed_features,
)
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.sources.plain_types import plain_schema
from recordmill.transforms.temporary import gather, take_batches

if TYPE_CHECKING:
    from recordmill.transforms.sources.images.pairs import Paired, Partner

# More columns of the table.
PROBLEM, AT, RAW = "rejected", "at", "raw"
# The sizes that files of objects state, null where they state none.
STATED = ("stated height", "stated width")
PARTNER = "partner "  # begins those of partners: path, size and version of a file

CONVERT_AGAIN = "or convert everything again without appending"

Where = npt.NDArray[Any]


@dataclass(frozen=True)
class Annotations:
    """The images of an input, and what is known of each."""

    # the images, those of a split together; then tables and lists, once for each of their
    # rows that names no image
    files: Inventory
    table: pa.Table  # a row for each, with the columns above
    root: str = ""  # what every uri begins with, before the path
    classes: tuple[str, ...] = ()  # the names that labels count
    splits: tuple[str, ...] = ()  # those that the images are in, if each is in one
    # the names of the features that some images lack
    optional: frozenset[str] = frozenset()
    facts: tuple[tuple[str, str], ...] = ()  # what was found
    warnings: tuple[InputWarning, ...] = ()  # what looks wrong
    skipped: tuple[tuple[str, str], ...] = ()  # (reason, path) of the other files
    # of the tables and lists, and of first bytes that were read
    checksums: tuple[FileChecksum, ...] = ()
    partners: tuple[Partner, ...] = ()  # what belongs to each image, in another file

    @property
    def label_type(self) -> pa.DataType | None:
        """Returns the type of the numbers of labels; None without labels."""
        if LABEL not in self.table.column_names:
            return None
        has_several = pa.types.is_list(self.table.schema.field(LABEL).type)
        return pa.list_(pa.int64()) if has_several else pa.int64()

    @property
    def label_name(self) -> str:
        """Returns the name of the column with the numbers of labels."""
        return OBJECT_LABEL if self.has_objects else LABEL

    @cached_property
    def has_objects(self) -> bool:
        """Tests whether images have objects, each with a box and a label."""
        return FEATURE + BOX in self.table.column_names

    @property
    def features(self) -> dict[str, pa.DataType]:
        """Returns names and types of the features."""
        return {
            each.name.removeprefix(FEATURE): each.type
            for each in self.table.schema
            if each.name.startswith(FEATURE)
        }

    @property
    def images(self) -> Inventory:
        """Returns the files that are images."""
        return self.files.where(self.table[RAW].is_null())

    def without_files(self) -> Annotations:
        """Returns what workers need once files and table are in an inventory file."""
        kept = self.table.schema.empty_table()
        return Annotations(
            *(NO_FILES, kept, self.root, self.classes, (), self.optional),
            partners=self.partners,
        )

    @cached_property
    def value_types(self) -> dict[str, pa.DataType]:
        """Returns names and types of the values that references have."""
        label_type = self.label_type
        kinds = {} if label_type is None else {self.label_name: label_type}
        kinds |= self.features
        return kinds | (dict.fromkeys(STATED, pa.int64()) if self.has_objects else {})

    def specs(self) -> list[FeatureSpec]:
        """Returns the features that images do not have by themselves."""
        if not (features := self.features):
            return []
        nulls = [int(name in self.optional) for name in features]
        plain = plain_schema(pa.schema(list(features.items())), nulls).features
        return [
            replace(each, nested=self.has_objects and each.name.startswith(OBJECTS))
            for each in plain
        ]

    def columns(self, rows: Sequence[Sequence[Any]]) -> dict[str, pa.Array]:
        """Returns the columns of images with these values, as references have them."""
        found = {}
        for at, (name, kind) in enumerate(self.value_types.items()):
            values = [row[at] for row in rows]
            is_packed = self.has_objects and is_of_numbers(kind)
            found[name] = unpack(values, kind) if is_packed else pa.array(values, kind)
        if self.label_type is not None and not self.has_objects:
            names = pa.array(self.classes, pa.string())
            found.setdefault("text", each_label(found[LABEL], names.take))
        return found

    def listed(self, table: pa.Table) -> dict[str, pa.Array]:
        """Returns the same of rows of the table, without "text", and their partners."""
        found = {}
        if LABEL in table.column_names:
            names = pa.array(self.classes, pa.string())
            found[self.label_name] = each_label(
                one_array(table[LABEL]),
                lambda labels: pc.index_in(labels, value_set=names).cast(pa.int64()),
            )
        found |= {n: one_array(table[FEATURE + n]) for n in self.features}
        if self.has_objects:
            found |= {n: one_array(table[n]) for n in STATED}
        names = [PARTNER + each.name for each in self.partners]
        return found | {name: one_array(table[name]) for name in names}

    def to_write(self, column: pa.Array) -> list[Any]:
        """Returns the values of such a column as `columns` takes them, of objects packed."""
        is_packed = self.has_objects and is_of_numbers(column.type)
        return pack(column) if is_packed else column.to_pylist()

    def partner_bytes(self, table: pa.Table) -> I64 | np.int64:
        """Returns the bytes of all partners of each row of the table."""
        columns = [table[PARTNER + each.name] for each in self.partners]
        sizes = (pc.fill_null(pc.struct_field(each, "size"), 0) for each in columns)
        return sum((each.to_numpy() for each in sizes), np.int64(0))

    def summary(self, kind: FileKind) -> InputSummary:
        """Returns what was found, for users."""
        facts = list(self.facts)
        if self.label_type is None:
            facts.append((CLASSES, "none, as there are no labels"))
        else:
            counts = Counter[Any]()
            for batch in self.table.to_batches(BATCH_FILES):
                is_valid = pc.equal(batch[PROBLEM], "")
                counts.update(count_values(batch[LABEL].filter(is_valid)))
            found = [f"{name} {counts[name]:,}" for name in self.classes]
            facts.append((CLASSES, f"{len(found):,} ({first_names(found)})"))
        facts.append((f"{kind.noun}s", find.count_endings(self.images)))
        skipped = find.count_skipped(self.skipped, kind.noun)
        warnings = [
            InputWarning(
                kind.unsupported,
                f"{count(each.files, kind.noun)} skipped, such as {each.example}: "
                f"{each.reason}; save them as {kind.usual}",
            )
            for each in skipped
            if each.reason.endswith("not supported")
        ]
        return InputSummary(tuple(facts), (*self.warnings, *warnings), skipped)


# Lists of numbers are packed where they travel with references: 25 boxes as JSON take 50 us
# to write and to read, their bytes as base64 take 1 us. Objects have no value that is
# missing.
#
#     [[0.5, 0.25, 1, 1]], of float32        "AAAAPwAAgD4AAIA/AACAPw=="


def is_of_numbers(kind: pa.DataType) -> bool:
    """Tests whether values are lists, of numbers or of fixed lists of these."""
    leaf, _ = inside_lists(kind)
    return pt.is_list(kind) and (pt.is_primitive(leaf) and not pt.is_temporal(leaf))


def pack(column: pa.Array) -> list[str]:
    """Returns the bytes of each row's numbers, in base64."""
    data = numbers_in(column.flatten()).tobytes()
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    steps = offsets_of(lengths) * (len(data) // max(1, lengths.sum()))
    return [b2a_base64(data[a:b], newline=False).decode() for a, b in pairwise(steps)]


def unpack(texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    """Returns the column that `pack` took."""
    leaf, shape = inside_lists(kind)
    dtype = pa.array([], leaf).to_numpy(zero_copy_only=False).dtype
    row_bytes = dtype.itemsize * math.prod(side or 1 for side in shape[1:])
    cells = [a2b_base64(text) for text in texts]
    numbers = np.frombuffer(b"".join(cells), dtype)
    offsets = offsets_of(np.array([len(cell) for cell in cells], np.int64) // row_bytes)
    values = with_numbers(kind.value_type, numbers)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


NO_ANNOTATIONS = Annotations(NO_FILES, pa.table({SPLIT: pa.array([], pa.string())}))


@dataclass
class _Draft:
    """What is known of each image so far.

    "" stands for no split, no problem, of `unlisted` for an image that is named, and of
    `left_out` for one that stays. The names of labels are those of the input; rejects are
    rows that name no image.
    """

    images: Inventory
    options: FileOptions
    wanted: tuple[str, ...] | None
    splits: npt.NDArray[np.object_]
    problems: npt.NDArray[np.object_] = field(init=False)
    unlisted: npt.NDArray[np.object_] = field(init=False)
    left_out: npt.NDArray[np.object_] = field(init=False)
    stated: dict[str, pa.Array] = field(default_factory=dict)
    labels: pa.Array | None = None
    features: dict[str, pa.Array] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[InputWarning] = field(default_factory=list)
    checksums: list[FileChecksum] = field(default_factory=list)
    partners: dict[str, pa.StructArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = len(self.images)
        self.problems, self.unlisted, self.left_out = (
            np.full(size, "", np.object_) for _ in range(3)
        )
        self.root, self.noun = input_root(self.images), self.options.kind.noun

    def reject(self, where: Where, reason: str) -> None:
        """Rejects images that are no rejects yet."""
        self.problems[where & (self.problems == "")] = reason

    def warn(self, code: WarningCode, message: str) -> None:
        self.warnings.append(InputWarning(code, message))

    def leave_unlisted(self, where: Where, reason: str) -> None:
        """Keeps why nothing names these images."""
        self.unlisted[where & (self.unlisted == "")] = reason

    def add_features(
        self,
        columns: dict[str, pa.Array],
        rows: _ImageRows | None = None,
        *,
        are_text: bool,
    ) -> None:
        """Adds columns of images or of rows; text gets the types that its cells have."""
        if are_text:
            columns, facts, warnings = typed_features(columns)
            self.facts += facts
            self.warnings += warnings
        if rows is not None:
            for name, column in columns.items() if rows.become_lists else ():
                self.reject(
                    rows.with_any(_is_null(column)),
                    f"a row of it has no value in column {name!r}, which a list needs: "
                    "add it, or leave out the column",
                )
            columns = {name: rows.values_of(each) for name, each in columns.items()}
        self.features |= columns
        if columns:
            self.facts.append(("features", describe_types(columns)))

    def match(self, table: LabelTable, noun: str) -> tuple[I64, str]:
        """Returns the index of each row's image, or -1, and how paths are read, in words.

        Rows without an image become rejects.
        """
        file = table.file
        paths = text_cells(table.rows["path"])
        indices, way = match_paths(paths, self.images, self.root, file.uri)
        missing = np.flatnonzero(indices < 0).tolist()
        if len(missing) == len(paths):
            named = paths.drop_null()
            example = shown(named[0].as_py()) if len(named) else "no path"
            raise InputError(
                f"{file.uri}: none of {count(len(paths), noun)} names an "
                f"{self.noun}; the first has {example}, expected a path like "
                f"{shown(self.images[0].path)}, below {self.root} or the folder of this file"
            )
        # A loop over the rows that name no image; the others are done in columns.
        for row in missing:
            path = paths[row].as_py()
            if path is None and noun == "line":
                continue  # a blank line
            origin, at, data = table.raw(row)
            reason = f"has no path of {a_or_an(self.noun)}"
            if path:
                reason = f"{shown(path)}: there is no such {self.noun} in the input"
            self.rejects.append(Reject(origin, at, reason, data))
        self.rejects += table.rejects
        self.checksums += table.checksums
        return indices, way


class ObjectFiles(NamedTuple):
    """The objects of images, and the files that have them."""

    tables: tuple[LabelTable, ...] = ()  # a row for each image
    classes: tuple[str, ...] = ()  # in their order; () for that of their names
    facts: tuple[tuple[str, str], ...] = ()
    used: frozenset[str] = frozenset()  # the paths of all files that were read
    # (split, file) of lists of the images of a split
    lists: tuple[tuple[str, InputFile], ...] = ()
    warnings: tuple[InputWarning, ...] = ()


NO_OBJECTS = ObjectFiles()


def annotate(
    found: find.FoundImages,
    named: find.NamedInputs,
    options: FileOptions,
    wanted: tuple[str, ...] | None,
    storage: StorageOptions,
    paired: Paired | None = None,
    *,
    is_new: bool = False,
) -> Annotations:
    """Joins what is known of each image, where the files that belong to them are known.

    A declared schema uses the wanted columns; without one they are None. Of what becomes a
    new dataset, tables that are not named are looked at, and objects in files that are not read.
    """
    find.require_images(found, options.kind)
    is_guessed = options.finds_objects and options.finds_pairs
    if is_new and paired is not None and is_guessed:
        from recordmill.transforms.sources.images.object_files import (
            LOOKED_AT,
            require_no_others,
        )

        for pair in paired.pairs:
            if pair.kind == "json":
                require_no_others([*pair.files[:LOOKED_AT]], storage)
    objects = _find_objects(found, named, options, storage, is_new=is_new)
    has_objects = bool(objects.tables)
    told = {}
    if options.finds_objects:
        told["annotations"] = "found" if has_objects else NONE
    may_be_paired = options.finds_pairs and paired is None
    if may_be_paired:
        told["pair"] = NONE
    if told:
        options = options.model_copy(update=told)
        options.require_consistent()
    if may_be_paired and not (has_objects or options.tables):
        from recordmill.transforms.sources.images.pairs import require_none_beside

        require_none_beside(found.images)
    laid_out = found
    if paired is not None:
        images, options = paired.layout(found.images, options)
        laid_out = find.FoundImages(images, ())
    if is_new and options.labels_by_folder and options.label_from == AUTO:
        others = [file for file, _ in found.others]
        require_no_table(found.images, others, options.kind.noun, storage)
    layout, warnings = find.find_layout(laid_out.images, options)
    folders = laid_out.images.folders
    places = layout.places(folders.dictionary.to_pylist())
    of_image = codes = folders.indices.to_numpy()
    images = found.images
    # Where folders alone say what is known, the first image of each stands for all in it.
    by_folder = not (options.has_annotations or paired or has_objects)
    if by_folder:
        codes = np.arange(len(places))
        images = images.take(pa.array(find.first_of_each(of_image, len(places))))
    splits = np.array([place.split for place in places], np.object_)
    draft = _Draft(images, options, wanted, splits[codes])
    draft.warnings += (*warnings, *objects.warnings)
    draft.facts += objects.facts
    if options.labels_by_folder:
        labels = pa.array([place.label or None for place in places], pa.string())
        draft.labels = labels.take(pa.array(codes))
        draft.reject(_is_null(draft.labels), "is not in the folder of a class")
        if not options.label_map:
            find.require_distinct(places, draft.root)
        for files in find.alike_classes(found.images, places) if may_be_paired else ():
            from recordmill.transforms.sources.images.pairs import require_no_masks

            require_no_masks(files, draft.root, storage)
    if not options.has_annotations:
        draft.warnings += find.check_class_folders(layout, laid_out, options)
        if any(splits):
            numbers = np.bincount(of_image, minlength=len(places)).tolist()
            by_split = Counter[str]()
            for split, number in zip(splits.tolist(), numbers, strict=True):
                by_split[split] += number
            draft.facts.append((BY_FOLDER, _counted(by_split)))
    if options.label_pattern:
        _add_names(draft)
    lists = [*named.get("split_lists", ()), *objects.lists]
    if paired is not None and not has_objects and options.split_folders == AUTO:
        from recordmill.transforms.sources.images.voc_yolo import voc_lists

        lists += voc_lists([file for file, _ in found.others], "Segmentation")
    used = objects.used.union(file.path for _, file in lists)
    if used:
        aside = (each for each in found.others if each[0].path not in used)
        found = found._replace(others=tuple(aside))
    if given := named.get("label_table"):
        tables = read_tables(given, options, wanted, storage)
        elsewhere = "split_lists" in named or any(splits)
        _add_tables(draft, tables, splits_elsewhere=elsewhere)
    if has_objects:
        _add_objects(draft, objects.tables)
    if lists:
        before = draft.splits.copy()
        _add_lists(draft, [read_list(*each, storage) for each in lists])
        if is_new:
            _require_one_split(draft, before, lists)
    maps = [read_label_map(file, storage) for _, file in named.get("label_map", ())]
    draft.checksums += [each for label_map in maps for each in label_map.checksums]
    partners: tuple[Partner, ...] = ()
    if paired is not None:
        partners, alone = paired.add_to(draft, storage, has_objects=has_objects)
        found = found._replace(others=(*found.others, *alone))
    known = _finish(draft, found, maps[0] if maps else None, objects.classes)
    known = replace(known, partners=partners)
    if by_folder:
        rows = gather(take_batches(known.table, of_image), known.table.schema)
        known = replace(known, files=found.images, table=rows)
    return known


def _find_objects(
    found: find.FoundImages,
    named: find.NamedInputs,
    options: FileOptions,
    storage: StorageOptions,
    *,
    is_new: bool,
) -> ObjectFiles:
    """Finds the objects of the images, in files that are named or by their content."""
    given = named.get("annotations", ())
    others = [file for file, _ in found.others]
    endings = (".json", ".xml", ".yaml", ".yml", ".names", ".labels", ".txt")
    may_have = options.finds_objects and any(
        file.path.lower().endswith(endings) for file in others
    )
    if not (given or may_have) or not isinstance(options, ImagesOptions):
        return NO_OBJECTS
    # For images with objects alone.
    from recordmill.transforms.sources.images.object_files import find_objects

    images = found.images
    return find_objects(given, others, images, options, storage, is_new=is_new)


def _is_null(column: pa.Array) -> Where:
    return np.asarray(column.is_null().to_numpy(zero_copy_only=False))


def _counted(numbers: Mapping[str, int]) -> str:
    return first_names([f"{name or 'no split'} {n:,}" for name, n in numbers.items()])


def _add_names(draft: _Draft) -> None:
    """Adds labels, splits and features that are in the names of images."""
    pattern = draft.options.label_pattern
    expression = re.compile(pattern)
    by_path = "/" in pattern
    paths = draft.images.paths.to_pylist()
    names = paths if by_path else [path.rpartition("/")[2] for path in paths]
    # A loop, as Python's expressions are what people write and test; 1 us each.
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
    draft.leave_unlisted(without, "its name does not match the pattern of labels")
    if "label" in groups:
        draft.labels = label_cells(groups.pop("label"), draft.options.label_separator)
        reason = "the pattern of labels finds no label in its name"
        draft.reject(_is_null(draft.labels) & ~without, reason)
    if "split" in groups:
        draft.splits[:] = groups.pop("split").fill_null("").to_pylist()
        draft.facts.append(("splits", "by `label_pattern`"))
    if taken := groups.keys() & draft.options.reserved:
        raise InputError(
            f"`label_pattern`: the group {min(taken)!r} is named like a feature of the "
            f"{draft.noun}s: give it another name"
        )
    draft.facts.append(("names", f"by the pattern {pattern}"))
    draft.add_features(groups, are_text=draft.wanted is None)


class _ImageRows(NamedTuple):
    """The rows of tables that each image has."""

    counts: I64  # the number of rows of each
    first: I64  # the first row of each, or -1
    ordered: I64  # all rows of the first image, then those of the next, ...
    starts: I64  # where the rows of each begin among them, and the end of the last
    become_lists: bool  # whether an image has the values of all its rows

    @classmethod
    def of(cls, images: I64, size: int, *, become_lists: bool) -> _ImageRows:
        """Returns them, given the image of each row, or -1."""
        rows = np.flatnonzero(images >= 0)
        counts = np.bincount(images[rows], minlength=size)
        ordered = rows[np.argsort(images[rows], kind="stable")]
        starts, first = offsets_of(counts), np.full(size, -1, np.int64)
        first[counts > 0] = ordered[starts[:-1][counts > 0]]
        return cls(counts, first, ordered, starts, become_lists)

    def values_of(self, column: pa.Array) -> pa.Array:
        """Returns the value of each image, or the list of those of its rows.

        Images of the rows [0, 2] and [1] have the lists [a, c] and [b] of a, b, c.
        """
        if not self.become_lists:
            return column.take(pa.array(self.first, mask=self.first < 0))
        values = column.take(pa.array(self.ordered))
        return pa.ListArray.from_arrays(pa.array(self.starts, pa.int32()), values)

    def with_any(self, flags: Where) -> Where:
        """Returns which images have a row with a flag."""
        offsets = offsets_of(flags[self.ordered])
        return np.asarray(np.diff(offsets[self.starts]) > 0)


def _join(
    draft: _Draft, tables: Sequence[LabelTable], noun: str, *, become_lists: bool
) -> tuple[_ImageRows, dict[str, pa.Array], list[tuple[I64, str]], str]:
    """Adds labels and splits of rows, of which each names an image by its "path".

    Returns the rows, their other columns with a cell a row, and of each table the image of
    each row and how paths are read; and the names of the tables.
    """
    matched = [draft.match(table, noun) for table in tables]
    names = first_names([table.file.path for table in tables], 3)
    images = np.concatenate([each for each, _ in matched])
    rows = _ImageRows.of(images, len(draft.images), become_lists=become_lists)
    one, those = ("line", "lists") if noun == "line" else ("row", "tables")
    draft.leave_unlisted(rows.counts == 0, f"no {one} of {names} names it")
    parts = [table.rows for table in tables]
    joined = pa.concat_tables(parts, promote_options="default").drop_columns("path")
    cells = {name: one_array(joined[name]) for name in joined.column_names}
    if (labels_of := cells.pop(LABEL, None)) is not None:
        draft.labels = rows.values_of(labels_of)
        reason = f"its row of {names} has no label: add it"
        draft.reject(rows.with_any(_is_null(labels_of)), reason)
    if (splits_of := cells.pop(SPLIT, None)) is not None:
        splits = np.array(splits_of.fill_null("").to_pylist(), np.object_)
        listed = rows.first >= 0
        draft.splits[listed] = splits[rows.first[listed]]
        own = np.full(len(splits), "", np.object_)
        own[rows.ordered] = np.repeat(draft.splits, rows.counts)
        way_out = "give them one"
        if any(table.split for table in tables):
            way_out = f"leave it in one of these {those}"
        reason = f"its {noun}s of {names} are in several splits: {way_out}"
        draft.reject(rows.with_any(splits != own), reason)
    return rows, cells, matched, names


def _add_tables(
    draft: _Draft, given: Sequence[LabelTable], *, splits_elsewhere: bool
) -> None:
    """Adds labels, splits and features of tables, whose rows are joined in one table."""
    elsewhere = splits_elsewhere or any(table.split for table in given)
    columns = [
        find_columns(table, draft.options, splits_elsewhere=elsewhere)
        for table in given
    ]
    tables = [
        table.annotations(own, draft.options)
        for table, own in zip(given, columns, strict=True)
    ]
    become_lists = draft.options.table_rows == "object"
    rows, cells, matched, names = _join(draft, tables, "row", become_lists=become_lists)
    for number in () if become_lists else np.unique(rows.counts).tolist():
        if number > 1:
            draft.reject(
                rows.counts == number,
                f"{number:,} rows of {names} name it, expected one: join them into one "
                "row, with lists for columns with several values, or use "
                "`table_rows=object`",
            )
    for table, own, (images, way) in zip(tables, columns, matched, strict=True):
        labels = f"labels in column {own.label!r}" if own.label else "no labels"
        fact = (
            f"{count(len(images), 'row')}, {np.count_nonzero(images >= 0):,} of files; "
            f"paths in column {own.path!r}, {way}; {labels}"
        )
        draft.facts.append((f"table {table.file.path}", fact))
    first = tables[0]
    if SPLIT in first.rows.column_names:
        by_split = "table" if first.split else f"column {columns[0].split!r}"
        draft.facts.append(("splits", f"by {by_split}"))
    features = {name.removeprefix(FEATURE): each for name, each in cells.items()}
    # Boxes of an imagefolder have the name of those of COCO, but may be of pixels.
    reserved = {*draft.options.reserved, BOX}
    for name in [name for name in features if name in reserved]:
        del features[name]
        draft.warn(
            "reserved-column",
            f"column {name!r} of {first.file.path} is left out: the {draft.noun}s have a "
            "feature of this name. Rename the column to keep it",
        )
    are_text = (draft.wanted is None or become_lists) and not is_json(first.file)
    draft.add_features(features, rows, are_text=are_text)


def _add_objects(draft: _Draft, tables: Sequence[LabelTable]) -> None:
    """Adds the objects of images, a row of lists for each, and the sizes that are stated."""
    rows, cells, matched, names = _join(draft, tables, "image", become_lists=False)
    for table, (_, way) in zip(tables, matched, strict=True):
        draft.facts.append((f"annotations {table.file.path}", f"paths are {way}"))
    if (most := int(rows.counts.max())) > 1:
        path = draft.images[int(np.argmax(rows.counts))].path
        raise InputError(
            f"{draft.root}: {names} have {path} {count(most, 'time')}, "
            "expected each image once: name the files that count in `annotations`"
        )
    problems = rows.values_of(cells.pop(PROBLEM)).fill_null("").to_pylist()
    draft.problems = np.where(draft.problems == "", problems, draft.problems)
    draft.stated = {name: rows.values_of(cells.pop(name)) for name in STATED}
    boxes = rows.values_of(cells[FEATURE + BOX])
    numbers = pc.fill_null(pc.list_value_length(boxes), -1).to_numpy()
    empty = (numbers == 0) & (draft.problems == "")
    if getattr(draft.options, "without_objects", "") == "leave_out":
        draft.left_out[empty] = "no objects in it"
    without = count(int(np.count_nonzero(empty)), "image")
    total = count(int(numbers.clip(0).sum()), "object")
    draft.facts.append(("objects", f"{total}; {without} without any"))
    features = {name.removeprefix(FEATURE): each for name, each in cells.items()}
    draft.add_features(features, rows, are_text=False)


def _add_lists(draft: _Draft, lists: Sequence[LabelTable]) -> None:
    """Adds the splits of images by lists of their paths."""
    _, _, matched, _ = _join(draft, lists, "line", become_lists=False)
    for each, (images, way) in zip(lists, matched, strict=True):
        number = len(np.unique(images[images >= 0]))
        fact = f"{count(number, draft.noun)} of split {each.split}, {way}"
        draft.facts.append((f"list {each.file.path}", fact))


def _require_one_split(
    draft: _Draft, before: Where, lists: Sequence[tuple[str, InputFile]]
) -> None:
    """Refuses lists that name another split than folders or tables do."""
    is_valid = draft.problems == ""
    for own, listed in product(sorted({*before} - {""}), sorted({*draft.splits})):
        where = (before == own) & (draft.splits == listed) & is_valid
        if meant(own) != meant(listed) and where.any():
            names = first_names([file.path for _, file in lists], len(lists))
            raise InputError(
                f"{draft.images[int(np.argmax(where))].uri}: is in the split {own} by its "
                f"folder or table, and in {listed} by a list of splits; expected one. Leave "
                f"out {names} with `exclude`, or use `split_from=none` for one split"
            )


def _finish(
    draft: _Draft,
    found: find.FoundImages,
    label_map: LabelMap | None,
    classes: tuple[str, ...],
) -> Annotations:
    """Puts the images into order, and counts what is left out.

    Labels are numbered by the label map, or else by the classes, if there are any.
    """
    options = draft.options
    unlisted = np.flatnonzero(draft.unlisted != "")
    if options.unlisted == "leave_out":
        draft.left_out[unlisted] = draft.unlisted[unlisted]
    elif len(unlisted):
        draft.problems[unlisted] = draft.unlisted[unlisted]
        first = int(unlisted[0])
        pair = ", or the folder of the others with `exclude`" if draft.partners else ""
        if pair and getattr(options, "pair", "") == "auto":
            pair += "; if it has none of their masks or texts, use `pair=none`"
        draft.warn(
            options.kind.unlisted,
            f"{count(len(unlisted), draft.noun)} will be rejected, such as "
            f"{draft.images[first].path}: {draft.unlisted[first]}. Use "
            f"`unlisted=leave_out` to leave them out{pair}",
        )
    kept = draft.left_out == ""
    paths = draft.images.paths.filter(pa.array(~kept)).to_pylist()
    skipped = [*zip(draft.left_out[~kept].tolist(), paths, strict=True)]
    valid = kept & (draft.problems == "")
    classes = _number(draft, valid, label_map, classes)
    if not kept.any():
        raise InputError(
            f"{draft.root}: nothing is left of {len(draft.images):,} {draft.noun}s: "
            f"{skipped[0][0]}"
        )
    splits = _checked_splits(draft, valid)
    order = np.flatnonzero(kept)
    if options.has_annotations:
        by_split = Counter(draft.splits[valid].tolist())
        keys = pa.array(draft.splits[order], pa.string())
        order = order[pc.array_sort_indices(keys).to_numpy()]  # a stable sort
        if set(by_split) - {""}:
            told = _counted(dict(sorted(by_split.items())))
            draft.facts.append((f"{draft.noun}s by split", told))
    # Most often they are in order, and then share their columns.
    is_same = len(order) == len(draft.images) and (np.diff(order) == 1).all()
    files = draft.images if is_same else draft.images.take(pa.array(order))
    files += Inventory.of(
        InputFile(each.path, draft.root + each.path, 0, problem=each.reason)
        for each in draft.rejects
    )
    is_valid = pa.array(valid)
    features = draft.features.items()
    return Annotations(
        files,
        _columns(draft, order),
        draft.root,
        classes,
        splits,
        frozenset(n for n, each in features if each.filter(is_valid).null_count),
        tuple(draft.facts),
        tuple(draft.warnings),
        (*skipped, *((reason, file.path) for file, reason in found.others)),
        (*draft.checksums, *found.signatures),
    )


def _number(
    draft: _Draft, valid: Where, label_map: LabelMap | None, known: tuple[str, ...]
) -> tuple[str, ...]:
    """Finds the classes of the labels, which get the names of their classes."""
    labels = draft.labels
    if labels is None:
        return ()
    if not draft.options.has_annotations:  # folders
        return find.sorted_classes(labels.drop_null().to_pylist())
    names = list(count_values(labels.filter(pa.array(valid))))
    if label_map is None:
        if known:
            assert {*known}.issuperset(names), names  # as many labels as boxes
            return known
        if not names and valid.any():
            raise InputError(f"{draft.root}: no {draft.noun} has a label")
        classes = find.sorted_classes(names)
        numbers = map(int, classes) if all(map(find.is_whole_number, classes)) else ()
        odd = next((at for at, number in enumerate(numbers) if at != number), None)
        if odd is not None:
            draft.warn(
                "renumbered-labels",
                "the classes are numbers that do not count from 0 without gaps: class "
                f"{classes[odd]!r} gets the label {odd}. Name them with `label_map`, or use "
                "`label_column=none` to keep numbers of a table as they are",
            )
        return classes
    uri, class_of = label_map.uri, label_map.class_of
    for name in names:
        if name not in class_of:
            first = next(
                index
                for index, row in enumerate(labels.to_pylist())
                if valid[index] and name in (row if isinstance(row, list) else [row])
            )
            raise InputError(
                f"{draft.images[first].path}: its label {shown(name)} is not in {uri}, "
                f"which has {first_names(list(class_of))}: add it there"
            )
    if label_map.renumbered:
        draft.warn(
            "renumbered-labels",
            f"the numbers of {uri} do not count from 0 without gaps "
            f"({label_map.renumbered}): labels of the dataset do, in the same order",
        )
    known, classes_of = (
        pa.array(list(each), pa.string()) for each in (class_of, class_of.values())
    )
    draft.labels = each_label(
        labels, lambda each: classes_of.take(pc.index_in(each, value_set=known))
    )
    counts = count_values(draft.labels.filter(pa.array(valid)))
    if empty := [name for name in label_map.classes if not counts[name]]:
        draft.warn(
            "unused-class",
            f"no {draft.noun} has the label {first_names(empty)}, which `label_map` names",
        )
    return label_map.classes


def _checked_splits(draft: _Draft, valid: Where) -> tuple[str, ...]:
    """Returns the splits, if every image is in one; a reject is put into the first."""
    hint = "use `table_split_column=none` if that column is not one of splits"
    if not draft.options.has_annotations:
        valid = np.ones(len(valid), np.bool_)
        hint = "give `split_from` another level"
    counts = Counter(draft.splits[valid].tolist())
    names = sorted(counts.keys() - {""}, key=lambda name: (name != "train", name))
    for name in names:
        if not SPLIT_PATTERN.fullmatch(name):
            # NumPy's == leaves out a NUL at the end of a text.
            first = draft.images[draft.splits.tolist().index(name)].path
            raise InputError(
                f"{first}: is in the split {shown(name)}, expected letters, digits, '_' "
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


def _columns(draft: _Draft, order: I64) -> pa.Table:
    """Returns the table of the images in this order, then of rejected rows."""
    rejects, size = draft.rejects, len(order)
    at = pa.concat_arrays([pa.array(order), pa.nulls(len(rejects), pa.int64())])
    splits, problems = (
        pa.array(each, pa.string()).take(at) for each in (draft.splits, draft.problems)
    )
    places = np.zeros(size + len(rejects), np.int64)
    places[size:] = [each.position for each in rejects]
    raw = pa.array([each.raw for each in rejects], pa.binary())
    more = {} if draft.labels is None else {LABEL: draft.labels}
    more |= {FEATURE + name: each for name, each in draft.features.items()}
    more |= draft.stated
    more |= {PARTNER + name: each for name, each in draft.partners.items()}
    return pa.table(
        {
            SPLIT: splits.fill_null(draft.splits[order[-1]]),
            PROBLEM: problems.fill_null(""),
            AT: pa.array(places),
            RAW: pa.concat_arrays([pa.nulls(size, pa.binary()), raw]),
            **{name: each.take(at) for name, each in more.items()},
        }
    )


def appended(
    before: Annotations,
    whole: Annotations,
    new_paths: pa.ChunkedArray,
    schema: Schema | None,
) -> Annotations:
    """Returns the new images of an input, annotated as beside those of a dataset.

    `before` has the images of the dataset, by its own files; `whole` all, by all files.
    With the schema of the dataset its types are kept.
    """
    is_new = pc.is_in(whole.files.paths, value_set=new_paths)
    if whole.has_objects and not before.has_objects:
        raise InputError(
            f"{whole.root}: the new files have objects in images ({whole.facts[0][1]}), but "
            "the dataset has none. Leave their files out with `exclude`, "
            + CONVERT_AGAIN
        )
    _require_same(before, whole, pc.invert(is_new))
    files, table = whole.files.where(is_new), whole.table.filter(is_new)
    labels = table[LABEL].to_pylist() if whole.label_type is not None else ()
    known = {*before.classes, None}
    for file, row in zip(files, labels, strict=False):
        if others := {*(row if isinstance(row, list) else [row])} - known:
            raise InputError(
                f"{file.uri}: {min(others)!r} is a new class; the dataset has "
                f"{first_names(list(before.classes))}, and its labels are positions in "
                f"that list. Give it one of these labels, {CONVERT_AGAIN}"
            )
    told = {*new_paths.to_pylist()} if whole.skipped else ()
    # What all images of a dataset have, new ones may not lack.
    required = set(whole.features) - before.optional if schema is not None else ()
    problems = table[PROBLEM]
    for name in sorted(required):
        lacks = pc.and_(pc.is_null(table[FEATURE + name]), pc.equal(problems, ""))
        reason = f"column {name!r}: has no value, but all others of the dataset do"
        problems = pc.if_else(lacks, reason, problems)
    table = table.set_column(table.column_names.index(PROBLEM), PROBLEM, problems)
    return replace(
        whole,
        files=files,
        table=table,
        classes=before.classes,
        optional=before.optional,
        partners=before.partners,
        skipped=tuple(each for each in whole.skipped if each[1] in told),
    )


def _require_same(
    before: Annotations, whole: Annotations, is_kept: pa.ChunkedArray
) -> None:
    """Checks that new files change nothing of the images of a dataset."""
    partners = [PARTNER + each.name for each in before.partners]
    of_both = before.features.items() & whole.features.items()
    names = {SPLIT, LABEL, PROBLEM, *partners, *(FEATURE + name for name, _ in of_both)}
    names &= {*before.table.column_names}

    def known(of: Annotations, where: pa.ChunkedArray) -> pa.Table:
        rows = of.table.select(sorted(names)).append_column("path", of.files.paths)
        return rows.filter(pc.and_(where, of.table[RAW].is_null()))

    tables = known(before, before.table[RAW].is_null()), known(whole, is_kept)
    if tables[0].equals(tables[1]):  # those of before have the same order
        return
    old, new = ({row["path"]: row for row in each.to_pylist()} for each in tables)
    for path in {**old, **new}:
        if path not in old:
            raise InputError(
                f"{path}: was left out of the dataset, but the new files name it: convert "
                "everything again without appending"
            )
        was, becomes = (_place(each.get(path, old[path])) for each in (old, new))
        problem = "the new files change what is known of it in the dataset"
        if was != becomes:
            problem = f"is {was} in the dataset, but with the new files it is {becomes}"
        if repr(old[path]) != repr(new.get(path)):  # as NaN is not equal to itself
            raise InputError(
                f"{before.root}{path}: {problem}. Put new files into folders like those "
                "that are there, name only new files in new tables and lists, "
                + CONVERT_AGAIN
            )


def _place(row: Mapping[str, Any]) -> str:
    split = f" of split {row[SPLIT]!r}" if row[SPLIT] else ""
    return f"in class {row.get(LABEL) or ''!r}{split}"
