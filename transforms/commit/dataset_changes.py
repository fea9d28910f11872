"""Describes how a run differs from the dataset that it finds: options and inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recordmill.schemas.errors import OutputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.text import count
from recordmill.transforms.commit.inputs import (
    ContentCheck,
    KeptFile,
    option_changes,
    read_part,
)
from recordmill.transforms.sources.registry import describe_inputs
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.fingerprint import FORMAT_VERSION, fixed_fields

_SHOWN = 3  # files of each kind


def dataset_changes(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Sequence[InputFile],
    side_files: Sequence[InputFile] = (),
    check: ContentCheck | None = None,
) -> list[str]:
    """Describes what differs between a dataset and the run that finds it, if known.

    Args:
      store: of the dataset.
      manifest: its manifest.
      job: of the run.
      files: all inputs of the run.
      side_files: files that cells may name.
      check: what compared them.

    Returns:
      A line for each kind of change; none if the dataset does not tell.
    """
    kept: dict[str, KeptFile] = {}
    try:
        for part in range(manifest.appended + 1):
            inventory = read_part(store, manifest, part)
            kept |= inventory.files
    except OutputError:  # it has no inventory, or a damaged one
        return []
    if inventory.fingerprint != manifest.fingerprint:
        return []
    changes = list(option_changes(inventory.job, fixed_fields(job)))
    if inventory.format_version != FORMAT_VERSION:
        changes.append(
            f"the format of the records: {inventory.format_version}, now {FORMAT_VERSION}"
        )
    if told := ", ".join(_file_changes(kept, [*files, *side_files], check)):
        changes.append(f"input files: {told}")
    if manifest.appended and not changes:
        changes.append(f"rows that {count(manifest.appended, 'append')} added")
    if not changes and describe_inputs(job, files):
        changes.append("which folders are read as splits and as classes")
    return changes


def _file_changes(
    kept: Mapping[str, KeptFile],
    files: Sequence[InputFile],
    check: ContentCheck | None,
) -> Iterator[str]:
    """Yields how many files are new, gone or changed, with the first names."""
    now = {file.path: file for file in files}
    both = [path for path in now if path in kept]
    check = check or ContentCheck()
    touched = [
        path for path in both if not check.is_known_as_same(kept[path], now[path])
    ]
    resized = [path for path in both if now[path].size != kept[path].size]
    same_size = [path for path in touched if now[path].size == kept[path].size]
    for paths, what in (
        ([path for path in now if path not in kept], "new"),
        ([path for path in kept if path not in now], "gone"),
        (resized, "changed"),
        (same_size, "written again with the same size"),
    ):
        if paths:
            more = ", ..." if len(paths) > _SHOWN else ""
            yield f"{len(paths):,} {what} ({', '.join(paths[:_SHOWN])}{more})"
