"""Makes files of WebDataset samples, and reads shards the plain way."""

from __future__ import annotations

import io
from typing import Any

import numpy as np


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """An array as a .npy file."""
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()
