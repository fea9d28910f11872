"""Finds out what TFRecord files hold: files, splits, features, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.errors import InputError, OutputRefusedError, SchemaError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.features.feature import FeatureSpec, Kind, Schema
from recordmill.schemas.file_checksums import FileChecksum
from recordmill.schemas.job.job_spec import Payload
from recordmill.schemas.job.storage_options import StorageOptions
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.schemas.understood import PassedOver, Understood
from recordmill.transforms.encode.payloads import check_payload
from recordmill.transforms.sources.tfrecord.data_files import (
    DataFiles,
    find_data,
    folder_of,
    split_by_file,
)
from recordmill.transforms.sources.tfrecord.options import Records
from recordmill.transforms.sources.tfrecord.read_sample import read_sample
from recordmill.transforms.sources.tfrecord.references import ReferencedFile
from recordmill.transforms.sources.tfrecord.sample_features import (
    SampledRecord,
    check_features,
    infer_features,
)
from recordmill.transforms.sources.tfrecord.stored_features import (
    manifest_schema,
    tfds_features,
)
from recordmill.transforms.storage.reading import read_range
from recordmill.transforms.tfrecord import crc32c

_RAW = Schema((FeatureSpec("record", Kind.BYTES),))
_MOST_BYTES = 64 << 20  # of a file beside the records
_INFO, _FEATURES = "dataset_info.json", "features.json"  # of TFDS


@dataclass(frozen=True, slots=True)
class KnownInput:
    """What is known of the input once it was looked at.

    Attributes:
      files: those that hold records.
      splits: the split of each; "" where nothing tells it.
      all_plain: whether none is compressed.
      schema: of the records.
      payload: what they hold.
      told: what the input was taken for.
      checksums: of the files beside the records that were read.
    """

    files: tuple[ReferencedFile, ...]
    splits: tuple[str, ...]
    all_plain: bool
    schema: Schema
    payload: Payload
    told: Understood
    checksums: tuple[FileChecksum, ...]

    def number_of(self, path: str) -> int:
        """Returns the number of a file."""
        return next(n for n, file in enumerate(self.files) if file.path == path)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job wants of the records.

    Attributes:
      records: whether they are kept or decoded.
      declared: its schema, or None.
      payload: what its records hold.
      fixed_schema: that of the dataset that they are appended to, or None.
      use_splits: whether files tell splits.
    """

    records: Records
    declared: DeclaredSchema | None
    payload: Payload
    fixed_schema: Schema | None
    use_splits: bool


def know_input(
    files: Sequence[InputFile], wanted: Wanted, storage: StorageOptions
) -> KnownInput:
    """Looks at the input: names, first bytes, files beside the records, a sample.

    Raises:
      InputError: no file holds records, or they are not what the job says.
      SchemaError: the features cannot be told.
    """
    beside = _Beside(files, storage)
    manifests = beside.manifests()
    chosen, left_out = _named_by_manifests(files, manifests)
    data = find_data(chosen, storage)
    splits = {file.path: "" for file in data.files}
    if wanted.use_splits:
        splits = split_by_file(data.files, manifests, beside.named(_INFO))
    sample = read_sample(data.files, storage)
    schema, payload, basis, warnings = _features(
        data, sample, manifests, beside, wanted
    )
    return KnownInput(
        files=tuple(ReferencedFile(f.path, f.uri, f.seen) for f in data.files),
        splits=tuple(splits.values()),
        all_plain=data.all_plain,
        schema=schema,
        payload=payload,
        told=_told(data, splits, basis, warnings, wanted, left_out),
        checksums=tuple(beside.checksums.values()),
    )


class _Beside:
    """The files beside the records, read when they are asked for."""

    def __init__(self, files: Sequence[InputFile], storage: StorageOptions) -> None:
        self._files = {file.path: file for file in files if not file.problem}
        self._storage = storage
        self.checksums: dict[str, FileChecksum] = {}

    def read(self, path: str) -> bytes | None:
        """Returns the bytes of a file, or None if it is not among the inputs."""
        file = self._files.get(path)
        if file is None or file.size > _MOST_BYTES:
            return None
        data = read_range(file.uri, 0, file.size, self._storage, file.seen)
        self.checksums[path] = FileChecksum(path, 0, file.size, crc32c(data))
        return data

    def named(self, name: str) -> dict[str, bytes]:
        """Returns the files of a name, by folder."""
        found = {}
        for path in self._files:
            if path.rpartition("/")[2] == name and (data := self.read(path)):
                found[folder_of(path)] = data
        return found

    def manifests(self) -> dict[str, Manifest]:
        """Returns the manifests of recordmill, by folder."""
        found = {}
        for folder, data in self.named(MANIFEST_NAME).items():
            try:
                found[folder] = Manifest.from_bytes(data, folder)
            except OutputRefusedError:
                continue  # another program's file of that name
        return found

    def in_folder(self, folder: str, name: str) -> bytes | None:
        return self.read(f"{folder}/{name}" if folder else name)


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


