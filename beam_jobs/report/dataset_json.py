"""Describes a dataset for programs: what `recordmill inspect --json` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recordmill.schemas.feature_spec import FeatureSpec, Kind

if TYPE_CHECKING:
    from recordmill.schemas.manifest import Manifest
    from recordmill.transforms.dataset.count_classes import LabelCounts
    from recordmill.transforms.dataset.reader import ExamplePreview

ClassNames = Mapping[str, tuple[str, ...]]


def inspect_json(
    manifest: Manifest,
    names: ClassNames,
    examples: Sequence[ExamplePreview],
    counts: Sequence[LabelCounts] | None,
    *,
    pictures: bool = False,
) -> dict[str, Any]:
    """Returns the JSON object.

    Args:
      manifest: of the dataset.
      names: of the classes, by feature.
      examples: that are shown.
      counts: of the classes; None if they were not counted.
      pictures: whether to add small PNGs of the examples' pictures.
    """
    entries = {feature.name: feature for feature in manifest.features}
    facts = manifest.model_dump(mode="json", exclude={"splits", "manifest_version"})
    for feature in facts["features"]:
        feature["class_names"] = list(names.get(feature["name"], ()))
    facts["splits"] = {
        name: {
            "records": split.records,
            "bytes": split.bytes,
            "shards": len(split.shards),
            "smallest_shard": min((shard.bytes for shard in split.shards), default=0),
            "largest_shard": max((shard.bytes for shard in split.shards), default=0),
        }
        for name, split in manifest.splits.items()
    }
    facts["classes"] = (
        None if counts is None else {one.feature: one.by_split for one in counts}
    )
    facts["examples"] = [
        _example_json(example, entries, names, pictures=pictures)
        for example in examples
    ]
    return facts


def entry_of(name: str, entries: Mapping[str, FeatureSpec]) -> FeatureSpec:
    """Returns a feature of the manifest; one for plain values if it has none."""
    return entries.get(name) or FeatureSpec(name, Kind.BYTES, shape=(None,))


def _example_json(
    example: ExamplePreview,
    entries: Mapping[str, FeatureSpec],
    names: ClassNames,
    *,
    pictures: bool,
) -> dict[str, Any]:
    from recordmill.transforms.decode.readable import to_json_value

    shown = {
        "split": example.split,
        "file": example.file,
        "record": example.record_index,
        "features": {
            name: to_json_value(values, entry_of(name, entries), names.get(name, ()))
            for name, values in example.values.items()
        },
    }
    if example.json_text:
        shown["json"] = json.loads(example.json_text)
    if pictures:
        from recordmill.beam_jobs.report.example_pictures import pictures_json

        shown["pictures"] = pictures_json(example, entries)
    return shown
