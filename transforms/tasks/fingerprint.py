"""Hashes what fixes the bytes of a dataset: format version, job and inventory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, TypeAlias

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.ranges import RangeFile

FORMAT_VERSION = 1  # raise it when the same job would give other bytes
# Of JobSpec: left out where they have their default.
_LATER_FIELDS = (
    *("gzip_level", "index", "container", "label", "map"),
    *("split_column", "split_by_time", "split_exact", "stratify_by"),
)
_FIRST_OPTIONS = {"feature_names": "default", "variant": "auto"}  # of images and cifar


ListedFile: TypeAlias = InputFile | RangeFile
"""A file with what fixes the bytes that are made of it: path, size, version."""


def fingerprint_of(
    job: JobSpec,
    files: Iterable[ListedFile],
    side_files: Iterable[ListedFile] = (),
    *,
    reading: str = "",
) -> str:
    """Hashes all that fixes the bytes of a dataset: format version, job, inventory.

    It is the fingerprint of a dataset if the version of each file is its content, and
    the key of a run if it is what the listing says. The reject limit does not count: it
    changes no byte, so a run that exceeded it can be resumed with a higher one.
    `reading` is what `registry.describe_inputs` says of the inventory.
    """
    head = f"recordmill {FORMAT_VERSION}\n"
    head += json.dumps(fixed_fields(job), sort_keys=True)
    return _digest(head + reading, (*files, *side_files))


def appended_fingerprint(
    base: str,
    files: Iterable[ListedFile],
    side_files: Iterable[ListedFile] = (),
    *,
    reading: str = "",
) -> str:
    """Hashes all that fixes the bytes of a dataset to which files were appended.

    Like `fingerprint_of` it is that of a dataset or the key of a run. `base` is the
    fingerprint of the dataset before, which stands for its job and files.
    """
    return _digest(f"recordmill append {base}{reading}", (*files, *side_files))


def fixed_fields(job: JobSpec) -> dict[str, Any]:
    """Returns the fields of a job that fix bytes of the dataset, as JSON values.

    They are stored in datasets and hashed into fingerprints, so their keys never
    change, and fields that came later are left out where they have their default value.
    Two options are older than `source_options` and stay beside the other fields; newer
    ones are in `source_options`, unless they have their default value.
    """
    options = job.source_options.model_dump(mode="json", exclude_defaults=True)
    fields: dict[str, Any] = {}
    for name, value in job.model_dump(mode="json", exclude={"max_rejects"}).items():
        if name in _LATER_FIELDS and value == JobSpec.model_fields[name].default:
            continue
        if name == "map" and job.map is not None:
            # Not where it lies, nor its text: the checksum stands for that.
            checksum = job.map.checksum
            fields[name] = {"function": job.map.function, "checksum": checksum}
            continue
        if name != "source_options":
            fields[name] = value
            continue
        for option, default in _FIRST_OPTIONS.items():
            fields[option] = options.pop(option, default)
        if options:
            fields[name] = options
    return fields


def _digest(head: str, files: Iterable[ListedFile]) -> str:
    digest = blake2b(digest_size=16)
    digest.update(head.encode())
    for file in files:
        digest.update(f"\n{file.path}\0{file.size}\0{file.version}".encode())
    return digest.hexdigest()
