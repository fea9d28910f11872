"""`--container array_record`: the same rows in the same order, in another file format."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from job_tools import (
    GOLDEN,
    IRIS,
    SAMPLES,
    Argument,
    contents,
    convert,
    manifest_of,
    payloads,
    recordmill,
    shards_of,
)
from killed_runs import failing
from row_keys import keys_of, same_rows
from rows_tools import JOB, ROWS, read, write
from store_servers import Place
from store_tools import local_files, options_of, published, to_store

from recordmill import open_dataset, read_rows
from recordmill.transforms.storage.shard_file import ArrayRecordFile

CIFAR = GOLDEN / "cifar10.bin"
FORMAT: list[Argument] = ["--container", "array_record"]
INPUTS: dict[str, tuple[Path, str]] = {  # and an exchange that is not its usual one
    "csv": (IRIS, "engine"),
    "cifar": (CIFAR, "scratch"),
    "images": (SAMPLES / "images", "engine"),
}


def test_its_files_are_no_input(tmp_path: Path) -> None:
    """The message names the way out: what they were made from."""
    convert("csv", IRIS, tmp_path / "array", *FORMAT)
    ran = recordmill("convert", "tfrecord", tmp_path / "array", tmp_path / "out")
    assert ran.status == 65
    assert "no TFRecord file, but 1 ArrayRecord file, such as array-train." in ran.err
    assert "original inputs again, with --container tfrecord" in ran.err
    convert("csv", IRIS, tmp_path / "plain", "--container", "tfrecord")
    convert("tfrecord", tmp_path / "plain", tmp_path / "out")


@pytest.mark.parametrize("source", INPUTS)
def test_the_same_records_in_the_same_order(tmp_path: Path, source: str) -> None:
    """In shards that are planned alike, and byte-identical by every way to a shard."""
    inputs, exchange = INPUTS[source]
    job: list[Argument] = [inputs, tmp_path / "plain", "--shards", 3]
    convert(source, *job)
    job[1] = tmp_path / "out"
    ran = convert(source, *job, *FORMAT, "--name", "plain")
    assert "open_dataset(" in ran.err
    shards = shards_of(tmp_path / "out")
    assert [shard.name.split(".")[2][:12] for shard in shards] == ["array_record"] * 3
    for shard, plain in zip(shards, shards_of(tmp_path / "plain"), strict=True):
        assert [*chain.from_iterable(ArrayRecordFile(shard).read_all())] == list(
            payloads(plain)
        )
    job[1] = tmp_path / exchange
    convert(source, *job, *FORMAT, "--name", "plain", "--exchange", exchange)
    assert contents(tmp_path / exchange) == contents(tmp_path / "out")
    info = json.loads((tmp_path / "out" / "dataset_info.json").read_bytes())
    assert info["fileFormat"] == "array_record"
    for options in (["--quick"], [], ["--deep"]):
        assert recordmill("verify", tmp_path / "out", *options).status == 0


def test_readers_find_the_same_rows(tmp_path: Path) -> None:
    convert("cifar", CIFAR, tmp_path / "plain")
    convert("cifar", CIFAR, tmp_path / "out", *FORMAT, "--name", "plain", "--shards", 2)
    rows = list(read_rows(tmp_path / "plain"))
    assert same_rows(list(read_rows(tmp_path / "out")), rows)
    data = open_dataset(tmp_path / "out")
    numbers = np.random.default_rng(0).permutation(len(data))
    assert keys_of(data[:]) == keys_of(rows)
    assert data.take(numbers) == open_dataset(tmp_path / "plain").take(numbers)
    assert keys_of(pickle.loads(pickle.dumps(data))[2:4]) == keys_of(rows[2:4])
    assert same_rows(read(tmp_path / "out", as_="dict"), rows)
    same = recordmill("diff", tmp_path / "plain", tmp_path / "out")
    assert same.status == 0, same.out
    first = json.loads(recordmill("inspect", tmp_path / "out", "--json").out)
    plain = json.loads(recordmill("inspect", tmp_path / "plain", "--json").out)
    assert [one["features"] for one in first["examples"]] == [
        one["features"] for one in plain["examples"]
    ]
    assert "ArrayRecord" in recordmill("inspect", tmp_path / "out").out
    chosen = recordmill("inspect", tmp_path / "out", "--where", "label=1", "--json")
    assert chosen.status == 0


def test_what_is_for_tfrecord_alone_says_so(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, *FORMAT)
    for words, told in (
        (["index", output], "which contain an index"),
        (["inspect", output, "--tf"], "or convert with --container tfrecord"),
    ):
        ran = recordmill(*words)
        assert ran.status == 2
        assert told in ran.err
    assert recordmill("report", output, "-o", tmp_path / "page.html").status == 0
    page = (tmp_path / "page.html").read_text()
    assert "as_data_source" in page
    assert "TFRecordDataset" not in page
    convert("csv", IRIS, output, "--container", "tfrecord", "--overwrite")
    assert recordmill("inspect", output, "--tf").status == 0
    for option, told in (
        (["--index"], "leave out --index"),
        (["--compression", "gzip"], "requires --compression none"),
    ):
        ran = recordmill("convert", "csv", IRIS, tmp_path / "no", *FORMAT, *option)
        assert ran.status == 2
        assert told in ran.err
    convert("csv", IRIS, tmp_path / "no", *FORMAT, "--compression", "none")


@pytest.mark.parametrize("damage", ["gone", "short", "changed"])
def test_damage_is_found_and_mended(tmp_path: Path, damage: str) -> None:
    output = tmp_path / "out"
    job: list[Argument] = ["csv", IRIS, output, *FORMAT, "--shards", 2]
    convert("csv", *job[1:])
    shard = shards_of(output)[1]
    data = bytearray(shard.read_bytes())
    if damage == "gone":
        shard.unlink()
    else:
        data[200] ^= 1
        shard.write_bytes(data if damage == "changed" else data[:-1])
    told = recordmill("verify", output, "--json")
    assert told.status == 1
    assert shard.name in told.out
    for read_all in (lambda: list(read_rows(output)), lambda: open_dataset(output)[:]):
        with pytest.raises(Exception, match=shard.name):
            read_all()
    convert("csv", *job[1:], "--overwrite")
    assert recordmill("verify", output, "--deep").status == 0


def test_append_overwrite_resume_and_clean(tmp_path: Path) -> None:
    output = tmp_path / "out"
    parts = [tmp_path / name for name in ("a.csv", "b.csv")]
    for number, part in enumerate(parts):
        part.write_text(f"x\n{number + 1}1\n{number + 1}2\n")
    job: list[Argument] = [output, *FORMAT, "--shards", 2, "--append"]

    with failing("stage"):
        assert recordmill("convert", "csv", parts[0], *job).status == 1
    staged = {
        p.stat().st_ino for p in output.glob(".recordmill/*/staging/*array_record*")
    }
    assert len(staged) == 2
    convert("csv", parts[0], *job)
    assert {shard.stat().st_ino for shard in shards_of(output)} == staged
    assert "nothing to do" in convert("csv", parts[0], *job).err
    convert("csv", *parts, *job)
    assert len(shards_of(output)) == 4
    assert sorted(row["x"] for row in open_dataset(output)) == [11, 12, 21, 22]
    assert recordmill("verify", output).status == 0
    other = recordmill("convert", "csv", *parts, output, "--shards", 2, "--append")
    assert other.status == 73
    assert "--container array_record" in other.err
    convert("csv", *parts, output, "--overwrite")
    assert recordmill("verify", output).status == 0
    assert recordmill("clean", output).status == 0
    assert not list(output.glob("*array_record*"))


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is begun; what is there is verified all the same."""
    convert("csv", IRIS, tmp_path / "out", *FORMAT)
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    ran = recordmill("convert", "csv", IRIS, tmp_path / "new", *FORMAT)
    assert ran.status == 2
    assert "pip install '.[array-record]'" in ran.err
    assert not (tmp_path / "new").exists()
    assert recordmill("verify", tmp_path / "out").status == 0
    for words in (["verify", "--deep"], ["inspect"]):
        ran = recordmill(*words, tmp_path / "out")
        assert ran.status == 2
        assert "pip install" in ran.err


