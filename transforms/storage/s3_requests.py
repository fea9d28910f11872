"""Asks S3 for single files and listings, with one request for each question.

s3fs asks more: where there is no object, it looks for a folder of that name; before it
reads one it asks for its size; where a folder is empty, it lists the one above. A store
answers in some 50 ms, and a small run asks a hundred times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

_BULK = 1000  # most keys that DeleteObjects takes


def speaks_s3(system: Any) -> bool:
    """Tells whether a file system of fsspec is that of S3."""
    return hasattr(system, "call_s3")


def head_object(system: Any, path: str) -> dict[str, Any]:
    """Returns what S3 tells of an object, as s3fs' `info` does.

    Raises:
      FileNotFoundError: there is no such object.
    """
    bucket, key, _ = system.split_path(path)
    found = system.call_s3("head_object", Bucket=bucket, Key=key)
    return {
        "name": path,
        "type": "file",
        "size": found["ContentLength"],
        "ETag": found["ETag"],
        "LastModified": found["LastModified"],
    }


def get_object(
    system: Any, path: str, **conditions: str
) -> tuple[dict[str, Any], bytes]:
    """Returns an object, or a part of it, and the tag of that very version.

    Args:
      system: the file system.
      path: of the object in it.
      conditions: more of the request, such as Range or IfMatch.

    Raises:
      FileNotFoundError: there is no such object.
    """
    bucket, key, version_id = system.split_path(path)
    question = {"Bucket": bucket, "Key": key, **conditions}
    if version_id is not None:
        question["VersionId"] = version_id

    async def get() -> tuple[dict[str, Any], bytes]:
        answer = await system._call_s3("get_object", **question)
        async with answer["Body"] as body:
            return {"ETag": answer["ETag"]}, bytes(await body.read())

    from fsspec.asyn import sync  # as in filesystems.py

    info, data = sync(system.loop, get)
    return info, data


def list_objects(
    system: Any, path: str, *, deep: bool, page: int = 1000
) -> Iterator[dict[str, Any]]:
    """Yields what lies below a folder, as entries of fsspec's listings.

    Args:
      system: the file system.
      path: of the folder.
      deep: whether to list its subfolders, too; otherwise they are entries.
      page: most entries that one answer holds.

    Raises:
      FileNotFoundError: there is no such bucket.
    """
    bucket, key, _ = system.split_path(path)
    question = {"Bucket": bucket, "Prefix": f"{key.rstrip('/')}/" if key else ""}
    if not deep:
        question["Delimiter"] = "/"
    while True:
        answer = system.call_s3("list_objects_v2", MaxKeys=page, **question)
        for found in answer.get("Contents", ()):
            name = f"{bucket}/{found['Key']}"
            yield {"name": name, "type": "file", "size": found["Size"]}
        for found in answer.get("CommonPrefixes", ()):
            name = f"{bucket}/{found['Prefix']}"
            yield {"name": name, "type": "directory", "size": 0}
        if not answer.get("IsTruncated"):
            return
        question["ContinuationToken"] = answer["NextContinuationToken"]


def delete_objects(system: Any, paths: Sequence[str]) -> list[str]:
    """Removes objects of one bucket, a thousand with each request.

    Args:
      system: the file system.
      paths: of the objects; one that is missing counts as removed.

    Returns:
      The paths of those that S3 did not remove, for whatever reason.
    """
    left: list[str] = []
    for start in range(0, len(paths), _BULK):
        keys = {system.split_path(path)[1]: path for path in paths[start:][:_BULK]}
        bucket, _, _ = system.split_path(paths[start])
        wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        try:
            answer = system.call_s3("delete_objects", Bucket=bucket, Delete=wanted)
        except OSError:  # some servers that speak S3 do not know this request
            left += keys.values()
        else:
            left += [keys[error["Key"]] for error in answer.get("Errors", ())]
    return left
