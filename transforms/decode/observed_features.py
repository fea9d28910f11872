"""Infers the features of examples that come without a schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.feature import FeatureSpec, Kind, Schema
from recordmill.schemas.proto.example_pb2 import Example
from recordmill.schemas.text import count

MAX_FEATURES = 10_000


@dataclass(slots=True)
class ObservedFeature:
    """The values that the examples so far hold under one key.

    Attributes:
      kinds: the list types observed.
      examples: number of examples that have the key.
      min_values, max_values: number of values in one example.
    """

    kinds: frozenset[str]
    examples: int
    min_values: int
    max_values: int

    def add(self, other: ObservedFeature) -> None:
        self.kinds |= other.kinds
        self.examples += other.examples
        self.min_values = min(self.min_values, other.min_values)
        self.max_values = max(self.max_values, other.max_values)


@dataclass(slots=True)
class ObservedFeatures:
    """The features that the examples so far hold, by name."""

    by_name: dict[str, ObservedFeature] = field(default_factory=dict)

    def add_example(self, example: Example) -> None:
        """Adds the features of one example."""
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            if kind is not None:  # a feature without values counts as missing
                num_values = len(getattr(feature, kind).value)
                self._add(
                    name, ObservedFeature(frozenset((kind,)), 1, num_values, num_values)
                )

    def add(self, other: ObservedFeatures) -> None:
        """Adds the features that another worker observed."""
        for name, observed in other.by_name.items():
            self._add(name, observed)

    def _add(self, name: str, observed: ObservedFeature) -> None:
        known = self.by_name.get(name)
        if known is not None:
            known.add(observed)
            return
        if len(self.by_name) == MAX_FEATURES:
            raise SchemaError(
                f"the examples have more than {MAX_FEATURES:,} different features "
                f"({name!r} is one more). Give a schema with the features to keep"
            )
        self.by_name[name] = ObservedFeature(
            observed.kinds, observed.examples, observed.min_values, observed.max_values
        )

    def to_schema(self, num_examples: int) -> Schema:
        """Returns a schema that all examples fit.

        A feature that some examples lack is optional. Always one value makes a scalar,
        always the same number a fixed shape, anything else a variable length. Bytes
        stay
        bytes: whether they are text or an image cannot be inferred.

        Raises:
          SchemaError: a feature has values of several kinds, or there is no feature.
        """
        if not self.by_name:
            raise SchemaError(
                f"none of {count(num_examples, 'example')} has a feature: there is "
                "nothing to write"
            )
        _require_one_kind(self.by_name)
        return Schema(
            tuple(
                FeatureSpec(
                    name,
                    Kind(next(iter(observed.kinds))),
                    shape=_shape(observed),
                    optional=observed.examples < num_examples,
                )
                for name, observed in self.by_name.items()
            )
        )


def _shape(observed: ObservedFeature) -> tuple[int | None, ...]:
    if observed.min_values != observed.max_values or observed.max_values == 0:
        return (None,)
    return () if observed.max_values == 1 else (observed.max_values,)


def _require_one_kind(by_name: Mapping[str, ObservedFeature]) -> None:
    problems = [
        f"feature {name!r} is {' in some examples and '.join(sorted(observed.kinds))} in "
        "others"
        for name, observed in sorted(by_name.items())
        if len(observed.kinds) > 1
    ]
    if problems:
        raise SchemaError(
            "\n".join(
                [*problems, "Give a schema: rows that do not fit it are then rejects"]
            )
        )
