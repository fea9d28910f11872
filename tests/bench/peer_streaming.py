"""Peer: mosaicml-streaming's MDSWriter, shards of 64 MiB, in the order of the names.

    python tests/bench/peer_streaming.py INPUT OUTPUT

Run by the environment of requirements-streaming.lock, with Debian's PyTorch in its path.
Files are taken as they are, with a label; sizes are not looked at, nothing is shuffled,
checksummed or synced.
"""

import importlib.util
import sys
from pathlib import Path

# The package's own __init__ loads its readers of images, which need torchvision; a writer
# does not. So only the subpackage `base` is imported.
SPEC = importlib.util.find_spec("streaming")
sys.modules["streaming"] = importlib.util.module_from_spec(SPEC)

from streaming.base import MDSWriter  # noqa: E402

COLUMNS = {"image": "bytes", "label": "int"}


def main(*argv: str) -> None:
    """Writes a sample for each image in a folder of classes."""
    source, output = map(Path, argv)
    with MDSWriter(out=str(output), columns=COLUMNS, size_limit=1 << 26) as writer:
        for label, folder in enumerate(sorted(source.iterdir())):
            for path in sorted(folder.iterdir()):
                writer.write({"image": path.read_bytes(), "label": label})


if __name__ == "__main__":
    main(*sys.argv[1:])
