"""Parses lines of JSON, finds the type that most values of a column have, builds rows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from recordmill.schemas.errors import InputError
from recordmill.schemas.feature_spec import Schema
from recordmill.transforms.cast.text_values import shown
from recordmill.transforms.sources.base import missing_required
from recordmill.transforms.sources.plain_types import SEPARATOR
from recordmill.transforms.storage.input_stream import (
    InputStream,
)

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


def _allowed(arrow_type: pa.DataType) -> tuple[type, ...]:
    if pa.types.is_boolean(arrow_type):
        return (bool,)
    if pa.types.is_int64(arrow_type):
        return (int,)
    if pa.types.is_floating(arrow_type):
        return (int, float)
    return (str,) if pa.types.is_string(arrow_type) else ()


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
    if not types <= set(_allowed(depth)):
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
            raise InputError(too_long(stream.uri, start))


def too_long(uri: str, start: int) -> str:
    """Describes a line that is longer than a line may be."""
    return (
        f"{uri}: the line that begins at byte {start:,} has more than "
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
    values: dict[int, _Value] = {}
    reasons: dict[int, str] = {}
    for at, item in enumerate(items):
        row = parse(item)
        if isinstance(row, str):
            reasons[at] = row
        else:
            values[at] = row
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
