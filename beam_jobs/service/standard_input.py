"""Writes standard input to a file, because inputs are read more than once.

The file is deleted at the end. Its name and its time tell its content, so the same bytes
are the same input again: a run that was killed resumes, and one that is done does nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from recordmill.schemas.errors import InputError, UsageError
from recordmill.schemas.job import RunOptions
from recordmill.transforms.storage.reading import full_uri, is_local
from recordmill.transforms.tfrecord import crc32c

STANDARD_INPUT = "-"
_FOLDER = ".recordmill-stdin-"  # and what mkdtemp adds
_BLOCK_BYTES = 4 << 20


@contextmanager
def with_standard_input(options: RunOptions) -> Iterator[RunOptions]:
    """Yields the options of a run with standard input, if it is named, as a file.

    Raises:
      UsageError: it is not the only input, or the run is in other processes.
      InputError: it is empty, or there is no room for it.
    """
    if STANDARD_INPUT not in options.inputs:
        yield options
        return
    if options.inputs != (STANDARD_INPUT,):
        raise UsageError(
            "-: standard input has to be the only input; a file of this name is ./-"
        )
    if options.append:
        raise UsageError(
            "-: an append compares the inputs that were converted before, and standard "
            "input is not kept: write each into a file of one folder, and name the folder"
        )
    if options.detach or not options.is_embedded:
        raise UsageError(
            "-: standard input is read on this machine, but the workers are elsewhere: "
            "write it to a file that they can read, and name that"
        )
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            "-: standard input is a terminal: name a file, or pipe a program's output"
        )
    root = _disk(options)
    _remove_left(root)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=root))
    except OSError as error:
        raise _no_room(root, error) from error
    try:
        with (folder / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = _write(sys.stdin.buffer, folder)
            yield replace(options, inputs=(str(path),))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _disk(options: RunOptions) -> Path:
    """Returns the local folder whose disk takes the file."""
    output = options.scratch or (full_uri(options.output) if options.output else "")
    if not output or not is_local(output):
        return Path(tempfile.gettempdir())
    # Never in the output itself, whose files are no inputs.
    path = Path(output).absolute()
    above = (path, *path.parents) if options.scratch else path.parents
    found = next((each for each in above if each.is_dir()), Path("/"))
    return found if os.access(found, os.W_OK) else Path(tempfile.gettempdir())


def _write(stream: IO[bytes], folder: Path) -> Path:
    crc = size = 0
    path = folder / "stdin"
    try:
        with path.open("wb") as file:
            while block := stream.read(_BLOCK_BYTES):
                file.write(block)
                crc, size = crc32c(block, crc), size + len(block)
    except OSError as error:
        raise _no_room(folder.parent, error) from error
    if not size:
        raise InputError(
            "-: standard input is empty: did the program before it in the pipe fail?"
        )
    named = path.rename(folder / f"stdin-{crc:08x}")
    os.utime(named, ns=(crc, crc))
    return named


def _remove_left(root: Path) -> None:
    """Removes what processes left that were killed."""
    for folder in root.glob(f"{_FOLDER}*"):
        with suppress(OSError), (folder / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _no_room(folder: Path, error: OSError) -> InputError:
    return InputError(
        f"-: standard input cannot be written to {folder}: {error.strerror}. Make room "
        "there, or set `scratch` to a folder with room"
    )
