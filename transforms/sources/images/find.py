"""Finds the images among the input files: by their names, or else by their content.

A file with a usual ending is an image, and a reject if its content is not. Any other
file is one if its first bytes are; the rest is skipped and counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile, is_archive_name
from recordmill.schemas.input_summary import SkippedFiles
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count, first_names
from recordmill.transforms.images.header import (
    SIGNATURE_BYTES,
    is_certain_image,
    other_image_format,
)
from recordmill.transforms.sources.images.options import ImagesOptions
from recordmill.transforms.sources.listing import find_named
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

ENDINGS = (".jpeg", ".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_THREADS = 16  # most of the time is waiting for the store
_AT_ONCE = 4096
_SHOWN_ENDINGS = 5

# (split of all images that it names, or "", and file) of each file, by the option that
# names it.
NamedInputs = Mapping[str, Sequence[tuple[str, InputFile]]]


@dataclass(frozen=True, slots=True)
class FoundImages:
    """The images among the input files, in their order, and the others with the reason.

    The checksums are of the first bytes that decided, where they were read.
    """

    images: tuple[InputFile, ...]
    others: tuple[tuple[InputFile, str], ...]
    signatures: tuple[FileChecksum, ...] = ()

    def __add__(self, more: FoundImages) -> FoundImages:
        return FoundImages(
            self.images + more.images,
            self.others + more.others,
            self.signatures + more.signatures,
        )


def find_named_inputs(
    options: ImagesOptions, files: Sequence[InputFile]
) -> NamedInputs:
    """Returns the tables, lists and classes among the files of an input."""
    every = defaultdict[str, list[tuple[str, InputFile]]](list)
    for option, split, name in options.named_files:
        found = find_named(name, files)
        if not found:
            raise InputError(f"`{option}`: no input file is named {name!r}")
        for each in found:
            if each.problem:
                raise InputError(f"`{option}`: {each.uri}: {each.problem}")
        every[option] += [(split, file) for file in found]
    return every


def find_images(
    files: Sequence[InputFile], named: NamedInputs, storage: StorageOptions
) -> FoundImages:
    """Finds the images; reads the first bytes of files with other endings."""
    if paths := {file.path for part in named.values() for _, file in part}:
        files = [file for file in files if file.path not in paths]
    unknown = [f for f in files if not f.path.lower().endswith(ENDINGS)]
    if not unknown:
        return FoundImages(tuple(files), ())
    signatures: list[FileChecksum] = []

    def reason(file: InputFile) -> str:
        """Returns why a file is not an image: its ending or some words; "" if it is."""
        if file.problem:
            return f"{file.problem.partition(' (')[0]}, not named as an image"
        if not file.size:
            return "empty"
        size = min(file.size, SIGNATURE_BYTES)
        head = read_range(file.uri, 0, size, storage, file.seen)
        signatures.append(FileChecksum(file.path, 0, len(head), crc32c(head)))
        if is_certain_image(head):
            return ""
        if other := other_image_format(head):
            return f"{other} is not supported"
        return PurePosixPath(file.path).suffix.lower() or "no ending, no image in it"

    reasons: dict[str, str] = {}
    with ThreadPoolExecutor(_THREADS) as threads:
        for start in range(0, len(unknown), _AT_ONCE):
            part = unknown[start : start + _AT_ONCE]
            reasons |= zip(
                (f.path for f in part), threads.map(reason, part), strict=True
            )
    return FoundImages(
        tuple(file for file in files if not reasons.get(file.path)),
        tuple((file, reasons[file.path]) for file in unknown if reasons[file.path]),
        tuple(sorted(signatures)),
    )


def count_skipped(skipped: Sequence[tuple[str, str]]) -> tuple[SkippedFiles, ...]:
    """Counts (reason, path) of files by reason; rare endings count together."""
    endings = Counter(reason for reason, _ in skipped if reason[:1] == ".")
    common = {ending for ending, _ in endings.most_common(_SHOWN_ENDINGS)}

    def shown(reason: str) -> str:
        if reason[:1] != ".":
            return reason
        return f"{reason if reason in common else 'other endings'}, no image in it"

    return SkippedFiles.counted((shown(reason), path) for reason, path in skipped)


def ending_of(path: str) -> str:
    """Returns the suffix of a path as pathlib gives it, in a tenth of the time.

    >>> ending_of("a.b/c.tar.gz"), ending_of("a.b/.gz"), ending_of("c.")
    ('.gz', '', '')
    """
    name = path.rpartition("/")[2]
    place = name.rfind(".")
    return name[place:] if 0 < place < len(name) - 1 else ""


def count_endings(paths: Iterable[str]) -> str:
    """Returns how many paths have which ending, the most frequent first."""
    endings = Counter(ending_of(path).lower() or "no ending" for path in paths)
    return first_names([f"{name} {number:,}" for name, number in endings.most_common()])


def require_images(found: FoundImages) -> None:
    """Refuses an input without images: says what is there."""
    if found.images:
        return
    endings = {PurePosixPath(file.path).suffix for file, _ in found.others}
    archives = [file for file, _ in found.others if is_archive_name(file.path)]
    hint = ""
    if archives:
        hint = (
            f". {archives[0].uri} is an archive: what is in it is read if the archive "
            "itself is the input, or a glob that matches it"
        )
    raise InputError(
        f"no images among {count(len(found.others), 'input file')} (endings: "
        f"{' '.join(sorted(endings)) or 'none'}); expected {' '.join(ENDINGS)}, or other "
        f"names with the content of such files{hint}"
    )
