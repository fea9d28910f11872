"""Defines the manifest, a dataset's table of contents, and joins manifests of parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from recordmill.schemas.declared import FrozenModel
from recordmill.schemas.feature_spec import (
    STORED_KEYS,
    STORED_KEYS_IF_USED,
    FeatureSpec,
    Schema,
)
from recordmill.schemas.foreign_text import ForeignText
from recordmill.schemas.job import AboutKey, Description, Seed, Version
from recordmill.schemas.names import (
    COMMIT_ID_PATTERN,
    MAX_APPENDS,
    MAX_SHARDS,
    check_file_name,
    format_commit_id,
    index_file_name,
    published_file_name,
    shard_file_name,
)
from recordmill.schemas.options import Container, Payload
from recordmill.schemas.ranges import NO_REJECTS, RejectTotals
from recordmill.schemas.text import format_json

MANIFEST_NAME = "manifest.json"
CARD_NAME = "croissant.json"
MANIFEST_VERSION: Final = 1
_MAX_DIMENSION = 1 << 31  # limit for each dimension of a shape and for class indices
_ADVICE = (
    "Copy the dataset again from its original location, or convert again with "
    "`overwrite=true`"
)


class _ManifestSection(FrozenModel):
    """A section of the manifest, which may omit fields that have their default."""

    _omitted: ClassVar[tuple[str, ...]] = ()  # fields omitted if they have the default

    @model_serializer(mode="wrap")
    def _omit_defaults(
        self, serialize: SerializerFunctionWrapHandler
    ) -> dict[str, Any]:
        fields: dict[str, Any] = serialize(self)
        for name in self._omitted:
            if getattr(self, name) == type(self).model_fields[name].default:
                fields.pop(name, None)
        return fields


Count = Annotated[int, Field(ge=0, lt=1 << 63)]
PlainName = Annotated[str, AfterValidator(partial(check_file_name, plain=True))]
Crc32c = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$")]
CommitId = Annotated[str, Field(pattern=f"^{COMMIT_ID_PATTERN}$")]


class ManifestFile(_ManifestSection):
    """A metadata file next to the shards: size in bytes and CRC-32C (8 hex digits)."""

    bytes: Count
    crc32c: Crc32c


class ManifestShard(_ManifestSection):
    """A shard: file name, number of records, size in bytes and CRC-32C (8 hex digits).

    `index` is the index file that was written with the shard, if any; an index file that
    `recordmill index` writes later is not listed. Datasets with a card have `sha256`.
    """

    file: PlainName
    records: Count
    bytes: Count
    crc32c: Crc32c
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    index: ManifestFile | None = None

    _omitted = ("sha256", "index")


class ManifestSplit(_ManifestSection):
    """A split: its totals, and its shards in order."""

    records: Count
    bytes: Count
    shards: tuple[ManifestShard, ...]


class ManifestRejects(_ManifestSection):
    """The totals of all kept rejects, independent of their files (see RejectTotals).

    The digest is 16 hex digits. `marks` are the IDs of the commits with rejects files.
    """

    rows: Count
    bytes: Count
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    marks: tuple[CommitId, ...] = ()

    @classmethod
    def from_totals(
        cls, totals: RejectTotals, marks: tuple[str, ...] = ()
    ) -> ManifestRejects | None:
        """Creates the section for these rejects, or returns None if there are none."""
        digest = f"{totals.digest:016x}"
        if not totals.rows:
            return None
        return cls(rows=totals.rows, bytes=totals.bytes, digest=digest, marks=marks)

    _omitted = ("marks",)

    @property
    def totals(self) -> RejectTotals:
        return RejectTotals(self.rows, self.bytes, int(self.digest, 16))


# Keys in JSON that differ from the fields of FeatureSpec.
_FIELD_OF_KEY = {"sequence": "is_sequence", "nested": "is_nested"}


def _check_feature_keys(feature: Any) -> Any:
    """Checks the keys of a feature in JSON, and returns the fields of FeatureSpec."""
    if isinstance(feature, dict):
        if missing_keys := [key for key in STORED_KEYS if key not in feature]:
            raise ValueError(f"lacks {', '.join(missing_keys)}")
        if unknown_keys := sorted(
            feature.keys() - {*STORED_KEYS, *STORED_KEYS_IF_USED}
        ):
            raise ValueError(f"unknown keys: {', '.join(unknown_keys)}")
        return {_FIELD_OF_KEY.get(key, key): field for key, field in feature.items()}
    return feature


def _check_feature_sizes(feature: FeatureSpec) -> FeatureSpec:
    """Checks the sizes by which readers create arrays, because JSON has no bounds."""
    sizes = [size for size in (*feature.shape, feature.num_classes) if size is not None]
    if invalid_sizes := [size for size in sizes if not 0 <= size < _MAX_DIMENSION]:
        raise ValueError(
            f"shape and num_classes: expected numbers from 0 to {_MAX_DIMENSION - 1}, "
            f"found {invalid_sizes[0]}"
        )
    return feature


StoredFeature = Annotated[
    FeatureSpec,
    BeforeValidator(_check_feature_keys),
    AfterValidator(_check_feature_sizes),
    AfterValidator(FeatureSpec.as_stored),
    PlainSerializer(FeatureSpec.manifest_fields),
]


class MapTotals(_ManifestSection):
    """The numbers of rows that a function (`map`) dropped and added, and the features."""

    rows_dropped: Count
    rows_added: Count
    features: tuple[StoredFeature, ...]


class SamplingTotals(_ManifestSection):
    """The numbers of rows that sampling dropped and copied."""

    rows_left_out: Count
    rows_copied: Count = 0

    _omitted = ("rows_copied",)


def count_row_changes(
    map_totals: MapTotals | None, sampling_totals: SamplingTotals | None
) -> tuple[int, str]:
    """Returns the difference between written and read rows, and the reasons as text."""
    number, reasons = 0, ""
    if map_totals is not None:
        number += map_totals.rows_added - map_totals.rows_dropped
        reasons += f", {map_totals.rows_dropped:,} dropped and {map_totals.rows_added:,} added by map"
    if sampling_totals is not None:
        number += sampling_totals.rows_copied - sampling_totals.rows_left_out
        reasons += f", {sampling_totals.rows_left_out:,} left out by sampling"
        reasons += (
            f" and {sampling_totals.rows_copied:,} copied"
            if sampling_totals.rows_copied
            else ""
        )
    return number, reasons


class Manifest(_ManifestSection):
    """The table of contents of a dataset; the same run always writes the same bytes.

    `generation` is the number of earlier commits in the folder, so that each commit has
    its own file names. The shards of a split are the shards of the first run, then the
    shards of each append (see recordmill.schemas.names). `files` are the metadata files
    except run.json, whose bytes differ between runs. `rejects` are the kept rejects.

    A manifest may come from anybody. Every text in it that becomes a part of a file name,
    here or in an export, is checked when the manifest is read: `name`, splits, shards,
    files, marks, the fingerprint, the version, and features that have a labels file.
    """

    manifest_version: Literal[1] = MANIFEST_VERSION
    name: PlainName
    version: Version
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
    seed: Seed
    shuffle: bool
    compression: Literal["none", "gzip"]
    container: Container = "tfrecord"
    payload: Payload = "example"
    features: tuple[StoredFeature, ...]
    rows_read: Count
    rows_rejected: Count
    generation: Count = 0
    appended: Annotated[int, Field(ge=0, le=MAX_APPENDS)] = 0
    files: dict[PlainName, ManifestFile] = Field(default={})
    rejects: ManifestRejects | None = None
    map: MapTotals | None = None
    sampling: SamplingTotals | None = None
    about: dict[AboutKey, str] = Field(default={})
    splits: dict[PlainName, ManifestSplit]

    _omitted = (
        *("container", "generation", "appended", "files", "rejects", "map"),
        *("sampling", "about"),
    )

    @field_validator("features")
    @classmethod
    def _check_schema(
        cls, features: tuple[FeatureSpec, ...]
    ) -> tuple[FeatureSpec, ...]:
        Schema(features)  # raises for invalid features, such as a repeated name
        for feature in features:
            if feature.num_classes is not None:
                location = f"the labels file of feature {feature.name!r}"
                check_file_name(feature.labels_file, location, plain=True)
        return features

    @field_validator("splits")
    @classmethod
    def _check_shard_names(
        cls, splits: dict[str, ManifestSplit], info: ValidationInfo
    ) -> dict[str, ManifestSplit]:
        """Checks the file names of shards, exported shards and their index files."""
        for split, manifest_split in splits.items():
            exported = shard_file_name(
                str(info.data.get("name", "")), split, MAX_SHARDS, MAX_SHARDS
            )
            for name in (exported, *(shard.file for shard in manifest_split.shards)):
                check_file_name(index_file_name(name), plain=True)
        return splits

    @property
    def commit_id(self) -> str:
        """Returns the ID of the commit that published the manifest."""
        return format_commit_id(self.fingerprint, self.generation)

    @property
    def description(self) -> Description:
        """Returns the description of the dataset."""
        return Description(self.about, CARD_NAME in self.files)

    @property
    def shards(self) -> list[ManifestShard]:
        """Returns all shards, in order."""
        return [shard for split in self.splits.values() for shard in split.shards]

    @property
    def shard_files(self) -> list[str]:
        """Returns the names of all shards, in order."""
        return [shard.file for shard in self.shards]

    @property
    def index_files(self) -> dict[str, ManifestFile]:
        """Returns the index files that were written with the shards, by name."""
        return {index_file_name(s.file): s.index for s in self.shards if s.index}

    @property
    def rows_dropped(self) -> int:
        """Returns the number of rows that a function (`map`) dropped."""
        return self.map.rows_dropped if self.map else 0

    @property
    def rows_added(self) -> int:
        """Returns the number of extra rows that a function (`map`) created."""
        return self.map.rows_added if self.map else 0

    @property
    def records(self) -> int:
        return sum(split.records for split in self.splits.values())

    @property
    def num_shards(self) -> int:
        return sum(len(split.shards) for split in self.splits.values())

    @property
    def num_bytes(self) -> int:
        return sum(split.bytes for split in self.splits.values())

    def to_bytes(self) -> bytes:
        """Returns the file's bytes: UTF-8 JSON, keys in the order of the fields."""
        return format_json(self.model_dump(mode="json", exclude_none=False))

    @classmethod
    def from_bytes(cls, content: bytes, uri: str) -> Manifest:
        """Parses a manifest.

        Raises:
          OutputRefusedError: the manifest is damaged, or another file.
        """
        with ForeignText(uri, "recordmill manifest", _ADVICE).parsing():
            return _parse(content)


