"""Keeps packages that a run cannot use from being imported with Beam.

`import apache_beam` imports all of its connectors, and with them the clients of MongoDB
and of Amazon: a fifth of the processor time of that import. Where a client is not
installed, the connector does without, and so it does here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

OF_CONNECTORS = ("boto3", "bson", "pymongo")


@contextmanager
def hidden(packages: Sequence[str] = OF_CONNECTORS) -> Iterator[None]:
    """Imports within the block do not find these packages, if none was imported before.

    Only for a process that ends with its run: connectors that were imported without their
    clients stay without them.
    """
    absent = [name for name in packages if name not in sys.modules]
    # None stands for a module that is known not to be there (importlib's documentation).
    sys.modules.update(dict.fromkeys(absent))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
