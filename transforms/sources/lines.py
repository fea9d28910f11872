r"""Reads files of lines, and text files, whose lines become records.

A file that is not compressed is cut at constant byte offsets; a line belongs to the part
in which it begins. Lines end with \\n or \\r\\n. Blank lines become records unless an
option drops them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputReport, SkippedFiles
from recordmill.schemas.ranges import InputRange, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.arrow import I64, extract_binary
from recordmill.transforms.encode.row_errors import utf8_reason
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    InputFindings,
    RangeFindings,
    Rows,
    Source,
    cut_blocks,
)
from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits
from recordmill.transforms.sources.partitions import NO_PARTITIONS, Partitions
from recordmill.transforms.sources.plain_types import (
    report_left_out_columns,
    require_features,
)
from recordmill.transforms.storage.input_stream import (
    MARK_BYTES,
    UNPACKED_TIMES,
    InputStream,
    compression_mismatch_message,
    compression_of,
)
from recordmill.transforms.storage.reading import open_stream, read_range

MAX_LINE_BYTES = 256 << 20


def find_compression(file: InputFile, storage: StorageOptions) -> str:
    """Returns the compression of a file by its first bytes; "" for none."""
    return compression_of(read_range(file.uri, 0, MARK_BYTES, storage, file.stat))


def open_lines(
    file: InputFile | InputRange,
    part: tuple[int, int],
    compression: str,
    storage: StorageOptions,
) -> InputStream:
    """Opens the part of a file for reading lines; all of the file if it is compressed.

    Raises:
      InputError: the file has another compression.
    """
    if compression:
        stream = open_stream(file, storage, compression=compression)
        head = read_range(file.uri, 0, MARK_BYTES, storage, file.stat)
    else:  # one request reads the bytes for both the checksum and the lines
        window = part[1] - part[0] + 1
        stream = open_stream(file, storage, part=part, window_bytes=window)
        head = stream.part(0, MARK_BYTES) if part[0] == 0 else b""
    if (actual_compression := compression_of(head)) != compression:
        raise InputError(
            compression_mismatch_message(file.uri, actual_compression, compression)
        )
    return stream


def read_blocks(stream: InputStream, step: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that begin in a part of a file as (first byte, whole lines).

    With the lines "ab", "cd" and "ef", the part of bytes 1 to 4 has only "cd", which
    begins at byte 3 and ends behind the part. `step` bytes are read at once.

    Raises:
      InputError: the file cannot be unpacked, or a line is too long.
    """
    start, stop = (0, sys.maxsize) if stream.is_packed else (stream.start, stream.stop)
    position, tail = start, b""
    if start > 0 and stream.part(start - 1, start) != b"\n":
        # A line that begins before this part belongs to the previous part.
        while b"\n" not in tail and position < stop:
            tail = stream.part(position, position + step)
            position += len(tail)
        begin = tail.find(b"\n") + 1
        if not begin:
            return
        start, tail = position - len(tail) + begin, tail[begin:]
    while start < stop:
        next_bytes = stream.part(position, position + step)
        position += len(next_bytes)
        tail += next_bytes
        is_end = not next_bytes if stream.is_packed else position >= stream.size
        end = len(tail) if is_end else tail.rfind(b"\n") + 1
        if is_end and stream.is_cut:  # the last line may be incomplete
            return
        if position >= stop:  # drop the lines that begin behind the part
            last_end = tail.find(b"\n", max(0, stop - start - 1)) + 1
            end = last_end or end
        if end:
            yield start, tail[:end]
        start, tail = start + end, tail[end:]
        if is_end:
            return
        if len(tail) > MAX_LINE_BYTES:
            raise InputError(
                f"{stream.uri}: the line that begins at byte {start:,} has more than "
                f"{MAX_LINE_BYTES:,} bytes; is it a file of lines?"
            )


BATCH_BYTES = 4 << 20  # read and encoded at once
TEXT = pa.schema({"text": pa.string()})
_BOM = b"\xef\xbb\xbf"
# The endings of parallel texts (news.en, news.de.gz): ISO 639-1 codes, except those that
# are also endings of program files.
_LANGUAGE = re.compile(
    r"\.(ar|bg|ca|da|de|el|en|es|et|eu|fa|fi|fr|he|hi|hu|id|it|ja|ko|lt|lv|nl|no|pt|ro|ru|sk|"
    r"sl|sv|sw|ta|th|tr|uk|ur|vi|zh)(\.(gz|bz2|xz|zst))?$"
)
_RECORD_BYTES = 24  # of a record without its text


def split_lines(
    block: bytes, start: int, *, keeps_blank: bool
) -> tuple[pa.BinaryArray, I64]:
    r"""Returns the lines of a block without line ends, and their offsets in the file.

    >>> split_lines(b"ab\r\n\ncd", 10, keeps_blank=True)[0].to_pylist()
    [b'ab', b'', b'cd']
    """
    if start == 0 and block.startswith(_BOM):
        start, block = len(_BOM), block[len(_BOM) :]
    byte_array = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(byte_array == ord("\n"))
    if block and not block.endswith(b"\n"):
        ends = np.append(ends, len(byte_array))
    starts = np.concatenate(([0], ends + 1))[: len(ends)]
    returns = (ends > starts) & (byte_array[np.maximum(ends, 1) - 1] == ord("\r"))
    lengths = ends - starts - returns
    if not keeps_blank:
        line_indices = np.flatnonzero(lengths)
        starts, lengths = starts[line_indices], lengths[line_indices]
    return extract_binary(byte_array, starts, lengths), starts + start


