"""Keeps what lies in the output folder apart from the inputs, in every run alike.

    recordmill convert images data data/out

The second run of this finds the shards of the first below its input. They are passed
over, so that both runs convert the same files. A file in the output folder that a person
names is refused: nobody names a file that is to be left out.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Sequence
from functools import cache

from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.storage.reading import full_uri, is_local

_WAY_OUT = "choose another output or other inputs"


def inputs_outside(inputs: Sequence[str], output: str) -> list[str]:
    """Returns the inputs of a job without the output folder, which `data/*` may name.

    Args:
      inputs: files, folders or globs, as a person wrote them.
      output: the output folder, as a person wrote it.

    Raises:
      UsageError: one of them is inside the output folder, or there is no other one.
    """
    folder = _real_uri(output)
    for name in inputs:
        if _real_uri(name).startswith(f"{folder}/"):
            raise UsageError(
                f"{name} is an input, but lies inside the output folder "
                f"{full_uri(output)}; {_WAY_OUT}. Of a folder or of a pattern in quotes, "
                "what lies there is passed over"
            )
    outside = [name for name in inputs if _real_uri(name) != folder]
    if not outside:
        raise UsageError(
            f"{full_uri(output)} is the input and the output folder; {_WAY_OUT}"
        )
    return outside


def files_outside(files: Sequence[InputFile], output: str) -> list[InputFile]:
    """Returns the files that are not below the output folder, also not by links to it.

    Args:
      files: found below the inputs.
      output: the output folder, as a person wrote it.
    """
    folder = _real_uri(output)

    @cache
    def is_outside(parent: str) -> bool:  # asks the disk once for each folder
        parent = posixpath.dirname(f"{parent}/")
        return not f"{_real_uri(parent)}/".startswith(f"{folder}/")

    return [file for file in files if is_outside(file.uri.rpartition("/")[0])]


def _real_uri(uri: str) -> str:
    """Returns a URI in the one spelling in which two of the same file are equal."""
    uri = full_uri(uri)
    return os.path.realpath(uri).rstrip("/") if is_local(uri) else uri
