"""Finds the images among the input files, and the folders that are splits and classes.

A file with a usual ending counts as an image; if its content is no image, it becomes a
reject. Any other file counts as an image if its first bytes are those of one; all other
files are skipped and counted. The same rules apply to other kinds of files that become a
record each (`FileKind`).
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import (
    FileChecksum,
    InputFile,
    folder_name,
    is_archive_name,
)
from recordmill.schemas.input_summary import InputWarning, SkippedFiles
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import a_or_an, format_count, format_names
from recordmill.transforms.arrow import I64, count_values
from recordmill.transforms.images.header import SIGNATURE_BYTES
from recordmill.transforms.inventory import BATCH_FILES, Inventory
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.file_splits import (
    AUTO,
    NONE,
    likely_splits,
    split_of_folder,
)
from recordmill.transforms.sources.images.folder_words import PARTNER_FOLDER
from recordmill.transforms.sources.images.options import (
    FileKind,
    FileOptions,
    ImagesOptions,
)
from recordmill.transforms.sources.listing import find_named, has_files, input_root
from recordmill.transforms.sources.registry import ARRAYS_TRANSFORMED
from recordmill.transforms.storage.left_out import is_skipped
from recordmill.transforms.storage.reading import (
    checksum_of,
    is_local,
    local_path,
    read_head,
)
from recordmill.transforms.storage.store import WORK_FOLDER

if TYPE_CHECKING:
    from recordmill.transforms.sources.images.pairs import Partners

_THREADS = 16  # threads mostly wait for the store
_MAX_PENDING_FILES = 4096
_SHOWN_ENDINGS = 5
_ENDING = r"[^/.]\.*(?P<ending>\.[^/.]+)$"  # as os.path.splitext: .jpg alone is a name
# classes whose first images are compared; pairs have few folders
_MAX_SIMILAR_CLASSES = 8

# Option -> (split, file) of each file that the option names. The split is that of all
# images in the file, or "".
NamedInputs = Mapping[str, Sequence[tuple[str, InputFile]]]


class ImageFiles(NamedTuple):
    """The images among the input files, in input order, and the other files."""

    images: Inventory
    other_files: tuple[
        tuple[InputFile, str], ...
    ]  # each with the reason why it is no image
    # checksums of the first bytes, for files that were read to decide
    signatures: tuple[FileChecksum, ...] = ()


def find_named_inputs(options: FileOptions, files: Inventory) -> NamedInputs:
    """Returns the files of an input that options name, by option.

    Raises:
      InputError: an option names no input file, or an unreadable one.
    """
    files_by_option = defaultdict[str, list[tuple[str, InputFile]]](list)
    for option, split, name in options.named_files:
        matched_files = find_named(name, files)
        if option == "annotations":  # a named folder may also contain the images
            matched_files = matched_files.filter(
                pc.invert(matched_files.ends_with(options.kind.endings))
            )
        if not matched_files:
            raise InputError(f"`{option}`: no input file is named {name!r}")
        for named_file in matched_files:
            if named_file.problem:
                raise InputError(f"`{option}`: {named_file.uri}: {named_file.problem}")
        files_by_option[option] += [(split, file) for file in matched_files]
    return files_by_option


def find_images(
    kind: FileKind, files: Inventory, named_inputs: NamedInputs, storage: StorageOptions
) -> ImageFiles:
    """Finds the images; reads the first bytes of files with unusual endings.

    Args:
      kind: of the files to find.
      files: of the input.
      named_inputs: the files that options name, which are no images.
      storage: options of the inputs' storage.
    """
    if paths := {file.path for part in named_inputs.values() for _, file in part}:
        files = files.without_paths(paths)
    unknown = list(files.filter(pc.invert(files.ends_with(kind.endings))))
    if not unknown:
        return ImageFiles(files, ())
    signatures: list[FileChecksum] = []

    def reason(file: InputFile) -> str:
        """Returns why a file is not an image: its ending or a text; "" for an image."""
        if file.problem:
            return (
                f"{file.problem.partition(' (')[0]}, not named as {a_or_an(kind.noun)}"
            )
        if not file.size:
            return "empty"
        head = read_head(file, SIGNATURE_BYTES, storage)
        signatures.append(checksum_of(file.path, head))
        if kind.is_certain(head):
            return ""
        if other := kind.other_format(head):
            return f"{other} is not supported"
        return (
            PurePosixPath(file.path).suffix.lower()
            or f"no extension, no {kind.noun} content"
        )

    files_and_reasons = zip(
        unknown,
        map_ahead(unknown, reason, _THREADS, most=_MAX_PENDING_FILES),
        strict=True,
    )
    other_files = tuple((file, why) for file, why in files_and_reasons if why)
    images = files.without_paths((file.path for file, _ in other_files))
    return ImageFiles(images, other_files, tuple(sorted(signatures)))


def count_skipped(
    skipped: Sequence[tuple[str, str]], noun: str
) -> tuple[SkippedFiles, ...]:
    """Counts skipped files by reason; rare endings are one reason.

    Args:
      skipped: (reason, path) of each file.
      noun: for a file of the wanted kind, such as "image".
    """
    endings = Counter(reason for reason, _ in skipped if reason[:1] == ".")
    common = {ending for ending, _ in endings.most_common(_SHOWN_ENDINGS)}

    def describe_reason(reason: str) -> str:
        if reason[:1] != ".":
            return reason
        return (
            f"{reason if reason in common else 'other extensions'}, no {noun} content"
        )

    return SkippedFiles.count_by_reason(
        (describe_reason(reason), path) for reason, path in skipped
    )


def count_endings(files: Inventory) -> str:
    """Returns the number of files by ending as text, most frequent ending first."""
    endings = Counter[str]()
    for batch in files.batches():
        file_endings = pc.struct_field(
            pc.extract_regex(batch["path"], _ENDING), "ending"
        )
        endings += count_values(pc.utf8_lower(file_endings))
        if file_endings.null_count:
            endings["no extension"] += file_endings.null_count
    return format_names(
        [f"{name} {number:,}" for name, number in endings.most_common()]
    )


def require_images(image_files: ImageFiles, kind: FileKind) -> None:
    """Raises InputError if there are no images; its message lists the other files."""
    if image_files.images:
        return
    endings = {PurePosixPath(file.path).suffix for file, _ in image_files.other_files}
    archives = [
        file for file, _ in image_files.other_files if is_archive_name(file.path)
    ]
    hint = ""
    if archives:
        hint = (
            f". {archives[0].uri} is an archive: recordmill reads its content if the "
            "archive itself, or a glob that matches it, is the input"
        )
    raise InputError(
        f"no {kind.noun}s among {format_count(len(image_files.other_files), 'input file')} (extensions: "
        f"{' '.join(sorted(endings)) or 'none'}); expected {' '.join(kind.endings)}, "
        f"or other extensions with such content{hint}"
    )


def find_partners(files: Inventory, options: FileOptions) -> Partners | None:
    """Finds the files that belong to images; returns None if there are none."""
    if not isinstance(options, ImagesOptions) or options.pair == NONE:
        return None
    folders = files.folders.dictionary.to_pylist()
    parts = {part for folder in folders for part in folder.split("/")}
    if not options.pairs and not any(map(PARTNER_FOLDER.fullmatch, parts)):
        return None
    from recordmill.transforms.sources.images.pairs import Partners, find_pairs

    pairs = find_pairs(files, options)
    return Partners(pairs, options) if pairs else None


_CLASS_KEY = re.compile("(labels?|class(es|_name)?|categor(y|ies))=", re.IGNORECASE)

# Folder levels are counted from each given input: 0 is the input itself, 1 a folder in
# it, and -1 its parent folder.
#
#     input data: data/train/cat/1.jpg            split 1, class 2
#     input data: data/cat/1.jpg                  class 1
#     input data: data/cat/train/1.jpg            class 1, split 2
#     input data: data/pets/train/cat/1.jpg       split 2, class 3: one folder wraps all
#     inputs data/cat and data/dog, with images   class 0
#     inputs data/train and data/test, with cat/  split 0, class 1
#
# With these levels, a path determines split and class. For the input folder `data`:
#
#     data/train/cat/tabby/1.jpg    split at index 0, class at index 1: train, cat
#     data/cat/tabby/1.jpg          class at index 0: cat, in no split

# Special indices of a folder in a path.
_NO_FOLDER = -2
_ROOT = -1  # the input root itself, whose name is in no path
_PARENT = -3  # the folder that contains the image

_EMPTY_CLASS_HINT = (
    "add such files; if it is not a class, move it out of the input, or name the "
    "folders of the classes as inputs"
)


class FolderLabels(NamedTuple):
    """The split and the class of the images in one folder; "" for none."""

    split: str
    label: str


class InputLayout(NamedTuple):
    """The positions of split and class in the paths below one given input folder."""

    folder: str  # relative to the input root
    split_index: int  # index of the folder in a path, or _NO_FOLDER or _ROOT
    label_index: int  # index of the class's folder in a path, or _PARENT or _ROOT


@dataclass(frozen=True, slots=True)
class FolderLayout:
    """The folders that are splits and classes, below each given input folder."""

    input_layouts: tuple[InputLayout, ...] = ()
    root_name: str = ""

    def find_labels(self, folders: Iterable[str]) -> list[FolderLabels]:
        """Returns the split and class of the images in each folder."""
        layouts_by_folder = {layout.folder: layout for layout in self.input_layouts}
        return [
            self._find_label(
                f, layouts_by_folder.get(_input_folder_above(f, layouts_by_folder))
            )
            for f in folders
        ]

    def _find_label(self, folder: str, layout: InputLayout | None) -> FolderLabels:
        if layout is None:
            return FolderLabels("", "")
        parts = folder.split("/") if folder else []
        names = {at: folder_name(part) for at, part in enumerate(parts)}
        names[_ROOT] = self.root_name
        label = layout.label_index
        if label == _PARENT:
            label = len(parts) - 1
            if (
                label == layout.split_index
            ):  # the image is directly in the split's folder
                label = _NO_FOLDER
        split = split_of_folder(names.get(layout.split_index, ""))
        return FolderLabels(split, names.get(label, ""))


def _input_folder_above(
    folder: str, input_folders: Mapping[str, object] | set[str]
) -> str:
    """Returns the deepest given input folder that contains a folder, or "".

    >>> _input_folder_above("a/b/c", {"", "a", "b"})
    'a'
    """
    while folder and folder not in input_folders:
        folder = folder.rpartition("/")[0]
    return folder


@dataclass(slots=True)
class _InputFolder:
    """A given input folder with the folders below it."""

    folder: str  # relative to the input root
    # the folders with images, as path parts relative to this folder; [] is this folder
    image_folders: list[list[str]] = field(default_factory=list)
    is_class: bool = False  # whether it is the folder of a class
    split_level: int | None = None  # the level of the splits, or None
    label_level: int = 1  # the level of the classes, unless `label_from` names a level

    @property
    def parts(self) -> list[str]:
        return self.folder.split("/") if self.folder else []

    @property
    def name(self) -> str:
        return folder_name(self.parts[-1])

    def folder_names(self, level: int) -> set[str]:
        """Returns the names of the folders at a level below this one."""
        return {parts[level - 1] for parts in self.image_folders if len(parts) >= level}

    def split_trees(self) -> list[list[list[str]]]:
        """Returns the folders below each split folder, for splits that have folders."""
        by_split = defaultdict[tuple[str, ...], list[list[str]]](list)
        level = self.split_level or 0
        for parts in self.image_folders:
            by_split[tuple(parts[:level])].append(parts[level:])
        return [tree for tree in by_split.values() if any(tree)]

    def to_layout(self, label_from: str) -> InputLayout:
        def index(level: int) -> int:
            """Returns the index of a level's folder in paths below the input root."""
            return max(len(self.parts) + level - 1, _ROOT)

        label = _PARENT
        if label_from != "parent":
            label = index(self.label_level if label_from == AUTO else int(label_from))
        split = _NO_FOLDER if self.split_level is None else index(self.split_level)
        return InputLayout(self.folder, split, label)


