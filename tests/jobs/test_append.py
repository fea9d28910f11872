"""append: true converts what is new, and leaves what is there as it is."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from append_tools import GIF, GROWING, assert_sound, records_of, stand, write_rows
from job_tools import (
    Argument,
    Ran,
    assert_whole,
    contents,
    convert,
    examples_of,
    ints,
    manifest_of,
    recordmill,
    shards_of,
    states,
)
from same_dataset import dataset_of, shard_names

from recordmill.transforms.dataset.verify import verify_dataset

HALVES: list[Argument] = ["--split", "train=1/2", "--split", "dev=0.5"]


def append(source: str, *arguments: Argument) -> Ran:
    return convert(source, *arguments, "--append")


def refused(source: str, *arguments: Argument, status: int = 0) -> str:
    """What is said of input or output that does not fit, or with that status."""
    ran = recordmill("convert", source, *arguments, "--append")
    assert ran.status in ((status,) if status else (65, 73))
    return ran.err


def text(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("csv", [*HALVES, "--shards", 3]),
        ("csv", [*HALVES, "--no-shuffle", "--shard-size", "4kB"]),
        ("csv", [*HALVES, "--split-by", "group"]),
        ("csv", [*HALVES, "--split-by", "score", "--compression", "gzip"]),
        ("csv", ["--payload", "json"]),
        ("parquet", [*HALVES, "--split-by", "group"]),
        ("images", ["--feature-names", "imagenet", "--exchange", "scratch"]),
    ],
)
def test_twice_gives_the_rows_of_a_full_run(
    tmp_path: Path, kind: str, options: list[Argument]
) -> None:
    """Every row once, in the split of a full run; no file of before is touched."""
    growing = GROWING[kind]
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    before: dict[str, tuple[int, int, bytes]] = {}
    for number, step in enumerate(growing.steps):
        step(source)
        append(growing.source, source, output, *options)
        after = stand(output)
        assert before.items() <= after.items()
        before = after
        assert manifest_of(output).get("appended", 0) == number
    full = tmp_path / "full" / "out"
    convert(growing.source, source, full, *options)
    assert records_of(output) == records_of(full)
    assert_sound(output, manifest_of(full)["rows_read"])
    schemas = [manifest_of(folder)["features"] for folder in (output, full)]
    assert schemas[0] == schemas[1]
    pages = [(folder / "schema.pbtxt").read_bytes() for folder in (output, full)]
    assert pages[0] == pages[1]
    unchanged = states(output)
    assert "nothing to do" in append(growing.source, source, output, *options).err
    assert states(output) == unchanged
    assert not (output / "dataset_info.json").exists()
    assert not (output / "features.json").exists()


def test_order_of_what_is_appended(tmp_path: Path) -> None:
    """Without shuffling, each append keeps its own input's order, behind the others."""
    job = [tmp_path / "in", tmp_path / "out", "--no-shuffle", "--shards", 2]
    write_rows(tmp_path / "in" / "b.csv", 0, 10)
    append("csv", *job)
    write_rows(tmp_path / "in" / "c.csv", 30, 10)
    write_rows(tmp_path / "in" / "a.csv", 20, 10)
    append("csv", *job)
    assert ints(tmp_path / "out", "id") == [*range(10), *range(20, 40)]
    assert shard_names(tmp_path / "out") == [
        "out-train.tfrecord-00000-of-00002",
        "out-train.tfrecord-00001-of-00002",
        "out-train.tfrecord-a00001-00000-of-00002",
        "out-train.tfrecord-a00001-00001-of-00002",
    ]


@pytest.mark.parametrize("kind", ["csv", "cifar", "images"])
def test_same_bytes(tmp_path: Path, kind: str) -> None:
    """Wherever the input lies, and however the runs are made."""
    growing = GROWING[kind]
    exchanges = ("scratch", "scratch") if kind == "csv" else ("reference", "scratch")
    source = tmp_path / "in"
    source.mkdir()
    for step in growing.steps[:2]:
        step(source)
        copy = shutil.copytree(source, tmp_path / "copy" / "in", dirs_exist_ok=True)
        for number, folder in enumerate((source, copy)):
            options: list[Argument] = ["--workers", number + 1]
            options += ["--exchange", exchanges[number], "--shards", 3]
            output = tmp_path / str(number) / "out"
            append(growing.source, folder, output, *options)
    made = [contents(tmp_path / number / "out") for number in "01"]
    facts = {"run-a00001.json", "inputs.jsonl.gz", "inputs-a00001.jsonl.gz"}
    assert facts < made[0].keys()
    for files in made:
        del files["run-a00001.json"]  # tells when it was
    assert made[0] == made[1]


