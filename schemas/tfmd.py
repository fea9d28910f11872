"""Converts between tensorflow-metadata's schema (schema.pbtxt) and DeclaredSchema.

TFMD describes the features as stored in the records. These fields of TFMD are used:

    type                 INT, FLOAT or BYTES: the list type that stores the values
    presence             min_fraction 1, min_count 1: required
    shape                for required values of fixed size
    value_count          for all other values; a fixed number of values is its min and max
    int_domain, float_domain, bool_domain, image_domain, time_domain
    class names          a string_domain of the schema, and a categorical int_domain of
                         the feature with the same name
    ragged features      a feature for each key of the example, and a RaggedTensor that
                         joins them in the default tensor_representation_group
    feature lists        in the struct "##SEQUENCE##", as in tfx_bsl

Properties without a field in TFMD are stored in an annotation.comment of the feature
("free-text comments ... developer notes etc."), which TFMD's tools do not change:

    comment: "recordmill: {dtype: int8, unit: ms}"

The reader reads the fields first; properties in the comment replace them. The writer adds
to the comment only the properties that the fields cannot restore.

A schema of another program is read by its fields. Vocabularies, numbers of values in a
list and distributions are not enforced. Features in an unused lifecycle stage are
skipped, and so are sparse and weighted features, which are views of other features.

Source: tensorflow_metadata/proto/v0/schema.proto; the sequences' name:
tfx_bsl/tfxio/tf_sequence_example_record.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from recordmill.schemas.declared import (
    DeclaredFeature,
    DeclaredSchema,
    declare_schema,
    parse_declared,
)
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.feature_spec import Content, FeatureSpec, Kind, Schema

Message = Any
Fields = dict[str, Any]  # fields of a DeclaredFeature that differ from their default

SEQUENCES = "##SEQUENCE##"
DEFAULT_GROUP = ""
TIME_FORMATS = {
    "d": "UNIX_DAYS",
    "s": "UNIX_SECONDS",
    "ms": "UNIX_MILLISECONDS",
    "us": "UNIX_MICROSECONDS",
    "ns": "UNIX_NANOSECONDS",
}
_UNUSED_STAGES = (
    *("PLANNED", "ALPHA", "DEPRECATED"),
    *("DEBUG_ONLY", "DISABLED", "VALIDATION_DERIVED"),
)

_Shape = tuple[int | None, ...]


def read_features(proto: Message, uri: str) -> Iterator[tuple[str, Fields, Message]]:
    """Yields name, declared fields and message of each feature, by TFMD's fields."""
    ragged, row_lengths = _find_ragged_features(proto)
    domains = {
        domain.name: domain
        for kind in (proto.int_domain, proto.float_domain, proto.string_domain)
        for domain in kind
    }
    for feature in proto.feature:
        in_steps = feature.name == SEQUENCES and feature.HasField("struct_domain")
        if _is_unused(feature) or feature.name in row_lengths:
            continue
        for message in feature.struct_domain.feature if in_steps else [feature]:
            name = message.name
            if in_steps:  # the first level of value_counts counts the steps
                shape = _parse_value_counts(message.value_counts.value_count[1:])
            elif name in ragged:
                name, shape = ragged[name]
            else:
                shape = _parse_shape(message)
            fields: Fields = {"sequence": True} if in_steps else {}
            if shape:
                fields["shape"] = shape
            if not _is_unused(message):
                yield name, fields | _feature_fields(message, domains, uri), message