def _raw_line(lines: pa.BinaryArray, starts: I64, row: int) -> tuple[int, bytes]:
    """Returns the byte offset and the bytes of a line."""
    return int(starts[row]), lines[row].as_py()


def _utf8_reasons(text: pa.StringArray, lines: pa.BinaryArray) -> dict[int, str]:
    """Returns the reason for each line that is not UTF-8, by index."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        reasons = (
            (row, utf8_reason(line, "line"))
            for row, line in enumerate(lines.to_pylist())
        )
        return {row: reason for row, reason in reasons if reason}
    return {}


def _require_one_language(files: Sequence[InputFile]) -> None:
    """Raises InputError for texts in several languages, such as news.en and news.de."""
    # path before the language -> language -> file
    texts_by_stem: dict[str, dict[str, InputFile]] = {}
    for file in files:
        if language := _LANGUAGE.search(file.path):
            texts = texts_by_stem.setdefault(file.path[: language.start()], {})
            texts.setdefault(language[1], file)
    for texts in texts_by_stem.values():
        if len(texts) > 1:
            (_, first), (_, second), *_ = texts.items()
            ways = " ".join(f"`exclude=*.{language}*`" for language in [*texts][1:])
            raise InputError(
                f"{second.uri}: has the texts of {first.path} in another language, by "
                f"its name; as lines they would be unrelated records. Use {ways} to "
                "convert one language, or write a table with a column for each, such "
                "as JSON Lines. To read all as one input, rename the files to end in "
                ".txt"
            )


@dataclass(frozen=True)
class TextSource(Source):
    """A source of lines of UTF-8 text; rejects a line that is not UTF-8."""

    keeps_blank_lines: bool = True  # True if blank lines become records
    range_bytes: int = RANGE_BYTES
    splits: FileSplits = NO_SPLITS
    partitions: Partitions = NO_PARTITIONS
    requested_columns: tuple[
        str, ...
    ] = ()  # the columns of a declared schema; () without one
    storage: StorageOptions = NO_OPTIONS
    fixed_schema: Schema | None = None
    # The following describe all files, after `prepare`.
    compression: str = ""
    left_out_columns: tuple[str, ...] = ()  # key folders that become no feature
    skipped_files: tuple[SkippedFiles, ...] = ()

    reports_checksums = True

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        nonempty_files = [file for file in files if file.size]
        if not nonempty_files:
            raise InputError("every input file is empty; expected lines of text")
        existing_files = (
            [file for file in append.existing_inventory if file.size] if append else []
        )
        if not append:
            _require_one_language(nonempty_files)
        schema = append.schema if append else None
        splits = self.splits.find_rule(nonempty_files, existing_files)
        partitions = self.partitions.find_columns(
            nonempty_files, splits, existing_files
        )
        left_out = set[str]()
        if self.requested_columns:
            partitions, left_out = partitions.select(self.requested_columns)
        partitions.require_apart(nonempty_files[0].uri, TEXT.names)
        if schema is not None:
            keys = partitions.keys
            require_features([*TEXT.names, *keys], schema, folders=keys)
        skipped_files = [("empty", file.path) for file in files if not file.size]
        return replace(
            self,
            compression=find_compression(nonempty_files[0], self.storage),
            splits=splits,
            partitions=partitions,
            left_out_columns=tuple(left_out),
            fixed_schema=schema,
            skipped_files=SkippedFiles.count_by_reason(skipped_files),
        )

    def input_report(self, input_findings: InputFindings | None = None) -> InputReport:
        facts = (("file", self.compression),) if self.compression else ()
        facts = (
            *report_left_out_columns(self.left_out_columns),
            *facts,
            *self.splits.report_lines,
        )
        return InputReport(
            (*facts, *self.partitions.report_lines), (), self.skipped_files
        )

    def columns(self) -> pa.Schema:
        return pa.schema([*TEXT, *self.partitions.types])

    def cut_ranges(self, files: Sequence[InputFile]) -> list[InputRange]:
        # A compressed file can be read only from its start.
        size = None if self.compression else self.range_bytes
        return cut_blocks(files, size, self.splits)

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # Short lines grow most: a byte and the line end become a record.
        unpacked = UNPACKED_TIMES if self.compression else 1
        return unpacked * _RECORD_BYTES * sum(file.size for file in files)

    def read(
        self,
        input_range: InputRange,
        expected: TypeFlags,
        range_findings: RangeFindings,
    ) -> Iterator[Rows]:
        part = input_range.start, input_range.stop
        stream = open_lines(input_range, part, self.compression, self.storage)
        range_findings.add_batch_findings(nulls=(0,) * len(self.columns()))
        for start, block in read_blocks(stream, BATCH_BYTES):
            lines, starts = split_lines(
                block, start, keeps_blank=self.keeps_blank_lines
            )
            text = pa.Array.from_buffers(pa.string(), len(lines), lines.buffers())
            batch = pa.RecordBatch.from_arrays([text], schema=TEXT)
            rows = Rows(
                batch=self.partitions.add_columns(batch, input_range.path),
                origins=origins_in(input_range.path, 0, starts),
                positions=stream.positions.file_offsets(starts)
                if stream.is_packed
                else starts - input_range.start,
                raw_row=partial(_raw_line, lines, starts),
            )
            rows = range_findings.reject_rows(
                rows, _utf8_reasons(text, lines), input_range, "row"
            )
            range_findings.add_batch_findings(
                nulls=[column.null_count for column in rows.batch.columns]
            )
            yield rows
        range_findings.checksums.append(
            FileChecksum(input_range.path, *part, stream.checksum_of_part())
        )
