"""Functions over the bytes of batches: in C, or by NumPy where that is not built."""

from recordmill.transforms.native.interface import describe, loops
from recordmill.transforms.native.numpy_loops import Buffer, Column

__all__ = ["Buffer", "Column", "describe", "loops"]
