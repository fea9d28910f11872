"""Reads the names of classes from files among the inputs."""

from __future__ import annotations

from collections.abc import Sequence

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage.reading import read_file
from recordmill.transforms.tfrecord import crc32c

MAX_BYTES = 16 << 20
ClassNames = tuple[tuple[str, tuple[str, ...]], ...]


def name_files(
    files: Sequence[InputFile], option: str
) -> tuple[dict[str, InputFile], list[InputFile]]:
    """Finds the files that `class_names` names.

    Args:
      files: of the input.
      option: "names.txt" for the column label, or "fine=a.txt,coarse=b.txt".

    Returns:
      The file of each column, and the other files.

    Raises:
      InputError: there is no such file among the inputs, or there are two.
    """
    found: dict[str, InputFile] = {}
    for text in filter(None, map(str.strip, option.split(","))):
        column, _, name = text.rpartition("=")
        same = [f for f in files if f.path == name or f.path.endswith(f"/{name}")]
        if len(same) != 1:
            raise InputError(
                f"`class_names`: {len(same) or 'no'} input files are named {name!r}; "
                "expected one: name it among the inputs, by its path below them"
            )
        found[column or "label"] = same[0]
    paths = {file.path for file in found.values()}
    return found, [file for file in files if file.path not in paths]


def read_class_names(
    found: dict[str, InputFile], columns: Sequence[str], storage: StorageOptions
) -> tuple[ClassNames, tuple[FileChecksum, ...]]:
    """Reads class names, one a line.

    Args:
      found: the file of each column.
      columns: that can be class labels: single integers.
      storage: options of the files' storage.

    Raises:
      InputError: a file has no names, or one twice, or its column is none.
    """
    names: list[tuple[str, tuple[str, ...]]] = []
    read: list[FileChecksum] = []
    for column, file in found.items():
        if column not in columns:
            raise InputError(
                f"`class_names`: there is no column {column!r} of single integers; "
                f"expected one of {', '.join(columns) or 'none'}: write COLUMN=FILE"
            )
        if file.size > MAX_BYTES:
            raise InputError(
                f"{file.uri}: has {file.size:,} bytes, too many for names of classes"
            )
        content = read_file(file.uri, storage, file.seen)
        read.append(FileChecksum(file.path, 0, len(content), crc32c(content)))
        names.append((column, _names(content, file.uri)))
    return tuple(names), tuple(read)


def _names(content: bytes, uri: str) -> tuple[str, ...]:
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{uri}: class names are not UTF-8: {error}. Write one name a line, in UTF-8"
        ) from error
    names = tuple(filter(None, map(str.strip, lines)))
    if not names:
        raise InputError(f"{uri}: has no class names; expected one a line")
    if len(set(names)) < len(names):
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise InputError(
            f"{uri}: class name {twice!r} is given twice; rename one of them"
        )
    return names
