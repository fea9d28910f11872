"""Recognizes content of another format than the one that a job names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from recordmill.schemas.errors import DATA, InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage.input_stream import (
    InflateError,
    InputStream,
    compression_of,
)
from recordmill.transforms.storage.reading import read_range

HEAD_BYTES = 1 << 12  # of a file that are looked at
_LOOKED_AT = 20  # files at most
BINARY = "binary data"
_ZIP, _TAR = "a ZIP file, as Excel's are", "a tar archive"
# By how a file begins: what it is, and the format that reads it; "" for none.
_STARTS = (
    # As transforms/audio/header.py knows them, which other inputs do not import.
    (rb"(?s)(RIFF|RF64)....WAVE|fLaC|OggS\0|ID3[\2-\4]", "an audio file", "audio"),
    (rb"PAR1", "a Parquet file", "parquet"),
    (rb"ARROW1", "an Arrow file", "arrow"),
    (rb"\xff{4}[^\xff]{4}", "an Arrow stream", "arrow"),
    (rb"\x93NUMPY", "a NumPy array", "numpy"),
    (rb"(?s)PK\x03\x04.{26}[^/]{1,99}\.npy", "a file of NumPy arrays", "numpy"),
    (rb"\0\0[\x08\x09\x0b-\x0e][\x01-\x07]", "an IDX file", "idx"),
    (rb"(?s).{257}ustar", _TAR, "webdataset"),
    (rb"PK\x03\x04", _ZIP, ""),
    (rb"%PDF", "a PDF file", ""),
    (rb"SQLite format 3\0", "an SQLite database", ""),
    (rb"\s*(\[\s*\{|\{\s*\n)", "JSON that is not JSON Lines", ""),
    (rb"(?i)\s*<(!doctype html|html|\?xml)", "HTML or XML", ""),
)
_TABLES = frozenset({"csv", "jsonl", "parquet", "arrow"})
_OTHERS = frozenset(
    {"images", "audio", "cifar", "idx", "numpy", "tfrecord", "webdataset"}
)
_CONTROLS = bytes({*range(1, 32)} - {*b"\t\n\v\f\r\x1a\x1b"})


@contextmanager
def naming_other_format(
    source: str,
    files: Sequence[InputFile],
    storage: StorageOptions,
    *,
    is_append: bool = False,
) -> Iterator[None]:
    """Names the format of a file's content where its own cannot read it.

    Nothing is read unless an error comes: of tables the file that it names, or the
    largest; of other formats some files, as tables and lists of names may lie beside the data,
    and may be all that an append adds.
    """
    try:
        yield
    except InputError as error:
        named = _TABLES if is_append else _TABLES | _OTHERS
        if source not in named or error.kind != DATA or not files:
            raise
        told = [file for file in files if file.uri in str(error)]
        looked_at = told[:1] or [max(files, key=lambda file: file.size)]
        own = {""}
        if source in _OTHERS:
            looked_at = [*files[:: len(files) // _LOOKED_AT + 1]]
            own |= {BINARY, _ZIP, _TAR}  # it may be damaged, or hold what is looked for
        found = [recognize(_head_of(file, storage)) for file in looked_at]
        if any(what in own or other == source for what, other in found):
            raise
        what, other = most = max(found, key=found.count)
        way = f"use `recordmill convert {other}`"
        if not other:
            way = "save it in a format that is read"
            way += ", or say the `encoding` of a text" if what == BINARY else ""
        uri = looked_at[found.index(most)].uri
        raise InputError(
            f"{uri}: is {what}, expected content of the format {source}: {way}. If it "
            "only lies beside the inputs, leave it out with `exclude`"
        ) from error


def _head_of(file: InputFile, storage: StorageOptions) -> bytes:
    """Returns the first bytes of a file, unpacked; b"" if it cannot be read."""

    def read(begin: int, end: int) -> bytes:
        return read_range(file.uri, begin, end, storage, file.seen)

    with suppress(InflateError, InputError):
        head = read(0, HEAD_BYTES)
        if compression := compression_of(head):
            return InputStream(read, file.size, compression=compression).read(
                HEAD_BYTES
            )
        return head
    return b""


def recognize(head: bytes) -> tuple[str, str]:
    r"""Returns what a file is by its first bytes, and the format that reads it, or "".

    >>> recognize(b"a,b\n1,2\n"), recognize(b"prose")
    (('text with delimiters', 'csv'), ('', ''))
    """
    from recordmill.transforms import tfrecord
    from recordmill.transforms.images.header import image_format, is_certain_image

    if compression_of(head):
        return "", ""  # it is damaged
    if is_certain_image(head):
        return f"an image ({image_format(head)})", "images"
    for start, what, source in _STARTS:
        if re.match(start, head):
            return what, source
    if tfrecord.is_head(head[: tfrecord.HEAD_BYTES]):
        return "a file of TFRecords", "tfrecord"
    # One or two of them are between the cells of some tables.
    is_mixed = len({*head} & {*_CONTROLS}) > 2
    if is_mixed and 20 * len(head.translate(None, _CONTROLS)) < 19 * len(head):
        return BINARY, ""
    first, *lines = head.split(b"\n")[:10]
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(first), dict):
            return "JSON Lines", "jsonl"
    for delimiter in b",", b"\t", b";", b"|":
        counts = {line.count(delimiter) for line in (first, *lines[:-1])}
        if lines and len(counts) == 1 and counts != {0}:
            return "text with delimiters", "csv"
    return "", ""
