"""What recordmill writes is what TensorFlow and TFDS read: they say so themselves."""

from __future__ import annotations

import base64
import csv
import json
from collections.abc import Sequence
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from interop_tools import ask
from job_tools import GOLDEN, IRIS, SAMPLES, convert, payloads, recordmill, shards_of
from PIL import Image
from pixel_zoo import IMAGES, TENSORFLOW_CANNOT_DECODE, TENSORFLOW_MAY_ABORT, make_zoo
from sounds import sound

from recordmill.transforms.images.header import read_header

SCRIPT = "read_dataset.py"

Json = dict[str, Any]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three sample inputs as datasets, named images, digits and iris."""
    folder = tmp_path_factory.mktemp("samples")
    halves = ["--split", "train=0.5", "--split", "test=0.5"]
    convert("images", SAMPLES / "images", folder / "images", *halves)
    convert("cifar", SAMPLES / "cifar", folder / "digits", "--shards", 2)
    convert("csv", IRIS, folder / "iris", "--shards", 2)
    return folder


def test_records_of_all_samples(samples: Path) -> None:
    """TensorFlow's own reader, which checks both CRCs, finds the same records."""
    shards = [
        shard
        for name, splits in (
            ("images", ("train", "test")),
            ("digits", ("train", "test")),
            ("iris", ("train",)),
        )
        for split in splits
        for shard in shards_of(samples / name, split)
    ]
    expected = []
    for shard in shards:
        data = list(payloads(shard))
        joined = b"".join(data)
        expected.append(
            {
                "file": str(shard),
                "records": len(data),
                "bytes": len(joined),
                "sha256": sha256(joined).hexdigest(),
            }
        )
    assert ask(SCRIPT, "records", *shards) == expected
    assert sum(facts["records"] for facts in expected) == 10 + 200 + 150


def values_of(example: Json, name: str) -> tuple[str, list[Any]]:
    """Kind and values of a feature; bytes decoded."""
    feature = example[name]
    values = feature["value"]
    if feature["kind"] == "bytes_list":
        values = [base64.b64decode(value) for value in values]
    return feature["kind"], values


def test_csv_rows(tmp_path: Path) -> None:
    output = tmp_path / "iris"
    convert("csv", IRIS, output, "--no-shuffle", "--compression", "gzip", "--shards", 2)
    examples = ask(SCRIPT, "examples", *shards_of(output))
    with IRIS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(examples) == len(rows) == 150
    for example, row in zip(examples, rows, strict=True):
        assert sorted(example) == sorted(row)
        species = row.pop("species").encode()
        assert values_of(example, "species") == ("bytes_list", [species])
        for name, text in row.items():
            expected = ("float_list", [float(np.float32(text))])
            assert values_of(example, name) == expected


def test_golden_rows(tmp_path: Path) -> None:
    """CIFAR and images as TensorFlow parses them, against the input files."""
    convert("cifar", GOLDEN / "cifar100.bin", tmp_path / "fine", "--no-shuffle")
    names = ["--feature-names", "imagenet"]
    convert("images", GOLDEN / "images", tmp_path / "imgs", "--no-shuffle", *names)
    shards = [*shards_of(tmp_path / "fine"), *shards_of(tmp_path / "imgs")]
    examples = ask(SCRIPT, "examples", *shards)
    assert len(examples) == 20 + 4
    data = np.fromfile(GOLDEN / "cifar100.bin", np.uint8).reshape(20, 3074)
    for example, record in zip(examples[:20], data, strict=True):
        pixels = record[2:].reshape(3, 32, 32).transpose(1, 2, 0).tobytes()
        assert {name: values_of(example, name) for name in example} == {
            "coarse_label": ("int64_list", [record[0]]),
            "label": ("int64_list", [record[1]]),
            "image": ("bytes_list", [pixels]),
            "height": ("int64_list", [32]),
            "width": ("int64_list", [32]),
            "depth": ("int64_list", [3]),
        }
    images = [
        ("cat/a.jpg", b"jpeg", 40, 30, 3, 0),
        ("cat/b.jpg", b"jpeg", 17, 23, 1, 0),
        ("dog/c.png", b"png", 9, 11, 4, 1),
        ("dog/d.png", b"png", 31, 5, 3, 1),
    ]
    for example, (path, kind, height, width, depth, label) in zip(
        examples[20:], images, strict=True
    ):
        data = (GOLDEN / "images" / path).read_bytes()
        assert {name: values_of(example, name) for name in example} == {
            "image/encoded": ("bytes_list", [data]),
            "image/format": ("bytes_list", [kind]),
            "image/height": ("int64_list", [height]),
            "image/width": ("int64_list", [width]),
            "image/channels": ("int64_list", [depth]),
            "image/filename": ("bytes_list", [path.encode()]),
            "image/class/label": ("int64_list", [label]),
            "image/class/text": ("bytes_list", [path[:3].encode()]),
        }


