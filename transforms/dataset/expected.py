"""The schema that a dataset is expected to have: of a schema file, or another dataset."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest, schema_of
from recordmill.schemas.errors import InputError, OutputError, SchemaError, UsageError
from recordmill.schemas.features.compare import differences, range_violations
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.storage_options import NO_OPTIONS, StorageOptions
from recordmill.schemas.parsing.schema_file import load_schema
from recordmill.transforms.dataset.files import class_names, read_manifest
from recordmill.transforms.dataset.tfds_files import labels_file_name
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.storage.reading import read_file


def load_expected(path: str, storage: StorageOptions = NO_OPTIONS) -> Schema:
    """The schema in a schema file, or of the dataset in a folder.

    Args:
      path: of the file (YAML or pbtxt), the folder, or the folder's manifest.json.
      storage: options of its storage.

    Raises:
      UsageError: there is nothing, or it cannot be read.
      SchemaError: the file is no schema.
      OutputError: the folder holds no finished dataset, or lacks labels.
    """
    if PurePosixPath(path).name == MANIFEST_NAME:
        path = path.removesuffix(MANIFEST_NAME).rstrip("/") or "."
        return _of_dataset(open_store(path, storage))
    store = open_store(path, storage)
    if store.size(MANIFEST_NAME) is not None or _is_folder(store):
        return _of_dataset(store)
    try:
        data = read_file(path, storage)
    except InputError as error:
        raise UsageError(
            f"{error}; --expect-schema names a schema file or a dataset's folder"
        ) from error
    return load_schema(data, path).to_schema()


def _is_folder(store: Store) -> bool:
    return isinstance(store, LocalStore) and Path(store.root).is_dir()


def require_schema(expected: Schema | None, found: Schema) -> None:
    """Makes sure that a dataset's features are those expected; None expects nothing.

    Raises:
      SchemaError: with a line for each difference.
    """
    changes = differences(expected, found) if expected else []
    if changes:
        raise SchemaError(
            "the dataset is not as --expect-schema asks:\n"
            + "\n".join(f"  {change}" for change in changes)
        )


def require_values(batch: pa.RecordBatch, schema: Schema, expected: Schema) -> None:
    """Makes sure that the values of a batch lie within the bounds expected.

    Args:
      batch: the columns that the schema's features name.
      schema: features of the batch.
      expected: minimum, maximum and classes of its features are the bounds.

    Raises:
      SchemaError: with a line for each feature that has others.
    """
    observed = {}
    for feature in schema.features:
        if feature.name not in _bounded(expected):
            continue
        values = batch[feature.column]
        while pt.is_nested(values.type):
            values = values.flatten()
        if pt.is_integer(values.type) or pt.is_floating(values.type):
            lowest, highest = pc.min_max(values).values()
            if lowest.is_valid:
                observed[feature.name] = (lowest.as_py(), highest.as_py())
    if outside := range_violations(expected, observed):
        raise SchemaError(
            "values are not as --expect-schema asks:\n"
            + "\n".join(f"  {line}" for line in outside)
        )


def _bounded(expected: Schema) -> set[str]:
    return {
        feature.name
        for feature in expected.features
        if feature.minimum is not None
        or feature.maximum is not None
        or feature.class_names
    }


def _of_dataset(store: Store) -> Schema:
    return schema_of_dataset(store, read_manifest(store))


def schema_of_dataset(store: Store, manifest: Manifest) -> Schema:
    """The schema of a dataset's records, with class names.

    Raises:
      OutputError: a labels file is missing or does not fit.
    """
    names = class_names(store, manifest)
    for feature in manifest.features:
        if feature.num_classes is not None and feature.name not in names:
            raise OutputError(
                f"{store.uri}: {labels_file_name(feature.name)} with the "
                f"{feature.num_classes} class names of {feature.name!r} is missing or "
                "does not fit the manifest; `recordmill convert ... --overwrite` "
                "writes it anew"
            )
    return schema_of(manifest, names)
