"""Compares a dataset's schema with an expected one: of a file or another dataset."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from recordmill.schemas.errors import (
    InputError,
    OutputRefusedError,
    SchemaError,
    UsageError,
)
from recordmill.schemas.feature_spec import Schema, differences, range_violations
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest, schema_of
from recordmill.schemas.names import labels_file_name
from recordmill.schemas.storage_options import NO_OPTIONS, StorageOptions
from recordmill.transforms.dataset.files import class_names, read_manifest
from recordmill.transforms.storage import LocalStore, Store, open_store
from recordmill.transforms.storage.reading import read_file


def load_expected(path: str, storage: StorageOptions = NO_OPTIONS) -> Schema:
    """Loads the schema in a schema file, or of the dataset in a folder or of a manifest.json.

    Raises:
      UsageError: the path does not exist or cannot be read.
      SchemaError, OutputError: there is no valid schema, or no whole dataset.
    """
    is_manifest = PurePosixPath(path).name == MANIFEST_NAME
    if is_manifest:
        path = path.removesuffix(MANIFEST_NAME).rstrip("/") or "."
    store = open_store(path, storage)
    is_folder = isinstance(store, LocalStore) and Path(store.root).is_dir()
    if is_manifest or is_folder or store.size(MANIFEST_NAME) is not None:
        return schema_of_dataset(store, read_manifest(store))
    try:
        data = read_file(path, storage)
    except InputError as error:
        raise UsageError(
            f"{error}; `expect_schema` takes a schema file or a dataset's folder"
        ) from error
    from recordmill.schemas.schema_file import load_schema  # imports yaml

    return load_schema(data, path).to_schema()


def require_schema(expected: Schema | None, found: Schema) -> None:
    """Checks that a dataset has the expected features; None accepts all."""
    changes = differences(expected, found) if expected else []
    if changes:
        raise SchemaError(
            "the dataset's schema differs from `expect_schema`:\n"
            + "\n".join(f"  {change}" for change in changes)
        )


def require_values(batch: pa.RecordBatch, schema: Schema, expected: Schema) -> None:
    """Checks that the values of a batch lie within the expected bounds."""
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
    if outside := range_violations(expected, observed):
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
                f"{store.uri}: {labels_file_name(feature.name)} is missing or damaged; "
                f"expected the {feature.num_classes} class names of {feature.name!r}. "
                "Convert again with `overwrite=true`"
            )
    return schema_of(manifest, names)
