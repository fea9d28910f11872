"""Finds the cropped digits of SVHN: X (32 x 32 x 3 x N) and y (N x 1) in each file.

    train_32x32.mat    split train
    test_32x32.mat     split test
    extra_32x32.mat    split extra

The label 10 is the digit 0. Source: ufldl.stanford.edu/housenumbers, "Format 2".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import PassedOver, Understood
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.sources.arrays.file_roles import part_of, role_of
from recordmill.transforms.sources.arrays.row_arrays import (
    MAX_ROW_BYTES,
    Field,
    Found,
    Part,
    RowArray,
)
from recordmill.transforms.sources.svhn.mat_arrays import MatArray, mat_arrays

_CLASSES = (("label", tuple(map(str, range(10)))),)
_WRAPS = (*range(10), 0)  # 10 stands for the digit 0


@dataclass(frozen=True)
class SvhnFinder:
    """Finds images X and labels y in MATLAB files."""

    def find(self, files: Sequence[InputFile], storage: StorageOptions) -> Found:
        parts: list[Part] = []
        others: list[tuple[str, str]] = []
        for file in files:
            if file.path.lower().endswith(".mat"):
                parts.append(_part(file, storage))
            else:
                others.append(("does not end in .mat", file.path))
        if not parts:
            raise InputError(
                f"none of {count(len(files), 'input file')} ends in .mat; expected "
                "train_32x32.mat, test_32x32.mat or extra_32x32.mat"
            )
        told = Understood((), (), PassedOver.counted(others))
        return Found(tuple(parts), _CLASSES, told)


def _part(file: InputFile, storage: StorageOptions) -> Part:
    found = {each.name: each for each in mat_arrays(file, storage)}
    if missing := {"X", "y"} - found.keys():
        raise InputError(
            f"{file.uri}: has no array {' and no array '.join(sorted(missing))}, but "
            f"{', '.join(sorted(found)) or 'none'}; expected images X and labels y, as "
            "SVHN has them. Save other arrays with numpy.save (convert numpy)"
        )
    images, labels = found["X"], found["y"]
    if len(images.shape) != 4 or images.dtype != "|u1":
        raise InputError(
            f"{file.uri}: X is {images.dtype} of shape {list(images.shape)}, expected "
            "uint8 of height x width x channels x images. Save other arrays with "
            "numpy.save (convert numpy)"
        )
    num_labels = math.prod(labels.shape)
    if max(labels.shape) != num_labels:
        raise InputError(
            f"{file.uri}: y has the shape {list(labels.shape)}, expected one label for "
            "each image: save y as a column"
        )
    height, width, channels, num_images = images.shape
    row_bytes = height * width * channels
    if not 0 < row_bytes <= MAX_ROW_BYTES:
        raise InputError(
            f"{file.uri}: X has images of {row_bytes:,} bytes, expected 1 to "
            f"{MAX_ROW_BYTES:,}: the file is damaged; copy it again"
        )
    pixels = Field("image", "|u1", (channels, width, height), (2, 1, 0))
    label = Field("label", labels.dtype, wraps=_WRAPS)
    name = PurePosixPath(file.path).name
    split = "extra" if name.lower().startswith("extra") else role_of(name).split
    return part_of(
        (
            _rows(images, row_bytes, pixels),
            _rows(labels, int(labels.dtype[2:]), label),
        ),
        (num_images, num_labels),
        split,
    )


def _rows(found: MatArray, row_bytes: int, field: Field) -> RowArray:
    return replace(found.array, row_bytes=row_bytes, fields=(field,))
