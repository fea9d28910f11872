"""Reads the header of an IDX file: type and sizes of its array.

    00 00 08 03 | 00 00 ea 60 | 00 00 00 1c | 00 00 00 1c      uint8, 60,000 x 28 x 28

Source: yann.lecun.com/exdb/mnist, "The IDX file format"; numbers are big-endian.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from recordmill.schemas.errors import InputError

_TYPES = {8: "|u1", 9: "|i1", 0xB: ">i2", 0xC: ">i4", 0xD: ">f4", 0xE: ">f8"}
MAX_AXES = 8
MAX_HEADER_BYTES = 4 + 4 * MAX_AXES


@dataclass(frozen=True, slots=True)
class IdxHeader:
    """An array's header.

    Attributes:
      dtype: NumPy's text of the type.
      shape: of the whole array.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of the header itself."""
        return 4 + 4 * len(self.shape)

    @property
    def row_bytes(self) -> int:
        """Returns the bytes of a row."""
        return int(self.dtype[2:]) * math.prod(self.shape[1:])


def parse_idx(head: bytes, uri: str) -> IdxHeader:
    """Parses the first bytes of a file.

    Raises:
      InputError: they are not the header of an IDX file.
    """
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
        raise InputError(
            f"{uri}: begins with {head[:4].hex(' ') or 'nothing'}, expected the magic "
            "number of an IDX file: 00 00, a type (08, 09, 0b to 0e), the number of axes. "
            "Name only IDX files; other layouts are declared with convert binary"
        )
    rank = head[3]
    if not 1 <= rank <= MAX_AXES:
        raise InputError(
            f"{uri}: its header says {rank} axes, expected 1 to {MAX_AXES}: the file is "
            "damaged, or not IDX"
        )
    if len(head) < 4 + 4 * rank:
        raise InputError(
            f"{uri}: ends after {len(head)} bytes inside its header of {4 + 4 * rank}: "
            "the file is cut short; copy it again"
        )
    return IdxHeader(_TYPES[head[2]], struct.unpack_from(f">{rank}I", head, 4))
