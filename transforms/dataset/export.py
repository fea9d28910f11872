"""Fills a new folder, or a place in a store, with a dataset in files of another format."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from recordmill.schemas.errors import InputError, OutputError, UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.manifest import Manifest, ShardEntry, schema_of
from recordmill.schemas.names import check_file_name, shard_file_name
from recordmill.schemas.ranges import ShardResult
from recordmill.transforms.dataset.files import (
    class_names,
    open_file,
    require_size,
    require_written,
)
from recordmill.transforms.dataset.reader import ShardToRead, shards_to_read
from recordmill.transforms.dataset.tfds import (
    DATASET_INFO_NAME,
    metadata_files,
    only_label,
    with_about,
)
from recordmill.transforms.sources.hugging_face import LENGTHS
from recordmill.transforms.storage import LocalStore, Store
from recordmill.transforms.storage.errors import output_error
from recordmill.transforms.storage.local import renamed
from recordmill.transforms.storage.reading import real_uri
from recordmill.transforms.tfrecord import FRAME_BYTES

DONE_NAME = (
    "_SUCCESS"  # as Hadoop and Spark call it, and readers of tables pass over it
)

OnProgress = Callable[[float, float | None], None]  # (bytes done, bytes in all)


def audio_files(schema: Schema) -> set[str]:
    """Returns the features that are audio files, as those beside them say."""
    names = {spec.name for spec in schema.features}

    def is_audio(spec: FeatureSpec) -> bool:
        start = "" if spec.name == "audio" and LENGTHS[0] in names else f"{spec.name}/"
        return spec.dtype == "bytes" and names.issuperset(start + x for x in LENGTHS)

    return {spec.name for spec in schema.features if is_audio(spec)}


def require_empty(target: Store, store: Store) -> None:
    """Refuses a place in which there is something, or that is in the dataset's folder."""
    if f"{real_uri(target.uri)}/".startswith(f"{real_uri(store.uri)}/"):
        raise UsageError(
            f"{target.uri}: is in the folder of the dataset, {store.uri}. Name a folder "
            "beside it"
        )
    is_file = isinstance(target, LocalStore) and Path(target.root).is_file()
    level = None if is_file else target.list_level()
    if level is None or level.files or level.folders or level.linked_folders:
        raise UsageError(
            f"{target.uri}: there is something in it; expected a folder that is not "
            "there, or an empty one. Name another one, or remove it"
        )


@contextmanager
def new_file(target: Store, name: str) -> Iterator[Path]:
    """Yields where to write a file that then appears in the target, whole.

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
                renamed(opened.path_of(last)) as temporary,
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
    write: Callable[[ShardToRead, Path], None],
    on_progress: OnProgress,
) -> list[str]:
    """Writes a file for each shard, and DONE_NAME last; returns the names of all.

    `name_of` gets the split, the number of the shard in it, and how many it has.

    Raises:
      UsageError: there is something in the target.
      CorruptRecordError, OutputError: a shard is damaged.
    """
    require_empty(target, store)
    names, done = list[str](), 0
    for split, entry in manifest.splits.items():
        shards = shards_to_read(store, manifest, split)
        for number, shard in enumerate(shards):
            names.append(name_of(split, number, len(entry.shards)))
            with new_file(target, names[-1]) as path:
                write(shard, path)
            done += shard.entry.bytes
            on_progress(done, manifest.num_bytes)
    target.put_bytes(b"", DONE_NAME)
    return [*names, DONE_NAME]


# TFDS knows a split's shards by one pattern, and reads none that are compressed. A dataset
# with appended parts or gzip gets TFDS files here, with its shards numbered in their order.


def export_tfds(
    store: Store, manifest: Manifest, target: Store, on_progress: OnProgress
) -> list[str]:
    """Fills a new place that tfds.builder_from_directory reads; returns its files.

    Local uncompressed shards are linked: they take no space, and stay when the dataset
    goes. Others are copied and verified. dataset_info.json is written last, so TFDS
    finds nothing in a folder that is not finished. `on_progress` is called with (bytes
    done, bytes in all) after each shard.

    Raises:
      UsageError: the records are no examples; or there is something in the target.
      OutputError: a shard is not the file that the manifest describes.
    """
    if manifest.payload != "example":
        raise UsageError(
            f"{store.uri}: its records are of payload {manifest.payload}, and TFDS reads "
            "example alone. Use the program that `recordmill inspect --tf` prints, or "
            "convert with `payload` example"
        )
    require_empty(target, store)
    done, total = 0, manifest.num_bytes
    results = []
    for split, entry in manifest.splits.items():
        for number, shard in enumerate(entry.shards):
            name = shard_file_name(
                *(manifest.name, split, number, len(entry.shards)),
                container=manifest.container,
            )
            with new_file(target, name) as path:
                size = _put(store, shard, manifest.compression, path)
            examples = size - FRAME_BYTES * shard.records
            results.append(
                ShardResult(split, number, name, shard.records, size, examples, 0)
            )
            done += shard.bytes
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
    files[DATASET_INFO_NAME] = with_about(files.pop(DATASET_INFO_NAME), manifest.about)
    for name, data in files.items():
        target.put_bytes(data, name)
    return [result.file for result in results] + list(files)


def _put(store: Store, shard: ShardEntry, compression: str, target: Path) -> int:
    """Puts a shard there, linked or decompressed; returns its bytes."""
    require_size(store, shard)
    if isinstance(store, LocalStore) and compression == "none":
        try:
            # Of a link, as in a dataset under DVC, its target gets the new name.
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
