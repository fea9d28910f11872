"""Makes small runs for the adversary, and says what must hold after every operation."""

from __future__ import annotations

import json
from functools import cache

from adversary import Actor, Baton, SlowStore

from recordmill.schemas.dataset.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.dataset.shards import (
    ShardResult,
    shard_file_name,
    staged_file_name,
)
from recordmill.schemas.features.feature import Schema
from recordmill.schemas.job.job_spec import JobSpec, RejectLimit
from recordmill.schemas.parsing.schema_file import load_schema
from recordmill.schemas.ranges import InputRange, RangeResult
from recordmill.schemas.reject_totals import RejectTotals
from recordmill.transforms.commit.commit import manifest_digest, seen_manifest
from recordmill.transforms.commit.detached import publish_once
from recordmill.transforms.commit.recovery import clean_up, shut_out_commits
from recordmill.transforms.commit.staging import stage
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.sources.pipeline_rows import PipelineRowsSource
from recordmill.transforms.tasks.context import RunContext
from recordmill.transforms.tasks.leftovers import find_leftovers, remove_leftovers
from recordmill.transforms.tasks.workspace import Workspace
from recordmill.transforms.tfrecord import crc32c

NOWHERE = "/nonexistent/adversary"
SHARDS = 2


@cache
def schema() -> Schema:
    return load_schema(b"features:\n  a: {dtype: int64}\n", "s.yaml").to_schema()


