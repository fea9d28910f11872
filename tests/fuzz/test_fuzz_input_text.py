"""Hostile text in files beside inputs, in job files and in schema files.

No text ends in a traceback, chooses what is read or written elsewhere, or takes for ever. A run
ends with a documented status, and none that means "try again".
"""

from __future__ import annotations

import json
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from example_counts import FUZZ
from hostile_input_text import HostileStrings
from job_tools import Argument, Ran, recordmill
from pixel_zoo import IMAGES

pytestmark = [pytest.mark.fuzz, pytest.mark.usefixtures("without_beam")]

HANG_SECONDS = 600  # a guard: no run takes a hundredth of it
JPEG = IMAGES["rgb.jpg"][0]
PERMANENT = (0, 2, 65, 73)  # docs/options.md, "Exit status": nothing that may pass
Files = Mapping[str, bytes | str]


class Attempt(NamedTuple):
    """The files of an input and the arguments of a command that reads it."""

    files: Files
    arguments: tuple[Argument, ...]


class Sentinel:
    """A folder beside the input that nobody may read from, and a server that nobody may ask."""

    def __init__(self, folder: Path, url: str, requests: list[str]) -> None:
        self.folder, self.url = folder, url
        self.touched = requests
        folder.mkdir()
        (folder / "secret.txt").write_text("file,label\na.jpg,SECRET\n")
        (folder / "images").mkdir()
        (folder / "images/a.jpg").write_bytes(JPEG)
        self._before = self._checksums()

    def require_untouched(self) -> None:
        assert self.touched == []
        assert self._checksums() == self._before

    def _checksums(self) -> dict[str, str]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path): sha256(path.read_bytes()).hexdigest() for path in files}


class _Server(socketserver.TCPServer):
    allow_reuse_address = True


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[Sentinel]:
    requests = list[str]()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            requests.append(f"connection from {self.client_address}")

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    folder = tmp_path / "sentinel"
    found = Sentinel(folder, f"http://127.0.0.1:{server.server_address[1]}", requests)
    yield found
    server.shutdown()
    server.server_close()
    thread.join()


def in_images(more: Files, *options: Argument) -> Attempt:
    files = {"in/images/a.jpg": JPEG, "in/images/b.jpg": JPEG + b"1"}
    return Attempt({**files, **more}, ("convert", "images", "in", "out", *options))


def in_table(more: Files, *options: Argument) -> Attempt:
    files = {"in/train.csv": "a,b\n1,x\n2,y\n", "in/test.csv": "a,b\n3,z\n"}
    return Attempt({**files, **more}, ("convert", "csv", "in", "out", *options))


def readme(random: Random, hostile: HostileStrings) -> Attempt:
    front = {
        "license": "mit",
        "date": "2024-01-01",
        "tags": ["a", 1],
        "dataset_info": {"features": [{"name": "a", "dtype": "int64"}], "size": 3},
        "configs": [
            {
                "config_name": "en",
                "data_files": [
                    {"split": "train", "path": "train.csv"},
                    {"split": "test", "path": ["test.*", "more/*"]},
                ],
            },
            {"config_name": "de", "data_dir": "de", "data_files": "de/*"},
        ],
    }
    text = b"---\n" + hostile.yaml(front, random) + b"\n---\n# Words\n"
    return in_table({"in/README.md": text})


def data_yaml(random: Random, hostile: HostileStrings) -> Attempt:
    document = {
        "path": ".",
        "train": "images",
        "val": ["images/a.jpg", "val.txt"],
        "nc": 2,
        "names": random.choice([["dog", "cat"], {"0": "dog", "1": "cat"}]),
        "download": "none",
        "kpt_shape": None,
    }
    text = hostile.yaml(document, random)
    return in_images({"in/data.yaml": text, "in/labels/a.txt": "0 0.5 0.5 0.5 0.5\n"})