def test_accounts(tmp_path: Path) -> None:
    """Plan, summary, metrics, inspect and verify tell of the whole and of what is new."""
    source, output = tmp_path / "in", tmp_path / "out"
    job: list[Argument] = [source, output, "--shards", 2]
    write_rows(source / "a.csv", 0, 100)
    ran = append("csv", *job, "--json")
    assert "appended" not in json.loads(ran.out)
    write_rows(source / "b.csv", 100, 40)
    before = states(tmp_path)
    plan = recordmill("convert", "csv", *job, "--append", "--plan", "--json")
    facts = json.loads(plan.out)
    assert (facts["verdict"], facts["files"], facts["kept_files"]) == ("append", 1, 1)
    assert (facts["rows"], facts["exact"], facts["shards"]) == (40, True, 2)
    shown = recordmill("convert", "csv", *job, "--append", "--plan").out
    assert "would append to the existing dataset" in shown
    assert "(new; 1 file already converted)" in shown
    assert states(tmp_path) == before
    metrics = tmp_path / "m.prom"
    ran = append("csv", *job, "--json", "--metrics-file", metrics)
    facts = json.loads(ran.out)
    assert (facts["rows_read"], facts["records"], facts["shards"]) == (140, 140, 4)
    added = facts["appended"]
    assert (added["rows_read"], added["records"], added["shards"]) == (40, 40, 2)
    assert added["bytes"] == sum(path.stat().st_size for path in shards_of(output)[2:])
    text_of = metrics.read_text()
    assert 'recordmill_rows_written{dataset="out",split="train"} 140' in text_of
    assert f'fingerprint="{facts["fingerprint"]}"' in text_of
    assert "appended 1 time" in recordmill("inspect", output).out
    assert json.loads(recordmill("inspect", output, "--json").out)["appended"] == 1
    assert recordmill("verify", output, "--deep").status == 0
    plan = recordmill("convert", "csv", *job, "--append", "--plan", "--json")
    assert json.loads(plan.out)["verdict"] == "unchanged"
    write_rows(source / "c.csv", 140, 10)
    told = append("csv", *job).err
    assert "150 records in 6 shards" in told
    assert "appended: 10 records in 2 shards" in told


def test_verify_knows_the_parts(tmp_path: Path) -> None:
    """Shards of a part lie together, behind those of earlier ones, all counted."""
    source, output = tmp_path / "in", tmp_path / "out"
    for number in range(3):
        write_rows(source / f"{number}.csv", number * 10, 10)
        append("csv", source, output, "--shards", 2)
    manifest = output / "manifest.json"
    facts = json.loads(manifest.read_bytes())

    def problems() -> list[str]:
        found = verify_dataset(str(output), full=False).problems
        return [problem.message for problem in found]

    assert problems() == []
    shards = facts["splits"]["train"]["shards"]
    assert len(shards) == 6
    facts["splits"]["train"]["shards"] = [*shards[:2], *shards[4:], *shards[2:4]]
    manifest.write_text(json.dumps(facts))
    assert problems() == [
        f"shard {index} of split train is {shards[found]['file']}, expected "
        f"{shards[index]['file']}"
        for index, found in ((2, 4), (3, 5), (4, 2), (5, 3))
    ]
    facts["splits"]["train"]["shards"] = shards
    facts["appended"] = 1
    manifest.write_text(json.dumps(facts))
    assert [problem.partition(" is of append ")[2] for problem in problems()] == [
        "2, but the dataset was appended to 1 time"
    ] * 2
    facts["appended"] = 2
    del shards[3]
    manifest.write_text(json.dumps(facts))
    expected = shards[2]["file"].replace("of-00002", "of-00001")
    assert any(problem.endswith(f"expected {expected}") for problem in problems())


