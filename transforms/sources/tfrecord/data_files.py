"""Finds the TFRecord files among the input files, and the split that each is in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.errors import InputError
from recordmill.schemas.job.job_spec import SPLIT_PATTERN
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.schemas.understood import PassedOver
from recordmill.transforms.sources.tfrecord.file_bytes import look_at
from recordmill.transforms.storage.reading import is_local

# mnist-train.tfrecord-00000-of-00001, train-00000-of-01024, part-3.tfrecords.gz
_NAMED = re.compile(r"\.(tfrecords?|tfrec|tfr)\b|-\d{5,}-of-\d{5,}$", re.IGNORECASE)
_BESIDE = re.compile(
    r"\.(json|txt|pbtxt|md|html?|ya?ml|csv|tsv|tfindex|tfrecord\.index|idx|index|"
    r"array_record\S*)$|^_SUCCESS$|^LICENSE",
    re.IGNORECASE,
)
_ARRAY_RECORD = re.compile(r"\.array_?record[^/]*$", re.IGNORECASE)
_WORDS = "train(?:ing)?|val(?:id(?:ation)?)?|dev|eval(?:uation)?|test(?:ing)?"
_IN_NAME = re.compile(rf"(?:^|[-_.])({_WORDS})(?=[-_.]|\d|$)", re.IGNORECASE)
_FOLDER = re.compile(rf"(?:{_WORDS})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The files that hold records.

    Attributes:
      files: them, in the order of the input.
      compressions: how many there are of each compression, as far as they were looked at.
      all_plain: whether all were looked at, and none is compressed.
      passed_over: the others.
    """

    files: tuple[InputFile, ...]
    compressions: tuple[tuple[str, int], ...]
    all_plain: bool
    passed_over: tuple[PassedOver, ...]


def find_data(files: Sequence[InputFile], storage: StorageOptions) -> DataFiles:
    """Finds the files that hold records, by their content, and in a store by name.

    A file with a TFRecord's name is one even if its first record is damaged. Files of a
    store are looked at only where their name tells nothing: each costs a request.

    Raises:
      InputError: there is none, or one is compressed in another way.
    """
    data: list[InputFile] = []
    others: list[tuple[str, str]] = []
    kinds: dict[str, int] = {}
    all_seen = True
    for file in files:
        name = PurePosixPath(file.path).name
        named = bool(_NAMED.search(name)) and not _BESIDE.search(name)
        if file.problem or (_BESIDE.search(name) and not named):
            others.append((file.problem or "no records by its name", file.path))
            continue
        if not file.size:
            others.append(("empty", file.path))
            continue
        if named and not is_local(file.uri):
            all_seen = False
            data.append(file)
            continue
        kind, fits = look_at(file.uri, storage, file.seen)
        if fits or named:
            kinds[kind] = kinds.get(kind, 0) + 1
            data.append(file)
        else:
            others.append(("no TFRecord at its start", file.path))
    arrays = [path for _, path in others if _ARRAY_RECORD.search(path)]
    if not data and arrays:
        raise InputError(
            f"no TFRecord file, but {count(len(arrays), 'ArrayRecord file')}, such as "
            f"{arrays[0]}, which are no input. Convert what they were made from once more, "
            "with `container=tfrecord`"
        )
    if not data:
        raise InputError(
            f"no TFRecord file among {count(len(files), 'input file')}: none begins "
            "with the length of a record and its checksum, as it is or unpacked from gzip "
            "or zlib" + (f" ({others[0][1]}: {others[0][0]})" if others else "")
        )
    return DataFiles(
        tuple(data),
        tuple(sorted(kinds.items())),
        all_seen and kinds.keys() <= {"plain"},
        PassedOver.counted(others),
    )


def split_by_file(
    files: Sequence[InputFile],
    manifests: Mapping[str, Manifest],
    infos: Mapping[str, bytes],
) -> dict[str, str]:
    """Returns the split of each file, by path; "" where nothing tells it.

    Args:
      files: those with records.
      manifests: recordmill's manifests among the inputs, by folder.
      infos: TFDS's dataset_info.json, by folder.
    """
    named = {folder: _splits_of_info(info) for folder, info in infos.items()}
    stated = {
        f"{folder}/{shard.file}".lstrip("/"): split
        for folder, manifest in manifests.items()
        for split, entry in manifest.splits.items()
        for shard in entry.shards
    }
    found = {}
    for file in files:
        path = PurePosixPath(file.path)
        split = stated.get(file.path, "")
        split = split or _by_info(path.name, *named.get(folder_of(file.path), ("", ())))
        found[file.path] = split or _by_words(path)
    return found


def folder_of(path: str) -> str:
    """Returns the folder of a path below the input root; "" for the root."""
    return path.rpartition("/")[0]


def _splits_of_info(info: bytes) -> tuple[str, tuple[str, ...]]:
    """Returns the dataset's name and its splits, the longest first."""
    try:
        stated = json.loads(info)
        name = str(stated["name"])
        splits = [str(split["name"]) for split in stated["splits"]]
    except (ValueError, LookupError, TypeError):
        return "", ()
    return name, tuple(sorted(filter(SPLIT_PATTERN.fullmatch, splits), key=len))[::-1]


def _by_info(name: str, dataset: str, splits: Sequence[str]) -> str:
    for split in splits:
        if name.startswith((f"{dataset}-{split}.", f"{dataset}-{split}-")):
            return split
    return ""


def _by_words(path: PurePosixPath) -> str:
    match = _IN_NAME.search(path.name)
    if match is not None:
        return match[1]
    return path.parent.name if _FOLDER.fullmatch(path.parent.name) else ""