def _feature_fields(feature: Message, domains: dict[str, Message], uri: str) -> Fields:
    """Converts type, presence and domain of a feature to declared fields."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    location = f"{uri}: feature {feature.name!r}"
    kind = schema_pb2.FeatureType.Name(feature.type)
    field = feature.WhichOneof("domain_info")
    domain: Message = getattr(feature, field) if field else None
    if field == "domain":
        if domain not in domains:
            raise SchemaError(f"{location}: the schema has no domain {domain!r}")
        domain = domains[domain]
        field = {"IntDomain": "int_domain", "FloatDomain": "float_domain"}.get(
            domain.DESCRIPTOR.name, "string_domain"
        )
    required = feature.presence.min_fraction >= 1 or feature.group_presence.required
    fields: Fields = {} if required else {"optional": True}
    match kind, field:
        case "BYTES", "struct_domain":
            raise SchemaError(f"{location}: BYTES cannot have a struct_domain")
        case "BYTES", "image_domain":
            return fields | {"picture": {}}
        case "BYTES", None | "audio_domain" | "video_domain" | "content_chunk_domain":
            return fields
        case "BYTES", _:
            return fields | {"dtype": "string"}
        case "INT", "bool_domain":
            return fields | {"dtype": "bool"}
        case "INT", "int_domain":
            if names := _class_names(domain, domains):
                return fields | {"dtype": "int64", "classes": names}
            return fields | {"dtype": "int64"} | _parse_bounds(domain)
        case "INT", "time_domain":
            formats = schema_pb2.TimeDomain.IntegerTimeFormat
            for unit, name in TIME_FORMATS.items():
                if formats.Value(name) == domain.integer_format:
                    fields["unit"] = unit
            return fields | {"dtype": "int64"}
        case "INT", _:
            return fields | {"dtype": "int64"}
        case "FLOAT", _:
            bounds = _parse_bounds(domain) if field == "float_domain" else {}
            return fields | {"dtype": "float32"} | bounds
        case "STRUCT", _:
            raise SchemaError(
                f"{location}: STRUCT contains features, which a tf.train.Example "
                "cannot nest: declare each of them with a name like outer/inner"
            )
    raise SchemaError(f"{location}: has no type; expected INT, FLOAT or BYTES")


def _parse_shape(feature: Message) -> _Shape:
    match feature.WhichOneof("shape_type"):
        case "shape":
            return tuple(
                dim.size if dim.HasField("size") and dim.size >= 0 else None
                for dim in feature.shape.dim
            )
        case "value_counts":
            return _parse_value_counts(feature.value_counts.value_count)
        case "value_count":
            return _parse_value_counts([feature.value_count])
    return (None,)


def _parse_value_counts(counts: Any) -> _Shape:
    shape = tuple(
        count.min if count.HasField("max") and count.min == count.max else None
        for count in counts
    )
    return () if shape == (1,) else shape


def _class_names(domain: Message, domains: dict[str, Message]) -> tuple[str, ...]:
    """Returns the class names of a categorical feature, or () if there are none."""
    value_domain = domains.get(domain.name)
    if not domain.is_categorical or domain.min != 0 or value_domain is None:
        return ()
    names = (
        tuple(value_domain.value)
        if value_domain.DESCRIPTOR.name == "StringDomain"
        else ()
    )
    return names if domain.max == len(names) - 1 else ()


def _parse_bounds(domain: Message) -> Fields:
    bounds: Fields = {}
    for name in ("min", "max"):
        bound = getattr(domain, name)
        if domain.HasField(name) and math.isfinite(bound):
            # The shortest decimal with this float32 value: 0.1, not 0.10000000149.
            bounds[name] = (
                bound if isinstance(bound, int) else float(str(np.float32(bound)))
            )
    return bounds


def _find_ragged_features(
    proto: Message,
) -> tuple[dict[str, tuple[str, _Shape]], set[str]]:
    """Returns ragged features by the key of their values, and all row length keys."""
    ragged: dict[str, tuple[str, _Shape]] = {}
    row_lengths: set[str] = set()
    feature_names = {feature.name for feature in proto.feature}
    group = proto.tensor_representation_group.get(DEFAULT_GROUP)
    for name, tensor in group.tensor_representation.items() if group else ():
        parts = tensor.ragged_tensor.partition
        lengths = [part.row_length for part in parts if part.HasField("row_length")]
        values_key = f"{name}/ragged_flat_values"
        expected_keys = [f"{name}/ragged_row_lengths_{i}" for i in range(len(lengths))]
        inner = parts[len(lengths) :]
        if (
            list(tensor.ragged_tensor.feature_path.step) == [values_key]
            and lengths == expected_keys
            and all(part.HasField("uniform_row_length") for part in inner)
            and lengths
            and feature_names.issuperset([values_key, *lengths])
        ):
            sizes = (part.uniform_row_length for part in inner)
            ragged[values_key] = (name, (None,) * (len(lengths) + 1) + tuple(sizes))
            row_lengths.update(lengths)
    return ragged, row_lengths


def _is_unused(feature: Message) -> bool:
    """Returns whether TFX ignores the feature because of its lifecycle stage."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    stage = schema_pb2.LifecycleStage.Name(feature.lifecycle_stage)
    return bool(feature.deprecated) or stage in _UNUSED_STAGES


SCHEMA_PBTXT_NAME = "schema.pbtxt"

_COMMENT = "recordmill: "
# Messages that the C code formats in another way: floats, and maps, which it does not
# sort. A name or a comment cannot match, because line breaks in them are escaped.
_FLOATS_AND_MAPS = re.compile(
    r"^ *(?:float_domain|tensor_representation\w*) \{", re.MULTILINE
)
_WHOLE_FRACTION = re.compile(r"^( *min_fraction: 1)$", re.MULTILINE)
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_DEFAULTS = DeclaredFeature.model_validate("bytes").model_dump()


