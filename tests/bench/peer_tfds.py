"""Peer: a TFDS dataset builder, prepared into OUTPUT.

    python tests/bench/peer_tfds.py cifar|images INPUT OUTPUT

CIFAR as in TFDS' own cifar10 builder (the Image feature stores PNG); images by
path, which keeps the file's bytes. TFDS shuffles and chooses the shards.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

KeyedExample = tuple[str, dict[str, Any]]


class BenchCifar(tfds.core.GeneratorBasedBuilder):
    """A folder of CIFAR-10 files."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, source: Path, data_dir: Path, file_format: str) -> None:
        self.source = source
        super().__init__(data_dir=data_dir, file_format=file_format)

    def _info(self) -> tfds.core.DatasetInfo:
        features = tfds.features.FeaturesDict(
            {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=(32, 32, 3)),
                "label": tfds.features.ClassLabel(num_classes=10),
            }
        )
        return tfds.core.DatasetInfo(
            builder=self, features=features, supervised_keys=("image", "label")
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[KeyedExample]]:
        return {"train": self._generate_examples()}

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


class BenchImages(tfds.core.GeneratorBasedBuilder):
    """A folder with one folder of images per class."""

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, source: Path, data_dir: Path, file_format: str) -> None:
        self.source = source
        super().__init__(data_dir=data_dir, file_format=file_format)

    def _info(self) -> tfds.core.DatasetInfo:
        names = sorted(folder.name for folder in self.source.iterdir())
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(),
                "label": tfds.features.ClassLabel(names=names),
                "filename": tfds.features.Text(),
            }
        )
        return tfds.core.DatasetInfo(
            builder=self, features=features, supervised_keys=("image", "label")
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, Iterator[KeyedExample]]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[KeyedExample]:
        for path in sorted(self.source.glob("*/*")):
            yield (
                f"{path.parent.name}/{path.name}",
                {"image": path, "label": path.parent.name, "filename": path.name},
            )


def main(argv: list[str]) -> int:
    """Prepare one dataset below OUTPUT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("cifar", "images"))
    parser.add_argument("input", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args(argv)
    builder_class = BenchCifar if arguments.kind == "cifar" else BenchImages
    builder = builder_class(
        source=arguments.input, data_dir=arguments.output, file_format="tfrecord"
    )
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
