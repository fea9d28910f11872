"""Functions over the bytes of batches: in C, or by NumPy where that is not built."""

from recordmill.transforms.native.interface import (
    Buffer,
    Column,
    Loops,
    describe,
    loops,
)

__all__ = ["Buffer", "Column", "Loops", "describe", "loops"]
