"""Reads folders of images or other files; each file becomes a record.

Millions of files are too many to send to each worker. Workers read slices of an inventory
file instead, which has one Arrow record batch for each slice, so that a slice takes one
read.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, groupby, pairwise, repeat, tee
from operator import add
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema, Shape
from recordmill.schemas.input_files import FileChecksum, FileStat, InputFile
from recordmill.schemas.input_summary import EMPTY_REPORT, InputReport
from recordmill.schemas.ranges import (
    InputRange,
    Reject,
    RejectCode,
    RowIssue,
    TypeFlags,
)
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.arrow import (
    I64,
    MAX_CELL_BYTES,
    array_parts,
    nested_lists,
    views_of,
)
from recordmill.transforms.exchange.keys import text_hashes
from recordmill.transforms.images import summary
from recordmill.transforms.images.decode import check_image
from recordmill.transforms.images.detection import detection_columns, detection_features
from recordmill.transforms.images.header import ImageHeader, ImageHeaderError
from recordmill.transforms.images.objects import (
    BOX,
    MASK,
    OBJECT_LABEL,
    OUTLINE,
    Placement,
    move_objects,
)
from recordmill.transforms.images.pixel_rules import UNCHANGED_PIXELS, PixelRules
from recordmill.transforms.images.transform import (
    TURNED,
    MaskedImage,
    place_objects,
    transform_image,
)
from recordmill.transforms.inventory import BATCH_FILES, NO_FILES, Inventory
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    REFERENCE,
    Append,
    InputFindings,
    RangeFindings,
    ReferencedRows,
    Rows,
    Source,
    number_ranges,
    spread_evenly,
)
from recordmill.transforms.sources.images.annotation_draft import (
    POSITION,
    PROBLEM,
    RAW,
    STATED_SIZES,
)
from recordmill.transforms.sources.images.annotations import (
    CONVERT_AGAIN,
    NO_ANNOTATIONS,
    Annotations,
    annotate_append,
    annotate_images,
)
from recordmill.transforms.sources.images.find import (
    ImageFiles,
    NamedInputs,
    find_images,
    find_named_inputs,
    find_partners,
)
from recordmill.transforms.sources.images.options import (
    DEFAULTS,
    FileOptions,
    ImagesOptions,
    Undecodable,
)
from recordmill.transforms.sources.images.tables import SPLIT
from recordmill.transforms.sources.listing import NamedFile
from recordmill.transforms.storage import Store
from recordmill.transforms.storage.reading import (
    checksum_of,
    read_file,
    read_files,
    read_range,
)
from recordmill.transforms.storage.table_file import open_table, put_table
from recordmill.transforms.tfrecord import FRAME_BYTES

SLICE_FILES = 4096

_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "version": pa.string(),
        "problem": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class InventoryFile:
    """The inventory of a run in a file that every worker can read."""

    store: Store  # that contains the file
    name: str  # of the file
    root: str  # the prefix of every uri, before the path

    def write(self, files: Inventory, table: pa.Table) -> None:
        """Writes the inventory, with the columns of the table as further columns."""
        columns = [*files.table.select(_SCHEMA.names).columns, *table.columns]
        schema = pa.schema([*_SCHEMA, *table.schema])
        inventory_table = pa.Table.from_arrays(columns, schema=schema)
        put_table(self.store, self.name, inventory_table, SLICE_FILES)

    def read(self, start: int, stop: int) -> tuple[list[InputFile], pa.Table]:
        """Reads files `start` to `stop`, exclusive, with their further columns."""
        first, end = start // SLICE_FILES, -(-stop // SLICE_FILES)
        with open_table(self.store, self.name) as reader:
            batches = [reader.get_batch(number) for number in range(first, end)]
        inventory_table = pa.Table.from_batches(batches)
        table = inventory_table.slice(start - first * SLICE_FILES, stop - start)
        columns = (table[name].to_pylist() for name in _SCHEMA.names)
        files = [
            InputFile(path, self.root + path, size, version, "", problem or "")
            for path, size, version, problem in zip(*columns, strict=True)
        ]
        return files, table.drop_columns(_SCHEMA.names)


def _iterate_runs(column: pa.ChunkedArray) -> Iterator[tuple[Any, int]]:
    """Yields (cell, end) of each run of equal cells; the end is exclusive."""
    pending_cell, end = None, 0
    for chunk in column.chunks:
        runs, start = pc.run_end_encode(chunk), end
        for cell, stop in zip(runs.values.to_pylist(), runs.run_ends, strict=True):
            if end and cell != pending_cell:
                yield pending_cell, end
            pending_cell, end = cell, start + stop.as_py()
    if end:
        yield pending_cell, end


def cut_slices(sizes: I64, max_files: int, max_bytes: int) -> list[int]:
    """Cuts a list of files into slices, and returns the index of each slice's first file.

    The last element is the number of files: [0, 2, 3, 4] for files of 4, 4, 9 and 1
    bytes, with at most 8 bytes in a slice.

    Args:
      sizes: of the files, in bytes.
      max_files: in a slice.
      max_bytes: in a slice; a larger file is a slice alone.
    """
    ends = np.cumsum(sizes)
    cuts = [0]
    while (start := cuts[-1]) < len(sizes):
        limit = max_bytes + (ends[start - 1] if start else 0)
        stop = int(np.searchsorted(ends, limit, side="right"))
        cuts.append(min(max(stop, start + 1), start + max_files))
    return cuts


# One file is one record and its size is known without reading it, so the plan counts file
# sizes and rows are exchanged by reference: ranges are slices of the inventory, sorted
# runs contain paths, and the writer of a shard reads the images itself (`read_windows`).
#
# If pixels are transformed, the size of an image is known only after it is encoded, so
# the plan counts the bytes of records, and rows are not exchanged by reference. Each
# range transforms one image after the other, and a runner reads as many ranges at once as
# it has workers. Decoding, scaling and encoding release Python's lock, so all cores are
# used without extra threads. Ranges are small for that reason.

# A reference contains the annotations of its image as JSON, so that the writer of a shard
# needs no other input:
#
#     ["1.jpg", 1234, "17000", [2, 0.5, [[1.0, 2.0]]]]              label 2 and two features
#     ["1.jpg", 1234, "17000", [], "labels.csv ..."]                why it is a reject
#     ["t.csv", 0, "", [], "'3.jpg': there is ...", "3.jpg,cat", 17]  a row without an image
#
# The path is followed by size and version of the file.

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Reference(NamedTuple):
    """A parsed reference: an image file with its annotations."""

    path: str  # of the file
    size: int  # of the file, as listed, in bytes
    version: str  # of the file, as listed
    cells: Sequence[Any] = ()  # of the label, if there are labels, and the features
    problem: str = ""  # why the annotations make the image a reject
    # the rejected bytes, as Latin-1, if there is no image file to read; else None
    unread_bytes: str | None = None
    position: int = 0  # the position of these bytes in their file

    @property
    def stat(self) -> FileStat:
        """Returns the size and version of the file, as listed."""
        return FileStat(self.size, self.version)

    @property
    def is_read(self) -> bool:
        """Tests whether the image file is read: it exists, and fits in a record."""
        return self.unread_bytes is None and self.size <= MAX_CELL_BYTES


def encode_references(
    files: Sequence[InputFile],
    table: pa.Table,
    columns: Mapping[str, pa.Array],
    to_write: Callable[[pa.Array], list[Any]],
) -> list[bytes]:
    """Returns the reference to each image, as JSON.

    Args:
      files: the images.
      table: the rows of their annotations.
      columns: `Annotations.reference_columns` of the table.
      to_write: converts a column to JSON values, as `Annotations.to_json_cells`.
    """
    # Single labels have few distinct values: cached, they take 0.1 us each, others 3 us.
    are_few = [pa.types.is_integer(column.type) for column in columns.values()] == [
        True
    ]
    written: Callable[[Any], str] = cache(_ENCODE) if are_few else _ENCODE
    rows = zip(*map(to_write, columns.values()), strict=True)
    reject_columns = (table[name].to_pylist() for name in (PROBLEM, POSITION, RAW))
    references = []
    for file, values, problem, at, raw in zip(
        files, rows if columns else repeat(()), *reject_columns, strict=False
    ):
        rejected = ""
        if file.problem:
            unread = (raw or b"").decode("latin-1")
            rejected = f",{_ENCODE(file.problem)},{_ENCODE(unread)},{at}"
        elif problem:
            rejected = f",{_ENCODE(problem)}"
        path, version = _ENCODE(file.path), _ENCODE(file.version)
        text = f"[{path},{file.size},{version},{written(values)}{rejected}]"
        references.append(text.encode())
    return references


def parse_references(references: pa.BinaryArray) -> list[Reference]:
    """Returns the parsed references, given the output of `encode_references`."""
    together = b",".join(references.to_pylist())  # takes half the time of single ones
    return [Reference(*fields) for fields in json.loads(b"[%b]" % together)]


def file_schema(
    names: Mapping[str, str],
    annotations: Annotations,
    content: FeatureSpec,
    more_features: Sequence[FeatureSpec] = (),
) -> Schema:
    """Returns the schema of files that become a record each.

    Args:
      names: the feature name of each column.
      annotations: of the files.
      content: the feature of the file content; its name is replaced by that in `names`.
      more_features: further features.
    """
    features = [*annotations.feature_specs(), *more_features]
    label_type = annotations.label_type
    labels: Shape = (None,) if pa.types.is_list(label_type or pa.null()) else ()
    nested, classes = annotations.has_objects, annotations.classes
    for column, name in names.items():
        feature = FeatureSpec(name, Kind.INT64, column)
        if column == content.column:
            feature = replace(content, name=name)
        elif column == "label":
            if label_type is None:
                continue
            if nested:
                feature = FeatureSpec(OBJECT_LABEL, Kind.INT64)
            feature = replace(
                feature, shape=labels, class_names=classes, is_nested=nested
            )
        elif column == "text":
            if label_type is None or nested:
                continue
            feature = replace(feature, kind=Kind.BYTES, dtype="string", shape=labels)
        elif column in ("format", "filename", "source_id"):
            feature = replace(feature, kind=Kind.BYTES, dtype="string")
        features.append(feature)
    return Schema(tuple(features))


def pixels_to_lists(
    pixels: pa.BinaryArray,
    headers: Sequence[ImageHeader],
    channels: int,
    dtype: str = "uint8",
) -> pa.LargeListArray:
    """Returns pixels as lists of rows of samples, the form of a tensor with three sides.

    Two images of 2 x 1 and 1 x 3 pixels with three channels have rows of 3, 3 and 9
    samples: rows start at samples 0, 3, 6 and end at 15; images start at rows 0 and 2.

    Args:
      pixels: the samples of each image.
      headers: of the images.
      channels: of all images.
      dtype: of the samples.
    """
    heights = np.array([header.height for header in headers], np.int64)
    widths = np.array([header.width for header in headers], np.int64)
    offsets, sample_bytes = array_parts(pixels)
    samples = pa.array(sample_bytes[int(offsets[0]) : int(offsets[-1])].view(dtype))
    return nested_lists(samples, np.column_stack([heights, channels * widths]))


FILES_PER_RANGE = 4096
MAX_RANGE_BYTES = 64 << 20  # a larger image is a range alone
SAMPLED_FILES = 32
READ_BYTES = 16 << 20  # images read at once
LARGE_BYTES = (
    16 << 20
)  # of a larger file, the first bytes are checked before the file is read
HEAD_BYTES = 1 << 16  # the number of these first bytes; a reject keeps only them
# bytes of a PNG per byte of a WebP or JPEG; an upper bound for most files
_MAX_PNG_GROWTH = 16


ReadFile = tuple[FileChecksum, bytes]  # a file with its checksum


class PreparedFile(NamedTuple):
    """The content of a file in the form that is stored in a record."""

    data: bytes
    header: Any = None
    issue_codes: tuple[str, ...] = ()  # properties that are counted over all files
    partners: Sequence[bytes] = ()  # the contents of its partners


class PreparedFiles(NamedTuple):
    """The contents of several files in the form that is stored in records."""

    contents: pa.Array
    headers: Sequence[Any]
    notes: Sequence[tuple[str, ...]]  # as in Taken
    paths: Sequence[str]
    values: Sequence[Sequence[Any]]  # the values of their references


@dataclass(frozen=True)
class FilesSource(Source):
    """A source of files in a folder for each class; each file becomes a record.

    A subclass defines the content of a file.
    """

    options: FileOptions = DEFAULTS  # of the job
    storage: StorageOptions = NO_OPTIONS  # options of the inputs' storage
    # the columns that a declared schema uses; it converts cells of tables. None without a
    # schema
    schema_columns: tuple[str, ...] | None = None
    # the files with their annotations, after `prepare`
    annotations: Annotations = NO_ANNOTATIONS
    # the file that `spill_inventory` wrote
    inventory: InventoryFile | None = None

    # the error for invalid content; its text is the reason of the reject
    content_error: ClassVar[type[ValueError]] = ValueError

    role_options = MappingProxyType(
        {"label": "label_column", "split_column": "table_split_column"}
    )

    lists_rows = True
    handles_unreadable = True  # unreadable files become rejects
    reports_checksums = True

    @property
    def named_files(self) -> tuple[NamedFile, ...]:  # type: ignore[override]
        option_files = self.options.named_files
        return tuple(NamedFile(option, name) for option, _, name in option_files)

    @property
    def keeps_bytes(self) -> bool:
        """Tests whether records store the bytes of files unchanged."""
        raise NotImplementedError

    @property
    def supports_references(self) -> bool:  # type: ignore[override]
        return self.keeps_bytes

    @property
    def sizes_known_upfront(self) -> bool:  # type: ignore[override]
        return self.keeps_bytes

    @abstractmethod
    def _prepare_file(
        self, data: bytes, values: Sequence[Any], partners: Sequence[ReadFile]
    ) -> PreparedFile:
        """Checks and transforms a file.

        Args:
          data: the content of the file.
          values: of its reference; the cells of partners are last.
          partners: the files of its partners.

        Raises:
          content_error: the content is invalid.
        """

    @abstractmethod
    def _build_batch(
        self, taken_files: PreparedFiles, range_findings: RangeFindings
    ) -> pa.RecordBatch:
        """Returns the columns of files, and adds their issues to the findings."""

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        listed = Inventory.from_files(files)
        existing_inventory = NO_FILES if append is None else append.existing_inventory
        whole_list = existing_inventory + listed
        named_inputs = find_named_inputs(self.options, whole_list)
        paired = find_partners(whole_list, self.options)

        def find(files: Inventory, named_inputs: NamedInputs) -> ImageFiles:
            files = files if paired is None else paired.exclude_partners(files)
            return find_images(self.options.kind, files, named_inputs, self.storage)

        new_files = find(listed, named_inputs)
        annotate_files = partial(
            annotate_images,
            options=self.options,
            schema_columns=self.schema_columns,
            storage=self.storage,
        )
        if append is None:
            return replace(
                self,
                annotations=annotate_files(
                    new_files, named_inputs, paired=paired, is_new=True
                ),
            )
        old_files = find(existing_inventory, named_inputs)
        annotations_before = annotate_files(
            old_files,
            find_named_inputs(self.options, existing_inventory),
            paired=find_partners(existing_inventory, self.options),
        )
        all_annotations = annotate_files(
            ImageFiles(*map(add, old_files, new_files)), named_inputs, paired=paired
        )
        new_annotations = annotate_append(
            annotations_before, all_annotations, listed.paths, append.schema
        )
        return replace(self, annotations=new_annotations)

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        if input_findings is not None or self.inventory is not None:
            return EMPTY_REPORT
        return self.annotations.input_report(self.options.kind)

    def checksums_of_prepare(self) -> Sequence[FileChecksum]:
        return self.annotations.checksums

    def input_splits(self) -> tuple[str, ...]:
        return self.annotations.splits

    def spill_inventory(self, store: Store, name: str) -> Self:
        inventory = InventoryFile(store, name, self.annotations.root)
        inventory.write(self.annotations.files, self.annotations.table)
        return replace(
            self, annotations=self.annotations.without_files(), inventory=inventory
        )

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        """Cuts the files into ranges of whole files, each of one split.

        The positions of the cuts do not change any byte of the dataset.
        """
        max_bytes = MAX_RANGE_BYTES if self.keeps_bytes else RANGE_BYTES
        inventory, table = self.annotations.files, self.annotations.table
        parts, start = [], 0
        for split, end in _iterate_runs(table[SPLIT]):
            while start < end:
                stop = min(start + BATCH_FILES, end)
                files = inventory[start:stop]
                partner_sizes = self.annotations.partner_bytes(
                    table.slice(start, stop - start)
                )
                cuts = cut_slices(
                    files.sizes + partner_sizes, FILES_PER_RANGE, max_bytes
                )
                if stop < end:  # the last slice may have more files
                    cuts.pop()
                for first, last in pairwise(cuts):
                    first_file = files[first]._replace(uri=self.annotations.root)
                    parts.append((first_file, start + first, start + last, split))
                start += cuts[-1]
        return number_ranges(parts)

    def columns(self) -> pa.Schema:
        (nothing,) = self.read_windows([pa.array([], pa.binary())], RangeFindings())
        return nothing.batch.schema

    def sample_ranges(self, ranges: Sequence[InputRange]) -> list[InputRange]:
        return spread_evenly(ranges, SAMPLED_FILES, 1)

    def prefers_reference(self, files: Sequence[InputFile]) -> bool:
        return True

    def list_references(
        self, input_range: InputRange, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        """Yields the references to the files in a slice of the inventory."""
        start, stop = input_range.start, input_range.stop
        files: Sequence[InputFile]
        if self.inventory is not None:
            files, table = self.inventory.read(start, stop)
        else:
            files = self.annotations.files[start:stop]
            table = self.annotations.table.slice(start, stop - start)
        columns = self.annotations.reference_columns(table)
        paths = [file.path for file in files]
        references = encode_references(
            files, table, columns, self.annotations.to_json_cells
        )
        yield Rows(
            batch=pa.RecordBatch.from_pydict(
                {
                    REFERENCE: pa.array(references, pa.binary()),
                    **columns,
                    "filename": pa.array(paths, pa.string()),
                }
            ),
            # The path alone, not its position in the listing: a file keeps its
            # order key and its split when others are added or removed.
            origins=text_hashes(paths),
            positions=np.arange(len(files), dtype=np.int64),
            raw_row=lambda row: (
                0,
                read_file(files[row].uri, self.storage, files[row].stat),
            ),
            planned_bytes=np.array([file.size for file in files], np.int64)
            + FRAME_BYTES
            + self.annotations.partner_bytes(table),
        )

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        for rows in self.list_references(input_range, range_findings):
            yield from self.read_listed_rows(rows, range_findings)

    def read_listed_rows(
        self, rows: Rows, range_findings: RangeFindings
    ) -> Iterator[Rows]:
        references = parse_references(rows.batch[REFERENCE])
        contents = self._iterate_contents(references)
        start = 0
        while start < len(references):
            referenced_rows, stop = self._read_files(
                references[start:], contents, range_findings, READ_BYTES
            )
            read = rows.take_rows(
                referenced_rows.row_indices + start, referenced_rows.batch
            )
            paths = referenced_rows.batch["filename"].to_pylist()
            yield replace(read, paths=paths, planned_bytes=None)
            del referenced_rows, read  # so that few large files are in memory at once
            start += stop

    def read_windows(
        self, windows: Iterable[pa.BinaryArray], range_findings: RangeFindings
    ) -> Iterator[ReferencedRows]:
        # A window of tiny files has 80,000 files; each takes a few Python objects.
        parts = (
            window.slice(start, SLICE_FILES)
            for window in windows
            for start in range(0, max(1, len(window)), SLICE_FILES)
        )
        reference_windows, windows_ahead = tee(map(parse_references, parts))
        with closing(
            self._iterate_contents(chain.from_iterable(windows_ahead))
        ) as contents:
            for window in reference_windows:
                yield self._read_files(window, contents, range_findings)[0]

    def _list_files(self, reference: Reference) -> list[tuple[str, FileStat]]:
        """Returns (path, stat) of a file and of its partners, as listed."""
        files = [(reference.path, reference.stat)]
        if self.annotations.partners and not reference.problem:
            columns = reference.cells[-len(self.annotations.partners) :]
            files += [(e["path"], FileStat(e["size"], e["version"])) for e in columns]
        return files

    def _iterate_contents(self, references: Iterable[Reference]) -> Generator[bytes]:
        """Yields the bytes of each file that is read and then of each of its partners.

        If a large file has the ending but not the content of the kind, only its first
        HEAD_BYTES are yielded.
        """
        root, kind = self.annotations.root, self.options.kind
        read = (reference for reference in references if reference.is_read)
        files = (
            (root + path, stat) for e in read for path, stat in self._list_files(e)
        )
        for is_large, group in groupby(files, lambda file: file[1].size > LARGE_BYTES):
            if not is_large:
                yield from read_files(group, self.storage)
                continue
            for uri, stat in group:
                head = read_range(uri, 0, HEAD_BYTES, self.storage, stat)
                is_odd = uri.lower().endswith(kind.endings) and not kind.format_of(head)
                yield head if is_odd else read_file(uri, self.storage, stat)

    def _take_files(
        self,
        reference: Reference,
        contents: Iterator[bytes],
        range_findings: RangeFindings,
    ) -> list[ReadFile]:
        """Returns the file of a reference and its partners; adds their checksums.

        Raises:
          ChangedInputError: the size of a file differs from its listed size.
        """
        files = list[ReadFile]()
        for path, stat in self._list_files(reference):
            content = next(contents)
            is_head = stat.size > LARGE_BYTES and len(content) == HEAD_BYTES
            if len(content) != stat.size and not is_head:
                raise ChangedInputError(
                    f"{self.annotations.root}{path}: has {len(content)} bytes, but had "
                    f"{stat.size} when the run began; did it change in the meantime?"
                )
            files.append((checksum_of(path, content), content))
            range_findings.checksums.append(files[-1][0])
        return files

    def _read_files(
        self,
        references: Sequence[Reference],
        contents: Iterator[bytes],
        range_findings: RangeFindings,
        max_bytes: int | None = None,
    ) -> tuple[ReferencedRows, int]:
        """Returns the rows of files, and the number of references that were read.

        Args:
          references: of the files.
          contents: the bytes of the files and their partners.
          range_findings: for rejects, issues and checksums.
          max_bytes: reading ends with the file that reaches this number of bytes in
            memory. If None, all files are read, and rows refer to their bytes without a
            copy.
        """
        kept_indices, annotation_rows, taken_files, crcs = (
            list[int](),
            list[Sequence[Any]](),
            list[PreparedFile](),
            [],
        )
        held_bytes, stop = 0, 0
        # A loop per file: opening and reading a file takes 100 times as long as the loop.
        for index, reference in enumerate(references):
            if max_bytes is not None and held_bytes >= max_bytes:
                break
            stop, size, values = index + 1, reference.size, reference.cells
            if not reference.is_read:
                reason = (
                    f"has {size:,} bytes, more than a record can contain "
                    f"({MAX_CELL_BYTES:,})"
                )
                if reference.unread_bytes is not None:
                    reason = reference.problem
                raw = (reference.unread_bytes or "").encode("latin-1")
                # If there are bytes, they are a row of a table that names no image.
                code: RejectCode = "label" if raw else "row"
                range_findings.rejects.append(
                    Reject(reference.path, reference.position, reason, raw, code)
                )
                continue
            (read, content), *partners = self._take_files(
                reference, contents, range_findings
            )
            crc = read.crc32c
            try:
                if reference.problem:
                    raise self.content_error(reference.problem)
                taken_file = self._prepare_file(content, values, partners)
            except self.content_error as error:
                reason = str(error)
                if size > LARGE_BYTES:
                    reason += (
                        f"; the first {HEAD_BYTES:,} of {size:,} bytes are kept, and of "
                        f"{len(content):,} the crc32c '{crc:08x}'"
                    )
                    content = content[:HEAD_BYTES]
                held_bytes += len(content)
                code = "label" if reference.problem else "row"
                range_findings.rejects.append(
                    Reject(reference.path, 0, reason, content, code)
                )
                continue
            if partner_contents := taken_file.partners:
                values = [*values[: -len(partner_contents)], *partner_contents]
            kept_indices.append(index)
            annotation_rows.append(values)
            taken_files.append(taken_file)
            crcs.append(crc)
            held_bytes += len(taken_file.data) + sum(map(len, partner_contents))
        paths = [references[index].path for index in kept_indices]
        by_view = max_bytes is None and self.supports_references
        file_bytes, headers, notes, _ = (
            zip(*taken_files, strict=True) if taken_files else ([],) * 4
        )
        views = views_of(file_bytes) if by_view else pa.array(file_bytes, pa.binary())
        rows = ReferencedRows(
            self._build_batch(
                PreparedFiles(views, headers, notes, paths, annotation_rows),
                range_findings,
            ),
            np.array(kept_indices, np.int64),
            raw_row=lambda row: (paths[row], 0, file_bytes[row]),
            # Only for unchanged bytes; transformed files are not read by reference.
            view_crcs=np.array(crcs, np.uint32) if by_view else None,
            view_values=file_bytes if by_view else None,
        )
        return rows, stop


class _PreparedImage(NamedTuple):
    """An image in the form that is stored in a record, without its bytes."""

    header: ImageHeader
    placement: Placement | None = None  # of its objects, if it has any
    outlines: Sequence[str] = ()  # of its objects
    masks: Sequence[bytes] = ()  # of its objects, as PNG files


@dataclass(frozen=True)
class ImagesSource(FilesSource):
    """A source of images in a folder for each class; each image becomes a record."""

    options: ImagesOptions = DEFAULTS
    # whether TFDS can decode all images; determined by file names until they are read
    decodable: bool = True
    # whether an existing dataset determines `decodable`
    is_decodable_fixed: bool = False
    rules: PixelRules = UNCHANGED_PIXELS  # the transformations of pixels

    content_error = ImageHeaderError

    @property
    def keeps_bytes(self) -> bool:
        return self.rules == UNCHANGED_PIXELS

    @property
    def undecodable(self) -> Undecodable:
        """Returns the treatment of images that TFDS cannot decode."""
        if self.options.undecodable == "reencode" or not self.is_decodable_fixed:
            return self.options.undecodable
        return "reject" if self.decodable else "keep"

    def _undecodable_issues(self, annotations: Annotations) -> list[RowIssue]:
        # Re-encoded images are decodable, whatever the format of their files.
        keeps = not self.rules.transforms_all and self.options.undecodable == "keep"
        return summary.named_undecodable(annotations.files) if keeps else []

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        source = super().prepare(files, append)
        schema = None if append is None else append.schema
        undecodable_issues = self._undecodable_issues(source.annotations)
        decodable = (
            not undecodable_issues
            if schema is None
            else summary.has_decodable_images(schema)
        )
        if undecodable_issues and decodable:
            raise InputError(
                f"{source.annotations.root}{undecodable_issues[0].example}: readers of the dataset can decode "
                f"all its images ({' '.join(summary.DECODABLE_ENDINGS)}), but not this "
                f"one; save it in one of these formats, {CONVERT_AGAIN}"
            )
        options, annotations = source.options, source.annotations
        if options.feature_names == "tfod" and not annotations.has_objects:
            raise InputError(
                f"{annotations.root}: no objects were found, which `feature_names=tfod` "
                "requires; name their files in `annotations`, or use "
                "`feature_names=imagenet`"
            )
        if options.masks == "png" and OUTLINE not in annotations.features:
            raise InputError(
                f"{annotations.root}: no outlines of objects were found, which `masks=png` "
                "draws; name their files in `annotations`, or use `masks=none`"
            )
        return replace(
            source, decodable=decodable, is_decodable_fixed=schema is not None
        )

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        if input_findings is not None:
            return self._input_report_at_end(input_findings)
        if self.inventory is not None:
            return EMPTY_REPORT
        input_report = super().input_report()
        facts = (*input_report.fields, self._decoding_fact(decodable=self.decodable))
        if self.rules != UNCHANGED_PIXELS:
            reencodes = self.undecodable == "reencode" and not self.rules.transforms_all
            facts += summary.pixel_rules_report(self.rules, reencodes=reencodes)
        undecodable_issues = self._undecodable_issues(self.annotations)
        warnings = (
            *input_report.warnings,
            *summary.warn_undecodable(undecodable_issues),
        )
        return InputReport(facts, warnings, input_report.skipped_files)

    def _input_report_at_end(self, input_findings: InputFindings) -> InputReport:
        changed, undecodable, cropped = (
            [issue for issue in input_findings.issues if issue.code == code]
            for code in (summary.CHANGED, summary.UNDECODABLE, summary.CROPPED)
        )
        facts = [
            self._decoding_fact(
                decodable=summary.has_decodable_images(input_findings.schema)
            )
        ]
        facts += summary.changes_report(changed)
        for issue in cropped:
            fact = f"{issue.count:,}, the first of {issue.example}"
            facts.append(("objects cropped away", fact))
        warnings = summary.partial_image_warnings(changed)
        # Undecodable formats that file names imply were reported before the run.
        if self.decodable and not self.rules.transforms_all:
            warnings = (*summary.warn_undecodable(undecodable), *warnings)
        return InputReport(tuple(facts), warnings)

    def _decoding_fact(self, *, decodable: bool) -> tuple[str, str]:
        content = summary.DECODED if decodable else summary.ENCODED
        if self.rules.transforms_all:
            content_by_form = {"raw": "arrays of pixels", "webp": summary.ENCODED}
            content = content_by_form.get(self.rules.encoding, summary.DECODED)
        return summary.DECODING_ENTRY, content

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        if self.rules == UNCHANGED_PIXELS:
            return super().estimated_bytes(files)
        height, width, channels = self.rules.shape
        if height and width:
            # A JPEG or PNG has at most a byte for each sample.
            return height * width * (channels or 4) * len(files)
        return _MAX_PNG_GROWTH * super().estimated_bytes(files)

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        # Images that were read decide: the flag is 1 if one of them is not decodable.
        is_known = self.is_decodable_fixed or not observed
        decodable = self.decodable if is_known else not observed[0]
        rules, content = self.rules, Content.IMAGE
        if rules.transforms_all:  # readers get the encoded bytes of WebP
            decodable = rules.encoding != "webp"
        if rules.encoding == "raw":
            # The length of an array determines one unknown side; a tensor stores all.
            content = Content.TENSOR if None in rules.shape else Content.ARRAY
        dtype, shape = ("uint8", rules.shape) if decodable else ("bytes", ())
        of_bytes = FeatureSpec("image", Kind.BYTES, "image", dtype=dtype)
        image = replace(of_bytes, shape=shape, content=content)
        partner_features = [
            partner.spec(self.rules) for partner in self.annotations.partners
        ]
        schema = file_schema(
            self.options.column_names, self.annotations, image, partner_features
        )
        if not self.annotations.has_objects:
            return schema
        features = schema.features
        if self.options.masks == "png":
            mask = FeatureSpec(MASK, Kind.BYTES, shape=(None,), is_nested=True)
            features = (*features, mask)
        if self.options.feature_names == "tfod":
            parts = (
                [f] if not f.is_nested else detection_features(f) for f in features
            )
            features = tuple(chain.from_iterable(parts))
        return Schema(features)

    def _build_batch(
        self, taken_files: PreparedFiles, range_findings: RangeFindings
    ) -> pa.RecordBatch:
        issues = summary.image_issues(taken_files.notes, taken_files.paths)
        # Transformed images are JPEG or PNG.
        is_undecodable = not self.rules.transforms_all and any(
            issue.code == summary.UNDECODABLE for issue in issues
        )
        observed = (int(is_undecodable),) if taken_files.notes else ()
        range_findings.add_batch_findings(observed=observed, issues=issues)
        headers = [image.header for image in taken_files.headers]
        contents = taken_files.contents
        if self.rules.encoding == "raw" and None in self.rules.shape:
            contents = pixels_to_lists(contents, headers, self.rules.channels or 3)
        numbers = {
            name: pa.array([getattr(header, name) for header in headers], pa.int64())
            for name in ("height", "width", "depth")
        }
        columns = {
            "image": contents,
            "format": pa.array([header.format for header in headers], pa.string()),
            **numbers,
            "filename": pa.array(taken_files.paths, pa.string()),
            **self.annotations.build_columns(taken_files.values),
            **self._partner_columns(headers, taken_files.values),
        }
        if self.annotations.has_objects:
            columns = self._with_objects(columns, taken_files.headers, range_findings)
        return pa.RecordBatch.from_pydict(columns)

    def _partner_columns(
        self, headers: Sequence[ImageHeader], values: Sequence[Sequence[Any]]
    ) -> dict[str, pa.Array]:
        columns = {}
        for at, partner in enumerate(
            self.annotations.partners, -len(self.annotations.partners)
        ):
            column = pa.array([row[at] for row in values], pa.binary())
            if partner.kind == "array":
                column = partner.to_lists(column) if None in partner.shape else column
            elif partner.samples is None:
                column = column.cast(pa.string())
            elif self.rules.encoding == "raw" and None in self.rules.shape:
                column = pixels_to_lists(column, headers, *partner.samples)
            columns[partner.name] = column
        return columns

    def _with_objects(
        self,
        columns: dict[str, pa.Array],
        images: Sequence[_PreparedImage],
        range_findings: RangeFindings,
    ) -> dict[str, pa.Array]:
        """Returns columns with the objects moved to their positions in stored images."""
        for name in STATED_SIZES:
            del columns[name]
        offsets = columns[BOX].offsets
        if OUTLINE in columns:
            outlines = chain.from_iterable(image.outlines for image in images)
            texts = pa.array(outlines, pa.string())
            columns[OUTLINE] = pa.ListArray.from_arrays(offsets, texts)
        if self.options.masks == "png":
            masks = chain.from_iterable(image.masks for image in images)
            files = pa.array(masks, pa.binary())
            columns[MASK] = pa.ListArray.from_arrays(offsets, files)
        placements = [
            image.placement for image in images if image.placement is not None
        ]
        columns, dropped = move_objects(columns, placements)
        paths = columns["filename"]
        range_findings.add_batch_findings(
            issues=[
                RowIssue(summary.CROPPED, BOX, int(dropped[at]), paths[int(at)].as_py())
                for at in np.flatnonzero(dropped)
            ]
        )
        if self.options.feature_names == "tfod":
            sizes = np.array([placement.size for placement in placements], np.int64)
            columns["source_id"] = columns["filename"]
            classes = self.annotations.classes
            columns = detection_columns(columns, classes, sizes.reshape(-1, 2))
        return columns

    def _prepare_file(
        self, data: bytes, values: Sequence[Any], partners: Sequence[ReadFile]
    ) -> PreparedFile:
        # Notes are the format of the file and the changes to it.
        rules, undecodable = self.rules, self.undecodable
        level, max_pixels = self.options.check_images, self.options.max_pixels
        # Transformed images are decoded later, so the check need not decode them.
        once = "structure" if rules.transforms_all and level == "decode" else level
        header = check_image(data, level=once, max_pixels=max_pixels)
        transformed_image = transform_image(data, header, rules, max_pixels)
        notes: tuple[str, ...] = (header.kind,)
        if transformed_image is None and header.kind not in summary.DECODABLE_FORMATS:
            if undecodable == "reject":
                raise ImageHeaderError(summary.undecodable_reason(header.kind))
            if undecodable == "reencode":
                as_png = replace(rules, transforms_all=True, encoding="png")
                transformed_image = transform_image(data, header, as_png, max_pixels)
                notes = (header.kind, summary.MADE_PNG)
        image = _PreparedImage(
            header if transformed_image is None else transformed_image.header
        )
        if values and self.annotations.has_objects:
            annotation_cells = dict(
                zip(self.annotations.value_types, values, strict=False)
            )
            height, width = (annotation_cells[name] for name in STATED_SIZES)
            stated = (height, width) if height and width else None
            placement = place_objects(
                data, header, stated, transformed_image, max_pixels
            )
            outlines = annotation_cells.get(OUTLINE, ())
            placed = self._outlines(outlines, placement, in_parts=stated is None)
            image = _PreparedImage(image.header, placement, *placed)
        notes = (
            notes if transformed_image is None else (*notes, *transformed_image.changes)
        )
        frame = MaskedImage(data, TURNED in notes)
        partner_contents = [
            partner.encode_file(read.path, content, frame, rules, level, max_pixels)
            for partner, (read, content) in zip(
                self.annotations.partners, partners, strict=False
            )
        ]
        return PreparedFile(
            data if transformed_image is None else transformed_image.data,
            image,
            notes,
            partner_contents,
        )

    def _outlines(
        self, outlines: Sequence[str], placement: Placement, *, in_parts: bool
    ) -> tuple[Sequence[str], Sequence[bytes]]:
        """Returns outlines and masks of an image's objects, on the stored image.

        Args:
          outlines: of the objects, on the image file.
          placement: of the objects on the stored image.
          in_parts: whether outlines are fractions of the image size.
        """
        has_masks = self.options.masks == "png"
        if not outlines or not (has_masks or placement.has_moved or in_parts):
            return outlines, ()
        # Imported here, as it needs Pillow and pycocotools.
        from recordmill.transforms.images.outlines import place_outline

        placed = [
            place_outline(outline, placement, in_parts=in_parts, draws=has_masks)
            for outline in outlines
        ]
        texts, masks = zip(*placed, strict=True)
        return texts, masks
