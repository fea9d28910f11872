"""Peer: webdataset's ShardWriter, tar shards of 1 GB, in the order of the names.

    python tests/bench/peer_webdataset.py INPUT OUTPUT

Run by the environment of requirements-peers.lock. Files are taken as they are, with a
label; sizes are not looked at, nothing is shuffled, checksummed or synced.
"""

import sys
from pathlib import Path

from webdataset import ShardWriter

SHARD_BYTES = 1 << 30


def main(*argv: str) -> None:
    """Writes a sample for each image in a folder of classes."""
    source, output = map(Path, argv)
    output.mkdir(parents=True)
    pattern = str(output / "rows-%05d.tar")
    with ShardWriter(
        pattern, maxcount=1_000_000, maxsize=SHARD_BYTES, verbose=0
    ) as writer:
        for label, folder in enumerate(sorted(source.iterdir())):
            for path in sorted(folder.iterdir()):
                name = path.suffix.removeprefix(".")
                key = f"{folder.name}/{path.stem}"
                writer.write({"__key__": key, name: path.read_bytes(), "cls": label})


if __name__ == "__main__":
    main(*sys.argv[1:])
