"""Each format by the command: what its own rows, rejects, appends and ways out are."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive_tools import ARCHIVES, compressed_tar_of, files_in, tar_of, zip_of
from frames import frame, records_of
from job_tools import (
    IRIS,
    SAMPLES,
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
)
from pixel_zoo import IMAGES
from tfrecord_tools import example, write_examples
from webdataset_tools import npy

from recordmill import open_dataset
from recordmill.transforms.temporary import TEMPORARY

pytestmark = pytest.mark.usefixtures("without_beam")

GZIP = b"\x1f\x8b"


def some_records(count: int) -> list[bytes]:
    return [example({"n": n, "text": b"x" * (n % 50)}) for n in range(count)]


def records_in(output: Path, split: str = "train") -> list[bytes]:
    found = []
    for path in sorted(output.glob(f"*-{split}*tfrecord*")):
        data = path.read_bytes()
        found += records_of(gzip.decompress(data) if data[:2] == GZIP else data)
    return found


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_records_are_kept_byte_for_byte(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """In the order of the input, or in a new one."""
    records = some_records(100)
    (tmp_path / "a.tfrecord").write_bytes(pack(frame(records)))
    ran = convert("tfrecord", tmp_path / "a.tfrecord", tmp_path / "out", "--no-shuffle")
    assert "records: kept unchanged, not decoded" in ran.err
    assert records_in(tmp_path / "out") == records
    convert("tfrecord", tmp_path / "a.tfrecord", tmp_path / "new")
    found = records_in(tmp_path / "new")
    assert sorted(found) == sorted(records) != found


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
    assert "the input defines a split 'test'" in ran.err
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
    assert "but the records are kept unchanged: use --records decode" in ran.err
    convert(*job, "--records", "decode")
    rows = list(open_dataset(str(tmp_path / "new"), "train"))
    assert rows[0].keys() == {"name", "length"}
    assert Counter(int(row["name"]) for row in rows) == {0: 50, 1: 50, 2: 50}
    ran = recordmill("convert", *job[:2], tmp_path / "by", "--split-by", "species")
    assert "--split-by species: the records are kept unchanged" in ran.err
    by_species = ["--split-by", "species", "--split", "train=0.5", "--split", "b=0.5"]
    convert(*job[:2], tmp_path / "by", "--records", "decode", *by_species)
    found = [
        {row["species"] for row in open_dataset(str(tmp_path / "by"), split)}
        for split in ("train", "b")
    ]
    assert not found[0] & found[1]


@pytest.mark.parametrize("exchange", ["scratch", "reference", "engine"])
def test_damaged_records_cost_themselves_only(exchange: str, tmp_path: Path) -> None:
    records = some_records(100)
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
    assert "the checksum of the record's length is wrong; reading continues" in ran.err
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
    assert "any records with --payload raw" in ran.err
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
    assert "at byte 0 does not match the dataset: feature 'n'" in ran.err
    write_examples(tmp_path / "in/b.tfrecord", [{"n": 9}])
    convert(*job, "--append")
    assert max(int(r["n"]) for r in open_dataset(str(job[2]), "train")) == 9


def test_bounds_are_checked_only_where_values_are_read(tmp_path: Path) -> None:
    write_examples(tmp_path / "in/a.tfrecord", [{"n": n} for n in range(5)])
    (tmp_path / "s.yaml").write_text("features:\n  n: {dtype: int64, min: 0, max: 9}\n")
    job = ["tfrecord", tmp_path / "in", tmp_path / "out"]
    job += ["--expect-schema", tmp_path / "s.yaml"]
    ran = refused(*job[1:])
    assert "'n' has bounds, but unchanged records" in ran.err
    assert "use --records decode" in ran.err
    convert(*job, "--records", "decode")


JPEG, PNG = IMAGES["rgb.jpg"][0], IMAGES["rgb.png"][0]


def sample(n: int) -> dict[str, bytes]:
    """The files of a sample that has all kinds."""
    return {
        f"d/{n}.jpg": JPEG,
        f"d/{n}.left.PNG": PNG,
        f"d/{n}.cls": b"%d\n" % n,
        f"d/{n}.txt": f"caf\xe9 {n}".encode(),
        f"d/{n}.json": b'{"key": "%d", "box": {"x": [1, 2.5]}}' % n,
        f"d/{n}.npy": npy(np.arange(6, dtype=">u2").reshape(2, 3) + n),
        f"d/{n}.mp4": b"\0\xff",
    }


def joined(*samples: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for each in samples for name, data in each.items()}


def test_each_kind_of_file_is_a_feature(tmp_path: Path) -> None:
    """A bad sample costs itself; the text of one is missing."""
    bad = {**sample(2), "d/2.cls": b"cat"}
    fewer = {name: data for name, data in sample(3).items() if "txt" not in name}
    members = {"__info__": b"{}", **joined(sample(1), bad, fewer, sample(4))}
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.tar").write_bytes(tar_of(members))
    (tmp_path / "in/b.tgz").write_bytes(compressed_tar_of(sample(5), "gzip"))
    (tmp_path / "in/notes.txt").write_text("x")
    ran = convert(
        *("webdataset", tmp_path / "in", tmp_path / "out", "--no-shuffle"),
        *("--max-rejects", 1),
    )
    assert "cls: found b'cat', expected an integer" in ran.err
    assert "__info__" in ran.err + ran.out
    assert "notes.txt" in ran.err + ran.out
    rows = rows_of(tmp_path / "out")
    assert [int(row["cls"]) for row in rows] == [1, 3, 4, 5]
    assert [row["txt"] for row in rows] == ["caf\xe9 1", None, "caf\xe9 4", "caf\xe9 5"]
    first = rows[0]
    assert (first["key"], first["json/key"]) == ("d/1", "1")
    assert first["json/box/x"].tolist() == [1, 2.5]
    assert first["npy"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (first["jpg/height"], first["left.png/width"]) == (5, 7)
    example = next(examples_of(tmp_path / "out")).features.feature
    assert example["left.png"].bytes_list.value[0] == PNG
    assert example["mp4"].bytes_list.value[0] == b"\0\xff"
    features = {f["name"]: f for f in manifest_of(tmp_path / "out")["features"]}
    assert features["jpg"]["content"] == "picture"
    assert features["jpg"]["shape"] == [None, None, None]
    assert [name for name, f in features.items() if f["optional"]] == ["txt"]
    checked = recordmill("verify", tmp_path / "out", "--deep")
    assert checked.status == 0, checked.err


def test_a_schema_takes_what_samples_differ_in(tmp_path: Path) -> None:
    shard = tmp_path / "a.tar"
    objects = {"1.json": b'{"a": 1, "o": [{}]}', "2.json": b'{"b": "new", "a": 2.5}'}
    shard.write_bytes(tar_of(objects))
    ran = recordmill("convert", "webdataset", shard, tmp_path / "out")
    assert "'json/o': lists of objects" in ran.err
    assert "(--schema)" in ran.err
    (tmp_path / "s.yaml").write_text("features:\n  json/a: float32\n  key: string\n")
    convert(
        *("webdataset", shard, tmp_path / "out", "--no-shuffle"),
        *("--schema", tmp_path / "s.yaml"),
    )
    rows = rows_of(tmp_path / "out")
    assert [(row["key"], float(row["json/a"])) for row in rows] == [
        ("1", 1),
        ("2", 2.5),
    ]
    shard.write_bytes(tar_of({"1.json": b'{"a": 3}', "1.id": b"not a number"}))
    ran = recordmill("convert", "webdataset", shard, tmp_path / "other")
    assert "id: found b'not a number', expected an integer" in ran.err
    assert "columns that it does not name (--schema)" in ran.err
    convert("webdataset", shard, tmp_path / "b", "--schema", tmp_path / "s.yaml")
    assert [float(row["json/a"]) for row in rows_of(tmp_path / "b")] == [3]


def test_columns_are_labels_and_splits(tmp_path: Path) -> None:
    """Beside images, whose type flags are not those of columns."""
    shard = tmp_path / "a.tar"
    shard.write_bytes(tar_of(joined(*map(sample, range(3)))))
    roles = ("--label", "txt", "--split-column", "json/key")
    convert("webdataset", shard, tmp_path / "out", *roles)
    names = (tmp_path / "out/txt.labels.txt").read_text().splitlines()
    found = {
        (split, names[int(row["txt"])])
        for split in manifest_of(tmp_path / "out")["splits"]
        for row in open_dataset(str(tmp_path / "out"), split)
    }
    assert found == {(f"{n}", f"caf\xe9 {n}") for n in range(3)}


def test_the_published_form_of_cifar(tmp_path: Path) -> None:
    pack = ARCHIVES["in.tar.gz"]
    archive = tmp_path / "cifar-10-binary.tar.gz"
    files = files_in(SAMPLES / "cifar")
    archive.write_bytes(
        pack({f"cifar-10-batches-bin/{name}": data for name, data in files.items()})
    )
    outputs = [tmp_path / exchange for exchange in ("reference", "engine")]
    for output in outputs:
        convert("cifar", archive, output, "--exchange", output.name, "--name", "c")
        assert sorted(ints(output, "label"))[::16] == list(range(10))
        assert len(ints(output, "label", "test")) == 40
        assert_whole(output)
    assert contents(outputs[0]) == contents(outputs[1])


@pytest.mark.parametrize(
    ("archives", "splits"),
    [
        ({"pets.zip": ["p/cat/1.jpg", "p/dog/2.jpg"]}, ["train"]),
        ({"cat.zip": ["1.jpg"], "dog.zip": ["x/2.jpg", "3.jpg"]}, ["train"]),
        (
            {"train.zip": ["cat/1.jpg", "dog/2.jpg"], "test.zip": ["cat/3.jpg"]},
            ["test", "train"],
        ),
    ],
)
def test_classes_and_splits(
    tmp_path: Path, archives: dict[str, list[str]], splits: list[str]
) -> None:
    for archive, names in archives.items():
        members = {name: JPEG + name.encode() for name in names}
        (tmp_path / archive).write_bytes(zip_of(members))
    out = tmp_path / "out"
    ran = recordmill("convert", "images", tmp_path, out)
    assert (
        "is an archive: recordmill reads its content if the archive itself" in ran.err
    )
    convert("images", *(tmp_path / archive for archive in archives), out)
    assert (out / "label.labels.txt").read_text().split() == ["cat", "dog"]
    assert sorted(manifest_of(out)["splits"]) == splits


def test_rejects_name_the_member_and_keep_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "pets.zip").write_bytes(
        zip_of({"cat/1.jpg": JPEG, "cat/2.jpg": b"torn"})
    )
    out = tmp_path / "out"
    convert("images", tmp_path / "pets.zip", out, "--max-rejects", 1)
    (rejected,) = json.loads(recordmill("rejects", out, "--json").out)["rows"]
    assert rejected["uri"] == "pets.zip!/cat/2.jpg"
    assert base64.b64decode(rejected["raw_base64"]) == b"torn"


def test_rejects_of_tables_name_the_line(tmp_path: Path) -> None:
    kind = "in.tar.gz"
    table = b"x,y\n1,2\n3,4,5\n"
    (tmp_path / kind).write_bytes(ARCHIVES[kind]({"a.csv": table}))
    ran = recordmill("convert", "csv", tmp_path / kind, tmp_path / "out")
    assert f"{kind}!/a.csv line 3" in ran.err
    scratch = tmp_path / "s"
    scratch.mkdir()
    job: list[Argument] = [tmp_path / kind, tmp_path / "out", "--scratch", scratch]
    ran = recordmill("convert", "csv", *job, "--plan")
    assert f"archives: {kind} (1 file)" in ran.out
    assert TEMPORARY.folder == str(scratch)


def test_appended_touched_and_replaced(tmp_path: Path) -> None:
    one, two, out = tmp_path / "1.zip", tmp_path / "2.tar", tmp_path / "out"
    members = {f"{name}/{n}.jpg": JPEG + bytes([n]) for n in range(3) for name in "ab"}
    one.write_bytes(zip_of(members))
    convert("images", one, out, "--append")
    two.write_bytes(tar_of(members))
    for expected in ("done", "unchanged"):
        ran = convert("images", f"{tmp_path}/*.*", out, "--append", "--json")
        assert json.loads(ran.out)["status"] == expected
        os.utime(one)  # the same bytes, read to see that
    assert len(ints(out, "label")) == 12
    one.write_bytes(zip_of(members | {"a/1.jpg": JPEG + b"!"}))
    ran = recordmill("convert", "images", f"{tmp_path}/*.*", out, "--append")
    assert "1 changed (1.zip!/a/1.jpg)" in ran.err
    assert_whole(out)


def test_an_archive_that_is_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each member would be told; the archive is told once."""
    from recordmill.transforms.commit import staging

    archive = tmp_path / "in.tar"
    members = {f"{n}.csv": b"x\n1\n" for n in range(5)}
    archive.write_bytes(tar_of(members))
    checked = staging._changed_locally

    def replaced(*args: object) -> object:
        archive.write_bytes(tar_of(members | {"6.csv": b"x\n2\n"}))
        return checked(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(staging, "_changed_locally", replaced)
    ran = recordmill("convert", "csv", archive, tmp_path / "out")
    assert f"1 input file changed while the run read them:\n  {archive}: " in ran.err


def test_cells_cannot_name_members(tmp_path: Path) -> None:
    (tmp_path / "in.zip").write_bytes(zip_of({"a.csv": b"f\n1.jpg\n"}))
    (tmp_path / "schema.yaml").write_text(
        "features: {f: {column: f, bytes_from: path, picture: {format: jpeg}}}"
    )
    job: list[Argument] = [tmp_path / "in.zip", tmp_path / "out"]
    schema: list[Argument] = ["--schema", tmp_path / "schema.yaml"]
    ran = recordmill("convert", "csv", *job, *schema)
    assert "unpack the archive and use its folder" in ran.err
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "1.jpg").write_bytes(JPEG)
    convert("csv", *job, *schema, "--files-root", tmp_path / "files")
    shutil.unpack_archive(tmp_path / "in.zip", tmp_path / "files")
    convert("csv", tmp_path / "files" / "a.csv", tmp_path / "out2", *schema)