def find_layout(
    files: Inventory, options: FileOptions
) -> tuple[FolderLayout, tuple[InputWarning, ...]]:
    """Finds the layout of an input; returns it with warnings of probable mistakes.

    Raises:
      InputError: the splits or classes are ambiguous.
    """
    split_from = options.split_level
    label_from = options.label_from if options.labels_by_folder else "0"
    folders = _count_by_folder(files)
    input_folders = _find_input_folders(folders)
    root = input_root(files)
    warnings = _set_levels(input_folders, split_from, label_from, root)
    root_name = root.rstrip("/").rpartition("/")[2]
    layout = FolderLayout(
        tuple(input_folder.to_layout(label_from) for input_folder in input_folders),
        root_name,
    )
    if not options.labels_by_folder:
        return layout, ()
    places = layout.find_labels(folder for _, folder in folders)
    if label_from == AUTO:
        _require_no_key_classes(input_folders, root)
    if split_from == label_from == AUTO:
        _require_labels(places, input_folders, root)
    if label_from == AUTO:
        warnings += _warn_single_class(
            {place.label for place in places} - {""}, input_folders
        )
        has_pairs = options.kind is ImagesOptions.kind
        warnings += _warn_equal_trees(
            layout, folders, input_folders, has_pairs=has_pairs
        )
    without = {
        folder: number
        for place, ((_, folder), number) in zip(places, folders.items(), strict=True)
        if not place.label
    }
    if without:
        quoted_folders = [
            repr(folder) if folder else "the input folder" for folder in without
        ]
        message = (
            f"{format_count(sum(without.values()), options.kind.noun)} directly in "
            f"{format_names(sorted(quoted_folders))} will be rejected, because no folder names the "
            "class: move or leave out these files, or use `label_from`"
        )
        warnings.append(InputWarning("no-class", message))
    return layout, tuple(warnings)


