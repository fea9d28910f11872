"""The first examples of a finished dataset, and the names of its classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.errors import OutputError
from schemas.manifest import Manifest
from transforms.decode import Values, decode_example
from transforms.storage import local_path
from transforms.tfds import labels_file_name, parse_labels
from transforms.tfrecord import open_stream, read_records
from transforms.verify import open_file


@dataclass(frozen=True, slots=True)
class FoundExample:
    """One example: where it was read, and the values of its features."""

    split: str
    file: str
    record_index: int
    values: dict[str, Values]


def first_examples(
    output: str, manifest: Manifest, num_examples: int
) -> Iterator[FoundExample]:
    """The first examples in the order of splits and shards.

    Raises:
      OutputError: a shard cannot be opened, or a record is no example.
      CorruptRecordError: one of the first records is damaged.
    """
    left = num_examples
    for split, entry in manifest.splits.items():
        for shard in entry.shards:
            if left <= 0:
                return
            try:
                file = open_file(local_path(output), shard.file)
            except OSError as error:
                raise OutputError(
                    f"{output}: {shard.file} cannot be read: {error.strerror}; "
                    "`recordmill verify` says what else is missing"
                ) from error
            with file:
                stream = open_stream(file, manifest.compression)
                for index, data in enumerate(read_records(stream, shard.file)):
                    yield FoundExample(split, shard.file, index, decode_example(data))
                    left -= 1
                    if left <= 0:
                        return


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