def test_a_table_of_labels_in_the_archive(tmp_path: Path) -> None:
    table = b"path,label\nimg/1.jpg,cat\nimg/2.jpg,dog\n"
    members = {f"img/{n}.jpg": JPEG + bytes([n]) for n in (1, 2)} | {"t.csv": table}
    (tmp_path / "pets.zip").write_bytes(zip_of(members))
    out = tmp_path / "out"
    convert("images", tmp_path / "pets.zip", out, "--label-table", "t.csv")
    assert (out / "label.labels.txt").read_text().split() == ["cat", "dog"]


def rows_of(folder: Path, split: str = "train") -> list[dict[str, object]]:
    return [dict(row) for row in open_dataset(str(folder), split)]


def test_samples_become_the_records_of_their_csv(tmp_path: Path) -> None:
    job = ["--no-shuffle", "--name", "iris"]
    convert("csv", IRIS, tmp_path / "csv", *job)
    text = rows_of(tmp_path / "csv")
    assert len(text) == 150
    for kind in ("parquet", "arrow", "jsonl"):
        convert(kind, SAMPLES / "typed" / f"iris.{kind}", tmp_path / kind, *job)
        assert rows_of(tmp_path / kind) == text
        features = [manifest_of(tmp_path / name)["features"] for name in (kind, "csv")]
        assert features[0] == features[1]


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_bad_rows_cost_themselves_only(exchange: str, tmp_path: Path) -> None:
    text = pa.array([b"ok", b"\xfe", b"z", b"y"]).view(pa.string())
    table = pa.table({"t": text, "l": [[1], [2], [None], [4]]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    ran = convert(
        *("parquet", tmp_path / "a.parquet", tmp_path / "out", "--no-shuffle"),
        *("--max-rejects", 2, "--exchange", exchange),
    )
    assert [row["t"] for row in rows_of(tmp_path / "out")] == ["ok", "y"]
    assert "a.parquet row 1" in ran.err
    ran = recordmill("convert", "parquet", tmp_path / "a.parquet", tmp_path / "none")
    assert ran.status != 0
    assert r'{"t": "\\xfe", "l": [2]}' in ran.err


def test_a_schema_takes_what_can_be_no_feature_by_itself(tmp_path: Path) -> None:
    """Leaves out a map, and keeps all digits of a decimal: what the messages say."""
    table = pa.table(
        {
            "d": [Decimal("1234567890.12")],
            "f": [0.1],
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    ran = recordmill("convert", "parquet", tmp_path / "a.parquet", tmp_path / "out")
    assert "column 'm' of type map<string, int64" in ran.err
    assert "(--schema)" in ran.err
    schema = tmp_path / "s.yaml"
    schema.write_text("features:\n  d: string\n  f: {dtype: float64, stored: tensor}\n")
    convert("parquet", tmp_path / "a.parquet", tmp_path / "out", "--schema", schema)
    (row,) = rows_of(tmp_path / "out")
    assert (row["d"], float(row["f"])) == ("1234567890.12", 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize("source", ["parquet", "jsonl"])
def test_an_inferred_schema_takes_the_rows_it_was_made_of(
    source: str, tmp_path: Path
) -> None:
    """Also where values and lists are missing."""
    given = tmp_path / f"a.{source}"
    if source == "parquet":
        columns = {"a": [1, None], "l": [None, [1.5]], "s": [{"x": "k"}, None]}
        pq.write_table(pa.table(columns), given)
    else:
        given.write_text('{"a": "1", "l": [1]}\n{"b": 2.5, "o": {"x": true}}\n')
    ran = recordmill("schema", "infer", source, given)
    assert ran.status == 0, ran.err
    (tmp_path / "s.yaml").write_text(ran.out)
    job = [given, tmp_path / "out"]
    convert(source, *job, "--schema", tmp_path / "s.yaml")
    assert len(rows_of(tmp_path / "out")) == 2
    planned = recordmill("convert", source, *job, "--plan", "--overwrite", "--json")
    assert json.loads(planned.out)["rows"] == 2


def test_bad_lines_cost_themselves_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "l": [1]}\nnull\n{"a": 2, "l": [null]}\n{"a": 3}\n')
    job: list[Argument] = [path, tmp_path / "out", "--no-shuffle", "--max-rejects", 2]
    ran = convert("jsonl", *job)
    rows = open_dataset(str(tmp_path / "out"), "train")
    assert [int(row["a"]) for row in rows] == [1, 3]
    assert "a.jsonl line 2" in ran.err
    ran = recordmill("convert", "jsonl", path, tmp_path / "none")
    assert ran.status != 0
    assert "expected a JSON object, found None" in ran.err


def test_a_schema_takes_what_rejects_ask_for(tmp_path: Path) -> None:
    """The keys to use, where others come; what can be no feature is left out."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "o": [{"x": 1}]}\n{"a": 2.5, "b": "new"}\n')
    ran = recordmill("convert", "jsonl", path, tmp_path / "out")
    assert "'o': lists of objects" in ran.err
    assert "(--schema)" in ran.err
    (tmp_path / "s.yaml").write_text("features:\n  a: float32\n")
    job = [path, tmp_path / "out", "--no-shuffle", "--schema", tmp_path / "s.yaml"]
    convert("jsonl", *job)
    rows = open_dataset(str(tmp_path / "out"), "train")
    assert [float(row["a"]) for row in rows] == [1.0, 2.5]


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
    (tmp_path / "names.txt").write_bytes(
        b"\xef\xbb\xbfcat\ndog\n"
    )  # as Windows writes it
    job = ("numpy", tmp_path, tmp_path / "out", "--label-array", "classes.npy")
    job = (*job, "--class-names", "names.txt")
    ran = recordmill("convert", *job)
    told = "label: 2 is not a class label (0 to 1)"
    assert ran.status != 0
    assert told in ran.err.replace("\n", " ")
    convert(*job, "--max-rejects", "1")
    assert (tmp_path / "out" / "label.labels.txt").read_bytes() == b"cat\ndog\n"
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
        (times, "Save array.astype(...)", times.astype(np.int64)),
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
    assert "has 4; expected the same number" in ran.err
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
    assert "has no rows to divide" in ran.err
    assert "--split-from none" in ran.err
    convert("idx", digits, tmp_path / "out", *halves, "--split-from", "none")
    counts = [len(open_dataset(str(tmp_path / "out"), s)) for s in "ab"]
    assert sum(counts) == 40
    assert min(counts) > 0
