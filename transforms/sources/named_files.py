"""Finds the files that options name, such as tables of labels, among the inputs.

A name is a path below the input folder, a pattern of such paths, or a path or URL as
inputs are. One that is nowhere among the inputs is an input, too: what it holds fixes
bytes of the dataset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.globs import has_magic, matches_path, matching
from recordmill.transforms.sources.listing import Note, list_inputs, no_notes
from recordmill.transforms.storage.reading import full_uri


@dataclass(frozen=True, slots=True)
class NamedFile:
    """What an option says of a file."""

    option: str
    name: str  # of the file, or a pattern


def find_named(name: str, files: Sequence[InputFile]) -> list[InputFile]:
    """Returns the files of the inventory that a name stands for; [] if there is none."""
    below = name.removeprefix("./")
    full = full_uri(name)
    if has_magic(name):
        found = [file for file in files if matches_path(file.path, below)]
        return found or [file for file in files if matches_path(file.uri, full)]
    found = [
        file
        for file in files
        if file.path == below or (file.given and file.path == f"{file.given}/{below}")
    ]
    return found or [file for file in files if file.uri == full]


def list_with_named(
    inputs: Sequence[str],
    named: Sequence[NamedFile],
    storage: StorageOptions = NO_OPTIONS,
    *,
    note: Note = no_notes,
    open_archives: bool = True,
) -> tuple[tuple[str, ...], str, list[InputFile]]:
    """Lists inputs, and the files that options name where inputs do not hold them.

    Returns the names of such files, the folder that all inputs share, and all files, also
    those that cannot be read. For arguments and errors see `list_inputs`.
    """

    def listed() -> tuple[str, list[InputFile]]:
        told.clear()
        return list_inputs(
            [*inputs, *names],
            storage,
            keep_unreadable=True,
            note=told.append,
            open_archives=open_archives,
        )

    names: dict[str, None] = {}
    told: list[str] = []
    root, files = listed()
    for each in named:
        if find_named(each.name, files):
            continue
        try:
            list_inputs([each.name], storage)
        except InputError as error:
            raise InputError(
                f"`{each.option}`: {error}; expected the path of a file below the input "
                f"folder {root}, or one like those of inputs"
            ) from error
        names[each.name] = None
    if names:
        root, files = listed()
    for text in told:
        note(text)
    return tuple(names), root, files


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files that are left, and the paths of the others."""

    files: list[InputFile]
    left_out: frozenset[str] = frozenset()
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()  # patterns that name nothing


def exclude_files(
    files: list[InputFile], patterns: Sequence[str], named: Sequence[NamedFile] = ()
) -> KeptFiles:
    """Returns the files that no pattern names; those that options name stay.

    Patterns are globs of names at any depth, or of paths below the input root.

    Raises:
      InputError: no file is left.
    """
    if not patterns:
        return KeptFiles(files)
    needed = {file.path for each in named for file in find_named(each.name, files)}
    paths = [file.path for file in files if file.path not in needed]
    left_out = set[str]()
    warnings = []
    for pattern in patterns:
        found = matching(paths, pattern)
        left_out |= found
        if not found:
            warnings.append(
                f"`exclude` {pattern}: no input file has such a name, or lies in such a "
                f"folder; paths below the input folder are like {files[0].path}"
            )
    kept = [file for file in files if file.path not in left_out]
    text = ", ".join(patterns)
    if not kept:
        raise InputError(
            f"`exclude` {text}: leaves out all input files "
            f"({count(len(files), 'file')}, such as {files[0].path}). Name fewer files"
        )
    told = f"{count(len(left_out), 'file')}, by exclude: {text}"
    facts = (("left out", told),) if left_out else ()
    return KeptFiles(kept, frozenset(left_out), facts, tuple(warnings))