# Cached, because a commit parses the old and the new manifest several times. With 20,000
# features, parsing takes a tenth of a second.
@lru_cache(maxsize=2)
def _parse(content: bytes) -> Manifest:
    return Manifest.model_validate_json(content)


def schema_of(
    manifest: Manifest, class_names: Mapping[str, Sequence[str]] | None = None
) -> Schema:
    """Returns the schema with which readers can decode the records of a dataset.

    `class_names` are the class names in the labels files, by feature.
    """
    names = class_names or {}
    return Schema(
        tuple(
            replace(feature, class_names=tuple(names.get(feature.name, ())))
            for feature in manifest.features
        )
    )


def with_published_names(staged: Manifest, generation: int) -> Manifest:
    """Returns the manifest of a staged part with its published file names."""
    mark = format_commit_id(staged.fingerprint, generation)
    splits = {}
    for name, split in staged.splits.items():
        shards = tuple(
            shard.model_copy(update={"file": published_file_name(shard.file, mark)})
            for shard in split.shards
        )
        splits[name] = split.model_copy(update={"shards": shards})
    rejects = staged.rejects
    if rejects is not None:
        rejects = rejects.model_copy(update={"marks": (mark,)})
    update = {"generation": generation, "splits": splits, "rejects": rejects}
    return staged.model_copy(update=update)


