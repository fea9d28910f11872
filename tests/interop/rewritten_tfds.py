"""Write a dataset as TFDS does, and print what TFDS reads from one.

Run by the interop environment's python (requirements-interop.lock). It never
imports recordmill.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds


class OldShards(tfds.core.GeneratorBasedBuilder):
    """A dataset of TFDS with features of many kinds."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "label": tfds.features.ClassLabel(names=["cat", "dog"]),
                "name": tfds.features.Text(),
                "matrix": tfds.features.Tensor(shape=(2, 3), dtype=np.float32),
                "flag": tfds.features.Scalar(dtype=np.bool_),
                "many": tfds.features.Sequence(tfds.features.Scalar(np.int64)),
                "box": tfds.features.BBoxFeature(),
                "deep": {"number": tfds.features.Scalar(dtype=np.uint8)},
                "objects": tfds.features.Sequence(
                    {
                        "bbox": tfds.features.BBoxFeature(),
                        "label": tfds.features.ClassLabel(names=["car", "bus", "van"]),
                        "tags": tfds.features.Sequence(tfds.features.Text()),
                    }
                ),
                "sound": tfds.features.Audio(sample_rate=8000),
                "levels": tfds.features.Sequence(
                    tfds.features.Sequence(tfds.features.Scalar(np.int64))
                ),
                "said": tfds.features.Translation(["en", "fr"]),
            }
        )
        return tfds.core.DatasetInfo(
            builder=self, features=features, supervised_keys=("image", "label")
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {"train": self._rows(0, 40), "test": self._rows(40, 55)}

    def _generate_examples(self) -> Any:
        raise NotImplementedError

    def _rows(self, start: int, stop: int) -> Iterator[tuple[int, dict[str, Any]]]:
        for n in range(start, stop):
            yield (
                n,
                {
                    "image": np.full((4, 5, 3), n, np.uint8),
                    "label": n % 2,
                    "name": f"row {n}",
                    "matrix": np.full((2, 3), n / 2, np.float32),
                    "flag": n % 3 == 0,
                    "many": list(range(n % 4)),
                    "box": tfds.features.BBox(0.0, 0.1, 0.5, 0.2 + n / 100),
                    "deep": {"number": n},
                    "objects": [
                        {
                            "bbox": tfds.features.BBox(0.0, k / 10, 0.5, 0.9),
                            "label": (n + k) % 3,
                            "tags": [f"tag {t}" for t in range((n + k) % 3)],
                        }
                        for k in range(n % 4)
                    ],
                    "sound": np.arange(n, dtype=np.int64),
                    "levels": [list(range(k)) for k in range(n % 3)],
                    "said": {"en": f"row {n}", "fr": f"rang {n}"},
                },
            )


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of nested features, joined by "/"."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from flat(inner, f"{name}/{key}" if name else key)


def flat_features(feature: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (name, feature) of nested features, joined by "/"."""
    if isinstance(feature, tfds.features.Sequence):
        yield from flat_features(feature.feature, name)
    elif isinstance(feature, tfds.features.FeaturesDict):
        for key, inner in feature.items():
            yield from flat_features(inner, f"{name}/{key}" if name else key)
    else:
        yield name, feature


def rows_of(folder: str) -> dict[str, list[str]]:
    """Return a hash of each row as TFDS reads it, sorted, by split."""
    builder = tfds.builder_from_directory(folder)
    found = {}
    for split in builder.info.splits:
        rows = []
        for row in tfds.as_numpy(builder.as_dataset(split=split)):
            text = ""
            for name, value in sorted(flat(row)):
                is_ragged = isinstance(value, tf.RaggedTensor)
                array = np.asarray(value.to_list() if is_ragged else value, object)
                shape = value.shape if is_ragged else array.shape
                text += f"{name} {shape} {array.tolist()!r};"
            rows.append(hashlib.sha256(text.encode()).hexdigest())
        found[split] = sorted(rows)
    return found


def main(command: str, folder: str, *others: str) -> None:
    """Write a dataset and packed files of its records, or print the rows of folders."""
    if command == "read":
        for each in (folder, *others):
            builder = tfds.builder_from_directory(each)
            names = {
                name: feature.names
                for name, feature in flat_features(builder.info.features)
                if isinstance(feature, tfds.features.ClassLabel)
            }
            print(json.dumps({"rows": rows_of(each), "names": names}))
        return
    builder = OldShards(data_dir=folder, file_format="tfrecord")
    tfds.disable_progress_bar()
    with redirect_stdout(sys.stderr):  # TFDS tells there what it does
        builder.download_and_prepare()
    (shard,) = Path(builder.data_dir).glob("*-train.tfrecord-*")
    for kind in ("GZIP", "ZLIB"):
        path = str(Path(folder, f"{kind}.tfrecord"))
        with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions(kind)) as writer:
            for record in tf.data.TFRecordDataset(str(shard)):
                writer.write(record.numpy())
    print(json.dumps(str(builder.data_dir)))


if __name__ == "__main__":
    main(*sys.argv[1:])