def counts(found: Json) -> dict[str, tuple[int, int]]:
    return {
        split: (facts["num_examples"], facts["read"]) for split, facts in found.items()
    }


def class_names(folder: Path, feature: str) -> Sequence[str]:
    return (folder / f"{feature}.labels.txt").read_text().splitlines()


def test_tfds_reads_iris(samples: Path) -> None:
    (found,) = ask(SCRIPT, "tfds", samples / "iris")
    assert counts(found) == {"train": (150, 150)}
    assert found["train"]["features"] == {
        "petal_length_cm": ["float32", []],
        "petal_width_cm": ["float32", []],
        "sepal_length_cm": ["float32", []],
        "sepal_width_cm": ["float32", []],
        "species": ["string", []],
    }


def test_tfds_gives_the_label_of_a_table_apart(tmp_path: Path) -> None:
    """`as_supervised` of a dataset with a label, and of its export."""
    convert("csv", IRIS, tmp_path / "iris", "--label", "species", "--no-shuffle")
    exported = tmp_path / "exported"
    assert recordmill("export", "tfds", tmp_path / "iris", exported).status == 0
    for folder in (tmp_path / "iris", exported):
        (found,) = ask(SCRIPT, "supervised", folder)
        assert found["names"] == ["setosa", "versicolor", "virginica"]
        with IRIS.open(newline="") as file:
            for (features, label), row in zip(
                found["pairs"], csv.DictReader(file), strict=True
            ):
                assert found["names"][label] == row.pop("species")
                assert features == {n: float(np.float32(t)) for n, t in row.items()}


def test_tfds_reads_the_splits_that_folders_are(tmp_path: Path) -> None:
    for split, number in (("train", 3), ("validation", 2), ("test", 1)):
        for name in ("cat", "dog"):
            (tmp_path / "in" / split / name).mkdir(parents=True)
            for index in range(number):
                path = tmp_path / "in" / split / name / f"{index}.jpg"
                path.write_bytes(IMAGES["rgb.jpg"][0])
    convert("images", tmp_path / "in", tmp_path / "pets")
    (found,) = ask(SCRIPT, "tfds", tmp_path / "pets")
    assert counts(found) == {"train": (6, 6), "validation": (4, 4), "test": (2, 2)}
    assert class_names(tmp_path / "pets", "label") == ["cat", "dog"]


def test_tfds_reads_samples_as_audio(tmp_path: Path) -> None:
    """With those that libsndfile decodes, of one channel and of two."""
    for channels in (1, 2):
        folder = tmp_path / str(channels) / "in" / "a"
        folder.mkdir(parents=True)
        for form in ("16.wav", "16.flac"):
            (folder / form).write_bytes(sound(form, 300, channels, rate=16000))
        out = folder.parents[1] / "sounds"
        convert("audio", folder.parent, out, "--audio", "raw", "--no-shuffle")
        (found,) = ask(SCRIPT, "tfds", out)
        shape = [None] if channels == 1 else [None, 2]
        assert found["train"]["features"]["audio"] == ["int16", shape]
        known, _ = soundfile.read(folder / "16.flac", dtype="int16")
        assert found["train"]["first"]["audio"] == {
            "dtype": "int16",
            "shape": list(known.shape),
            "sha256": sha256(known.tobytes()).hexdigest(),
        }
        features = json.loads((out / "features.json").read_bytes())["featuresDict"]
        audio = features["features"]["audio"]
        assert audio["pythonClassName"].endswith("audio_feature.Audio")
        (supervised,) = ask(SCRIPT, "supervised", out)
        assert [label for _, label in supervised["pairs"]] == [0, 0]


