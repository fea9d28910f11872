"""Makes small runs for the adversary: whole ones, appended, detached, versions, cleaning."""

from __future__ import annotations

import json
from functools import cache

from adversary import Actor
from adversary_checks import SHARDS, Checks

from recordmill.schemas.feature_spec import Schema
from recordmill.schemas.job import JobSpec, RejectLimit
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.names import index_file_name, shard_file_name
from recordmill.schemas.ranges import (
    IndexResult,
    InputRange,
    RangeResult,
    RejectTotals,
    ShardResult,
)
from recordmill.schemas.schema_file import load_schema
from recordmill.transforms.commit.cleanup import clean_held
from recordmill.transforms.commit.commit import current_manifest_digest, manifest_digest
from recordmill.transforms.commit.staging import publish, stage
from recordmill.transforms.commit.versions import (
    clear_unfinished,
    expired_versions,
    list_versions,
    move_latest,
    next_version,
    remove_version,
    stale_versions,
)
from recordmill.transforms.dataset.files import find_manifest, read_manifest
from recordmill.transforms.sources.base import PipelineRowsSource
from recordmill.transforms.tasks.context import PublicationSettings, RunContext
from recordmill.transforms.tasks.launches import (
    begin_launch,
    has_live_launch,
    keep_alive,
)
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import crc32c

NOWHERE = "/nonexistent/adversary"


@cache
def schema() -> Schema:
    return load_schema(b"features:\n  a: {dtype: int64}\n", "s.yaml").to_schema()