def class_list(random: Random, hostile: HostileStrings) -> Attempt:
    names = "dog\ncat\nemu\n"
    data = "classes = 3\ntrain = train.txt\nvalid = images/b.jpg\nnames = obj.names\n"
    files = {"in/labels/a.txt": "0 0.5 0.5 0.5 0.5\n", "in/train.txt": "images/a.jpg\n"}
    match random.randrange(4):
        case 0:
            return in_images({**files, "in/classes.txt": hostile.lines(names, random)})
        case 1:
            files |= {"in/obj.names": names}
            changed = hostile.lines(data.replace(" = ", " =,"), random)
            return in_images({**files, "in/obj.data": changed})
        case 2:
            files |= {"in/data.yaml": "names: [dog]\ntrain: train.txt\n"}
            lists = hostile.lines("images/a.jpg\nimages/b.jpg\n", random)
            return in_images({**files, "in/train.txt": lists})
    boxes = hostile.lines("0,0.5,0.5,0.5,0.5\n", random).replace(b",", b" ")
    return in_images({**files, "in/classes.txt": names, "in/labels/a.txt": boxes})


def coco(random: Random, hostile: HostileStrings) -> Attempt:
    document = {
        "info": {"year": 2024},
        "images": [
            {"id": n, "file_name": f"{name}.jpg", "height": 5, "width": 7}
            for n, name in enumerate("ab")
        ],
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
        "annotations": [
            {
                "id": n,
                "image_id": n % 2,
                "category_id": 1,
                "bbox": [1, 1, 2, 2],
                "area": 4,
                "iscrowd": 0,
                "segmentation": [[1, 1, 3, 1, 3, 3]],
                "keypoints": [1, 1, 2],
            }
            for n in range(3)
        ],
    }
    return in_images({"in/instances.json": hostile.json(document, random)})


def voc(random: Random, hostile: HostileStrings) -> Attempt:
    text = (
        "<annotation><folder>images</folder><filename>a.jpg</filename><path>a.jpg</path>"
        "<size><width>7</width><height>5</height><depth>3</depth></size><object><name>dog"
        "</name><pose>Left</pose><truncated>0</truncated><difficult>0</difficult><bndbox>"
        "<xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object>"
        "</annotation>"
    )
    more: dict[str, bytes | str] = {"in/images/a.xml": hostile.xml(text, random)}
    if random.random() < 0.2:
        more["in/images/a.xml"] = text
        lists = hostile.lines("a\nb\n", random)
        more["in/ImageSets/Main/train.txt"] = lists
    return in_images(more)


def label_table(random: Random, hostile: HostileStrings) -> Attempt:
    rows = "file,label,split,n\nimages/a.jpg,dog,train,1\nimages/b.jpg,cat,test,2\n"
    table = ("--label-table", "labels.csv")
    if random.random() < 0.5:
        return in_images({"in/labels.csv": hostile.lines(rows, random)}, *table)
    if random.random() < 0.5:
        names = hostile.lines("dog\ncat\n", random)
        more = {"in/labels.csv": rows, "in/map.txt": names}
        return in_images(more, *table, "--label-map", "map.txt")
    row = {"file": "images/a.jpg", "label": "dog", "box": [1, 2], "of": {"x": "y"}}
    lines = hostile.json(row, random) + b'\n{"file": "images/b.jpg", "label": "cat"}\n'
    return in_images({"in/labels.jsonl": lines}, "--label-table", "labels.jsonl")


def split_list(random: Random, hostile: HostileStrings) -> Attempt:
    more = {
        "in/train.txt": hostile.lines("images/a.jpg\n", random),
        "in/val.txt": "images/b.jpg\n",
    }
    lists = ("--split-lists", "train=train.txt,val=val.txt", "--label-from", "none")
    return in_images(more, *lists)


def saved_state(random: Random, hostile: HostileStrings) -> Attempt:
    state = {
        "_data_files": [{"filename": "data-00000-of-00001.arrow"}],
        "_fingerprint": "00ff",
        "_indices_data_files": None,
        "_split": "train",
    }
    info = {"features": {"a": {"dtype": "int64", "_type": "Value"}}, "splits": {}}
    changes_state = random.random() < 0.7
    files = {
        "in/data-00000-of-00001.arrow": arrow({}),
        "in/state.json": hostile.json(state, random) if changes_state else "{}",
        "in/dataset_info.json": "{}" if changes_state else hostile.json(info, random),
    }
    return Attempt(files, ("convert", "arrow", "in", "out"))


