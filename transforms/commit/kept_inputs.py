"""Compares the inputs of a run with those that a dataset was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.parts import inputs_name, inventory_name
from recordmill.schemas.errors import (
    InputError,
    MissingFileError,
    OutputError,
    OutputRefusedError,
)
from recordmill.schemas.job.job_spec import JobSpec
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.commit.input_log import (
    CONVERT_ALL,
    KeptFile,
    KeptInputs,
    dump_kept,
    parse_inputs,
)
from recordmill.transforms.commit.option_changes import option_changes
from recordmill.transforms.commit.same_content import ContentCheck, same_unread
from recordmill.transforms.dataset.files import find_manifest, read_fixed
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.left_out import is_left_out
from recordmill.transforms.tasks.fingerprint import (
    FORMAT_VERSION,
    fingerprint_of,
    fixed_fields,
)

_SHOWN = 3  # files in an error message


def read_part(store: Store, manifest: Manifest, part: int) -> KeptInputs:
    """Reads the inputs of one part: their content, and their versions where known.

    Raises:
      OutputError: the list of them is missing or damaged.
    """
    name = inputs_name(part)
    kept = parse_inputs(read_fixed(store, manifest, name), store.uri_of(name))
    if not kept.by_content:
        return kept
    listed = read_inventory(store, manifest, part)
    if listed is None or listed.fingerprint != kept.fingerprint:
        return kept
    nothing = KeptFile(0, None, is_side=False)
    files = {
        path: file._replace(version=listed.files.get(path, nothing).version)
        for path, file in kept.files.items()
    }
    return replace(kept, files=files, run_key=listed.run_key)


def read_inventory(store: Store, manifest: Manifest, part: int) -> KeptInputs | None:
    """Reads what the run of a part listed; None if that is not known any more."""
    name = inventory_name(part)
    try:
        return parse_inputs(read_fixed(store, manifest, name), store.uri_of(name))
    except OutputError:
        return None  # nothing is lost: the inputs can be read to compare them


def key_of(store: Store, manifest: Manifest) -> str:
    """Returns the key of the run that made a dataset, or its last part.

    Where it is not known, it is the fingerprint, as in earlier versions.
    """
    listed = read_inventory(store, manifest, manifest.appended)
    if listed is None or listed.fingerprint != manifest.fingerprint:
        return manifest.fingerprint
    return listed.run_key or manifest.fingerprint


def is_of_run(store: Store, manifest: Manifest, run_key: str) -> bool:
    """Tells whether a dataset, or its last part, was made by runs with this key."""
    return run_key in (manifest.fingerprint, key_of(store, manifest))


def is_same_dataset(
    store: Store,
    manifest: Manifest,
    job: JobSpec,
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
    reading: str,
    check: ContentCheck,
) -> bool:
    """Tells whether a job would make just this dataset, if need be by reading inputs.

    Args:
      store: of the dataset.
      manifest: its manifest; one that was appended to is not what one run makes.
      job: of the run.
      files: all inputs of the run.
      side_files: files that cells may name.
      reading: what `registry.describe_inputs` says of the inputs.
      check: compares files whose version is another one.
    """
    run_key = fingerprint_of(job, files, side_files, reading=reading)
    if is_of_run(store, manifest, run_key):
        return True
    if manifest.appended:
        return False
    try:
        kept = read_part(store, manifest, 0)
    except OutputError:
        return False
    sides = without_inputs(files, side_files)
    now = {file.path: file for file in (*files, *sides)}
    same_names = now.keys() == kept.files.keys()
    if not (kept.by_content and same_names):
        return False
    by_content = [
        [file._replace(version=kept.files[file.path].content or "") for file in part]
        for part in (files, sides)
    ]
    if fingerprint_of(job, *by_content, reading=reading) != manifest.fingerprint:
        return False
    pairs = [(kept.files[path], file) for path, file in now.items()]
    return next(check.changed(pairs), None) is None


def renew_inventories(
    store: Store, manifest: Manifest, versions: Mapping[str, str], run_key: str
) -> None:
    """Notes the versions of inputs that turned out to be the same, for the next run.

    Call it with the lease held.

    Args:
      store: of the dataset.
      manifest: its manifest.
      versions: of the files that were read, by path.
      run_key: of the run that found them.
    """
    for part in range(manifest.appended + 1):
        seen = store.find(inventory_name(part))
        if find_manifest(store) != manifest:
            return  # another run was faster
        kept = read_part(store, manifest, part)
        if not kept.by_content or versions.keys().isdisjoint(kept.files):
            continue
        files = {
            path: file._replace(version=versions.get(path, file.version))
            for path, file in kept.files.items()
        }
        key = kept.run_key if manifest.appended else run_key
        renewed = replace(kept, files=files, by_content=False, run_key=key)
        store.swap(dump_kept(renewed), inventory_name(part), seen=seen)


def without_inputs(
    files: Sequence[InputFile], side_files: Sequence[InputFile]
) -> list[InputFile]:
    """Returns the files that cells may name and that are not inputs themselves."""
    inputs = {file.path for file in files}
    return [file for file in side_files if file.path not in inputs]


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
            kept = read_part(store, manifest, part)
        except MissingFileError as error:
            raise OutputRefusedError(
                f"{uri}: is missing; without this inventory of the converted inputs "
                f"nothing can be appended; {CONVERT_ALL}"
            ) from error
        files |= kept.files
    if kept.fingerprint != manifest.fingerprint:
        raise OutputRefusedError(
            f"{uri}: belongs to another dataset (fingerprint {kept.fingerprint}, the "
            f"manifest says {manifest.fingerprint}); {CONVERT_ALL}"
        )
    if kept.format_version != FORMAT_VERSION:
        raise OutputRefusedError(
            f"{store.uri}: was written by another version of recordmill in another "
            f"format ({kept.format_version}, now {FORMAT_VERSION}); {CONVERT_ALL}"
        )
    if changes := list(option_changes(kept.job, fixed_fields(job))):
        raise OutputRefusedError(
            f"{store.uri}: was made by another job. Changed: {'; '.join(changes)}. Append "
            f"with the options of the first run, or {CONVERT_ALL}"
        )
    return files


def new_files(
    kept: Mapping[str, KeptFile],
    files: Sequence[InputFile],
    side_files: Sequence[InputFile],
    uri: str,
    check: ContentCheck,
    *,
    left_out: frozenset[str] = frozenset(),
) -> tuple[list[InputFile], list[InputFile]]:
    """Returns the new files among the inputs and among the files that cells may name.

    Args:
      kept: the files that the dataset was made from, by path.
      files: all inputs now.
      side_files: all files now that cells may name.
      uri: of the dataset.
      check: compares files whose version is another one.
      left_out: paths of input files that `exclude` leaves out.

    Raises:
      InputError: a file that the dataset was made from is missing, left out, or has
        changed.
    """
    inputs = {file.path: file for file in files}
    sides = {file.path: file for file in side_files}
    missing: list[str] = []
    changed: list[str] = []
    both: list[tuple[KeptFile, InputFile]] = []
    for path, before in kept.items():
        found = inputs.get(path) or (sides.get(path) if before.is_side else None)
        if found is None and is_left_out(path):
            continue  # earlier versions listed junk, too; it holds no rows
        if found is None:
            missing.append(path)
        else:
            both.append((before, found))
    if missing:
        changed = [pair[1].path for pair in both if same_unread(*pair) is False]
    else:
        changed = [file.path for file in check.changed(both)]
    if missing or changed:
        own = [path for path in missing if path in left_out]
        gone = [path for path in missing if path not in left_out]
        raise InputError(_describe_changes(uri, len(kept), gone, own, changed, files))
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
    left_out: Sequence[str],
    changed: Sequence[str],
    files: Sequence[InputFile],
) -> str:
    changes = [
        f"{len(paths):,} {state} ({', '.join(paths[:_SHOWN])}"
        f"{', ...' if len(paths) > _SHOWN else ''})"
        for paths, state in (
            (missing, "are missing" if len(missing) > 1 else "is missing"),
            (left_out, "left out by `exclude`"),
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
    told = " and ".join(filter(None, (", ".join(changes[:-1]), changes[-1])))
    ways_out = []
    if missing or changed:
        ways_out.append("restore these files")
    if left_out:
        ways_out.append("name fewer files in `exclude`, so that they are inputs again")
    return (
        f"{uri}: of the {count(total, 'file')} it was made from, {told}. An append keeps "
        f"the records made from them: {', '.join(ways_out)}, or {CONVERT_ALL}{hint}"
    )
