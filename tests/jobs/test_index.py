"""What is made for readers of a dataset: indexes and a TFDS builder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from job_tools import (
    GOLDEN,
    IRIS,
    Argument,
    contents,
    convert,
    manifest_of,
    payloads,
    recordmill,
    shards_of,
)
from killed_runs import failing
from row_keys import keys_of

from recordmill import open_dataset, read_rows
from recordmill.transforms.dataset import export as export_tfds

pytestmark = pytest.mark.usefixtures("without_beam")

CIFAR = GOLDEN / "cifar10.bin"


def told_by(path: Path) -> tuple[int, int]:
    """What tells a file from another one, of which it may have the inode."""
    return path.stat().st_ino, path.stat().st_mtime_ns


def indexes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.idx"))}


@pytest.mark.parametrize("with_the_shard", [True, False])
def test_the_index_is_that_of_other_writers(
    tmp_path: Path, with_the_shard: bool
) -> None:
    """tutorial.tfrecord.idx is in DALI's form, see data/golden/README.md."""
    output = tmp_path / "out"
    job: list[Argument] = ["csv", GOLDEN / "tutorial.csv", output, "--no-shuffle"]
    convert(*job, *(["--index"] if with_the_shard else []))
    (shard,) = shards_of(output)
    if not with_the_shard:
        ran = recordmill("index", output)
        assert ran.status == 0
        assert f"{output}: 1 index file written, such as {shard.name}.idx" in ran.out
        assert "nothing to do" in recordmill("convert", *job).err
    index = Path(f"{shard}.idx")
    assert index.read_bytes() == (GOLDEN / "tutorial.tfrecord.idx").read_bytes()
    assert recordmill("verify", output).status == 0


def test_readers_take_it(tmp_path: Path) -> None:
    output = tmp_path / "out"
    splits = ("--split", "train=0.8", "--split", "test=0.2")
    convert("csv", IRIS, output, "--shards", 2, *splits)
    ran = recordmill("index", output, "--split", "train", "--json")
    names = json.loads(ran.out)["files"]
    assert names == [f"{shard.name}.idx" for shard in shards_of(output, "train")]
    rows = list(read_rows(output))
    assert keys_of(open_dataset(output)[:]) == keys_of(rows)


@pytest.mark.parametrize("remedy", ["index", "remove"])
def test_another_index_is_refused(tmp_path: Path, remedy: str) -> None:
    convert("csv", IRIS, tmp_path / "out")
    (shard,) = shards_of(tmp_path / "out")
    index = Path(f"{shard}.idx")
    index.write_text("0 16\n")
    data = open_dataset(tmp_path / "out")
    with pytest.raises(
        Exception, match="not the index of its shard of 150 records"
    ) as told:
        data[0]
    assert "Run `recordmill index` to rewrite it, or remove it" in str(told.value)
    verified = recordmill("verify", tmp_path / "out", "--json")
    assert verified.status == 1
    assert "not the index of its shard of 150 records" in verified.out
    if remedy == "index":
        assert recordmill("index", tmp_path / "out").status == 0
    else:
        index.unlink()
    assert recordmill("verify", tmp_path / "out").status == 0
    assert data[0] == next(read_rows(tmp_path / "out"))


def test_it_goes_with_its_shard(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "out")
    assert recordmill("index", tmp_path / "out").status == 0
    convert("csv", IRIS, tmp_path / "out", "--seed", 1, "--overwrite")
    convert("csv", IRIS, tmp_path / "out", "--seed", 2, "--overwrite")
    left = list((tmp_path / "out").glob("*.idx"))
    assert left == []


@pytest.mark.parametrize("exchange", ["reference", "engine"])
def test_as_the_command_writes_it_later(tmp_path: Path, exchange: str) -> None:
    """Of several shards, whose records came in pieces, by each way to a shard."""
    output = tmp_path / "out"
    job: list[Argument] = ["--shards", 3, "--split", "train=0.9", "--split", "test=0.1"]
    convert("cifar", CIFAR, output, *job, "--index", "--exchange", exchange)
    written = indexes_in(output)
    splits = manifest_of(output)["splits"].values()
    entries = {
        f"{s['file']}.idx": s["index"] for each in splits for s in each["shards"]
    }
    assert {name: entry["bytes"] for name, entry in entries.items()} == {
        name: len(data) for name, data in written.items()
    }
    assert recordmill("verify", output, "--deep").status == 0
    convert("cifar", CIFAR, tmp_path / "later", *job, "--name", "out")
    assert (
        manifest_of(tmp_path / "later")["fingerprint"]
        != (manifest_of(output)["fingerprint"])
    )
    assert not indexes_in(tmp_path / "later")
    assert recordmill("index", tmp_path / "later").status == 0
    assert [*indexes_in(tmp_path / "later").values()] == [*written.values()]
    assert recordmill("index", output).status == 0
    assert indexes_in(output) == written


