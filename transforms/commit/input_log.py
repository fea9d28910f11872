"""The inventory that a dataset keeps: what it was made from, and by which job.

    {"recordmill": 1, "fingerprint": "...", "job": {...}}   how its part was made
    ["2026/first.csv", 1234, "1700000000000000000"]         path, bytes, version
    ["pictures/1.png", 99, "1700000000000000000", "side"]   a file that cells may name

JSON lines, gzip with neither name nor clock, one such file for each part of a dataset
(see recordmill.schemas.dataset.parts). Only what fixes the dataset's bytes is in it: paths are relative to
the input root, and max_rejects is left out. Read when inputs are appended, by no reader
of records.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.parts import inputs_name
from recordmill.schemas.errors import InputError, MissingFileError, OutputError
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.ranges import InputFile
from recordmill.transforms.storage import Store
from recordmill.transforms.tasks.context import FORMAT_VERSION, fixed_fields

_SIDE = "side"
_LEVEL = 6
_NAMED = 3  # files that an error names

_ANEW = (
    "convert everything again with --overwrite, or as a version of its own "
    "(--dataset-version auto), without appending"
)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file as it was when it was converted; `is_side` if only cells could name it."""

    size: int
    version: str
    is_side: bool


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """What one part was made from.

    Attributes:
      format_version: of the records' bytes (see recordmill.transforms.tasks.context).
      fingerprint: of the dataset once this part was in it.
      job: the fields of the job, as `fixed_fields` gives them.
      files: by path.
    """

    format_version: int
    fingerprint: str
    job: dict[str, Any]
    files: dict[str, KeptFile]


def dump_inputs(
    fingerprint: str,
    job: JobSpec,
    files: Sequence[InputFile],
    side_files: Iterable[InputFile] = (),
) -> bytes:
    """The inventory of a part; the same bytes for the same job and files."""
    head = {
        "recordmill": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "job": fixed_fields(job),
    }
    inputs = {file.path for file in files}
    lines = [_line(head)]
    lines += [_line([file.path, file.size, file.version]) for file in files]
    lines += [
        _line([file.path, file.size, file.version, _SIDE])
        for file in side_files
        if file.path not in inputs
    ]
    # Python's gzip writes the machine's kind and, unless told, the time.
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress("".join(lines).encode()) + packer.flush()


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_inputs(data: bytes, uri: str) -> KeptInputs:
    """Reads an inventory.

    Raises:
      OutputError: it is damaged, or is none.
    """
    try:
        head_line, *lines = gzip.decompress(data).decode().split("\n")[:-1]
        head = json.loads(head_line)
        # One call for all lines: a million files in a second.
        entries = json.loads(f"[{','.join(lines)}]")
        files = {
            path: KeptFile(int(size), str(version), kind == [_SIDE])
            for path, size, version, *kind in entries
        }
        return KeptInputs(
            int(head["recordmill"]), str(head["fingerprint"]), dict(head["job"]), files
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{uri}: is no inventory of input files ({error}), so nothing can be "
            f"appended to the dataset: {_ANEW}"
        ) from error


def read_inputs(store: Store, manifest: Manifest, job: JobSpec) -> dict[str, KeptFile]:
    """All files that a dataset was made from, by path.

    Args:
      store: where it lies.
      manifest: the dataset's.
      job: what is to be appended to it.

    Raises:
      OutputError: its inventories are missing or damaged, or it was made by another
        job.
    """
    files: dict[str, KeptFile] = {}
    for part in range(manifest.appended + 1):
        uri = store.uri_of(inputs_name(part))
        try:
            kept = parse_inputs(store.read(inputs_name(part)), uri)
        except MissingFileError as error:
            raise OutputError(
                f"{uri}: is missing; without this inventory of the input files that "
                f"were converted, nothing can be appended: {_ANEW}"
            ) from error
        files |= kept.files
    if kept.fingerprint != manifest.fingerprint:
        raise OutputError(
            f"{uri}: is not of this dataset (fingerprint {kept.fingerprint}, the "
            f"manifest says {manifest.fingerprint}): {_ANEW}"
        )
    if kept.format_version != FORMAT_VERSION:
        raise OutputError(
            f"{store.uri}: was made by another version of recordmill, which wrote "
            f"other bytes (format {kept.format_version}, now {FORMAT_VERSION}): {_ANEW}"
        )
    _require_same_job(store.uri, kept.job, fixed_fields(job))
    return files


def _require_same_job(
    uri: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    if before == now:
        return
    changes = []
    for field in sorted({*before, *now}):
        old, new = before.get(field), now.get(field)
        if old == new:
            continue
        if field == "declared":
            changes.append("the declared schema")
        else:
            changes.append(f"{field} (was {json.dumps(old)}, is {json.dumps(new)})")
    raise OutputError(
        f"{uri}: was made by another job; what differs: {', '.join(changes)}. Only "
        f"the inputs may: append with the options that it was made with, or {_ANEW}"
    )


def new_files(
    kept: Mapping[str, KeptFile],
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
    uri: str,
) -> tuple[list[InputFile], list[InputFile]]:
    """Those of the inputs, and of the files that cells may name, that are new.

    Args:
      kept: what the dataset was made from.
      files: all inputs that there are now.
      side_files: all files that cells may name.
      uri: of the dataset.

    Raises:
      InputError: one that it was made from is gone, or has changed.
    """
    inputs = {file.path: file for file in files}
    beside = {file.path: file for file in side_files}
    gone, changed = [], []
    for path, was in kept.items():
        found = inputs.get(path) or (beside.get(path) if was.is_side else None)
        if found is None:
            gone.append(path)
        elif (found.size, found.version) != (was.size, was.version):
            changed.append(path)
    if gone or changed:
        raise InputError(_not_as_before(uri, len(kept), gone, changed, files))
    fresh = [f for f in files if f.path not in kept or kept[f.path].is_side]
    fresh_paths = {file.path for file in fresh}
    return fresh, [
        file
        for file in side_files
        if file.path not in kept and file.path not in fresh_paths
    ]


def _not_as_before(
    uri: str,
    total: int,
    gone: Sequence[str],
    changed: Sequence[str],
    files: Sequence[InputFile],
) -> str:
    told = [
        f"{len(paths):,} {verb} {what} ({', '.join(paths[:_NAMED])}"
        f"{', ...' if len(paths) > _NAMED else ''})"
        for paths, what in ((gone, "gone"), (changed, "not as before"))
        if paths
        for verb in ["are" if len(paths) > 1 else "is"]
    ]
    hint = ""
    if len(gone) == total and files:
        root = files[0].uri.removesuffix(files[0].path)
        hint = (
            f". Paths are relative to the folder that all inputs share, now {root}: "
            "is it another one than before?"
        )
    return (
        f"{uri}: of the {total:,} files it was made from, {' and '.join(told)}. What "
        "was made from them stays when inputs are appended: put them back as they "
        f"were, or {_ANEW}{hint}"
    )
