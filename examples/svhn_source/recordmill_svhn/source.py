"""Reads the cropped digits of SVHN: images X (height x width x 3 x N), labels y (N x 1).

    train_32x32.mat, test_32x32.mat, extra_32x32.mat     each a split, and a range

The label 10 is the digit 0. Source: ufldl.stanford.edu/housenumbers, "Format 2".
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import scipy.io
from scipy.io.matlab import MatReadError

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import (
    Append,
    RangeFindings,
    Rows,
    Source,
    number_ranges,
)
from recordmill.transforms.storage.reading import read_file
from recordmill.transforms.tfrecord import crc32c

STEP = 1000  # rows of a batch


@dataclass(frozen=True)
class SvhnSource(Source):
    """Digits in MATLAB files.

    Attributes:
      digits: the files and how many each has, once prepared.
      shape: of an image.
      storage: options of the inputs' storage.
    """

    digits: tuple[tuple[InputFile, int], ...] = ()
    shape: tuple[int, ...] = ()
    storage: StorageOptions = NO_OPTIONS

    reports_checksums = True

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        found = [file for file in files if file.path.endswith("_32x32.mat")]
        if not found:
            raise InputError("no input file is named like train_32x32.mat")
        shapes = [self._arrays(file)[1]["X"].shape for file in found]
        if len({shape[:3] for shape in shapes}) > 1:
            raise InputError("images of several sizes: convert such files one by one")
        digits = tuple((file, s[3]) for file, s in zip(found, shapes, strict=True))
        return replace(self, digits=digits, shape=shapes[0][:3])

    def _arrays(self, file: InputFile) -> tuple[bytes, dict[str, Any]]:
        data = read_file(file.uri, self.storage, file.stat)
        try:
            arrays = scipy.io.loadmat(io.BytesIO(data), variable_names=["X", "y"])
        except (MatReadError, ValueError, TypeError, OSError) as error:
            raise InputError(f"{file.uri}: is not a MATLAB file: {error}") from error
        images, labels = arrays.get("X"), arrays.get("y")
        if images is None or labels is None or images.shape[-1] != labels.size:
            raise InputError(f"{file.uri}: expected as many labels y as images X")
        return data, arrays

    def input_splits(self) -> tuple[str, ...]:
        return tuple(_split(file) for file, _ in self.digits)

    def columns(self) -> pa.Schema:
        return pa.schema({"image": pa.binary(), "label": pa.int64()})

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        return number_ranges(
            [(file, 0, rows, _split(file)) for file, rows in self.digits if rows]
        )

    def schema(
        self, observed: tuple[int, ...] = (), nulls: tuple[int, ...] = ()
    ) -> Schema:
        image = FeatureSpec(
            "image", Kind.BYTES, dtype="uint8", shape=self.shape, content=Content.ARRAY
        )
        names = tuple(map(str, range(10)))
        return Schema((image, FeatureSpec("label", Kind.INT64, class_names=names)))

    def read(
        self,
        input_range: InputRange,
        expected: tuple[int, ...],
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        file = next(file for file, _ in self.digits if file.path == input_range.path)
        data, arrays = self._arrays(file)
        range_findings.checksums.append(
            FileChecksum(file.path, 0, len(data), crc32c(data))
        )
        images, labels = np.moveaxis(arrays["X"], -1, 0), arrays["y"].reshape(-1)
        for start in range(0, len(labels), STEP):
            own = labels[start : start + STEP]
            rows = start + np.flatnonzero((own >= 0) & (own <= 10))
            wrong = sorted({*range(start, start + len(own))} - {*rows.tolist()})

            def raw(row: int) -> tuple[int, bytes]:
                return row, images[row].tobytes() + labels[row].tobytes()

            pixels = [images[row].tobytes() for row in rows]
            digits = labels[rows].astype(np.int64) % 10
            range_findings.rejects += [
                Reject(file.path, row, f"{labels[row]} is no digit", raw(row)[1])
                for row in wrong
            ]
            yield Rows(
                batch=pa.RecordBatch.from_arrays(
                    [pa.array(pixels), pa.array(digits)], schema=self.columns()
                ),
                origins=origins_in(file.path, 0, rows),
                positions=rows,
                raw_row=lambda row, rows=rows: raw(int(rows[row])),
            )


def _split(file: InputFile) -> str:
    return file.path.rpartition("/")[2].removesuffix("_32x32.mat")
