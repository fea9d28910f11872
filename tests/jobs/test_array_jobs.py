"""Arrays and binary files by the command: exchanges, appends, rejects, ways out."""

from __future__ import annotations

import gzip
import shlex
import shutil
from pathlib import Path

import numpy as np
from job_tools import SAMPLES, convert, recordmill
from source_cases import make_idx

from recordmill import open_dataset


def test_exchanges_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = make_idx(tmp_path / "in")
    for file in (tmp_path / "in").glob("*.gz"):  # rows inside cannot be referred to
        file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
        file.unlink()
    found = []
    for exchange in ("scratch", "engine", "reference"):
        output = tmp_path / exchange
        convert("idx", tmp_path / "in", output, "--exchange", exchange, "--name", "a")
        shards = [(s.name, s.read_bytes()) for s in output.glob("*.tfrecord*")]
        found.append(sorted((name.rpartition("tfrecord")[2], d) for name, d in shards))
        counts = [len(open_dataset(str(output), s)) for s in ("train", "test")]
        assert counts == [20, 3]
    assert found[0] == found[1] == found[2]
    assert sum(counts) == len(rows)


def test_an_append_has_the_classes_and_the_rows_of_both(tmp_path: Path) -> None:
    data, output = tmp_path / "in", tmp_path / "out"
    data.mkdir()

    def add(name: str, labels: list[int]) -> None:
        np.save(data / f"images_{name}.npy", np.full((len(labels), 2, 2), 7, np.uint8))
        np.save(data / f"labels_{name}.npy", np.array(labels))

    (data / "names.txt").write_text("cat\ndog\n")
    add("0", [0, 1])
    add("1", [1, 1])
    job = ("numpy", data, output, "--class-names", "names.txt")
    convert(*job)
    add("2", [0])
    convert(*job, "--append")
    labels = [int(row["label"]) for row in open_dataset(str(output), "train")]
    assert sorted(labels) == [0, 0, 1, 1, 1]
    np.save(data / "images_3.npy", np.zeros((2, 2, 2), np.uint8))
    ran = recordmill("convert", *job, "--append")
    assert "images_3.npy: has image uint8 [2, 2]" in ran.err


def test_unlabelled_images_are_a_split_that_may_come_later(tmp_path: Path) -> None:
    (tmp_path / "stl").mkdir()
    for kind, size in ("X", 27648), ("y", 1):
        (tmp_path / f"stl/test_{kind}.bin").write_bytes(b"\1" * size)
    (tmp_path / "stl/train_X.bin").write_bytes(b"\1" * 27648)
    (tmp_path / "stl/train_y.bin").write_bytes(b"\2")
    job = ("binary", tmp_path / "stl", tmp_path / "out")
    convert(*job)
    (tmp_path / "stl/unlabeled_X.bin").write_bytes(b"\3" * 27648)
    convert(*job, "--append")
    assert len(open_dataset(str(tmp_path / "out"), "unlabelled")) == 1
    assert recordmill("verify", "--deep", tmp_path / "out").status == 0


def test_a_row_of_no_class_costs_itself_only(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((3, 2, 2), np.uint8))
    np.save(tmp_path / "classes.npy", np.array([0, 2, 1]))
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    job = ("numpy", tmp_path, tmp_path / "out", "--label-array", "classes.npy")
    job = (*job, "--class-names", "names.txt")
    ran = recordmill("convert", *job)
    told = "label: 2 is not the label of a class (0 to 1)"
    assert ran.status != 0
    assert told in ran.err.replace("\n", " ")
    convert(*job, "--max-rejects", "1")
    assert len(open_dataset(str(tmp_path / "out"), "train")) == 2
    assert told in " ".join(recordmill("rejects", tmp_path / "out").out.split())


def test_layouts_that_fit_are_ways_out(tmp_path: Path) -> None:
    """What a message about another layout names is converted by what it says."""
    ran = recordmill("convert", "binary", SAMPLES / "cifar", tmp_path / "none")
    assert "fits records of CIFAR-10 (convert cifar)" in ran.err
    assert "--record is not given" in ran.err
    convert("cifar", SAMPLES / "cifar", tmp_path / "cifar")
    record = "label:u8,image:u8[3,32,32]:chw->hwc"
    assert record in ran.err
    convert("binary", SAMPLES / "cifar", tmp_path / "binary", "--record", record)
    for name, mark in (("idx", "begins like an IDX"), ("numpy", "is a NumPy array")):
        folder = tmp_path / name
        shutil.copytree(SAMPLES / "digits" / name, folder)
        for file in folder.glob("*.gz"):
            file.with_suffix("").write_bytes(gzip.decompress(file.read_bytes()))
            file.unlink()
        ran = recordmill("convert", "binary", folder, tmp_path / "none")
        assert mark in ran.err
        assert f"(convert {name})" in ran.err
        convert(name, folder, tmp_path / f"{name}-out")


def test_ways_out_of_arrays(tmp_path: Path) -> None:
    """The code that a refusal names makes an array that is taken."""
    path = tmp_path / "a.npy"
    objects = np.array([1, 2], object)
    times = np.array(["2026-01-01", "2026-01-02"], "M8[s]")
    for array, told, repaired in (
        (objects, "numpy.array(values.tolist())", np.array(objects.tolist())),
        (times, "save array.astype(...)", times.astype(np.int64)),
        (np.array(3), "save array[numpy.newaxis]", np.array(3)[np.newaxis]),
    ):
        np.save(path, array, allow_pickle=True)
        ran = recordmill("convert", "numpy", path, tmp_path / "out", "--overwrite")
        assert ran.status != 0
        assert told in " ".join(ran.err.split())
        np.save(path, repaired)
        convert("numpy", path, tmp_path / "out", "--overwrite")


def test_numbers_of_rows_must_agree(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.zeros((3, 2, 2), np.uint8))
    np.save(tmp_path / "more.npy", np.arange(4))
    ran = recordmill("convert", "numpy", tmp_path, tmp_path / "out")
    assert ran.status != 0
    assert "has 3 rows, but" in ran.err
    assert "has 4; expected as many" in ran.err
    (tmp_path / "other").mkdir()
    (tmp_path / "more.npy").rename(tmp_path / "other/images.npy")
    ran = recordmill("convert", "numpy", tmp_path, tmp_path / "out")
    assert "convert such files one by one" in ran.err


def test_splits_of_names_and_of_the_job(tmp_path: Path) -> None:
    digits = tmp_path / "digits"
    digits.mkdir()
    for file in SAMPLES.glob("digits/idx/t10k-*"):  # of the split test
        shutil.copy(file, digits)
    halves = shlex.split("--split a=1/2 --split b=1/2")
    ran = recordmill("convert", "idx", digits, tmp_path / "out", *halves)
    assert "has nothing to divide" in ran.err
    assert "--split-from none" in ran.err
    convert("idx", digits, tmp_path / "out", *halves, "--split-from", "none")
    counts = [len(open_dataset(str(tmp_path / "out"), s)) for s in "ab"]
    assert sum(counts) == 40
    assert min(counts) > 0
