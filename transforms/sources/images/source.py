"""Reads folders of pictures, a folder for each class; the files' bytes are kept.

One file is one record and its size is known without reading it, so the plan counts file
sizes and rows are exchanged by reference: ranges are slices of the inventory, sorted
runs hold paths, and the shard's writer reads the pictures itself (`read_references`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, groupby, pairwise, tee
from types import MappingProxyType
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.feature_spec import Content, FeatureSpec, Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import NOTHING, Understood
from recordmill.schemas.ranges import InputRange, OddRows, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.pixel_rules import AS_THEY_ARE, PixelRules
from recordmill.transforms.images.structure import MAX_PIXELS, CheckLevel
from recordmill.transforms.images.transform import transform_image
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    REFERENCE,
    ReferencedRows,
    Rows,
    Source,
    spread_evenly,
)
from recordmill.transforms.sources.images.annotations import NotedPictures
from recordmill.transforms.sources.images.find import AskedLabels, find_pictures
from recordmill.transforms.sources.images.layout import EMPTY, FolderLayout
from recordmill.transforms.sources.images.options import FeatureNames, Undecodable
from recordmill.transforms.sources.images.prepare import (
    FolderPictures,
    append_folders,
    append_noted,
    read_folders,
    read_noted,
)
from recordmill.transforms.sources.images.rows import (
    SPLIT,
    NoteTypes,
    Picture,
    ReadPictures,
    Reference,
    contents_of,
    image_schema,
    labels_of,
    listed_labels,
    listed_rows,
    parse_reference,
    picture_batch,
    pixel_lists,
    read_pictures,
    read_rows_of,
    reserved_names,
    write_notes,
)
from recordmill.transforms.sources.images.summary import (
    CHANGE,
    DECODED,
    ENCODED,
    FACT,
    MADE_PNG,
    all_decodable,
    changes_told,
    decodable_in,
    is_decodable,
    named_undecodable,
    observe,
    require_decodable,
    rules_told,
    type_flags,
    warn_by_content,
    warnings_of,
)
from recordmill.transforms.sources.inventory import Inventory, slices
from recordmill.transforms.sources.listing import input_root
from recordmill.transforms.sources.named_files import NamedFile
from recordmill.transforms.storage import Store

FILES_PER_RANGE = 4096
MAX_RANGE_BYTES = 64 << 20  # a larger picture is a range of its own


def cut_pictures(
    pictures: Sequence[InputFile],
    splits: Sequence[str],
    root: str,
    *,
    max_range_bytes: int | None = None,
) -> list[InputRange]:
    """Cuts the list into ranges, whose unit is one file.

    Where it is cut changes no byte of the dataset.

    Args:
      pictures: the files.
      splits: of each.
      root: what every uri begins with, before the path.
      max_range_bytes: of the files of a range, RANGE_BYTES if not given; a larger
        picture is one by itself.
    """
    return [
        InputRange(
            index=index,
            path=pictures[start].path,
            uri=root,
            start=start,
            stop=stop,
            first_position=start,
            total_positions=len(pictures),
            split=splits[start],
        )
        for index, (start, stop) in enumerate(
            _slices(pictures, splits, max_range_bytes or MAX_RANGE_BYTES)
        )
    ]


def _slices(
    pictures: Sequence[InputFile], splits: Sequence[str], max_range_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yields slices of the list, each of one split."""
    start = 0
    for _, group in groupby(splits):
        stop = start + sum(1 for _ in group)
        part = pictures[start:stop]
        for low, high in pairwise(slices(part, FILES_PER_RANGE, max_range_bytes)):
            yield start + low, start + high
        start = stop


# Folders alone may say it (`read_folders`), or tables, names and lists, too (`read_noted`).
# What is known of many pictures is put into the inventory file, from which workers take
# their slice of it.


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
        header = check_image(
            data, level=self.check_pictures, max_pixels=self.max_pixels
        )
        if self.undecodable == "reject":
            require_decodable(header.kind)
        return Picture(data, header, header.kind)


def _parsed(references: pa.BinaryArray) -> list[Reference]:
    return [parse_reference(text) for text in references.to_pylist()]


# The size of an image is known only once it is encoded, so the plan counts the bytes of the
# records, and they are not exchanged by reference. Each range transforms one image after
# the other, and a runner reads as many ranges at once as it has workers: decoding, scaling
# and encoding run outside of Python's lock, so that all cores are at work without threads
# of our own. Ranges are small for that reason.

