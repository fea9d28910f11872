"""Reads folders of images, a folder for each class; the files' bytes are kept.

One file is one record and its size is known without reading it, so the plan counts file
sizes and rows are exchanged by reference: ranges are slices of the inventory, sorted
runs hold paths, and the shard's writer reads the images itself (`read_references`).

What is known of many images is put into the inventory file, from which workers take
their slice of it.

Where pixels are transformed, the size of an image is known only once it is encoded, so
the plan counts the bytes of the records, and they are not exchanged by reference. Each
range transforms one image after the other, and a runner reads as many ranges at once as
it has workers: decoding, scaling and encoding run outside of Python's lock, so that all
cores are at work without threads of our own. Ranges are small for that reason.
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
from recordmill.transforms.images.transform import transform_image
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    REFERENCE,
    Append,
    ReferencedRows,
    Rows,
    RowSink,
    Source,
    spread_evenly,
)
from recordmill.transforms.sources.images.annotations import (
    NO_ANNOTATIONS,
    SPLIT,
    Annotations,
    annotate,
    appended,
    write_notes,
)
from recordmill.transforms.sources.images.find import (
    FoundImages,
    NamedInputs,
    find_images,
    find_named_inputs,
    named_files,
)
from recordmill.transforms.sources.images.options import (
    DEFAULTS,
    ImagesOptions,
    Undecodable,
)
from recordmill.transforms.sources.images.rows import (
    ReadImages,
    Reference,
    TakenImage,
    contents_of,
    image_batch,
    image_schema,
    listed_rows,
    parse_references,
    pixel_lists,
    read_images,
    read_rows_of,
    reserved_names,
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
    warn_by_names,
    warnings_of,
)
from recordmill.transforms.sources.inventory import Inventory, slices
from recordmill.transforms.sources.named_files import NamedFile
from recordmill.transforms.storage import Store

FILES_PER_RANGE = 4096
MAX_RANGE_BYTES = 64 << 20  # a larger image is a range of its own
SAMPLED_FILES = 32
READ_BYTES = 16 << 20  # images read at once
_GROWTH = 16  # bytes of a PNG for each of a WebP or JPEG, at most in most of them
_ENCODED_SAMPLES = 1  # bytes of a JPEG or PNG for each sample, at most


@dataclass(frozen=True)
class ImagesSource(Source):
    """Images in a folder for each class, each read as one record.

    Attributes:
      options: of the job.
      storage: options of the inputs' storage.
      wanted: columns that a declared schema uses, which converts cells of tables; None
        without one.
      found: the images, and what is known of each, once prepared.
      inventory: the file that `spill_inventory` has put them into.
      decodable: whether TFDS decodes all images; by their names, until they are read.
      is_fixed: whether `decodable` is that of a dataset which is there.
      rules: what is done with the pixels.
    """

    options: ImagesOptions = DEFAULTS
    storage: StorageOptions = NO_OPTIONS
    wanted: tuple[str, ...] | None = None
    found: Annotations = NO_ANNOTATIONS
    inventory: Inventory | None = None
    decodable: bool = True
    is_fixed: bool = False
    rules: PixelRules = AS_THEY_ARE

    role_options = MappingProxyType(
        {"label": "label_column", "split_column": "table_split_column"}
    )

    lists_rows = True
    sizes_unknown = "the size of an image is known only once it is encoded"
    handles_unreadable = True  # they become rejects
    tells_checksums = True

    @property
    def named_files(self) -> tuple[NamedFile, ...]:  # type: ignore[override]
        return named_files(self.options)

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        return self.rules == AS_THEY_ARE

    @property
    def sizes_known_upfront(self) -> bool:  # type: ignore[override]
        return self.rules == AS_THEY_ARE

    @property
    def undecodable(self) -> Undecodable:
        """Returns what is done with images that TFDS cannot decode."""
        if self.options.undecodable == "reencode" or not self.is_fixed:
            return self.options.undecodable
        return "reject" if self.decodable else "keep"

    def _named_undecodable(self, found: Annotations) -> list[str]:
        return named_undecodable(found.files) if self._keeps_undecodable() else []

    def _keeps_undecodable(self) -> bool:
        # What is re-encoded is decodable, whatever the file was.
        return not self.rules.transforms_all and self.options.undecodable == "keep"

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        if append is not None:
            return self._prepare_append(append.kept, files, append.schema)
        named = self._named(files)
        found = self._annotated(self._images(files, named), named)
        return replace(self, found=found, decodable=not self._named_undecodable(found))

    def _prepare_append(
        self,
        kept: Sequence[InputFile],
        new: Sequence[InputFile],
        schema: Schema | None,
    ) -> Self:
        decodable = schema is not None and decodable_in(schema)
        named = self._named([*kept, *new])
        old, more = (self._images(files, named) for files in (kept, new))
        found = appended(
            self._annotated(old, self._named(kept)),
            self._annotated(old + more, named),
            more,
            frozenset(file.path for file in new),
            schema,
            only_decodable=decodable and self._keeps_undecodable(),
        )
        if schema is None:
            decodable = not self._named_undecodable(found)
        return replace(
            self, found=found, decodable=decodable, is_fixed=schema is not None
        )

    def _named(self, files: Sequence[InputFile]) -> NamedInputs:
        return find_named_inputs(self.options, files)

    def _images(self, files: Sequence[InputFile], named: NamedInputs) -> FoundImages:
        paths = named.paths
        others = [file for file in files if file.path not in paths] if paths else files
        return find_images(others, self.storage)

    def _annotated(self, found: FoundImages, named: NamedInputs) -> Annotations:
        names, has_labels = self.options.feature_names, self.options.has_labels
        reserved = reserved_names(names, has_labels=has_labels)
        return annotate(found, named, self.options, reserved, self.wanted, self.storage)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.found.checksums

    def understood(self) -> Understood:
        if self.inventory is not None:
            return NOTHING
        told = self.found.summary()
        facts = (*told.facts, self._readers_get(decodable=self.decodable))
        if self.rules != AS_THEY_ARE:
            reencodes = self.undecodable == "reencode" and not self.rules.transforms_all
            facts += rules_told(self.rules, reencodes=reencodes)
        warnings = (*told.warnings, *warn_by_names(self._named_undecodable(self.found)))
        return Understood(facts, warnings, told.passed_over)

    def _readers_get(self, *, decodable: bool) -> tuple[str, str]:
        found = DECODED if decodable else ENCODED
        if self.rules.transforms_all:
            told = {"raw": "arrays of pixels", "webp": ENCODED}
            found = told.get(self.rules.form, DECODED)
        return FACT, found

    def own_splits(self) -> tuple[str, ...]:
        return self.found.splits

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        if self.rules == AS_THEY_ARE:
            return super().estimated_bytes(files)
        height, width, channels = self.rules.shape
        if height and width:
            return _ENCODED_SAMPLES * height * width * (channels or 4) * len(files)
        return _GROWTH * super().estimated_bytes(files)

    def spill_inventory(self, store: Store, name: str) -> Self:
        inventory = Inventory(store, name, self.found.root)
        inventory.write(self.found.files, self.found.table)
        return replace(self, found=self.found.without_files(), inventory=inventory)

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        """Cuts the list into ranges of whole files, each of one split.

        Where it is cut changes no byte of the dataset.
        """
        most = MAX_RANGE_BYTES if self.rules == AS_THEY_ARE else RANGE_BYTES
        files, splits = self.found.files, self.found.table[SPLIT].to_pylist()
        bounds = []
        start = 0
        for _, group in groupby(splits):
            stop = start + sum(1 for _ in group)
            cuts = slices(files[start:stop], FILES_PER_RANGE, most)
            bounds += [(start + low, start + high) for low, high in pairwise(cuts)]
            start = stop
        return [
            InputRange(
                index=index,
                path=files[start].path,
                uri=self.found.root,
                start=start,
                stop=stop,
                first_position=start,
                total_positions=len(files),
                split=splits[start],
            )
            for index, (start, stop) in enumerate(bounds)
        ]

    def columns(self) -> pa.Schema:
        return self.read_references(pa.array([], pa.binary()), RowSink()).batch.schema

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        return spread_evenly(ranges, SAMPLED_FILES, 1)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        found = None if self.is_fixed else all_decodable(observed)
        decodable = self.decodable if found is None else found
        names = self.options.feature_names
        schema = image_schema(names, self.found, decodable=decodable)
        if not self.rules.transforms_all:
            return schema
        return Schema(
            tuple(
                self._image(each) if each.content is Content.IMAGE else each
                for each in schema.features
            )
        )

    def _image(self, feature: FeatureSpec) -> FeatureSpec:
        """Returns the feature of the images, with what of their shape is known."""
        rules = self.rules
        if rules.form == "webp":  # readers get the encoded bytes
            return replace(feature, dtype="bytes", shape=())
        content = Content.IMAGE
        if rules.form == "raw":
            # The bytes of an array do not tell two sides; a tensor has them with it.
            content = Content.TENSOR if None in rules.shape else Content.ARRAY
        return replace(feature, dtype="uint8", shape=rules.shape, content=content)

    def understood_at_end(
        self,
        schema: Schema,
        odd: tuple[OddRows, ...] = (),
        observed: tuple[int, ...] = (),
    ) -> Understood:
        facts = (self._readers_get(decodable=decodable_in(schema)),)
        changed = [each for each in odd if CHANGE in each.kind]
        # What the names tell was told before the run.
        warnings: tuple[str, ...] = ()
        if self.decodable and not self.rules.transforms_all:
            warnings = tuple(
                warn_by_content([each for each in odd if CHANGE not in each.kind])
            )
        return Understood(
            (*facts, *changes_told(changed)), (*warnings, *warnings_of(changed))
        )

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        return True

    def list_references(self, input_range: InputRange, sink: RowSink) -> Iterator[Rows]:
        """Lists size and path of each file in a slice of the inventory."""
        start, stop = input_range.start, input_range.stop
        files: Sequence[InputFile]
        if self.inventory is not None:
            files = self.inventory.read(start, stop)
            table = self.inventory.read_notes(start, stop)
        else:
            files = self.found.files[start:stop]
            table = self.found.table.slice(start, stop - start)
        columns = self.found.listed(table)
        yield listed_rows(files, columns, self.storage, write_notes(table, columns))

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        for rows in self.list_references(input_range, sink):
            named = parse_references(rows.batch[REFERENCE])
            contents = contents_of(named, self.found.root, self.storage)
            start = 0
            while start < len(named):
                read = self._read(named[start:], contents, sink, READ_BYTES)
                yield read_rows_of(rows, self._rows_of(read, sink), start)
                start += read.next_index

    def read_references(
        self, references: pa.BinaryArray, sink: RowSink
    ) -> ReferencedRows:
        """Reads the images of these sizes at these paths.

        Raises:
          InputError: a file cannot be read, or its size is not what it was.
        """
        return next(self.read_windows([references], sink))

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], sink: RowSink
    ) -> Iterator[ReferencedRows]:
        named, ahead = tee(map(parse_references, windows))
        files = chain.from_iterable(ahead)
        with closing(contents_of(files, self.found.root, self.storage)) as contents:
            for window in named:
                found = self._read(window, contents, sink)
                yield self._rows_of(found, sink, by_view=True)

    def _read(
        self,
        named: Sequence[Reference],
        contents: Iterator[bytes],
        sink: RowSink,
        max_bytes: int | None = None,
    ) -> ReadImages:
        root = self.found.root
        return read_images(named, root, contents, self._take, sink, max_bytes)

    def _rows_of(
        self, found: ReadImages, sink: RowSink, *, by_view: bool = False
    ) -> ReferencedRows:
        odd = observe(found.kinds, found.paths)
        # What was changed is a JPEG or a PNG now.
        kept = [each for each in odd if CHANGE not in each.kind]
        others = [] if self.rules.transforms_all else kept
        sink.add(observed=type_flags(found.kinds, others), issues=odd)
        columns = self.found.columns([note.values for note in found.notes])
        batch = image_batch(found, columns, by_view=by_view)
        if self.rules.form == "raw" and None in self.rules.shape:
            lists = pixel_lists(batch["image"], found.headers)
            at = batch.schema.get_field_index("image")
            batch = batch.set_column(at, "image", lists)
        return ReferencedRows(
            batch,
            np.array(found.kept, np.int64),
            raw=lambda row: (found.paths[row], 0, found.data[row]),
            # Of files whose bytes were kept; others have no references.
            view_crcs=np.array(found.crcs, np.uint32) if by_view else None,
            view_values=found.data if by_view else None,
        )

    def _take(self, data: bytes) -> TakenImage:
        """Checks and transforms one image.

        Raises:
          ImageHeaderError: it is to be rejected.
        """
        rules, undecodable = self.rules, self.undecodable
        level, max_pixels = self.options.check_images, self.options.max_pixels
        # What is decoded anyway need not be decoded for the check.
        if rules.transforms_all and level == "decode":
            level = "structure"
        header = check_image(data, level=level, max_pixels=max_pixels)
        found = transform_image(data, header, rules, max_pixels)
        kind = header.kind
        if found is None and not is_decodable(kind):
            if undecodable == "reject":
                require_decodable(kind)
            if undecodable == "reencode":
                as_png = replace(rules, transforms_all=True, form="png")
                found = transform_image(data, header, as_png, max_pixels)
                kind += f"{CHANGE}{MADE_PNG}"
        if found is None:
            return data, header, kind
        return found.data, found.header, CHANGE.join((kind, *found.changes))
