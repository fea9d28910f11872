"""Finds and reads partners: files that belong to images, such as masks and captions.

A folder of partners corresponds to a folder of images, and a partner to the image of the
same name:

    images/a/1.jpg    masks/a/1.png              a folder in place of another
    train/images/1    train/masks/1              the same below a split
    images/1          annotations/trimaps/1      two folders in place of one
    1.jpg             masks/1.png                a folder next to the images
    train/1.jpg       train_masks/1_mask.png     an ending of all names is ignored
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Shape,
    format_shape,
)
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.arrow import MAX_CELL_BYTES, nested_lists
from recordmill.transforms.encode.row_errors import utf8_reason
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    ImageHeaderError,
    read_header,
)
from recordmill.transforms.images.pixel_rules import PixelRules
from recordmill.transforms.images.transform import (
    MaskedImage,
    Samples,
    has_many_values,
    samples_of,
    transform_array,
    transform_mask,
)
from recordmill.transforms.inventory import (
    Inventory,
    base_names,
    parent_folders,
    strip_extensions,
)
from recordmill.transforms.parallel import map_ahead
from recordmill.transforms.sources.arrays.headers import (
    MAX_HEADER_BYTES,
    parse_header_length,
    parse_npy,
    read_npy,
)
from recordmill.transforms.sources.arrays.rows import to_native_dtype
from recordmill.transforms.sources.file_splits import (
    AUTO,
    NONE,
    format_exclude_option,
    likely_splits,
)
from recordmill.transforms.sources.images.folder_words import (
    IMAGES_FOLDER,
    PARTNER_FOLDER,
)
from recordmill.transforms.sources.images.options import FileOptions, ImagesOptions
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.storage.reading import REQUESTS, read_files, read_head

if TYPE_CHECKING:
    from recordmill.transforms.sources.images.annotation_draft import AnnotationDraft

_SEPARATOR = re.compile(r"[-_ .]")
_KINDS = ("image", "text", "json", "array")  # by the endings of the next line
_ENDINGS = (ImagesOptions.kind.endings, (".txt",), (".json",), (".npy",))
_NUM_SAMPLED, _NUM_DECODED = (
    32,
    8,
)  # files of a pair that are read and decoded to find its type
_HEAD_BYTES = 1 << 16  # first bytes of an image, which contain its size in most files

Folder = tuple[str, ...]  # its parts


class FolderMatch(NamedTuple):
    """A folder of partners, with the folder of their images if file names match."""

    partner_folder: str  # of the partners
    image_folder: str | None = None  # the folder of the images
    kind: str = "image"  # of the partners
    num_equal_names: int = 0  # of equal file names
    # the index of the part of the images' folder that only means "images"
    cut_index: int | None = None
    suffix: str = ""  # the ignored ending of the names of partners
    image_suffix: str = ""  # the ignored ending of the names of images


class Pair(NamedTuple):
    """The partners of images that become one feature."""

    name: str
    kind: str
    files: Inventory
    matches: tuple[FolderMatch, ...]

    def partner_keys(self, files: Inventory) -> pa.StringArray:
        """Returns the key that each partner shares with its image.

        The key is null for files outside of the folders of the pair.
        """
        images_and_suffixes = {
            match.partner_folder: (match.image_folder, match.suffix)
            for match in self.matches
        }
        return _build_keys(files.paths, images_and_suffixes)

    def image_keys(self, images: Inventory) -> pa.StringArray:
        """Returns the key that each image shares with its partner.

        The key is null for images outside of the folders of the pair.
        """
        ends = {
            match.image_folder: (match.image_folder, match.image_suffix)
            for match in self.matches
        }
        return _build_keys(images.paths, ends)

    def sample(self) -> Inventory:
        """Returns a sample of the readable files, evenly spread."""
        readable = self.files.filter(pc.is_null(self.files.table["problem"]))
        at = np.unique(np.linspace(0, len(readable) - 1, _NUM_SAMPLED).astype(np.int64))
        return readable.take(pa.array(at)) if len(readable) else readable


class _FolderNames:
    """The names of files by folder and kind."""

    def __init__(self, files: Inventory) -> None:
        self.files, self.root = files, input_root(files)
        self.kinds = np.full(len(files), len(_KINDS))
        for kind, endings in enumerate(_ENDINGS):
            self.kinds[np.asarray(files.ends_with(endings))] = kind
        self.codes = files.folders.indices.to_numpy()
        self.folders: list[str] = files.folders.dictionary.to_pylist()
        columns = {
            "folder": self.codes,
            "kind": self.kinds,
            "name": strip_extensions(base_names(files.paths)),
        }
        groups = pa.table(columns).group_by(["folder", "kind"], use_threads=False)
        listed = groups.aggregate([("name", "list")]).to_pydict().values()
        self._names: dict[tuple[str, str], list[str]] = {
            (self.folders[code], _KINDS[kind]): names
            for code, kind, names in zip(*listed, strict=True)
            if kind < len(_KINDS)
        }
        self._subfolders: dict[Folder, set[str]] = defaultdict(set)
        for folder in self.folders:
            parts = tuple(folder.split("/"))
            for depth in range(len(parts) if folder and self.names(folder) else 0):
                self._subfolders[parts[:depth]].add(parts[depth])

    def names(self, folder: str, kind: str = "image") -> list[str]:
        """Returns the names of the files of a kind in a folder, without their endings."""
        return self._names.get((folder, kind), [])

    def find_matches(
        self,
        partner_parts: Folder,
        holds_images: Callable[[str], bool],
        kinds: Sequence[str] = _KINDS,
        *,
        inside: bool = True,
    ) -> Iterator[FolderMatch]:
        """Yields the best match of each folder of partners with a folder of images.

        Args:
          partner_parts: the consecutive path parts that mark folders of partners.
          holds_images: tests whether a folder name may replace these parts in the path
            of the images.
          kinds: of files that may be partners.
          inside: whether the path of the images may lack these parts.
        """
        for folder in self.folders:
            parts = tuple(folder.split("/"))
            positions = range(len(parts))
            at = next(
                (
                    n
                    for n in positions
                    if parts[n : n + len(partner_parts)] == partner_parts
                ),
                None,
            )
            if at is None:
                continue
            parts_before, parts_after = parts[:at], parts[at + len(partner_parts) :]
            candidate_folders: list[tuple[Folder, int | None]] = [
                (
                    (*parts_before, name, *parts_after),
                    None if likely_splits([name]) else at,
                )
                # If train and val both have numbered images, train matches train_masks.
                for name in sorted(
                    self._subfolders[parts_before],
                    key=lambda n: (n not in partner_parts[0], n),
                )
                if holds_images(name)
            ]
            yield max(
                (
                    FolderMatch(folder, "/".join(other), kind, number, cut, *ends)
                    for other, cut in [
                        *candidate_folders,
                        *[((*parts_before, *parts_after), None)] * inside,
                    ]
                    for kind in kinds
                    if (images := self.names("/".join(other)))
                    for number, ends in [
                        _count_equal_names(self.names(folder, kind), images)
                    ]
                ),
                key=lambda match: match.num_equal_names,
                default=FolderMatch(folder),
            )


def _count_equal_names(
    partner_names: Sequence[str], images: Sequence[str]
) -> tuple[int, tuple[str, str]]:
    """Returns the number of equal names, and the ignored endings of both sides.

    >>> _count_equal_names(["1_mask", "2_mask"], ["1", "2", "3"])
    (2, ('_mask', ''))
    """
    if number := len(set(images).intersection(partner_names)):
        return number, ("", "")
    ends = _common_ending(partner_names), _common_ending(images)
    bare = {name.removesuffix(ends[1]) for name in images}
    return len(
        bare.intersection(name.removesuffix(ends[0]) for name in partner_names)
    ), ends


def _common_ending(names: Sequence[str]) -> str:
    """Returns the common ending of several names, from a separator on, or ""."""
    if len(names) < 2:
        return ""
    ends = (names[0][mark.start() :] for mark in _SEPARATOR.finditer(names[0]))
    return next((end for end in ends if all(n.endswith(end) for n in names)), "")


def find_pairs(files: Inventory, options: ImagesOptions) -> tuple[Pair, ...]:
    """Returns the pairs that `pair` names, or that folder names imply.

    Raises:
      InputError: a named folder does not exist or has no partner of an image; or a folder
        of images is named like masks but matches no image.
    """
    tree = _FolderNames(files)
    matches_by_name = (
        defaultdict[str, list[FolderMatch]](list)
        if options.pairs
        else _guess_pairs(tree)
    )
    named_folders = [
        (name, tuple(path.strip("/").split("/"))) for name, path in options.pairs
    ]
    first_parts = {folder_parts[0] for _, folder_parts in named_folders}
    for name, folder_parts in named_folders:
        matches_by_name[name] += tree.find_matches(
            folder_parts, lambda other: other not in first_parts
        )
        if not matches_by_name[name]:
            raise InputError(
                f"`pair`: {tree.root}: no input file is in a folder {'/'.join(folder_parts)!r}; "
                f"its folders are {format_names(list(map(repr, tree.folders)))}: name "
                "one of them, use the folder with the images and their partners as the "
                "input, or use `pair=none`"
            )
        if not any(match.num_equal_names for match in matches_by_name[name]):
            raise InputError(
                f"`pair`: {tree.root}{matches_by_name[name][0].partner_folder}: no file in it "
                f"({' '.join(sum(_ENDINGS, ()))}) has the name of an image, expected "
                "masks/1.png for images/1.jpg. Name each like its image, or use "
                "`pair=none`"
            )
    return tuple(
        _build_pair(tree, *name_and_matches)
        for name_and_matches in matches_by_name.items()
    )


def _guess_pairs(tree: _FolderNames) -> defaultdict[str, list[FolderMatch]]:
    """Returns the matches that folder names imply, by feature name."""
    folder_paths = {tuple(folder.split("/")) for folder in tree.folders}
    single = {parts[at : at + 1] for parts in folder_paths for at in range(len(parts))}
    double = {
        parts[at : at + 2] for parts in folder_paths for at in range(len(parts) - 1)
    }
    matches_by_name = defaultdict[str, list[FolderMatch]](list)
    used_folders, doubtful = set[Folder](), list[FolderMatch]()
    for folder_parts in [*sorted(single), *sorted(double)]:
        words = [
            word for part in folder_parts if (word := PARTNER_FOLDER.fullmatch(part))
        ]
        if len(words) < len(folder_parts) or folder_parts[:1] in used_folders:
            continue
        mask, base = words[-1]["mask"], words[0]["base"] or ""
        kinds = ("image", "json", "array") if mask else _KINDS
        holds_images = partial(_holds_images, base=base)
        matches = [
            *tree.find_matches(folder_parts, holds_images, kinds, inside=not base)
        ]
        if any(
            2 * match.num_equal_names
            >= len(tree.names(match.partner_folder, match.kind))
            > 0
            for match in matches
        ):
            matches_by_name[mask if base else folder_parts[-1]] += matches
            used_folders.add(folder_parts)
        elif not base:
            doubtful += [match for match in matches if not match.num_equal_names]
    for folder, images, *_ in doubtful:
        if images is not None and tree.names(folder) and not used_folders:
            raise InputError(
                f"{tree.root}{folder}: is named like a folder of masks, but its "
                f"{format_count(len(tree.names(folder)), 'image')}, such as "
                f"{tree.names(folder)[0]!r}, have other names than those in {images!r}, such "
                f"as {tree.names(images)[0]!r}. If they are masks, name each like its image; "
                "if both folders are classes, use `pair=none`"
            )
    return matches_by_name


def _holds_images(name: str, base: str) -> bool:
    """Tests whether a folder name means images: images, or train for train_masks."""
    bare, base = (
        _SEPARATOR.sub("", folder_name).casefold() for folder_name in (name, base)
    )
    remaining_name = bare.removeprefix(base)
    return IMAGES_FOLDER.fullmatch(remaining_name) is not None or (
        bool(base) and not remaining_name
    )


def _build_pair(
    tree: _FolderNames, name: str, folder_matches: Sequence[FolderMatch]
) -> Pair:
    total = Counter[str]()
    for match in folder_matches:
        total[match.kind] += match.num_equal_names
    kind = max(total, key=total.__getitem__)
    partner_folders = {match.partner_folder for match in folder_matches}
    is_own = np.array([folder in partner_folders for folder in tree.folders])[
        tree.codes
    ]
    files = tree.files.filter(pa.array(is_own & (tree.kinds == _KINDS.index(kind))))
    # The other folders have no images of these names.
    matches = (
        match if match.num_equal_names else FolderMatch(match.partner_folder)
        for match in folder_matches
    )
    return Pair(name, kind, files, tuple(matches))


class Partners(NamedTuple):
    """The pairs of an input, with the options that find them."""

    pairs: tuple[Pair, ...]
    options: ImagesOptions

    def exclude_partners(self, files: Inventory) -> Inventory:
        """Returns the files that are not partners."""
        for pair in self.pairs:
            files = files.without_paths(pair.files.paths)
        return files

    def cut_image_folders(
        self, images: Inventory, options: FileOptions
    ) -> tuple[Inventory, FileOptions]:
        """Returns images with paths that lack the folders named "images", and options.

        The remaining folders are splits and classes. If there are no classes, the
        options are changed to have no labels. If options name the level of a folder,
        images and options are returned unchanged.
        """
        if {options.split_from, options.label_from} - {AUTO, NONE}:
            return images, options
        folders = images.folders
        shorter = [
            self._cut_folder(folder) for folder in folders.dictionary.to_pylist()
        ]
        kept_folders = pa.array(shorter, pa.string()).take(folders.indices)
        slash = pc.if_else(pc.equal(kept_folders, ""), "", "/")
        paths = pc.binary_join_element_wise(
            kept_folders, slash, base_names(images.paths), ""
        )
        images = images.with_column("path", pa.chunked_array([paths]))
        # A folder of images and a folder of masks, given as two inputs, are one input.
        images = images.with_column(
            "given_folder", pa.chunked_array([pa.repeat("", len(paths))])
        )
        top = os.path.commonpath(shorter)
        relative_folders = {
            folder.removeprefix(top).strip("/") for folder in shorter
        } - {""}
        is_flat = likely_splits(relative_folders) == relative_folders and not any(
            "/" in folder for folder in relative_folders
        )
        if options.label_from == AUTO and options.labels_by_folder and is_flat:
            options = options.model_copy(update={"label_from": NONE})
        return images, options

    def _cut_folder(self, folder: str) -> str:
        """Returns a folder without the part of its path that only means "images"."""
        cuts = {
            m.image_folder: m.cut_index
            for pair in self.pairs
            for m in pair.matches
            if m.image_folder
        }
        cut_names = {
            images.split("/")[cut]
            for images, cut in cuts.items()
            if images and cut is not None
        }
        parts = folder.split("/")
        positions = (at for at, part in enumerate(parts) if part in cut_names)
        cut = cuts[folder] if folder in cuts else next(positions, None)
        return "/".join(part for at, part in enumerate(parts) if at != cut)

    def add_to(
        self, draft: AnnotationDraft, storage: StorageOptions, *, has_objects: bool
    ) -> tuple[tuple[PartnerFeature, ...], list[tuple[InputFile, str]]]:
        """Adds the partners of images to their annotations.

        If images have objects and at most half of them have masks, as in Pascal VOC, no
        mask is added.

        Returns:
          The features, and (file, reason) of each file that is not added.
        """
        partners, files_without_image = [], []
        for pair in self.pairs:
            is_few = has_objects and 2 * len(pair.files) <= len(draft.images)
            if is_few and pair.kind == "image" and self.options.pair == AUTO:
                fact = (
                    f"masks of {len(pair.files):,} of {len(draft.images):,} images: "
                    f"pair={_format_option(pair)} stores them as a feature, and rejects "
                    "images without a mask"
                )
                draft.facts.append((f"no pair {pair.name}", fact))
                files_without_image += [
                    (file, "masks of few images") for file in pair.files
                ]
                continue
            partner, unmatched_files = _add_partners(draft, pair, self.options, storage)
            partners.append(partner)
            files_without_image += unmatched_files
        return tuple(partners), files_without_image

    def moves_arrays(self, images: Inventory, storage: StorageOptions) -> bool:
        """Tests whether arrays are transformed with the pixels of their images."""
        return any(
            pair.kind == "array" and _are_moved(pair, images, self.options, storage)
            for pair in self.pairs
        )


_COLUMNS = ("path", "size", "version")


def _add_partners(
    draft: AnnotationDraft, pair: Pair, options: ImagesOptions, storage: StorageOptions
) -> tuple[PartnerFeature, list[tuple[InputFile, str]]]:
    """Adds the partner of each image in a pair.

    Returns the feature, and (file, reason) of each file without an image.
    """
    match_by_folder = {
        match.image_folder: match
        for match in pair.matches
        if match.image_folder is not None
    }
    keys, image_keys = pair.partner_keys(pair.files), pair.image_keys(draft.images)
    partner_rows = pc.index_in(image_keys, value_set=keys, skip_nulls=True)
    rows = pair.files.table.take(partner_rows).combine_chunks()
    is_missing = pc.is_null(partner_rows)
    # A loop: these images are few, and each has its own reason.
    for row in np.flatnonzero(_true_mask(is_missing)).tolist():
        folder, _, name = draft.images[row].path.rpartition("/")
        reason = f"no folder of {pair.name!r} belongs to its folder"
        if match := match_by_folder.get(folder):
            stem = os.path.splitext(name)[0].removesuffix(match.image_suffix)  # noqa: PTH122
            path = f"{match.partner_folder}/{stem}{match.suffix}.*"
            reason = f"has no {pair.name!r}: expected a file {path!r}"
        draft.unlisted_reasons[row] = draft.unlisted_reasons[row] or reason
    for row in np.flatnonzero(_true_mask(rows["problem"].is_valid())).tolist():
        reason = f"{rows['path'][row]}: {rows['problem'][row]}"
        draft.problems[row] = draft.problems[row] or reason
    counted = pc.value_counts(keys)
    repeated_keys = counted.field(0).filter(pc.greater(counted.field(1), 1))
    is_twice = pc.is_in(image_keys, value_set=repeated_keys, skip_nulls=True)
    for is_wrong, description in (
        (is_twice, "several files"),
        (
            pc.greater(rows["size"], MAX_CELL_BYTES),
            f"more than {MAX_CELL_BYTES:,} bytes",
        ),
    ):
        reason = (
            f"has {description} of {pair.name!r}, expected one that fits into a record"
        )
        draft.reject(_true_mask(is_wrong), reason)
    draft.partners[pair.name] = pa.StructArray.from_arrays(
        [rows[name].chunk(0) for name in _COLUMNS], _COLUMNS, mask=is_missing
    )
    is_known = pc.is_in(keys, value_set=image_keys, skip_nulls=True)
    files_without_image = pair.files.filter(pc.invert(is_known))
    partner = _sample_partner(pair, draft.root, draft.images, options, storage)
    folders = [match.partner_folder or "the input folder" for match in pair.matches]
    description = str(partner.samples or partner.kind)
    if partner.kind == "array":
        sides = format_shape(partner.shape)
        treatment = "moved with their images" if partner.is_moved else "kept unchanged"
        description = f"arrays of {partner.dtype} of shape {sides}, {treatment}"
    number = len(rows) - partner_rows.null_count
    fact = f"{number:,} of {description}, in {format_names(folders, 3)}"
    draft.facts.append((f"pair {pair.name}", fact))
    return partner, [
        (f, f"no image is named like this {pair.name!r}") for f in files_without_image
    ]


def _true_mask(mask: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(mask, False), np.bool_)


def _build_keys(
    paths: pa.ChunkedArray, targets_by_folder: Mapping[Any, tuple[str | None, str]]
) -> pa.StringArray:
    """Returns the key of each file: folder of the images and name; null if no folder.

    Args:
      paths: of the files.
      targets_by_folder: for each folder of files, the folder of the images and the ending
        of file names that is ignored.
    """
    folders = parent_folders(paths)
    targets_and_ends = [
        targets_by_folder.get(name, (None, ""))
        for name in folders.dictionary.to_pylist()
    ]
    stems = strip_extensions(base_names(paths))
    for end in {end for _, end in targets_and_ends} - {""}:
        has = pa.array([folder_end == end for _, folder_end in targets_and_ends]).take(
            folders.indices
        )
        bare = pc.replace_substring_regex(stems, f"{re.escape(end)}$", "")
        stems = pc.if_else(has, bare, stems)
    targets = pa.array([target for target, _ in targets_and_ends], pa.string())
    return pc.binary_join_element_wise(targets.take(folders.indices), stems, "/")


class PartnerFeature(NamedTuple):
    """The feature that the partners of a pair become."""

    name: str
    kind: str
    samples: Samples | None = None  # of masks
    is_guessed: bool = False  # whether only folder names imply the pair
    dtype: str = ""  # of arrays
    shape: Shape = ()  # of the stored arrays; None for each side if shapes differ
    is_moved: bool = False  # whether arrays are transformed with the pixels of images

    def spec(self, rules: PixelRules) -> FeatureSpec:
        """Returns the spec of the feature."""
        if self.kind == "array":
            content = Content.TENSOR if None in self.shape else Content.ARRAY
            of_array = FeatureSpec(self.name, Kind.BYTES, dtype=self.dtype)
            return replace(of_array, shape=self.shape, content=content)
        if self.samples is None:
            return FeatureSpec(self.name, Kind.BYTES, dtype="string")
        *sides, _ = rules.shape
        shape, content = (*sides, self.samples.channels), Content.IMAGE
        if rules.transforms_all and rules.encoding == "raw":
            content = Content.TENSOR if None in shape else Content.ARRAY
        mask = FeatureSpec(self.name, Kind.BYTES, dtype=self.samples.dtype)
        return replace(mask, shape=shape, content=content)

    def encode_file(
        self,
        path: str,
        content: bytes,
        frame: MaskedImage,
        rules: PixelRules,
        level: CheckLevel,
        max_pixels: int,
    ) -> bytes:
        """Returns the bytes to store for a partner.

        Args:
          path: of the partner, for errors.
          content: of the partner.
          frame: its image, and whether that was turned.
          rules: of the pixels.
          level: how masks are checked.
          max_pixels: the largest height x width of a mask.

        Raises:
          ImageHeaderError: the partner is invalid, or does not fit its image.
        """
        try:
            if self.samples is not None:
                return transform_mask(
                    content, self.samples, frame, rules, level, max_pixels
                )
            if self.kind == "array":
                return self._encode_array(content, frame, rules)
            text = content.decode()
            if self.kind == "json":
                json.loads(text)
        except UnicodeDecodeError:
            problem = utf8_reason(content, "file")
        except (ImageHeaderError, InputError) as error:
            hint = ". If the folder has no masks, use `pair=none`"
            problem = f"{error}{hint if self.is_guessed else ''}"
        except (ValueError, RecursionError) as error:
            problem = f"not JSON: {error}"
        else:
            return content
        raise ImageHeaderError(f"its {self.name}, {path}: {problem}")

    def _encode_array(
        self, content: bytes, frame: MaskedImage, rules: PixelRules
    ) -> bytes:
        """Returns the numbers of an array as bytes.

        If the shapes of arrays differ, the sides precede the numbers, as little-endian
        int64.
        """
        array, sides = read_npy(content, "the file"), self.shape
        array_shape = array.shape
        is_one = array.dtype.name == self.dtype and len(array_shape) == len(sides)
        if is_one and self.is_moved:
            array = transform_array(array, frame, rules)
        if not is_one or (None not in sides and array.shape != sides):
            raise ImageHeaderError(
                f"has {array.dtype} of shape {format_shape(array_shape)}, expected "
                f"{self.dtype} of shape {format_shape(sides)}, as others have"
            )
        head = np.array(array.shape if None in sides else (), "<i8").tobytes()
        return head + array.astype(array.dtype.newbyteorder("<")).tobytes()

    def to_lists(self, column: pa.BinaryArray) -> pa.LargeListArray:
        """Returns arrays of different shapes as nested lists, the form of a tensor."""
        cells, axes = column.to_pylist(), len(self.shape)
        sides = np.array([np.frombuffer(cell, "<i8", axes) for cell in cells], np.int64)
        dtype = np.dtype(self.dtype).newbyteorder("<")
        array_bytes = b"".join(cell[8 * axes :] for cell in cells)
        numbers = to_native_dtype(np.frombuffer(array_bytes, dtype), dtype)
        return nested_lists(pa.array(numbers), sides.reshape(-1, axes))


def _sample_partner(
    pair: Pair,
    root: str,
    images: Inventory,
    options: ImagesOptions,
    storage: StorageOptions,
) -> PartnerFeature:
    """Returns the feature of a pair, by the content of a sample of its files.

    Raises:
      InputError: no file of the sample is valid; or a folder named like masks has photos.
    """
    if pair.kind in ("text", "json"):
        return PartnerFeature(pair.name, pair.kind)
    sampled = list(pair.sample())
    content_counts = Counter[Any]()
    problem, is_guessed, photos = "", options.pair == AUTO, list[bool]()
    contents = read_files(((file.uri, file.stat) for file in sampled), storage)
    for file, content in zip(sampled, contents, strict=True):
        try:
            if pair.kind == "array":
                array = read_npy(content, file.path)
                content_counts[array.dtype.name, array.shape] += 1
                continue
            content_counts[samples_of(content, options.max_pixels)] += 1
            if is_guessed and len(photos) < _NUM_DECODED:
                photos.append(has_many_values(content, options.max_pixels))
        except (ImageHeaderError, InputError) as error:
            problem = problem or f", such as {file.uri}: {error}"
    if not content_counts:
        raise InputError(
            f"`pair`: no checked file ({format_count(len(sampled), 'file')} of {pair.name!r}) "
            f"can be read{problem}. Fix them, or use `pair=none`"
        )
    if pair.kind == "array":
        is_moved = _are_moved(pair, images, options, storage)
        return _build_array_partner(
            pair, root, options, content_counts, is_moved=is_moved
        )
    if 2 * sum(photos) > len(photos):
        folder, other, *_ = next(
            match for match in pair.matches if match.image_folder is not None
        )
        raise InputError(
            f"{root}{folder}: is named like a folder of masks, but its images, such as "
            f"{sampled[0].path!r}, have as many colors or gray levels as photos. If "
            f"they belong to the images in {other!r}, use `pair={_format_option(pair)}`; if "
            "both folders are classes, `pair=none`"
        )
    channels = max(
        content_counts,
        key=lambda mask_samples: (content_counts[mask_samples], mask_samples),
    ).channels
    # Numbers of 8 bits can be stored in 16.
    dtypes = {
        mask_samples.dtype
        for mask_samples in content_counts
        if mask_samples.channels == channels
    }
    samples = Samples(channels, "uint16" if "uint16" in dtypes else "uint8")
    if options.mask_pad > 255 and samples.dtype == "uint8":
        raise InputError(
            f"`mask_pad`: masks of {pair.name!r} have 8 bits, expected 255 or less, found "
            f"{options.mask_pad}"
        )
    return PartnerFeature(pair.name, "image", samples, is_guessed)


def _moving_options(options: ImagesOptions) -> list[str]:
    """Returns the names of the options that move the pixels of images."""
    rules = options.pixel_rules()
    moving = [name for name in ("resize", "crop", "pad") if getattr(rules, name)]
    return moving + ["orientation"] * rules.turns


def _are_moved(
    pair: Pair, images: Inventory, options: ImagesOptions, storage: StorageOptions
) -> bool:
    """Tests whether options move pixels and most arrays have the sides of images."""
    if not _moving_options(options):
        return False
    arrays = pair.sample()
    rows = pc.index_in(
        pair.partner_keys(arrays), value_set=pair.image_keys(images), skip_nulls=True
    )
    arrays_and_images = [
        (array, images[row])
        for array, row in zip(arrays, rows.to_pylist(), strict=True)
        if row is not None and not images[row].problem
    ]
    are_same = map_ahead(
        arrays_and_images, partial(_have_equal_sides, storage=storage), REQUESTS
    )
    return 2 * sum(are_same) > len(arrays_and_images)


def _have_equal_sides(
    array_and_image: tuple[InputFile, InputFile], storage: StorageOptions
) -> bool:
    """Tests whether an array's first two sides are height and width of an image.

    The order does not matter, because EXIF data may turn the image.

    Args:
      array_and_image: the two files.
      storage: options of their storage.
    """
    array, image = array_and_image
    head = read_head(array, MAX_HEADER_BYTES, storage)
    with suppress(InputError):
        shape = parse_npy(
            head[: parse_header_length(head, array.path)], array.path, 0
        ).shape
        # A JPEG may begin with a long segment, such as a preview.
        for size in (_HEAD_BYTES, image.size):
            with suppress(ImageHeaderError):
                header = read_header(read_head(image, size, storage))
                return sorted(shape[:2]) == sorted((header.height, header.width))
    return False


def _build_array_partner(
    pair: Pair,
    root: str,
    options: ImagesOptions,
    array_counts: Counter[tuple[str, tuple[int, ...]]],
    *,
    is_moved: bool,
) -> PartnerFeature:
    """Returns the feature of a pair of arrays.

    Args:
      pair: of the arrays.
      root: of the input.
      options: of the job.
      array_counts: the number of arrays in the sample by (dtype name, shape).
      is_moved: whether options move pixels and most arrays have the sides of images.
    """
    kinds = Counter[tuple[str, int]]()
    for (name, sides), number in array_counts.items():
        kinds[name, len(sides)] += number
    dtype, axes = max(
        kinds, key=lambda name_and_axes: (kinds[name_and_axes], name_and_axes)
    )
    shapes = [
        sides for name, sides in array_counts if (name, len(sides)) == (dtype, axes)
    ]
    is_moved = is_moved and axes > 1
    moving = _moving_options(options)
    shape: Shape = shapes[0]
    parts = map(PARTNER_FOLDER.fullmatch, pair.matches[0].partner_folder.split("/"))
    is_mask = options.pair == AUTO and any(part and part["mask"] for part in parts)
    if moving and axes > 1 and is_mask and not is_moved:
        raise InputError(
            f"{root}{pair.matches[0].partner_folder}: is named like a folder of masks, but its "
            f"arrays, such as one of shape {format_shape(shape)}, do not begin with the "
            f"height and width of their images, whose pixels `{moving[0]}` moves. Save "
            "masks as arrays of (height, width) or as .png, use "
            f"`pair={_format_option(pair, pair.name)}` to keep the arrays unchanged, or "
            "`pair=none` for none"
        )
    # Files of equal size have arrays of equal size, because headers are padded.
    is_one = len(array_counts) == 1 and len(pc.unique(pair.files.table["size"])) == 1
    if is_moved:
        rules = options.pixel_rules()
        shape = (*rules.shape[:2], *shape[2:])
        is_one = None not in shape and len({sides[2:] for sides in shapes}) == 1
        with np.errstate(over="ignore"):
            is_held = np.array(rules.mask_pad).astype(dtype) == rules.mask_pad
        if rules.pad and not is_held:
            raise InputError(
                f"`mask_pad`: arrays of {pair.name!r} are {dtype}, expected a value of "
                f"this type, such as 0, found {rules.mask_pad}"
            )
    shape = shape if is_one else (None,) * axes
    return PartnerFeature(
        pair.name, pair.kind, dtype=dtype, shape=shape, is_moved=is_moved
    )


def _format_option(pair: Pair, name: str = "mask") -> str:
    """Returns the text of the option `pair` that names a pair."""
    folder_pairs = [match[:2] for match in pair.matches]
    folder_parts = {
        _differing_part(folder, images)
        for folder, images in folder_pairs
        if images is not None
    }
    return ",".join(f"{name}={folder_part}" for folder_part in sorted(folder_parts))


def _differing_part(folder: str, images: str) -> str:
    """Returns the part of a folder's path that differs from the folder of its images.

    >>> _differing_part("data/masks/cat", "data/images/cat")
    'masks'
    """
    partner_parts, image_parts = (
        path.split("/") if path else [] for path in (folder, images)
    )
    for at in (0, -1):
        while (
            len(partner_parts) > 1
            and image_parts
            and partner_parts[at] == image_parts[at]
        ):
            del partner_parts[at], image_parts[at]
    return "/".join(partner_parts)


_MASK_ENDING = r"(?i)[-_ .](?:masks?|segs?|segmentation|labels?|gt|groundtruth|trimap)$"


def require_no_masks_in_folder(images: Inventory) -> None:
    """Raises InputError if masks are in the folder of their images: 1.jpg, 1_mask.png."""

    def are_named_so(part: Inventory) -> pa.ChunkedArray:
        return pc.match_substring_regex(strip_extensions(part.paths), _MASK_ENDING)

    if 3 * pc.sum(images.map_parts(are_named_so)).as_py() < len(images):
        return
    names = strip_extensions(images.paths.combine_chunks())
    bare = pc.replace_substring_regex(names, _MASK_ENDING, "")
    is_mask = pc.and_(pc.not_equal(bare, names), pc.is_in(bare, value_set=names))
    masks = images.filter(is_mask)
    if not masks or 3 * len(masks) < len(images):
        return
    of_first = images.filter(pc.equal(names, bare.filter(is_mask)[0]))[0].path
    name = masks[0].path.rpartition("/")[2]
    end = name.removeprefix(
        strip_extensions(pa.array([of_first.rpartition("/")[2]]))[0].as_py()
    )
    raise InputError(
        f"{masks[0].uri}: has the name of {of_first} and {end!r}, as have "
        f"{format_count(len(masks), 'image')} of {len(images):,}; expected masks in a "
        "separate folder, as in images/1.jpg and masks/1.png. If they are masks, move "
        f"them into one, or leave them out with {format_exclude_option(end, glob_prefix='*')}; if not, "
        "use `pair=none`"
    )


def require_no_mask_classes(
    files: Sequence[InputFile], root: str, storage: StorageOptions
) -> None:
    """Raises InputError if some of the images may be masks of the others.

    Args:
      files: images of the same name, each in the folder of another class.
      root: of the input.
      storage: options of the inputs' storage.
    """
    contents = read_files(((file.uri, file.stat) for file in files), storage)
    masks, sizes = [], set()
    try:
        for file, content in zip(files, contents, strict=True):
            header = read_header(content)
            sizes.add((header.height, header.width))
            if samples_of(content, MAX_PIXELS).channels == 1:
                masks.append(file.path)
    except (ImageHeaderError, OSError):
        return  # reported later, when the image is read
    if len(sizes) > 1 or len(masks) in (0, len(files)):
        return
    other_paths = [file.path for file in files if file.path not in masks]
    folder, images = (paths[0].rpartition("/")[0] for paths in (masks, other_paths))
    raise InputError(
        f"{root}{folder}: is a class like others, but has images of the same names as "
        f"{images!r}, and {masks[0]!r} has the size of {other_paths[0]!r} and one channel. "
        f"If they are masks, use `pair=mask={_differing_part(folder, images)}`; if all folders "
        "are classes, `pair=none`"
    )
