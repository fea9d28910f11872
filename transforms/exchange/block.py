"""Rows between encoding and the exchange."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.encode.wire import I64, U64


@dataclass(frozen=True, slots=True)
class Block:
    """Rows on their way out of a range, in row order.

    Attributes:
      payloads: one payload per row.
      keys: order key of each row.
      splits: split index of each row.
      weights: planned bytes of each row.
    """

    payloads: pa.BinaryArray
    keys: U64
    splits: npt.NDArray[np.uint8]
    weights: I64