def test_rows_of_a_pipeline(tmp_path: Path, rows_dataset: Path) -> None:
    """On two runners, and through two exchanges."""
    job = JOB | {"container": "array_record"}
    write(ROWS, tmp_path / "out", exchange="engine", runner="portable", **job)
    write(ROWS[::-1], tmp_path / "again", exchange="scratch", runner="two", **job)
    assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert recordmill("verify", tmp_path / "out").status == 0
    for split in ("train", "test"):
        for shard, plain in zip(
            shards_of(tmp_path / "out", split),
            shards_of(rows_dataset, split),
            strict=True,
        ):
            assert [*chain.from_iterable(ArrayRecordFile(shard).read_all())] == list(
                payloads(plain)
            )


@pytest.mark.usefixtures("cache")
@pytest.mark.not_on("local", "folders")
def test_in_a_store(
    store_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards are copied to read them, and the copies go."""
    job = ["--shards", 2, "--name", "iris", *FORMAT]
    ran = to_store(store_place, "csv", IRIS, job)
    assert ran.status == 0, ran.err
    convert("csv", IRIS, tmp_path / "local", *job)
    assert published(store_place) == local_files(tmp_path / "local")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "copies"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "copies").mkdir()
    data = open_dataset(store_place.root, storage=store_place.options.to_dict())
    assert keys_of(data[:]) == keys_of(read_rows(tmp_path / "local"))
    assert len(list((tmp_path / "copies").iterdir())) == 2
    del data
    gc.collect()
    assert not list((tmp_path / "copies").iterdir())
    reach = options_of(store_place.options)
    for command in (["verify", "--deep"], ["inspect"]):
        ran = recordmill(*command, store_place.root, *reach)
        assert ran.status == 0, ran.err


def test_the_manifest_says_it_only_if_it_is_so(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "plain")
    convert("csv", IRIS, tmp_path / "out", *FORMAT, "--name", "plain")
    one, other = manifest_of(tmp_path / "plain"), manifest_of(tmp_path / "out")
    assert "container" not in one
    assert other["container"] == "array_record"
    assert one["fingerprint"] != other["fingerprint"]
