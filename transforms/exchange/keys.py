"""Computes the order key and the split of each row from its origin and the seed.

A row's origin is (path relative to the input root, range, position in it). Workers,
clocks and Python's own hash have no influence, so every runner and every retry computes
the same keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas.ranges import InputRange
from recordmill.transforms.arrow import I64, U64
from recordmill.transforms.encode.columns import BYTES, family_of

_GAMMA = 0x9E3779B97F4A7C15  # splitmix64's increment, 2**64 / golden ratio
_SPLIT_SALT = 0x73706C6974  # "split": makes splits independent of the order
_SAMPLE_SALT = 0x73616D706C65  # "sample": makes samples independent of both


def mix_bits(values: U64) -> U64:
    """Returns u64 values with mixed bits; distinct values stay distinct.

    Source: the finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable
    Pseudorandom Number Generators, OOPSLA 2014).
    """
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def text_hash(text: str | bytes) -> int:
    """Returns the u64 hash of a text, the same on every machine."""
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def text_hashes(texts: Iterable[str | bytes]) -> U64:
    """Returns the hashes of texts; in Python, so only for short lists, such as files."""
    data = [text.encode() if isinstance(text, str) else text for text in texts]
    digests = b"".join(
        [blake2b(text_bytes, digest_size=8).digest() for text_bytes in data]
    )
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def origins_in(path: str, start: int, ordinals: I64) -> U64:
    """Returns the origins of rows, numbered from 0, in the range of a file at `start`."""
    return origins_of(np.uint64(range_hash(path, start)), ordinals)


def range_hash(path: str, start: int) -> int:
    """Returns the hash that the origins of an input range have in common."""
    return text_hash(f"{path}\0{start}")


def origins_of(hashes: U64 | np.uint64, ordinals: I64) -> U64:
    """Returns the origins of rows from their `range_hash` and their row numbers."""
    return mix_bits(
        hashes + (ordinals.astype(np.uint64) + np.uint64(1)) * np.uint64(_GAMMA)
    )


def copy_origins(origins: U64, copies: I64) -> U64:
    """Returns the origins of copies of rows.

    `copies` numbers the copies of each row; the first, 0, keeps the origin of the row.
    """
    new_origins = mix_bits(
        origins ^ mix_bits(copies.astype(np.uint64) * np.uint64(_GAMMA))
    )
    return np.where(copies == 0, origins, new_origins)


def shuffle_keys(origins: U64, seed: int) -> U64:
    """Returns order keys that shuffle the whole dataset."""
    return mix_bits(origins ^ mix_bits(np.array([seed ^ _GAMMA], np.uint64)))


def position_keys(input_range: InputRange, positions: I64) -> U64:
    """Returns order keys that keep the input's order, by positions in a range."""
    # Scaled to the range of u64, so that the histogram's buckets, which are numbered by
    # the keys' high bits, have the same resolution as for hashed keys. With 1000
    # positions in total: shift = 64 - 10, so position 3 has the key 3 << 54.
    shift = 64 - input_range.total_positions.bit_length()
    return (
        np.uint64(input_range.first_position) + positions.astype(np.uint64)
    ) << np.uint64(shift)


def assign_splits(
    groups: U64, fractions: Sequence[Fraction], seed: int
) -> npt.NDArray[np.uint8]:
    """Returns the split of each row, as an index into `fractions`.

    Rows with equal `groups` (origins, or `value_hashes`) share a split. The fractions add
    up to 1.
    """
    if len(fractions) == 1:
        return np.zeros(len(groups), np.uint8)
    draws = split_hashes(groups, seed)
    ends = np.cumsum(np.array(fractions, object))[:-1]
    limits = np.array([int(end * (1 << 64)) for end in ends], np.uint64)
    return np.searchsorted(limits, draws, side="right").astype(np.uint8)


def split_hashes(groups: U64, seed: int) -> U64:
    """Returns the split hashes of rows, distributed evenly over u64."""
    return mix_bits(groups ^ mix_bits(np.array([seed ^ _SPLIT_SALT], np.uint64)))


def sample_hashes(origins: U64, seed: int) -> U64:
    """Returns the sample hashes of rows, distributed evenly over u64.

    A row is kept if its hash is below the sampled share of 2**64.
    """
    return mix_bits(origins ^ mix_bits(np.array([seed ^ _SAMPLE_SALT], np.uint64)))


def value_hashes(values: pa.Array) -> U64:
    """Returns the hash of each value; values that are equal as text have equal hashes."""
    if family_of(values.type) != BYTES:
        values = values.cast(pa.string())  # bytes need not be text
    values = values.cast(pa.binary())
    encoded = pc.fill_null(values, b"\0null").dictionary_encode()
    # One Python call per distinct value; equal values have the same hash.
    table = text_hashes(encoded.dictionary.to_pylist())
    hashes: U64 = table[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashes
