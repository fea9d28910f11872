"""Reads JSON Lines: cut at line ends, columns and types by the first rows of each file.

A key is a column, and one of a nested object the column `a/b`. What most values of a
column are in the rows that `prepare` reads is its type; a line that does not fit is a
reject.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputSummary, SkippedFiles
from recordmill.schemas.ranges import InputRange, Reject, TypeFlags
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import count
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.exchange.keys import origins_in
from recordmill.transforms.sources.base import (
    RANGE_BYTES,
    Append,
    Rows,
    RowSink,
    Source,
    missing_required,
    number_ranges,
)
from recordmill.transforms.sources.packing import (
    MARK_BYTES,
    UNPACKED_TIMES,
    compression_of,
    other_compression,
)
from recordmill.transforms.sources.plain_types import SEPARATOR, types_to_append
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import open_stream, read_range

Row = dict[str, Any]
_Item = TypeVar("_Item")
_Value = TypeVar("_Value")
_MAX_DEPTH = 8  # of lists
_BOM = b"\xef\xbb\xbf"  # in front of a file, or of those that were joined to it
_raw_decode = json.JSONDecoder().raw_decode
_LEAVES = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "text": pa.string(),
    "": pa.null(),
}
_KINDS: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "text",
}


def parse_line(line: bytes) -> Row | str:
    """Returns the object of a line, nested ones apart, or why there is none.

    Arrow's reader of JSON is no help: it ends the process at a line `null`, and takes
    two objects in a line for two rows. This one takes 2 us for a line of 90 bytes.
    """
    try:
        found = _loads(line.removeprefix(_BOM).decode())
    except UnicodeDecodeError as error:
        return f"not UTF-8: byte {line[error.start]:#04x} at byte {error.start} of the line"
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg} at character {error.pos} of the line"
    except (ValueError, RecursionError) as error:  # 5,000 digits; nested too deep
        return f"not JSON that can be read: {error}"
    if not isinstance(found, dict):
        return f"expected a JSON object, found {shown(found)}"
    return flat_values(found)


def flat_values(found: Row) -> Row | str:
    """Returns an object with nested ones apart, or why there is none."""
    if dict not in set(map(type, found.values())):
        return found
    flat: Row = {}
    problem = _flatten("", found, flat)
    return problem or flat


def _loads(text: str) -> Any:
    """Returns what json.loads does; in half the time for an object without blanks around."""
    if text.startswith("{"):
        found, end = _raw_decode(text)
        if end == len(text):
            return found
    return json.loads(text)


def _flatten(prefix: str, found: Mapping[str, Any], flat: Row) -> str:
    for key, value in found.items():
        name = prefix + key
        if isinstance(value, dict):
            if problem := _flatten(name + SEPARATOR, value, flat):
                return problem
        elif name in flat:
            return f"{shown(name)}: there twice, as a key and within an object"
        else:
            flat[name] = value
    return ""


@dataclass(slots=True)
class ObservedColumn:
    """What the values of a column are."""

    # How many values of each list depth and kind; "" is that of empty lists.
    kinds: Counter[tuple[int, str]] = field(default_factory=Counter)

    def add(self, values: Sequence[Any]) -> None:
        """Adds values; None is a missing one."""
        counts = Counter(map(type, values))
        for found, number in counts.items():
            if found is list:
                lists = [value for value in values if type(value) is list]
                self.kinds.update(map(_kind_of, lists))
            elif found is not type(None):
                self.kinds[0, _KINDS.get(found, "object")] += number

    @property
    def arrow_type(self) -> pa.DataType | None:
        """Returns the type that most values fit; None if that is no feature's."""
        counts: Counter[tuple[int, str]] = Counter()
        for (depth, kind), number in self.kinds.items():
            counts[depth, "number" if kind == "integer" else kind] += number
        if not counts:
            return pa.null()
        filled = Counter({found: n for found, n in counts.items() if found[1]})
        if filled:  # empty lists are of any kind
            ((depth, kind), _), *_ = filled.most_common()
        else:
            depth, kind = max(counts)
        if kind == "number" and not self.kinds[depth, "number"]:
            kind = "integer"
        if kind not in _LEAVES:
            return None
        leaf = pa.string() if depth and not kind else _LEAVES[kind]
        for _ in range(depth):
            leaf = pa.list_(leaf)
        return leaf


