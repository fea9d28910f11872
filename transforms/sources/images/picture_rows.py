"""Makes rows of pictures: of their listing, and of what was read of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import I64
from recordmill.transforms.binary_views import views_of
from recordmill.transforms.exchange.keys import text_hashes
from recordmill.transforms.sources.by_reference import REFERENCE
from recordmill.transforms.sources.images.folder_layout import Place
from recordmill.transforms.sources.images.read_pictures import (
    ReadPictures,
    references_to,
)
from recordmill.transforms.sources.source_rows import ReferencedRows, Rows
from recordmill.transforms.storage.reading import read_file
from recordmill.transforms.tfrecord import FRAME_BYTES


def listed_rows(
    files: Sequence[InputFile],
    labels: Mapping[str, pa.Array],
    storage: StorageOptions,
    notes: Sequence[bytes] = (),
) -> Rows:
    """Returns references to pictures: the size and path of each file.

    Args:
      files: the pictures.
      labels: columns that are known without reading the files.
      storage: options of the files' storage.
      notes: what is noted of each, or ().
    """
    paths = [file.path for file in files]
    references = references_to(files)
    if notes:
        references = [b"".join(pair) for pair in zip(references, notes, strict=True)]
    return Rows(
        batch=pa.RecordBatch.from_pydict(
            {
                REFERENCE: pa.array(references, pa.binary()),
                **labels,
                "filename": pa.array(paths, pa.string()),
            }
        ),
        # The path alone, not its position in the listing: a picture keeps its
        # order key and its split when others are added or removed.
        origins=text_hashes(paths),
        positions=np.arange(len(files), dtype=np.int64),
        raw=lambda row: (0, read_file(files[row].uri, storage, files[row].seen)),
        planned_bytes=np.array([file.size for file in files], np.int64) + FRAME_BYTES,
    )


def listed_labels(
    places: Sequence[Place], classes: Sequence[str]
) -> dict[str, pa.Array]:
    """Returns the labels of pictures by their folders; null in no class."""
    label_of = _labels(classes)
    labels = [label_of.get(place.label) for place in places]
    return {"label": pa.array(labels, pa.int64())}


def labels_of(places: Sequence[Place], classes: Sequence[str]) -> dict[str, pa.Array]:
    """Returns label and name of the class of pictures by their folders."""
    label_of = _labels(classes)
    names = [place.label for place in places]
    return {
        "label": pa.array([label_of[name] for name in names], pa.int64()),
        "text": pa.array(names, pa.string()),
    }


def picture_batch(
    found: ReadPictures,
    labels: Mapping[str, pa.Array],
    *,
    by_view: bool = False,
) -> pa.RecordBatch:
    """Returns the columns of the pictures that could be read.

    Args:
      found: the pictures.
      labels: the columns of labels, and of features beside the pictures' own.
      by_view: whether the pictures' bytes stay where they are.
    """
    formats = [header.format for header in found.headers]
    return pa.RecordBatch.from_pydict(
        {
            "image": (
                views_of(found.data) if by_view else pa.array(found.data, pa.binary())
            ),
            "format": pa.array(formats, pa.string()),
            "height": pa.array([h.height for h in found.headers], pa.int64()),
            "width": pa.array([h.width for h in found.headers], pa.int64()),
            "depth": pa.array([h.depth for h in found.headers], pa.int64()),
            "filename": pa.array(found.paths, pa.string()),
            **labels,
        }
    )


def read_rows_of(listed: Rows, found: ReferencedRows, first: int) -> Rows:
    """Returns the rows of a range that were read by some of its references.

    Args:
      listed: references to the range's pictures.
      found: what was read by some of them.
      first: the first of these references.
    """
    kept = found.kept + first
    return Rows(
        batch=found.batch,
        origins=listed.origins[kept],
        positions=listed.positions[kept],
        raw=partial(_raw_of_kept, listed, kept),
        paths=found.batch["filename"].to_pylist(),
        rejects=found.rejects,
        observed=found.observed,
        odd=found.odd,
        checksums=found.checksums,
    )


def _labels(classes: Sequence[str]) -> Mapping[str, int]:
    return {name: label for label, name in enumerate(classes)}


def _raw_of_kept(rows: Rows, kept: I64, row: int) -> tuple[int, bytes]:
    return rows.raw(int(kept[row]))
