"""Finds the damage of a published dataset that a run with overwrite mends.

Such a run writes the same dataset again, if any file of it is missing or changed. What
is not the dataset's own, as a shard of another run beside it, is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from recordmill.schemas.dataset.manifest import Manifest
from recordmill.schemas.dataset.parts import inputs_name
from recordmill.schemas.errors import OutputError
from recordmill.transforms.commit.input_log import parse_inputs
from recordmill.transforms.dataset.manifest_checks import Problem
from recordmill.transforms.storage import Store


def find_damage(store: Store, manifest: Manifest) -> list[Problem]:
    """Verifies a dataset fully, unless names and sizes alone show that it is damaged.

    Args:
      store: of the dataset.
      manifest: its manifest.
    """
    # Only here: "nothing to do" should not import all that decodes records.
    from recordmill.transforms.dataset.verify import verify_store

    for full in (False, True):
        found = verify_store(store, manifest, full=full, workers=os.cpu_count() or 1)
        if damage := [each for each in found.problems if each.kind == "damage"]:
            return damage
    return list(_inventory_problems(store, manifest))


def _inventory_problems(store: Store, manifest: Manifest) -> Iterator[Problem]:
    """Yields inventories without which nothing can be appended.

    Only manifests of earlier versions do not name them with their checksums.
    """
    for part in range(manifest.appended + 1):
        name = inputs_name(part)
        if manifest.files and name not in manifest.files and part == manifest.appended:
            continue  # made by a pipeline, which has no inventory
        if name not in manifest.files:
            try:
                parse_inputs(store.read(name), store.uri_of(name))
            except OutputError as error:
                yield Problem(name, str(error))
