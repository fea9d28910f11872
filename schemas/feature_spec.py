"""Defines FeatureSpec and Schema, the features of examples, and compares schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise, zip_longest
from types import MappingProxyType
from typing import Any

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.names import LABELS_ENDING
from recordmill.schemas.text import format_names

Shape = tuple[int | None, ...]


def format_shape(shape: Shape) -> str:
    """Returns a shape in the notation of schema files.

    >>> format_shape((None, 4))
    '[null, 4]'
    """
    return f"[{', '.join('null' if side is None else str(side) for side in shape)}]"


class Kind(StrEnum):
    """The oneof of tf.train.Feature that holds the values (example.proto)."""

    BYTES = "bytes_list"
    FLOAT = "float_list"
    INT64 = "int64_list"


class Content(StrEnum):
    """The meaning of a feature's stored values, for readers of the dataset."""

    VALUES = "values"  # plain numbers, text or bytes
    IMAGE = "picture"  # the bytes of an image file; datasets store this word
    ARRAY = "array"  # the row-major bytes of an array
    TENSOR = "tensor"  # a serialized TensorProto (tf.io.parse_tensor reads it)


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """A feature of the examples."""

    name: str  # key in the example's feature map
    kind: Kind  # list type that stores the values
    column: str = ""  # Arrow column of the values; empty means the feature's own name
    # NumPy type name of the values, or "string" (UTF-8 text), or "bytes"
    dtype: str = ""
    # shape of one example's value; () is a scalar, None an unknown dimension
    shape: Shape = ()
    content: Content = Content.VALUES  # meaning of stored bytes
    optional: bool = False  # whether examples may lack the feature
    class_names: tuple[str, ...] = ()  # for a class label, the name of each index
    # number of classes of a class label; a manifest stores this, not the names
    num_classes: int | None = None
    # inclusive bounds of the values; None for no bound
    minimum: int | float | None = None
    maximum: int | float | None = None
    # whether it is a feature list of a SequenceExample, one value (of `shape`) per step
    is_sequence: bool = False
    # whether it has a value for each object in an example; TFDS groups features whose
    # names have the same folder (objects/bbox, objects/label) into a list of dicts
    is_nested: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError("a feature needs a name, got an empty one")
        if not self.column:
            object.__setattr__(self, "column", self.name)
        if not self.dtype:
            object.__setattr__(self, "dtype", _NATURAL_DTYPE[self.kind])
        if self.class_names:
            object.__setattr__(self, "num_classes", len(self.class_names))
        if self.is_nested and ("/" not in self.name or self.shape[:1] != (None,)):
            raise SchemaError(
                f"feature {self.name!r}: a nested one has a name like objects/label and a "
                f"shape that begins with null, got {format_shape(self.shape)}"
            )

    @property
    def labels_file(self) -> str:
        """Returns the name of the file with the class names, as in TFDS."""
        folder, _, name = (
            self.name.rpartition("/") if self.is_nested else ("", "", self.name)
        )
        folder = folder.replace("/", ".") + "-" if folder else ""
        return folder + name.replace("/", ".") + LABELS_ENDING

    @property
    def is_ragged(self) -> bool:
        """Returns whether the values are stored under several keys, as in TFDS."""
        return self.content is Content.VALUES and self.shape.count(None) > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the keys of the example's feature map that store the feature.

        A ragged feature stores its values under one key. For each dimension from the
        second to the last unknown one, it stores the row lengths under another key
        (tensorflow_datasets/core/example_serializer.py).
        """
        if not self.is_ragged:
            return (self.name,)
        lengths = f"{self.name}/ragged_row_lengths_"
        levels = map(str, range(self.ragged_rank))
        return (
            f"{self.name}/ragged_flat_values",
            *(lengths + level for level in levels),
        )

    @property
    def ragged_rank(self) -> int:
        """Returns the number of dimensions with stored row lengths; 0 if not ragged."""
        if not self.is_ragged:
            return 0
        return max(i for i, size in enumerate(self.shape) if size is None)

    def as_stored(self) -> FeatureSpec:
        """Returns the feature without column and class names, as in a manifest."""
        if self.column == self.name and not self.class_names:
            return self
        return replace(self, column="", class_names=())

    def manifest_fields(self) -> dict[str, Any]:
        """Returns the fields of the feature that a manifest stores, by key."""
        stated = {name: getattr(self, name) for name in STORED_KEYS}
        used_fields = {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "sequence": self.is_sequence,
            "nested": self.is_nested,
        }
        for name, default in STORED_KEYS_IF_USED.items():
            if used_fields[name] is not default:
                stated[name] = used_fields[name]
        return stated


# The keys of a feature in a manifest. The keys in STORED_KEYS_IF_USED occur only if their
# value differs from the value here.
STORED_KEYS = ("name", "kind", "dtype", "shape", "content", "optional", "num_classes")
STORED_KEYS_IF_USED = MappingProxyType(
    {"minimum": None, "maximum": None, "sequence": False, "nested": False}
)


def usual_kind(dtype: str) -> Kind:
    """Returns the list type that stores values of a dtype by default.

    >>> usual_kind("uint8")
    <Kind.INT64: 'int64_list'>
    """
    if dtype in ("string", "bytes"):
        return Kind.BYTES
    return Kind.FLOAT if dtype.startswith("float") else Kind.INT64


_NATURAL_DTYPE = {Kind.BYTES: "bytes", Kind.FLOAT: "float32", Kind.INT64: "int64"}


def map_sort_key(key: str) -> bytes:
    """Returns a sort key for map keys that matches protobuf's runtime (see Schema)."""
    return key.encode() + b"\xff"  # higher than any byte of UTF-8


