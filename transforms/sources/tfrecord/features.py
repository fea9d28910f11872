"""Determines the features of records from a schema, metadata files or a sample.

The metadata files next to the records are the manifests and labels files of recordmill,
and the metadata files of TFDS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from recordmill.schemas.declared import DeclaredSchema
from recordmill.schemas.errors import InputError, OutputRefusedError, SchemaError
from recordmill.schemas.feature_spec import (
    Content,
    FeatureSpec,
    Kind,
    Schema,
    Shape,
    usual_kind,
)
from recordmill.schemas.input_files import FileChecksum, InputFile
from recordmill.schemas.input_summary import InputWarning
from recordmill.schemas.input_text import as_input_error, parse_json
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest, schema_of
from recordmill.schemas.names import LABELS_ENDING, parse_labels
from recordmill.schemas.options import Payload
from recordmill.schemas.proto.example_pb2 import Example, SequenceExample
from recordmill.schemas.storage_options import StorageOptions
from recordmill.schemas.text import format_count, format_names
from recordmill.transforms.decode.examples import ObservedFeatures, decode_records
from recordmill.transforms.decode.payloads import decode_payload
from recordmill.transforms.encode.payloads import check_payload
from recordmill.transforms.images.header import image_format
from recordmill.transforms.storage.reading import read_summed

_MAX_METADATA_BYTES = 64 << 20  # maximum size of a metadata file next to the records


class MetadataFiles:
    """The metadata files next to the records, each read on demand."""

    def __init__(self, files: Sequence[InputFile], storage: StorageOptions) -> None:
        self._files = {file.path: file for file in files if not file.problem}
        self._storage = storage
        self.checksums: dict[str, FileChecksum] = {}  # of the files read, by path

    def read(self, path: str) -> bytes | None:
        """Returns the bytes of a file, or None if it is no input or too large."""
        file = self._files.get(path)
        if file is None or file.size > _MAX_METADATA_BYTES:
            return None
        content, self.checksums[path] = read_summed(file, self._storage)
        return content

    def read_named(self, name: str) -> dict[str, bytes]:
        """Returns the bytes of all files with this name, by folder."""
        contents_by_folder = {}
        for path in self._files:
            if path.rpartition("/")[2] == name and (content := self.read(path)):
                contents_by_folder[folder_of(path)] = content
        return contents_by_folder

    def read_manifests(self) -> dict[str, Manifest]:
        """Returns the valid manifests of recordmill, by folder."""
        manifests_by_folder = {}
        for folder, content in self.read_named(MANIFEST_NAME).items():
            with suppress(OutputRefusedError):  # another program's file of that name
                manifests_by_folder[folder] = Manifest.from_bytes(content, folder)
        return manifests_by_folder

    def read_in_folder(self, folder: str, name: str) -> bytes | None:
        """Returns the bytes of a file in a folder, or None."""
        return self.read(f"{folder}/{name}" if folder else name)


def folder_of(path: str) -> str:
    """Returns the folder of a path below the input root; "" for the root."""
    return path.rpartition("/")[0]


class _ParseContext(NamedTuple):
    """The context in which a features.json is parsed."""

    # returns the bytes of a file in the same folder, by name; None if it is missing
    read_beside: Callable[[str], bytes | None]
    unsupported_features: list[str]  # receives the names of unsupported features


class TfdsFeature(NamedTuple):
    """A feature of TFDS that recordmill supports."""

    spec: FeatureSpec
    kind: str = ""  # type in TFDS if only its numbers are kept, else ""


def _parse_node(
    node: Mapping[str, Any], name: str, outer: Shape, context: _ParseContext
) -> Iterator[TfdsFeature]:
    """Yields the features of a node.

    Features in a dict, or in a sequence of dicts, have names like objects/bbox.

    Args:
      node: A node of features.json.
      name: Name of the feature; "" for the root.
      outer: Lengths of the sequences that contain the feature.
      context: The context.
    """
    try:
        with as_input_error(FEATURES_NAME, "a feature of TFDS"):
            yield from _parse_features(node, name, outer, context)
    except (InputError, SchemaError):
        context.unsupported_features.append(name or "the whole file")


def _parse_features(
    node: Mapping[str, Any], name: str, outer: Shape, context: _ParseContext
) -> Iterator[TfdsFeature]:
    kind = str(node["pythonClassName"]).rpartition(".")[2]
    if "featuresDict" in node:
        for key, child in node["featuresDict"]["features"].items():
            yield from _parse_node(
                child, f"{name}/{key}" if name else key, outer, context
            )
    elif kind == "Translation":  # a dict with a text for each language
        for language in node["translation"]["languages"]:
            text = {"pythonClassName": "Text"}
            yield from _parse_node(text, f"{name}/{language}", outer, context)
    elif kind == "Sequence":
        length = int(node["sequence"].get("length") or -1)
        outer = (*outer, None if length < 0 else length)
        yield from _parse_node(node["sequence"]["feature"], name, outer, context)
    else:
        spec = _parse_leaf(node, kind, name, context)
        if spec is not None and (not outer or spec.content is Content.VALUES):
            spec = replace(spec, shape=outer + spec.shape)
            yield TfdsFeature(spec, kind if kind in _NUMBERS_ONLY else "")


_NUMBERS_ONLY = ("Audio", "BBoxFeature")


def _parse_leaf(
    node: Mapping[str, Any], kind: str, name: str, context: _ParseContext
) -> FeatureSpec | None:
    if kind == "Image":
        shape = _parse_dimensions(node["image"]) or (None, None, None)
        dtype = node["image"].get("dtype") or "uint8"
        return FeatureSpec(
            name, Kind.BYTES, dtype=dtype, shape=shape, content=Content.IMAGE
        )
    if kind == "ClassLabel":
        classes = int(node["classLabel"].get("numClasses") or 0)
        dotted, dashed = (name.replace("/", mark) + LABELS_ENDING for mark in ".-")
        names = _parse_labels(context.read_beside(dotted)) or _parse_labels(
            context.read_beside(dashed)
        )
        return FeatureSpec(
            name,
            Kind.INT64,
            class_names=names if len(names) == classes else (),
            num_classes=classes or None,
        )
    if kind == "Text":
        return FeatureSpec(name, Kind.BYTES, dtype="string")
    if kind == "BBoxFeature":
        return FeatureSpec(name, Kind.FLOAT, shape=(4,))
    if kind in ("Tensor", "Scalar", "Audio"):
        content = node["audio" if kind == "Audio" else "tensor"]
        dtype, shape = str(content["dtype"]), _parse_dimensions(content)
        encoding = (content.get("encoding") or "none").lower()
        if encoding == "none":
            return FeatureSpec(name, usual_kind(dtype), dtype=dtype, shape=shape)
        if encoding != "bytes" or dtype == "string":
            return None
        return FeatureSpec(
            name, Kind.BYTES, dtype=dtype, shape=shape, content=Content.ARRAY
        )
    return None


def _parse_dimensions(content: Mapping[str, Any]) -> Shape:
    sides = (content.get("shape") or {}).get("dimensions", ())
    return tuple(None if int(side) < 0 else int(side) for side in sides)


def _parse_labels(content: bytes | None) -> tuple[str, ...]:
    try:
        return parse_labels(content) if content is not None else ()
    except ValueError:  # not UTF-8
        return ()


_SHOWN_BYTES = 12
_MAX_CHECKED_RECORDS = 32  # records that are checked for sequence examples
_DECODED_FORMATS = ("jpeg", "png")  # formats that TFDS decodes to pixels


class SampledRecord(NamedTuple):
    """A record of the sample, without its frame; `offset` is the offset of the frame."""

    uri: str
    offset: int
    data: bytes


def _check_features(
    sample: Sequence[SampledRecord],
    schema: Schema,
    payload: Payload,
    schema_origin: str,
) -> None:
    records = pa.array([record.data for record in sample], pa.binary())
    decoded = decode_payload(records, schema, payload)
    problems = list(decoded.row_errors)
    for feature in schema.features if payload != "raw" else ():
        column = decoded.batch[feature.name]
        if not feature.optional and column.null_count:
            row = column.is_null().index(True).as_py()
            problems.append((row, f"feature {feature.name!r}: missing"))
    if not problems:
        return
    row, reason = min(problems)
    record = sample[row]
    raise InputError(
        f"{record.uri}: the record at byte {record.offset:,} does not match {schema_origin}: "
        f"{reason}. Correct the `schema`, or use `records=decode`, which rejects such "
        "records, or `payload=raw`, which does not describe the content of records"
    )


def _parse_example(record: bytes, *, look_for_lists: bool) -> Example | str:
    try:
        example = Example.FromString(record)
    except DecodeError:
        return "is not a tf.train.Example"
    with suppress(DecodeError):  # feature lists are an unknown field of an example
        if look_for_lists and (
            SequenceExample.FromString(record).feature_lists.feature_list
        ):
            return "is a tf.train.SequenceExample"
    if example.features.feature:
        return example
    return "has no feature" if record else "is empty"


def _no_example_error(record: SampledRecord, why: str) -> InputError:
    return InputError(
        f"{record.uri}: the record at byte {record.offset:,} {why} "
        f"({format_count(len(record.data), 'byte')} that start with "
        f"{record.data[:_SHOWN_BYTES].hex()!r}). Keep sequence examples or JSON with "
        "`payload=sequence_example` or `payload=json` and their features in a "
        "`schema`; keep any records with `payload=raw`"
    )


def _fits_records(records: pa.BinaryArray, feature: FeatureSpec) -> bool:
    try:
        return not decode_records(records, Schema((feature,))).row_errors
    except SchemaError:
        return False


def _as_image_feature(feature: FeatureSpec, records: pa.BinaryArray) -> FeatureSpec:
    """Returns the feature as an image feature if all of its values are JPEG or PNG."""
    if feature.kind is not Kind.BYTES or feature.shape:
        return feature
    values = decode_records(records, Schema((feature,))).batch[0].drop_null()
    heads = [value.as_py() for value in values]
    if not heads or not all(image_format(head) in _DECODED_FORMATS for head in heads):
        return feature
    return replace(
        feature, dtype="uint8", shape=(None, None, None), content=Content.IMAGE
    )


RAW_SCHEMA = Schema((FeatureSpec("record", Kind.BYTES),))
FEATURES_NAME = "features.json"  # of TFDS


class ChosenFeatures(NamedTuple):
    """The features of the records, and their origin."""

    schema: Schema
    payload: Payload
    origin: str  # description of the origin, for the input report
    warnings: tuple[InputWarning, ...] = ()


def determine_features(
    files: Sequence[InputFile],
    sample: Sequence[SampledRecord],
    manifests: Mapping[str, Manifest],
    metadata_files: MetadataFiles,
    *,
    keeps: bool,
    declared: DeclaredSchema | None,
    payload: Payload,
    fixed_schema: Schema | None,
) -> ChosenFeatures:
    """Determines the features of the records.

    Args:
      files: The files with records.
      sample: Records from the start of some files.
      manifests: Manifests of recordmill, by folder.
      metadata_files: The metadata files next to the records.
      keeps: Whether records are kept unchanged, not decoded.
      declared: The declared schema, if any.
      payload: Payload of the records, by the job.
      fixed_schema: Schema of the dataset that the records are appended to, if any.

    Raises:
      InputError: the records contradict the job or a metadata file.
      SchemaError: the features cannot be determined.
    """
    stored_features = _read_manifest_features(files, manifests, metadata_files)
    if keeps:
        if (
            stored_features
            and stored_features.payload not in ("raw", payload)
            and payload != "raw"
        ):
            raise InputError(
                f"the records of the input have payload {stored_features.payload} (by its "
                f"{MANIFEST_NAME}), and they are kept unchanged: use "
                f"`payload={stored_features.payload}`, or `records=decode`"
            )
        if declared is not None:
            schema = _convert_declaration(declared, payload)
            _check_features(sample, schema, payload, "the schema")
            return ChosenFeatures(schema, payload, "declared")
    else:  # the payload raw does not describe the content of the records
        payload = (
            stored_features.payload
            if stored_features and stored_features.payload != "raw"
            else "example"
        )
    if fixed_schema is not None:
        if keeps:
            _check_features(sample, fixed_schema, payload, "the dataset")
        return ChosenFeatures(fixed_schema, payload, "as in the dataset")
    if stored_features and stored_features.payload == payload:
        return stored_features
    if payload == "raw":
        return ChosenFeatures(RAW_SCHEMA, payload, "none: records are kept as bytes")
    if payload != "example":
        raise InputError(
            f"`payload={payload}`: the features of such records are not inferred: declare "
            "them in a `schema`, or use `payload=raw`"
        )
    if not sample:
        raise InputError(
            f"{files[0].uri}: no whole record in the first bytes of "
            f"{format_count(len(files), 'file')}, so their features cannot be inferred: "
            "declare them in a `schema`, or use `payload=raw`"
        )
    unsupported_features: list[str] = []
    return _infer_features(
        sample,
        _read_tfds_features(metadata_files, unsupported_features),
        unsupported_features,
        keeps=keeps,
    )


def _infer_features(
    sample: Sequence[SampledRecord],
    stated_features: Mapping[str, TfdsFeature],
    unsupported_features: Sequence[str],
    *,
    keeps: bool,
) -> ChosenFeatures:
    """Infers the features of examples from a sample and from features of TFDS."""
    observed, valid = ObservedFeatures(), list[bytes]()
    problem: InputError | None = None
    for number, record in enumerate(sample):
        example = _parse_example(
            record.data, look_for_lists=number < _MAX_CHECKED_RECORDS
        )
        if isinstance(example, str):
            problem = problem or _no_example_error(record, example)
            continue
        observed.add_example(example)
        valid.append(record.data)
    if problem is not None and (keeps or not valid):
        raise problem
    try:
        inferred = observed.to_schema(len(valid))
    except SchemaError as error:
        raise SchemaError(
            f"{sample[0].uri}: {error}. To keep any records unchanged, use "
            "`payload=raw`"
        ) from error
    records = pa.array(valid, pa.binary())
    features_by_name = {feature.name: feature for feature in inferred.features}
    features: list[FeatureSpec] = []
    mismatched_names: list[str] = []
    number_features: dict[str, list[str]] = defaultdict(list)
    for name, (spec, kind) in stated_features.items():
        parts = [features_by_name[key] for key in spec.keys if key in features_by_name]
        spec = replace(spec, optional=any(part.optional for part in parts))
        is_whole = len(parts) == len(spec.keys) and parts[0].kind is spec.kind
        if is_whole and _fits_records(records, spec):
            features.append(spec)
            for key in spec.keys:
                del features_by_name[key]
            if kind:
                number_features[kind].append(name)
        elif parts:
            mismatched_names.append(name)
    basis, warnings = f"inferred from {format_count(len(sample), 'record')}", []
    if features:
        basis = (
            f"{len(features)} of {len(features) + len(features_by_name)} as in {FEATURES_NAME}, "
            f"checked with {format_count(len(sample), 'record')}"
        )
        if any("/" in feature.name for feature in features):
            basis += "; nested features are named by their path"
        for kind, names in number_features.items():
            basis += (
                f"; only the numbers are kept for {kind} ({format_names(names, 5)})"
            )
    features += [
        _as_image_feature(feature, records) for feature in features_by_name.values()
    ]
    if unsupported_features:
        message = (
            f"{FEATURES_NAME}: {format_names(unsupported_features, 5)} cannot be interpreted, so the "
            "types in the records are used. To change that, declare it in a `schema`"
        )
        warnings.append(InputWarning("other-features", message))
    if mismatched_names:
        message = (
            f"{FEATURES_NAME} describes {', '.join(mismatched_names[:5])} differently from the "
            "records, so the types in the records are used. To change that, declare "
            "them in a `schema`"
        )
        warnings.append(InputWarning("other-features", message))
    return ChosenFeatures(Schema(tuple(features)), "example", basis, tuple(warnings))


def _read_manifest_features(
    files: Sequence[InputFile],
    manifests: Mapping[str, Manifest],
    metadata_files: MetadataFiles,
) -> ChosenFeatures | None:
    """Returns the features in the manifests if all files have one and all are equal."""
    folders = list(dict.fromkeys(folder_of(file.path) for file in files))
    if not all(folder in manifests for folder in folders):
        return None
    schemas = {}
    for folder in folders:
        names = {}
        for feature in manifests[folder].features:
            file = feature.labels_file
            class_names = (
                _parse_labels(metadata_files.read_in_folder(folder, file))
                if feature.num_classes
                else ()
            )
            if class_names and len(class_names) == feature.num_classes:
                names[feature.name] = class_names
        schemas[folder] = schema_of(manifests[folder], names)
    first, payload = folders[0], manifests[folders[0]].payload
    known_features = {feature.name: feature for feature in schemas[first].features}
    for folder in folders[1:]:
        for feature in schemas[folder].features:
            _require_same_classes(
                known_features.get(feature.name), first, feature, folder
            )
        if schemas[folder] != schemas[first] or manifests[folder].payload != payload:
            return None
    return ChosenFeatures(schemas[first], payload, f"as in {MANIFEST_NAME}")


def _read_tfds_features(
    metadata_files: MetadataFiles, unsupported_features: list[str]
) -> dict[str, TfdsFeature]:
    """Returns the features that features.json files of TFDS state, by name."""
    features_by_name: dict[str, TfdsFeature] = {}
    folders_by_feature: dict[str, str] = {}
    for folder, text in metadata_files.read_named(FEATURES_NAME).items():
        reader = _ParseContext(
            partial(metadata_files.read_in_folder, folder), unsupported_features
        )
        try:
            node = parse_json(text, FEATURES_NAME)
            with as_input_error(FEATURES_NAME, "features of TFDS"):
                folder_features = {
                    f.spec.name: f for f in _parse_node(node, "", (), reader)
                }
        except InputError:
            unsupported_features.append("the whole file")
            continue
        for name, feature in folder_features.items():
            known_feature = features_by_name.setdefault(name, feature).spec
            first = folders_by_feature.setdefault(name, folder)
            _require_same_classes(known_feature, first, feature.spec, folder)
    return features_by_name


def _require_same_classes(
    feature: FeatureSpec | None,
    folder: str,
    other_feature: FeatureSpec,
    other_folder: str,
) -> None:
    """Checks that the class names of a feature are the same in two folders."""
    if feature is None or feature.class_names == other_feature.class_names:
        return
    raise InputError(
        f"the classes of {other_feature.name!r} are {_format_class_names(feature)} in {folder or '.'}, and "
        f"{_format_class_names(other_feature)} in {other_folder or '.'}: one number would mean two classes. "
        "Convert these folders one by one"
    )


def _format_class_names(feature: FeatureSpec) -> str:
    names = feature.class_names
    return format_names(names, 5) if names else "without names"


def _convert_declaration(declared: DeclaredSchema, payload: Payload) -> Schema:
    """Returns the schema of a declaration that describes existing records."""
    for name, feature in declared.features.items():
        is_made = (
            bool(feature.bytes_from or feature.separator or feature.unit)
            or feature.default is not None
            or feature.cell != "plain"
        )
        if is_made or declared.column_of(name) != name:
            raise SchemaError(
                f"feature {name!r}: its declaration changes it (a column of another "
                "name, text, a default), but the records are kept unchanged: use "
                "`records=decode`"
            )
    schema = declared.to_schema()
    check_payload(schema, payload)
    return schema