_GROWTH = 16  # bytes of a PNG for each of a WebP or JPEG, at most in most of them
_ENCODED_SAMPLES = 1  # bytes of a JPEG or PNG for each sample, at most


@dataclass(frozen=True)
class PixelImages(ImagesSource):
    """Images in a folder for each class, transformed as rules say.

    Attributes:
      rules: what is done with the pixels.
    """

    rules: PixelRules = AS_THEY_ARE

    supports_references = False
    sizes_known_upfront = False
    sizes_unknown = "the size of an image is known only once it is encoded"
    # JPEGs of half a megapixel scaled to 224; 75e6 of a megapixel. Of what becomes PNG
    # 1.4e6 for WebP, 17e6 for TIFF.
    read_rate = 25e6

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        height, width, channels = self.rules.shape
        if height and width:
            return _ENCODED_SAMPLES * height * width * (channels or 4) * len(files)
        return _GROWTH * super().estimated_bytes(files)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        return cut_pictures(
            self.listing, self._splits(), self.root, max_range_bytes=RANGE_BYTES
        )

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        features = super().schema(observed, nulls).features
        if not self.rules.transforms_all:
            return Schema(features)
        return Schema(
            tuple(
                self._image(each) if each.content is Content.PICTURE else each
                for each in features
            )
        )

    def _image(self, feature: FeatureSpec) -> FeatureSpec:
        """Returns the feature of the images, with what of their shape is known."""
        rules = self.rules
        if rules.form == "webp":  # readers get the encoded bytes
            return replace(feature, dtype="bytes", shape=())
        content = Content.PICTURE
        if rules.form == "raw":
            # The bytes of an array do not tell two sides; a tensor has them with it.
            content = Content.TENSOR if None in rules.shape else Content.ARRAY
        return replace(feature, dtype="uint8", shape=rules.shape, content=content)

    def understood(self) -> Understood:
        reencodes = self.undecodable == "reencode" and not self.rules.transforms_all
        facts = (*self._readers_get(), *rules_told(self.rules, reencodes=reencodes))
        return self.told.updated(Understood(facts))

    def _readers_get(self) -> tuple[tuple[str, str], ...]:
        """Returns the fact of what readers get, where all images are transformed."""
        if not self.rules.transforms_all:
            return ()
        told = {"raw": "arrays of pixels", "webp": ENCODED}
        return ((FACT, told.get(self.rules.form, DECODED)),)

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> Understood:
        changed = [each for each in odd if CHANGE in each.kind]
        others = () if self.rules.transforms_all else tuple(set(odd) - set(changed))
        told = super().understood_at_end(schema, others, observed)
        facts = (*self._readers_get(), *changes_told(changed))
        return Understood(
            (*told.facts, *facts), (*told.warnings, *warnings_of(changed))
        )

    def _undecodable_beside(self, is_decodable: bool) -> Undecodable:
        if self.undecodable == "reencode":
            return "reencode"
        return super()._undecodable_beside(is_decodable)

    def _type_flags(self, kinds: Sequence[str], odd: Sequence[OddRows]) -> TypeFlags:
        if self.rules.transforms_all:
            return type_flags(kinds, ())
        # What was changed is a JPEG or a PNG now.
        return type_flags(kinds, [each for each in odd if CHANGE not in each.kind])

    def _rows_of(self, found: ReadPictures, *, by_view: bool = False) -> ReferencedRows:
        rows = super()._rows_of(found)
        if self.rules.form == "raw" and None in self.rules.shape:
            images = pixel_lists(rows.batch["image"], found.headers)
            column = rows.batch.schema.get_field_index("image")
            rows.batch = rows.batch.set_column(column, "image", images)
        return rows

    def _take(self, data: bytes) -> Picture:
        # What is decoded anyway need not be decoded for the check.
        level = self.check_pictures
        if self.rules.transforms_all and level == "decode":
            level = "structure"
        header = check_image(data, level=level, max_pixels=self.max_pixels)
        found = transform_image(data, header, self.rules, self.max_pixels)
        changes: tuple[str, ...] = (header.kind,)
        if found is None and not is_decodable(header.kind):
            if self.undecodable == "reject":
                require_decodable(header.kind)
            if self.undecodable == "reencode":
                as_png = replace(self.rules, transforms_all=True, form="png")
                found = transform_image(data, header, as_png, self.max_pixels)
                changes = (header.kind, MADE_PNG)
        if found is None:
            return Picture(data, header, header.kind)
        kind = CHANGE.join((*changes, *found.changes))
        return Picture(found.data, found.header, kind)
