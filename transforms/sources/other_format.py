"""Recognizes input files that have another format than the one that the job names."""

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

HEAD_BYTES = 1 << 12  # bytes at the start of a file that are inspected
_MAX_INSPECTED_FILES = 20  # maximum number of files that are inspected
BINARY = "binary data"
_ZIP, _TAR = "a ZIP file, such as an Excel file", "a tar archive"
_SQLITE, _JSON = "an SQLite database", "JSON that is not JSON Lines"
# (pattern of the first bytes, description, the format that reads it or "")
_SIGNATURES = (
    # The same signatures as in transforms/audio/header.py, which only audio imports.
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
    (rb"SQLite format 3\0", _SQLITE, ""),
    (rb"\s*(\[\s*\{|\{\s*\n)", _JSON, ""),
    (rb"(?i)\s*<(!doctype html|html|\?xml)", "HTML or XML", ""),
)
# How to export a file that no format reads.
_EXPORTS = {
    BINARY: "export it to CSV or Parquet first, or set `encoding` if it is text",
    _ZIP: "unpack it, or save each sheet of an Excel file as CSV",
    _SQLITE: "export it to CSV first, e.g. sqlite3 -header -csv FILE "
    "'select * from TABLE' > TABLE.csv",
    _JSON: "convert it to JSON Lines first, e.g. jq -c '.[]' FILE > FILE.jsonl",
}
_TABLE_FORMATS = frozenset({"csv", "jsonl", "parquet", "arrow"})
_BINARY_FORMATS = frozenset(
    {"images", "audio", "cifar", "idx", "numpy", "tfrecord", "webdataset"}
)
_CONTROLS = bytes({*range(1, 32)} - {*b"\t\n\v\f\r\x1a\x1b"})


@contextmanager
def report_other_format(
    source: str,
    files: Sequence[InputFile],
    storage: StorageOptions,
    *,
    is_append: bool = False,
) -> Iterator[None]:
    """Raises an error that names the actual format of a file that cannot be read.

    Files are inspected only after an InputError. For tables, this is the file that the
    error names, or the largest file. For other formats, several files are inspected,
    because tables and lists of names may accompany the images or arrays, and an append
    may consist only of these.
    """
    try:
        yield
    except InputError as error:
        handled_formats = (
            _TABLE_FORMATS if is_append else _TABLE_FORMATS | _BINARY_FORMATS
        )
        if source not in handled_formats or error.kind != DATA or not files:
            raise
        named_files = [file for file in files if file.uri in str(error)]
        looked_at = named_files[:1] or [max(files, key=lambda file: file.size)]
        accepted_contents = {""}
        if source in _BINARY_FORMATS:
            looked_at = [*files[:: len(files) // _MAX_INSPECTED_FILES + 1]]
            # A damaged file looks like binary data; archives may hold files of `source`.
            accepted_contents |= {BINARY, _ZIP, _TAR}
        recognized_contents = [
            recognize_content(_read_head(file, storage)) for file in looked_at
        ]
        if any(
            content in accepted_contents or other_format == source
            for content, other_format in recognized_contents
        ):
            raise
        content, other_format = most_frequent = max(
            recognized_contents, key=recognized_contents.count
        )
        remedy = f"use `recordmill convert {other_format}`"
        if not other_format:
            remedy = _EXPORTS.get(content, "export it to CSV or Parquet first")
        uri = looked_at[recognized_contents.index(most_frequent)].uri
        raise InputError(
            f"{uri}: is {content}, not {source}: {remedy}. If it is not an input, leave it "
            "out with `exclude`"
        ) from error


def _read_head(file: InputFile, storage: StorageOptions) -> bytes:
    """Returns the first bytes of a file, decompressed; b"" if it cannot be read."""

    def read(begin: int, end: int) -> bytes:
        return read_range(file.uri, begin, end, storage, file.stat)

    with suppress(InflateError, InputError):
        head = read(0, HEAD_BYTES)
        if compression := compression_of(head):
            return InputStream(read, file.size, compression=compression).read(
                HEAD_BYTES
            )
        return head
    return b""


def recognize_content(head: bytes) -> tuple[str, str]:
    r"""Returns a description of a file by its first bytes, and the format that reads it.

    Both are "" if the content is unknown; the format is "" if no format reads it.

    >>> recognize_content(b"a,b\n1,2\n"), recognize_content(b"prose")
    (('text with delimiters', 'csv'), ('', ''))
    """
    from recordmill.transforms import tfrecord
    from recordmill.transforms.images.header import image_format, is_certain_image

    if compression_of(head):
        return "", ""  # decompression failed, so the file is damaged
    if is_certain_image(head):
        return f"an image ({image_format(head)})", "images"
    for start, content, source in _SIGNATURES:
        if re.match(start, head):
            return content, source
    if tfrecord.is_head(head[: tfrecord.HEAD_BYTES]):
        return "a TFRecord file", "tfrecord"
    # Some tables separate their cells by one or two kinds of control characters.
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