def join_manifests(
    base: Manifest, more: Manifest, stale_files: Collection[str] = ()
) -> Manifest:
    """Returns the manifest of a dataset with an appended part.

    The joined manifest has the fingerprint of the appended part.

    Args:
      base: Manifest of the dataset before the append.
      more: Manifest of the appended part.
      stale_files: Names of metadata files that are removed, because they do not describe
        the whole dataset.

    Raises:
      ValueError: the part belongs to another job.
    """
    shared_fields = {"name", "version", "seed", "shuffle", "compression", "container"}
    shared_fields |= {"payload", "features"}
    if base.model_dump(include=shared_fields) != more.model_dump(include=shared_fields):
        raise ValueError(f"{more.name}: cannot be appended to another job's dataset")
    empty_split = ManifestSplit(records=0, bytes=0, shards=())
    splits = {}
    for name in base.splits | more.splits:
        old, new = (
            base.splits.get(name, empty_split),
            more.splits.get(name, empty_split),
        )
        splits[name] = ManifestSplit(
            records=old.records + new.records,
            bytes=old.bytes + new.bytes,
            shards=(*old.shards, *new.shards),
        )
    files = {**base.files, **more.files}
    map_totals = base.map
    if map_totals is not None and more.map is not None:
        map_totals = MapTotals(
            rows_dropped=map_totals.rows_dropped + more.map.rows_dropped,
            rows_added=map_totals.rows_added + more.map.rows_added,
            features=map_totals.features,
        )
    return base.model_copy(
        update={
            "fingerprint": more.fingerprint,
            "rows_read": base.rows_read + more.rows_read,
            "rows_rejected": base.rows_rejected + more.rows_rejected,
            "generation": more.generation,
            "appended": base.appended + 1,
            "files": {n: files[n] for n in sorted(files) if n not in stale_files},
            "rejects": _join_rejects(base, more),
            "map": map_totals,
            "about": more.about,
            "splits": splits,
        }
    )


def _join_rejects(base: Manifest, more: Manifest) -> ManifestRejects | None:
    reject_totals = [
        manifest.rejects for manifest in (base, more) if manifest.rejects is not None
    ]
    totals = sum((part_rejects.totals for part_rejects in reject_totals), NO_REJECTS)
    marks = tuple(mark for part_rejects in reject_totals for mark in part_rejects.marks)
    return ManifestRejects.from_totals(totals, marks)