@pytest.mark.parametrize(
    ("damage", "remedy"),
    [("gone", "index"), ("short", "overwrite"), ("changed", "index")],
)
def test_verify_misses_what_was_written(
    tmp_path: Path, damage: str, remedy: str
) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--index")
    ((name, data),) = indexes_in(output).items()
    index = output / name
    if damage == "gone":
        index.unlink()
    else:
        index.write_bytes(data[:-1] if damage == "short" else b"0 9" + data[3:])
    quick: list[Argument] = ["--quick"] if damage != "changed" else []
    told = recordmill("verify", output, "--json", *quick)
    assert told.status == 1
    assert name in told.out
    assert "Run `recordmill index` to rewrite it" in told.out
    if remedy == "index":
        assert recordmill("index", output).status == 0
    else:
        convert("csv", IRIS, output, "--index", "--overwrite")
        (name,) = {f"{shard.name}.idx" for shard in shards_of(output)}
    assert recordmill("verify", output).status == 0
    assert (output / name).read_bytes() == data


def test_it_goes_and_stays_with_its_dataset(tmp_path: Path) -> None:
    """Through clean, append and overwrite; nothing else knows which are in use."""
    output = tmp_path / "out"
    parts = [tmp_path / name for name in ("a.csv", "b.csv")]
    for part in parts:
        part.write_text("x\n1\n2\n3\n")
    job: list[Argument] = [output, "--index", "--shards", 2, "--append"]
    convert("csv", parts[0], *job)
    first = indexes_in(output)
    assert len(first) == 2
    for more in ([], ["clean"]):
        if more:
            assert recordmill(*more, output).status == 0
        else:
            assert "nothing to do" in convert("csv", parts[0], *job).err
        assert indexes_in(output) == first
    convert("csv", *parts, *job)
    both = indexes_in(output)
    assert len(both) == 4
    assert both.items() > first.items()
    assert recordmill("verify", output).status == 0
    other = recordmill("convert", "csv", *parts, output, "--shards", 2, "--append")
    assert other.status == 73
    assert "--index" in other.err
    convert("csv", *parts, output, "--overwrite")
    assert indexes_in(output) == both  # of the replaced dataset, for its readers
    assert recordmill("verify", output).status == 0
    assert recordmill("clean", output).status == 0
    assert indexes_in(output) == {}
    assert recordmill("index", output).status == 0
    later = indexes_in(output)
    assert recordmill("clean", output).status == 0
    assert indexes_in(output) == later


@pytest.mark.parametrize("spoiled", ["gone", "changed"])
def test_a_run_resumes_with_its_indexes(tmp_path: Path, spoiled: str) -> None:
    """A shard whose index is not as it was written is written again, no other one."""

    output = tmp_path / "out"
    job: list[Argument] = ["csv", IRIS, output, "--index", "--shards", 3]
    with failing("stage"):
        assert recordmill("convert", *job).status == 1
    staged = sorted(output.glob(".recordmill/*/staging/*"))
    assert len(staged) == 6
    before = {path.name: told_by(path) for path in staged}
    (index,) = [path for path in staged if path.name.endswith("00001-of-00003.idx")]
    if spoiled == "gone":
        index.unlink()
    else:
        index.write_bytes(index.read_bytes()[::-1])
    convert(*map(str, job))
    kept = {
        name
        for name, told in before.items()
        for path in output.iterdir()
        if told_by(path) == told
    }
    again = {name for name in before if "00001-of" in name}
    assert kept == before.keys() - again
    convert("csv", IRIS, tmp_path / "model", *job[3:], "--name", "out")
    assert contents(output) == contents(tmp_path / "model")


