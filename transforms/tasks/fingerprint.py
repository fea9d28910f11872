"""Computes fingerprints of datasets from format version, job and inventory."""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import chain
from typing import Any

import pyarrow as pa

from recordmill.schemas.job import JobSpec
from recordmill.transforms.inventory import NO_FILES, FileTable, join_texts

FORMAT_VERSION = 1  # increment it when the same job would write other bytes


def fingerprint_of(
    job: JobSpec,
    files: FileTable,
    sidecar_files: FileTable = NO_FILES,
    *,
    reading: str = "",
) -> str:
    """Returns the hash of all that determines a dataset's bytes: format, job, inventory.

    It is the fingerprint of a dataset if the version of each file is a hash of its
    content, and the key of a run if the version comes from the listing. Paths and sizes
    are included. The reject limit is not: it changes no byte, so a run that exceeded it
    can be resumed with a higher limit. `reading` is the description of the inventory by
    `registry.describe_inputs`.
    """
    head = f"recordmill {FORMAT_VERSION}\n"
    head += json.dumps(fixed_fields(job), sort_keys=True)
    return _digest(head + reading, files, sidecar_files)


def appended_fingerprint(
    base: str,
    files: FileTable,
    sidecar_files: FileTable = NO_FILES,
    *,
    reading: str = "",
) -> str:
    """Returns the hash of all that determines a dataset's bytes after an append.

    Like `fingerprint_of`, it is the fingerprint of a dataset or the key of a run. `base`
    is the fingerprint of the dataset before the append, which covers its job and files.
    """
    return _digest(f"recordmill append {base}{reading}", files, sidecar_files)


def fixed_fields(job: JobSpec) -> dict[str, Any]:
    """Returns the fields of a job that determine the dataset's bytes, as JSON values.

    They are stored in datasets and hashed into fingerprints, so their keys never change.
    Fields with their default value are omitted, so that new fields can be added to jobs.
    """
    fields = job.model_dump(mode="json", exclude={"max_rejects"}, exclude_defaults=True)
    if job.map is not None:
        # The checksum represents the module; its path and text are omitted.
        fields["map"] = {"function": job.map.function, "checksum": job.map.checksum}
    if not fields.get("source_options"):
        fields.pop("source_options", None)
    return fields


def _digest(head: str, *tables: FileTable) -> str:
    digest = blake2b(digest_size=16)
    digest.update(head.encode())
    for batch in chain.from_iterable(files.batches() for files in tables):
        size = batch["size"].cast(pa.string())
        version = batch["version"].fill_null("")
        digest.update(join_texts("\n", batch["path"], "\0", size, "\0", version))
    return digest.hexdigest()
