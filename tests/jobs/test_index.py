"""`recordmill index`: where records begin, for readers that go to single ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from job_tools import GOLDEN, IRIS, convert, recordmill, shards_of
from row_keys import keys_of

from recordmill import open_dataset, read_rows


def test_the_index_is_that_of_other_writers(tmp_path: Path) -> None:
    """tutorial.tfrecord.idx is in DALI's form, see data/golden/README.md."""
    output = tmp_path / "out"
    convert("csv", GOLDEN / "tutorial.csv", output, "--no-shuffle")
    ran = recordmill("index", output)
    (shard,) = shards_of(output)
    assert ran.status == 0
    assert f"{output}: 1 index file written, such as {shard.name}.idx" in ran.out
    index = Path(f"{shard}.idx")
    assert index.read_bytes() == (GOLDEN / "tutorial.tfrecord.idx").read_bytes()
    assert recordmill("verify", output).status == 0
    again = recordmill(
        "convert", "csv", GOLDEN / "tutorial.csv", output, "--no-shuffle"
    )
    assert "nothing to do" in again.err


def test_readers_take_it(tmp_path: Path) -> None:
    output = tmp_path / "out"
    convert(
        "csv",
        IRIS,
        output,
        "--shards",
        2,
        "--split",
        "train=0.8",
        "--split",
        "test=0.2",
    )
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
    assert "Run `recordmill index` to write it anew, or remove it" in str(told.value)
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


def test_no_index_of_compressed_shards(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "out", "--compression", "gzip")
    ran = recordmill("index", tmp_path / "out")
    assert ran.status == 2
    assert "an index is of no use. Convert with --compression none" in ran.err
    convert("csv", IRIS, tmp_path / "plain", "--compression", "none")
    assert recordmill("index", tmp_path / "plain").status == 0
