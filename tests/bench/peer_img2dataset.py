"""Peer: img2dataset on local files by file:// URLs, which keeps their bytes.

    python tests/bench/peer_img2dataset.py INPUT OUTPUT [224]

Run by the environment of requirements-img2dataset.lock: two processes, tar shards of
10,000, no scaling and no second encoding. It computes sizes and a SHA-256 of each file.
With a size images are scaled by OpenCV, the shorter side to it, the other one is cropped
(it has no mode that scales both); its filter is "area", quality 92.
"""

import sys
from pathlib import Path

from img2dataset import download

SCALED = {"resize_mode": "center_crop", "encode_quality": 92}


def main(*argv: str) -> None:
    """Makes the list of URLs, and runs it."""
    source, output = map(Path, argv[:2])
    how = {"resize_mode": "no", "skip_reencode": True}
    if argv[2:]:
        how = {**SCALED, "image_size": int(argv[2])}
    output.mkdir(parents=True)
    urls = output / "urls.txt"
    urls.write_text("\n".join(path.as_uri() for path in sorted(source.glob("*/*"))))
    download(
        url_list=str(urls),
        output_folder=str(output / "shards"),
        processes_count=2,
        thread_count=16,
        output_format="webdataset",
        number_sample_per_shard=10_000,
        enable_wandb=False,
        **how,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
