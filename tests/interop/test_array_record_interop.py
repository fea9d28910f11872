"""TFDS and array_record's data source, which is Grain's, read ArrayRecord shards."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from interop_tools import ask
from job_tools import GOLDEN, convert, payloads, shards_of

from recordmill import read_rows

CIFAR = GOLDEN / "cifar10.bin"


def test_other_readers_find_the_same_records(tmp_path: Path) -> None:
    job = [CIFAR, "--shards", 3, "--dataset-version", "1.0.0"]
    convert("cifar", job[0], tmp_path / "plain", *job[1:])
    output = tmp_path / "cifar" / "1.0.0"
    options = [*job[1:], "--name", "plain", "--container", "array_record"]
    convert("cifar", job[0], output, *options)
    files = shards_of(output)
    records = [r for shard in shards_of(tmp_path / "plain") for r in payloads(shard)]
    found, kind, count, *rows = ask("read_array_record.py", output, "train", *files)
    assert found == [sha256(record).hexdigest() for record in records]
    assert kind == "array_record"
    assert count == len(records)
    assert rows == [
        [row["label"], sha256(row["image"].tobytes()).hexdigest()]
        for row in read_rows(tmp_path / "plain")
    ]