# --- what is appended has to fit ---


@pytest.fixture
def table(tmp_path: Path) -> list[Argument]:
    """The job of a table with a column of every type, published."""
    text(
        tmp_path / "in" / "a.csv",
        "id,price,sure,name,note\n1,1.5,true,ann,x\n2,2,False,2024,\n",
    )
    job: list[Argument] = [tmp_path / "in", tmp_path / "out"]
    append("csv", *job)
    return job


def test_cells_that_fit_the_schema_that_is_there(
    tmp_path: Path, table: list[Argument]
) -> None:
    """Whatever they would be taken for by themselves; columns in any order."""
    text(
        tmp_path / "in" / "b.csv",
        "note,sure,name,price,id\n7,TRUE,1.5,3,-4\n,false,true,1e3,5\n",
    )
    features = manifest_of(tmp_path / "out")["features"]
    append("csv", *table)
    assert manifest_of(tmp_path / "out")["features"] == features
    assert_sound(tmp_path / "out", 4)
    found = {
        example.features.feature["id"].int64_list.value[0]: example.features.feature
        for example in examples_of(tmp_path / "out")
    }
    assert found[-4]["name"].bytes_list.value[0] == b"1.5"
    assert found[-4]["price"].float_list.value[0] == 3.0
    assert found[-4]["sure"].int64_list.value[0] == 1
    assert found[-4]["note"].bytes_list.value[0] == b"7"
    assert "note" not in found[5]
    assert found[5]["price"].float_list.value[0] == 1000.0


WRONG_ROWS = {
    "1.5,1,true,x,": "id: '1.5' is not a valid int64, its type in the dataset",
    "007,1,true,x,": "id: '007' is not a valid int64, its type in the dataset",
    "9223372036854775808,1,true,x,": "id: '9223372036854775808' is not a valid int64",
    "3,cheap,true,x,": "price: 'cheap' is not a valid float32, its type in the dataset",
    "3,true,true,x,": "price: 'true' is not a valid float32",
    "3,1,1,x,": "sure: '1' is not a valid bool, its type in the dataset",
    ",1,true,x,": "id: missing; every record of the dataset has it",
    "3,1,true,,": "name: missing; every record of the dataset has it",
    "3,1": "expected 5 columns, found 2",
}


def test_cells_that_do_not_fit_are_rejects(
    tmp_path: Path, table: list[Argument]
) -> None:
    rows = "".join(f"{row}\n" for row in WRONG_ROWS)
    text(tmp_path / "in" / "b.csv", f"id,price,sure,name,note\n3,1,true,x,\n{rows}")
    before = contents(tmp_path / "out")
    told = refused("csv", *table)
    assert "9 of 10 rows rejected (limit 0)" in told
    assert contents(tmp_path / "out").items() >= before.items()
    append("csv", *table, "--max-rejects", 9)
    assert_whole(tmp_path / "out")
    (kept,) = (tmp_path / "out" / "rejects").iterdir()
    assert "-a00001-" in kept.name
    found = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(found) == len(WRONG_ROWS)
    for reject, (row, reason) in zip(found, WRONG_ROWS.items(), strict=True):
        assert reject["uri"] == "b.csv"
        assert reason in reject["reason"], row
    positions = [reject["position"] for reject in found]
    assert positions == sorted(positions)
    assert sorted(ints(tmp_path / "out", "id")) == [1, 2, 3]
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 9


def test_rejects_of_all_appends_count(tmp_path: Path) -> None:
    """A count holds for the whole dataset; files of rejects do not meet."""
    job: list[Argument] = [tmp_path / "in", tmp_path / "out", "--max-rejects", 2]
    for number in range(2):
        text(tmp_path / "in" / f"{number}.csv", f"a,b\n1,{number}\n2\n3,4\n")
        append("csv", *job)
    assert manifest_of(tmp_path / "out")["rows_rejected"] == 2
    assert len(list((tmp_path / "out" / "rejects").iterdir())) == 2
    text(tmp_path / "in" / "2.csv", "a,b\n1,2\n2\n")
    assert "3 of 8 rows rejected (limit 2)" in refused("csv", *job)
    job[-1] = "40%"
    assert "1 of 2 rows rejected (limit 40%)" in refused("csv", *job)
    job[-1] = "50%"
    append("csv", *job)
    assert_whole(tmp_path / "out")
    convert("csv", *job, "--overwrite", "--grace", "0")
    assert_whole(tmp_path / "out")
    assert len(list((tmp_path / "out" / "rejects").iterdir())) == 3
    assert not list((tmp_path / "out").glob("*a0000*"))


