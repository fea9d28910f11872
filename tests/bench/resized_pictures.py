"""Compares recordmill and others at scaling photographs to 224 x 224: pictures a second.

    python tests/bench/resized_pictures.py [--pictures 2000] [--img2dataset PYTHON]

Whole processes, start-up included, in turns; the median of three rounds. Inputs are JPEGs of
500 x 375 and of 1280 x 960 pixels, each scaled so that its shorter side is 224, cropped to
the middle of 224 x 224 and encoded as JPEG of quality 92. The loop is peer_resize.py in
.venv-interop. img2dataset has two processes and reads the same files by file:// URLs; its
mode `center_crop` scales by area and writes WebDataset tars.

The ratio is the seconds divided by recordmill's. Processor seconds and the largest memory of
all processes stand beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import run_measured
from PIL import Image

ROOT = Path(__file__).parents[2]
RECORDMILL = ROOT / ".venv" / "bin" / "python"
INTEROP = ROOT / ".venv-interop" / "bin" / "python"
SIZES = {"500 x 375": (500, 375, 1.0), "1280 x 960": (1280, 960, 0.5)}
IMG2DATASET = """
import sys
from img2dataset import download
if __name__ == "__main__":
    download(
        url_list=sys.argv[1], output_folder=sys.argv[2], processes_count=2,
        thread_count=16, image_size=224, resize_mode="center_crop",
        encode_format="jpg", encode_quality=92, output_format="webdataset",
        number_sample_per_shard=250, enable_wandb=False,
    )
"""


def write_photos(folder: Path, count: int, width: int, height: int) -> None:
    """Writes pictures of smooth shapes with noise, which compress as photographs do."""
    random = np.random.default_rng(1)
    noise = random.normal(0, 6, (height, width, 3)).astype(np.float32)
    for number in range(count):
        coarse = random.integers(0, 256, (height // 25, width // 25, 3), np.uint8)
        smooth = Image.fromarray(coarse).resize((width, height))
        pixels = (np.asarray(smooth) + np.roll(noise, number, 0)).clip(0, 255)
        path = folder / f"class{number % 10}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(path, quality=88)


def commands(source: Path, args: argparse.Namespace) -> dict[str, list[str]]:
    """Returns the command of each, without its output folder at the end."""
    scale = ["--resize", "shorter=224", "--crop", "224x224"]
    mill = [args.recordmill, "-m", "recordmill", "convert", "images", source]
    found: dict[str, list[object]] = {
        "recordmill": [*mill, *scale, "--workers", 2, "OUT"],
        "loop, all pixels": [args.interop, ROOT / "tests/bench/peer_resize.py", "full"],
        "loop, draft": [args.interop, ROOT / "tests/bench/peer_resize.py", "draft"],
    }
    for name in ("loop, all pixels", "loop, draft"):
        found[name] += [source, "OUT"]
    if args.img2dataset:
        script, urls = source.parent / "i2d.py", source.parent / "urls.txt"
        script.write_text(IMG2DATASET)
        urls.write_text("\n".join(f"file://{p}" for p in sorted(source.glob("*/*"))))
        found["img2dataset, 2 processes"] = [args.img2dataset, script, urls, "OUT"]
    return {name: list(map(str, command)) for name, command in found.items()}


def main() -> None:
    """Measure all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--recordmill", default=RECORDMILL)
    parser.add_argument("--interop", default=INTEROP)
    parser.add_argument("--img2dataset", help="Python of an environment that has it")
    args = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", NO_ALBUMENTATIONS_UPDATE="1")
    with tempfile.TemporaryDirectory() as name:
        for size, (width, height, share) in SIZES.items():
            folder = Path(name) / size.replace(" ", "")
            count = int(args.pictures * share)
            write_photos(folder / "in", count, width, height)
            compare(size, count, folder, args)
            shutil.rmtree(folder)


def compare(size: str, count: int, folder: Path, args: argparse.Namespace) -> None:
    """Measures all with pictures of one size."""
    seconds: dict[str, list[tuple[float, float]]] = {}
    peaks: dict[str, float] = {}
    for _ in range(args.rounds):
        for name, command in commands(folder / "in", args).items():
            output = folder / "out"
            shutil.rmtree(output, ignore_errors=True)
            given = [str(output) if each == "OUT" else each for each in command]
            ran = run_measured(given, log=folder / "log")
            if ran.exit_code:
                sys.exit(f"{name}: {(folder / 'log').read_text()[-2000:]}")
            seconds.setdefault(name, []).append((ran.seconds, ran.cpu_seconds))
            peaks[name] = max(peaks.get(name, 0), ran.peak_rss_bytes / 1e6)
    medians = {
        name: [statistics.median(column) for column in zip(*found, strict=True)]
        for name, found in seconds.items()
    }
    own = medians["recordmill"][0]
    print(f"{count:,} pictures of {size}")
    for name, (wall, cpu) in medians.items():
        print(
            f"  {name:26}{count / wall:8,.0f} a second{wall:8.1f} s{cpu:8.1f} cpu s"
            f"{wall / own:7.2f}x{peaks[name]:8,.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
