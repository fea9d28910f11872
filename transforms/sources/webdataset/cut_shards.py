"""Cuts large shards between samples, by a walk along the headers of their files.

Only the header before says where the next one is, so the walk begins at the start of a
shard, and reads 512 bytes of each file. It takes what tarfile, which reads the samples,
takes the same way: plain files, links and folders, with long names of either kind.

A shard in which a key comes again is not cut at all, as that is told of a whole shard. So is
one that has anything else, or is damaged: nobody knows then which keys come behind that.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from recordmill.schemas.ranges import InputFile
from recordmill.transforms.archives.list_tar import BLOCK
from recordmill.transforms.sources.webdataset.sample_keys import key_of
from recordmill.transforms.storage.compressions import compression_of
from recordmill.transforms.storage.reading import is_local, local_path

RANGE_BYTES = 32 << 20
# Of more shards each is a range: there is work for all, and no walk in front of it.
MAX_CUT_SHARDS = 64
_LONG_NAME_BYTES = 1 << 16

_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_WITHOUT_DATA = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)
# As tarfile reads them; its stubs leave them out.
_number_in: Callable[[bytes], int] = vars(tarfile)["nti"]
_checksums_of: Callable[[bytes], tuple[int, int]] = vars(tarfile)["calc_chksums"]


class _Member(NamedTuple):
    """A file of a shard.

    Attributes:
      start: byte at which its headers begin.
      name: as bytes.
      is_folder: whether it is a folder.
    """

    start: int
    name: bytes
    is_folder: bool


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
    key: bytes | None = None
    try:
        descriptor = os.open(local_path(file.uri), os.O_RDONLY)
    except OSError:
        return []  # who reads it says so
    try:
        # A loop per file: some 10 us each, a tenth of what reading it takes.
        for member in _members(descriptor, file.size):
            if member is None:
                return []
            own = None if member.is_folder else key_of(member.name)
            if own is None or own[0] == key:
                continue
            key = own[0]
            hashed = hash(key)
            if hashed in keys:
                return []
            keys.add(hashed)
            least = (found[-1] if found else 0) + range_bytes
            if least <= member.start <= file.size - range_bytes:
                found.append(member.start)
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return found


def _members(descriptor: int, size: int) -> Iterator[_Member | None]:
    """Yields the files of an archive; None at last, where one is not understood."""
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
        name = _text(block[:100])
        if prefix := _text(block[345:500]):
            name = prefix + b"/" + name
        if long_name:
            name = long_name
        if kind == tarfile.AREGTYPE and name.endswith(b"/"):
            break
        if kind not in _FILES and kind not in _WITHOUT_DATA:
            break
        yield _Member(start, name, kind == tarfile.DIRTYPE)
        at = start = after if kind in _FILES else data
        long_name = None
    else:
        return  # without a mark of the end: the shard breaks off
    yield None


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _name_in(records: bytes) -> bytes | None:
    """Returns the name in the records of a pax header, b"" for none.

    Returns:
      None if there is a record that says more about the file than its name and times.
    """
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
