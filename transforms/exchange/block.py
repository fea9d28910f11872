"""Defines a block: the encoded rows that go into an exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import I64, U64


@dataclass(frozen=True, slots=True)
class Block:
    """Encoded rows of one input range, in row order.

    Attributes:
      payloads: one payload for each row.
      keys: order key of each row.
      splits: split index of each row.
      planned_bytes: planned bytes of each row.
    """

    payloads: pa.BinaryArray
    keys: U64
    splits: npt.NDArray[np.uint8]
    planned_bytes: I64

    @classmethod
    def joined(cls, blocks: list[Block]) -> Block:
        """Joins blocks to one; clears the list."""
        block = cls(
            pa.concat_arrays([block.payloads for block in blocks]),
            np.concatenate([block.keys for block in blocks]),
            np.concatenate([block.splits for block in blocks]),
            np.concatenate([block.planned_bytes for block in blocks]),
        )
        blocks.clear()  # so that no row is in memory twice while the block is written
        return block


def sort_order(
    keys: U64, splits: npt.NDArray[np.uint8], num_splits: int
) -> npt.NDArray[np.intp] | None:
    """Returns the stable order by (split, key); None if the rows are sorted."""
    if num_splits == 1:
        if bool(np.all(keys[:-1] <= keys[1:])):
            return None
        return np.argsort(keys, kind="stable")
    return np.lexsort((keys, splits))