def _count_by_folder(files: Inventory) -> dict[tuple[str, str], int]:
    """Returns the number of files by (given input folder, folder of the files)."""
    pairs = pa.table(
        {"given_folder": files.table["given_folder"], "folder": files.folders}
    )
    counted = pairs.group_by(["given_folder", "folder"], use_threads=False)
    input_folders, folders, numbers = counted.aggregate([([], "count_all")]).columns
    keys = zip(input_folders.to_pylist(), folders.to_pylist(), strict=True)
    return dict(zip(keys, numbers.to_pylist(), strict=True))


def describe_folders(
    files: Inventory, options: FileOptions, storage: StorageOptions
) -> str:
    """Returns a text that identifies the folder layout, for the run key.

    Together with the paths of the images it determines the labels and splits of a
    dataset. Images are recognized by their names only. The text is "" if every class is
    a folder directly below the input root and there are no splits.
    """
    paired, description = find_partners(files, options), ""
    if paired is not None:
        names = [pair.name for pair in paired.pairs]
        files, description = paired.exclude_partners(files), f" pairs {names}"
    image_files = files.filter(files.ends_with(options.kind.endings)) or files
    if paired is not None:
        description += ARRAYS_TRANSFORMED * paired.moves_arrays(image_files, storage)
        image_files, options = paired.cut_image_folders(image_files, options)
    try:
        layout, _ = find_layout(image_files, options)
    except InputError:
        # Folders need no labels if annotation files or a table have them. That is known
        # only after these are read; `prepare` raises this error if they have none.
        options = options.model_copy(update={"label_from": NONE})
        layout, _ = find_layout(image_files, options)
    levels: list[tuple[str | int, ...]] = [
        tuple(folder_layout) for folder_layout in layout.input_layouts
    ]
    by_value = ""
    if options.labels_by_folder:
        folders = image_files.folders.dictionary.to_pylist()
        places = layout.find_labels(folders)
        labels = {place.label for place in places}
        if sorted(labels) != list(sort_classes(labels)):
            by_value = " by value"
        elif places == [("", folder.partition("/")[0]) for folder in folders]:
            return description
    else:
        levels = [
            (g.folder, g.split_index)
            for g in layout.input_layouts
            if g.split_index != _NO_FOLDER
        ]
        if not levels:
            return description
    has_root = any(_ROOT in level for level in levels)
    return description + f"{layout.root_name if has_root else ''} {levels}{by_value}"


