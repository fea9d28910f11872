"""Compare images with boxes to the same images without, whole runs in pairs.

    python tests/bench/objects.py [--images 5000] [--boxes 50] [--pairs 7]

Each image has 1 to `boxes` boxes, of COCO. The two of a pair run one after the other, in
turns first. Printed are the ratios of their times, with boxes by without, and the medians:
of the clock, and of the processor.
"""

import argparse
import io
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image

COMMAND = Path(sys.executable).with_name("recordmill")
SHAPES = 20  # different images; bytes behind their end make each another file


def make_tree(folder: Path, images: int, boxes: int) -> None:
    """Write JPEGs of 75 kB, and a COCO file with the boxes in them."""
    chance, noise = Random(1), np.random.default_rng(1)
    (folder / "images").mkdir(parents=True)
    files = []
    for _ in range(SHAPES):
        width, height = chance.randint(400, 640), chance.randint(300, 480)
        pixels = noise.integers(0, 256, (height // 4, width // 4, 3), np.uint8)
        image = Image.fromarray(pixels).resize((width, height))
        image.save(buffer := io.BytesIO(), "JPEG", quality=85)
        files.append((buffer.getvalue(), width, height))
    found: dict[str, list[Any]] = {"images": [], "annotations": []}
    for number in range(images):
        data, width, height = files[number % SHAPES]
        name = f"{number:06d}.jpg"
        (folder / "images" / name).write_bytes(data + number.to_bytes(4, "big"))
        entry = {"id": number, "file_name": name, "height": height, "width": width}
        found["images"].append(entry)
        for _ in range(chance.randint(1, boxes)):
            x, y = chance.uniform(0, width - 9), chance.uniform(0, height - 9)
            sides = chance.uniform(8, width - x), chance.uniform(8, height - y)
            annotation = {
                "id": len(found["annotations"]),
                "image_id": number,
                "category_id": chance.randrange(80),
                "bbox": [round(each, 2) for each in (x, y, *sides)],
                "area": round(sides[0] * sides[1], 2),
                "iscrowd": 0,
            }
            found["annotations"].append(annotation)
    found["categories"] = [{"id": n, "name": f"class {n}"} for n in range(80)]
    (folder / "instances.json").write_text(json.dumps(found))


def seconds(tree: Path, *options: str) -> tuple[float, float]:
    """Run a conversion; return its time by the clock and of the processor."""
    out = tree.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [COMMAND, "convert", "images", tree, out, *options]
    subprocess.run(command, check=True, capture_output=True)
    clock = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return clock, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("images", 5000), ("boxes", 50), ("pairs", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with TemporaryDirectory() as root:
        tree = Path(root, "tree")
        make_tree(tree, given.images, given.boxes)
        seconds(tree)
        ratios = []
        for number in range(given.pairs):
            options: list[list[str]] = [[], ["--annotations", "none"]]
            order = [0, 1] if number % 2 else [1, 0]
            times = {each: seconds(tree, *options[each]) for each in order}
            clock, processor = (times[0][at] / times[1][at] for at in range(2))
            ratios.append((clock, processor))
            print(f"clock {clock:.2f}, processor {processor:.2f}", flush=True)
        clock, processor = (
            statistics.median(each) for each in zip(*ratios, strict=True)
        )
        print(f"medians: clock {clock:.2f}, processor {processor:.2f}")


if __name__ == "__main__":
    main()