class World(Checks):
    """A store, the runs in it, and what is known to be right."""

    def publish(self, key: str, *, overwrite: bool = False, version: str = "") -> Actor:
        """Starts a run that publishes a dataset of its own."""
        return self.baton.start(
            f"publish {key}",
            lambda actor: self._publish(actor, key, overwrite, version=version),
        )

    def overtake(self, sleeper: Actor, *, before: str) -> Actor:
        """Lets another run publish while one sleeps before a step, and wakes it then."""
        self.baton.pause_before(sleeper, before)
        other = self.publish("y", overwrite=True)
        self.baton.finish(other)
        self.baton.finish(sleeper)
        return other

    def append(self, key: str) -> Actor:
        """Starts a run that appends to the dataset that it finds."""
        return self.baton.start(
            f"append {key}", lambda actor: self._publish(actor, key, False, append=True)
        )

    def detach(self, key: str, *, overwrite: bool = False, version: str = "") -> Actor:
        """Starts a job that is launched, works and publishes without a launcher."""
        name = f"job-{len(self.baton.actors):012x}"
        return self.baton.start(
            f"detached {key}",
            lambda actor: self._publish(
                actor, key, overwrite, version=version, launch=name
            ),
        )

    def clean(self, *, detached: bool = False, version: str = "") -> Actor:
        return self.baton.start(
            "clean", lambda actor: self._clean(actor, version, detached=detached)
        )

    def auto(self, key: str, *, keep: int = 0) -> Actor:
        """Starts a run that publishes the next version."""
        return self.baton.start(
            f"auto {key}", lambda actor: self._next_version(actor, key, keep)
        )

    def _publish(
        self,
        actor: Actor,
        key: str,
        overwrite: bool,
        *,
        append: bool = False,
        version: str = "",
        launch: str = "",
    ) -> Manifest:
        store = self.store.subfolder_store(version) if version else self.store
        base = find_manifest(store) if append else None
        part = base.appended + 1 if base else 0
        fingerprint = manifest_digest((key + version).encode())
        if base:
            fingerprint = manifest_digest((base.fingerprint + key).encode())
        name = launch or fingerprint[:16]
        workspace = Workspace(store, name, NOWHERE, NOWHERE, is_in_store=True)
        replaces = current_manifest_digest(store)
        actor.allowed.add(replaces)
        context = RunContext(
            job=JobSpec(
                source="csv",
                name="d",
                version=version or "1.0.0",
                max_rejects=RejectLimit(text="100%"),
            ),
            source=PipelineRowsSource(schema()),
            split_names=("train",),
            bucket_bits=1,
            exchange="scratch",
            run_key=fingerprint,
            workspace=workspace,
            part=part,
            publishing=PublicationSettings(
                overwrite=overwrite,
                base_fingerprint=base.fingerprint if base else "",
                replaced_manifest_digest=replaces,
            ),
        )
        reject = json.dumps(
            {"uri": None, "position": None, "reason": key, "raw": ""}
        ).encode()
        results: list[ShardResult] = []

        def work(allowed: RunContext) -> None:
            for number in range(SHARDS):
                keep_alive(workspace, at_once=True)
                results.append(self._shard(allowed, number))
            workspace.write_file("rejects/rows-00.jsonl", reject + b"\n")

        def put_into_staging(allowed: RunContext) -> Manifest:
            if not results:
                work(allowed)
            totals = RejectTotals.from_content(reject + b"\n")
            rows = RangeResult(
                InputRange(0, "", "", 0, 0, 0, 0), SHARDS + 1, 1, (), rejects=totals
            )
            return stage(allowed, [rows], results, key.encode())

        if launch:
            folder = f"{version}/" if version else ""
            self.launches[launch] = actor, folder
            begin_launch(workspace, fingerprint)
            work(context)
        manifest = publish(context, put_into_staging)
        # As at the end of a run that holds the lease.
        workspace.remove()
        remove_leftovers(store, find_leftovers(store, spare=workspace.name))
        return manifest

    def _next_version(self, actor: Actor, key: str, keep: int) -> Manifest:
        """Does what run_versioned does, believing that it has the lease."""
        store = self.store
        # It may come upon a job that is launched just now; that stops and says so.
        actor.may_end_jobs = True
        found = list_versions(store)
        whole = [name for name, is_whole in found.items() if is_whole]
        manifest = read_manifest(store.subfolder_store(whole[-1])) if whole else None
        same = manifest_digest((key + whole[-1]).encode()) if whole else ""
        if manifest is None or manifest.fingerprint != same:
            version = next_version(whole[-1] if whole else None)
            own = manifest_digest((key + version).encode())[:16]
            remove_leftovers(store, find_leftovers(store))
            for name in stale_versions(store, found, version, own):
                clear_unfinished(store, name, version)
            manifest = self._publish(actor, key, False, version=version)
        move_latest(store, manifest)
        for version in expired_versions(store, list_versions(store), keep):
            if not has_live_launch(store.subfolder_store(version)):
                actor.allowed.add(f"expired {version}")
                remove_version(store, version)
        return manifest

    def _shard(self, context: RunContext, index: int) -> ShardResult:
        name = shard_file_name("d", "train", index, SHARDS, part=context.part)
        data = f"{context.run_key} {index}".encode()
        self.contents[f"{context.run_key[:8]} {name}"] = data
        context.workspace.store.put_bytes(
            data, context.workspace.store_name(f"staging/{name}")
        )
        noted = self._index(context, name, len(data)) if index else None
        return ShardResult(
            "train", index, name, 1, len(data), 1, crc32c(data), index=noted
        )

    def _index(self, context: RunContext, shard: str, size: int) -> IndexResult:
        """Stages the index of the last shard; the first has none."""
        text = f"0 {size}\n".encode()
        name = context.workspace.store_name(f"staging/{index_file_name(shard)}")
        context.workspace.store.put_bytes(text, name)
        return IndexResult(len(text), crc32c(text))

    def _clean(self, actor: Actor, version: str, *, detached: bool) -> None:
        """Cleans as the command does, believing that it has the lease."""
        store = self.store.subfolder_store(version) if version else self.store
        actor.may_end_jobs = detached
        clean_held(store, lambda: None, detached=detached)