def _find_input_folders(folders: Iterable[tuple[str, str]]) -> list[_InputFolder]:
    input_paths = {input_path for input_path, _ in folders}
    folders_by_path: dict[str, _InputFolder] = {}
    for _, folder in sorted(folders):
        parent = _input_folder_above(folder, input_paths)
        relative_path = folder.removeprefix(parent).strip("/")
        input_folder = folders_by_path.setdefault(parent, _InputFolder(parent))
        input_folder.image_folders.append(
            relative_path.split("/") if relative_path else []
        )
    input_folders = list(folders_by_path.values())
    # If every input directly contains images, each is a class, even if it has folders.
    all_hold = len(input_folders) > 1 and all(
        [] in input_folder.image_folders for input_folder in input_folders
    )
    for input_folder in input_folders:
        input_folder.is_class = all_hold or not input_folder.folder_names(1)
    return input_folders


def _set_levels(
    input_folders: Sequence[_InputFolder], split_from: str, label_from: str, root: str
) -> list[InputWarning]:
    """Sets the levels of splits and of classes; returns warnings."""
    warnings = []
    nested = [
        input_folder for input_folder in input_folders if not input_folder.is_class
    ]
    top = _count_wrappers([input_folder.image_folders for input_folder in nested])
    for input_folder in input_folders:
        input_folder.label_level = 0 if input_folder.is_class else top + 1
        if split_from not in (AUTO, NONE):
            input_folder.split_level = int(split_from)
            input_folder.label_level = input_folder.split_level + 1
        elif split_from == AUTO and not input_folder.is_class:
            warnings += _set_split_level(input_folder, label_from, root)
    if split_from == AUTO:
        warnings += _set_input_split_level(input_folders, label_from, root)
    divided = [
        g
        for g in nested
        if g.split_level is not None and g.label_level == g.split_level + 1
    ]
    wrappers = _count_wrappers(
        [tree for input_folder in divided for tree in input_folder.split_trees()]
    )
    for input_folder in divided:
        input_folder.label_level += wrappers
    return warnings