def dump_pbtxt(schema: DeclaredSchema | Schema) -> bytes:
    """Formats the schema as schema.pbtxt; equal schemas have equal bytes."""
    if not isinstance(schema, Schema):
        proto = to_proto(schema)
    elif all(map(_is_simple, schema.features)):
        proto = _convert_simple_schema(schema)
    else:
        proto = to_proto(declare_schema(schema))
    return _format_proto(proto).encode()


def _is_simple(spec: FeatureSpec) -> bool:
    """Returns whether the message of a feature has its name only once and no bounds."""
    return (
        spec.column == spec.name
        and not (
            spec.is_ragged or spec.is_sequence or spec.is_nested or spec.class_names
        )
        and spec.minimum is None
        and spec.maximum is None
    )


def _convert_simple_schema(schema: Schema) -> Message:
    """Converts a schema of simple features, and copies the message of equal features.

    This is faster for thousands of columns, most of which have equal types.
    """
    from tensorflow_metadata.proto.v0 import schema_pb2

    proto = schema_pb2.Schema()
    messages: dict[object, Message] = {}
    for spec in schema.features:
        feature_type = spec.kind, spec.dtype, spec.shape, spec.content, spec.optional
        if feature_type not in messages:
            single_schema = declare_schema(Schema((spec,)))
            messages[feature_type] = to_proto(single_schema).feature[0]
        target = proto.feature.add()
        target.CopyFrom(messages[feature_type])
        target.name = spec.name
    return proto


def _format_proto(proto: Message) -> str:
    """Returns a schema in text form, as protobuf's text_format writes it.

    text_format is Python code, and takes most of the time for thousands of features. The
    text of `str` comes from C code, and differs only in escapes, floats and maps.
    """
    text = str(proto)
    if "\\" not in text and not _FLOATS_AND_MAPS.search(text):
        return _WHOLE_FRACTION.sub(r"\1.0", text)
    from google.protobuf import text_format

    return text_format.MessageToString(proto, as_utf8=True)


def load_pbtxt(content: bytes, uri: str) -> DeclaredSchema:
    """Reads a schema.pbtxt of recordmill or of another program."""
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        proto = text_format.Parse(content.decode("utf-8-sig"), schema_pb2.Schema())
    except text_format.ParseError as error:
        problem = str(error).partition(" : ")[2] or str(error)
        raise SchemaError(
            f"{uri}: line {error.GetLine()}, column {error.GetColumn()}: not a "
            f"tensorflow-metadata schema in text form: {problem}"
        ) from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{uri}: is not UTF-8: {error}") from error
    return from_proto(proto, uri)


