"""Provides loops over the bytes of batches, in C or, if not built, in NumPy."""

from recordmill.transforms.native.interface import describe, loops
from recordmill.transforms.native.numpy_loops import Buffer, Column

__all__ = ["Buffer", "Column", "describe", "loops"]