def _count_wrappers(trees: Sequence[list[list[str]]]) -> int:
    """Returns the number of nested folders that wrap all other folders of each tree.

    Folders named key=value also count as wrappers if each of their files is in the folder
    of a class, although there may be several at one level.

    >>> _count_wrappers([[["data", "cat"], ["data", "dog"]]])
    1
    """
    folder_paths = [parts for tree in trees for parts in tree]
    passed = 0
    for level in range(min(map(len, folder_paths), default=0)):
        tops = [{parts[level] for parts in tree} for tree in trees]
        names = frozenset[str]().union(*tops)
        likely = likely_splits(names)
        if likely != names and all(
            _count_key_folders(parts[level:]) for parts in folder_paths
        ):
            passed = level + 1
            continue
        if max(map(len, tops)) > 1 or (len(names) > 1 and likely != names):
            return level
        if likely and len(trees) == 1:
            return level
    return passed  # only nested single folders: the first may be a class


def _count_key_folders(parts: Sequence[str]) -> int:
    """Returns the number of leading key=value folders above the folder of a class.

    >>> [_count_key_folders(path.split("/")) for path in ("year=1/cat", "year=1", "label=a/b")]
    [1, 0, 0]
    """
    may_be_class = ("=" not in part or _CLASS_KEY.match(part) for part in parts)
    return next((at for at, may_be in enumerate(may_be_class) if may_be), 0)


def _set_split_level(
    input_folder: _InputFolder, label_from: str, root: str
) -> list[InputWarning]:
    """Sets the level of the splits in a given input folder; returns warnings."""
    level, names = (
        input_folder.label_level,
        input_folder.folder_names(input_folder.label_level),
    )
    likely = likely_splits(names)
    if not likely or label_from == str(level):
        _set_split_level_in_classes(input_folder, label_from, root)
        return []
    deeper = [
        parts[level - 1] for parts in input_folder.image_folders if len(parts) > level
    ]
    has_classes = not likely.isdisjoint(deeper)
    if likely == names and (has_classes or label_from == "0"):
        input_folder.split_level, input_folder.label_level = level, level + 1
        return []
    if label_from != AUTO and likely == names:
        return []
    return _warn_or_raise(
        likely, names, level, root, is_error=has_classes and label_from == AUTO
    )


def _set_split_level_in_classes(
    input_folder: _InputFolder, label_from: str, root: str
) -> None:
    """Sets the level of the splits if all class folders contain only split folders."""
    level = input_folder.label_level + 1
    names = input_folder.folder_names(level)
    likely = likely_splits(names)
    if not likely or label_from in ("parent", str(level)):
        return
    if likely == names and {len(parts) for parts in input_folder.image_folders} == {
        level
    }:
        input_folder.split_level = level
        return
    if label_from == AUTO and len(likely) > 1:
        raise InputError(
            f"{root}: folders in {_quote_names(input_folder.folder_names(level - 1))} are named like "
            f"splits ({_quote_names(likely)}), but other files or folders are next to or in "
            f"them. If they are splits of these classes, use `split_from={level}` with "
            f"`label_from={level - 1}`; if they belong to the class, `split_from=none`"
        )


def _set_input_split_level(
    input_folders: Sequence[_InputFolder], label_from: str, root: str
) -> list[InputWarning]:
    """Sets the level of the splits if these are the given folders or their parents."""
    nested = [
        input_folder for input_folder in input_folders if not input_folder.is_class
    ]
    names = {input_folder.name for input_folder in nested if input_folder.parts}
    is_free = all(input_folder.split_level is None for input_folder in nested)
    if is_free and 1 < len(nested) == len(names) and likely_splits(names) == names:
        for input_folder in nested:
            input_folder.split_level, input_folder.label_level = 0, 1
    classes = [input_folder for input_folder in input_folders if input_folder.is_class]
    parent_names = {
        input_folder.parts[-2] if input_folder.parts[1:] else ""
        for input_folder in classes
    }
    if parent_names and likely_splits(parent_names) == parent_names:
        for input_folder in classes:
            input_folder.split_level = -1
        return []
    names = {input_folder.name for input_folder in classes if input_folder.parts}
    likely = likely_splits(names)
    if not likely or label_from != AUTO:
        return []
    return _warn_or_raise(likely, names, 0, root, is_error=False)


