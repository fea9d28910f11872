"""Finds the arrays inside a .npz file: members of a zip archive, packed or not."""

from __future__ import annotations

import struct
import zipfile
from dataclasses import dataclass, replace

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.sources.arrays.read_rows_of import unpacked
from recordmill.transforms.sources.arrays.row_arrays import RowArray
from recordmill.transforms.sources.arrays.unpack_rows import Unpacked
from recordmill.transforms.storage.reading import open_stream, read_range

MARK = b"PK"
_LOCAL = struct.Struct("<4s5H3I2H")  # the header before a member's bytes
_ENCRYPTED = 1
_ERRORS = (
    zipfile.BadZipFile,
    struct.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
)


@dataclass(frozen=True, slots=True)
class Member:
    """One array of an archive.

    Attributes:
      name: without .npy.
      array: where its bytes are; rows and fields are still to be set.
      size: unpacked bytes, as the archive states them.
    """

    name: str
    array: RowArray
    size: int


def members_of(file: InputFile, storage: StorageOptions) -> list[Member]:
    """Returns the arrays of an archive, in its order.

    Raises:
      InputError: it is not an archive, or holds what cannot be read.
    """
    try:
        with zipfile.ZipFile(open_stream(file, storage)) as archive:
            infos = [i for i in archive.infolist() if not i.filename.endswith("/")]
    except _ERRORS as error:
        raise InputError(
            f"{file.uri}: cannot be read as .npz: {error}. The file is damaged or cut "
            "short: copy it again"
        ) from error
    return [_member(file, info, storage) for info in infos]


def _member(file: InputFile, info: zipfile.ZipInfo, storage: StorageOptions) -> Member:
    where = f"{file.uri}: {info.filename!r}"
    if not info.filename.endswith(".npy"):
        raise InputError(
            f"{where} is no array; expected only .npy members, as numpy.savez writes them"
        )
    packings = {zipfile.ZIP_STORED: "", zipfile.ZIP_DEFLATED: "deflate"}
    if info.flag_bits & _ENCRYPTED or info.compress_type not in packings:
        raise InputError(
            f"{where} is encrypted or packed in an unusual way: write it again with "
            "numpy.savez or numpy.savez_compressed"
        )
    at = info.header_offset
    local = read_range(file.uri, at, at + _LOCAL.size, storage, file.seen)
    if len(local) < _LOCAL.size or not local.startswith(b"PK\3\4"):
        raise InputError(f"{where} is not where the archive says: copy the file again")
    *_, name_bytes, extra_bytes = _LOCAL.unpack(local)
    start = at + _LOCAL.size + name_bytes + extra_bytes
    stop = start + info.compress_size
    if stop > file.size:
        raise InputError(f"{where} goes beyond the end of the file: copy it again")
    array = RowArray(file, start, 1, ())
    if info.compress_type == zipfile.ZIP_DEFLATED:
        array = replace(
            array,
            start=0,
            packing="deflate",
            packed_start=start,
            packed_stop=stop,
            crc32=info.CRC,
        )
    elif info.compress_size != info.file_size:
        raise InputError(f"{where} states two sizes: copy the file again")
    return Member(info.filename.removesuffix(".npy"), array, info.file_size)


class MemberStart:
    """Reads the first bytes of an array, in order; of a packed one as a stream."""

    def __init__(self, member: Member, storage: StorageOptions) -> None:
        self._array, self._storage = member.array, storage
        self._at = member.array.start
        self._stop = member.array.start + member.size
        self._stream: Unpacked | None = None
        if member.array.packing:
            self._stream = unpacked(member.array, storage)

    def take(self, size: int) -> bytes:
        """Returns the next bytes, fewer at the end."""
        if self._stream is not None:
            return self._stream.take(size)
        file, start = self._array.file, self._at
        stop = min(start + size, self._stop)
        data = read_range(file.uri, start, stop, self._storage, file.seen)
        self._at += len(data)
        return data