def _features(
    data: DataFiles,
    sample: Sequence[SampledRecord],
    manifests: Mapping[str, Manifest],
    beside: _Beside,
    wanted: Wanted,
) -> tuple[Schema, Payload, str, tuple[str, ...]]:
    """Returns features, payload, what told them, and warnings."""
    keeps = wanted.records == "keep"
    if keeps and wanted.payload == "raw" and wanted.declared is None:
        return wanted.fixed_schema or _RAW, "raw", "none: records are kept as bytes", ()
    own = _own_manifest(data, manifests)
    payload: Payload = own[1].payload if own else "example"
    if keeps:
        if own and payload != wanted.payload != "raw":
            raise InputError(
                f"the records of the input are of payload {payload} (its {MANIFEST_NAME} "
                f"says so), and they are kept as they are: use `payload={payload}`, or "
                "`records=decode`"
            )
        payload = wanted.payload
        if wanted.declared is not None:
            schema = _declared(wanted.declared, payload)
            check_features(sample, schema, payload, "the schema")
            return schema, payload, "declared", ()
    if wanted.fixed_schema is not None:
        if keeps:
            check_features(sample, wanted.fixed_schema, payload, "the dataset")
        return wanted.fixed_schema, payload, "as in the dataset", ()
    if own:
        folder, manifest = own
        schema = manifest_schema(manifest, partial(beside.in_folder, folder))
        return schema, payload, f"as {MANIFEST_NAME} says", ()
    if payload != "example":
        raise InputError(
            f"`payload={payload}`: the features of such records are not inferred: declare "
            "them in a `schema`, or use `payload=raw`"
        )
    stated: dict[str, FeatureSpec] = {}
    for folder, text in beside.named(_FEATURES).items():
        found = tfds_features(text, partial(beside.in_folder, folder))
        stated |= {name: spec for name, spec in found.items() if name not in stated}
    if not sample:
        raise InputError(
            f"{data.files[0].uri}: no whole record in the first bytes of "
            f"{count(len(data.files), 'file')}, so their features cannot be inferred: "
            "declare them in a `schema`, or use `payload=raw`"
        )
    inferred = infer_features(sample, stated, skip_invalid=not keeps)
    basis = f"inferred from {count(len(sample), 'record')}"
    if inferred.described:
        basis = (
            f"{inferred.described} of {len(inferred.schema)} as {_FEATURES} says, checked "
            f"by {count(len(sample), 'record')}"
        )
    warnings: tuple[str, ...] = ()
    if inferred.other:
        names = ", ".join(inferred.other[:5])
        warnings = (
            f"{_FEATURES} describes {names} otherwise than the records are: taken as "
            "they are found. To say otherwise, declare them in a `schema`",
        )
    return inferred.schema, payload, basis, warnings


def _own_manifest(
    data: DataFiles, manifests: Mapping[str, Manifest]
) -> tuple[str, Manifest] | None:
    """Returns the folder and the manifest of all files, if they have equal features."""
    folders = list(dict.fromkeys(folder_of(file.path) for file in data.files))
    found = [(folder, manifests[folder]) for folder in folders if folder in manifests]
    if not found or len(found) < len(folders):
        return None
    _, first = found[0]
    if first.payload == "raw":  # it says nothing of what the records hold
        return None
    same = all(
        (other.features, other.payload) == (first.features, first.payload)
        for _, other in found
    )
    return found[0] if same else None


def _declared(declared: DeclaredSchema, payload: Payload) -> Schema:
    """Returns a declared schema that only says what records hold.

    Raises:
      SchemaError: it would change them.
    """
    for name, feature in declared.features.items():
        is_made = (
            bool(feature.bytes_from or feature.separator or feature.unit)
            or feature.default is not None
            or feature.cell != "plain"
        )
        if is_made or declared.column_of(name) != name:
            raise SchemaError(
                f"feature {name!r}: its declaration makes it from something else (a "
                "column of another name, text, a default), but the records are kept as "
                "they are: use `records=decode`"
            )
    schema = declared.to_schema()
    check_payload(schema, payload)
    return schema


def _told(
    data: DataFiles,
    splits: Mapping[str, str],
    basis: str,
    warnings: tuple[str, ...],
    wanted: Wanted,
    left_out: list[tuple[str, str]],
) -> Understood:
    kept = "kept as they are, unread" if wanted.records == "keep" else "decoded"
    facts = [("records", kept), ("features", basis)]
    packed = [f"{kind}: {count(n, 'file')}" for kind, n in data.compressions]
    if packed and not data.all_plain:
        facts.append(("compression", ", ".join(packed)))
    names = [name for name in dict.fromkeys(splits.values()) if name]
    if names:
        unnamed = sum(not split for split in splits.values())
        beside = f"; {count(unnamed, 'file')} in none" if unnamed else ""
        facts.append(("splits", f"by the names of files: {', '.join(names)}{beside}"))
    passed_over = (*data.passed_over, *PassedOver.counted(left_out))
    return Understood(tuple(facts), warnings, passed_over)
