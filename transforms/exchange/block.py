"""Rows between encoding and the exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from recordmill.transforms.arrow import I64, U64


@dataclass(frozen=True, slots=True)
class Block:
    """Rows on their way out of a range, in row order.

    Attributes:
      payloads: one payload per row.
      keys: order key of each row.
      splits: split index of each row.
      planned_bytes: planned bytes of each row.
    """

    payloads: pa.BinaryArray
    keys: U64
    splits: npt.NDArray[np.uint8]
    planned_bytes: I64

    @classmethod
    def joined(cls, parts: list[Block]) -> Block:
        """One block of several, which are let go."""
        block = cls(
            pa.concat_arrays([part.payloads for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.splits for part in parts]),
            np.concatenate([part.planned_bytes for part in parts]),
        )
        parts.clear()  # not held twice while the block is written
        return block
