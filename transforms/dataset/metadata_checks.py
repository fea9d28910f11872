"""Compares the files beside the shards with the manifest: metadata files, rejects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from recordmill.schemas.dataset.manifest import FileEntry, Manifest
from recordmill.schemas.dataset.parts import REJECTS_NAME
from recordmill.schemas.errors import OutputError
from recordmill.schemas.reject_totals import NO_REJECTS, RejectTotals
from recordmill.schemas.text import count
from recordmill.transforms.dataset.files import (
    fixed_copy_name,
    is_file,
    rejects_files,
)
from recordmill.transforms.dataset.manifest_checks import Problem
from recordmill.transforms.storage import Store
from recordmill.transforms.tfrecord import crc32c


def metadata_problems(
    files: Mapping[str, FileEntry], sizes: Mapping[str, int]
) -> Iterator[Problem]:
    """Yields metadata files that are missing or differ in size."""
    for file, expected in files.items():
        size = sizes.get(file)
        if size is None:
            yield Problem(file, f"missing: expected {count(expected.bytes, 'byte')}")
        elif size != expected.bytes:
            yield Problem(
                file,
                f"{count(size, 'byte')}, expected {expected.bytes:,}: it was changed",
            )


def content_problems(
    store: Store, files: Mapping[str, FileEntry], sizes: Mapping[str, int]
) -> Iterator[Problem]:
    """Reads the metadata files of the right size; yields those that were changed."""
    for file, expected in files.items():
        if sizes.get(file) != expected.bytes:
            continue
        try:
            found = f"{crc32c(store.read(file)):08x}"
        except OutputError as error:
            yield Problem(file, f"cannot be read: {error}")
            continue
        if found != expected.crc32c:
            yield Problem(
                file, f"CRC-32C is {found}, expected {expected.crc32c}: it was changed"
            )


def without_unfinished(
    store: Store, manifest: Manifest, problems: Iterable[Problem]
) -> list[Problem]:
    """Returns problems, those of files that only wait to be put in place as such.

    Files with fixed names are replaced behind the manifest. If the run was killed
    there, the record of its commit has them, and the next run puts them in place.
    """
    told = []
    for problem in problems:
        expected = manifest.files.get(problem.file)
        if expected is not None:
            copy = store.find(fixed_copy_name(manifest.mark, problem.file))
            if is_file(copy, expected):
                text = "not in place yet: the run was killed right behind its commit"
                told.append(Problem(problem.file, text, "unfinished"))
                continue
        told.append(problem)
    return told


def reject_problems(
    store: Store, manifest: Manifest, *, full: bool
) -> Iterator[Problem]:
    """Compares the kept rejects with the manifest.

    Manifests of earlier versions only tell how many there are.

    Args:
      store: of the dataset.
      manifest: its manifest.
      full: read them; otherwise only their size is compared.
    """
    expected = manifest.rejects
    if not manifest.rows_rejected or (expected is None and not full):
        return
    files = rejects_files(store, manifest)
    if not full and expected is not None:
        size = sum(files.values())
        if size != expected.bytes:
            yield Problem(
                REJECTS_NAME, f"{count(size, 'byte')}, expected {expected.bytes:,}"
            )
        return
    try:
        found = sum((RejectTotals.of(store.read(n)) for n in files), NO_REJECTS)
    except OutputError as error:
        yield Problem(REJECTS_NAME, f"cannot be read: {error}")
        return
    if found.rows != manifest.rows_rejected:
        yield Problem(
            REJECTS_NAME,
            f"{count(found.rows, 'reject')}, expected {manifest.rows_rejected:,}",
        )
    elif expected is not None and found != expected.totals:
        yield Problem(
            REJECTS_NAME,
            f"the {count(found.rows, 'reject')} differ from those that were written",
        )
