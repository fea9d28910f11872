"""Compares the schema a dataset was expected to have with the one it has.

Only what its readers would notice counts, not where a column was in the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from recordmill.schemas.features.feature import Content, FeatureSpec, Schema

Number = int | float

_MAX_NAMES = 5


def differences(expected: Schema, found: Schema) -> list[str]:
    """Returns the differences between two schemas, a line each.

    A feature that always has a value may take the place of an optional one, and one
    expected without class names or picture size may have any.
    """
    before = {spec.name: spec for spec in expected.features}
    after = {spec.name: spec for spec in found.features}
    lines = []
    for name in sorted(before | after):
        if name not in after:
            lines.append(f"feature {name!r} is lost: was {_described(before[name])}")
        elif name not in before:
            lines.append(f"feature {name!r} is new: {_described(after[name])}")
        else:
            lines += [
                f"feature {name!r}: {change}"
                for change in _changes(before[name], after[name])
            ]
    return lines


def range_violations(
    expected: Schema, observed: Mapping[str, tuple[Number, Number]]
) -> list[str]:
    """Returns the features with values out of their expected range, a line each.

    Args:
      expected: its features' minimum and maximum, both inclusive.
      observed: the lowest and highest value that each feature was seen to have.
    """
    lines = []
    for spec in expected.features:
        if spec.name not in observed:
            continue
        lowest, highest = observed[spec.name]
        low = spec.minimum is not None and lowest < spec.minimum
        high = spec.maximum is not None and highest > spec.maximum
        if low or high:
            found = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
            lines.append(
                f"feature {spec.name!r}: values {found}, expected {_range(spec)}"
            )
    return lines


def _changes(before: FeatureSpec, after: FeatureSpec) -> list[str]:
    changes = [
        f"{aspect} changed: was {old}, is {new}"
        for aspect, old, new in (
            ("stored as", str(before.kind), str(after.kind)),
            ("content", str(before.content), str(after.content)),
            ("dtype", before.dtype, after.dtype),
        )
        if old != new
    ]
    if not _shape_fits(before, after):
        old, new = _shape(before.shape), _shape(after.shape)
        changes.append(f"shape changed: was {old}, is {new}")
    if before.sequence != after.sequence:
        part = {True: "feature list", False: "context"}
        old, new = part[before.sequence], part[after.sequence]
        changes.append(f"moved: was in the {old}, is in the {new}")
    if after.optional and not before.optional:
        changes.append("is optional now: some examples lack it")
    if before.class_names:
        changes += _class_changes(before.class_names, after.class_names)
    return changes


def _class_changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Returns unknown and lost names, and the first index of another class."""
    if not after:
        return [f"has no class names any more: were {_names(before)}"]
    unknown = [name for name in after if name not in set(before)]
    lost = [name for name in before if name not in set(after)]
    changes = []
    if unknown:
        changes.append(f"unknown classes: {_names(unknown)}")
    if lost:
        changes.append(f"lost classes: {_names(lost)}")
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            changes.append(f"class {index} changed: was {old!r}, is {new!r}")
            break
    return changes


def _shape_fits(before: FeatureSpec, after: FeatureSpec) -> bool:
    if before.shape == after.shape:
        return True
    if before.content is not Content.PICTURE or after.content is not Content.PICTURE:
        return False
    # Of pictures the shape is a rule for their size, not how they are stored.
    return all(
        old in (None, new)
        for old, new in zip_longest(before.shape, after.shape, fillvalue=None)
    )


def _described(spec: FeatureSpec) -> str:
    optional = " or missing" if spec.optional else ""
    stored = "" if spec.content is Content.VALUES else f", a {spec.content}"
    return f"{spec.dtype} {_shape(spec.shape)} in {spec.kind}{stored}{optional}"


def _shape(shape: Sequence[int | None]) -> str:
    sides = ", ".join("?" if side is None else str(side) for side in shape)
    return f"[{sides}]" if sides else "scalar"


def _range(spec: FeatureSpec) -> str:
    if spec.minimum is None:
        return f"at most {spec.maximum}"
    if spec.maximum is None:
        return f"at least {spec.minimum}"
    return f"{spec.minimum} to {spec.maximum}"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MAX_NAMES]))
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
