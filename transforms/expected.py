"""The schema that a dataset is expected to have: of a schema file, or another dataset."""

from __future__ import annotations

from pathlib import Path

from schemas.errors import OutputError, UsageError
from schemas.features import Schema
from schemas.manifest import MANIFEST_NAME, schema_of
from schemas.schema_file import load_schema
from transforms.peek import class_names
from transforms.storage import local_path
from transforms.tfds import labels_file_name
from transforms.verify import read_manifest


def load_expected(path: str) -> Schema:
    """The schema in a schema file, or of the dataset in a folder.

    Args:
      path: of the file (YAML or pbtxt), the folder, or the folder's manifest.json.

    Raises:
      UsageError: there is nothing, or it cannot be read.
      SchemaError: the file is no schema.
      OutputError: the folder holds no finished dataset, or lacks labels.
    """
    place = local_path(path)
    if place.is_dir():
        return _of_dataset(path)
    if place.name == MANIFEST_NAME:
        return _of_dataset(str(place.parent))
    return load_schema(_contents(place), path).to_schema()


def _of_dataset(folder: str) -> Schema:
    manifest = read_manifest(folder)
    names = class_names(folder, manifest)
    for feature in manifest.features:
        if feature.num_classes is not None and feature.name not in names:
            raise OutputError(
                f"{folder}: {labels_file_name(feature.name)} with the "
                f"{feature.num_classes} class names of {feature.name!r} is missing or "
                "does not fit the manifest; `recordmill convert ... --overwrite` "
                "writes it anew"
            )
    return schema_of(manifest, names)


def _contents(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{place}: no such file; expected a schema file or a dataset's folder"
        ) from error
    except OSError as error:
        raise UsageError(f"{place}: cannot be read: {error.strerror}") from error
