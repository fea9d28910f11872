"""Floor: one plain loop that reads each image, checksums it, appends it, and syncs.

    python tests/bench/peer_copy.py INPUT OUTPUT

Nothing is looked at, encoded or shuffled: no program that reads files one after the other
and writes their bytes with a checksum does less. Frames are those of TFRecord, so that the
records can be counted, but for the checksum of the length.

Needs crc32c: recordmill's own environment has it.
"""

import os
import struct
import sys
from pathlib import Path

from crc32c import crc32c


def append_files(source: Path, target: Path) -> None:
    """Append all files to one, on disk when it returns."""
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        for folder in sorted(source.iterdir()):
            for path in sorted(folder.iterdir()):
                data = path.read_bytes()
                head = struct.pack("<QI", len(data), 0)
                frame = [head, data, struct.pack("<I", crc32c(data))]
                if os.writev(out, frame) != len(data) + 16:
                    raise OSError(f"{target}: was not written as a whole")
        os.fsync(out)
    finally:
        os.close(out)


def main(source: str, output: str) -> None:
    """Write OUTPUT/rows.tfrecord."""
    Path(output).mkdir(parents=True)
    append_files(Path(source), Path(output, "rows.tfrecord"))


if __name__ == "__main__":
    main(*sys.argv[1:])
