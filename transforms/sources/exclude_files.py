"""Leaves out of a listing the files that patterns name (`exclude`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.sources.globs import matching
from recordmill.transforms.sources.named_files import NamedFile, find_named


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files that are left.

    Attributes:
      files: these.
      left_out: paths of the others.
      facts: what was left out, for people.
      warnings: patterns that name nothing.
    """

    files: list[InputFile]
    left_out: frozenset[str] = frozenset()
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def exclude_files(
    files: list[InputFile], patterns: Sequence[str], named: Sequence[NamedFile] = ()
) -> KeptFiles:
    """Returns the files that no pattern names.

    Args:
      files: below the inputs.
      patterns: globs of names at any depth, or of paths below the input root.
      named: files that options name; they stay.

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
