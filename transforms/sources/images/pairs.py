"""Finds and reads files that belong to images: masks, texts and the like in other folders.

A folder of such files stands for one of images, and a file for the image of its name:

    images/a/1.jpg    masks/a/1.png              a folder in place of another
    train/images/1    train/masks/1              the same below a split
    images/1          annotations/trimaps/1      two folders in place of one
    1.jpg             masks/1.png                a folder beside the images
    train/1.jpg       train_masks/1_mask.png     what all names end with does not count
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.images.header import (
    MAX_PIXELS,
    CheckLevel,
    ImageHeaderError,
    read_header,
)
from recordmill.transforms.images.pixel_rules import PixelRules
from recordmill.transforms.images.transform import (
    Frame,
    Samples,
    samples_of,
    transform_mask,
)
from recordmill.transforms.inventory import Inventory, folders_of
from recordmill.transforms.sources.file_splits import AUTO, NONE, likely_splits
from recordmill.transforms.sources.images.find import PARTNERS
from recordmill.transforms.sources.images.options import FileOptions, ImagesOptions
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.storage.reading import read_files

if TYPE_CHECKING:
    from recordmill.transforms.sources.images.annotations import _Draft

_IMAGES = re.compile(
    "(images?|imgs?|jpe?gimages|photos?|pictures|rgb|leftimg8bit|inputs?|raw|originals?|"
    "frames|stills|scans|x)"
)
_BETWEEN = re.compile(r"[-_ .]")
_ENDING = r"\.[^./]*$"
_KINDS = ("image", "text", "json")  # by the endings of the next line
_ENDINGS = (ImagesOptions.kind.endings, (".txt",), (".json",))
_UNREAD_ENDING = ".npy"
_SAMPLED = 32  # files of a pair, that tell what it is

Folder = tuple[str, ...]  # its parts


class Match(NamedTuple):
    """A folder of partners, and the one of their images; None if no name is the same."""

    folder: str
    images: str | None
    # the index of the part of the latter that only says: images
    cut: int | None = None
    suffix: str = ""  # what the names end with that does not count, of partners
    image_suffix: str = ""  # ... and of images


class Pair(NamedTuple):
    """The partners of images that become one feature."""

    name: str
    kind: str
    files: Inventory
    matches: tuple[Match, ...]


@dataclass
class _Tree:
    """The names of files by folder and kind."""

    files: Inventory
    _names: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folders = self.files.folders
        self.folders: list[str] = folders.dictionary.to_pylist()
        codes = folders.indices.to_numpy()
        self._order = np.argsort(codes, kind="stable")
        self._starts = np.searchsorted(codes[self._order], range(len(self.folders) + 1))
        self._code = {name: code for code, name in enumerate(self.folders)}
        self.kinds = np.full(len(codes), len(_KINDS), np.int8)
        for kind, endings in enumerate(_ENDINGS):
            self.kinds[np.asarray(self.files.ends_with(endings))] = kind
        self._stems = _stems(self.files.paths)
        self.beside: dict[Folder, set[str]] = defaultdict(set)
        for folder in self.folders:
            if folder and self.names(folder):
                parts = tuple(folder.split("/"))
                for depth in range(len(parts)):
                    self.beside[parts[:depth]].add(parts[depth])

    def names(self, folder: str, kind: str = "image") -> list[str]:
        """Returns the names of the files of a kind in a folder, without their endings."""
        if (folder, kind) not in self._names:
            found: list[str] = []
            if (code := self._code.get(folder)) is not None:
                at = self._order[self._starts[code] : self._starts[code + 1]]
                at = at[self.kinds[at] == _KINDS.index(kind)]
                found = self._stems.take(pa.array(at)).to_pylist()
            self._names[folder, kind] = found
        return self._names[folder, kind]

    def best(
        self,
        folder: str,
        others: Sequence[tuple[Folder, int | None]],
        kinds: Sequence[str] = _KINDS,
    ) -> tuple[int, str, Match]:
        """Returns how many names of a folder are those of images, their kind, and where.

        The others are folders that may hold the images, and what to cut from their names.
        """
        found = 0, "image", Match(folder, None)
        for parts, cut in others:
            other = "/".join(parts)
            images = self.names(other) if other != folder else []
            for kind in kinds if images else ():
                number, ends = _common(self.names(folder, kind), images)
                if number > found[0]:
                    found = number, kind, Match(folder, other, cut, *ends)
        return found


def _stems(paths: pa.ChunkedArray) -> pa.Array:
    names = pc.replace_substring_regex(paths, "^.*/", "")
    return pc.replace_substring_regex(names, _ENDING, "").combine_chunks()


def _common(own: Sequence[str], images: Sequence[str]) -> tuple[int, tuple[str, str]]:
    """Returns how many names are those of images, and the ends that do not count.

    >>> _common(["1_mask", "2_mask"], ["1", "2", "3"])
    (2, ('_mask', ''))
    """
    if number := len(set(images).intersection(own)):
        return number, ("", "")
    ends = _end(own), _end(images)
    bare = {name.removesuffix(ends[1]) for name in images}
    return len(bare.intersection(name.removesuffix(ends[0]) for name in own)), ends


def _end(names: Sequence[str]) -> str:
    """Returns what several names end with, from a mark between words."""
    if len(names) < 2:
        return ""
    number = _shared([tuple(name[::-1]) for name in names])
    end = names[0][len(names[0]) - number :]
    first = _BETWEEN.search(end)
    return end[first.start() :] if first else ""


def _shared(names: Sequence[Folder]) -> int:
    """Returns how many parts all names begin with."""
    each = enumerate(zip(min(names), max(names), strict=False))
    return next((at for at, (a, b) in each if a != b), len(min(names)))


def find_pairs(files: Inventory, options: ImagesOptions) -> tuple[Pair, ...]:
    """Finds the pairs that are named, or that the names of folders tell."""
    tree = _Tree(files)
    named: dict[str, list[Folder]] = defaultdict(list)
    for name, folder in options.pairs:
        named[name].append(tuple(folder.strip("/").split("/")))
    if not options.pairs:
        named = _guess(tree)
    taken = {parts[0] for each in named.values() for parts in each}
    return tuple(_pair(tree, name, each, taken) for name, each in named.items())


def _guess(tree: _Tree) -> dict[str, list[Folder]]:
    """Returns the folders of partners by the names of their features."""
    found: dict[str, list[Folder]] = defaultdict(list)
    doubtful: dict[str, str] = {}
    for folder in tree.folders:
        parts = tuple(folder.split("/"))
        for at, depth in ((a, d) for a in range(len(parts)) for d in (1, 2)):
            own = parts[at : at + depth]
            words = [PARTNERS.fullmatch(part) for part in own]
            if len(own) < depth or None in words:
                continue
            base = (words[0]["base"] if words[0] else "") or ""
            before, after = parts[:at], parts[at + depth :]
            others = [
                ((*before, other, *after), None if base else at)
                for other in sorted(tree.beside[before])
                if _holds_images(other, base)
            ]
            kinds = ("image", "json") if words[-1] and words[-1]["mask"] else _KINDS
            inside = [] if base else [((*before, *after), None)]
            number, kind, _ = tree.best(folder, [*others, *inside], kinds)
            if number and 2 * number >= len(tree.names(folder, kind)):
                name = own[-1] if not base or depth > 1 else own[0][len(base) :]
                name = name.lstrip("-_ ")
                if own not in found[name]:
                    found[name].append(own)
                doubtful.pop(folder, None)
                break
            held = ["/".join(other) for other, _ in others]
            held = [other for other in held if tree.names(other) and other != folder]
            if held and tree.names(folder):
                doubtful[folder] = held[0]
    for folder, other in doubtful.items():
        root = input_root(tree.files)
        raise InputError(
            f"{root}{folder}: is named like a folder of masks, but its "
            f"{count(len(tree.names(folder)), 'image')}, such as "
            f"{tree.names(folder)[0]!r}, have other names than those in {other!r}, such "
            f"as {tree.names(other)[0]!r}. If they are masks, name each like its image; "
            "if both folders are classes, use `pair=none`"
        )
    return found


def _holds_images(name: str, base: str) -> bool:
    """Returns whether a folder is named as one of images: images, or train of train_masks."""
    bare, base = (_BETWEEN.sub("", each).casefold() for each in (name, base))
    rest = bare.removeprefix(base)
    return _IMAGES.fullmatch(rest) is not None or (bool(base) and not rest)


def _nearest(own: str, other: str) -> tuple[bool, str]:
    return not own.startswith(other), other


def _pair(tree: _Tree, name: str, folders: Sequence[Folder], taken: set[str]) -> Pair:
    """Returns the pair of some folders."""
    total: dict[str, int] = defaultdict(int)
    matches = []
    for folder in tree.folders:
        parts = tuple(folder.split("/"))
        for own in folders:
            places = [
                at for at in range(len(parts)) if parts[at : at + len(own)] == own
            ]
            if not places:
                continue
            before, after = parts[: places[0]], parts[places[0] + len(own) :]
            # Of train and val, both with numbered images, train is that of train_masks.
            nearest = partial(_nearest, own[0])
            others = [
                (
                    (*before, each, *after),
                    None if likely_splits([each]) else len(before),
                )
                for each in sorted(tree.beside[before] - taken, key=nearest)
            ]
            inside = (*before, *after), None
            number, kind, match = tree.best(folder, [*others, inside])
            total[kind] += number
            matches.append(match)
            break
    root = input_root(tree.files)
    told = first_names(["/".join(each) for each in folders])
    if not matches:
        raise InputError(
            f"`pair`: {root}: no input file is in a folder {told!r}; its folders are "
            f"{first_names(list(map(repr, tree.folders)))}: name one of them, give the folder "
            "that holds images and partners as the input, or use `pair=none`"
        )
    kind = max(total, key=total.__getitem__)
    if not total[kind]:
        raise InputError(
            f"`pair`: {root}{matches[0].folder}: none of its files has the name of an image "
            f"(of the kinds {' '.join(sum(_ENDINGS, ()))}; {_UNREAD_ENDING} is not supported), "
            "expected masks/1.png for images/1.jpg. Name each like its image, or use "
            "`pair=none`"
        )
    own_folders = {match.folder for match in matches}
    is_own = np.array([folder in own_folders for folder in tree.folders])
    codes = tree.files.folders.indices.to_numpy()
    is_kind = tree.kinds == _KINDS.index(kind)
    files = tree.files.where(pa.array(is_own[codes] & is_kind))
    return Pair(name, kind, files, tuple(matches))


class Paired(NamedTuple):
    """The pairs of an input."""

    pairs: tuple[Pair, ...]
    options: ImagesOptions

    def others(self, files: Inventory) -> Inventory:
        """Returns the files that are no partners."""
        for pair in self.pairs:
            files = files.without(pair.files.paths)
        return files

    def layout(
        self, images: Inventory, options: FileOptions
    ) -> tuple[Inventory, FileOptions]:
        """Returns images as if they were not in folders of images, and options for these.

        What is left are folders of splits and classes; without a class there are no labels.
        Where the job says a level of the folders, they stay as they are.
        """
        if {options.split_from, options.label_from} - {AUTO, NONE}:
            return images, options
        folders = images.folders
        names: list[str] = folders.dictionary.to_pylist()
        cuts = [self._cut(name) for name in names]
        shorter = list(map(_without, names, cuts))
        kept = pa.array(shorter, pa.string()).take(folders.indices)
        last = pc.replace_substring_regex(images.paths, "^.*/", "").combine_chunks()
        slash = pc.if_else(pc.equal(kept, ""), "", "/")
        paths = pc.binary_join_element_wise(kept, slash, last, "")
        given = images.table["given"].combine_chunks().dictionary_encode()
        both = np.stack([given.indices.to_numpy(), folders.indices.to_numpy()])
        each, index = np.unique(both, axis=1, return_inverse=True)
        above = given.dictionary.to_pylist()
        found = [_without(above[a], cuts[b]) for a, b in each.T.tolist()]
        above = pa.array(found, pa.string()).take(pa.array(index.reshape(-1)))
        images = images.having("path", pa.chunked_array([paths]))
        images = images.having("given", pa.chunked_array([above]))
        parts = [tuple(name.split("/")) if name else () for name in shorter]
        tops = {part[_shared(parts) :] for part in parts}
        splits = {part[0] for part in tops if part}
        is_flat = max(map(len, tops)) < 2 and likely_splits(splits) == splits
        if options.label_from == AUTO and options.labels_by_folder and is_flat:
            options = options.model_copy(update={"label_from": NONE})
        return images, options

    def _cut(self, folder: str) -> int | None:
        """Returns the index of the part of a folder's name that only says: images."""
        matches = [match for pair in self.pairs for match in pair.matches]
        for match in matches:
            if match.images == folder:
                return match.cut
        parts = folder.split("/")
        known = {
            m.images.split("/")[m.cut]
            for m in matches
            if m.images and m.cut is not None
        }
        return next((at for at, part in enumerate(parts) if part in known), None)

    def add_to(
        self, draft: _Draft, storage: StorageOptions
    ) -> tuple[tuple[Partner, ...], list[tuple[InputFile, str]]]:
        """Adds the partners of images; returns what they are, and those without an image."""
        found = [_add(draft, pair, self.options, storage) for pair in self.pairs]
        alone = [each for _, others in found for each in others]
        return tuple(partner for partner, _ in found), alone

    def describe(self) -> str:
        """Returns what fixes the bytes of a dataset."""
        told = [
            (pair.name, pair.kind, *map(tuple, pair.matches)) for pair in self.pairs
        ]
        return f" pairs {told}"


