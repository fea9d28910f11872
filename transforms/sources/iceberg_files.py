"""Reads the metadata files of an Iceberg table for pyiceberg, only from its folder.

The metadata name other files by URL: manifest lists, manifests and data files. Properties
in the metadata name stores and Python classes that read them. recordmill ignores these
properties: each file that the metadata name must be in the inventory, below the table's
folder, or reading it raises an error.

pyiceberg decodes Avro in C and does not check that a length is inside the file, so a
damaged manifest ends the process (issue 3952 of iceberg-python, in 0.12.0 and before).
Each file is therefore first decoded by pyiceberg's Python decoder, which has this check.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.cast.text_values import shorten
from recordmill.transforms.storage.reading import read_range

ModuleLoader = Callable[
    [str], Any
]  # imports a module, or raises an error that names its package


@dataclass(frozen=True)
class TableFiles:
    """The files of a table, which replace pyiceberg's FileIO.

    Attributes:
      uri: the table's folder, with a slash at its end.
      files: the files below the folder, by their paths relative to it.
      load: imports a module of pyiceberg.
      location: the folder in the metadata; differs from `uri` if the table was copied.
      manifest_lists: the locations of the manifest lists.
    """

    uri: str
    files: Mapping[str, InputFile]
    storage: StorageOptions
    load: ModuleLoader
    location: str = ""
    manifest_lists: frozenset[str] = frozenset()

    def new_input(self, location: str) -> MetadataFile:
        """Returns the file at a location; implements FileIO.new_input."""
        return MetadataFile(location, self)

    def relative_path(self, location: str) -> str:
        """Returns a location relative to the table's folder, or unchanged if outside."""
        for folder in filter(None, (self.location, self.uri)):
            top = _normalize_location(folder).rstrip("/") + "/"
            if _normalize_location(location).startswith(top):
                return _normalize_location(location).removeprefix(top)
        return location

    def read(self, location: str) -> bytes:
        """Returns the bytes of the file at a location."""
        file = self.files.get(self.relative_path(location))
        if file is None or file.problem:
            raise InputError(
                f"{self.uri}: the metadata of this Iceberg table name {shorten(location)}, "
                f"which is {file.problem if file else 'not a file in its folder'}; "
                "expected all of its metadata there. Write the table again in one folder, "
                "or copy it whole"
            )
        return read_range(file.uri, 0, file.size, self.storage, file.stat)


@dataclass(frozen=True)
class MetadataFile:
    """A metadata file, which replaces pyiceberg's InputFile."""

    location: str
    folder: TableFiles

    def open(self, seekable: bool = True) -> io.BytesIO:
        """Returns the bytes of the file as a stream; checks Avro files first."""
        file_bytes = self.folder.read(self.location)
        if not self.location.endswith(".metadata.json"):
            schemas = self.folder.load("pyiceberg.manifest")
            is_list = self.location in self.folder.manifest_lists
            by_version = (
                schemas.MANIFEST_LIST_FILE_SCHEMAS
                if is_list
                else schemas.MANIFEST_ENTRY_SCHEMAS
            )
            read_schema = by_version[schemas.DEFAULT_READ_VERSION]
            _require_decodable(file_bytes, read_schema, self.folder.load)
        return io.BytesIO(file_bytes)


def open_table(
    metadata: InputFile,
    uri: str,
    files: Mapping[str, InputFile],
    storage: StorageOptions,
    load: ModuleLoader,
) -> tuple[Any, TableFiles]:
    """Returns a pyiceberg table that reads only these files, and its TableFiles."""
    table = load("pyiceberg.table").StaticTable
    folder = TableFiles(uri, files, storage, load)
    read = load("pyiceberg.serializers").FromInputFile.table_metadata
    parsed = read(folder.new_input(metadata.uri))
    folder = TableFiles(
        uri,
        files,
        storage,
        load,
        location=parsed.location,
        manifest_lists=frozenset(
            snapshot.manifest_list for snapshot in parsed.snapshots
        ),
    )
    catalog = load("pyiceberg.catalog.noop").NoopCatalog("none")
    return table(("table",), parsed, metadata.uri, folder, catalog), folder


class _BoundedStream(io.BytesIO):
    """A stream that raises EOFError if a decoder seeks behind the end."""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = super().seek(offset, whence)
        if position > len(self.getbuffer()):
            raise EOFError(f"a length leads to byte {position:,}, after the end")
        return position


def _require_decodable(avro_bytes: bytes, read_schema: Any, load: ModuleLoader) -> None:
    """Checks every length in an Avro file by decoding it; raises the decoder's errors."""
    avro = load("pyiceberg.avro.file")
    resolver = load("pyiceberg.avro.resolver")
    decoder_of = load("pyiceberg.avro.decoder").StreamingBinaryDecoder
    file = decoder_of(_BoundedStream(avro_bytes))
    head = resolver.construct_reader(avro.META_SCHEMA, {-1: avro.AvroFileHeader})
    header = head.read(file)
    reader = resolver.resolve_reader(header.get_schema(), read_schema)
    codec = header.compression_codec()
    while file.tell() < len(avro_bytes):
        num_records, packed = file.read_int(), file.read_bytes()
        block = decoder_of(
            _BoundedStream(codec.decompress(packed) if codec else packed)
        )
        for _ in range(num_records):
            reader.read(block)
        if (sync_marker := file.read(avro.SYNC_SIZE)) != header.sync:
            raise ValueError(
                f"a block ends with {sync_marker!r}, expected {header.sync!r}"
            )


def _normalize_location(location: str) -> str:
    """Returns a normalized location: file:///a and file:/a -> /a, s3a:// -> s3://."""
    location = re.sub(r"^file:(?://)?(?=/)", "", location)
    return re.sub(r"^s3[an]://", "s3://", location)
