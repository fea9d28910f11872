"""Says what must hold after every operation of the adversary's runs."""

from __future__ import annotations

import json
import re

from adversary import Actor, Baton, SlowStore

from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.schemas.names import run_metadata_name, staged_file_name
from recordmill.transforms.commit.cleanup import clean_held
from recordmill.transforms.commit.commit import manifest_digest
from recordmill.transforms.dataset.files import find_manifest
from recordmill.transforms.dataset.tfds import DATASET_INFO_NAME
from recordmill.transforms.dataset.verify import metadata_problems
from recordmill.transforms.storage.store import WORK_FOLDER
from recordmill.transforms.tasks.launches import HEARTBEAT_NAME
from recordmill.transforms.tfrecord import crc32c

SHARDS = 2
_MANIFEST = re.compile(r"(\d+\.\d+\.\d+/)?manifest\.json")


class Checks:
    """A store with runs at work, and what is known to be right.

    Attributes:
      baton: orders their operations.
      store: what is in it.
      contents: of staged shards, by fingerprint and name.
      committed: fingerprints of all datasets that there ever were.
      launches: of detached jobs, by name: the run, and its folder.
    """

    def __init__(self, *, conditional: bool = True) -> None:
        self.baton = Baton(self.check)
        self.store = SlowStore(self.baton, "", conditional)
        self.contents: dict[str, bytes] = {}
        self.committed: list[str] = []
        self.launches: dict[str, tuple[Actor, str]] = {}
        self._last: dict[str, bytes] = {}
        self._latest: tuple[int, ...] = ()

    def check(self, actor: Actor | None) -> None:
        """Checks what a reader sees now."""
        files = self.baton.files
        folders = {name for name in files if _MANIFEST.fullmatch(name)}
        for name in sorted(folders | self._last.keys()):
            self._check_dataset(actor, name.removesuffix(MANIFEST_NAME))
        self._check_latest()
        if actor is not None and not actor.may_end_jobs:
            self._check_launches(actor)

    def _check_dataset(self, actor: Actor | None, folder: str) -> None:
        files, name = self.baton.files, folder + MANIFEST_NAME
        data = files.get(name)
        if data is not None:
            manifest = Manifest.from_bytes(data, "manifest")
            for file in (*manifest.shard_files, *manifest.index_files):
                assert folder + file in files, f"{folder}{file} is missing"
            self._require_shards(folder, manifest)
        if data != self._last.get(name):
            self._check_change(actor, folder, data)
            if data is None:
                del self._last[name]
            else:
                self._last[name] = data
        if info := files.get(f"{folder}dataset_info.json"):
            if data is not None or not folder:
                self._check_info(folder, json.loads(info))

    def _check_latest(self) -> None:
        """Checks that latest.json names a whole version, and never an older one."""
        data = self.baton.files.get("latest.json")
        if data is None:
            return
        version = str(json.loads(data)["version"])
        assert f"{version}/{MANIFEST_NAME}" in self.baton.files, f"latest is {version}"
        numbers = tuple(map(int, version.split(".")))
        assert numbers >= self._latest, "latest.json went back"
        self._latest = numbers

    def _require_shards(self, folder: str, manifest: Manifest) -> None:
        for split in manifest.splits.values():
            for shard in split.shards:
                data = self.baton.files[folder + shard.file]
                found = (len(data), f"{crc32c(data):08x}")
                assert found == (shard.bytes, shard.crc32c), shard.file
        for name, index in manifest.index_files.items():
            data = self.baton.files[folder + name]
            assert (len(data), f"{crc32c(data):08x}") == (index.bytes, index.crc32c), (
                name
            )

    def _check_info(self, folder: str, info: dict[str, object]) -> None:
        for split in info["splits"]:  # type: ignore[attr-defined]
            for index in range(len(split["shardLengths"])):
                name = (
                    split["filepathTemplate"]
                    .replace("{DATASET}", "d")
                    .replace("{SPLIT}", split["name"])
                    .replace("{FILEFORMAT}", "tfrecord")
                    .replace("{SHARD_X_OF_Y}", f"{index:05d}-of-{SHARDS:05d}")
                )
                found = self.baton.files.get(folder + name)
                assert found is not None, f"dataset_info.json: {name} is missing"
                fingerprint = name.split(".")[1].rpartition("-")[2]
                expected = self.contents[f"{fingerprint} {staged_file_name(name)}"]
                assert found == expected, name

    def _check_change(
        self, actor: Actor | None, folder: str, data: bytes | None
    ) -> None:
        """Checks that the dataset was replaced knowingly."""
        before = self._last.get(folder + MANIFEST_NAME)
        allowed = {digest for each in self._who(actor) for digest in each.allowed}
        if data is None:
            assert f"expired {folder.rstrip('/')}" in allowed, "the manifest is gone"
            return
        new = Manifest.from_bytes(data, "manifest")
        if new.fingerprint not in self.committed[-1:]:
            self.committed.append(new.fingerprint)
        if before is None:
            return
        old = Manifest.from_bytes(before, "manifest")
        assert new.generation > old.generation
        if old.fingerprint == new.fingerprint:
            return
        assert manifest_digest(before) in allowed, "replaced unknowingly"

    def _check_launches(self, actor: Actor) -> None:
        """Checks that nobody takes the files of a detached job that may be at work."""
        before = self.baton.before
        gone = before.keys() - self.baton.files.keys()
        for launch, (owner, folder) in self.launches.items():
            work = f"{folder}.recordmill/{launch}/"
            sign = before.get(work + HEARTBEAT_NAME)
            if owner is actor or sign is None or json.loads(sign)["ended"]:
                continue
            taken = [name for name in gone if name.startswith(work)]
            assert not taken, f"{actor.name} took {taken} of a job at work"

    def _who(self, actor: Actor | None) -> list[Actor]:
        return self.baton.actors if actor is None else [actor]

    def check_end(self) -> None:
        """Checks what the runs reported, and that cleaning leaves whole datasets.

        A run may fail in any way: others remove the workspace of one that they take for
        dead.
        """
        for actor in self.baton.actors:
            if isinstance(actor.result, Manifest):
                assert actor.result.fingerprint in self.committed, actor.name
        while self.baton.late:
            self.baton.land()
        for name in [n for n in self.baton.files if _MANIFEST.fullmatch(n)]:
            folder = name.removesuffix(MANIFEST_NAME)
            self._check_cleaned(folder)

    def _check_cleaned(self, folder: str) -> None:
        store = self.store.subfolder_store(folder.rstrip("/")) if folder else self.store
        clean_held(store, lambda: None, detached=True)
        self.check(None)
        manifest = find_manifest(store)
        assert manifest is not None
        beside = store.list_level()
        shards = {name for name in beside.files if ".tfrecord" in name}
        assert shards == {*manifest.shard_files, *manifest.index_files}, "strays"
        assert not beside.unfinished
        assert store.list(WORK_FOLDER) == {}
        for name, entry in manifest.files.items():
            data = self.baton.files.get(folder + name)
            if data is None and self._may_be_missing(folder + name):
                told = metadata_problems(manifest.files, beside.files)
                assert name in {problem.file for problem in told}
                continue
            assert data is not None, f"{folder}{name} is missing"
            assert f"{crc32c(data):08x}" == entry.crc32c, f"{name} is another one's"
        for part in range(manifest.appended + 1):
            name = folder + run_metadata_name(part)
            assert name in self.baton.files or self._may_be_missing(name), name

    def _may_be_missing(self, name: str) -> bool:
        """Tells whether a file is one whose late removal no condition can stop.

        Its bytes may be those of the file that the killed run was to remove; see "What is
        left" in docs/decisions/0008. dataset_info.json is not: it has the mark in it.
        """
        return name in self.baton.taken_late and not name.endswith(DATASET_INFO_NAME)
