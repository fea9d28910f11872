"""Tells the features of what a person's function makes, and tells them to people."""

from __future__ import annotations

from dataclasses import replace

from recordmill.schemas.feature_spec import FeatureSpec, Schema
from recordmill.schemas.job import MapFunction
from recordmill.transforms.map_rows.try_function import Tried
from recordmill.transforms.sources.plain_types import plain_schema


def made_schema(
    tried: Tried, nulls: tuple[int, ...], own: Schema, fixed: Schema | None
) -> Schema:
    """Returns the features of what a function makes.

    A column that it gives back as it was keeps the feature that it has in the other
    source, if any: class names, a picture.

    Args:
      tried: the columns that it makes.
      nulls: missing values of each.
      own: the features of the other source's rows.
      fixed: those of the dataset that rows are appended to, or None.
    """
    by_column = {feature.column: feature for feature in own.features}
    made = []
    for feature in plain_schema(tried.arrow_schema(), nulls).features:
        is_kept = feature.name in tried.kept
        if is_kept and feature.name not in by_column:
            continue  # nor is it a feature without the function
        kept = by_column[feature.name] if is_kept else None
        made.append(_feature(feature, kept, fixed))
    return Schema(tuple(made))


def _feature(
    plain: FeatureSpec, kept: FeatureSpec | None, fixed_schema: Schema | None
) -> FeatureSpec:
    """Returns the feature of a column that was kept or made."""
    feature = plain
    if kept is not None:
        feature = replace(kept, optional=plain.optional)
    if fixed_schema is None:
        return feature
    for fixed in fixed_schema.features:
        for choice in filter(None, (feature, plain)):
            alike = replace(choice, optional=fixed.optional)
            if alike.as_stored() == fixed.as_stored():
                return alike
    return feature


def facts_of_map(
    named: MapFunction, tried: Tried, features: tuple[FeatureSpec, ...]
) -> list[tuple[str, str]]:
    """Returns what is told of a function: the columns that it makes and keeps.

    Args:
      named: the function.
      tried: its columns.
      features: made of them; () if a schema is declared.
    """
    kept = [each.name for each in features if each.column in tried.kept]
    left = {each.column for each in features} or {name for name, _ in tried.columns}
    made = ", ".join(f"{name} {kind}" for name, kind in tried.columns if name in left)
    facts = [("map", f"{named.label} (checksum {named.checksum[:8]}) makes {made}")]
    if kept:
        facts.append(("kept by map", ", ".join(kept)))
    return facts
