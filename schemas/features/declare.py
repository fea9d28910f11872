"""Declares features that are known: the way back from a Schema."""

from __future__ import annotations

from typing import Any

from recordmill.schemas.features.declared import DeclaredFeature, DeclaredSchema
from recordmill.schemas.features.feature import Content, FeatureSpec, Schema


def declare_schema(schema: Schema) -> DeclaredSchema:
    """Declares the features of a schema, so that they are the same once declared."""
    return DeclaredSchema(
        features={feature.name: declare_feature(feature) for feature in schema.features}
    )


def declare_feature(spec: FeatureSpec) -> DeclaredFeature:
    """Returns the shortest declaration of one feature."""
    fields: dict[str, Any] = {
        "dtype": spec.dtype,
        "shape": spec.shape,
        "stored": str(spec.kind),
        "optional": spec.optional,
        "classes": spec.class_names,
        "min": spec.minimum,
        "max": spec.maximum,
        "sequence": spec.sequence,
    }
    if spec.column != spec.name:
        fields["column"] = spec.column
    if spec.content is Content.TENSOR:
        fields["stored"] = "tensor"
    elif spec.content is Content.PICTURE:
        fields |= {"dtype": "bytes", "shape": ()}
        fields["picture"] = {"decodable": False}
        if spec.dtype != "bytes":
            height, width, channels = spec.shape
            fields["picture"] = {"height": height, "width": width, "channels": channels}
    feature = DeclaredFeature.model_validate(fields)
    if feature.model_copy(update={"stored": None}).storage == feature.stored:
        fields["stored"] = None
    return DeclaredFeature.model_validate(fields)