def _warn_or_raise(
    likely: frozenset[str], names: set[str], level: int, root: str, *, is_error: bool
) -> list[InputWarning]:
    """Returns a warning of folders that are named like splits.

    Raises:
      InputError: all folders are named like splits, or `is_error` is set.
    """
    if likely == names:
        of_input = ", or `label_from=0` if the input is their class" if level else ""
        raise InputError(
            f"{root}: {_quote_names(likely)} are named like splits, but contain files and "
            f"no class folders. If they are splits, use `split_from={level}` with "
            f"`label_from=none` for files without labels{of_input}; if they are "
            "classes, use `split_from=none`"
        )
    message = (
        f"classes named like splits: {_quote_names(likely)}, next to "
        f"{_quote_names(names - likely)}. If all these folders are splits, use "
        f"`split_from={level}`; if all are classes, `split_from=none`"
    )
    if is_error:
        raise InputError(f"{root}: {message}, or leave some of them out with `exclude`")
    return [InputWarning("classes-like-splits", message)]


def _require_labels(
    places: Iterable[FolderLabels], input_folders: Sequence[_InputFolder], root: str
) -> None:
    """Raises InputError if a split has a single folder that no other split has."""
    classes = defaultdict[str, set[str]](set)
    for split, label in {place for place in places if place.label}:
        classes[split].add(label)
    labels = set[str]().union(*classes.values())
    for split, split_classes in sorted(classes.items()):
        other_classes = set[str]().union(
            *(classes[name] for name in classes if name != split)
        )
        is_odd = (
            len(split_classes) == 1
            and bool(other_classes)
            and split_classes.isdisjoint(other_classes)
        )
        if (
            split
            and is_odd
            and (len(other_classes) > 1 or likely_splits(labels) == labels)
        ):
            level = next(
                input_folder.split_level
                for input_folder in input_folders
                if input_folder.split_level is not None
            )
            raise InputError(
                f"{root}: the split {split} has one folder, {_quote_names(split_classes)}, which no "
                f"other split has, expected classes like {_quote_names(other_classes)}. If "
                "these files have no labels, leave them out with `exclude`; if it is a "
                f"class, use `split_from={level}`"
            )


def _require_no_key_classes(input_folders: Iterable[_InputFolder], root: str) -> None:
    """Raises InputError if key=value folders are classes but contain possible classes."""
    for input_folder in input_folders:
        level = input_folder.label_level
        class_paths = [
            parts[level - 1 :] for parts in input_folder.image_folders if level > 0
        ]
        if odd_paths := [parts for parts in class_paths if _count_key_folders(parts)]:
            number = _count_key_folders(odd_paths[0])
            raise InputError(
                f"{root}: {_quote_names({parts[0] for parts in odd_paths})} would be classes, but "
                f"folders in them, such as {odd_paths[0][number]!r}, would not. If such "
                f"folders are the classes, use `label_from={level + number}`; if not, "
                f"`label_from={level}`"
            )


def _warn_single_class(
    labels: set[str], input_folders: Iterable[_InputFolder]
) -> list[InputWarning]:
    """Returns a warning if there is only one class."""
    if len(labels) != 1:
        return []
    hint = "if there are more, use the folder with all class folders as the input"
    if levels := {
        input_folder.label_level
        for input_folder in input_folders
        if input_folder.folder_names(input_folder.label_level + 1)
    }:
        hint = (
            f"if the folders in it are the classes, use `label_from={min(levels) + 1}`"
        )
    message = f"there is only one class, {labels.pop()!r}; {hint}"
    return [InputWarning("single-class", message)]


