"""Finds the binary files of STL-10.

    train_X.bin, test_X.bin      images: 3 planes, each column by column, 96 x 96
    train_y.bin, test_y.bin      labels 1 to 10, one byte each
    unlabeled_X.bin              images without labels; -1, as TFDS has it
    class_names.txt              names, one a line

Source: cs.stanford.edu/~acoates/stl10, "Binary files".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import PassedOver, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.arrays.class_name_files import (
    ClassNames,
    read_class_names,
)
from recordmill.transforms.sources.arrays.file_roles import part_of
from recordmill.transforms.sources.arrays.row_arrays import Field, Found, Part, RowArray

SIDE, CHANNELS = 96, 3
IMAGE_BYTES = SIDE * SIDE * CHANNELS
NAMES = (
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
)  # fmt: skip
_IMAGE = Field("image", "|u1", (CHANNELS, SIDE, SIDE), (2, 1, 0))
_LABEL = Field("label", "|u1", wraps=(-1, *range(10)))
_LABELED = ("train", "test")
_UNLABELED = "unlabeled_X.bin"
_FILES = {f"{split}_{kind}.bin" for split in _LABELED for kind in "Xy"} | {_UNLABELED}


def is_stl10(files: Sequence[InputFile]) -> bool:
    """Tells whether the .bin files are named like those of STL-10."""
    names = {PurePosixPath(f.path).name for f in files if f.path.endswith(".bin")}
    return bool(names) and names <= _FILES


def find_stl10(files: Sequence[InputFile], storage: StorageOptions) -> Found:
    """Returns the images with their labels.

    Raises:
      InputError: a file is missing, there twice, or has another size than its fellow.
    """
    found: dict[str, InputFile] = {}
    others = []
    for file in files:
        name = PurePosixPath(file.path).name
        if name not in _FILES and name != "class_names.txt":
            others.append(("not one of STL-10's", file.path))
        elif name in found:
            raise InputError(
                f"{file.uri} and {found[name].uri}: expected one {name}: convert two copies "
                "of STL-10 one by one"
            )
        else:
            found[name] = file
    parts = [_labeled(found, split) for split in _LABELED if _has(found, split)]
    if _UNLABELED in found:
        images, rows = _array(found[_UNLABELED], _IMAGE, IMAGE_BYTES)
        constants = (("label", -1),)
        parts.append(
            Part((images,), rows, "unlabelled", scale=IMAGE_BYTES, constants=constants)
        )
    if not parts:
        raise InputError(
            "no file of STL-10: expected train_X.bin with train_y.bin, test_X.bin with "
            "test_y.bin, or unlabeled_X.bin"
        )
    names: ClassNames = (("label", NAMES),)
    read: tuple[FileChecksum, ...] = ()
    if file_of_names := found.get("class_names.txt"):
        names, read = read_class_names({"label": file_of_names}, ["label"], storage)
        if len(names[0][1]) != len(NAMES):
            raise InputError(
                f"{file_of_names.uri}: {len(names[0][1])} class names, expected 10"
            )
    told = Understood((("records", "STL-10"),), (), PassedOver.counted(others))
    return Found(tuple(parts), names, told, read)


def _has(found: dict[str, InputFile], split: str) -> bool:
    return f"{split}_X.bin" in found or f"{split}_y.bin" in found


def _labeled(found: dict[str, InputFile], split: str) -> Part:
    names = (f"{split}_X.bin", f"{split}_y.bin")
    for name, other in (names, names[::-1]):
        if name not in found:
            raise InputError(
                f"{found[other].uri}: there is no {name} beside it; STL-10 has images and "
                "labels in two files: name both, or leave this one out"
            )
    images, num_images = _array(found[names[0]], _IMAGE, IMAGE_BYTES)
    labels, num_labels = _array(found[names[1]], _LABEL, 1)
    part = part_of((images, labels), (num_images, num_labels), split)
    return replace(part, scale=IMAGE_BYTES)


def _array(file: InputFile, field: Field, size: int) -> tuple[RowArray, int]:
    rows, rest = divmod(file.size, size)
    if rest:
        raise InputError(
            f"{file.uri}: has {file.size:,} bytes, {rest:,} more than {count(rows, 'row')} of "
            f"{size:,}; expected a whole number. The file is cut short: copy it again"
        )
    return RowArray(file, 0, size, (field,)), rows
