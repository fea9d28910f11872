"""Recognizes content of another format than the one that a job names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from recordmill.schemas.errors import DATA, InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage.input_stream import compression_of
from recordmill.transforms.storage.reading import read_range

HEAD_BYTES = 1 << 12  # of a file that are looked at
BINARY = "binary data"
# By how a file begins: what it is, and the format that reads it; "" for none.
_STARTS = (
    (b"PAR1", "a Parquet file", "parquet"),
    (b"ARROW1", "an Arrow file", "arrow"),
    (b"\x93NUMPY", "a NumPy array", "numpy"),
    (b"PK\3\4", "a ZIP file, as Excel's are", ""),
    (b"%PDF", "a PDF file", ""),
)
_NAMED = frozenset({"csv", "jsonl", "parquet", "arrow"})
_CONTROLS = bytes({*range(1, 32)} - {*b"\t\n\v\f\r\x1a\x1b"})


@contextmanager
def naming_other_format(
    source: str, files: Sequence[InputFile], storage: StorageOptions
) -> Iterator[None]:
    """Names the format of a file's content where its own cannot read it.

    Nothing is read unless an error comes: of the file that it names, or of the first one.
    """
    try:
        yield
    except InputError as error:
        if source not in _NAMED or error.kind != DATA or not files:
            raise
        file, *_ = [file for file in files if file.uri in str(error)] or files
        head = read_range(file.uri, 0, HEAD_BYTES, storage, file.seen)
        what, other = recognize(head)
        if not what or other == source:
            raise
        way = f"use `recordmill convert {other}`"
        if not other:
            way = "save it in a format that is read, or say the `encoding` of a text"
        raise InputError(
            f"{file.uri}: is {what}, expected content of the format {source}: {way}. "
            "If it only lies beside the inputs, leave it out with `exclude`"
        ) from error


def recognize(head: bytes) -> tuple[str, str]:
    r"""Returns what a file is by its first bytes, and the format that reads it, or "".

    >>> recognize(b"a,b\n1,2\n"), recognize(b"prose")
    (('text with delimiters', 'csv'), ('', ''))
    """
    from recordmill.transforms import tfrecord
    from recordmill.transforms.images.header import image_format, is_certain_image

    if compression_of(head):
        return "", ""  # what is in it is not known
    if is_certain_image(head):
        return f"an image ({image_format(head)})", "images"
    for start, what, source in _STARTS:
        if head.startswith(start):
            return what, source
    if tfrecord.is_head(head[: tfrecord.HEAD_BYTES]):
        return "a file of TFRecords", "tfrecord"
    # One or two of them are between the cells of some tables.
    is_mixed = len({*head} & {*_CONTROLS}) > 2
    if is_mixed and 20 * len(head.translate(None, _CONTROLS)) < 19 * len(head):
        return BINARY, ""
    first, *lines = head.split(b"\n")[:10]
    with suppress(ValueError):
        if isinstance(json.loads(first), dict):
            return "JSON Lines", "jsonl"
    for delimiter in b",", b"\t", b";", b"|":
        counts = {line.count(delimiter) for line in (first, *lines[:-1])}
        if lines and len(counts) == 1 and counts != {0}:
            return "text with delimiters", "csv"
    return "", ""
