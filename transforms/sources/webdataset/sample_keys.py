"""Takes the names of files in shards apart: key of the sample, and what follows it.

The key of `train/0001.left.jpg` is `train/0001`, and what follows it `left.jpg`, as the
package webdataset has it. A hidden file has no key.
"""

from __future__ import annotations

import re
from typing import AnyStr

_TEXT = re.compile(r"((?:.*/|)[^./]+)[.]([^/]*)", re.DOTALL)
_BYTES = re.compile(_TEXT.pattern.encode(), re.DOTALL)


def key_of(name: AnyStr) -> tuple[AnyStr, AnyStr] | None:
    """Returns key and ending of a file; None if it belongs to no sample.

    >>> key_of("train/0001.left.JPG"), key_of(b".hidden"), key_of("__key__.txt__")
    (('train/0001', 'left.jpg'), None, None)
    """
    if isinstance(name, bytes):
        found = _BYTES.fullmatch(name)
        is_meta = name.startswith(b"__") and name.endswith(b"__")
    else:
        found = _TEXT.fullmatch(name)
        is_meta = name.startswith("__") and name.endswith("__")
    return None if found is None or is_meta else (found[1], found[2].lower())
