"""Reads the files of a finished dataset, and compares its schema with an expected one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.dataset_text import parse_class_names
from recordmill.schemas.errors import (
    InputError,
    MissingDatasetError,
    MissingFileError,
    OutputError,
    OutputRefusedError,
    ReplacedDatasetError,
    SchemaError,
    UsageError,
)
from recordmill.schemas.feature_spec import (
    Schema,
    compare_schemas,
    find_range_violations,
)
from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestFile,
    ManifestShard,
    schema_of,
)
from recordmill.schemas.names import REJECTS_NAME, parse_rejects_commit_id
from recordmill.schemas.source_options import IGNORE_COLUMNS_HINT
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.text import format_count
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.storage.input_stream import InputStream
from recordmill.transforms.storage.reading import read_file
from recordmill.transforms.storage.store import WORK_FOLDER, Data
from recordmill.transforms.tfrecord import crc32c

_READ_BYTES = 4 << 20  # bytes of a file that are read together
_MAX_FOLDERS = 100  # folders that are searched for datasets, for a message


def find_manifest(store: Store, name: str = MANIFEST_NAME) -> Manifest | None:
    """Reads a manifest, by default of a finished dataset; None if there is none.

    Raises:
      OutputError: the file is not a manifest.
    """
    manifest_bytes = store.read_if_exists(name)
    return (
        None
        if manifest_bytes is None
        else Manifest.from_bytes(manifest_bytes, store.uri_of(name))
    )


def read_manifest(store: Store, name: str = MANIFEST_NAME) -> Manifest:
    """Reads a manifest that must exist, by default of a finished dataset."""
    if isinstance(store, LocalStore) and not Path(store.root).is_dir():
        actual = "is a file" if Path(store.root).exists() else "no such folder"
        raise MissingDatasetError(
            f"{store.uri}: {actual}; expected the output folder of `recordmill convert`"
        )
    manifest = find_manifest(store, name)
    if manifest is None:
        if datasets := _datasets_in(store):
            raise MissingDatasetError(
                f"{store.uri}: a folder with {format_count(len(datasets), 'dataset')}; "
                f"expected one of them: {', '.join(datasets)}"
            )
        raise MissingDatasetError(
            f"{store.uri}: no {name}, so this is not a finished dataset (the manifest is "
            "written last). Run `recordmill convert` (again)"
        )
    return manifest


def _datasets_in(store: Store) -> list[str]:
    """Returns the URIs of the first datasets in a folder."""
    folders = islice(sorted(store.list_level().folders), _MAX_FOLDERS)
    folder_stores = [store.subfolder_store(folder) for folder in folders]
    return [
        folder_store.uri
        for folder_store in folder_stores
        if folder_store.size(MANIFEST_NAME) is not None
    ]


def require_size(store: Store, shard: ManifestShard) -> None:
    """Checks that a shard exists and has the size that the manifest records.

    Raises:
      ReplacedDatasetError: the shard is missing, and the current manifest does not list it.
      OutputError: the shard is missing, or has another size.
    """
    size = store.size(shard.file)
    if size is None:
        require_listed(store, shard)
    if size != shard.bytes:
        actual = "is missing" if size is None else f"has {size} bytes"
        raise OutputError(
            f"{store.uri_of(shard.file)}: {actual}, the manifest records {shard.bytes} "
            "bytes; run `recordmill verify` to see what else is wrong"
        )


def require_listed(store: Store, shard: ManifestShard) -> None:
    """Checks that the current manifest still lists a shard of an earlier read of it.

    Raises:
      ReplacedDatasetError: it does not, because a run has published another dataset.
    """
    manifest = find_manifest(store)
    if manifest is not None and shard.file not in manifest.shard_files:
        raise ReplacedDatasetError(
            f"{store.uri}: the dataset was replaced during the read, and "
            f"{shard.file} was removed since: open the dataset again"
        )


def rejects_files(store: Store, manifest: Manifest) -> dict[str, int]:
    """Returns the files of the kept rejects: name to size.

    Files of other commits, which stay until they are cleaned up, are excluded. Staged
    files have no commit id yet.
    """
    if manifest.rejects is None:
        return {}
    files, marks = store.list(REJECTS_NAME), manifest.rejects.marks
    return {
        name: size
        for name, size in files.items()
        if not marks or parse_rejects_commit_id(name) in marks
    }


def read_fixed(store: Store, manifest: Manifest, name: str) -> bytes:
    """Reads a dataset's file with a fixed name, such as inputs.jsonl.gz.

    If the file is not the one in the manifest, because a run was killed before it put the
    file in place, the commit's copy is read. If the manifest does not list the file, the
    copy is read whenever it exists.
    """
    content, expected = store.read_if_exists(name), manifest.files.get(name)
    if expected is None or not matches_entry(content, expected):
        copy = store.read_if_exists(fixed_copy_name(manifest.commit_id, name))
        content = content if copy is None else copy
    if content is None:
        raise MissingFileError(f"{store.uri_of(name)}: is missing")
    return content


def fixed_copy_name(mark: str, name: str) -> str:
    """Returns the name of a commit's copy of a file, by the commit id `mark`."""
    return f"{WORK_FOLDER}/commit-{mark}/files/{name}"


def replaced_name(mark: str) -> str:
    """Returns the name of a commit's copy of the manifest that it replaced."""
    return f"{WORK_FOLDER}/commit-{mark}/replaced.json"


def file_entry(data: Data) -> ManifestFile:
    """Returns the manifest entry of a file with these bytes."""
    return ManifestFile(bytes=len(data), crc32c=f"{crc32c(data):08x}")