@dataclass(frozen=True, slots=True)
class Schema:
    """The features of every example, in the order that protobuf's runtime writes.

    Deterministic serialization sorts map keys by their UTF-8 bytes. If one key is a
    prefix of another, the longer key comes first (upb, the runtime of Python's protobuf).
    """

    features: tuple[FeatureSpec, ...]

    def __post_init__(self) -> None:
        ordered_features = tuple(
            sorted(self.features, key=lambda f: map_sort_key(f.name))
        )
        for feature, next_feature in pairwise(ordered_features):
            if feature.name == next_feature.name:
                raise SchemaError(
                    f"feature names must differ, got {feature.name!r} twice"
                )
        owners: dict[str, str] = {}
        for feature in ordered_features:
            for key in feature.keys:
                other = owners.setdefault(key, feature.name)
                if other != feature.name:
                    raise SchemaError(
                        f"features {other!r} and {feature.name!r} would both be stored "
                        f"under the key {key!r}: rename one of them"
                    )
        labels: dict[str, FeatureSpec] = {}  # class labels by name of their labels file
        for feature in ordered_features:
            if not feature.class_names:
                continue
            labelled_feature = labels.setdefault(feature.labels_file, feature)
            if labelled_feature.class_names != feature.class_names:
                raise SchemaError(
                    f"features {labelled_feature.name!r} and {feature.name!r} have different "
                    "classes, and both labels files would be "
                    f"{feature.labels_file}: rename one of them"
                )
        if not ordered_features:
            raise SchemaError("a schema needs at least one feature, got none")
        object.__setattr__(self, "features", ordered_features)

    def __getitem__(self, name: str) -> FeatureSpec:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    def __len__(self) -> int:
        return len(self.features)


Number = int | float

_MAX_NAMES = 5


def compare_schemas(expected: Schema, actual_schema: Schema) -> list[str]:
    """Returns the differences between two schemas that readers would notice.

    Source columns are not compared. A required feature may replace an optional one. A
    feature that is expected without class names or image size may have any.

    Args:
      expected: The expected schema.
      actual_schema: The schema to compare.

    Returns:
      One line for each difference.
    """
    expected_features = {spec.name: spec for spec in expected.features}
    actual_features = {spec.name: spec for spec in actual_schema.features}
    lines = []
    for name in sorted(expected_features | actual_features):
        if name not in actual_features:
            lines.append(
                f"feature {name!r} is missing: was {_describe_feature(expected_features[name])}"
            )
        elif name not in expected_features:
            lines.append(
                f"feature {name!r} is new: {_describe_feature(actual_features[name])}"
            )
        else:
            lines += [
                f"feature {name!r}: {change}"
                for change in _compare_features(
                    expected_features[name], actual_features[name]
                )
            ]
    return lines