class World:
    """A store, the runs in it, and what is known to be right."""

    def __init__(self, *, conditional: bool = True) -> None:
        self.baton = Baton(self.check)
        self.store = SlowStore(self.baton, "", conditional)
        self.contents: dict[
            str, bytes
        ] = {}  # of staged shards, by fingerprint and name
        self.committed: list[str] = []
        self._last: bytes | None = None

    # --- runs ---

    def publish(self, key: str, *, overwrite: bool = False) -> Actor:
        """Starts a run that publishes a dataset of its own."""
        return self.baton.start(
            f"publish {key}", lambda actor: self._publish(actor, key, overwrite)
        )

    def append(self, key: str) -> Actor:
        """Starts a run that appends to the dataset that it finds."""
        return self.baton.start(
            f"append {key}", lambda actor: self._publish(actor, key, False, append=True)
        )

    def clean(self) -> Actor:
        return self.baton.start("clean", self._clean)

    def _publish(
        self, actor: Actor, key: str, overwrite: bool, *, append: bool = False
    ) -> Manifest:
        store = self.store
        base = find_manifest(store) if append else None
        part = base.appended + 1 if base else 0
        fingerprint = manifest_digest(key.encode())
        if base:
            fingerprint = manifest_digest((base.fingerprint + key).encode())
        workspace = Workspace(store, fingerprint[:16], NOWHERE, NOWHERE, shared=True)
        replaces = seen_manifest(store)
        actor.allowed.add(replaces)
        context = RunContext(
            job=JobSpec(source="csv", name="d", max_rejects=RejectLimit(text="100%")),
            source=PipelineRowsSource(schema()),
            split_names=("train",),
            bucket_bits=1,
            exchange="scratch",
            run_key=fingerprint,
            output=store.uri,
            workspace=workspace,
            overwrite=overwrite,
            part=part,
            base=base.fingerprint if base else "",
            replaces=replaces,
        )
        reject = json.dumps(
            {"uri": None, "position": None, "reason": key, "raw": ""}
        ).encode()

        def put_into_staging(allowed: RunContext) -> Manifest:
            results = [self._shard(allowed, n) for n in range(SHARDS)]
            workspace.put("rejects/rows-00.jsonl", reject + b"\n")
            totals = RejectTotals.of(reject + b"\n")
            rows = RangeResult(
                InputRange(0, "", "", 0, 0, 0, 0), SHARDS + 1, 1, (), rejects=totals
            )
            return stage(allowed, [rows], results, key.encode())

        manifest = publish_once(context, put_into_staging)
        # As at the end of a run that holds the lease.
        workspace.remove()
        remove_leftovers(store, find_leftovers(store, spare=workspace.name))
        return manifest

    def _shard(self, context: RunContext, index: int) -> ShardResult:
        name = shard_file_name("d", "train", index, SHARDS, part=context.part)
        data = f"{context.run_key} {index}".encode()
        self.contents[f"{context.run_key[:8]} {name}"] = data
        context.workspace.store.put_bytes(
            data, context.workspace.store_name(f"staging/{name}")
        )
        return ShardResult("train", index, name, 1, len(data), 1, crc32c(data))

    def _clean(self, actor: Actor) -> None:
        """Cleans as the command does, believing that it has the lease."""
        store = self.store
        actor.allowed.add("any")  # it only makes the generation newer
        if store.size(MANIFEST_NAME) is not None:
            shut_out_commits(store)
            clean_up(store)
        remove_leftovers(store, find_leftovers(store))

    # --- what must hold ---

    def check(self, actor: Actor | None) -> None:
        """Checks what a reader sees now."""
        files = self.baton.files
        data = files.get(MANIFEST_NAME)
        if data is not None:
            manifest = Manifest.from_bytes(data, "manifest")
            for file in manifest.shard_files:
                assert file in files, f"{file} is missing"
            self._require_shards(manifest)
        if data != self._last:
            self._check_change(actor, data)
            self._last = data
        if info := files.get("dataset_info.json"):
            self._check_info(json.loads(info))

    def _require_shards(self, manifest: Manifest) -> None:
        for split in manifest.splits.values():
            for shard in split.shards:
                data = self.baton.files[shard.file]
                found = (len(data), f"{crc32c(data):08x}")
                assert found == (shard.bytes, shard.crc32c), shard.file

    def _check_info(self, info: dict[str, object]) -> None:
        for split in info["splits"]:  # type: ignore[attr-defined]
            for index in range(len(split["shardLengths"])):
                name = (
                    split["filepathTemplate"]
                    .replace("{DATASET}", "d")
                    .replace("{SPLIT}", split["name"])
                    .replace("{FILEFORMAT}", "tfrecord")
                    .replace("{SHARD_X_OF_Y}", f"{index:05d}-of-{SHARDS:05d}")
                )
                assert name in self.baton.files, f"dataset_info.json: {name} is missing"
                fingerprint = name.split(".")[1].rpartition("-")[2]
                expected = self.contents[f"{fingerprint} {staged_file_name(name)}"]
                assert self.baton.files[name] == expected, name

    def _check_change(self, actor: Actor | None, data: bytes | None) -> None:
        """Checks that the dataset was replaced knowingly."""
        assert data is not None, "the manifest is gone"
        new = Manifest.from_bytes(data, "manifest")
        if new.fingerprint not in self.committed[-1:]:
            self.committed.append(new.fingerprint)
        if self._last is None:
            return
        old = Manifest.from_bytes(self._last, "manifest")
        assert new.generation > old.generation
        if old.fingerprint == new.fingerprint:
            return
        allowed = {digest for each in self._who(actor) for digest in each.allowed}
        assert manifest_digest(self._last) in allowed, "replaced unknowingly"

    def _who(self, actor: Actor | None) -> list[Actor]:
        return self.baton.actors if actor is None else [actor]

    def check_end(self) -> None:
        """Checks what the runs reported, and that cleaning leaves one whole dataset.

        A run may fail in any way: others remove the workspace of one that they take for
        dead.
        """
        for actor in self.baton.actors:
            if isinstance(actor.result, Manifest):
                assert actor.result.fingerprint in self.committed, actor.name
        while self.baton.late:
            self.baton.land()
        manifest = find_manifest(self.store)
        if manifest is None:
            return
        shut_out_commits(self.store)
        clean_up(self.store)
        self.check(None)
        manifest = find_manifest(self.store)
        assert manifest is not None
        for name, entry in manifest.files.items():
            data = self.baton.files.get(name)
            assert data is not None, f"{name} is missing"
            assert f"{crc32c(data):08x}" == entry.crc32c, f"{name} is another one's"