def test_not_of_compressed_shards(tmp_path: Path) -> None:
    output = tmp_path / "out"
    ran = recordmill("convert", "csv", IRIS, output, "--index", "--compression", "gzip")
    assert ran.status == 2
    assert "--index requires --compression none" in ran.err
    convert("csv", IRIS, output, "--compression", "gzip")
    ran = recordmill("index", output)
    assert ran.status == 2
    assert "an index is useless. Convert with --compression none" in ran.err
    convert("csv", IRIS, tmp_path / "plain", "--index", "--compression", "none")
    assert recordmill("index", tmp_path / "plain").status == 0


def not_here(*_: Any) -> None:
    raise OSError(18, "Invalid cross-device link")


def exported(output: Path) -> Path:
    folder = output.with_name("exported")
    ran = recordmill("export", "tfds", output, folder)
    assert ran.status == 0, ran.err
    return folder


def splits_of(folder: Path) -> dict[str, list[Path]]:
    """Returns the shards of each split, found as TFDS does: by the pattern."""
    info = json.loads((folder / "dataset_info.json").read_text())
    found = {}
    for split in info["splits"]:
        lengths = [int(length) for length in split["shardLengths"]]
        pattern = split["filepathTemplate"]
        assert pattern == "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
        start = f"{info['name']}-{split['name']}.{info['fileFormat']}"
        shards = [
            folder / f"{start}-{number:05d}-of-{len(lengths):05d}"
            for number in range(len(lengths))
        ]
        assert [len(list(payloads(shard))) for shard in shards] == lengths
        found[split["name"]] = shards
    return found


def records(shards: list[Path]) -> list[bytes]:
    return [data for shard in shards for data in payloads(shard)]


def test_appended_parts_become_one(tmp_path: Path) -> None:
    output = tmp_path / "out"
    for part in range(3):
        (tmp_path / "in").mkdir(exist_ok=True)
        lines = [f"{part * 10 + row},x" for row in range(10)]
        (tmp_path / "in" / f"{part}.csv").write_text("\n".join(["a,b", *lines]))
        options = ["--split", "train=0.5", "--split", "test=0.5", "--shards", 2]
        convert("csv", tmp_path / "in", output, "--append", *options)
    assert not (output / "dataset_info.json").exists()
    splits = splits_of(exported(output))
    assert set(splits) == set(manifest_of(output)["splits"])
    for split, shards in splits.items():
        assert records(shards) == records(shards_of(output, split))
        same = zip(shards, shards_of(output, split), strict=True)
        assert all(one.samefile(other) for one, other in same)  # linked


def test_gzip_is_left_out(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--compression", "gzip", "--shards", 2)
    (shards,) = splits_of(exported(output)).values()
    assert records(shards) == records(shards_of(output))


def test_files_are_copied_where_they_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    convert("cifar", GOLDEN / "cifar10.bin", output)
    monkeypatch.setattr(export_tfds.os, "link", not_here)
    folder = exported(output)
    (shards,) = splits_of(folder).values()
    assert records(shards) == records(shards_of(output))
    assert not shards[0].samefile(shards_of(output)[0])
    for name in ("features.json", "label.labels.txt"):
        assert (folder / name).read_bytes() == (output / name).read_bytes()


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("change", ["cut", "flip"])
def test_a_damaged_shard_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, change: str
) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--compression", compression)
    (shard,) = shards_of(output)
    data = bytearray(shard.read_bytes())
    if change == "cut":
        del data[-1]
    else:
        data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    monkeypatch.setattr(export_tfds.os, "link", not_here)  # a link is not verified
    ran = recordmill("export", "tfds", output, tmp_path / "exported")
    assert ran.status == 1
    assert str(shard) in ran.err.replace("\n", "")
    assert "recordmill verify" in ran.err
    assert not (tmp_path / "exported" / "dataset_info.json").exists()
    assert recordmill("verify", output).status == 1  # the remedy shows it


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert("csv", IRIS, output, "--payload", "json")
    ran = recordmill("export", "tfds", output, tmp_path / "exported")
    assert ran.status == 2
    assert "payload json, and TFDS reads only example" in ran.err
    assert recordmill("inspect", output, "--tf").status == 0  # the first remedy
    convert("csv", IRIS, tmp_path / "again", "--payload", "example")  # and the other
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    ran = recordmill("export", "tfds", tmp_path / "again", tmp_path / "full")
    assert ran.status == 2
    assert "is not empty; expected a new" in ran.err
    again = recordmill("export", "tfds", tmp_path / "again", tmp_path / "new", "--json")
    assert "dataset_info.json" in json.loads(again.out)["files"]
