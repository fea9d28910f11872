"""Makes the cases of arrays: CIFAR, binary records, STL-10, IDX, NumPy, SVHN."""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
from case_lines import section
from cases_csv import MAP

SAMPLES = "../../samples"
LENIENT = "--max-rejects 90%"
SCHEMA = "features:\n  label: int64\n"
RECORD = "--record 'label:u8,image:u8[3,32,32]:chw->hwc'"


def idx(array: np.ndarray[Any, Any], code: int = 8) -> bytes:
    head = bytes([0, 0, code, array.ndim]) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    return head + array.tobytes()


def npy(array: Any, **more: Any) -> bytes:
    held = io.BytesIO()
    np.save(held, array, **more)
    return held.getvalue()


def npz(packed: bool = False, **arrays: Any) -> bytes:
    held = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(held, **arrays)
    return held.getvalue()


def array_cases() -> Iterator[tuple[str, str, dict[str, Any], list[Any]]]:
    random = Random("arrays")
    ten = b"".join(bytes([n % 10]) + random.randbytes(3072) for n in range(12))
    hundred = b"".join(bytes([n % 20, n]) + random.randbytes(3072) for n in range(12))
    stl = {
        f"in/{split}_X.bin": random.randbytes(27_648 * 3)
        for split in ("train", "test", "unlabeled")
    }
    stl |= {"in/train_y.bin": bytes([1, 10, 3]), "in/test_y.bin": bytes([2, 4, 7])}
    stl |= {"in/class_names.txt": "".join(f"class{n}\n" for n in range(10))}
    for source, where, files in (
        ("cifar", f"{SAMPLES}/cifar", {}),
        (f"binary {RECORD} --class-names batches.meta.txt", f"{SAMPLES}/cifar", {}),
        ("binary", "in", stl),
        ("idx", f"{SAMPLES}/digits/idx", {}),
        ("numpy --class-names names.txt", f"{SAMPLES}/digits/numpy", {}),
        ("svhn", f"{SAMPLES}/digits/svhn", {}),
    ):
        kind = "stl10" if files else source.split()[0]
        run = f"convert {source} {where} out"
        for (options,) in section("array options", 1):
            name = (
                options.replace("--", "").replace(" ", "-").replace("/", "_")[:40]
                or "plain"
            )
            infer = [f"schema infer {source} {where}"] if not options else []
            given = files or {"in/map.py": MAP, "in/s.yaml": SCHEMA}
            if files and "in/" in options:
                given, options = (
                    files | {"map.py": MAP, "s.yaml": SCHEMA},
                    options.replace("in/", ""),
                )
            yield kind, name, given, [*infer, f"{run} {options}"]

    def of(
        source: str, name: str, files: dict[str, Any], options: str = "", also: str = ""
    ) -> Any:
        run = f"convert {source} in out {options}"
        runs = [run, f"{run} {LENIENT} --overwrite --exchange scratch"]
        return (
            source.split()[0],
            name,
            files,
            [*runs, *([f"{run} {also} --overwrite"] if also else [])],
        )

    meta = "".join(f"c{n}\n" for n in range(10))
    names = {"in/batches.meta.txt": meta}
    yield of(
        "cifar",
        "golden-10",
        {"in/data_batch_1.bin": ten} | names,
        also="--variant cifar100",
    )
    yield of(
        "cifar",
        "golden-100",
        {"in/train.bin": hundred, "in/test.bin": hundred},
        also="--variant cifar10",
    )
    yield of("cifar", "other-name", {"in/other.bin": ten}, also="--variant cifar10")
    yield of("cifar", "cut", {"in/data_batch_1.bin": ten[:-100]} | names)
    yield of("cifar", "label", {"in/data_batch_1.bin": bytes([200]) + ten[1:]} | names)
    yield of(
        "cifar", "empty", {"in/data_batch_1.bin": b"", "in/test_batch.bin": ten} | names
    )
    yield of(
        "cifar",
        "names-few",
        {"in/data_batch_1.bin": ten, "in/batches.meta.txt": "a\nb\n"},
    )
    yield of("cifar", "both", {"in/data_batch_1.bin": ten, "in/train.bin": hundred})
    yield of(
        "cifar",
        "others",
        {"in/data_batch_1.bin": ten, "in/readme.html": "<html>", "in/x.txt": "x"}
        | names,
    )
    yield of("cifar", "nothing", {"in/readme.html": "<html>"})
    yield (
        "cifar",
        "golden",
        {},
        [
            "convert cifar ../../golden/cifar10.bin out --feature-names tutorial",
            "convert cifar ../../golden/cifar10.bin out2",
            "convert cifar ../../golden/cifar100.bin out3",
        ],
    )
    data = b"HEAD" + b"".join(struct.pack(">BHd", n % 3, n, n / 4) for n in range(20))
    for (record,) in section("binary records", 1):
        files = {
            "in/1.bin": data,
            "in/test_2.bin": data[:70],
            "in/n.txt": "x\ny\nz\n",
            "in/few.txt": "x\ny\n",
        }
        yield of("binary", "record", files, f"--record {record}", "--split-from none")
    yield of("binary", "undeclared", {"in/1.bin": data})
    for change in (
        {"in/train_y.bin": bytes([1, 11, 3])},
        {"in/train_y.bin": b"\1"},
        {"in/test_X.bin": b"abc"},
        {"in/class_names.txt": "a\n"},
        {"in/more.txt": "x"},
    ):
        yield (
            "stl10",
            "odd",
            stl | change,
            [
                "convert binary in out",
                f"convert binary in out {LENIENT} --exchange scratch --overwrite",
                "convert binary in out3 --layout stl10",
            ],
        )
    images, labels = (
        np.arange(20 * 6, dtype=np.uint8).reshape(20, 3, 2),
        np.arange(20, dtype=np.uint8) % 4,
    )
    pair = {
        "in/train-images-idx3-ubyte": idx(images),
        "in/train-labels-idx1-ubyte": idx(labels),
    }
    yield of("idx", "pair", pair, also="--split-from none")
    yield of(
        "idx",
        "names",
        pair | {"in/n.txt": "a\nb\nc\nd\n", "in/few.txt": "a\nb\n"},
        "--class-names n.txt",
        "--class-names few.txt",
    )
    yield of(
        "idx",
        "packed",
        {f"{path}.gz": gzip.compress(data, mtime=0) for path, data in pair.items()},
    )
    yield of(
        "idx", "rows-differ", pair | {"in/train-labels-idx1-ubyte": idx(labels[:9])}
    )
    for name, bad in {
        "cut": idx(images)[:-5],
        "more": idx(images) + b"x",
        "head": b"\0\0\x08",
        "code": idx(images, 7),
        "huge": b"\0\0\x08\x01\xff\xff\xff\xff",
    }.items():
        yield of("idx", name, pair | {"in/train-images-idx3-ubyte": bad})
    for code, dtype in ((9, "i1"), (11, ">i2"), (12, ">i4"), (13, ">f4"), (14, ">f8")):
        yield of(
            "idx",
            f"type-{code}",
            {"in/values-idx2": idx(np.arange(12).reshape(6, 2).astype(dtype), code)},
        )
    rows = np.arange(20)
    arrays: dict[str, dict[str, Any]] = {
        "int": {"x": rows}, "narrow": {"x": rows.astype("i2"), "y": rows.astype("u1")}, "float64": {"x": rows / 3}, "float16": {"x": (rows / 3).astype("f2")}, "big": {"x": rows.astype(">f4")},
        "bool": {"x": rows > 3}, "text": {"x": np.array([f"t{n}" for n in rows])}, "bytes": {"x": np.array([b"t%d" % n for n in rows])}, "uint64": {"x": rows.astype("u8") << np.uint64(60)},
        "image": {"images": images, "labels": labels}, "fortran": {"x": np.asfortranarray(rows.reshape(10, 2))}, "scalar": {"x": np.float32(5)}, "none": {"x": rows[:0]}, "complex": {"x": rows * 1j},
        "time": {"x": rows.astype("M8[s]")}, "struct": {"x": np.array([(1, 2.5), (3, 4.5)], "i4,f8")}, "differ": {"x": rows, "y": rows[:3]}, "splits": {"x_train": rows, "x_test": rows[:3], "y_train": rows, "y_test": rows[:3]},
        "parts": {"x_0": rows, "x_1": rows, "labels_0": labels, "labels_1": labels}, "wide": {"x": np.zeros((5, 2, 3, 4), "f4")}, "nan": {"x": np.array([np.nan, np.inf, -0.0])},
    }  # fmt: skip
    for name, each in arrays.items():
        files = {f"in/{key}.npy": npy(array) for key, array in each.items()}
        yield of("numpy", name, files, also="--label-array x --split-from none")
        yield (
            "numpy",
            f"npz-{name}",
            {"in/a.npz": npz(**each), "in/b.npz": npz(True, **each)},
            [
                "convert numpy in/a.npz out",
                "convert numpy in/b.npz out2 --shards 2",
                "convert numpy in out3",
            ],
        )
    for name, bad in {
        "cut": npy(rows)[:-9],
        "more": npy(rows) + b"x",
        "head": npy(rows)[:20],
        "text": b"hello",
        "object": npy(np.array([{}, 1], object), allow_pickle=True),
        "empty": b"",
    }.items():
        yield of("numpy", f"bad-{name}", {"in/x.npy": bad, "in/y.npy": npy(rows)})
    yield "numpy", "bad-npz", {"in/a.npz": npz(x=rows)[:-30]}, ["convert numpy in out"]
    yield (
        "svhn",
        "bad",
        {
            "in/train_32x32.mat": b"MATLAB 5.0 MAT-file".ljust(124)
            + b"\0\1IM"
            + b"\x0e\0\0\0\xff\0\0\0"
        },
        ["convert svhn in out"],
    )
    yield (
        "svhn",
        "text",
        {"in/train_32x32.mat": b"hello", "in/x.txt": b""},
        ["convert svhn in out"],
    )