def _warn_equal_trees(
    layout: FolderLayout,
    folders: Mapping[tuple[str, str], int],
    input_folders: Iterable[_InputFolder],
    *,
    has_pairs: bool,
) -> list[InputWarning]:
    """Returns a warning if classes have equal subfolders, like images and masks."""
    trees = defaultdict[str, dict[tuple[str, ...], int]](dict)
    by_folder = {
        folder_layout.folder: folder_layout.label_index
        for folder_layout in layout.input_layouts
    }
    deepest = 0
    for (_, folder), number in folders.items():
        level = by_folder.get(_input_folder_above(folder, by_folder), _ROOT)
        parts = folder.split("/")
        if 0 <= level < len(parts):
            trees[parts[level]][(*parts[:level], "", *parts[level + 1 :])] = number
            deepest = max(deepest, len(parts) - level - 1)
    kinds = Counter(frozenset(tree.items()) for tree in trees.values())
    same_classes = [name for name in trees if kinds[frozenset(trees[name].items())] > 1]
    if not deepest or not same_classes:
        return []
    message = (
        f"the classes {_quote_names(same_classes)} contain folders with the same names and numbers of files. "
        + "If some contain masks of the others, use `pair=mask=FOLDER`. " * has_pairs
        + "If the folders in them are the classes, use "
        f"`label_from={min(g.label_level for g in input_folders) + 1}`"
    )
    return [InputWarning("classes-like-masks", message)]


def group_similar_classes(
    images: Inventory, places: Sequence[FolderLabels]
) -> list[list[InputFile]]:
    """Returns the first images of classes with equal counts and equal first file names.

    Each group is either images and masks in folders of unusual names, or numbered images
    of balanced classes.
    """
    labels = [place.label for place in places]
    names = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    of_folder = np.array([names[label] for label in labels])
    codes = images.folders.indices.to_numpy()
    counts, firsts = np.zeros(len(names), np.int64), np.full(len(names), len(codes))
    np.add.at(counts, of_folder, np.bincount(codes, minlength=len(labels)))
    np.minimum.at(firsts, of_folder, first_indices(codes, len(labels)))
    images_by_name = defaultdict[tuple[int, str], list[InputFile]](list)
    for file, number in zip(images.take(pa.array(firsts)), counts, strict=True):
        images_by_name[int(number), PurePosixPath(file.path).stem].append(file)
    return [
        group
        for group in images_by_name.values()
        if 1 < len(group) <= _MAX_SIMILAR_CLASSES
    ]


def first_indices(codes: npt.NDArray[np.integer[Any]], number: int) -> I64:
    """Returns the index at which each code first occurs: 0 2 4 for codes 0 0 1 0 2.

    Args:
      codes: whole numbers from 0 to `number`, exclusive.
      number: of distinct codes.
    """
    firsts = np.zeros(number, np.int64)
    for stop in range(len(codes), 0, -BATCH_FILES):
        start = max(0, stop - BATCH_FILES)
        firsts[codes[start:stop][::-1]] = np.arange(start, stop)[::-1]
    return firsts


def _quote_names(names: Iterable[str]) -> str:
    return format_names([repr(name) for name in sorted(names)])


