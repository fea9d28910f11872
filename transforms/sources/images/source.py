"""Reads folders of pictures, a folder for each class; the files' bytes are kept.

One file is one record and its size is known without reading it, so the plan counts file
sizes and rows are exchanged by reference: ranges are slices of the inventory, sorted
runs hold paths, and the shard's writer reads the pictures itself (`read_references`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, tee

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.input_summary import Understood
from recordmill.schemas.ranges import InputRange, OddRows, TypeFlags
from recordmill.transforms.pictures.check import check_picture
from recordmill.transforms.sources.by_reference import REFERENCE
from recordmill.transforms.sources.images.cut_pictures import cut_pictures
from recordmill.transforms.sources.images.decodability import (
    DECODED,
    ENCODED,
    FACT,
    all_decodable,
    decodable_in,
    observe,
    require_decodable,
    type_flags,
    warn_by_content,
)
from recordmill.transforms.sources.images.feature_names import image_schema
from recordmill.transforms.sources.images.picture_notes import write_notes
from recordmill.transforms.sources.images.picture_rows import (
    labels_of,
    listed_labels,
    listed_rows,
    picture_batch,
    read_rows_of,
)
from recordmill.transforms.sources.images.prepared_images import PreparedImages
from recordmill.transforms.sources.images.read_pictures import (
    Picture,
    ReadPictures,
    Reference,
    contents_of,
    parse_reference,
    read_pictures,
)
from recordmill.transforms.sources.source_rows import ReferencedRows, Rows
from recordmill.transforms.sources.spread_ranges import spread_evenly

SAMPLED_FILES = 32
READ_BYTES = 16 << 20  # pictures read at once


@dataclass(frozen=True)
class ImagesSource(PreparedImages):
    """Pictures in a folder for each class, each read as one record."""

    supports_references = True
    lists_rows = True
    sizes_known_upfront = True
    handles_unreadable = True  # they become rejects
    tells_checksums = True
    read_rate = 250e6
    reference_rate = 20e9

    def columns(self) -> pa.Schema:
        return self.read_references(pa.array([], pa.binary())).batch.schema

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return cut_pictures(self.listing, self._splits(), self.root)

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        return spread_evenly(ranges, SAMPLED_FILES, 1)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        found = None if self.is_fixed else all_decodable(observed)
        decodable = self.decodable if found is None else found
        return image_schema(self.feature_names, self.classes, decodable, self.types)

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> Understood:
        fact = (FACT, DECODED if decodable_in(schema) else ENCODED)
        # What the names tell was told before the run.
        return Understood(
            (fact,), tuple(warn_by_content(odd) if self.decodable else ())
        )

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        return True

    def list_references(self, input_range: InputRange) -> Iterator[Rows]:
        """Lists size and path of each file in a slice of the inventory."""
        files = self._files(input_range)
        if self.types is None:
            places = self.layout.places(file.path for file in files)
            labels = listed_labels(places, self.classes)
            yield listed_rows(files, labels, self.storage)
            return
        noted = self._notes(input_range)
        labels = self.types.listed(noted, self.classes)
        yield listed_rows(files, labels, self.storage, write_notes(noted, labels))

    def read(self, input_range: InputRange, expected: TypeFlags) -> Iterator[Rows]:
        for rows in self.list_references(input_range):
            named = _parsed(rows.batch[REFERENCE])
            contents = contents_of(named, self.root, self.storage)
            start = 0
            while start < len(named):
                read = self._read(named[start:], contents, READ_BYTES)
                yield read_rows_of(rows, self._rows_of(read), start)
                start += read.next_index

    def read_references(self, references: pa.BinaryArray) -> ReferencedRows:
        """Reads the pictures of these sizes at these paths.

        Raises:
          InputError: a file cannot be read, or its size is not what it was.
        """
        return next(self.read_windows([references]))

    def read_windows(
        self, windows: Iterable[pa.BinaryArray]
    ) -> Iterator[ReferencedRows]:
        named, ahead = tee(map(_parsed, windows))
        files = chain.from_iterable(ahead)
        with closing(contents_of(files, self.root, self.storage)) as contents:
            for window in named:
                yield self._rows_of(self._read(window, contents), by_view=True)

    def _read(
        self,
        named: Sequence[Reference],
        contents: Iterator[bytes],
        max_bytes: int | None = None,
    ) -> ReadPictures:
        places = self.layout.places(each.path for each in named)
        return read_pictures(named, places, self.root, contents, self._take, max_bytes)

    def _rows_of(self, found: ReadPictures, *, by_view: bool = False) -> ReferencedRows:
        odd = observe(found.kinds, found.paths)
        return ReferencedRows(
            picture_batch(found, self._labels(found), by_view=by_view),
            np.array(found.kept, np.int64),
            found.rejects,
            raw=lambda row: (found.paths[row], 0, found.data[row]),
            observed=self._type_flags(found.kinds, odd),
            odd=odd,
            checksums=found.checksums,
            # Of files whose bytes were kept; others have no references.
            view_crcs=np.array(found.crcs, np.uint32) if by_view else None,
            view_values=found.data if by_view else None,
        )

    def _labels(self, found: ReadPictures) -> dict[str, pa.Array]:
        """Returns the columns of pictures that were read which are not in them."""
        if self.types is None:
            return labels_of(found.places, self.classes)
        return self.types.columns([note.values for note in found.notes], self.classes)

    def _type_flags(self, kinds: Sequence[str], odd: Sequence[OddRows]) -> TypeFlags:
        """Returns the type flags of pictures of these kinds, the odd ones counted."""
        return type_flags(kinds, odd)

    def _take(self, data: bytes) -> Picture:
        """Checks one picture.

        Raises:
          ImageHeaderError: it is to be rejected.
        """
        header = check_picture(
            data, level=self.check_pictures, max_pixels=self.max_pixels
        )
        if self.undecodable == "reject":
            require_decodable(header.kind)
        return Picture(data, header, header.kind)


def _parsed(references: pa.BinaryArray) -> list[Reference]:
    return [parse_reference(text) for text in references.to_pylist()]
