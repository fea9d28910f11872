"""Finds the samples of a shard: files with the same key, side by side.

The key of `train/0001.left.jpg` is `train/0001`, and what follows it `left.jpg`, as the
package webdataset has it. A hidden file has no key.

Large shards are cut between samples, by a walk along the headers of their files. Only the
header before says where the next one is, so the walk begins at the start of a shard, and
reads 512 bytes of each file. It takes what tarfile, which reads the samples, takes the
same way: plain files, links and folders, with long names of either kind. A shard in which
a key comes again is not cut at all, as that is reported for a whole shard. So is one that
has anything else, or is damaged: nobody knows then which keys come behind that.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.ranges import InputRange
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.arrow import MAX_CELL_BYTES
from recordmill.transforms.storage.archives import BLOCK, has_end, is_tar, problem_of
from recordmill.transforms.storage.input_stream import (
    TEXT_BYTES,
    InputStream,
    compression_of,
)
from recordmill.transforms.storage.read_member import require_plausible
from recordmill.transforms.storage.reading import is_local, local_path, open_stream

_NAME = re.compile(r"((?:.*/|)[^./]+)[.]([^/]*)", re.DOTALL)


def key_of(name: str) -> tuple[str, str] | None:
    """Returns key and ending of a file; None if it belongs to no sample.

    >>> key_of("train/0001.left.JPG"), key_of(".hidden"), key_of("__key__.txt__")
    (('train/0001', 'left.jpg'), None, None)
    """
    found = _NAME.fullmatch(name)
    if found is None or (name.startswith("__") and name.endswith("__")):
        return None
    return found[1], found[2].lower()


STEP_BYTES = 4 << 20  # read at once: many members by one request


def open_shard(
    file: InputFile | InputRange,
    storage: StorageOptions,
    part: tuple[int, int] | None = None,
) -> InputStream:
    """Opens a shard, or the part of one that is not compressed, as a tar archive."""
    shard = open_stream(file, storage, part=part, window_bytes=STEP_BYTES)
    head = shard.read(BLOCK)
    if not shard.start and (compression := compression_of(head)):
        shard = open_stream(
            file, storage, compression=compression, window_bytes=TEXT_BYTES
        )
        head = shard.read(BLOCK)
    shard.seek(shard.start)
    if len(head) < BLOCK or not is_tar(head):
        raise InputError(
            f"{file.uri}: is not a tar archive, as a shard is. Copy it again, or leave it "
            "out of the inputs"
        )
    return shard


_DAMAGED = "The shard is damaged: copy it again, or leave it out of the inputs"
_KEPT = 1000  # members that tarfile keeps at most


@dataclass(slots=True)
class Sample:
    """The files of one key."""

    key: str
    start: int  # byte of the archive where the data of its first file begins
    members: dict[str, bytes] = field(
        default_factory=dict
    )  # by the name behind the key
    raw: bytes = b""  # of the archive, from there to the end of the last file
    problem: str = ""  # why it can be no row


@dataclass(slots=True)
class ShardMembers:
    """Reads the samples of a shard."""

    shard: InputStream
    left_out: list[str] = field(default_factory=list)  # files that belong to no sample

    def samples(self) -> Iterator[Sample]:
        """Yields the samples in their order; the last may be one that breaks off."""
        failures = tarfile.TarError, ValueError, OverflowError, RecursionError, OSError
        try:
            yield from self._samples()
        except InputError:
            raise
        except failures as error:
            raise InputError(
                f"{self.shard.uri}: cannot be read as a tar archive: {error}. {_DAMAGED}"
            ) from error

    def _samples(self) -> Iterator[Sample]:
        shard, sample, end = self.shard, None, 0
        uri = shard.uri
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
                if is_over and shard.stop < shard.size:
                    if sample is not None:  # another range goes on with the next one
                        yield self._whole(sample, end)
                    return
                shard.kept_from = max(0, (sample.start if sample else at) - BLOCK)
                if shard.is_packed:
                    require_plausible(uri, at, shard.consumed)
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
            if not has_end(shard, tar.offset, _DAMAGED):
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


RANGE_BYTES = 32 << 20
# Of more shards each is a range: there is work for all, and no walk in front of it.
MAX_CUT_SHARDS = 64
_LONG_NAME_BYTES = 1 << 16

_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_WITHOUT_DATA = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)
# As tarfile reads them; its stubs leave them out.
_number_in: Callable[[bytes], int] = vars(tarfile)["nti"]
_checksums_of: Callable[[bytes], tuple[int, int]] = vars(tarfile)["calc_chksums"]


def cut_shards(
    files: Sequence[InputFile], range_bytes: int
) -> list[tuple[InputFile, int, int, str]]:
    """Returns (file, start, stop, split) of each range, in the order of the shards."""
    parts = []
    for file in files:
        ends = [file.size]
        if len(files) <= MAX_CUT_SHARDS and file.size >= 2 * range_bytes:
            ends = [*_cuts(file, range_bytes), file.size]
        starts = [0, *ends[:-1]]
        parts += [(file, *pair, "") for pair in zip(starts, ends, strict=True)]
    return parts


def _cuts(file: InputFile, range_bytes: int) -> list[int]:
    """Returns where samples begin, at least so many bytes from each other."""
    if not is_local(file.uri):
        return []  # a request for each header
    keys: set[int] = set()  # hashes
    found: list[int] = []
    key = ""
    try:
        descriptor = os.open(local_path(file.uri), os.O_RDONLY)
    except OSError:
        return []  # who reads it says so
    try:
        # A loop per file: some 10 us each, a tenth of what reading it takes.
        for member in _members(descriptor, file.size):
            if member is None:
                return []
            start, name = member
            own = key_of(name.decode(errors="surrogateescape"))
            if own is None or own[0] == key:
                continue
            key = own[0]
            if hash(key) in keys:
                return []
            keys.add(hash(key))
            least = (found[-1] if found else 0) + range_bytes
            if least <= start <= file.size - range_bytes:
                found.append(start)
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return found


def _members(descriptor: int, size: int) -> Iterator[tuple[int, bytes] | None]:
    """Yields where headers of a file begin, and its name; b"" for a folder.

    None at last, where one is not understood.
    """
    if compression_of(os.pread(descriptor, BLOCK, 0)):
        yield None
        return
    at = start = 0
    long_name: bytes | None = None
    while at + BLOCK <= size:
        block = os.pread(descriptor, BLOCK, at)
        if len(block) < BLOCK:  # it was longer when it was listed
            break
        if not any(block):  # the mark of the end
            return
        try:
            length = _number_in(block[124:136])
            checksum = _number_in(block[148:156])
        except tarfile.HeaderError:
            break
        if checksum not in _checksums_of(block) or length < 0:
            break
        kind = block[156:157]
        data = at + BLOCK
        after = data + -(-length // BLOCK) * BLOCK
        if kind in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
            if long_name is not None or length > _LONG_NAME_BYTES:
                break
            text = os.pread(descriptor, length, data)
            named = _name_in(text) if kind == tarfile.XHDTYPE else text
            if named is None:
                break
            long_name = named.split(b"\0", 1)[0]
            at = after
            continue
        name = block[:100].split(b"\0", 1)[0]
        if prefix := block[345:500].split(b"\0", 1)[0]:
            name = prefix + b"/" + name
        if long_name:
            name = long_name
        if kind == tarfile.AREGTYPE and name.endswith(b"/"):
            break
        if kind not in _FILES and kind not in _WITHOUT_DATA:
            break
        yield start, b"" if kind == tarfile.DIRTYPE else name
        at = start = after if kind in _FILES else data
        long_name = None
    else:
        return  # without a mark of the end: the shard breaks off
    yield None


def _name_in(records: bytes) -> bytes | None:
    """Returns the name in a pax header, b"" for none; None: it says more of the file."""
    name, at = b"", 0
    while at < len(records):
        length, blank, _ = records[at : at + 20].partition(b" ")
        if not blank or not length.isdigit() or not int(length):
            return None
        end = at + int(length)
        key, equals, value = records[at + len(length) + 1 : end - 1].partition(b"=")
        if not equals or end > len(records) or records[end - 1 : end] != b"\n":
            return None
        if key == b"path":
            name = value
        elif key == b"size" or key == b"hdrcharset" or key.startswith(b"GNU."):
            return None
        at = end
    return name