def features(random: Random, hostile: HostileStrings) -> Attempt:
    """What the package datasets writes into the schema of a table."""
    told = {
        "info": {
            "features": {
                "a": {"names": ["dog", "cat"], "_type": "ClassLabel"},
                "tags": {"_type": "List", "feature": {"dtype": "int64"}},
            }
        }
    }
    table = arrow({"huggingface": hostile.json(told, random)})
    return Attempt({"in/a.arrow": table}, ("convert", "arrow", "in", "out"))


def arrow(metadata: Mapping[str, bytes]) -> bytes:
    rows = pa.table({"a": [0, 1], "tags": [[1], [2, 3]]})
    sink = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata(metadata)
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def tfds(random: Random, hostile: HostileStrings) -> Attempt:
    name = "in/golden-train.tfrecord-00000-of-00001"
    golden = Path(__file__).parents[1] / "data/golden/tfds/golden/1.0.0"
    files = {
        f"in/{path.name}": path.read_bytes()
        for path in golden.iterdir()
        if path.is_file()
    }
    assert name in files
    changed = random.choice(["in/features.json", "in/dataset_info.json"])
    files[changed] = hostile.json(json.loads(files[changed]), random)
    if random.random() < 0.2:
        labels = files["in/label.labels.txt"].decode()
        files["in/label.labels.txt"] = hostile.lines(labels, random)
    return Attempt(files, ("convert", "tfrecord", "in", "out"))


def names_of_arrays(random: Random, hostile: HostileStrings) -> Attempt:
    np.save(arrays := BytesIO(), np.zeros((2, 2, 2), np.uint8))
    np.save(labels := BytesIO(), np.array([0, 1]))
    files = {
        "in/images.npy": arrays.getvalue(),
        "in/labels.npy": labels.getvalue(),
        "in/names.txt": hostile.lines("dog\ncat\n", random),
    }
    names = ("--class-names", "labels=names.txt")
    return Attempt(files, ("convert", "numpy", "in", "out", *names))


def side_files(random: Random, hostile: HostileStrings) -> Attempt:
    """Cells that name files, which a schema allows below the input."""
    files = {
        "in/t.csv": hostile.lines("path\na.bin\nb.bin\n", random),
        "in/a.bin": b"a",
        "in/b.bin": b"b",
        "s.yaml": "features:\n  f: {column: path, bytes_from: path}\n",
    }
    options = ("--schema", "s.yaml", "--max-rejects", "9")
    return Attempt(files, ("convert", "csv", "in/t.csv", "out", *options))


def schema_file(random: Random, hostile: HostileStrings) -> Attempt:
    document = {
        "features": {
            "a": {"dtype": "int64", "min": 0, "max": 9, "default": 1, "shape": []},
            "b": "string?",
            "c": {
                "column": "b",
                "dtype": "string",
                "shape": [None],
                "separator": "|",
                "null_values": ["-"],
                "stored": "bytes_list",
            },
            "d": {"column": "a", "classes": ["0", "1"], "optional": True},
            "e": {"column": "b", "picture": {"height": 5, "format": "jpeg"}},
        }
    }
    if random.random() < 0.2:
        text = 'feature { name: "a" type: INT }\nfeature { name: "b" type: BYTES }\n'
        parts = text.replace(" ", ", ")
        changed = hostile.lines(parts, random).replace(b", ", b" ")
        return in_table({"s.pbtxt": changed}, "--schema", "s.pbtxt")
    text_of_file = hostile.yaml(document, random)
    return in_table({"s.yaml": text_of_file}, "--schema", "s.yaml", "--max-rejects", 9)


