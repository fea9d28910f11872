"""Reads folders of text files: each file is a record, found and labelled as images are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from recordmill.schemas.feature_spec import FeatureSpec, Kind, Schema
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import TypeFlags
from recordmill.transforms.sources.base import RowSink
from recordmill.transforms.sources.images.options import (
    FileKind,
    FileOptions,
    describe_inputs,
)
from recordmill.transforms.sources.images.source import FilesSource, file_schema

if TYPE_CHECKING:
    from recordmill.transforms.sources.registry import Request, TextOptions

_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_BLANKS = b"\t\n\f\r"


def _is_text(head: bytes) -> bool:
    r"""Tests whether the first bytes of a file are UTF-8, without control characters.

    >>> _is_text("grün".encode()[:3]), _is_text(b"a\0b")
    (True, False)
    """
    if any(byte < 32 and byte not in _BLANKS for byte in head):
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


class TextFileOptions(FileOptions):
    """Options of text files that are a record each."""

    kind: ClassVar[FileKind] = FileKind(
        "text file",
        (".txt", ".text"),
        lambda _: "text",  # what it is, its last byte may tell
        _is_text,
        lambda head: "UTF-16" if head.startswith(_WIDE) else "",
        "UTF-8",
        "unsupported-text",
    )

    @property
    def column_names(self) -> Mapping[str, str]:
        return {name: name for name in ("text", "label", "filename")}


def _options_of(options: TextOptions) -> TextFileOptions:
    given = {"split_from": options.split_from, "label_from": options.label_from}
    return TextFileOptions.model_validate(given)


def make_source(options: TextOptions, request: Request) -> TextFilesSource:
    """Makes the source of a job's files."""
    return TextFilesSource(_options_of(options), request.storage)


def describe_files(options: TextOptions, files: Sequence[InputFile]) -> str:
    """Returns how the folders are read."""
    return describe_inputs(_options_of(options), files)


@dataclass(frozen=True)
class TextFilesSource(FilesSource):
    """Text files in UTF-8, in a folder for each class, each read as one record."""

    role_options = MappingProxyType({})
    keeps_bytes = False  # a byte order mark is left out

    def schema(self, observed: TypeFlags = (), nulls: tuple[int, ...] = ()) -> Schema:
        text = FeatureSpec("text", Kind.BYTES, dtype="string")
        return file_schema(self.options.column_names, self.found, text)

    def _take(
        self, data: bytes, values: Sequence[Any]
    ) -> tuple[bytes, None, tuple[str, ...]]:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"is not UTF-8: byte {data[error.start]:#04x} at byte {error.start}; save "
                "it as UTF-8"
            ) from None
        return data.removeprefix(_BOM), None, ()

    def _batch(
        self,
        contents: pa.Array,
        headers: Sequence[Any],
        paths: Sequence[str],
        values: Sequence[Sequence[Any]],
        sink: RowSink,
    ) -> pa.RecordBatch:
        # Decoded above, so they are text as they are.
        found = {"text": contents.cast(pa.string())}
        found["filename"] = pa.array(paths, pa.string())
        return pa.RecordBatch.from_pydict({**self.found.columns(values), **found})
