"""Makes this folder again from the wheels of scikit-image and scikit-learn.

    python tests/samples/make_samples.py FOLDER
    diff -r FOLDER tests/samples   # "Only in tests/samples": this file and README.md

Needs scikit-image (made with 0.26.0) and scikit-learn (1.9.1) in the environment; the
project itself needs neither. What comes from where: README.md beside this file.
"""

import csv
import gzip
import json
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import scipy.io
import skimage
import sklearn.datasets
import soundfile
from PIL import Image

IMAGES = {
    "animals": ["chelsea.png", "horse.png"],
    "medicine": ["cell.png", "microaneurysms.png", "retina.jpg"],
    "objects": ["clock_motion.png", "rocket.jpg", "text.png"],
    "textures": ["brick.png", "gravel.png"],
}
CAPTIONS = {"horse": "a horse", "microaneurysms": "dark spots of a retina"}
NUM_TRAIN, NUM_TEST = 160, 40
DIGITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
]
IRIS_COLUMNS = [
    "sepal_length_cm",
    "sepal_width_cm",
    "petal_length_cm",
    "petal_width_cm",
    "species",
]


def make_images(folder: Path) -> None:
    """Copies images as they are."""
    source = Path(skimage.__file__).parent / "data"
    for label, names in IMAGES.items():
        (folder / label).mkdir(parents=True)
        for name in names:
            shutil.copyfile(source / name, folder / label / name)


def make_sounds(folder: Path) -> None:
    """Writes a quarter of a second of tones and chords in three formats."""
    seconds = np.arange(2000) / 8000
    for label, pitches in {"chord": (220, 277, 330), "tone": (440,)}.items():
        (folder / label).mkdir(parents=True)
        for number, form in enumerate(("wav", "flac", "mp3")):
            waves = [np.sin(2 * np.pi * p * (1 + number) * seconds) for p in pitches]
            soundfile.write(
                folder / label / f"{number}.{form}", sum(waves) / 4, 8000, format=form
            )


def make_segmented(folder: Path, images: Path) -> None:
    """Writes masks of two images: by a palette the horse, in gray what is dark."""
    for name in ("images", "masks", "captions"):
        (folder / name).mkdir(parents=True)
    for label, name in ("animals", "horse"), ("medicine", "microaneurysms"):
        path = images / label / f"{name}.png"
        shutil.copyfile(path, folder / "images" / path.name)
        pixels = np.asarray(Image.open(path).convert("L"))
        mask = Image.fromarray((pixels < 90).astype(np.uint8))
        if name == "horse":
            mask.putpalette([0, 0, 0, 255, 255, 255])
        mask.save(folder / "masks" / path.name)
        (folder / "captions" / f"{name}.txt").write_text(f"{CAPTIONS[name]}\n")


def make_cifar(folder: Path) -> None:
    """Writes 8x8 digits as records of CIFAR-10: label, then three planes of 32x32."""
    folder.mkdir(parents=True)
    digits = sklearn.datasets.load_digits()
    grey = (digits.images * 255 / 16).astype(np.uint8)  # 0..16 becomes 0..255
    planes = grey.repeat(4, axis=1).repeat(4, axis=2).reshape(-1, 1024)
    labels = digits.target.astype(np.uint8)[:, None]
    records = np.hstack([labels, planes, planes, planes])
    records[:NUM_TRAIN].tofile(folder / "data_batch_1.bin")
    records[NUM_TRAIN : NUM_TRAIN + NUM_TEST].tofile(folder / "test_batch.bin")
    (folder / "batches.meta.txt").write_text("\n".join(DIGITS) + "\n")


def make_iris(folder: Path) -> None:
    """Writes the table as plain CSV, the class as its name."""
    folder.mkdir(parents=True)
    iris = sklearn.datasets.load_iris()
    with (folder / "iris.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(IRIS_COLUMNS)
        for values, target in zip(iris.data.tolist(), iris.target, strict=True):
            rows.writerow([*values, iris.target_names[target]])


def make_typed(folder: Path, iris: Path) -> None:
    """Writes the same table with typed columns."""
    folder.mkdir(parents=True)
    table = pyarrow.csv.read_csv(iris)
    pyarrow.parquet.write_table(table, folder / "iris.parquet", row_group_size=50)
    with pyarrow.ipc.new_file(folder / "iris.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
    lines = [json.dumps(row) + "\n" for row in table.to_pylist()]
    (folder / "iris.jsonl").write_text("".join(lines))


def make_digits(folder: Path, cifar: Path) -> None:
    """Writes the digits of 8x8 as IDX, as .npy and as MATLAB files."""
    for name in ("idx", "numpy", "svhn"):
        (folder / name).mkdir(parents=True)
    found = {}
    for split, file in ("train", "data_batch_1.bin"), ("t10k", "test_batch.bin"):
        records = np.fromfile(cifar / file, np.uint8).reshape(-1, 3073)
        images = records[:, 1:1025].reshape(-1, 32, 32)[:, ::4, ::4]
        found[split] = images, records[:, 0]
        for kind, array in zip(("images", "labels"), found[split], strict=True):
            head = bytes([0, 0, 8, array.ndim]) + struct.pack(
                f">{array.ndim}I", *array.shape
            )
            path = folder / "idx" / f"{split}-{kind}-idx{array.ndim}-ubyte.gz"
            path.write_bytes(gzip.compress(head + array.tobytes(), mtime=0))
    images, labels = found["t10k"]
    np.save(folder / "numpy" / "images.npy", np.ascontiguousarray(images))
    np.save(folder / "numpy" / "labels.npy", labels)
    shutil.copy(cifar / "batches.meta.txt", folder / "numpy" / "names.txt")
    coloured = images[..., np.newaxis].repeat(3, axis=3)
    values = {
        "X": np.moveaxis(coloured, 0, -1),
        "y": np.where(labels == 0, 10, labels)[:, np.newaxis],
    }
    path = folder / "svhn" / "test_32x32.mat"
    scipy.io.savemat(path, values, do_compression=True)
    with path.open("r+b") as file:
        file.write(b"MATLAB 5.0 MAT-file".ljust(116))  # without the time


def main(folder: Path) -> None:
    make_images(folder / "images")
    make_sounds(folder / "sounds")
    make_segmented(folder / "segmented", folder / "images")
    make_cifar(folder / "cifar")
    make_iris(folder / "iris")
    make_typed(folder / "typed", folder / "iris" / "iris.csv")
    make_digits(folder / "digits", folder / "cifar")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
