"""Write a dataset of objects with TFDS, and read it, or one that recordmill describes.

    python tests/interop/nested_tfds.py FOLDER [read]

Run by the interop environment's python (requirements-interop.lock). It never imports
recordmill. Printed are the rows as they are read, the features and the class names.
"""

import json
import sys
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import tensorflow_datasets as tfds


def objects(count: int) -> list[dict[str, Any]]:
    """Give so many objects, each other than the next."""
    return [
        {
            "bbox": tfds.features.BBox(0.125 * i, 0.25, 0.5 + 0.125 * i, 0.75),
            "label": i % 2,
            "is_crowd": i == 1,
            "area": 1.5 * i,
            "pose": f"pose {i}",
            "keypoints": np.full((2, 3), i, np.float32),
        }
        for i in range(count)
    ]


class Theirs(tfds.core.GeneratorBasedBuilder):
    """Three examples, of 0, 1 and 3 objects."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        one = {
            "bbox": tfds.features.BBoxFeature(),
            "label": tfds.features.ClassLabel(names=["cat", "dog"]),
            "is_crowd": tfds.features.Scalar(np.bool_),
            "area": tfds.features.Scalar(np.float32),
            "pose": tfds.features.Text(),
            "keypoints": tfds.features.Tensor(shape=(2, 3), dtype=np.float32),
        }
        features = {"objects": tfds.features.Sequence(one)}
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": ((n, {"objects": objects(n)}) for n in (0, 1, 3))}

    def _generate_examples(self) -> Any:
        raise NotImplementedError


def plain(value: Any) -> Any:
    """Give arrays as lists, with text."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    return value.decode() if isinstance(value, bytes) else value


folder = sys.argv[1]
if sys.argv[2:] != ["read"]:
    writer = Theirs(data_dir=folder)
    with redirect_stdout(sys.stderr):  # it shows its progress
        writer.download_and_prepare()
    folder = str(writer.data_dir)
builder = tfds.builder_from_directory(folder)
dataset = builder.as_dataset(split="train", shuffle_files=False)
features = builder.info.features
rows = [plain(row) for row in tfds.as_numpy(dataset)]
print(
    json.dumps(
        {
            "folder": folder,
            "records": len(rows),
            "rows": rows,
            "features": repr(features),
            "names": features["objects"]["label"].names,
        }
    )
)
