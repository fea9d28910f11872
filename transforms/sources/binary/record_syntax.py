"""Parses the declaration of a record: `label:u8,image:u8[3,32,32]:chw->hwc`.

NAME:TYPE              one value
NAME:TYPE[2,3]         an array, row by row
NAME:TYPE[3,32,32]:chw->hwc   stored as planes, wanted as rows of pixels
NAME:bytes[10]         ten bytes as they are
_:u8[4]                four bytes that are left out
"""

from __future__ import annotations

import math
import re

from recordmill.schemas.errors import UsageError
from recordmill.transforms.sources.arrays.row_arrays import MAX_ROW_BYTES, Field

TYPES = {
    "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4",
    "u64": "u8", "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8",
}  # fmt: skip
_FIELD = re.compile(
    r"(?P<name>[^:,\[\]]+):(?P<type>[a-z]+\d*)(?:\[(?P<shape>[\d,\s]*)\])?"
    r"(?::(?P<axes>[^,]*))?"
)
_LONGEST = 10_000  # characters of a declaration
_WAY = (
    "expected NAME:TYPE, NAME:TYPE[SIZES] or NAME:TYPE[SIZES]:chw->hwc, in quotes, as in "
    "'label:u8,image:u8[3,32,32]:chw->hwc'"
)


def parse_record(text: str, byte_order: str) -> tuple[tuple[Field, ...], int]:
    """Parses a declaration.

    Args:
      text: as a person wrote it.
      byte_order: little or big.

    Returns:
      The fields, and the bytes of a record.

    Raises:
      UsageError: what is wrong with it.
    """
    fields: list[Field] = []
    at = offset = 0
    text = text.strip()
    if len(text) > _LONGEST:
        raise UsageError(
            f"`record`: {len(text):,} characters, expected at most {_LONGEST:,}"
        )
    while at < len(text) or not fields:
        match = _FIELD.match(text, at)
        if not match:
            raise UsageError(f"`record`: cannot read {text[at : at + 40]!r}; {_WAY}")
        field = _field(match, ">" if byte_order == "big" else "<", offset)
        offset += field.num_bytes
        fields.append(field)
        at = match.end()
        if at < len(text):
            if text[at] != "," or at + 1 == len(text):
                raise UsageError(
                    f"`record`: cannot read {text[at : at + 40]!r} after "
                    f"{match[0]!r}; {_WAY}"
                )
            at += 1
    if offset > MAX_ROW_BYTES:
        raise UsageError(
            f"`record`: a record has {offset:,} bytes, expected at most {MAX_ROW_BYTES:,}"
        )
    named = [field for field in fields if field.name != "_"]
    if not named:
        raise UsageError(f"`record`: has no field with a name; {_WAY}")
    names = [field.name for field in named]
    if len(set(names)) < len(names):
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise UsageError(
            f"`record`: two fields are named {twice!r}: rename one of them"
        )
    return tuple(named), offset


def _field(match: re.Match[str], order: str, offset: int) -> Field:
    name, kind = match["name"].strip(), match["type"]
    sizes = [size.strip() for size in (match["shape"] or "").split(",")]
    if match["shape"] is not None and not all(map(str.isdecimal, sizes)):
        raise UsageError(f"`record`: {match[0]!r}: found [{match['shape']}]; {_WAY}")
    shape = tuple(int(size) for size in sizes) if match["shape"] is not None else ()
    if 0 in shape or len(shape) > 8 or math.prod(shape) > MAX_ROW_BYTES:
        raise UsageError(
            f"`record`: {match[0]!r}: expected one to eight sizes of at least 1, together "
            f"at most {MAX_ROW_BYTES:,} values"
        )
    if kind == "bytes":
        if len(shape) != 1 or match["axes"] is not None:
            raise UsageError(
                f"`record`: {match[0]!r}: bytes have one size and no axes, as in "
                f"'{name}:bytes[10]'"
            )
        return Field(name, f"|V{shape[0]}", offset=offset)
    if kind not in TYPES:
        raise UsageError(
            f"`record`: {match[0]!r}: {kind!r} is no type; expected one of "
            f"{', '.join(TYPES)} or bytes"
        )
    dtype = TYPES[kind]
    axes = _axes(match[0], match["axes"], len(shape))
    return Field(
        name, f"{'|' if dtype[1] == '1' else order}{dtype}", shape, axes, offset
    )


def _axes(text: str, given: str | None, rank: int) -> tuple[int, ...]:
    if given is None:
        return ()
    stored, arrow, wanted = given.strip().partition("->")
    if (
        not arrow
        or len(stored) != rank
        or len(set(stored)) < rank
        or sorted(stored) != sorted(wanted)
    ):
        raise UsageError(
            f"`record`: {text!r}: axes {given!r} do not tell the order of {rank} sizes; "
            "expected a letter for each as stored, ->, and the same letters as wanted, "
            "such as chw->hwc. Put the declaration in quotes: a shell takes > for itself"
        )
    axes = tuple(stored.index(letter) for letter in wanted)
    return () if axes == tuple(range(rank)) else axes
