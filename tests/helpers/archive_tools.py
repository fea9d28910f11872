"""Packs folders into archives of each kind."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

Members = Mapping[str, bytes]


def files_in(folder: Path) -> dict[str, bytes]:
    """Returns the files below a folder by their paths."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tar_of(
    members: Members | Sequence[tuple[str, bytes]], style: int = tarfile.PAX_FORMAT
) -> bytes:
    """Returns a tar archive; in pairs, names may stand twice."""
    out = io.BytesIO()
    pairs = members.items() if isinstance(members, Mapping) else members
    with tarfile.open(fileobj=out, mode="w", format=style) as tar:
        for name, data in pairs:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def compressed_tar_of(members: Members, compression: str) -> bytes:
    """Returns a tar archive that is compressed as Arrow or Python's tarfile calls it."""
    if compression in ("gzip", "zstd"):
        out = pa.BufferOutputStream()
        with pa.CompressedOutputStream(out, compression) as packed:
            packed.write(tar_of(members))
        return out.getvalue().to_pybytes()
    if compression == "bz2":
        return bz2.compress(tar_of(members))
    # Level 0: each stream of level 6 clears 94 MB, and thousands of them left gigabytes.
    return lzma.compress(tar_of(members), preset=0)


def zip_of(members: Members, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Returns a zip file."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, data in members.items():
            packed.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


ARCHIVES: dict[str, Callable[[Members], bytes]] = {
    "in.tar": tar_of,
    "in.tar.gz": lambda members: compressed_tar_of(members, "gzip"),
    "in.tar.zst": lambda members: compressed_tar_of(members, "zstd"),
    "in.tbz2": lambda members: compressed_tar_of(members, "bz2"),
    "in.tar.xz": lambda members: compressed_tar_of(members, "xz"),
    "in.zip": zip_of,
    "stored.zip": lambda members: zip_of(members, zipfile.ZIP_STORED),
}
