"""Inputs that were touched or copied give the same dataset; one other byte gives another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from job_tools import GOLDEN, Argument, convert, copy_golden, recordmill, states
from same_dataset import dataset_of
from store_servers import display_path

from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.storage.clouds import filesystem_of
from recordmill.transforms.tasks import workspace

SOURCES = ("csv", "cifar", "images", "named")
SOME_FILE = {
    "csv": "b.csv",
    "cifar": "data_batch_1.bin",
    "images": "cat/b.jpg",
    "named": "images/1.jpg",
}
SCHEMA = "features:\n  picture: {column: path, bytes_from: path}\n"


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for each source, cut into several ranges."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    monkeypatch.setattr(CsvSource, "range_bytes", 10_000)
    root = tmp_path / "in"
    copy_golden(root)
    shutil.copyfile(root / "images/cat/b.jpg", root / "images/cat/no_ending")
    (root / "images/README").write_text("Images of cats and dogs. " * 9)
    names = [f"class {number}" for number in range(10)]
    (root / "cifar/batches.meta.txt").write_text("\n".join(names))
    (root / "named/images").mkdir(parents=True)
    rows = [f"images/{number % 11}.jpg" for number in range(30)]
    (root / "named/rows.csv").write_text("\n".join(["path", *rows, ""]))
    for number in range(12):
        (root / f"named/images/{number}.jpg").write_bytes(b"%d" % number * 99)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    return root


def job(source: str, folder: Path, output: Path) -> list[Argument]:
    declared: list[Argument] = ["--schema", output.parent / "schema.yaml"]
    return [
        "csv" if source == "named" else source,
        folder / ("rows.csv" if source == "named" else ""),
        output,
        *(declared if source == "named" else []),
        *("--name", "data", "--shards", 2),
    ]


def run(*arguments: Argument) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(convert(*map(str, arguments), "--json").out)
    return facts


def identity(output: Path) -> tuple[bytes, bytes]:
    """What does not depend on when and where the inputs lay."""
    return (
        (output / "manifest.json").read_bytes(),
        (output / "inputs.jsonl.gz").read_bytes(),
    )


def content_of(output: Path) -> dict[str, Any]:
    """The same, whatever commit it is of."""
    found = dataset_of(output)
    return {name: found[name] for name in found if name != "inventory.jsonl.gz"}


def touch(folder: Path, seconds: int) -> None:
    for file in folder.rglob("*"):
        os.utime(file, (seconds, seconds))


def change_a_byte(file: Path, *, keep_time: bool) -> None:
    before = file.stat()
    data = bytearray(file.read_bytes())
    place = -2 if file.suffix == ".csv" else len(data) // 2  # a last digit
    data[place] ^= 1
    file.write_bytes(data)
    time = before.st_mtime_ns if keep_time else before.st_mtime_ns + 1
    os.utime(file, ns=(time, time))


@pytest.mark.parametrize("source", SOURCES)
def test_a_copy_gives_the_same_manifest(
    source: str, inputs: Path, tmp_path: Path
) -> None:
    exchanges = ["auto", "scratch", "engine"]
    found = set()
    for number, exchange in enumerate(exchanges):
        copy = tmp_path / f"root{number}" / "deeper"
        shutil.copytree(inputs / source, copy)
        touch(copy, 1_000_000 + number)
        output = tmp_path / f"out{number}"
        convert(*map(str, job(source, copy, output)), "--exchange", exchange)
        found.add(identity(output))
    assert len(found) == 1
    output = tmp_path / "other"
    change_a_byte(inputs / source / SOME_FILE[source], keep_time=True)
    convert(*map(str, job(source, inputs / source, output)))
    assert identity(output)[0] not in {manifest for manifest, _ in found}


@pytest.mark.parametrize("exchange", ["auto", "scratch", "engine"])
def test_many_checksums_wait_in_files(
    exchange: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(*map(str, job("images", inputs / "images", tmp_path / "few")))
    monkeypatch.setattr(workspace, "MOST_IN_RESULT", 0)
    output = tmp_path / "many"
    convert(*map(str, job("images", inputs / "images", output)), "--exchange", exchange)
    assert identity(output) == identity(tmp_path / "few")


@pytest.mark.parametrize("source", SOURCES)
def test_touched_is_unchanged_and_another_byte_is_told(
    source: str, inputs: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = job(source, inputs / source, output)
    convert(*map(str, command))
    before, stand = states(output), identity(output)
    touch(inputs / source, 1_000_000)
    assert run(*command)["status"] == "unchanged"
    after = states(output)
    changed = {Path(name).name for name in after if after[name] != before.get(name)}
    assert changed <= {"inventory.jsonl.gz", "out"}  # the folder's own time
    assert identity(output) == stand
    # Now these times are known, too: nothing is read, nothing is written.
    assert run(*command)["status"] == "unchanged"
    assert states(output) == after
    name = SOME_FILE[source]
    change_a_byte(inputs / source / name, keep_time=False)
    ran = recordmill("convert", *command)
    assert ran.status == 73
    assert f"input files: 1 written again with the same size ({name})" in ran.err
    assert states(output) == after


def test_what_the_quick_look_cannot_see(inputs: Path, tmp_path: Path) -> None:
    """Size and time are as before, so nothing is read."""
    command = job("csv", inputs / "csv", tmp_path / "out")
    convert(*map(str, command))
    change_a_byte(inputs / "csv" / "b.csv", keep_time=True)
    assert run(*command)["status"] == "unchanged"


def test_files_below_a_root_of_their_own(inputs: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("path\nimages/1.jpg\nimages/2.jpg\n")
    command = job("csv", table, tmp_path / "out")
    command += ["--schema", tmp_path / "schema.yaml", "--files-root", inputs / "named"]
    convert(*map(str, command))
    touch(inputs / "named", 1_000_000)
    assert run(*command)["status"] == "unchanged"
    change_a_byte(inputs / "named/images/11.jpg", keep_time=False)  # no cell names it
    assert run(*command)["status"] == "unchanged"
    change_a_byte(inputs / "named/images/1.jpg", keep_time=False)
    ran = recordmill("convert", *command)
    assert "1 written again with the same size (files_root:/images/1.jpg)" in ran.err


def test_class_names_count(inputs: Path, tmp_path: Path) -> None:
    command = job("cifar", inputs / "cifar", tmp_path / "out")
    convert(*map(str, command))
    change_a_byte(inputs / "cifar" / "batches.meta.txt", keep_time=False)
    told = "1 written again with the same size (batches.meta.txt)"
    assert told in recordmill("convert", *command).err


def test_what_was_no_image_may_be_one_now(inputs: Path, tmp_path: Path) -> None:
    """Behind the bytes that were looked at, it may be anything."""
    command = job("images", inputs / "images", tmp_path / "out")
    convert(*map(str, command))
    readme = inputs / "images" / "README"
    change_a_byte(readme, keep_time=False)
    assert run(*command)["status"] == "unchanged"
    image = (inputs / "images/cat/b.jpg").read_bytes()
    size = readme.stat().st_size
    readme.write_bytes((image + bytes(size))[:size])
    ran = recordmill("convert", *command)
    assert "1 written again with the same size (README)" in ran.err


@pytest.mark.parametrize("source", SOURCES)
def test_append_after_a_copy(source: str, inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert(*map(str, job(source, inputs / source, output)))
    folder = tmp_path / "elsewhere"
    shutil.copytree(inputs / source, folder)
    command = [*job(source, folder, output), "--append"]
    command = [str(folder) if part == folder / "rows.csv" else part for part in command]
    if source == "named":
        command[1] = str(folder / "*.csv")
    touch(folder, 1_000_000)
    assert run(*command)["status"] == "unchanged"
    more = {"csv": "c.csv", "cifar": "data_batch_2.bin", "images": "dog/z.png"}
    if source == "named":
        (folder / "more.csv").write_text("path\nimages/11.jpg\n")
        (folder / "images/11.jpg").touch()
    else:
        some = next(folder.rglob(f"*{Path(more[source]).suffix}"))
        shutil.copyfile(some, folder / more[source])
    touch(folder, 2_000_000)
    assert run(*command)["status"] == "done"
    grown = identity(output)
    touch(folder, 3_000_000)
    assert run(*command)["status"] == "unchanged"
    assert identity(output) == grown
    assert recordmill("verify", output).status == 0
    change_a_byte(folder / SOME_FILE[source], keep_time=False)
    ran = recordmill("convert", *command)
    assert ran.status == 65
    assert f"1 changed ({SOME_FILE[source]})" in ran.err


def test_no_new_version(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [*job("csv", inputs / "csv", output), "--dataset-version", "auto"]
    assert run(*command)["version"] == "1.0.0"
    touch(inputs / "csv", 1_000_000)
    facts = run(*command)
    assert (facts["status"], facts["version"]) == ("unchanged", "1.0.0")
    change_a_byte(inputs / "csv" / "b.csv", keep_time=False)
    assert run(*command)["version"] == "1.0.1"


def test_the_reading_is_told(inputs: Path, tmp_path: Path) -> None:
    command = job("csv", inputs / "csv", tmp_path / "out")
    convert(*map(str, command))
    touch(inputs / "csv", 1_000_000)
    ran = convert(*map(str, command), "--log-format", "json")
    told = [json.loads(line) for line in ran.err.splitlines() if line[:1] == "{"]
    words = (
        "2 input files of the same name and size have different modification "
        "times: reading"
    )
    assert [each for each in told if words in str(each.get("inputs"))]


def test_when_the_inventory_is_lost(inputs: Path, tmp_path: Path) -> None:
    """Nothing is damaged: the inputs are read again, once."""
    output = tmp_path / "out"
    command = job("csv", inputs / "csv", output)
    convert(*map(str, command))
    kept = (output / "inventory.jsonl.gz").read_bytes()
    for damage in (b"junk", None):
        (output / "inventory.jsonl.gz").unlink()
        if damage:
            (output / "inventory.jsonl.gz").write_bytes(damage)
        assert recordmill("verify", output).status == 0
        assert run(*command)["status"] == "unchanged"
        assert (output / "inventory.jsonl.gz").read_bytes() == kept


def test_an_output_that_cannot_be_written(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = job("csv", inputs / "csv", output)
    convert(*map(str, command))
    touch(inputs / "csv", 1_000_000)
    (output / ".recordmill").write_text("no folder")
    before = states(output)
    assert run(*command)["status"] == "unchanged"
    assert states(output) == before


def test_repair_after_a_copy(inputs: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = [*job("csv", inputs / "csv", output), "--overwrite"]
    convert(*map(str, command))
    stand = content_of(output)
    touch(inputs / "csv", 1_000_000)
    assert run(*command)["status"] == "unchanged"
    next(output.glob("*00000-of-00002")).unlink()
    assert run(*command)["status"] == "done"
    assert content_of(output) == stand
    assert recordmill("verify", output).status == 0


def test_in_a_store_with_other_times(tmp_path: Path) -> None:
    store = MemoryFileSystem()
    command = ["csv", "memory://touched/in", tmp_path / "out"]
    for _ in range(2):
        store.pipe("/touched/in/a.csv", (GOLDEN / "tutorial.csv").read_bytes())
        facts = run(*command)
    assert facts["status"] == "unchanged"


def test_another_etag(
    server: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The etag of a copy in several parts is not the MD5 of its bytes."""
    place = display_path("s3", tmp_path, monkeypatch, server)
    data = (GOLDEN / "tutorial.csv").read_bytes()
    place.store.put_bytes(data, "a.csv")
    address = place.options.to_dict()["endpoint_url"]
    command = ["csv", f"{place.root}/*.csv", tmp_path / "out"]
    command += ["--storage-option", f"input:endpoint_url={address}"]
    convert(*command)
    system, path = filesystem_of(f"{place.root}/a.csv", place.options)

    def put_in_parts(data: bytes) -> str:
        bucket, _, key = path.partition("/")
        put: dict[str, str] = {"Bucket": bucket, "Key": key}
        put["UploadId"] = system.call_s3("create_multipart_upload", **put)["UploadId"]
        part = system.call_s3("upload_part", **put, PartNumber=1, Body=data)
        parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        system.call_s3("complete_multipart_upload", **put, MultipartUpload=parts)
        system.invalidate_cache()
        return str(system.info(path)["ETag"])

    before = system.info(path)["ETag"]
    assert put_in_parts(data) != before
    assert run(*command)["status"] == "unchanged"
    put_in_parts(data.replace(b"0", b"1"))
    ran = recordmill("convert", *command)
    assert "1 written again with the same size (a.csv)" in ran.err