def _without(folder: str, cut: int | None) -> str:
    """Returns a folder without one part of its name.

    >>> _without("a/images/b", 1)
    'a/b'
    """
    parts = folder.split("/")
    if cut is not None and cut < len(parts):
        del parts[cut]
    return "/".join(parts)


_COLUMNS = ("path", "size", "version")


def _add(
    draft: _Draft, pair: Pair, options: ImagesOptions, storage: StorageOptions
) -> tuple[Partner, list[tuple[InputFile, str]]]:
    """Adds the partner of each image; returns what they are, and those without an image."""
    files = pair.files.table
    own = {match.folder: (match.images, match.suffix) for match in pair.matches}
    of = {match.images: match for match in pair.matches if match.images is not None}
    keys = _keys(pair.files.paths, own)
    ends = {folder: (folder, match.image_suffix) for folder, match in of.items()}
    wanted = _keys(draft.images.paths, ends)
    found = pc.index_in(wanted, value_set=keys, skip_nulls=True)
    rows = files.take(found).combine_chunks()
    is_missing = pc.is_null(found)
    # Few, and each with its own reason.
    for row in _where(is_missing):
        above, _, name = draft.images[row].path.rpartition("/")
        reason = f"no folder of {pair.name!r} belongs to its folder"
        if match := of.get(above):
            stem = re.sub(_ENDING, "", name).removesuffix(match.image_suffix)
            path = f"{match.folder}/{stem}{match.suffix}.*"
            reason = f"has no {pair.name!r}: expected a file {path!r}"
        draft.unlisted[row] = draft.unlisted[row] or reason
    for row in _where(rows["problem"].is_valid()):
        reason = f"{rows['path'][row]}: {rows['problem'][row]}"
        draft.problems[row] = draft.problems[row] or reason
    counted = pc.value_counts(keys)
    several = counted.field(0).filter(pc.greater(counted.field(1), 1))
    for is_wrong, what in (
        (pc.is_in(wanted, value_set=several, skip_nulls=True), "several files"),
        (
            pc.greater(rows["size"], MAX_CELL_BYTES),
            f"more than {MAX_CELL_BYTES:,} bytes",
        ),
    ):
        where = np.zeros(len(rows), np.bool_)
        where[_where(is_wrong)] = True
        draft.reject(
            where, f"has {what} of {pair.name!r}, expected one that a record holds"
        )
    columns = [rows[name].chunk(0) for name in _COLUMNS]
    draft.partners[pair.name] = pa.StructArray.from_arrays(
        columns, _COLUMNS, mask=is_missing
    )
    is_known = pc.is_in(keys, value_set=wanted, skip_nulls=True)
    alone = pair.files.where(pc.invert(is_known))
    partner = _partner(pair, options, storage)
    told = first_names(
        [match.folder or "the input folder" for match in pair.matches], 3
    )
    what = str(partner.samples or partner.kind)
    number = len(rows) - pc.sum(is_missing).as_py()
    draft.facts.append((f"pair {pair.name}", f"{number:,} of {what}, in {told}"))
    return partner, [(f, f"no image is named like this {pair.name!r}") for f in alone]


