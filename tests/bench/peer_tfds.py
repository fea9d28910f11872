"""Peer: a TFDS dataset builder, prepared into OUTPUT.

    python tests/bench/peer_tfds.py cifar|images INPUT OUTPUT

CIFAR as in TFDS' own cifar10 builder (the Image feature stores PNG); images by
path, which keeps the file's bytes. TFDS shuffles and chooses the shards.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

KeyedExample = tuple[str, dict[str, Any]]


class Bench(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A folder of input."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, source: Path, output: str) -> None:
        self.source = source
        super().__init__(data_dir=output, file_format="tfrecord")

    def info_of(self, **features: Any) -> tfds.core.DatasetInfo:
        """Returns what _info is to return, for features with an image and a label."""
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(features),
            supervised_keys=("image", "label"),
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[KeyedExample]]:
        return {"train": self._generate_examples()}


class BenchCifar(Bench):
    """A folder of CIFAR-10 files."""

    def _info(self) -> tfds.core.DatasetInfo:
        return self.info_of(
            id=tfds.features.Text(),
            image=tfds.features.Image(shape=(32, 32, 3)),
            label=tfds.features.ClassLabel(num_classes=10),
        )

    def _generate_examples(self) -> Iterator[KeyedExample]:
        row_index = 0
        for path in sorted(self.source.glob("data_batch_*.bin")):
            data = path.read_bytes()
            for start in range(0, len(data), 3073):
                pixels = np.frombuffer(data, np.uint8, 3072, start + 1)
                key = f"train_{row_index:07d}"
                image = pixels.reshape(3, 32, 32).transpose(1, 2, 0)
                yield key, {"id": key, "image": image, "label": data[start]}
                row_index += 1


class BenchImages(Bench):
    """A folder with one folder of images per class."""

    def _info(self) -> tfds.core.DatasetInfo:
        names = sorted(folder.name for folder in self.source.iterdir())
        return self.info_of(
            image=tfds.features.Image(),
            label=tfds.features.ClassLabel(names=names),
            filename=tfds.features.Text(),
        )

    def _generate_examples(self) -> Iterator[KeyedExample]:
        for path in sorted(self.source.glob("*/*")):
            label, name = path.parent.name, path.name
            yield f"{label}/{name}", {"image": path, "label": label, "filename": name}


def main(kind: str, source: str, output: str) -> None:
    """Prepares one dataset below OUTPUT."""
    builder_class = {"cifar": BenchCifar, "images": BenchImages}[kind]
    builder_class(Path(source), output).download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
