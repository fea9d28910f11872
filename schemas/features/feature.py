"""Defines FeatureSpec and Schema: an example's features and how each is stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from recordmill.schemas.errors import SchemaError

Shape = tuple[int | None, ...]


def shape_text(shape: Shape) -> str:
    """Returns a shape as a schema file has it.

    >>> shape_text((None, 4))
    '[null, 4]'
    """
    return f"[{', '.join('null' if side is None else str(side) for side in shape)}]"


class Kind(StrEnum):
    """The oneof of tf.train.Feature that holds the values (example.proto)."""

    BYTES = "bytes_list"
    FLOAT = "float_list"
    INT64 = "int64_list"


class Content(StrEnum):
    """What the values of a feature are, for those who read the dataset."""

    VALUES = "values"  # numbers, text or bytes as they are
    PICTURE = "picture"  # the bytes of a picture file
    ARRAY = "array"  # an array's row-major bytes
    TENSOR = "tensor"  # a serialized TensorProto (tf.io.parse_tensor reads it)


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature of the example.

    Attributes:
      name: key in the example's feature map.
      kind: list type the values are stored in.
      column: Arrow column they come from; empty means the feature's own name.
      dtype: the values' NumPy type name, or "string" (UTF-8 text), or "bytes".
      shape: of one example's value; () is a scalar, None an unknown dimension.
      content: how to understand bytes.
      optional: some examples may lack the feature.
      class_names: for a class label, the text of each index.
      num_classes: of a class label; a manifest keeps only this, not the names.
      minimum, maximum: bounds of the values, inclusive; None if there is none.
      sequence: a feature list of a SequenceExample, one value (of `shape`) a step.
    """

    name: str
    kind: Kind
    column: str = ""
    dtype: str = ""
    shape: Shape = ()
    content: Content = Content.VALUES
    optional: bool = False
    class_names: tuple[str, ...] = ()
    num_classes: int | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None
    sequence: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise SchemaError("a feature needs a name, got an empty one")
        if not self.column:
            object.__setattr__(self, "column", self.name)
        if not self.dtype:
            object.__setattr__(self, "dtype", _NATURAL_DTYPE[self.kind])
        if self.class_names:
            object.__setattr__(self, "num_classes", len(self.class_names))

    @property
    def is_ragged(self) -> bool:
        """Returns whether the values lie in several keys, as TFDS stores them."""
        return self.content is Content.VALUES and self.shape.count(None) > 1

    @property
    def keys(self) -> tuple[str, ...]:
        """Returns the keys of the example's feature map that hold the feature.

        A ragged one has its values in one key and, for each dimension from the second
        to the last unknown one, the lengths of its rows in another
        (tensorflow_datasets/core/example_serializer.py).
        """
        if not self.is_ragged:
            return (self.name,)
        return (
            f"{self.name}/ragged_flat_values",
            *(
                f"{self.name}/ragged_row_lengths_{level}"
                for level in range(self.ragged_rank)
            ),
        )

    @property
    def ragged_rank(self) -> int:
        """Returns how many dimensions have their own row lengths; 0 if not ragged."""
        if not self.is_ragged:
            return 0
        return max(i for i, size in enumerate(self.shape) if size is None)

    def as_stored(self) -> FeatureSpec:
        """Returns the feature without column and class names, as a manifest has it."""
        if self.column == self.name and not self.class_names:
            return self
        return replace(self, column="", class_names=())

    def to_json(self) -> dict[str, Any]:
        """Returns the feature as the manifest's JSON states it."""
        stated: dict[str, Any] = {
            "name": self.name,
            "kind": str(self.kind),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "content": str(self.content),
            "optional": self.optional,
            "num_classes": self.num_classes,
        }
        if self.minimum is not None:
            stated["minimum"] = self.minimum
        if self.maximum is not None:
            stated["maximum"] = self.maximum
        if self.sequence:
            stated["sequence"] = True
        return stated


def usual_kind(dtype: str) -> Kind:
    """Returns the list that stores values of a dtype where nothing else is asked for.

    >>> usual_kind("uint8")
    <Kind.INT64: 'int64_list'>
    """
    if dtype in ("string", "bytes"):
        return Kind.BYTES
    return Kind.FLOAT if dtype.startswith("float") else Kind.INT64


_NATURAL_DTYPE = {Kind.BYTES: "bytes", Kind.FLOAT: "float32", Kind.INT64: "int64"}


def map_order(key: str) -> bytes:
    """Returns a key that sorts a map's keys as protobuf's runtime does (see Schema)."""
    return key.encode() + b"\xff"  # no byte of UTF-8 is as high


@dataclass(frozen=True, slots=True)
class Schema:
    """The features of every example, in the order protobuf's runtime writes them.

    Deterministic serialization sorts map keys by their UTF-8 bytes, and where one key
    begins another (upb, the runtime of Python's protobuf) the longer one comes first.
    """

    features: tuple[FeatureSpec, ...]

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.features, key=lambda f: map_order(f.name)))
        for feature, following in pairwise(ordered):
            if feature.name == following.name:
                raise SchemaError(
                    f"feature names must differ, got {feature.name!r} twice"
                )
        owners: dict[str, str] = {}
        for feature in ordered:
            for key in feature.keys:
                other = owners.setdefault(key, feature.name)
                if other != feature.name:
                    raise SchemaError(
                        f"features {other!r} and {feature.name!r} would both be stored "
                        f"under the key {key!r}: rename one of them"
                    )
        labels: dict[str, FeatureSpec] = {}  # by the name of their file, without ending
        for feature in ordered:
            if not feature.class_names:
                continue
            same = labels.setdefault(feature.name.replace("/", "."), feature)
            if same.class_names != feature.class_names:
                raise SchemaError(
                    f"features {same.name!r} and {feature.name!r} have different "
                    "classes, and both labels files would be "
                    f"{feature.name.replace('/', '.')}.labels.txt: rename one of them"
                )
        if not ordered:
            raise SchemaError("a schema needs at least one feature, got none")
        object.__setattr__(self, "features", ordered)

    def __getitem__(self, name: str) -> FeatureSpec:
        for feature in self.features:
            if feature.name == name:
                return feature
        raise KeyError(name)

    def __len__(self) -> int:
        return len(self.features)
