"""Tells what pictures were found, and refuses what cannot be a dataset of pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile, is_archive_name
from recordmill.schemas.input_summary import BY_FOLDER, CLASSES, PICTURES, Understood
from recordmill.schemas.job import MAX_SPLITS, SPLIT_PATTERN
from recordmill.schemas.text import count, first_names
from recordmill.transforms.sources.images.decodability import (
    DECODED,
    ENCODED,
    FACT,
)
from recordmill.transforms.sources.images.find_pictures import (
    ENDINGS,
    FoundPictures,
    ending_of,
)
from recordmill.transforms.sources.images.folder_layout import (
    ROOT,
    FolderLayout,
    Place,
)


def understand(
    found: FoundPictures,
    places: Sequence[Place],
    warnings: Iterable[str],
    *,
    decodable: bool,
) -> Understood:
    """Returns what was found, for people.

    Args:
      found: the pictures and the other files.
      places: split and class of each picture.
      warnings: what looks wrong with the folders.
      decodable: whether readers decode the pictures, as far as is known.
    """
    splits = Counter(place.split for place in places)
    classes = Counter(place.label for place in places if place.label)
    facts = [
        (CLASSES, f"{len(classes):,} ({_counted(sorted(classes.items()))})"),
        (PICTURES, told_endings(found.pictures)),
    ]
    facts.append((FACT, DECODED if decodable else ENCODED))
    if set(splits) - {""}:
        named = [(name or "no split", number) for name, number in splits.items()]
        facts.insert(0, (BY_FOLDER, _counted(named)))
    more = warn_passed_over(found)
    return Understood(tuple(facts), (*warnings, *more), found.passed_over())


def told_endings(pictures: Iterable[InputFile]) -> str:
    """Returns how many pictures have which ending, in words."""
    endings = Counter(ending_of(file.path).lower() or "no ending" for file in pictures)
    return _counted(endings.most_common())


def warn_passed_over(found: FoundPictures) -> list[str]:
    """Returns warnings of pictures whose format is not supported."""
    return [
        f"{count(each.files, 'picture')} passed over, such as {each.example}: "
        f"{each.reason}; save them as JPEG or PNG"
        for each in found.passed_over()
        if each.reason.endswith("not supported")
    ]


def _counted(numbers: Iterable[tuple[str, int]]) -> str:
    return first_names([f"{name} {number:,}" for name, number in numbers])


def splits_of(places: Iterable[Place]) -> tuple[str, ...]:
    """Returns the splits that folders are, train first; () if a picture is in none."""
    names = {place.split for place in places}
    if "" in names:
        return ()
    return tuple(
        sorted(
            names,
            key=lambda name: (name != "train", name),
        )
    )


def require_pictures(found: FoundPictures) -> None:
    """Refuses an input without pictures.

    Raises:
      InputError: says what is there.
    """
    if found.pictures:
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
        f"no pictures among {count(len(found.others), 'input file')} (endings: "
        f"{' '.join(sorted(endings)) or 'none'}); expected {' '.join(ENDINGS)}, or other "
        f"names with the content of such files{hint}"
    )


def require_classes(
    first: InputFile, layout: FolderLayout, places: Iterable[Place], label_from: str
) -> None:
    """Refuses pictures in no class folder at all, and splits with impossible names.

    Args:
      first: the first picture.
      layout: of all pictures.
      places: split and class of each picture.
      label_from: as the job has it.

    Raises:
      InputError: with the way out.
    """
    found = set(places)
    is_flat = len(layout.given) == 1 and layout.given[0].label == ROOT
    if not any(place.label for place in found) or (is_flat and label_from == "auto"):
        raise InputError(
            f"{first.uri}: is not in the folder of a class; expected "
            "INPUT/<class>/<picture>: give the folder that holds the class folders, or "
            "use `label_from=0` to make one class of each input, `label_table` for labels in a "
            "table, or `label_from=none` for pictures without labels"
        )
    splits = {place.split for place in found} - {""}
    for name in splits:
        if not SPLIT_PATTERN.fullmatch(name):
            raise InputError(
                f"{first.uri.removesuffix(first.path)}: a folder is the split {name!r}, "
                "expected letters, digits, '_' and '-': rename it, or give `split_from` "
                "another level"
            )
    if len(splits) > MAX_SPLITS:
        raise InputError(
            f"{first.uri.removesuffix(first.path)}: {len(splits):,} folders are splits, "
            f"expected at most {MAX_SPLITS}: give `split_from` another level"
        )