def test_other_columns(tmp_path: Path, table: list[Argument]) -> None:
    for rows, told in (
        ("id,price,sure,name\n1,1,1,1\n", "lacks note"),
        ("id,price,sure,name,note,more\n1,1,1,1,1,1\n", "also has more"),
    ):
        text(tmp_path / "in" / "b.csv", rows)
        error = refused("csv", *table)
        assert "b.csv: its columns differ from the first file" in error
        assert told in error


@pytest.mark.parametrize("content", ["", "id,price,sure,name,note\n"])
def test_new_files_without_rows(
    tmp_path: Path, table: list[Argument], content: str
) -> None:
    """They are noted, so that they need not be looked at again."""
    text(tmp_path / "in" / "b.csv", content)
    assert recordmill("convert", "csv", *table, "--append", "--plan").status == 0
    append("csv", *table)
    assert_sound(tmp_path / "out", 2)
    assert manifest_of(tmp_path / "out")["appended"] == 1
    assert "nothing to do" in append("csv", *table).err
    text(tmp_path / "in" / "c.csv", "id,price,sure,name,note\n9,1,true,x,y\n")
    append("csv", *table)
    assert_sound(tmp_path / "out", 3)


def test_declared_features(tmp_path: Path) -> None:
    """A declared schema stays; files that cells name may come with the new rows."""
    folder = tmp_path / "in"
    schema = text(
        tmp_path / "schema.yaml",
        "features:\n  id: int64\n  label: {dtype: int64, classes: [cat, dog]}\n"
        "  data: {dtype: bytes, column: file, bytes_from: path}\n",
    )
    text(folder / "one.bin", "one")
    text(folder / "a.csv", "id,label,file\n1,dog,one.bin\n")
    job: list[Argument] = [folder / "*.csv", tmp_path / "out", "--schema", schema]
    append("csv", *job)
    text(folder / "two.bin", "two")
    assert "nothing to do" in append("csv", *job).err  # no row can name it yet
    text(folder / "b.csv", "id,label,file\n2,cat,two.bin\n3,cat,one.bin\n")
    append("csv", *job)
    assert_sound(tmp_path / "out", 3)
    data = [
        example.features.feature["data"].bytes_list.value[0]
        for example in examples_of(tmp_path / "out")
    ]
    assert Counter(data) == {b"one": 2, b"two": 1}
    text(folder / "c.csv", "id,label,file\n4,bear,two.bin\n")
    assert "1 of 1 row rejected" in refused("csv", *job)
    text(folder / "one.bin", "other")
    assert "1 changed (one.bin)" in refused("csv", *job)


@pytest.fixture
def pets(tmp_path: Path) -> list[Argument]:
    GROWING["images"].steps[0](tmp_path / "in")
    job: list[Argument] = [tmp_path / "in", tmp_path / "out"]
    append("images", *job)
    return job


def test_a_new_class(tmp_path: Path, pets: list[Argument]) -> None:
    image = tmp_path / "in" / "bear" / "1.png"
    image.parent.mkdir()
    shutil.copyfile(tmp_path / "in" / "cat" / "1.png", image)
    before = contents(tmp_path / "out")
    told = refused("images", *pets)
    assert f"{image}: 'bear' is a new class; the dataset has cat, dog" in told
    assert "labels are positions in that list" in told
    assert contents(tmp_path / "out") == before


def test_an_image_that_readers_cannot_decode(
    tmp_path: Path, pets: list[Argument]
) -> None:
    (tmp_path / "in" / "cat" / "x.gif").write_bytes(GIF)
    told = "x.gif: readers of the dataset can decode all its images"
    assert told in refused("images", *pets)


