"""Kept files and the content of files by path, as tests make and compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from recordmill.schemas.input_files import FileChecksum
from recordmill.schemas.job import JobSpec
from recordmill.transforms.commit import inputs
from recordmill.transforms.commit.inputs import (
    ConvertedFile,
    ConvertedFiles,
    PartInputs,
    dump_part_inputs,
)
from recordmill.transforms.file_content import CHECKSUMS, Checksums, compute_contents
from recordmill.transforms.inventory import NO_FILES, Inventory
from recordmill.transforms.join import join_rows
from recordmill.transforms.tasks.fingerprint import FORMAT_VERSION, fixed_fields


def contents_of(
    parts: Iterable[FileChecksum], sizes: Mapping[str, int]
) -> dict[str, str]:
    """The content of each file of which something was read."""
    files = pa.table(
        {"path": pa.array(list(sizes), pa.string()), "size": [*sizes.values()]}
    )
    read = pa.Table.from_batches(Checksums(parts).batches, CHECKSUMS)
    found = join_rows(files, read, compute_contents, pa.string())
    told = zip(sizes, found.to_pylist(), strict=True)
    return {path: content for path, content in told if content is not None}


def dump_inputs(
    fingerprint: str,
    job: JobSpec,
    files: Inventory,
    side_files: Inventory = NO_FILES,
    *,
    run_key: str = "",
) -> bytes:
    """What a run listed, as a dataset keeps it."""
    listed = inputs.converted_files_of(files, side_files)
    kept = PartInputs(
        FORMAT_VERSION, fingerprint, fixed_fields(job), listed, run_key=run_key
    )
    return dump_part_inputs(kept)


def kept_files(files: Mapping[str, ConvertedFile]) -> ConvertedFiles:
    """Files by path, in columns."""
    rows = [{"path": path, **file._asdict()} for path, file in files.items()]
    schema = ConvertedFiles.from_inventory(NO_FILES, are_sidecars=False).table.schema
    return ConvertedFiles(pa.Table.from_pylist(rows, schema))
