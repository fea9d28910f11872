"""File systems of fsspec, built where they are used and never carried elsewhere.

They hold credentials, connections and a thread: pickled they would show secrets, after
a fork they would wait for a thread that is not there. So each process builds its own.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import fsspec

from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.storage.clouds import cloud_of

# By process: what a parent built stays in a child, as letting go of it could make its
# package wait for the parent's thread to close the connections.
_systems: dict[tuple[int, str, str], Any] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def filesystem_of(url: str, options: StorageOptions = NO_OPTIONS) -> tuple[Any, str]:
    """The file system of a url, and the path in it. Costs nothing the second time.

    Raises:
      ImportError: its package is not installed.
      ValueError: no such kind of storage, or options it does not take.
    """
    cloud = cloud_of(url)
    cloud.prepare()
    if "::" in url:  # chained; fsspec sorts out whose options are whose
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
