"""Writes and reads the inventory of a dataset's inputs, which an append needs.

    {"recordmill": 1, "fingerprint": "...", "job": {...}}   the job of this part
    ["2026/first.csv", 1234, "1700000000000000000"]         path, bytes, version
    ["pictures/1.png", 99, "1700000000000000000", "side"]   a file that cells may name
    ["cat/2.png", 0, "", "unreadable"]                      a broken link

JSON lines in gzip without file name and time; one file for each part of a dataset (see
schemas/dataset/parts.py). It contains only what fixes the dataset's bytes: paths are
relative to the input root, and max_rejects is left out. Readers of records do not use
it.
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
from recordmill.schemas.errors import InputError, MissingFileError, OutputRefusedError
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.commit.option_changes import option_changes
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.tasks.context import FORMAT_VERSION, fixed_fields

_SIDE = "side"
_UNREADABLE = "unreadable"  # a broken link, or a name that is not UTF-8
_LEVEL = 6
_SHOWN = 3  # files in an error message

_CONVERT_ALL = (
    "convert all inputs again with `overwrite=true`, or as a new version "
    "(`version=auto`), without `append`"
)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file as it was when it was converted.

    Attributes:
      size: in bytes.
      version: modification time or etag.
      is_side: whether it is not an input, but a file that cells may name.
      is_unreadable: whether it was listed, but could not be read.
    """

    size: int
    version: str
    is_side: bool
    is_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """The inputs and the job of one part.

    Attributes:
      format_version: version of the records' bytes (FORMAT_VERSION of that run).
      fingerprint: of the dataset that includes this part.
      job: the fields of the job, as `fixed_fields` returns them.
      files: the files by path.
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
    """Serializes the inventory of a part; equal jobs and files give equal bytes."""
    head = {
        "recordmill": FORMAT_VERSION,
        "fingerprint": fingerprint,
        "job": fixed_fields(job),
    }
    inputs = {file.path for file in files}
    lines = [_json_line(head)]
    lines += [
        _json_line(
            [
                file.path,
                file.size,
                file.version,
                *([_UNREADABLE] if file.problem else []),
            ]
        )
        for file in files
    ]
    lines += [
        _json_line([file.path, file.size, file.version, _SIDE])
        for file in side_files
        if file.path not in inputs
    ]
    # Python's gzip module writes the operating system and, by default, the time.
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress("".join(lines).encode()) + packer.flush()


def _json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"


# What Python raises where a value of a JSON file is not what is expected there.
_NOT_VALID = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


def parse_inputs(data: bytes, uri: str) -> KeptInputs:
    """Parses an inventory.

    Raises:
      OutputError: it is not a valid inventory.
    """
    lines: list[str] = []
    try:
        lines = gzip.decompress(data).decode().split("\n")[:-1]
        # One call for all lines: a million files take a second.
        head, *entries = json.loads(f"[{','.join(lines)}]")
        files = {
            path: KeptFile(
                int(size), str(version), kind == [_SIDE], kind == [_UNREADABLE]
            )
            for path, size, version, *kind in entries
        }
        if not all(type(path) is str for path in files):
            raise TypeError
        return KeptInputs(
            int(head["recordmill"]), str(head["fingerprint"]), dict(head["job"]), files
        )
    except (*_NOT_VALID, OSError, EOFError, zlib.error) as error:
        raise OutputRefusedError(
            f"{uri}: is not a valid inventory of inputs ({_first_problem(lines)}), so "
            f"nothing can be appended to the dataset; {_CONVERT_ALL}"
        ) from error


def _first_problem(lines: Sequence[str]) -> str:
    """Describes the first line of an inventory that is not as it should be."""
    if not lines:
        return "expected lines of JSON, packed by gzip"
    for number, line in enumerate(lines[1:], 2):
        try:
            path, size, _, *_ = json.loads(line)
            if type(path) is str and int(size) >= 0:
                continue
        except _NOT_VALID:
            pass
        return f"line {number}: expected [path, size, version], found {line[:80]}"
    return f"line 1: expected recordmill, fingerprint and job, found {lines[0][:80]}"


def read_inputs(store: Store, manifest: Manifest, job: JobSpec) -> dict[str, KeptFile]:
    """Reads all files that a dataset was made from, by path.

    Args:
      store: of the dataset.
      manifest: of the dataset.
      job: the job that appends to it.

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
            raise OutputRefusedError(
                f"{uri}: is missing; without this inventory of the converted inputs "
                f"nothing can be appended; {_CONVERT_ALL}"
            ) from error
        files |= kept.files
    if kept.fingerprint != manifest.fingerprint:
        raise OutputRefusedError(
            f"{uri}: belongs to another dataset (fingerprint {kept.fingerprint}, the "
            f"manifest says {manifest.fingerprint}); {_CONVERT_ALL}"
        )
    if kept.format_version != FORMAT_VERSION:
        raise OutputRefusedError(
            f"{store.uri}: was written by another version of recordmill in another "
            f"format ({kept.format_version}, now {FORMAT_VERSION}); {_CONVERT_ALL}"
        )
    if changes := list(option_changes(kept.job, fixed_fields(job))):
        raise OutputRefusedError(
            f"{store.uri}: was made by another job. Changed: {'; '.join(changes)}. Append "
            f"with the options of the first run, or {_CONVERT_ALL}"
        )
    return files


def new_files(
    kept: Mapping[str, KeptFile],
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
    uri: str,
) -> tuple[list[InputFile], list[InputFile]]:
    """Returns the new files among the inputs and among the files that cells may name.

    Args:
      kept: the files that the dataset was made from, by path.
      files: all inputs now.
      side_files: all files now that cells may name.
      uri: of the dataset.

    Raises:
      InputError: a file that the dataset was made from is missing or has changed.
    """
    inputs = {file.path: file for file in files}
    sides = {file.path: file for file in side_files}
    missing, changed = [], []
    for path, before in kept.items():
        found = inputs.get(path) or (sides.get(path) if before.is_side else None)
        if found is None and is_left_out(path):
            continue  # earlier versions listed junk, too; it holds no rows
        if found is None:
            missing.append(path)
        elif (found.size, found.version) != (before.size, before.version):
            changed.append(path)
    if missing or changed:
        raise InputError(_describe_changes(uri, len(kept), missing, changed, files))
    new_inputs = [f for f in files if f.path not in kept or kept[f.path].is_side]
    new_paths = {file.path for file in new_inputs}
    return new_inputs, [
        file
        for file in side_files
        if file.path not in kept and file.path not in new_paths
    ]


def _describe_changes(
    uri: str,
    total: int,
    missing: Sequence[str],
    changed: Sequence[str],
    files: Sequence[InputFile],
) -> str:
    changes = [
        f"{len(paths):,} {state} ({', '.join(paths[:_SHOWN])}"
        f"{', ...' if len(paths) > _SHOWN else ''})"
        for paths, state in (
            (missing, "are missing" if len(missing) > 1 else "is missing"),
            (changed, "changed"),
        )
        if paths
    ]
    hint = ""
    if len(missing) == total and files:
        root = files[0].uri.removesuffix(files[0].path)
        hint = (
            f". Paths are relative to the folder that all inputs share, now {root}: "
            "was it another one before?"
        )
    return (
        f"{uri}: of the {count(total, 'file')} it was made from, "
        f"{' and '.join(changes)}. An append keeps the records made from them: restore "
        f"these files, or {_CONVERT_ALL}{hint}"
    )
