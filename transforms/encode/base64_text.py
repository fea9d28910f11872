"""Encodes whole Arrow columns in base64 (RFC 4648, section 4: padded, no line breaks).

3 bytes = 24 bits -> 4 characters of 6 bits; a last group of 1 or 2 bytes ends
in == or =
"""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.transforms.arrow import (
    binary_array,
    require_fit,
    value_lengths,
    value_offsets,
)

_FILLERS = pa.array([b"", b"\0\0", b"\0"])  # to whole groups, by length modulo 3


def base64_texts(values: pa.BinaryArray) -> pa.BinaryArray:
    """Encodes every value of a plain binary array without nulls as base64 text.

    Raises:
      RecordmillError: the texts together are beyond 2 GiB.
    """
    rest = value_lengths(values) % 3
    require_fit(4 * (int(value_lengths(values).sum()) // 3 + len(values)))
    filled = pc.binary_join_element_wise(values, _FILLERS.take(pa.array(rest)), b"")
    offsets = value_offsets(filled)
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
    # All values at once: no group reaches from one into the next.
    joined = binascii.b2a_base64(data[offsets[0] : offsets[-1]].data, newline=False)
    text = np.frombuffer(bytearray(joined), np.uint8)
    text_offsets = (offsets - offsets[0]).astype(np.int64) // 3 * 4
    text[text_offsets[1:][rest > 0] - 1] = ord("=")
    text[text_offsets[1:][rest == 1] - 2] = ord("=")
    return binary_array(text_offsets, text)
