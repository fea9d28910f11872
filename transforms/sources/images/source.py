"""Reads folders of pictures, a folder for each class; the files' bytes are kept.

One file is one record and its size is known without reading it, so the plan counts file
sizes and rows are exchanged by reference: ranges are slices of the inventory, sorted
runs hold paths, and the shard's writer reads the pictures itself (`read_references`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.features.feature import Schema
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.ranges import InputFile, InputRange, OddRows, TypeFlags
from recordmill.schemas.rounded import Rounded
from recordmill.schemas.understood import NOTHING, Understood
from recordmill.transforms.pictures.check import CheckLevel, check_picture
from recordmill.transforms.pictures.structure import MAX_PIXELS
from recordmill.transforms.sources.base import (
    REFERENCE,
    ReferencedRows,
    Rows,
    Source,
    spread_evenly,
)
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.images.check_append import (
    require_appendable,
    require_same_places,
)
from recordmill.transforms.sources.images.check_folders import check_class_folders
from recordmill.transforms.sources.images.cut_pictures import cut_pictures
from recordmill.transforms.sources.images.decodability import (
    DECODED,
    ENCODED,
    FACT,
    all_decodable,
    decodable_in,
    named_undecodable,
    observe,
    require_decodable,
    type_flags,
    warn_by_content,
    warn_by_names,
)
from recordmill.transforms.sources.images.feature_names import (
    image_schema,
    reserved_names,
)
from recordmill.transforms.sources.images.find_layout import (
    count_folders,
    find_layout,
    root_name_of,
)
from recordmill.transforms.sources.images.find_pictures import (
    FoundPictures,
    find_pictures,
)
from recordmill.transforms.sources.images.folder_layout import EMPTY, FolderLayout
from recordmill.transforms.sources.images.note_pictures import NotedPictures
from recordmill.transforms.sources.images.options import FeatureNames, Undecodable
from recordmill.transforms.sources.images.picture_notes import (
    SPLIT,
    NoteTypes,
    write_notes,
)
from recordmill.transforms.sources.images.picture_rows import (
    labels_of,
    listed_labels,
    listed_rows,
    picture_batch,
    read_rows_of,
)
from recordmill.transforms.sources.images.read_noted import append_noted, read_noted
from recordmill.transforms.sources.images.read_pictures import (
    Picture,
    ReadPictures,
    Reference,
    contents_of,
    parse_reference,
    read_pictures,
)
from recordmill.transforms.sources.images.understand import (
    require_classes,
    require_pictures,
    splits_of,
    understand,
)
from recordmill.transforms.sources.inventory import Inventory
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.sources.named_files import NamedFile
from recordmill.transforms.storage import Store

SAMPLED_FILES = 32
READ_BYTES = 16 << 20  # pictures read at once


@dataclass(frozen=True)
class ImagesSource(Source):
    """Pictures in a folder for each class.

    Attributes:
      feature_names: which names the features get.
      check_pictures: how closely each picture is checked.
      max_pixels: largest height x width of a picture.
      undecodable: whether pictures that TFDS cannot decode are kept or rejected.
      split_from: level of the folders that are splits, "none", or "auto".
      label_from: level of the folders that are classes, "parent", or "auto".
      root: what every uri begins with, before the path.
      layout: which folders are splits and which are classes.
      classes: their sorted names.
      splits: those that the folders are, if every picture is in one.
      decodable: whether TFDS decodes all pictures; by their names, until they are read.
      is_fixed: whether `decodable` is that of a dataset which is there.
      listing: the pictures, until `spill_inventory` has put them into a file.
      inventory: that file.
      told: what the input was taken for.
      signatures: the checksums of the first bytes of files with other endings.
      storage: options of the inputs' storage.
      asked: what options say of labels, splits and features beside the folders,
        or None.
      notes: what is noted of each picture of the listing, or None.
      types: of what is noted, or None if only folders say what pictures are.
    """

    feature_names: FeatureNames = "default"
    check_pictures: CheckLevel = "structure"
    max_pixels: int = MAX_PIXELS
    undecodable: Undecodable = "keep"
    split_from: str = "auto"
    label_from: str = "auto"
    root: str = ""
    layout: FolderLayout = EMPTY
    classes: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    decodable: bool = True
    is_fixed: bool = False
    listing: tuple[InputFile, ...] = ()
    inventory: Inventory | None = None
    told: Understood = NOTHING
    signatures: tuple[FileChecksum, ...] = ()
    storage: StorageOptions = NO_OPTIONS
    asked: AskedLabels | None = None
    notes: pa.Table | None = None
    types: NoteTypes | None = None

    supports_references = True
    role_options = MappingProxyType(
        {"label": "label_column", "split_column": "table_split_column"}
    )
    sizes_known_upfront = True
    handles_unreadable = True  # they become rejects
    tells_checksums = True
    read_rate = 250e6
    reference_rate = 20e9

    @property
    def named_files(self) -> tuple[NamedFile, ...]:  # type: ignore[override]
        return self.asked.named_files if self.asked else ()

    def expecting(self, columns: Sequence[str]) -> Self:
        if self.asked is None:
            return self
        return replace(self, asked=replace(self.asked, wanted=tuple(columns)))

    def prepare(self, files: Sequence[InputFile]) -> Self:
        if self.asked is not None:
            return self._with_notes(self._noted(files, self.asked))
        return self._prepare(find_pictures(files, self.storage))

    def _noted(self, files: Sequence[InputFile], asked: AskedLabels) -> NotedPictures:
        has_labels = not asked.without_labels and asked.label_column != "none"
        return read_noted(
            files,
            asked,
            reserved_names(self.feature_names, has_labels=has_labels),
            (self.split_from, self.label_from),
            self.storage,
            keeps_undecodable=self.undecodable == "keep",
        )

    def _with_notes(self, noted: NotedPictures) -> Self:
        pictures = [file for file in noted.listing if not file.problem]
        return replace(
            self,
            root=input_root(noted.listing),
            classes=noted.classes,
            splits=noted.splits,
            decodable=self.undecodable != "keep" or not named_undecodable(pictures),
            listing=noted.listing,
            signatures=noted.checksums,
            told=noted.told,
            notes=noted.notes,
            types=noted.types,
        )

    def _prepare(self, found: FoundPictures) -> Self:
        pictures = found.pictures
        require_pictures(found)
        root = input_root(pictures)
        layout, warnings = find_layout(
            count_folders(pictures),
            split_from=self.split_from,
            label_from=self.label_from,
            root_name=root_name_of(pictures),
        )
        places = layout.places(file.path for file in pictures)
        odd = named_undecodable(pictures) if self.undecodable == "keep" else []
        require_classes(pictures[0], layout, places, self.label_from)
        warnings += check_class_folders(root, layout, found)
        return replace(
            self,
            root=root,
            layout=layout,
            classes=tuple(sorted({place.label for place in places} - {""})),
            splits=splits_of(places),
            decodable=not odd,
            listing=pictures,
            signatures=found.signatures,
            told=understand(
                found, places, (*warnings, *warn_by_names(odd)), decodable=not odd
            ),
        )

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        if self.asked is not None:
            return self._append_noted(kept, new, schema, self.asked)
        old, more = (find_pictures(files, self.storage) for files in (kept, new))
        before, whole = self._prepare(old), self._prepare(old + more)
        require_same_places(old.pictures, before.layout, whole.layout)
        is_decodable = schema is not None and decodable_in(schema)
        places = whole.layout.places(file.path for file in more.pictures)
        require_appendable(
            more.pictures,
            places,
            before.classes,
            only_decodable=is_decodable and self.undecodable == "keep",
        )
        if schema is not None:
            whole = whole._like_dataset(is_decodable)
        told = understand(more, places, whole.told.warnings, decodable=whole.decodable)
        return replace(whole, listing=more.pictures, told=told)

    def _append_noted(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
        asked: AskedLabels,
    ) -> Self:
        is_decodable = schema is not None and decodable_in(schema)
        noted = append_noted(
            self._noted(kept, asked),
            self._noted([*kept, *new], asked),
            new,
            schema,
            only_decodable=is_decodable and self.undecodable == "keep",
        )
        source = self._with_notes(noted)
        return source if schema is None else source._like_dataset(is_decodable)

    def _like_dataset(self, is_decodable: bool) -> Self:
        """Returns the source whose records are as those of a dataset."""
        return replace(
            self,
            decodable=is_decodable,
            is_fixed=True,
            undecodable=self._undecodable_beside(is_decodable),
        )

    def _undecodable_beside(self, is_decodable: bool) -> Undecodable:
        """Returns what becomes of pictures that are appended to others."""
        return "reject" if is_decodable else "keep"

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.signatures

    def understood(self) -> Understood:
        return self.told

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
        rounded: Sequence[Rounded] = (),
    ) -> Understood:
        fact = (FACT, DECODED if decodable_in(schema) else ENCODED)
        # What the names tell was told before the run.
        return Understood(
            (fact,), tuple(warn_by_content(odd) if self.decodable else ())
        )

    def own_splits(self) -> tuple[str, ...]:
        return self.splits

    def spill_inventory(self, store: Store, name: str) -> Self:
        inventory = Inventory(store, name, self.root)
        inventory.write(self.listing, self.notes)
        return replace(
            self,
            listing=(),
            asked=None,
            inventory=inventory,
            notes=None,
            told=NOTHING,
            signatures=(),
        )

    def _files(self, input_range: InputRange) -> Sequence[InputFile]:
        if self.inventory is not None:
            return self.inventory.read(input_range.start, input_range.stop)
        return self.listing[input_range.start : input_range.stop]

    def _splits(self) -> list[str]:
        """Returns the split of each picture of the listing."""
        if self.notes is not None:
            splits: list[str] = self.notes[SPLIT].to_pylist()
            return splits
        places = self.layout.places(file.path for file in self.listing)
        return [place.split for place in places]

    def _notes(self, input_range: InputRange) -> pa.Table:
        if self.inventory is not None:
            return self.inventory.read_notes(input_range.start, input_range.stop)
        assert self.notes is not None  # prepared
        return self.notes.slice(input_range.start, input_range.num_positions)

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
        named = _parsed(references)
        contents = contents_of(named, self.root, self.storage)
        return self._rows_of(self._read(named, contents), by_view=True)

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