def test_other_class_names(tmp_path: Path) -> None:
    growing = GROWING["cifar"]
    source = tmp_path / "in"
    source.mkdir()
    growing.steps[0](source)
    names = (source / "batches.meta.txt").read_bytes()
    (source / "batches.meta.txt").unlink()
    append("cifar", source, tmp_path / "out")
    (source / "batches.meta.txt").write_bytes(names)
    told = refused("cifar", source, tmp_path / "out")
    assert "cannot be appended, because their records would differ" in told
    assert "class 0 changed: was '0', is 'zero'" in told


# --- what was converted has to be as it was ---


def test_inputs_that_changed(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    for number in range(6):
        write_rows(source / f"{number}.csv", number * 10, 10)
    append("csv", source, output)
    before = states(output)
    for number in range(4):
        (source / f"{number}.csv").unlink()
    write_rows(source / "4.csv", 40, 11)
    facts = (source / "5.csv").stat()
    os.utime(source / "5.csv", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    write_rows(source / "new.csv", 60, 10)
    told = refused("csv", source, output)
    assert (
        "of its 6 files, 4 are missing (0.csv, 1.csv, 2.csv and 1 more) and "
        "1 changed (4.csv)" in told
    )
    assert "--overwrite" in told
    assert "--dataset-version auto" in told
    assert states(output) == before


def test_another_input_root(tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.csv", 0, 10)
    append("csv", tmp_path / "in", tmp_path / "out")
    write_rows(tmp_path / "more" / "b.csv", 10, 10)
    told = refused("csv", tmp_path / "in", tmp_path / "more", tmp_path / "out")
    assert "1 is missing (a.csv)" in told
    assert f"the folder that all inputs share, now {tmp_path}/" in told


def test_another_job(tmp_path: Path) -> None:
    """Differences of options are those of test_two_datasets."""
    write_rows(tmp_path / "in" / "a.csv", 0, 10)
    append("csv", tmp_path / "in", tmp_path / "out")
    error = refused("csv", tmp_path / "in", tmp_path / "out", "--seed", 1)
    assert "was created by another job" in error
    assert "Changed: --seed 0, now --seed 1. " in error


def test_without_the_inventory(tmp_path: Path) -> None:
    """One can be damaged or lost."""
    job = [tmp_path / "in", tmp_path / "out"]
    write_rows(tmp_path / "in" / "a.csv", 0, 10)
    append("csv", *job)
    inventory = tmp_path / "out" / "inputs.jsonl.gz"
    data = inventory.read_bytes()
    inventory.write_bytes(data[:-9])
    assert "inputs.jsonl.gz: not a valid inventory of inputs" in refused("csv", *job)
    inventory.unlink()
    assert "inputs.jsonl.gz: is missing; without this" in refused("csv", *job)
    other = tmp_path / "other" / "out"
    convert("csv", tmp_path / "in", other, "--seed", 1)
    shutil.copyfile(other / "inputs.jsonl.gz", inventory)
    assert "belongs to another dataset" in refused("csv", *job)


def test_without_append(tmp_path: Path) -> None:
    """A dataset that was appended to is another one than a full run would give."""
    job = [tmp_path / "in", tmp_path / "out"]
    for number in range(2):
        write_rows(tmp_path / "in" / f"{number}.csv", number * 10, 10)
        append("csv", *job)
    ran = recordmill("convert", "csv", *job)
    assert ran.status == 73
    assert "contains another dataset" in ran.err
    assert "append to it with --append, replace it with --overwrite" in ran.err
    convert("csv", *job, "--overwrite")
    assert_whole(tmp_path / "out")
    convert("csv", tmp_path / "in", tmp_path / "fresh" / "out")
    assert dataset_of(tmp_path / "out") == dataset_of(tmp_path / "fresh" / "out")


def test_append_stands_alone(tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "a.csv", 0, 10)
    for options, told in {
        "--overwrite": "adds to the dataset that --overwrite would replace",
        "--dataset-version auto": "but --dataset-version auto publishes",
    }.items():
        for plan in ([], ["--plan"]):
            job = [tmp_path / "in", tmp_path / "out", *options.split(), *plan]
            assert told in refused("csv", *job, status=2)
            assert not (tmp_path / "out").exists()