def _kind_of(value: Any) -> tuple[int, str]:
    """Returns how deep lists are nested and what is in them."""
    if not isinstance(value, list):
        return 0, _KINDS.get(type(value), "object")
    inner = [_kind_of(item) for item in value if item is not None]
    if not inner:
        return 1, ""
    depth = max(depth for depth, _ in inner)
    kinds = {kind for d, kind in inner if kind or d == depth} - {""}
    if len({d for d, kind in inner if kind}) > 1 or depth >= _MAX_DEPTH:
        return depth + 1, "mixed"
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    return depth + 1, kinds.pop() if len(kinds) == 1 else "mixed" if kinds else ""


def is_text(name: str) -> bool:
    """Tells whether a key can be written as UTF-8: half a surrogate pair cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


_ALLOWED: dict[pa.DataType, set[type]] = {
    pa.bool_(): {bool},
    pa.int64(): {int},
    pa.float32(): {int, float},
    pa.float64(): {int, float},
    pa.string(): {str},
}


def column_of(values: list[Any], arrow_type: pa.DataType) -> pa.Array | None:
    """Returns values as a column of a type that `ObservedColumn` found.

    None if some do not fit; a missing value is None, and fits.
    """
    types = set(map(type, values)) - {type(None)}
    depth = arrow_type
    inner: Iterable[Any] = values
    while pa.types.is_list(depth) or pa.types.is_fixed_size_list(depth):
        if types - {list}:
            return None
        inner = [item for each in inner if each is not None for item in each]
        types = set(map(type, inner)) - {type(None)}
        depth = depth.value_type
    if not types <= _ALLOWED.get(depth, set()):
        return None
    try:
        return pa.array(values, arrow_type)
    except (pa.ArrowException, OverflowError, ValueError):
        return None


MAX_LINE_BYTES = 256 << 20

Line = tuple[int, bytes]
"""Byte offset of a line in its file, and its bytes without the newline."""


def read_lines(stream: InputStream, step: int) -> Iterator[list[Line]]:
    """Yields the lines that begin in a part of a file and are not blank, a few at a time.

    Of the lines "ab", "cd" and "ef", a part of bytes 1 to 4 has "cd" only, which begins at
    byte 3 and ends beyond it. So many bytes as a step are split at once.

    Raises:
      InputError: the file cannot be unpacked, or a line is too long.
    """
    start, stop = (0, sys.maxsize) if stream.is_packed else (stream.start, stream.stop)
    at, rest = start, b""
    if start > 0 and stream.part(start - 1, start) != b"\n":
        # The line that begins before belongs to the part before.
        while b"\n" not in rest and at < stop:
            rest = stream.part(at, at + step)
            at += len(rest)
        begin = rest.find(b"\n") + 1
        if not begin:
            return
        start, rest = at - len(rest) + begin, rest[begin:]
    while start < stop:
        more = stream.part(at, at + step)
        at += len(more)
        rest += more
        is_end = not more if stream.is_packed else at >= stream.size
        end = len(rest) if is_end else rest.rfind(b"\n") + 1
        if is_end and stream.is_cut:  # the last line may be half of one
            return
        if at >= stop and not is_end:  # only the line that reaches beyond
            beyond = rest.find(b"\n", max(0, stop - start - 1)) + 1
            end = beyond or end
        if lines := _lines(rest[:end], start, stop):
            yield lines
        start, rest = start + end, rest[end:]
        if is_end:
            return
        if len(rest) > MAX_LINE_BYTES:
            raise InputError(
                f"{stream.uri}: the line that begins at byte {start:,} has more than "
                f"{MAX_LINE_BYTES:,} bytes; expected one JSON object in each line"
            )


def _lines(data: bytes, start: int, stop: int) -> list[Line]:
    lines = []
    at = start
    for line in data.split(b"\n"):
        if at >= stop:
            break
        if not line.isspace() and line:
            lines.append((at, line.removesuffix(b"\r")))
        at += len(line) + 1
    return lines


def build_rows(
    items: Sequence[_Item],
    parse: Callable[[_Item], _Value | str],
    batch_of: Callable[[Sequence[_Value]], pa.RecordBatch | None],
    misfit_of: Callable[[_Value], str],
    schema: Schema | None,
) -> tuple[pa.RecordBatch, dict[int, _Value], dict[int, str]]:
    """Makes a batch of rows, without those that do not fit or miss a required value.

    Args:
      items: one for each row.
      parse: returns the values of a row, or why there are none.
      batch_of: returns rows as columns, or None if a value of some row does not fit.
      misfit_of: returns why a row does not fit, or "".
      schema: of the dataset that they are appended to, or None.

    Returns:
      The batch, the values of its rows by their index, and the reason of each other row.
    """
    parsed = [*map(parse, items)]
    values = {at: row for at, row in enumerate(parsed) if not isinstance(row, str)}
    reasons = {at: row for at, row in enumerate(parsed) if isinstance(row, str)}
    batch = batch_of([*values.values()])
    if batch is None:  # one by one, as few do not fit
        reasons |= {at: why for at, row in values.items() if (why := misfit_of(row))}
        values = {at: row for at, row in values.items() if at not in reasons}
        batch = batch_of([*values.values()])
        if batch is None:
            raise ValueError("values fit one by one only")
    if missing := missing_required(batch, schema):
        kept = [*values]
        reasons |= {kept[at]: why for at, why in missing.items()}
        batch = batch.take(
            pa.array([at for at in range(len(kept)) if at not in missing], pa.int64())
        )
        values = {at: row for at, row in values.items() if at not in reasons}
    return batch, values, reasons


# A key is a column, and one of a nested object the column `a/b`. What most values of a
# column are in the rows that `prepare` reads is its type; a line that does not fit is a
# reject.

SAMPLE_BYTES = 64 << 20  # of all files, whose rows tell columns and types
_LEAST_BYTES = 1 << 16  # of a file that is looked at


BATCH_BYTES = 1 << 20  # read and encoded at once; as Python objects ten times as large
_ENTRY_BYTES = 24  # of a feature in a record, beside its name and its value


@dataclass(frozen=True)
class ObjectsSource(Source):
    """Rows that are objects with keys, of which the first ones tell columns and types."""

    as_declared: bool = False  # whether a schema says what becomes of the columns,
    wanted: tuple[str, ...] = ()  # and which it uses
    fixed_schema: Schema | None = None
    range_bytes: int = RANGE_BYTES
    storage: StorageOptions = NO_OPTIONS
    # Of the whole input, once prepared:
    types: tuple[tuple[str, pa.DataType], ...] = ()
    sampled: int = 0  # rows that told the columns,
    is_sampled: bool = False  # and whether there are more
    passed_over: tuple[SkippedFiles, ...] = ()

    tells_checksums = True
    row_name = "row"

    @property
    def _whose(self) -> str:
        """Returns where a type comes from, for messages."""
        return "in the dataset" if self.fixed_schema else f"in most {self.row_name}s"

    def columns(self) -> pa.Schema:
        return pa.schema(list(self.types))

    def understood(self) -> InputSummary:
        columns = ", ".join(f"{name} {found}" for name, found in self.types)
        basis = "the first" if self.is_sampled else "all"
        basis = f"by {basis} {count(self.sampled, self.row_name)}"
        return InputSummary(
            (("columns", columns), ("types", basis)), (), self.passed_over
        )

    def _unknown(self, name: str) -> str:
        """Returns why a row with this key cannot be converted."""
        if self.fixed_schema is not None:
            return f"{shown(name)}: is no feature of the dataset"
        return (
            f"{shown(name)}: is in none of the {count(self.sampled, self.row_name)} that "
            "were looked at for columns; a schema file says which to use (`schema`)"
        )

    def _made_rows(
        self,
        batch: pa.RecordBatch,
        places: Sequence[tuple[int, bytes]],
        reasons: Mapping[int, str],
        input_range: InputRange,
        stream: InputStream,
        sink: RowSink,
    ) -> Rows:
        """Makes rows of a batch; rejects those that have a reason.

        `places` has where each row begins, and its bytes.
        """
        path = input_range.path
        sink.rejects += [
            Reject(path, places[index][0], reasons[index], places[index][1])
            for index in sorted(reasons)
        ]
        sink.add(nulls=[column.null_count for column in batch.columns])
        kept = [place for n, place in enumerate(places) if n not in reasons]
        starts = np.array([start for start, _ in kept], np.int64)
        is_packed = stream.is_packed
        return Rows(
            batch=batch,
            origins=origins_in(path, 0, starts),
            positions=stream.positions.of(starts)
            if is_packed
            else starts - input_range.start,
            raw=lambda row: kept[row],
        )


@dataclass(frozen=True)
class JsonLinesSource(ObjectsSource):
    """Lines that are JSON objects."""

    compression: str = ""  # of all files, as in `Packing`

    def prepare(self, files: Sequence[InputFile], append: Append | None = None) -> Self:
        full = [file for file in files if file.size]
        if not full:
            raise InputError(
                "every input file is empty; expected JSON objects in lines"
            )
        head = read_range(full[0].uri, 0, MARK_BYTES, self.storage, full[0].seen)
        empty = (("empty", file.path) for file in files if not file.size)
        source = replace(
            self,
            compression=compression_of(head),
            passed_over=SkippedFiles.counted(empty),
            fixed_schema=append.schema if append is not None else None,
        )
        types, rows, is_sampled = source._find_columns(full)
        if source.fixed_schema is not None:
            types = types_to_append(source.fixed_schema, types)
        return replace(
            source,
            types=tuple(types.items()),
            sampled=rows,
            is_sampled=is_sampled,
        )

    def _find_columns(
        self, files: Sequence[InputFile]
    ) -> tuple[dict[str, pa.DataType], int, bool]:
        """Returns columns by the first rows of files, how many rows, if there are more.

        Raises:
          InputError: no line is an object, or a column can be no feature.
        """
        observed: dict[str, ObservedColumn] = {}
        share = max(_LEAST_BYTES, SAMPLE_BYTES // len(files))
        chosen = files[:: -(-len(files) * _LEAST_BYTES // SAMPLE_BYTES)]
        rows, problem, is_sampled = 0, "", len(chosen) < len(files)
        if not self.compression:
            is_sampled = is_sampled or max(file.size for file in files) > share
        for file in chosen:
            stream = self._open(file, (0, min(share, file.size)))
            for lines in read_lines(stream, BATCH_BYTES):
                parsed = [parse_line(line) for _, line in lines]
                found = [row for row in parsed if not isinstance(row, str)]
                wrong = [row for row in parsed if isinstance(row, str)]
                problem = problem or (f"{file.uri}: {wrong[0]}" if wrong else "")
                rows += len(found)
                for name in dict.fromkeys(chain.from_iterable(found)):
                    column = observed.setdefault(name, ObservedColumn())
                    column.add([row.get(name) for row in found])
                if self.compression and lines[-1][0] >= share:
                    is_sampled = True
                    break
        if not rows:
            problem = problem or f"{files[0].uri}: only blank lines"
            raise InputError(
                f"no line of {count(len(files), 'input file')} is a JSON object: {problem}"
            )
        return self._types_of(observed, files[0].uri), rows, is_sampled

    def _types_of(
        self, observed: Mapping[str, ObservedColumn], uri: str
    ) -> dict[str, pa.DataType]:
        types, problems = {}, []
        for name, column in observed.items():
            if self.as_declared and name not in self.wanted:
                continue
            found = column.arrow_type
            if found is None:
                problems.append(name)
            elif name and is_text(name):  # rows with any other are rejects
                types[name] = found
        if problems:
            raise InputError(
                f"{uri}: {', '.join(map(repr, problems))}: lists of objects, or of "
                "values of several types, can be no feature. Declare the other columns "
                "in a schema file (`schema`)"
            )
        if not types and not self.as_declared:
            raise InputError(f"{uri}: its objects have no keys")
        return types

    def understood(self) -> InputSummary:
        file = ("file", self.compression)
        found = super().understood()
        return replace(found, facts=(file, *found.facts)) if self.compression else found

    def cut(self, files: Sequence[InputFile]) -> list[InputRange]:
        # A compressed file can be read only from its start.
        return number_ranges(
            [
                (file, start, min(start + step, file.size), "")
                for file in files
                for step in (file.size if self.compression else self.range_bytes,)
                for start in range(0, file.size, max(1, step))
            ]
        )

    def estimated_bytes(self, files: Sequence[InputFile]) -> int:
        # A key is in each line, too; short values become longer.
        unpacked = UNPACKED_TIMES if self.compression else 1
        growth = 2 * unpacked * sum(file.size for file in files)
        return growth + _ENTRY_BYTES * len(self.types)

    def _open(self, file: InputFile | InputRange, part: tuple[int, int]) -> InputStream:
        """Opens the lines that begin in a part of a file; all of a compressed one."""
        if self.compression:
            stream = open_stream(file, self.storage, compression=self.compression)
            head = read_range(file.uri, 0, MARK_BYTES, self.storage, file.seen)
        else:  # at once: for the checksum and for the lines, by one request
            window = part[1] - part[0] + 1
            stream = open_stream(file, self.storage, part=part, window_bytes=window)
            head = stream.part(0, MARK_BYTES) if part[0] == 0 else b""
        if (found := compression_of(head)) != self.compression:
            raise InputError(other_compression(file.uri, found, self.compression))
        return stream

    def read(
        self, input_range: InputRange, expected: TypeFlags, sink: RowSink
    ) -> Iterator[Rows]:
        part = input_range.start, input_range.stop
        stream = self._open(input_range, part)
        sink.add(nulls=(0,) * len(self.types))
        for lines in read_lines(stream, BATCH_BYTES):
            yield self._rows(lines, input_range, stream, sink)
        sink.checksums.append(FileChecksum(input_range.path, *part, stream.drain()))

    def _rows(
        self,
        lines: list[Line],
        input_range: InputRange,
        stream: InputStream,
        sink: RowSink,
    ) -> Rows:
        """Makes rows of lines; those that do not fit the columns are rejects."""
        batch, _, reasons = build_rows(
            lines, self._parse, self._batch, self._misfit, self.fixed_schema
        )
        return self._made_rows(batch, lines, reasons, input_range, stream, sink)

    def _parse(self, line: Line) -> Row | str:
        row = parse_line(line[1])
        if isinstance(row, str) or self.as_declared or row.keys() <= self._names:
            return row
        return self._unknown(next(name for name in row if name not in self._names))

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch | None:
        """Returns rows as columns, or None if a value does not fit."""
        arrays = []
        for name, wanted in self.types:
            column = column_of([row.get(name) for row in rows], wanted)
            if column is None:
                return None
            arrays.append(column)
        schema = self.columns()
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.types)

    def _misfit(self, row: Row) -> str:
        for name, wanted in self.types:
            value = row.get(name)
            if column_of([value], wanted) is None:
                return f"{name}: {shown(value)} is not {wanted}, its type {self._whose}"
        return ""
