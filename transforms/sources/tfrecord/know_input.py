"""Finds out what TFRecord files hold: files, splits, features, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.errors import InputError
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.job_spec import Payload
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.schemas.understood import PassedOver, Understood
from recordmill.transforms.sources.tfrecord.beside_files import BesideFiles
from recordmill.transforms.sources.tfrecord.choose_features import (
    ChosenFeatures,
    Wanted,
    choose_features,
)
from recordmill.transforms.sources.tfrecord.data_files import (
    DataFiles,
    find_data,
    folder_of,
    split_by_file,
)
from recordmill.transforms.sources.tfrecord.read_sample import read_sample
from recordmill.transforms.sources.tfrecord.references import ReferencedFile

_INFO = "dataset_info.json"  # of TFDS


@dataclass(frozen=True, slots=True)
class KnownInput:
    """What is known of the input once it was looked at.

    Attributes:
      files: those that hold records.
      splits: the split of each; "" where nothing tells it.
      all_plain: whether none is compressed.
      schema: of the records.
      payload: what they hold.
      record_bytes: of a record of the sample, on average.
      told: what the input was taken for.
      checksums: of the files beside the records that were read.
    """

    files: tuple[ReferencedFile, ...]
    splits: tuple[str, ...]
    all_plain: bool
    schema: Schema
    payload: Payload
    record_bytes: int
    told: Understood
    checksums: tuple[FileChecksum, ...]

    def number_of(self, path: str) -> int:
        """Returns the number of a file."""
        return next(n for n, file in enumerate(self.files) if file.path == path)


def know_input(
    files: Sequence[InputFile], wanted: Wanted, storage: StorageOptions
) -> KnownInput:
    """Looks at the input: names, first bytes, files beside the records, a sample.

    Raises:
      InputError: no file holds records, or they are not what the job says.
      SchemaError: the features cannot be told.
    """
    beside = BesideFiles(files, storage)
    manifests = beside.manifests()
    candidates, left_out = _named_by_manifests(files, manifests)
    data = find_data(candidates, storage)
    splits = {file.path: "" for file in data.files}
    if wanted.use_splits:
        splits = split_by_file(data.files, manifests, beside.named(_INFO))
    sample = read_sample(data.files, storage)
    chosen = choose_features(data.files, sample, manifests, beside, wanted)
    sizes = [len(record.data) for record in sample]
    return KnownInput(
        files=tuple(ReferencedFile(f.path, f.uri, f.seen) for f in data.files),
        splits=tuple(splits.values()),
        all_plain=data.all_plain,
        schema=chosen.schema,
        payload=chosen.payload,
        record_bytes=sum(sizes) // max(1, len(sizes)),
        told=_told(data, splits, chosen, wanted, left_out),
        checksums=tuple(beside.checksums.values()),
    )


def _named_by_manifests(
    files: Sequence[InputFile], manifests: Mapping[str, Manifest]
) -> tuple[list[InputFile], list[tuple[str, str]]]:
    """Separates what lies in a dataset's folder and is none of its shards.

    Raises:
      InputError: a shard that a manifest names is missing.
    """
    there = {file.path for file in files}
    shards = set()
    for folder, manifest in manifests.items():
        for name in manifest.shard_files:
            path = f"{folder}/{name}" if folder else name
            shards.add(path)
            if path not in there:
                raise InputError(
                    f"{path}: is missing, but {MANIFEST_NAME} beside it names it. Copy "
                    "the dataset again, or give the files alone, without the folder"
                )
    kept, left_out = [], []
    for file in files:
        if folder_of(file.path) in manifests and file.path not in shards:
            left_out.append(("no shard of the dataset", file.path))
        else:
            kept.append(file)
    return kept, left_out


def _told(
    data: DataFiles,
    splits: Mapping[str, str],
    chosen: ChosenFeatures,
    wanted: Wanted,
    left_out: list[tuple[str, str]],
) -> Understood:
    kept = "kept as they are, unread" if wanted.keeps else "decoded"
    facts = [("records", kept), ("features", chosen.basis)]
    packed = [f"{kind}: {count(n, 'file')}" for kind, n in data.compressions]
    if packed and not data.all_plain:
        facts.append(("compression", ", ".join(packed)))
    names = [name for name in dict.fromkeys(splits.values()) if name]
    if names:
        unnamed = sum(not split for split in splits.values())
        beside = f"; {count(unnamed, 'file')} in none" if unnamed else ""
        facts.append(("splits", f"by the names of files: {', '.join(names)}{beside}"))
    passed_over = (*data.passed_over, *PassedOver.counted(left_out))
    return Understood(tuple(facts), chosen.warnings, passed_over)
