"""Reads what the fields of a tensorflow-metadata schema say of each feature.

The other direction, and how what these fields cannot say is kept: pbtxt.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from recordmill.schemas.errors import SchemaError

# TFMD's messages come without types. Its module is loaded where it is needed: that
# takes longer than some commands do.
Message = Any
Fields = dict[str, Any]  # of a DeclaredFeature, without those that are as by default

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
    "PLANNED",
    "ALPHA",
    "DEPRECATED",
    "DEBUG_ONLY",
    "DISABLED",
    "VALIDATION_DERIVED",
)

_Shape = tuple[int | None, ...]


def read_features(proto: Message, uri: str) -> Iterator[tuple[str, Fields, Message]]:
    """Reads each feature's name, what TFMD's fields say of it, and its message."""
    ragged, row_lengths = _ragged_features(proto)
    domains = {
        domain.name: domain
        for kind in (proto.int_domain, proto.float_domain, proto.string_domain)
        for domain in kind
    }
    for feature in proto.feature:
        if _is_unused(feature) or feature.name in row_lengths:
            continue
        if feature.name == SEQUENCES and feature.HasField("struct_domain"):
            for child in feature.struct_domain.feature:
                if not _is_unused(child):
                    fields = {"sequence": True, **_shape_of_step(child)}
                    yield (
                        child.name,
                        fields | _feature_fields(child, domains, uri),
                        child,
                    )
        elif feature.name in ragged:
            name, shape = ragged[feature.name]
            yield (
                name,
                {"shape": shape} | _feature_fields(feature, domains, uri),
                feature,
            )
        else:
            fields = _shape_of(feature)
            yield feature.name, fields | _feature_fields(feature, domains, uri), feature


def _feature_fields(feature: Message, domains: dict[str, Message], uri: str) -> Fields:
    """Returns type, presence and domain of a feature, as a declaration has them."""
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
            return fields | {"dtype": "int64"} | _bounds(domain)
        case "INT", "time_domain":
            formats = schema_pb2.TimeDomain.IntegerTimeFormat
            units = {formats.Value(name): unit for unit, name in TIME_FORMATS.items()}
            unit = units.get(domain.integer_format)
            return fields | {"dtype": "int64"} | ({"unit": unit} if unit else {})
        case "INT", _:
            return fields | {"dtype": "int64"}
        case "FLOAT", "float_domain":
            return fields | {"dtype": "float32"} | _bounds(domain)
        case "FLOAT", _:
            return fields | {"dtype": "float32"}
        case "STRUCT", _:
            raise SchemaError(
                f"{location}: STRUCT holds features of its own, which a tf.train.Example "
                "cannot nest: declare each of them by a name like outer/inner"
            )
    raise SchemaError(f"{location}: has no type; expected INT, FLOAT or BYTES")


def _shape_of(feature: Message) -> Fields:
    match feature.WhichOneof("shape_type"):
        case "shape":
            shape = tuple(
                dim.size if dim.HasField("size") and dim.size >= 0 else None
                for dim in feature.shape.dim
            )
        case "value_counts":
            shape = _shape_of_counts(feature.value_counts.value_count)
        case "value_count":
            shape = _shape_of_counts([feature.value_count])
        case _:
            shape = (None,)
    return {"shape": shape} if shape else {}


def _shape_of_step(feature: Message) -> Fields:
    """Returns the shape of one step's value; the first level counts the steps."""
    shape = _shape_of_counts(feature.value_counts.value_count[1:])
    return {"shape": shape} if shape else {}


def _shape_of_counts(counts: Any) -> _Shape:
    shape = tuple(
        count.min if count.HasField("max") and count.min == count.max else None
        for count in counts
    )
    return () if shape == (1,) else shape


def _class_names(domain: Message, domains: dict[str, Message]) -> tuple[str, ...]:
    """Returns the names of a categorical feature's values, if the schema has them."""
    named = domains.get(domain.name)
    if not domain.is_categorical or domain.min != 0 or named is None:
        return ()
    values = tuple(named.value) if named.DESCRIPTOR.name == "StringDomain" else ()
    return values if domain.max == len(values) - 1 else ()


def _bounds(domain: Message) -> Fields:
    bounds: Fields = {}
    for name in ("min", "max"):
        bound = getattr(domain, name)
        if domain.HasField(name) and math.isfinite(bound):
            # A float as short as it is written: 0.1, not the float32 next to it.
            bounds[name] = (
                bound if isinstance(bound, int) else float(str(np.float32(bound)))
            )
    return bounds


def _ragged_features(proto: Message) -> tuple[dict[str, tuple[str, _Shape]], set[str]]:
    """Finds features that lie in several keys, named as TFDS names them.

    Returns:
      For the key of the flat values, the feature's name and shape; and all keys of
      row lengths.
    """
    ragged: dict[str, tuple[str, _Shape]] = {}
    row_lengths: set[str] = set()
    known = {feature.name for feature in proto.feature}
    group = proto.tensor_representation_group.get(DEFAULT_GROUP)
    for name, tensor in group.tensor_representation.items() if group else ():
        parts = tensor.ragged_tensor.partition
        lengths = [part.row_length for part in parts if part.HasField("row_length")]
        values = f"{name}/ragged_flat_values"
        wanted = [f"{name}/ragged_row_lengths_{i}" for i in range(len(lengths))]
        inner = parts[len(lengths) :]
        if (
            list(tensor.ragged_tensor.feature_path.step) == [values]
            and lengths == wanted
            and all(part.HasField("uniform_row_length") for part in inner)
            and lengths
            and known.issuperset([values, *lengths])
        ):
            sizes = (part.uniform_row_length for part in inner)
            ragged[values] = (name, (None,) * (len(lengths) + 1) + tuple(sizes))
            row_lengths.update(lengths)
    return ragged, row_lengths


def _is_unused(feature: Message) -> bool:
    """Returns whether TFX leaves the feature out, for the stage it is in."""
    from tensorflow_metadata.proto.v0 import schema_pb2

    stage = schema_pb2.LifecycleStage.Name(feature.lifecycle_stage)
    return bool(feature.deprecated) or stage in _UNUSED_STAGES
