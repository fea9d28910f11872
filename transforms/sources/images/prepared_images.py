"""Finds the pictures of an input and what is known of each, before any is read.

Folders alone may say it (`read_folders`), or tables, names and lists, too (`read_noted`).
What is known of many pictures is put into the inventory file, from which workers take
their slice of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

import pyarrow as pa

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.pictures.check import CheckLevel
from recordmill.transforms.pictures.structure import MAX_PIXELS
from recordmill.transforms.sources.base import Source
from recordmill.transforms.sources.images.asked_labels import AskedLabels
from recordmill.transforms.sources.images.decodability import (
    decodable_in,
    named_undecodable,
)
from recordmill.transforms.sources.images.feature_names import reserved_names
from recordmill.transforms.sources.images.find_pictures import find_pictures
from recordmill.transforms.sources.images.finish_notes import NotedPictures
from recordmill.transforms.sources.images.folder_layout import EMPTY, FolderLayout
from recordmill.transforms.sources.images.options import FeatureNames, Undecodable
from recordmill.transforms.sources.images.picture_notes import SPLIT, NoteTypes
from recordmill.transforms.sources.images.read_folders import (
    FolderPictures,
    append_folders,
    read_folders,
)
from recordmill.transforms.sources.images.read_noted import append_noted, read_noted
from recordmill.transforms.sources.inventory import Inventory
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.sources.named_files import NamedFile
from recordmill.transforms.storage import Store


@dataclass(frozen=True)
class PreparedImages(Source):
    """The pictures of an input, found and with what is known of each.

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

    role_options = MappingProxyType(
        {"label": "label_column", "split_column": "table_split_column"}
    )

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
        found = find_pictures(files, self.storage)
        keeps = self._keeps_undecodable
        folders = read_folders(found, self._levels, keeps_undecodable=keeps)
        return self._in_folders(folders)

    @property
    def _levels(self) -> tuple[str, str]:
        return self.split_from, self.label_from

    @property
    def _keeps_undecodable(self) -> bool:
        return self.undecodable == "keep"

    def _in_folders(self, found: FolderPictures) -> Self:
        return replace(
            self,
            root=found.root,
            layout=found.layout,
            classes=found.classes,
            splits=found.splits,
            decodable=found.decodable,
            listing=found.listing,
            signatures=found.checksums,
            told=found.told,
        )

    def _noted(self, files: Sequence[InputFile], asked: AskedLabels) -> NotedPictures:
        has_labels = not asked.without_labels and asked.label_column != "none"
        return read_noted(
            files,
            asked,
            reserved_names(self.feature_names, has_labels=has_labels),
            self._levels,
            self.storage,
            keeps_undecodable=self._keeps_undecodable,
        )

    def _with_notes(self, noted: NotedPictures) -> Self:
        pictures = [file for file in noted.listing if not file.problem]
        return replace(
            self,
            root=input_root(noted.listing),
            classes=noted.classes,
            splits=noted.splits,
            decodable=not self._keeps_undecodable or not named_undecodable(pictures),
            listing=noted.listing,
            signatures=noted.checksums,
            told=noted.told,
            notes=noted.notes,
            types=noted.types,
        )

    def prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        if self.asked is not None:
            source = self._append_noted(kept, new, schema, self.asked)
        else:
            old, more = (find_pictures(files, self.storage) for files in (kept, new))
            found = append_folders(
                old,
                more,
                schema,
                self._levels,
                keeps_undecodable=self._keeps_undecodable,
            )
            source = self._in_folders(found)
        return source if schema is None else source._like_dataset(schema)

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
            only_decodable=is_decodable and self._keeps_undecodable,
        )
        return self._with_notes(noted)

    def _like_dataset(self, schema: Schema) -> Self:
        """Returns the source whose records are as those of a dataset."""
        is_decodable = decodable_in(schema)
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