def _where(mask: pa.Array) -> list[int]:
    return np.flatnonzero(
        pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    ).tolist()


def _keys(
    paths: pa.ChunkedArray, of: Mapping[str, tuple[str | None, str]]
) -> pa.StringArray:
    """Returns what files and their images have in common: folder and name; null for none.

    `of` has the folder of images of each folder, and what names there end with.
    """
    folders = folders_of(paths)
    names = folders.dictionary.to_pylist()
    targets = pa.array([of.get(name, (None, ""))[0] for name in names], pa.string())
    stems = _stems(paths)
    for end in {end for _, end in of.values()} - {""}:
        has = pa.array([of.get(name, (None, ""))[1] == end for name in names])
        bare = pc.replace_substring_regex(stems, f"{re.escape(end)}$", "")
        stems = pc.if_else(has.take(folders.indices), bare, stems)
    return pc.binary_join_element_wise(targets.take(folders.indices), stems, "/")


class Partner(NamedTuple):
    """What the partners of a pair are: a feature."""

    name: str
    kind: str
    samples: Samples | None = None  # of masks

    def spec(self, rules: PixelRules) -> FeatureSpec:
        """Returns the feature."""
        if self.samples is None:
            return FeatureSpec(self.name, Kind.BYTES, dtype="string")
        *sides, _ = rules.shape
        shape = (*sides, self.samples.channels)
        content = Content.IMAGE
        if rules.transforms_all and rules.form == "raw":
            content = Content.TENSOR if None in shape else Content.ARRAY
        return FeatureSpec(
            self.name,
            Kind.BYTES,
            dtype=self.samples.dtype,
            shape=shape,
            content=content,
        )

    def value(
        self,
        path: str,
        data: bytes,
        frame: Frame,
        rules: PixelRules,
        level: CheckLevel,
        max_pixels: int,
    ) -> bytes:
        """Returns what is stored of a file; raises ImageHeaderError."""
        try:
            if self.samples is not None:
                return transform_mask(
                    data, self.samples, frame, rules, level, max_pixels
                )
            text = data.decode()
            if self.kind == "json":
                json.loads(text)
        except UnicodeDecodeError as error:
            problem = f"not UTF-8: byte {data[error.start]:#04x} at {error.start}"
        except ImageHeaderError as error:
            problem = str(error)
        except (ValueError, RecursionError) as error:
            problem = f"not JSON: {error}"
        else:
            return data
        raise ImageHeaderError(f"its {self.name}, {path}: {problem}")