def job_file(random: Random, hostile: HostileStrings) -> Attempt:
    """A job file may name any input and output, as a command does; not a broken value."""
    document: dict[str, Any] = {
        "source": "csv",
        "inputs": ["in/t.csv"],
        "output": "out",
        "name": "name",
        "version": "1.0.0",
        "seed": 3,
        "splits": {"train": 0.5, "test": 0.5},
        "csv": {"delimiter": ",", "header": "first", "null_values": ["x"]},
        "schema": {
            "features": {"a": "int64", "b": {"dtype": "string", "default": "y"}}
        },
        "params": {"day": "2024-01-01"},
        "description": "{{ day }}",
        "max_rejects": 9,
        "shards": 2,
        "exclude": ["*.txt"],
        "storage": {"input": {"anon": True}},
    }
    used = {key: document[key] for key in random.sample([*document], 10)}
    used |= {key: document[key] for key in ("source", "inputs", "output")}
    text = hostile.yaml(used, random)
    for url in (hostile.url, "s3://bucket"):  # which it would be right to ask
        text = text.replace(url.encode(), b"none://bucket")
    files = {"in/t.csv": "a,b\n1,x\n2,y\n", "job.yaml": text}
    return Attempt(files, (random.choice(["run", "plan"]), "job.yaml"))


KINDS: tuple[Callable[[Random, HostileStrings], Attempt], ...] = (
    *(readme, data_yaml, class_list, coco, voc, label_table, split_list, saved_state),
    *(features, tfds, names_of_arrays, side_files, schema_file, job_file),
)
NUMBERS = range(-(-max(500, FUZZ) // len(KINDS)))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_hostile_text(
    kind: Callable[[Random, HostileStrings], Attempt],
    tmp_path: Path,
    sentinel: Sentinel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hostile = HostileStrings(str(sentinel.folder), sentinel.url)
    set_clouds_to(sentinel.url, monkeypatch)
    failures = list[str]()
    for number in NUMBERS:
        random = Random(f"{kind.__name__} {number}")
        folder = tmp_path / str(number)
        (folder / "work").mkdir(parents=True)
        monkeypatch.chdir(folder / "work")
        attempt = kind(random, hostile)
        try:
            require_clean_end(attempt, random, folder, sentinel)
        except Exception as error:
            lines = f"{type(error).__name__}: {error}".strip().splitlines() or [""]
            failures.append(f"number {number}: {lines[0][:200]} ... {lines[-1][:300]}")
            sentinel.touched.clear()
    assert not failures, "\n".join([f"{len(failures)} of {len(NUMBERS)}", *failures])


def require_clean_end(
    attempt: Attempt, random: Random, folder: Path, sentinel: Sentinel
) -> None:
    work = folder / "work"
    for name, data in attempt.files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    is_convert = attempt.arguments[0] == "convert"
    plans = is_convert and random.random() < 0.75
    ran = run(*attempt.arguments, *["--plan"] * plans)
    assert ran.status in PERMANENT, (ran.status, ran.err[-300:])
    ran.out.encode()  # stdout takes nothing that is not UTF-8
    assert "Traceback" not in ran.err
    assert "is a bug in recordmill" not in ran.err
    assert ran.status == 0 or "Error: " in ran.err or "problems" in ran.err, ran.err
    assert "SECRET" not in ran.out + ran.err
    sentinel.require_untouched()
    if is_convert:
        names = {path.name for path in folder.iterdir()} | {
            path.name for path in work.iterdir()
        }
        assert names <= {"work", "in", "out", "s.yaml", "s.pbtxt"}
        assert not (plans and (work / "out").exists())
        assert ran.status == 0 or not (work / "out/manifest.json").exists()
        for path in (work / "out").rglob("*"):
            assert not path.is_file() or b"SECRET" not in path.read_bytes()


def run(*arguments: Argument) -> Ran:
    """Runs the command in this process, with a guard for one that never ends."""

    def end(*_: object) -> None:
        raise TimeoutError(f"still running after {HANG_SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(HANG_SECONDS)
    try:
        return recordmill(*arguments)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def set_clouds_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the server of the test the one of s3://, and gives credentials for it."""
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