def test_tfds_reads_digits(samples: Path) -> None:
    """All rows of such files: test_published_layouts.py."""
    folder = samples / "digits"
    (found,) = ask(SCRIPT, "tfds", folder)
    assert counts(found) == {"train": (160, 160), "test": (40, 40)}
    assert found["train"]["features"] == {
        "depth": ["int64", []],
        "height": ["int64", []],
        "image": ["uint8", [32, 32, 3]],
        "label": ["int64", []],
        "width": ["int64", []],
    }
    meta = (SAMPLES / "cifar" / "batches.meta.txt").read_text().split()
    assert class_names(folder, "label") == meta


def test_tfds_reads_images(samples: Path) -> None:
    folder = samples / "images"
    (found,) = ask(SCRIPT, "tfds", folder)
    train, test = (facts["read"] for facts in found.values())
    assert train + test == 10
    assert counts(found) == {"train": (train, train), "test": (test, test)}
    assert found["train"]["features"] == {
        "depth": ["int64", []],
        "filename": ["string", []],
        "height": ["int64", []],
        "image": ["uint8", [None, None, 3]],  # TFDS decodes all to one depth
        "label": ["int64", []],
        "width": ["int64", []],
    }
    classes = class_names(folder, "label")
    assert classes == ["animals", "medicine", "objects", "textures"]
    for facts in found.values():
        first = facts["first"]
        path = SAMPLES / "images" / first["filename"]
        header = read_header(path.read_bytes())
        assert classes[first["label"]] == path.parent.name
        size = [first[name] for name in ("height", "width", "depth")]
        assert size == [header.height, header.width, header.depth]
        assert first["image"]["shape"] == [header.height, header.width, 3]


def test_headers_are_those_of_tensorflow(tmp_path: Path) -> None:
    headers = make_zoo(tmp_path)
    # An image that may end TensorFlow's process is not shown to it.
    names = sorted(headers.keys() - TENSORFLOW_MAY_ABORT)
    answers = ask(SCRIPT, "decode-image", *(tmp_path / name for name in names))
    assert [Path(answer["file"]).name for answer in answers] == names
    refused = {
        name for name, said in zip(names, answers, strict=True) if "error" in said
    }
    assert refused == TENSORFLOW_CANNOT_DECODE
    for name, said in zip(names, answers, strict=True):
        if name not in refused:
            _, *size, _ = astuple(read_header((tmp_path / name).read_bytes()))
            assert [said[key] for key in ("height", "width", "depth")] == size, name


def test_tfds_reads_reencoded_images(tmp_path: Path) -> None:
    """Of each kind one is the first of a split; TFDS decodes all that there are."""
    kinds = {
        "train": "lossy-alpha.webp",
        "test": "local-colours.gif",
        "dev": "cmyk.tif",
    }
    for split, name in kinds.items():
        for number, each in enumerate(
            (name, "rgb.jpg", "4-bit.bmp", "gray-16-bit.tif")
        ):
            path = tmp_path / "in" / split / "a" / f"{number}-{each}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(IMAGES[each][0])
    output = tmp_path / "pets"
    convert(
        *("images", tmp_path / "in", output, "--undecodable", "reencode"),
        "--no-shuffle",
    )
    (found,) = ask(SCRIPT, "tfds", output)
    assert counts(found) == dict.fromkeys(kinds, (4, 4))
    for split, name in kinds.items():
        with Image.open(tmp_path / "in" / split / "a" / f"0-{name}") as opened:
            # TFDS asks for three channels, so alpha is left out.
            mode = "RGBA" if name.endswith(".webp") else "RGB"
            expected = np.asarray(opened.convert(mode))[..., :3]
        image = found[split]["first"]["image"]
        assert image["shape"] == list(expected.shape)
        assert image["sha256"] == sha256(expected.tobytes()).hexdigest()
