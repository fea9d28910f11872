"""Count TFRecord records by their lengths, without recordmill or TensorFlow."""

import struct
from pathlib import Path

# u64 length | u32 crc of length | data | u32 crc of data
HEADER_BYTES = 12
FOOTER_BYTES = 4


def count_file_records(path: Path) -> int:
    """Count the records of one uncompressed file; its end must be a record's end."""
    size = path.stat().st_size
    position = num_records = 0
    with path.open("rb") as file:
        while header := file.read(HEADER_BYTES):
            if len(header) < HEADER_BYTES:
                raise OSError(f"{path}: cut off in a header at byte {position}")
            (length,) = struct.unpack_from("<Q", header)
            file.seek(length + FOOTER_BYTES, 1)
            position += HEADER_BYTES + length + FOOTER_BYTES
            num_records += 1
    if position != size:
        raise OSError(f"{path}: {size} bytes, but its records end at {position}")
    return num_records


def count_records(folder: Path) -> int:
    """Count the records of all TFRecord files below a folder."""
    return sum(count_file_records(path) for path in folder.rglob("*.tfrecord*"))
