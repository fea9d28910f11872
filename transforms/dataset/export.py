"""Exports a dataset in files of another format to a new folder or location in a store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import InputError, OutputError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.manifest import Manifest, ManifestShard, schema_of
from recordmill.schemas.names import check_file_name, shard_file_name
from recordmill.schemas.ranges import ShardResult
from recordmill.transforms.dataset.files import (
    class_names,
    open_file,
    require_size,
    require_written,
)
from recordmill.transforms.dataset.reader import ReadableShard, shards_to_read
from recordmill.transforms.dataset.tfds import (
    DATASET_INFO_NAME,
    metadata_files,
    only_label,
    replace_about,
)
from recordmill.transforms.sources.hugging_face import LENGTHS
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.local import write_then_rename
from recordmill.transforms.storage.reading import real_uri
from recordmill.transforms.tfrecord import FRAME_BYTES

DONE_NAME = "_SUCCESS"  # the name in Hadoop and Spark, which readers of tables skip

OnProgress = Callable[[float, float | None], None]  # (bytes done, total bytes)


def audio_files(schema: Schema) -> set[str]:
    """Returns the features that are audio files, by the names of related features."""
    names = {spec.name for spec in schema.features}

    def is_audio(spec: FeatureSpec) -> bool:
        start = "" if spec.name == "audio" and LENGTHS[0] in names else f"{spec.name}/"
        return spec.dtype == "bytes" and names.issuperset(
            start + suffix for suffix in LENGTHS
        )

    return {spec.name for spec in schema.features if is_audio(spec)}


def require_empty(target: Store, store: Store) -> None:
    """Raises UsageError if a target is not empty, or is in the dataset's folder."""
    if f"{real_uri(target.uri)}/".startswith(f"{real_uri(store.uri)}/"):
        raise UsageError(
            f"{target.uri}: is inside the folder of the dataset, {store.uri}. Choose a "
            "folder next to it"
        )
    is_file = isinstance(target, LocalStore) and Path(target.root).is_file()
    level = None if is_file else target.list_level()
    if level is None or level.files or level.folders or level.linked_folders:
        raise UsageError(
            f"{target.uri}: is not empty; expected a new or an empty folder. Choose "
            "another folder, or remove this one"
        )


@contextmanager
def new_file(target: Store, name: str) -> Iterator[Path]:
    """Yields a path to write to; the complete file then appears in the target.

    Raises:
      OutputRefusedError: the name leads out of the target.
      OutputError: the file cannot be written.
    """
    check_file_name(name, target.uri)
    if isinstance(target, LocalStore):
        folder, _, last = name.rpartition("/")
        try:
            with (
                target.open_to_write(folder, create=True) as opened,
                write_then_rename(opened.path_of(last)) as temporary,
            ):
                yield temporary
        except OSError as error:
            raise output_error(error, target.uri_of(name), "written") from error
        return
    with TemporaryDirectory(prefix="recordmill-") as folder:
        path = Path(folder, "file")
        yield path
        target.put_file(path, name)


def export_shards(
    store: Store,
    manifest: Manifest,
    target: Store,
    name_of: Callable[[str, int, int], str],
    write: Callable[[ReadableShard, Path], None],
    on_progress: OnProgress,
) -> list[str]:
    """Writes a file for each shard, and DONE_NAME last; returns the names of all files.

    `name_of` is called with a split, the index of a shard, and the number of shards.

    Raises:
      UsageError: the target is not empty.
      CorruptRecordError, OutputError: a shard is damaged.
    """
    require_empty(target, store)
    names, done = list[str](), 0
    for split, split_entry in manifest.splits.items():
        shards = shards_to_read(store, manifest, split)
        for number, shard in enumerate(shards):
            names.append(name_of(split, number, len(split_entry.shards)))
            with new_file(target, names[-1]) as path:
                write(shard, path)
            done += shard.entry.bytes
            on_progress(done, manifest.num_bytes)
    target.put_bytes(b"", DONE_NAME)
    return [*names, DONE_NAME]


# TFDS finds the shards of a split by one pattern and cannot read compressed ones. So the
# export of a dataset with appended parts or gzip has uncompressed shards, numbered in
# order.


def export_tfds(
    store: Store, manifest: Manifest, target: Store, on_progress: OnProgress
) -> list[str]:
    """Exports a dataset for tfds.builder_from_directory; returns the names of its files.

    Local uncompressed shards are hard links: they take no space, and stay if the dataset
    is removed. Other shards are copied and verified. dataset_info.json is written last,
    so that TFDS finds no dataset in an unfinished folder. `on_progress` is called with
    (bytes done, total bytes) after each shard.

    Raises:
      UsageError: the records are not examples, or the target is not empty.
      OutputError: a shard is not the file that the manifest describes.
    """
    if manifest.payload != "example":
        raise UsageError(
            f"{store.uri}: its records have payload {manifest.payload}, and TFDS reads "
            "only example. Use the program that `recordmill inspect --tf` prints, or "
            "convert with `payload=example`"
        )
    require_empty(target, store)
    done, total = 0, manifest.num_bytes
    shard_results = []
    for split, split_entry in manifest.splits.items():
        for number, shard in enumerate(split_entry.shards):
            name = shard_file_name(
                *(manifest.name, split, number, len(split_entry.shards)),
                container=manifest.container,
            )
            with new_file(target, name) as path:
                size = _copy_shard(store, shard, manifest.compression, path)
            examples = size - FRAME_BYTES * shard.records
            shard_results.append(
                ShardResult(split, number, name, shard.records, size, examples, 0)
            )
            done += shard.bytes
            on_progress(done, total)
    schema = schema_of(manifest, class_names(store, manifest))
    files = metadata_files(
        manifest.name,
        manifest.version,
        schema,
        shard_results,
        container=manifest.container,
        label=only_label(schema),
    )
    files[DATASET_INFO_NAME] = replace_about(
        files.pop(DATASET_INFO_NAME), manifest.about
    )
    for name, content in files.items():
        target.put_bytes(content, name)
    return [shard_result.file for shard_result in shard_results] + list(files)


def _copy_shard(
    store: Store, shard: ManifestShard, compression: str, target: Path
) -> int:
    """Creates a hard link to a shard, or a decompressed copy; returns its size."""
    require_size(store, shard)
    if isinstance(store, LocalStore) and compression == "none":
        try:
            # If the shard is a link, as in a dataset under DVC, link its target.
            os.link(os.path.realpath(Path(store.root, shard.file)), target)
        except OSError:
            pass  # another disk, or a file system without links
        else:
            return shard.bytes
    with open_file(store, shard.file, compression) as file, target.open("xb") as copy:
        try:
            shutil.copyfileobj(file, copy, 1 << 20)
        except InputError as error:
            raise OutputError(f"{error}; run `recordmill verify`") from error
        require_written(file, shard)
    return target.stat().st_size
