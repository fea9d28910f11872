"""The files of a finished dataset: its manifest and what stands beside it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from schemas.errors import OutputError
from schemas.manifest import MANIFEST_NAME, Manifest
from transforms.storage import local_path
from transforms.tfds import labels_file_name, parse_labels


def read_manifest(output: str) -> Manifest:
    """The manifest of a finished dataset.

    Raises:
      OutputError: there is no dataset in the folder, and what is missing.
    """
    folder = local_path(output)
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "no such folder"
        raise OutputError(
            f"{output}: {found}; expected the output folder of `recordmill convert`"
        )
    try:
        with open_file(folder, MANIFEST_NAME) as file:
            data = file.read()
    except FileNotFoundError as error:
        raise OutputError(
            f"{output}: no {MANIFEST_NAME}, so this is not a finished dataset: the "
            "manifest is written last. Run `recordmill convert` (again)"
        ) from error
    except OSError as error:
        raise OutputError(
            f"{output}: {MANIFEST_NAME} cannot be read: {error}"
        ) from error
    return Manifest.from_bytes(data, f"{output}/{MANIFEST_NAME}")


def class_names(output: str, manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Class names by feature; a feature whose labels file does not fit has none."""
    names = {}
    for feature in manifest.features:
        if feature.num_classes is None:
            continue
        try:
            with open_file(local_path(output), labels_file_name(feature.name)) as file:
                found = parse_labels(file.read())
        except (OSError, UnicodeDecodeError):
            continue
        if len(found) == feature.num_classes:
            names[feature.name] = found
    return names


def open_file(folder: Path, name: str) -> BinaryIO:
    """A file of a dataset, as stored. All that is read goes through here."""
    return (folder / name).open("rb")


def file_sizes(folder: Path) -> dict[str, int]:
    """Name and size in bytes of every file of a dataset, by name."""
    return {
        path.name: path.stat().st_size
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
