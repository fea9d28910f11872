"""Manifests and runs of few facts, for tests of what is done with their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from adversary_runs import schema

from recordmill.schemas.job import JobSpec
from recordmill.schemas.manifest import Manifest, ManifestShard, ManifestSplit
from recordmill.transforms.sources.base import PipelineRowsSource
from recordmill.transforms.tasks.context import PublicationSettings, RunContext
from recordmill.transforms.tasks.workspace import Workspace


def plain_manifest(shards: Sequence[str], **more: Any) -> Manifest:
    """Returns a manifest of shards of one record and 34 bytes each."""
    entries = tuple(
        ManifestShard(file=file, records=1, bytes=34, crc32c="00000abc")
        for file in shards
    )
    split = ManifestSplit(records=len(shards), bytes=34 * len(shards), shards=entries)
    facts: dict[str, Any] = {
        "name": "d",
        "version": "1.0.0",
        "fingerprint": "f" * 32,
        "seed": 0,
        "shuffle": True,
        "compression": "none",
        "features": schema().features,
        "rows_read": len(shards),
        "rows_rejected": 0,
        "splits": {"train": split},
    }
    return Manifest(**{**facts, **more})


def plain_context(workspace: Workspace, **more: Any) -> RunContext:
    """Returns a run of rows that come from no file."""
    facts: dict[str, Any] = {
        "job": JobSpec(source="csv", name="d"),
        "source": PipelineRowsSource(schema()),
        "split_names": ("train", "test"),
        "bucket_bits": 1,
        "exchange": "scratch",
        "run_key": "f" * 32,
        "workspace": workspace,
    }
    last = {field.name for field in fields(PublicationSettings)} & more.keys()
    facts["publishing"] = PublicationSettings(**{name: more.pop(name) for name in last})
    return RunContext(**{**facts, **more})
