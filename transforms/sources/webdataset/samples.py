"""Finds the samples of a shard: files with the same key, side by side."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from recordmill.schemas.errors import InputError
from recordmill.transforms.archives.list_tar import BLOCK, problem_of
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.sources.webdataset.sample_keys import key_of
from recordmill.transforms.sources.webdataset.shard_bytes import (
    STEP_BYTES,
    ShardBytes,
)

_DAMAGED = "The shard is damaged: copy it again, or leave it out of the inputs"
_KEPT = 1000  # members that tarfile keeps at most


@dataclass(slots=True)
class Sample:
    """The files of one key.

    Attributes:
      key: of the sample.
      start: byte of the archive where the data of its first file begins.
      members: the bytes of each file, by what follows the key in its name.
      raw: the bytes of the archive from `start` to the end of the last file.
      problem: why it can be no row, or "".
    """

    key: str
    start: int
    members: dict[str, bytes] = field(default_factory=dict)
    raw: bytes = b""
    problem: str = ""


@dataclass(slots=True)
class ShardMembers:
    """Reads the samples of a shard.

    Attributes:
      shard: its bytes.
      left_out: files that belong to no sample.
    """

    shard: ShardBytes
    left_out: list[str] = field(default_factory=list)

    def samples(self) -> Iterator[Sample]:
        """Yields the samples in their order; the last may be one that breaks off.

        Raises:
          InputError: the archive is damaged.
        """
        uri = self.shard.file.uri
        try:
            yield from self._samples()
        except (
            tarfile.TarError,
            ValueError,
            OverflowError,
            RecursionError,
            OSError,
        ) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(
                f"{uri}: cannot be read as a tar archive: {error}. {_DAMAGED}"
            ) from error

    def _samples(self) -> Iterator[Sample]:
        shard, sample, end = self.shard, None, 0
        with tarfile.open(
            fileobj=shard, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as tar:
            held: list[tarfile.TarInfo] = vars(tar)["members"]
            is_first = True
            # A loop per file: tarfile parses each header (50 us).
            while True:
                at = tar.offset
                is_over = not is_first and at >= shard.stop  # the first one was read
                is_first = False
                if is_over and shard.stop < shard.file.size:
                    if sample is not None:  # another range goes on with the next one
                        yield self._whole(sample, end)
                    return
                shard.kept_from = max(0, (sample.start if sample else at) - BLOCK)
                try:
                    info = tar.next()
                except tarfile.ReadError:
                    shard.seek(max(0, at - 1))
                    if shard.read(1):
                        raise
                    yield self._cut(sample, min(end, at))  # in what fills up a block
                    return
                if info is None:
                    break
                if len(held) > _KEPT:
                    held.clear()  # a kilobyte each
                if info.isdir():
                    continue
                found = key_of(info.name)
                if found is None:
                    self.left_out.append(info.name)
                    continue
                key, name = found
                if sample is None or sample.key != key:
                    if sample is not None:
                        yield self._whole(sample, end)
                    sample = Sample(key, info.offset_data)
                    shard.kept_from = max(0, sample.start - BLOCK)
                if not self._add(sample, name, info):
                    yield self._cut(sample, info.offset_data)
                    return
                end = info.offset_data + (info.size if info.isreg() else 0)
            if not self._has_end(tar.offset):
                yield self._cut(sample, tar.offset)
            elif sample is not None:
                yield self._whole(sample, end)

    def _add(self, sample: Sample, name: str, info: tarfile.TarInfo) -> bool:
        """Adds a file to a sample; tells whether the archive holds all of it."""
        if problem := problem_of(info):
            sample.problem = sample.problem or f"{info.name!r} is {problem}"
            return True
        if name in sample.members:
            sample.problem = sample.problem or f"holds two files {name!r}"
        if info.offset_data + info.size - sample.start > MAX_CELL_BYTES:
            sample.problem = (
                f"has more bytes than a record can hold ({MAX_CELL_BYTES:,})"
            )
            sample.members.clear()
            return self._passes(sample, info)
        self.shard.seek(info.offset_data)
        data = self.shard.read(info.size)
        sample.members[name] = data
        return len(data) == info.size

    def _passes(self, sample: Sample, info: tarfile.TarInfo) -> bool:
        """Reads past a file that is not kept; tells whether the archive holds all of it."""
        at, stop = info.offset_data, info.offset_data + info.size
        sample.start = at  # so nothing of it is held
        while at < stop:
            self.shard.kept_from = at
            self.shard.seek(at)
            read = len(self.shard.read(min(STEP_BYTES, stop - at)))
            if not read:
                return False
            at += read
        sample.start = stop
        return True

    def _whole(self, sample: Sample, end: int) -> Sample:
        """Returns a sample with its raw bytes."""
        at = self.shard.tell()
        if len(sample.members) == 1 and not sample.problem:
            (sample.raw,) = sample.members.values()
            return sample
        self.shard.seek(sample.start)
        sample.raw = self.shard.read(max(0, end - sample.start))
        self.shard.seek(at)
        return sample

    def _cut(self, sample: Sample | None, at: int) -> Sample:
        """Returns what the shard breaks off with, up to its end."""
        sample = sample or Sample("", at)
        self.shard.seek(sample.start)
        sample.raw = self.shard.read()
        size = sample.start + len(sample.raw)
        sample.problem = (
            f"the shard ends at byte {size:,} without the mark of its end, so files of "
            "this sample may be missing, and all that follow: copy it again"
        )
        return sample

    def _has_end(self, offset: int) -> bool:
        """Tells whether the mark of the end follows the last file.

        Raises:
          InputError: something else does.
        """
        uri = self.shard.file.uri
        self.shard.seek(offset)
        block = self.shard.read(BLOCK)
        if any(block) and len(block) == BLOCK:
            raise InputError(
                f"{uri}: has no header of a file at byte {offset:,}, where one should be. "
                f"{_DAMAGED}"
            )
        if len(block) < BLOCK:
            return False
        at = offset + BLOCK
        while True:
            self.shard.kept_from = at
            self.shard.seek(at)
            rest = self.shard.read(BLOCK)
            if not rest:
                return True
            if any(rest):
                raise InputError(
                    f"{uri}: goes on after its end at byte {offset:,}: are these several "
                    "archives in one file? Join archives with tar --concatenate"
                )
            at += len(rest)
