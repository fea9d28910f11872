"""Puts the shards of a dataset into a folder under the names by which TFDS finds them.

TFDS knows a split's shards by one pattern with one number of shards, and reads none that
are compressed. So a dataset with appended parts and one under gzip have no TFDS files:
here they get them, with the shards of all parts numbered in the manifest's order.
"""

from __future__ import annotations

import gzip
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from recordmill.schemas.dataset.manifest import Manifest, ShardEntry, schema_of
from recordmill.schemas.dataset.shards import ShardResult, shard_file_name
from recordmill.schemas.errors import OutputError, UsageError
from recordmill.transforms.dataset.files import (
    READ_BYTES,
    ChecksummedFile,
    class_names,
    open_file,
    require_size,
)
from recordmill.transforms.dataset.tfds_files import (
    DATASET_INFO_NAME,
    metadata_files,
    only_label,
)
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.tfrecord import FRAME_BYTES, open_stream


def export_tfds(
    store: Store,
    manifest: Manifest,
    folder: Path,
    on_progress: Callable[[float, float | None], None] | None = None,
) -> list[str]:
    """Fills a folder that tfds.builder_from_directory reads.

    Local uncompressed shards are linked: they take no space, and stay when the dataset
    goes. Others are copied and verified. dataset_info.json is written last, so TFDS finds
    nothing in a folder that is not finished.

    Args:
      store: of the dataset.
      manifest: its manifest.
      folder: that is not there, or empty.
      on_progress: told (bytes done, bytes in all) after each shard.

    Returns:
      The names of the files.

    Raises:
      UsageError: the records are no examples; or there is something in the folder.
      OutputError: a shard is not the file that the manifest describes.
    """
    if manifest.payload != "example":
        raise UsageError(
            f"{store.uri}: its records are of payload {manifest.payload}, and TFDS reads "
            "example alone. Use the program that `recordmill inspect --tf` prints, or "
            "convert with `payload` example"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder}: there is something in it; expected a folder that is not there, or "
            "an empty one. Name another one, or remove it"
        )
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    total = sum(split.bytes for split in manifest.splits.values())
    results = []
    for split, entry in manifest.splits.items():
        for number, shard in enumerate(entry.shards):
            name = shard_file_name(
                *(manifest.name, split, number, len(entry.shards)),
                container=manifest.container,
            )
            size = _put(store, shard, manifest.compression, folder / name)
            examples = size - FRAME_BYTES * shard.records
            results.append(
                ShardResult(split, number, name, shard.records, size, examples, 0)
            )
            done += shard.bytes
            if on_progress is not None:
                on_progress(done, total)
    schema = schema_of(manifest, class_names(store, manifest))
    files = metadata_files(
        manifest.name,
        manifest.version,
        schema,
        results,
        container=manifest.container,
        label=only_label(schema),
    )
    files[DATASET_INFO_NAME] = files.pop(DATASET_INFO_NAME)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [result.file for result in results] + list(files)


def _put(store: Store, shard: ShardEntry, compression: str, target: Path) -> int:
    """Puts a shard there, linked or decompressed; returns its bytes."""
    uri = store.uri_of(shard.file)
    require_size(store, shard)
    if isinstance(store, LocalStore) and compression == "none":
        try:
            os.link(Path(store.root, shard.file), target)
        except OSError:
            pass  # another disk, or a file system without links
        else:
            return shard.bytes
    with open_file(store, shard.file) as file, target.open("xb") as copy:
        checked = ChecksummedFile(file)
        stream = open_stream(cast("BinaryIO", checked), compression)
        try:
            shutil.copyfileobj(stream, copy, READ_BYTES)
            checked.drain()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OutputError(f"{uri}: {error}; run `recordmill verify`") from error
    if f"{checked.crc:08x}" != shard.crc32c:
        raise OutputError(
            f"{uri}: has CRC-32C {checked.crc:08x}, the manifest says {shard.crc32c}; run "
            "`recordmill verify` to see what is wrong"
        )
    return target.stat().st_size
