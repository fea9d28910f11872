"""The features that examples turn out to have, where no schema says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recordmill.schemas.errors import SchemaError
from recordmill.schemas.features.feature import FeatureSpec, Kind, Schema
from recordmill.schemas.proto.example_pb2 import Example

MAX_FEATURES = 10_000


@dataclass(slots=True)
class ObservedFeature:
    """What the examples so far hold under one key.

    Attributes:
      kinds: the list types seen.
      examples: how many have it.
      fewest, most: values in one example.
    """

    kinds: frozenset[str]
    examples: int
    fewest: int
    most: int

    def add(self, other: ObservedFeature) -> None:
        self.kinds |= other.kinds
        self.examples += other.examples
        self.fewest = min(self.fewest, other.fewest)
        self.most = max(self.most, other.most)


@dataclass(slots=True)
class ObservedFeatures:
    """What the examples so far hold, by key."""

    by_name: dict[str, ObservedFeature] = field(default_factory=dict)

    def note(self, example: Example) -> None:
        """Takes one more example into account."""
        for name, feature in example.features.feature.items():
            kind = feature.WhichOneof("kind")
            if kind is not None:  # else it is as if it were not there
                count = len(getattr(feature, kind).value)
                self._add(name, ObservedFeature(frozenset((kind,)), 1, count, count))

    def add(self, other: ObservedFeatures) -> None:
        """Takes what others saw into account."""
        for name, found in other.by_name.items():
            self._add(name, found)

    def _add(self, name: str, found: ObservedFeature) -> None:
        known = self.by_name.get(name)
        if known is not None:
            known.add(found)
            return
        if len(self.by_name) == MAX_FEATURES:
            raise SchemaError(
                f"the examples have more than {MAX_FEATURES} different features "
                f"({name!r} is one more): give a schema with those that are meant"
            )
        self.by_name[name] = ObservedFeature(
            found.kinds, found.examples, found.fewest, found.most
        )

    def to_schema(self, num_examples: int) -> Schema:
        """The schema that all examples fit.

        A feature that not all have is optional. One value in each is a scalar, another
        number that never changes a fixed shape, all else of variable length. Bytes stay
        bytes: whether they are text or a picture cannot be known.

        Raises:
          SchemaError: a feature of several kinds, or no feature at all.
        """
        if not self.by_name:
            raise SchemaError(
                f"none of the {num_examples} examples has a feature: there is nothing "
                "to write"
            )
        _require_one_kind(self.by_name)
        return Schema(
            tuple(
                FeatureSpec(
                    name,
                    Kind(next(iter(found.kinds))),
                    shape=_shape(found),
                    optional=found.examples < num_examples,
                )
                for name, found in self.by_name.items()
            )
        )


def _shape(found: ObservedFeature) -> tuple[int | None, ...]:
    if found.fewest != found.most or found.most == 0:
        return (None,)
    return () if found.most == 1 else (found.most,)


def _require_one_kind(by_name: Mapping[str, ObservedFeature]) -> None:
    problems = [
        f"feature {name!r} is {' in some examples and '.join(sorted(found.kinds))} in "
        "others"
        for name, found in sorted(by_name.items())
        if len(found.kinds) > 1
    ]
    if problems:
        raise SchemaError(
            "\n".join(
                [*problems, "Give a schema: what does not fit it is then a reject"]
            )
        )
