"""Removes one version of an object, as each kind of remote storage takes that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recordmill.transforms.storage.storage_errors import is_unmet_condition


def remove_version(kind: str, system: Any, path: str, info: Mapping[str, Any]) -> bool:
    """Removes an object if it still has one version.

    A server that passes over the condition removes whatever is there.

    Args:
      kind: of the storage.
      system: the file system.
      path: of the object in it.
      info: of the version.

    Returns:
      Whether it did; otherwise there is another version, or none.
    """
    try:
        if kind == "s3":
            bucket, key, _ = system.split_path(path)
            system.call_s3(
                "delete_object", Bucket=bucket, Key=key, IfMatch=info["ETag"]
            )
        elif kind == "gcs":
            bucket, key, _ = system.split_path(path)
            generation = str(info["generation"])
            system.call(
                "DELETE", "b/{}/o/{}", bucket, key, ifGenerationMatch=generation
            )
        elif kind == "azure":
            from fsspec.asyn import sync  # as in filesystems.py

            sync(system.loop, _remove_from_azure, system, path, info["etag"])
        else:  # memory: compared before, and guarded
            system.rm_file(path)
    except FileNotFoundError:
        return False
    except Exception as error:
        if not is_unmet_condition(error):
            raise
        return False
    return True


async def _remove_from_azure(system: Any, path: str, etag: str) -> None:
    from azure.core import MatchConditions
    from azure.core.exceptions import ResourceNotFoundError

    container, name, _ = system.split_path(path)
    client = system.service_client.get_container_client(container=container)
    same = MatchConditions.IfNotModified
    try:
        async with client:
            await client.delete_blob(name, etag=etag, match_condition=same)
    except ResourceNotFoundError as error:
        raise FileNotFoundError(path) from error
