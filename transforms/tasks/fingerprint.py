"""Hashes what fixes the bytes of a dataset: format version, job and inventory."""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import chain
from typing import Any

import pyarrow as pa

from recordmill.schemas.job import JobSpec
from recordmill.transforms.inventory import NO_FILES, FileTable, joined

FORMAT_VERSION = 1  # raise it when the same job would give other bytes


def fingerprint_of(
    job: JobSpec,
    files: FileTable,
    side_files: FileTable = NO_FILES,
    *,
    reading: str = "",
) -> str:
    """Hashes all that fixes the bytes of a dataset: format version, job, inventory.

    It is the fingerprint of a dataset if the version of each file is its content, and
    the key of a run if it is what the listing says; paths and sizes count, too. The reject limit does not count: it
    changes no byte, so a run that exceeded it can be resumed with a higher one.
    `reading` is what `registry.describe_inputs` says of the inventory.
    """
    head = f"recordmill {FORMAT_VERSION}\n"
    head += json.dumps(fixed_fields(job), sort_keys=True)
    return _digest(head + reading, files, side_files)


def appended_fingerprint(
    base: str, files: FileTable, side_files: FileTable = NO_FILES, *, reading: str = ""
) -> str:
    """Hashes all that fixes the bytes of a dataset to which files were appended.

    Like `fingerprint_of` it is that of a dataset or the key of a run. `base` is the
    fingerprint of the dataset before, which stands for its job and files.
    """
    return _digest(f"recordmill append {base}{reading}", files, side_files)


def fixed_fields(job: JobSpec) -> dict[str, Any]:
    """Returns the fields of a job that fix bytes of the dataset, as JSON values.

    They are stored in datasets and hashed into fingerprints, so their keys never change.
    What has its default value is left out, so that a job may get new fields.
    """
    fields = job.model_dump(mode="json", exclude={"max_rejects"}, exclude_defaults=True)
    if job.map is not None:
        # Not where it lies, nor its text: the checksum stands for that.
        fields["map"] = {"function": job.map.function, "checksum": job.map.checksum}
    if not fields.get("source_options"):
        fields.pop("source_options", None)
    return fields


def _digest(head: str, *every: FileTable) -> str:
    digest = blake2b(digest_size=16)
    digest.update(head.encode())
    for batch in chain.from_iterable(files.batches() for files in every):
        size = batch["size"].cast(pa.string())
        version = batch["version"].fill_null("")
        digest.update(joined("\n", batch["path"], "\0", size, "\0", version))
    return digest.hexdigest()
