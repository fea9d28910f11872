"""Tells which published layouts a file may have, for messages."""

from __future__ import annotations

from recordmill.schemas.input_files import InputFile
from recordmill.schemas.storage_options import StorageOptions
from recordmill.transforms.storage.reading import read_range

_SIZES = {
    "CIFAR-10 (convert cifar)": 3073,
    "CIFAR-100 (convert cifar)": 3074,
    "STL-10 (layout=stl10)": 3 * 96 * 96,
}
_MARKS = (
    (b"\x93NUMPY", "a NumPy array (convert numpy)"),
    (b"PK\x03\x04", "a zip archive, as NumPy's .npz is (convert numpy)"),
    (b"MATLAB 5.0", "a MATLAB file (convert svhn)"),
    (b"\x89HDF", "an HDF5 file: write its arrays with numpy.save (convert numpy)"),
    (b"\x1f\x8b", "compressed with gzip: unpack it, or convert idx if it is IDX"),
    (b"BZh", "compressed with bz2: unpack it first"),
    (b"\xfd7zXZ", "compressed with xz: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"),
)
_IDX_TYPES = b"\x08\x09\x0b\x0c\x0d\x0e"


def known_layout(file: InputFile, storage: StorageOptions) -> str:
    """Returns a sentence on what a file may be by its first bytes or its size, or ""."""
    head = read_range(file.uri, 0, min(16, file.size), storage, file.seen)
    for mark, told in _MARKS:
        if head.startswith(mark):
            return f"{file.path} is {told}"
    if len(head) >= 4 and head[:2] == b"\0\0" and head[2] in _IDX_TYPES and head[3] < 9:
        return f"{file.path} begins like an IDX file (convert idx)"
    fits = [name for name, size in _SIZES.items() if file.size and not file.size % size]
    if fits:
        return f"the size of {file.path} fits records of {' or '.join(fits)}"
    return ""
