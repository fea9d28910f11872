"""Chooses what tells the features of records: a schema, files beside them, a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.errors import InputError, SchemaError
from recordmill.schemas.features.declared import DeclaredSchema
from recordmill.schemas.features.feature import FeatureSpec, Kind, Schema
from recordmill.schemas.job.job_spec import Payload
from recordmill.schemas.ranges import InputFile
from recordmill.schemas.text import count
from recordmill.transforms.encode.payloads import check_payload
from recordmill.transforms.sources.tfrecord.beside_files import BesideFiles
from recordmill.transforms.sources.tfrecord.data_files import folder_of
from recordmill.transforms.sources.tfrecord.options import Records
from recordmill.transforms.sources.tfrecord.sample_features import (
    SampledRecord,
    check_features,
    infer_features,
)
from recordmill.transforms.sources.tfrecord.stored_features import (
    manifest_schema,
    tfds_features,
)

RAW = Schema((FeatureSpec("record", Kind.BYTES),))
FEATURES_NAME = "features.json"  # of TFDS


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

    @property
    def keeps(self) -> bool:
        """Tells whether records are kept as they are."""
        return self.records == "keep"


@dataclass(frozen=True, slots=True)
class ChosenFeatures:
    """The features of the records of the input.

    Attributes:
      schema: of the records.
      payload: what they hold.
      basis: what told it, in words.
      warnings: what looks wrong.
    """

    schema: Schema
    payload: Payload
    basis: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the manifests of recordmill say of all files."""

    schema: Schema
    payload: Payload


def choose_features(
    files: Sequence[InputFile],
    sample: Sequence[SampledRecord],
    manifests: Mapping[str, Manifest],
    beside: BesideFiles,
    wanted: Wanted,
) -> ChosenFeatures:
    """Returns the features of the records, and what told them.

    Args:
      files: those with records.
      sample: some of their records.
      manifests: of recordmill, by folder.
      beside: the files beside the records.
      wanted: what the job wants.

    Raises:
      InputError: the records are not what the job, or a file beside them, says.
      SchemaError: the features cannot be told.
    """
    stored = _stored(files, manifests, beside)
    payload = stored.payload if stored else "example"
    if wanted.keeps:
        payload = wanted.payload
        if stored and stored.payload not in ("raw", payload) and payload != "raw":
            raise InputError(
                f"the records of the input are of payload {stored.payload} (its "
                f"{MANIFEST_NAME} says so), and they are kept as they are: use "
                f"`payload={stored.payload}`, or `records=decode`"
            )
        if wanted.declared is not None:
            schema = _declared(wanted.declared, payload)
            check_features(sample, schema, payload, "the schema")
            return ChosenFeatures(schema, payload, "declared")
    elif payload == "raw":  # it says nothing of what the records hold
        payload = "example"
    if wanted.fixed_schema is not None:
        if wanted.keeps:
            check_features(sample, wanted.fixed_schema, payload, "the dataset")
        return ChosenFeatures(wanted.fixed_schema, payload, "as in the dataset")
    if stored and stored.payload == payload:
        return ChosenFeatures(stored.schema, payload, f"as {MANIFEST_NAME} says")
    if payload == "raw":
        return ChosenFeatures(RAW, payload, "none: records are kept as bytes")
    if payload != "example":
        raise InputError(
            f"`payload={payload}`: the features of such records are not inferred: declare "
            "them in a `schema`, or use `payload=raw`"
        )
    if not sample:
        raise InputError(
            f"{files[0].uri}: no whole record in the first bytes of "
            f"{count(len(files), 'file')}, so their features cannot be inferred: "
            "declare them in a `schema`, or use `payload=raw`"
        )
    return _inferred(sample, _stated(beside), wanted)


def _inferred(
    sample: Sequence[SampledRecord], stated: Mapping[str, FeatureSpec], wanted: Wanted
) -> ChosenFeatures:
    """Returns the features of examples by a sample, and by what TFDS says of them."""
    inferred = infer_features(sample, stated, skip_invalid=not wanted.keeps)
    looked_at = count(len(sample), "record")
    basis = f"inferred from {looked_at}"
    if inferred.described:
        basis = (
            f"{inferred.described} of {len(inferred.schema)} as {FEATURES_NAME} says, "
            f"checked by {looked_at}"
        )
    warnings: tuple[str, ...] = ()
    if inferred.other:
        names = ", ".join(inferred.other[:5])
        warnings = (
            f"{FEATURES_NAME} describes {names} otherwise than the records are: taken as "
            "they are found. To say otherwise, declare them in a `schema`",
        )
    return ChosenFeatures(inferred.schema, "example", basis, warnings)


def _stored(
    files: Sequence[InputFile],
    manifests: Mapping[str, Manifest],
    beside: BesideFiles,
) -> _Stored | None:
    """Returns what manifests say, if all files have one and they say the same.

    Raises:
      InputError: they have different classes.
    """
    folders = list(dict.fromkeys(folder_of(file.path) for file in files))
    if not all(folder in manifests for folder in folders):
        return None
    found = [
        (folder, manifest_schema(manifests[folder], partial(beside.in_folder, folder)))
        for folder in folders
    ]
    (first_folder, first), *others = found
    payload = manifests[first_folder].payload
    for folder, schema in others:
        known = {feature.name: feature for feature in first.features}
        for feature in schema.features:
            _require_same_classes(
                known.get(feature.name), first_folder, feature, folder
            )
        if schema != first or manifests[folder].payload != payload:
            return None
    return _Stored(first, payload)


def _stated(beside: BesideFiles) -> dict[str, FeatureSpec]:
    """Returns the features that all features.json of TFDS tell, by name.

    Raises:
      InputError: they have different classes.
    """
    stated: dict[str, FeatureSpec] = {}
    where: dict[str, str] = {}
    for folder, text in beside.named(FEATURES_NAME).items():
        found = tfds_features(text, partial(beside.in_folder, folder))
        for name, feature in found.items():
            _require_same_classes(
                stated.get(name), where.get(name, ""), feature, folder
            )
            stated.setdefault(name, feature)
            where.setdefault(name, folder)
    return stated


def _require_same_classes(
    one: FeatureSpec | None, folder: str, other: FeatureSpec, other_folder: str
) -> None:
    """Checks that a number means the same class in both.

    Raises:
      InputError: it does not.
    """
    if one is None or one.class_names == other.class_names:
        return
    raise InputError(
        f"the classes of {other.name!r} are {_shown(one)} in {folder or '.'}, and "
        f"{_shown(other)} in {other_folder or '.'}: one number would mean two classes. "
        "Convert these folders one by one"
    )


def _shown(feature: FeatureSpec) -> str:
    names = feature.class_names
    more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more if names else "without names"


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