def find_range_violations(
    expected: Schema, observed: Mapping[str, tuple[Number, Number]]
) -> list[str]:
    """Returns one line for each feature with values outside its bounds.

    Args:
      expected: The schema with the bounds.
      observed: The lowest and the highest observed value of each feature, by name.
    """
    lines = []
    for spec in expected.features:
        if spec.name not in observed:
            continue
        lowest, highest = observed[spec.name]
        low = spec.minimum is not None and lowest < spec.minimum
        high = spec.maximum is not None and highest > spec.maximum
        if low or high:
            actual_range = (
                f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
            )
            lines.append(
                f"feature {spec.name!r}: values {actual_range}, expected {_format_bounds(spec)}"
            )
    return lines


def _compare_features(old_spec: FeatureSpec, new_spec: FeatureSpec) -> list[str]:
    changes = [
        f"{aspect} changed: was {old}, is {new}"
        for aspect, old, new in (
            ("stored as", str(old_spec.kind), str(new_spec.kind)),
            ("content", str(old_spec.content), str(new_spec.content)),
            ("dtype", old_spec.dtype, new_spec.dtype),
            ("nested", old_spec.is_nested, new_spec.is_nested),
        )
        if old != new
    ]
    if not _shape_fits(old_spec, new_spec):
        old, new = _format_shape(old_spec.shape), _format_shape(new_spec.shape)
        changes.append(f"shape changed: was {old}, is {new}")
    if old_spec.is_sequence != new_spec.is_sequence:
        part = {True: "feature list", False: "context"}
        old, new = part[old_spec.is_sequence], part[new_spec.is_sequence]
        changes.append(f"moved: was in the {old}, is in the {new}")
    if new_spec.optional and not old_spec.optional:
        changes.append("is now optional: some examples lack it")
    if old_spec.class_names:
        changes += _compare_classes(old_spec.class_names, new_spec.class_names)
    return changes


def _compare_classes(old_names: Sequence[str], new_names: Sequence[str]) -> list[str]:
    """Returns unknown and lost class names, and the first index whose class changed."""
    if not new_names:
        return [f"no longer has class names: were {_format_names(old_names)}"]
    unknown_names = [name for name in new_names if name not in set(old_names)]
    lost_names = [name for name in old_names if name not in set(new_names)]
    changes = []
    if unknown_names:
        changes.append(f"unknown classes: {_format_names(unknown_names)}")
    if lost_names:
        changes.append(f"lost classes: {_format_names(lost_names)}")
    for index, (old, new) in enumerate(zip(old_names, new_names, strict=False)):
        if old != new:
            changes.append(f"class {index} changed: was {old!r}, is {new!r}")
            break
    return changes


def _shape_fits(old_spec: FeatureSpec, new_spec: FeatureSpec) -> bool:
    if old_spec.shape == new_spec.shape:
        return True
    if old_spec.content is not Content.IMAGE or new_spec.content is not Content.IMAGE:
        return False
    # The shape of an image feature only restricts the sizes, so it can be relaxed.
    return all(
        old in (None, new)
        for old, new in zip_longest(old_spec.shape, new_spec.shape, fillvalue=None)
    )


def _describe_feature(spec: FeatureSpec) -> str:
    optional = " or missing" if spec.optional else ""
    shape = f"{spec.dtype} {_format_shape(spec.shape)} in {spec.kind}"
    if spec.content is Content.IMAGE:
        return f"{shape}, an image{optional}"
    stored = "" if spec.content is Content.VALUES else f", a {spec.content}"
    return f"{shape}{stored}{optional}"


def _format_shape(shape: Sequence[int | None]) -> str:
    sides = ", ".join("?" if side is None else str(side) for side in shape)
    return f"[{sides}]" if sides else "scalar"


def _format_bounds(spec: FeatureSpec) -> str:
    if spec.minimum is None:
        return f"at most {spec.maximum}"
    if spec.maximum is None:
        return f"at least {spec.minimum}"
    return f"{spec.minimum} to {spec.maximum}"


def _format_names(names: Sequence[str]) -> str:
    return format_names(list(map(repr, names)), _MAX_NAMES)
