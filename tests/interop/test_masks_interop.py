"""TFDS reads masks beside images as the numbers that Pillow wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from interop_tools import run_in_interop
from job_tools import recordmill
from PIL import Image

CODE = """
import json
import tensorflow_datasets as tfds
builder = tfds.builder_from_directory("out")
feature = builder.info.features["masks"]
print(json.dumps([type(feature).__name__, feature.shape, feature.dtype.name]))
for row in tfds.as_numpy(builder.as_dataset(split="train")):
    print(json.dumps([row["filename"].decode(), row["image"].shape, row["masks"].tolist()]))
"""


@pytest.mark.parametrize("how", ["kept", "scaled", "raw"])
@pytest.mark.parametrize("kind", ["palette", "uint8", "uint16"])
def test_tfds_reads_the_numbers_of_masks(tmp_path: Path, kind: str, how: str) -> None:
    dtype = "uint8" if kind == "palette" else kind
    random = np.random.default_rng(1)
    wanted = {}
    for folder in ("images", "masks"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    for name in "abc":
        mask = random.integers(0, np.iinfo(dtype).max, (6, 8), dtype)
        image = Image.fromarray(mask)
        if kind == "palette":
            image.putpalette([each * 31 % 256 for each in range(768)])
        image.save(tmp_path / f"data/masks/{name}.png")
        Image.new("RGB", (8, 6)).save(tmp_path / f"data/images/{name}.jpg")
        kept = Image.fromarray(mask)
        if how != "kept":
            kept = kept.resize((4, 3), Image.Resampling.NEAREST)
        wanted[f"images/{name}.jpg"] = np.asarray(kept)[:, :, None].tolist()
    options = {
        "kept": (),
        "scaled": ("--resize", "3x4"),
        "raw": ("--resize", "3x4", "--pixels", "raw"),
    }[how]
    ran = recordmill("convert", "images", tmp_path / "data", tmp_path / "out", *options)
    assert ran.status == 0, ran.err
    printed = run_in_interop(tmp_path, "-c", CODE).splitlines()
    feature, *rows = map(json.loads, printed)
    sides = [None, None] if how == "kept" else [3, 4]
    assert feature == ["Tensor" if how == "raw" else "Image", [*sides, 1], dtype]
    assert {name: mask for name, _, mask in rows} == wanted
    assert {tuple(shape) for _, shape, _ in rows} == {
        (6, 8, 3) if how == "kept" else (3, 4, 3)
    }
