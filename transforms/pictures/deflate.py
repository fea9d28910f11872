"""Compresses bytes into a zlib stream that depends on nothing but the bytes.

A zlib library may give other bytes in each version, so PNGs that it makes are not the
same everywhere. Here every choice is fixed: blocks of the same size, each with its own
Huffman code of single bytes, no matches. Any zlib reads it.

Three bytes 7 7 9 become one block. 7 stands twice, 9 and the end of the block once:

    length of each code   7: 1 bit   9: 2 bits   end: 2 bits
    codes                 7: 0       9: 10       end: 11
    bits, from the left   0 0 10 11, after a header that has the lengths

An empty stored block follows each, so that it ends with a whole byte.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from recordmill.transforms.arrow import U64

BLOCK_BYTES = 1 << 18  # fixes the bytes of the stream
MAX_CODE_BITS = 15
_END = 256  # the symbol at the end of a block
_ZLIB_HEADER = b"\x78\x01"
_EMPTY_STORED = b"\0\0\xff\xff"
_LAST_BLOCK = b"\1\0\0\xff\xff"
_DISTANCE_LENGTHS = (
    1,
    1,
)  # of two codes that no block uses; some readers want a whole code
_CODE_LENGTH_BITS = 4  # the length of a code is written with 4 bits, for 0 to 15 alike

Bytes = npt.NDArray[np.uint8]


def deflate(pieces: Iterable[Bytes]) -> list[bytes]:
    """Returns the parts of a zlib stream of some pieces, with its checksum at the end.

    Each piece begins a block, so how the bytes are divided changes the stream.
    """
    parts = [_ZLIB_HEADER]
    checksum = 1
    for piece in pieces:
        checksum = zlib.adler32(piece.data, checksum)
        starts = range(0, len(piece), BLOCK_BYTES)
        parts += [_block(piece[start : start + BLOCK_BYTES]) for start in starts]
    return [*parts, _LAST_BLOCK, checksum.to_bytes(4, "big")]


def _block(data: Bytes) -> bytes:
    counts = np.bincount(data, minlength=_END + 1)
    counts[_END] = 1
    lengths = code_lengths(counts.tolist())
    codes = _codes(lengths)
    head = _block_header(lengths)
    sizes = np.array(lengths, np.uint8)
    values = np.concatenate(
        [head[0], codes[data], codes[[_END]], np.zeros(1, np.uint64)]
    )
    num_bits = np.concatenate(
        [head[1], sizes[data], sizes[[_END]], np.array([3], np.uint8)]
    )
    return pack_bits(values, num_bits) + _EMPTY_STORED


def code_lengths(counts: list[int]) -> list[int]:
    """Returns the bits of each symbol's Huffman code; 0 for one that does not occur.

    Args:
      counts: how often each symbol occurs; at least two do.
    """
    while True:
        lengths = _unlimited_lengths(counts)
        if max(lengths) <= MAX_CODE_BITS:
            return lengths
        # Nearer to each other, they get codes of more equal lengths.
        counts = [(count + 1) // 2 for count in counts]


def _unlimited_lengths(counts: list[int]) -> list[int]:
    # Trees in an order without ties: by count, then by when they were made.
    heap = [(count, symbol) for symbol, count in enumerate(counts) if count]
    heapq.heapify(heap)
    parents: dict[int, int] = {}
    node = len(counts)
    while len(heap) > 1:
        one = heapq.heappop(heap)
        other = heap[0]
        parents[one[1]] = parents[other[1]] = node
        heapq.heapreplace(heap, (one[0] + other[0], node))
        node += 1
    depths = {node - 1: 0}
    for child in range(node - 2, -1, -1):
        if child in parents:
            depths[child] = depths[parents[child]] + 1
    return [depths.get(symbol, 0) for symbol in range(len(counts))]


def _codes(lengths: list[int]) -> U64:
    """Returns the code of each symbol, its first bit lowest."""
    codes = np.zeros(len(lengths), np.uint64)
    code, before = 0, 0
    used = [(length, symbol) for symbol, length in enumerate(lengths) if length]
    for length, symbol in sorted(used):
        code <<= length - before
        codes[symbol] = _reversed(code, length)
        code, before = code + 1, length
    return codes


def _reversed(code: int, num_bits: int) -> int:
    return int(f"{code:0{num_bits}b}"[::-1], 2)


def _block_header(lengths: list[int]) -> tuple[U64, Bytes]:
    """Returns the values before a block's data, and the number of bits of each.

    Not the last block (0), dynamic codes (2); 257 and 2 codes; 19 lengths of the codes
    of lengths: none for repeats (16 to 18), 4 bits for 0 to 15.
    """
    values = [
        0,
        2,
        0,
        len(_DISTANCE_LENGTHS) - 1,
        15,
        0,
        0,
        0,
        *[_CODE_LENGTH_BITS] * 16,
    ]
    bits = [1, 2, 5, 5, 4, *[3] * 19]
    values += [
        _reversed(length, _CODE_LENGTH_BITS)
        for length in (*lengths, *_DISTANCE_LENGTHS)
    ]
    bits += [_CODE_LENGTH_BITS] * (len(values) - len(bits))
    return np.array(values, np.uint64), np.array(bits, np.uint8)


def pack_bits(values: U64, num_bits: Bytes) -> bytes:
    """Returns numbers of 0 to 15 bits one after the other, the first bit lowest.

    Four neighbours become one of 60 bits or less. Less than 64, so in every word of 64
    bits one of them begins, and only the last of a word reaches into the next.
    """
    bits = num_bits.astype(np.uint64)
    for _ in range(2):
        if len(values) % 2:
            values = np.append(values, np.uint64(0))
            bits = np.append(bits, np.uint64(0))
        values = values[::2] | values[1::2] << bits[::2]
        bits = bits[::2] + bits[1::2]
    ends = np.cumsum(bits)
    starts = ends - bits
    shifts = starts & np.uint64(63)
    words = starts >> np.uint64(6)
    firsts = np.flatnonzero(np.diff(words, prepend=np.uint64(1 << 63)))
    lasts = np.append(firsts[1:], len(words)) - 1
    packed = np.zeros(len(firsts) + 1, "<u8")
    packed[:-1] = np.bitwise_or.reduceat(values << shifts, firsts)
    # In two steps, as a shift by 64 is not defined.
    packed[1:] |= values[lasts] >> np.uint64(1) >> (np.uint64(63) - shifts[lasts])
    return packed.tobytes()[: (int(ends[-1]) + 7) // 8]
