"""Write files in the layouts of published datasets, and read them with TFDS's own code.

Run by the interop environment's python (requirements-interop.lock). It never imports
recordmill, so what it writes and prints is independent evidence: the files come from
struct, NumPy and scipy.io, the expected rows from the generators of TFDS's builders.
"""

import gzip
import hashlib
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

STL_NAMES = [
    "airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck",
]  # fmt: skip
MNIST_ROWS = {"train": 70, "t10k": 30}


def write(folder: Path) -> None:
    """Write a folder for each layout."""
    random = np.random.default_rng(11)

    def pixels(*shape: int) -> Any:
        return random.integers(0, 256, shape, np.uint8)

    def labels(rows: int, classes: int) -> Any:
        found = random.integers(0, classes, rows).astype(np.uint8)
        found[0] = classes - 1
        return found

    cifar10 = folder / "cifar10" / "cifar-10-batches-bin"
    cifar10.mkdir(parents=True)
    (cifar10 / "batches.meta.txt").write_text("\n".join(STL_NAMES) + "\n\n")
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        rows = [labels(4, 10)[:, np.newaxis], pixels(4, 3072)]
        (cifar10 / f"{name}.bin").write_bytes(np.hstack(rows).tobytes())
    cifar100 = folder / "cifar100" / "cifar-100-binary"
    cifar100.mkdir(parents=True)
    for kind, number in ("coarse", 20), ("fine", 100):
        names = "".join(f"{kind}_{n}\n" for n in range(number))
        (cifar100 / f"{kind}_label_names.txt").write_text(names)
    for name, rows in ("train", 9), ("test", 4):
        parts = [labels(rows, 20)[:, None], labels(rows, 100)[:, None]]
        data = np.hstack([*parts, pixels(rows, 3072)])
        (cifar100 / f"{name}.bin").write_bytes(data.tobytes())
    mnist = folder / "mnist"
    mnist.mkdir()
    for name, rows in MNIST_ROWS.items():
        head = struct.pack(">4I", 0x803, rows, 28, 28)
        data = gzip.compress(head + pixels(rows, 28, 28).tobytes())
        (mnist / f"{name}-images-idx3-ubyte.gz").write_bytes(data)
        head = struct.pack(">2I", 0x801, rows)
        data = gzip.compress(head + labels(rows, 10).tobytes())
        (mnist / f"{name}-labels-idx1-ubyte.gz").write_bytes(data)
    stl10 = folder / "stl10" / "stl10_binary"
    stl10.mkdir(parents=True)
    (stl10 / "class_names.txt").write_text("\n".join(STL_NAMES) + "\n")
    (stl10 / "fold_indices.txt").write_text("0 1 2\n")
    for name, rows in ("train", 5), ("test", 3), ("unlabeled", 4):
        pixels(rows, 3, 96, 96).tofile(stl10 / f"{name}_X.bin")
        if name != "unlabeled":
            (labels(rows, 10) + 1).astype(np.uint8).tofile(stl10 / f"{name}_y.bin")


class Downloads:
    """Stands for TFDS's download manager: what it would download is there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def download_and_extract(self, url: Any) -> Any:
        """Return the folder of an archive, or each file by its name, unpacked."""
        if isinstance(url, str):
            return str(self.folder)
        return {key: self._unpacked(each) for key, each in url.items()}

    def download(self, urls: dict[str, str]) -> dict[str, str]:
        """Return each file by its name."""
        return {key: str(self.folder / Path(url).name) for key, url in urls.items()}

    def _unpacked(self, url: str) -> str:
        packed = self.folder / Path(url).name
        path = self.folder.with_name(f"unpacked-{packed.stem}")
        path.write_bytes(gzip.decompress(packed.read_bytes()))
        return str(path)


def rows_of(examples: Any) -> list[list[Any]]:
    """Digest of the image and labels of each example."""
    return [
        [
            hashlib.sha256(np.ascontiguousarray(example["image"])).hexdigest(),
            list(example["image"].shape),
            *(int(example[k]) for k in ("coarse_label", "label") if k in example),
        ]
        for example in examples
    ]


def names_of(builder: Any) -> dict[str, list[str]]:
    """Names of classes by feature."""
    found = builder.info.features
    return {k: found[k].names for k in ("coarse_label", "label") if k in found}


def expect(layout: str, folder: Path) -> dict[str, Any]:
    """Read the files of a layout with the generators of TFDS's own builder."""
    import tensorflow_datasets as tfds
    from tensorflow_datasets.image_classification import mnist

    mnist._TRAIN_EXAMPLES = MNIST_ROWS["train"]
    mnist._TEST_EXAMPLES = MNIST_ROWS["t10k"]
    builder = tfds.builder_cls(layout)(data_dir=str(folder.parent / "tfds"))
    splits = builder._split_generators(Downloads(folder))
    if not isinstance(splits, dict):
        splits = {
            str(each.name): builder._generate_examples(**each.gen_kwargs)
            for each in splits
        }
    rows = {
        str(split): rows_of(e for _, e in examples)
        for split, examples in splits.items()
    }
    return {"rows": rows, "names": names_of(builder)}


def read(folder: Path) -> dict[str, Any]:
    """Read a dataset by TFDS, in its order."""
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(str(folder))
    rows = {}
    for split in builder.info.splits:
        found = builder.as_dataset(split=split, shuffle_files=False)
        rows[split] = rows_of(tfds.as_numpy(found))
    return {"rows": rows, "names": names_of(builder)}


def main(command: str, *arguments: str) -> None:
    """Run one command."""
    if command == "write":
        write(Path(arguments[0]))
    elif command == "expect":
        print(json.dumps(expect(arguments[0], Path(arguments[1]))))
    else:
        print(json.dumps(read(Path(arguments[0]))))


if __name__ == "__main__":
    main(*sys.argv[1:])