def sort_classes(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the distinct names in order; whole numbers are sorted by value.

    >>> sort_classes(["10", "9"]), sort_classes(["b", "10"])
    (('9', '10'), ('10', 'b'))
    """
    unique_names = set(names)
    if unique_names and all(map(is_whole_number, unique_names)):
        return tuple(sorted(unique_names, key=lambda name: (int(name), name)))
    return tuple(sorted(unique_names))


def is_whole_number(name: str) -> bool:
    """Tests whether a class name is a whole number that can be sorted by value."""
    return name.isascii() and name.removeprefix("-").isdigit() and len(name) < 19


def require_distinct_names(places: Iterable[FolderLabels], root: str) -> None:
    """Raises InputError if names of folders differ only in case or Unicode form.

    Single letters may be classes in upper and lower case.
    """
    for kind, names in zip(
        ("splits", "classes"), zip(*set(places), strict=True), strict=True
    ):
        names_by_form: dict[str, str] = {}
        for name in sorted(set(names)):
            form = unicodedata.normalize("NFC", name)
            other = names_by_form.setdefault(
                form.lower() if len(form) > 1 else form, name
            )
            if other != name:
                raise InputError(
                    f"{root}: {kind} of the folders {other!a} and {name!a} differ only "
                    "in case or Unicode form: expected one name. Rename one of them, "
                    "or, if they are two classes, name both in `label_map`"
                )


def check_class_folders(
    layout: FolderLayout, image_files: ImageFiles, options: FileOptions
) -> tuple[InputWarning, ...]:
    """Returns warnings of empty folders whose class has images elsewhere.

    Raises:
      InputError: the input has no class, or a class has no image.
    """
    folders = image_files.images.folders.dictionary.to_pylist()
    places = set(layout.find_labels(folders))
    labels = {place.label for place in places}
    is_flat = (
        len(layout.input_layouts) == 1 and layout.input_layouts[0].label_index == _ROOT
    )
    if labels == {""} or (is_flat and options.label_from == AUTO):
        raise InputError(
            f"{image_files.images[0].uri}: is not in the folder of a class; expected "
            "INPUT/<class>/<file>: use the folder with the class folders as the input, "
            "or use `label_from=0` to make one class of each input, `label_table` for "
            "labels in a table, or `label_from=none` for files without labels"
        )
    root = input_root(image_files.images)
    splits = {place.split for place in places}
    holders = [file.path.rpartition("/")[0] for file, _ in image_files.other_files]
    other_paths = defaultdict[str, list[str]](list)
    is_by_level = all(
        folder_layout.label_index != _PARENT for folder_layout in layout.input_layouts
    )
    inputs_without_images = {file.given_folder for file, _ in image_files.other_files}
    inputs_without_images -= {
        *image_files.images.table["given_folder"].unique().to_pylist()
    }
    inputs_without_images -= {
        input_folder
        for input_folder in inputs_without_images
        if any(_is_below(f"{f}/", input_folder) for f in folders)
    }
    for (file, _), place in zip(
        image_files.other_files, layout.find_labels(holders), strict=True
    ):
        if file.given_folder in inputs_without_images:
            other_paths[file.given_folder].append(file.path)
        elif is_by_level and place.label not in {"", *labels} and place.split in splits:
            other_paths[place.label].append(file.path)
    for paths in other_paths.values():
        hint, parent_parts = _EMPTY_CLASS_HINT, paths[0].split("/")[:-1]
        if isinstance(options, ImagesOptions) and any(
            map(PARTNER_FOLDER.fullmatch, parent_parts)
        ):
            hint = (
                "masks that are images, .txt, .json and .npy can belong to images, if "
                "they are in one folder and have the same names: images/1.jpg, "
                "masks/1.png. Convert them to such files, or leave this folder out "
                "with `exclude`"
            )
        endings = sorted({PurePosixPath(path).suffix or "none" for path in paths})
        raise InputError(
            f"{root}{os.path.dirname(paths[0])}: is the folder of a class, but "  # noqa: PTH120
            f"contains no {options.kind.noun}, only {format_count(len(paths), 'other file')} "
            f"(extensions: {format_names(endings)}): {hint}"
        )
    if not is_local(root):
        return ()
    warnings = []
    for folder in _empty_folders(root, layout, image_files):
        (place,) = layout.find_labels([folder])
        if place.label and place.label not in labels:
            raise InputError(
                f"{root}{folder}: is the folder of a class, but is empty: {_EMPTY_CLASS_HINT}"
            )
        message = f"{root}{folder}: is an empty folder"
        warnings.append(InputWarning("empty-folder", message))
    return tuple(warnings)


def _is_below(path: str, folder: str) -> bool:
    return not folder or path.startswith(f"{folder}/")


def _empty_folders(
    root: str, layout: FolderLayout, image_files: ImageFiles
) -> Iterator[str]:
    """Yields the empty local folders next to folders of splits and classes."""
    full_folders = set(image_files.images.folders.dictionary.to_pylist())
    full_folders |= {
        file.path.rpartition("/")[0] for file, _ in image_files.other_files
    }
    for folder_layout in layout.input_layouts:
        start = folder_layout.folder.count("/") + 1 if folder_layout.folder else 0
        # Without the given folder itself and its parents.
        for index in sorted(
            {folder_layout.split_index, folder_layout.label_index}
            - {*range(_PARENT, start)}
        ):
            full = defaultdict[tuple[str, ...], set[str]](set)
            for folder in full_folders:
                *parent_parts, name = folder.split("/")[: index + 1]
                if len(parent_parts) == index and _is_below(
                    f"{folder}/", folder_layout.folder
                ):
                    full[tuple(parent_parts)].add(name)
            for parts, names in sorted(full.items()):
                for name in _empty_folders_in(root, "/".join(parts), names):
                    yield "/".join((*parts, name))


def _empty_folders_in(
    root: str, parent: str, full_names: Collection[str]
) -> Iterable[str]:
    """Returns the names of the subfolders that contain no file.

    Args:
      root: of the input.
      parent: the folder to search, relative to the root.
      full_names: the names of subfolders that are known to contain a file.
    """
    path = local_path(f"{root}{parent}")
    if not path.is_dir():  # an archive
        return ()
    with os.scandir(path) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name not in full_names
            and not is_skipped(entry.name)
            and entry.is_dir(follow_symlinks=False)
            and not Path(entry.path, WORK_FOLDER).exists()  # an output folder
            and not has_files(entry.path)
        )
