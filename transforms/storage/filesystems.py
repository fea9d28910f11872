"""Builds fsspec's file systems, once in each process.

They hold credentials, connections and a thread. Pickled, they would show secrets; after
a fork they would wait for a thread that does not exist. So each process builds its own.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.storage.clouds import cloud_of

# Keyed by process id. A child keeps the parent's entries without using them: if they
# were freed, a package might wait for the parent's thread to close the connections.
_systems: dict[tuple[int, str, str], Any] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def filesystem_of(url: str, options: StorageOptions = NO_OPTIONS) -> tuple[Any, str]:
    """Returns (file system, path in it) of a URL; the file system is built once.

    Raises:
      ImportError: its package is not installed.
      ValueError: the kind of storage is unknown, or does not take these options.
    """
    # Here and not above: with asyncio and ssl it is 50 ms, which local files need not pay.
    import fsspec

    cloud = cloud_of(url)
    cloud.prepare()
    if "::" in url:  # chained file systems; fsspec gives each its own options
        system, path = fsspec.core.url_to_fs(url, **options.to_dict())
        return system, str(path)
    protocol = url.partition("://")[0]
    kind = fsspec.get_filesystem_class(protocol)
    values = dict(cloud.options) | kind._get_kwargs_from_urls(url)
    for name, value in options.to_dict().items():
        known = values.get(name)
        both = isinstance(known, dict) and isinstance(value, dict)
        values[name] = {**known, **value} if both else value
    key = (os.getpid(), protocol, json.dumps(values, sort_keys=True))
    with _lock:
        if key not in _systems:
            system = kind(**values, skip_instance_cache=True)
            for name, value in cloud.attributes.items():
                setattr(system, name, value)
            _systems[key] = system
        return _systems[key], str(kind._strip_protocol(url))