def matches_entry(data: Data | None, expected: ManifestFile) -> bool:
    """Checks whether a file's bytes match its manifest entry."""
    return data is not None and file_entry(data) == expected


def class_names(store: Store, manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Returns class names by feature; skips features with a damaged labels file."""
    names = {}
    for feature in manifest.features:
        if feature.num_classes is None:
            continue
        file = feature.labels_file
        try:
            labels_text = read_fixed(store, manifest, file)
            classes = parse_class_names(labels_text, store.uri_of(file))
        except OutputError:
            continue
        if len(classes) == feature.num_classes:
            names[feature.name] = classes
    return names


def open_file(
    store: Store,
    name: str,
    compression: str = "none",
    on_bytes: Callable[[int], None] = lambda _: None,
) -> InputStream:
    """Opens a file of a dataset for reading from start to end, with a checksum.

    `on_bytes` is called after each read with the number of new bytes.
    """
    size, done = store.size(name), 0
    if size is None:
        raise MissingFileError(
            f"{store.uri_of(name)}: no such file; run `recordmill verify` to see what else "
            "is missing"
        )

    def read(start: int, stop: int) -> bytes:
        nonlocal done
        block = store.read_range(name, start, stop)
        on_bytes(max(0, start + len(block) - done))
        done = max(done, start + len(block))
        return block

    return InputStream(
        read,
        size,
        uri=store.uri_of(name),
        compression="" if compression == "none" else compression,
        window_bytes=_READ_BYTES,
    )


def require_written(
    file: InputStream, shard_entry: ManifestShard, num_records: int | None = None
) -> None:
    """Reads the remaining bytes of a file, and checks that it is the written shard.

    `num_records` is the number of whole records found, or None if they were not counted.
    """
    crc32c = f"{file.checksum_of_part():08x}"
    actual, expected = f"CRC-32C {crc32c}", shard_entry.crc32c
    explanation = "this is not the file that was written. Convert again or restore it"
    if num_records is None:
        explanation += "; `recordmill verify` shows what else is damaged"
    else:
        actual = f"{format_count(num_records, 'record')} and {actual}"
        expected = f"{shard_entry.records:,} and {expected}"
        explanation = f"no record is damaged, but {explanation}"
    if crc32c != shard_entry.crc32c or num_records not in (None, shard_entry.records):
        raise OutputError(
            f"{file.uri}: {actual}, the manifest records {expected}: {explanation}"
        )


def load_expected(path: str, storage: StorageOptions = NO_OPTIONS) -> Schema:
    """Loads the schema of a schema file, or of the dataset in a folder.

    Raises:
      UsageError: the path does not exist or cannot be read.
      SchemaError, OutputError: the schema is invalid, or the dataset is damaged.
    """
    is_manifest = PurePosixPath(path).name == MANIFEST_NAME
    if is_manifest:
        path = path.removesuffix(MANIFEST_NAME).rstrip("/") or "."
    store = open_store(path, storage)
    is_folder = isinstance(store, LocalStore) and Path(store.root).is_dir()
    if is_manifest or is_folder or store.size(MANIFEST_NAME) is not None:
        return schema_of_dataset(store, read_manifest(store))
    try:
        schema_text = read_file(path, storage)
    except InputError as error:
        raise UsageError(
            f"{error}; `expect_schema` takes a schema file or a dataset's folder"
        ) from error
    from recordmill.schemas.schema_file import load_schema  # imports yaml

    return load_schema(schema_text, path).to_schema()


def require_schema(
    expected: Schema | None, schema: Schema, job: JobSpec, notes: Sequence[str] = ()
) -> None:
    """Checks that a job's dataset has the expected features; None accepts all.

    `notes` are possible causes of a change, for the message.
    """
    changes = compare_schemas(expected, schema) if expected else []
    if changes and expected:
        expected_names = {feature.name for feature in expected.features}
        has_new = any(feature.name not in expected_names for feature in schema.features)
        if has_new and getattr(job.source_options, "extra_columns", "") == "error":
            notes = (*notes, f"{IGNORE_COLUMNS_HINT}, or add it to the schema")
        raise SchemaError(
            "the dataset's schema differs from `expect_schema`:\n"
            + "\n".join(f"  {change}" for change in (*changes, *notes))
        )


def require_values(batch: pa.RecordBatch, schema: Schema, expected: Schema) -> None:
    """Checks that the values of a batch are within the expected bounds."""
    bounded = {
        feature.name
        for feature in expected.features
        if (feature.minimum, feature.maximum) != (None, None) or feature.class_names
    }
    observed = {}
    for feature in schema.features:
        if feature.name not in bounded:
            continue
        values = batch[feature.column]
        while pt.is_nested(values.type):
            values = values.flatten()
        if pt.is_integer(values.type) or pt.is_floating(values.type):
            lowest, highest = pc.min_max(values).values()
            if lowest.is_valid:
                observed[feature.name] = (lowest.as_py(), highest.as_py())
    if outside := find_range_violations(expected, observed):
        raise SchemaError(
            "values are outside the bounds of `expect_schema`:\n"
            + "\n".join(f"  {line}" for line in outside)
        )


def schema_of_dataset(store: Store, manifest: Manifest) -> Schema:
    """Returns the schema of a dataset's records, with the names of all classes."""
    names = class_names(store, manifest)
    for feature in manifest.features:
        if feature.num_classes is not None and feature.name not in names:
            raise OutputRefusedError(
                f"{store.uri}: {feature.labels_file} is missing or damaged; "
                f"expected the {feature.num_classes} class names of {feature.name!r}. "
                "Convert again with `overwrite=true`"
            )
    return schema_of(manifest, names)