def to_proto(schema: DeclaredSchema) -> Message:
    """Converts a schema to a tensorflow.metadata.v0.Schema."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    proto = schema_pb2.Schema()
    specs = [feature.to_spec(name) for name, feature in schema.features.items()]
    plain = [spec for spec in specs if not spec.is_sequence]
    for spec in plain:
        values_key, *row_lengths = spec.keys
        target = proto.feature.add(name=values_key)
        _fill_message(target, proto, schema.features[spec.name], spec)
        for key in row_lengths:
            lengths = proto.feature.add(name=key, type=schema_pb2.INT)
            lengths.presence.CopyFrom(target.presence)
            lengths.value_count.SetInParent()
    if len(plain) < len(specs):
        steps = proto.feature.add(name=SEQUENCES, type=schema_pb2.STRUCT)
        for spec in specs:
            if spec.is_sequence:
                target = steps.struct_domain.feature.add(name=spec.name)
                _fill_message(target, proto, schema.features[spec.name], spec)
    if any(spec.is_ragged for spec in plain):
        _add_representations(proto, plain)
    for name, fields, target in read_features(proto, ""):
        _add_comment(target, schema.features[name], fields)
    return proto


def from_proto(proto: Message, uri: str) -> DeclaredSchema:
    """Converts a tensorflow.metadata.v0.Schema to a declared schema."""
    features: dict[str, Fields] = {}
    for name, fields, source in read_features(proto, uri):
        if name in features:
            raise SchemaError(f"{uri}: feature {name!r} is defined twice")
        features[name] = fields | _parse_comment(source, uri)
    return parse_declared({"features": features}, uri)


def _fill_message(
    target: Message, proto: Message, feature: DeclaredFeature, spec: FeatureSpec
) -> None:
    """Fills the fields of TFMD for a feature."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    types = {Kind.INT64: "INT", Kind.FLOAT: "FLOAT", Kind.BYTES: "BYTES"}
    target.type = schema_pb2.FeatureType.Value(types[spec.kind])
    if not spec.optional:
        target.presence.min_fraction = 1
        target.presence.min_count = 1
    shape = spec.shape if spec.content is Content.VALUES else ()
    known_sizes = [size for size in shape if size is not None]
    number = math.prod(known_sizes) if len(known_sizes) == len(shape) else None
    if number is not None and number >= 1 << 63:
        number = None  # larger than an int64; no example has so many values
    if spec.is_sequence:
        target.value_counts.value_count.add()  # any number of steps
        target.value_counts.value_count.add(min=number, max=number)
    elif number is not None and not spec.optional:
        target.shape.SetInParent()
        for size in known_sizes:
            target.shape.dim.add(size=size)
    else:
        target.value_count.SetInParent()
        target.value_count.MergeFrom(schema_pb2.ValueCount(min=number, max=number))
    if spec.content is Content.IMAGE:
        target.image_domain.SetInParent()
    elif spec.kind is Kind.INT64 and spec.class_names:
        last = len(spec.class_names) - 1
        target.int_domain.MergeFrom(
            schema_pb2.IntDomain(name=spec.name, min=0, max=last, is_categorical=True)
        )
        proto.string_domain.add(name=spec.name, value=spec.class_names)
    elif spec.kind is Kind.INT64 and spec.dtype == "bool":
        target.bool_domain.SetInParent()
    elif spec.kind is Kind.INT64 and feature.unit:
        target.time_domain.integer_format = TIME_FORMATS[feature.unit]
    elif spec.kind is not Kind.BYTES:
        _fill_bounds(target, spec)


def _fill_bounds(target: Message, spec: FeatureSpec) -> None:
    for name, bound in (("min", spec.minimum), ("max", spec.maximum)):
        if bound is None:
            continue
        if spec.kind is Kind.FLOAT and abs(bound) <= _FLOAT32_MAX:
            setattr(target.float_domain, name, bound)
        elif spec.kind is Kind.INT64 and isinstance(bound, int):
            if -(1 << 63) <= bound < 1 << 63:
                setattr(target.int_domain, name, bound)


def _add_representations(proto: Message, specs: Sequence[FeatureSpec]) -> None:
    """Adds the tensor representations of all features; TFX drops features without one."""
    group = proto.tensor_representation_group[DEFAULT_GROUP].tensor_representation
    shapes = {f.name: f.shape for f in proto.feature if f.HasField("shape")}
    for spec in specs:
        if not spec.is_ragged and spec.name in shapes:
            group[spec.name].dense_tensor.column_name = spec.name
            group[spec.name].dense_tensor.shape.CopyFrom(shapes[spec.name])
        elif not spec.is_ragged:
            group[spec.name].varlen_sparse_tensor.column_name = spec.name
        else:
            values_key, *row_lengths = spec.keys
            tensor = group[spec.name].ragged_tensor
            tensor.feature_path.step.append(values_key)
            for key in row_lengths:
                tensor.partition.add(row_length=key)
            for size in spec.shape[spec.ragged_rank + 1 :]:
                tensor.partition.add(uniform_row_length=size)


def _add_comment(
    target: Message, feature: DeclaredFeature, stated_fields: Fields
) -> None:
    """Adds a comment with the properties that the fields of TFMD do not restore."""
    declared_fields = _DEFAULTS | feature.model_dump(exclude_defaults=True)
    readable_fields = _DEFAULTS | stated_fields
    unstated_fields = {
        name: declared_fields[name]
        for name in declared_fields
        if declared_fields[name] != readable_fields[name]
    }
    if unstated_fields:
        from recordmill.schemas.yaml_lines import write_yaml

        text = write_yaml(unstated_fields, flow=True).rstrip("\n")
        target.annotation.comment.append(_COMMENT + text)


def _parse_comment(source: Message, uri: str) -> Fields:
    for comment in source.annotation.comment:
        if comment.startswith(_COMMENT):
            location = f"{uri}: comment of feature {source.name!r}"
            from recordmill.schemas.yaml_lines import YamlDocument

            fields = YamlDocument(comment[len(_COMMENT) :].encode(), location).value
            if not isinstance(fields, dict):
                raise SchemaError(
                    f"{location}: expected {{field: value}}, found {fields!r}"
                )
            return fields
    return {}
