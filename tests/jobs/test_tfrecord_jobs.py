"""TFRecord files by the command: kept byte for byte, decoded, damaged, appended."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from frames import frame, records_of
from job_tools import IRIS, Ran, convert, recordmill
from tfrecord_tools import example, write_examples

from recordmill import open_dataset
from recordmill.transforms.dataset.verify import verify_dataset

GZIP = b"\x1f\x8b"


def rows_of(count: int) -> list[bytes]:
    return [example({"n": n, "text": b"x" * (n % 50)}) for n in range(count)]


def records_in(output: Path, split: str = "train") -> list[bytes]:
    found = []
    for path in sorted(output.glob(f"*-{split}*tfrecord*")):
        data = path.read_bytes()
        found += records_of(gzip.decompress(data) if data[:2] == GZIP else data)
    return found


def test_records_are_kept_byte_for_byte(tmp_path: Path) -> None:
    """The same bytes by every exchange and from every packing, in a new order."""
    records = rows_of(400)
    kept: list[dict[str, bytes]] = []
    ways: list[tuple[Callable[[bytes], bytes], str]] = [
        *((bytes, exchange) for exchange in ("scratch", "reference", "engine")),
        (gzip.compress, "scratch"),
    ]
    for number, (pack, exchange) in enumerate(ways):
        old, output = tmp_path / f"old{number}", tmp_path / f"out{number}"
        old.mkdir()
        for name, part in (("a", records[:300]), ("b", records[300:])):
            (old / f"{name}.tfrecord").write_bytes(pack(frame(part)))
        ran = convert(
            *("tfrecord", old, output, "--shards", 3, "--name", "new"),
            *("--exchange", exchange),
        )
        assert "records: kept as they are, unread" in ran.err + ran.out
        shards = sorted(output.glob("new-train*"))
        kept.append({path.name.split(".")[-1]: path.read_bytes() for path in shards})
    assert all(each == kept[0] for each in kept)
    assert len(kept[0]) == 3
    found = records_in(tmp_path / "out0")
    assert sorted(found) == sorted(records)
    assert found != records
    verify_dataset(str(tmp_path / "out0"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_the_order_of_the_input_is_kept(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    records = rows_of(100)
    (tmp_path / "a.tfrecord").write_bytes(pack(frame(records)))
    convert("tfrecord", tmp_path / "a.tfrecord", tmp_path / "out", "--no-shuffle")
    assert records_in(tmp_path / "out") == records


def test_old_shards_get_other_splits_and_another_container(tmp_path: Path) -> None:
    splits = ["--split", "train=0.8", "--split", "test=0.2"]
    convert("csv", IRIS, tmp_path / "old", *splits)
    convert("tfrecord", tmp_path / "old", tmp_path / "same")
    for split in ("train", "test"):
        kept = Counter(records_in(tmp_path / "same", split))
        assert kept == Counter(records_in(tmp_path / "old", split))
    names = [(tmp_path / out / "features.json").read_bytes() for out in ("old", "same")]
    assert names[0] == names[1]
    job = ["tfrecord", tmp_path / "old", tmp_path / "new", "--split", "a=0.5"]
    job += ["--split", "test=0.5", "--compression", "gzip"]
    ran = recordmill("convert", *job)
    assert "the input has a split 'test' by itself" in ran.err
    convert(*job, "--split-from", "none")
    array = [*("tfrecord", tmp_path / "new"), tmp_path / "array"]
    convert(*array, "--container", "array_record")
    for split in ("a", "test"):
        rows = [sum(1 for _ in open_dataset(str(o), split)) for o in (job[2], array[2])]
        assert rows[0] == rows[1] > 50


def test_decoded_records_can_be_changed(tmp_path: Path) -> None:
    """By what the refusal of a schema that changes them says."""
    convert("csv", IRIS, tmp_path / "old")
    (tmp_path / "s.yaml").write_text(
        "features:\n"
        "  name: {column: species, dtype: int64, classes: [setosa, versicolor, virginica]}\n"
        "  length: {column: petal_length_cm, dtype: float32}\n"
    )
    job = ["tfrecord", tmp_path / "old", tmp_path / "new"]
    job += ["--schema", tmp_path / "s.yaml"]
    ran = recordmill("convert", *job)
    assert "but the records are kept as they are: use --records decode" in ran.err
    convert(*job, "--records", "decode")
    rows = list(open_dataset(str(tmp_path / "new"), "train"))
    assert rows[0].keys() == {"name", "length"}
    assert Counter(int(row["name"]) for row in rows) == {0: 50, 1: 50, 2: 50}
    ran = recordmill("convert", *job[:2], tmp_path / "by", "--split-by", "species")
    assert "--split-by species: the records are kept as they are" in ran.err
    by_species = ["--split-by", "species", "--split", "train=0.5", "--split", "b=0.5"]
    convert(*job[:2], tmp_path / "by", "--records", "decode", *by_species)
    found = [
        {row["species"] for row in open_dataset(str(tmp_path / "by"), split)}
        for split in ("train", "b")
    ]
    assert not found[0] & found[1]


@pytest.mark.parametrize("exchange", ["scratch", "reference", "engine"])
def test_damaged_records_cost_themselves_only(exchange: str, tmp_path: Path) -> None:
    records = rows_of(100)
    data = bytearray(frame(records))
    at = len(frame(records[:40]))
    data[at + 9] ^= 1  # the checksum of a length
    data[-1] ^= 1  # that of the last record's data
    (tmp_path / "a.tfrecord").write_bytes(data)
    job = ["tfrecord", tmp_path / "a.tfrecord", tmp_path / "out", "--no-shuffle"]
    job += ["--exchange", exchange]
    ran = recordmill("convert", *job)
    assert ran.status != 0
    assert f"a.tfrecord byte {at:,}" in ran.err
    assert "the checksum of the record's length is wrong; reading goes on" in ran.err
    convert(*job, "--max-rejects", 2)  # takes up what the first run has left
    assert records_in(tmp_path / "out") == records[:40] + records[41:-1]
    told = recordmill("rejects", tmp_path / "out").out
    assert "the checksum of the record's" in told


def other_records(folder: Path) -> list[bytes]:
    records = [b"no example", b"\xff" * 9]
    folder.mkdir()
    (folder / "a.tfrecord").write_bytes(frame(records))
    return records


def refused(*arguments: object) -> Ran:
    ran = recordmill("convert", "tfrecord", *map(str, arguments))
    assert ran.status != 0
    return ran


def test_other_records_are_kept_by_the_payload_that_the_refusal_names(
    tmp_path: Path,
) -> None:
    records = other_records(tmp_path / "old")
    ran = refused(tmp_path / "old", tmp_path / "out")
    assert "is not a tf.train.Example" in ran.err
    assert "any records by --payload raw" in ran.err
    convert("tfrecord", tmp_path / "old", tmp_path / "out", "--payload", "raw")
    assert sorted(records_in(tmp_path / "out")) == sorted(records)
    rows = open_dataset(str(tmp_path / "out"), "train")
    assert {bytes(row["record"]) for row in rows} == set(records)


def test_json_records_of_a_dataset_keep_their_payload(tmp_path: Path) -> None:
    convert("csv", IRIS, tmp_path / "old", "--payload", "json")
    ran = refused(tmp_path / "old", tmp_path / "out")
    assert "use --payload json, or --records decode" in ran.err
    convert("tfrecord", tmp_path / "old", tmp_path / "out", "--payload", "json")
    kept = sorted(records_in(tmp_path / "out"))
    assert kept == sorted(records_in(tmp_path / "old"))
    convert("tfrecord", tmp_path / "old", tmp_path / "new", "--records", "decode")
    rows = open_dataset(str(tmp_path / "new"), "train")
    assert sum(row["species"] == "setosa" for row in rows) == 50


def test_datasets_with_other_classes_are_not_mixed(tmp_path: Path) -> None:
    for name, rows in (("a", "cat dog"), ("b", "cat dog"), ("c", "dog eel")):
        (tmp_path / f"{name}.csv").write_text("\n".join(["kind", *rows.split()]))
        convert(
            *("csv", tmp_path / f"{name}.csv", tmp_path / f"old/{name}"),
            *("--label", "kind"),
        )
    ran = refused(tmp_path / "old", tmp_path / "new")
    assert "cat, dog in a, and dog, eel in c: one number would mean" in ran.err
    both = [tmp_path / "old/a", tmp_path / "old/b"]
    convert("tfrecord", *both, tmp_path / "new")
    names = (tmp_path / "new/kind.labels.txt").read_text().split()
    assert names == ["cat", "dog"]


def test_records_that_are_appended_must_be_alike(tmp_path: Path) -> None:
    write_examples(tmp_path / "in/a.tfrecord", [{"n": n} for n in range(5)])
    job = ["tfrecord", tmp_path / "in", tmp_path / "out"]
    convert(*job)
    write_examples(tmp_path / "in/b.tfrecord", [{"n": 0.5}])
    ran = refused(*job[1:], "--append")
    assert "at byte 0 is not as the dataset says: feature 'n'" in ran.err
    write_examples(tmp_path / "in/b.tfrecord", [{"n": 9}])
    convert(*job, "--append")
    assert max(int(r["n"]) for r in open_dataset(str(job[2]), "train")) == 9


def test_bounds_are_checked_only_where_values_are_read(tmp_path: Path) -> None:
    write_examples(tmp_path / "in/a.tfrecord", [{"n": n} for n in range(5)])
    (tmp_path / "s.yaml").write_text("features:\n  n: {dtype: int64, min: 0, max: 9}\n")
    job = ["tfrecord", tmp_path / "in", tmp_path / "out"]
    job += ["--expect-schema", tmp_path / "s.yaml"]
    ran = refused(*job[1:])
    assert "'n' has bounds, but records that are kept" in ran.err
    assert "use --records decode" in ran.err
    convert(*job, "--records", "decode")
