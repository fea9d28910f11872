"""Gives out memory for large arrays again when nothing points into it any more.

The C library returns large blocks to the system when they are freed. Each new one gets
its pages one by one, which takes as long as filling it: of CIFAR records, every byte is
read into such a block, and laid out in a second one.

So each thread keeps a few arrays, and gives out views of them. A view, a view of a view,
a memoryview and a buffer of Arrow all hold the array whose memory they use. So an array
that nobody but its list holds is free:

    first = empty_bytes(n)     a new array, kept; `first` is a view of it
    second = empty_bytes(n)    `first` holds that array: another one
    del first
    third = empty_bytes(n)     nobody holds the first array: its memory
"""

from __future__ import annotations

import sys
import threading

import numpy as np

from recordmill.transforms.arrow import U8

_LEAST_BYTES = 256 << 10  # smaller blocks stay with the C library
_MOST_KEPT = 4  # in each thread
_probe = [np.empty(1, np.uint8)]
_NOBODY = sys.getrefcount(_probe[0])  # references to an array that only its list holds

_local = threading.local()


def empty_bytes(num_bytes: int) -> U8:
    """Returns an array of bytes of any value, like `numpy.empty`."""
    if num_bytes < _LEAST_BYTES:
        return np.empty(num_bytes, np.uint8)
    if not hasattr(_local, "kept"):
        _local.kept = []
    kept: list[U8] = _local.kept
    unfit = None
    for index in range(len(kept)):
        if sys.getrefcount(kept[index]) == _NOBODY:
            # No more than half of an array is unused, so that little memory is.
            if num_bytes <= len(kept[index]) <= 2 * num_bytes:
                return kept[index][:num_bytes]
            unfit = index
    fresh = np.empty(num_bytes, np.uint8)
    if len(kept) < _MOST_KEPT:
        kept.append(fresh)
    elif unfit is not None:
        kept[unfit] = fresh
    return fresh[:]
