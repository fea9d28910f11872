"""Peer: img2dataset on local files by file:// URLs, which keeps their bytes.

    python tests/bench/peer_img2dataset.py INPUT OUTPUT

Run by the environment of requirements-img2dataset.lock: two processes, tar shards of
10,000, no scaling and no second encoding. It computes sizes and a SHA-256 of each file.
"""

import sys
from pathlib import Path

from img2dataset import download


def main(*argv: str) -> None:
    """Makes the list of URLs, and runs it."""
    source, output = map(Path, argv)
    output.mkdir(parents=True)
    urls = output / "urls.txt"
    urls.write_text("\n".join(path.as_uri() for path in sorted(source.glob("*/*"))))
    download(
        url_list=str(urls),
        output_folder=str(output / "shards"),
        processes_count=2,
        thread_count=16,
        resize_mode="no",
        skip_reencode=True,
        output_format="webdataset",
        number_sample_per_shard=10_000,
        enable_wandb=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