def _partner(pair: Pair, options: ImagesOptions, storage: StorageOptions) -> Partner:
    """Finds out what partners are, by the content of some of them."""
    if pair.kind != "image":
        return Partner(pair.name, pair.kind)
    readable = pair.files.where(pc.is_null(pair.files.table["problem"]))
    at = np.unique(np.linspace(0, len(readable) - 1, _SAMPLED).astype(np.int64))
    sampled = list(readable.take(pa.array(at))) if len(readable) else []
    found: dict[Samples, int] = defaultdict(int)
    problem = ""
    contents = read_files(((file.uri, file.seen) for file in sampled), storage)
    for file, data in zip(sampled, contents, strict=True):
        try:
            found[samples_of(data, options.max_pixels)] += 1
        except ImageHeaderError as error:
            problem = problem or f", such as {file.uri}: {error}"
    if not found:
        raise InputError(
            f"`pair`: none of {count(len(sampled), 'file')} of {pair.name!r} that were looked "
            f"at can be read{problem}. Mend them, or use `pair=none`"
        )
    channels = max(found, key=lambda each: (found[each], each)).channels
    # Numbers of 8 bits can be stored in 16.
    dtypes = {each.dtype for each in found if each.channels == channels}
    samples = Samples(channels, "uint16" if "uint16" in dtypes else "uint8")
    if options.mask_pad > 255 and samples.dtype == "uint8":
        raise InputError(
            f"`mask_pad`: masks of {pair.name!r} have 8 bits, expected 255 or less, found "
            f"{options.mask_pad}"
        )
    return Partner(pair.name, "image", samples)


def require_no_masks(
    files: Sequence[InputFile], root: str, storage: StorageOptions
) -> None:
    """Refuses images of one name, each of another class, if some are like masks of others."""
    contents = read_files(((file.uri, file.seen) for file in files), storage)
    masks, sizes = [], set()
    try:
        for file, data in zip(files, contents, strict=True):
            header = read_header(data)
            sizes.add((header.height, header.width))
            if samples_of(data, MAX_PIXELS).channels == 1:
                masks.append(file.path)
    except (ImageHeaderError, OSError):
        return  # told where it is read
    if len(sizes) > 1 or len(masks) in (0, len(files)):
        return
    others = [file.path for file in files if file.path not in masks]
    folder = masks[0].rpartition("/")[0]
    raise InputError(
        f"{root}{folder}: is a class like others, but has images of the same names as "
        f"{others[0].rpartition('/')[0]!r}, and {masks[0]!r} is of the size of "
        f"{others[0]!r} and has one channel. If they are masks, use `pair=mask={folder}`; "
        "if all folders are classes, `pair=none`"
    )
