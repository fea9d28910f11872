"""Reads a file of a store only if it is the version that was listed.

Each version of an object has a tag (an ETag, on Google Cloud Storage a generation, too).
S3 and Azure take the tag with the request and refuse another version; Google's answer
says which version it is. fsspec has no word for that, so each kind has its own call here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from recordmill.schemas.input_files import Seen
from recordmill.transforms.storage.clouds import cloud_of, modified_time
from recordmill.transforms.storage.errors import is_transient, is_unmet_condition
from recordmill.transforms.storage.fsspec_files import file_info
from recordmill.transforms.storage.s3_requests import get_object

# Without a tag a listing has a time, with a space between date and hour.
_TAG = re.compile(r'(?:W/)?"?([^"\s]+)"?')

_WholeFile = tuple[None, None]
_Range = tuple[int, int] | _WholeFile
_WHOLE: _WholeFile = (None, None)


class AnotherVersionError(Exception):
    """The error of a file in a store that is not the version that was listed."""


def version_of(info: Mapping[str, Any]) -> str:
    """Returns what a listing has of a file that changes when its content does, or ""."""
    for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created"):
        if info.get(key):
            return str(info[key])
    return ""


def can_read_version(url: str, seen: Seen | None) -> bool:
    """Tells whether a store can be asked for just this version of a file."""
    kind = cloud_of(url).kind
    if seen is None or not seen.version or kind not in _READERS:
        return False
    return kind == "memory" or _TAG.fullmatch(seen.version) is not None


def read_version(
    url: str,
    system: Any,
    path: str,
    seen: Seen,
    part: tuple[int, int] | None = None,
) -> bytes:
    """Returns bytes of a file in the version that was listed.

    Args:
      url: of the file; `can_read_version` holds.
      system: the file system.
      path: of the file in it.
      seen: its size and version.
      part: first byte, and one after the last; fewer are returned if the file ends
        before. None for the whole file.

    Raises:
      AnotherVersionError: there is another version now.
      FileNotFoundError: there is no such file.
    """
    wanted: _Range = _WHOLE
    if part is not None:
        # Stores answer differently to a range after the end, so never ask for one.
        wanted = part[0], min(part[1], seen.size)
        if wanted[0] >= wanted[1]:
            return b""
    try:
        return _READERS[cloud_of(url).kind](system, path, seen.version, *wanted)
    except AnotherVersionError:
        raise
    except Exception as error:
        if is_unmet_condition(error) or _was_replaced(system, path, seen, error):
            raise AnotherVersionError from error
        raise


def _was_replaced(system: Any, path: str, seen: Seen, error: Exception) -> bool:
    """Tells whether a request failed because the file is shorter by now."""
    if is_transient(error) or not (info := file_info(system, path)):
        return False
    return int(info["size"]) != seen.size


def _same(found: object, version: str) -> bool:
    return _bare(str(found)) == _bare(version)


def _bare(version: str) -> str:
    """Returns a tag without quotes: some listings have them and others do not."""
    tag = _TAG.fullmatch(version)
    return tag[1] if tag else version


def _require(found: object, version: str) -> None:
    if not _same(found, version):
        raise AnotherVersionError


def _read_s3(
    system: Any, path: str, version: str, start: int | None, stop: int | None
) -> bytes:
    wanted = {"IfMatch": f'"{_bare(version)}"'}
    if start is not None and stop is not None:
        wanted["Range"] = f"bytes={start}-{stop - 1}"
    info, data = get_object(system, path, **wanted)
    _require(info["ETag"], version)  # some servers pass over conditions
    return data


def _read_gcs(
    system: Any, path: str, version: str, start: int | None, stop: int | None
) -> bytes:
    headers = {} if start is None else {"Range": f"bytes={start}-{(stop or 0) - 1}"}
    answer, data = system.call("GET", system.url(path), headers=headers)
    if _same(answer.get("ETag"), version):
        return bytes(data)
    # Some servers answer with another tag than they list: compare generations.
    info = system.info(path)
    _require(version_of(info), version)
    if answer.get("X-Goog-Generation") == str(info["generation"]):
        return bytes(data)
    return bytes(
        system.cat_file(path, start=start, end=stop, generation=info["generation"])
    )


def _read_azure(
    system: Any, path: str, version: str, start: int | None, stop: int | None
) -> bytes:
    from azure.core import MatchConditions

    container, blob, version_id = system.split_path(path)

    async def get() -> bytes:
        async with system.service_client.get_blob_client(container, blob) as client:
            stream = await client.download_blob(
                offset=start,
                length=None if start is None or stop is None else stop - start,
                version_id=version_id,
                etag=f'"{_bare(version)}"',
                match_condition=MatchConditions.IfNotModified,
                max_concurrency=system.max_concurrency,
            )
            return bytes(await stream.readall())

    from fsspec.asyn import sync  # as in filesystems.py

    data: bytes = sync(system.loop, get)
    return data


def _read_memory(
    system: Any, path: str, version: str, start: int | None, stop: int | None
) -> bytes:
    data = system.cat_file(path, start=start, end=stop)
    if modified_time(system.info(path)) != _seconds(version):
        raise AnotherVersionError
    return bytes(data)


def _seconds(version: str) -> float:
    """Returns the time that stands for a version; listings have it in two forms."""
    try:
        return float(version)
    except ValueError:
        return datetime.fromisoformat(version).timestamp()


_READERS: Mapping[str, Callable[[Any, str, str, int | None, int | None], bytes]] = {
    "s3": _read_s3,
    "gcs": _read_gcs,
    "azure": _read_azure,
    "memory": _read_memory,
}
