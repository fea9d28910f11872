"""Which names tell the splits of files, and which do not."""

from __future__ import annotations

import pytest

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources.file_splits import AUTO, NONE, FileSplits


def listed(paths: str, given: str = "") -> list[InputFile]:
    """Files of these paths below /data/in, found below one folder of it."""
    names = paths.split()
    return [InputFile(p, f"/data/in/{p}", 1, "1", given) for p in names]


def splits_of(paths: str, asked: str = AUTO) -> str:
    """The splits of files; "-" for none."""
    files = listed(paths)
    rule = FileSplits(asked).find_rule(files)
    return " ".join(rule.split_of(file) or "-" for file in files)


SPLITS = [
    ("train.csv test.csv", "train test"),
    ("Train.csv TEST.csv", "train test"),
    ("train-00000-of-00001.parquet test-00000-of-00001.parquet", "train test"),
    ("train-000000.tar val-000000.tar val-000001.tar", "train val val"),
    ("X_train.npy y_train.npy X_test.npy y_test.npy", "train train test test"),
    ("data.train.jsonl.gz data.dev.jsonl.gz", "train dev"),
    ("train2017.csv val2017.csv", "train val"),
    ("cooking.train cooking.valid", "train valid"),
    ("train/a.jsonl test/a.jsonl test/b.jsonl", "train test test"),
    ("data/train/a.csv data/eval/b.csv", "train eval"),
    ("seg_train/a.csv seg_test/b.csv", "seg_train seg_test"),
    ("train/a.csv test.csv", "train test"),
    ("split=train/a.csv split=hold%2Dout/b.csv", "train hold-out"),
    ("y=1/split=a/x.csv y=2/split=a/x.csv y=2/split=b/x.csv", "a a b"),
    # More names of shards than there are words.
    (
        "train-00000-of-00001.parquet test_matched-00000-of-00001.parquet "
        "unsupervised-00000-of-00001.parquet",
        "train test_matched unsupervised",
    ),
    # The one with several splits.
    ("test/train.csv test/dev.csv", "train dev"),
    ("train/lab_test_1.csv dev/lab_test_2.csv", "train dev"),
    # A folder of files of one split; alone a name says nothing but that of a shard.
    ("test-0.csv test-1.csv", "test test"),
    ("test/a.csv test/b.csv", "test test"),
    ("test.csv", "-"),
    ("test/a.csv", "test"),
    ("test-00000-of-00001.parquet", "test"),
    ("train-0.csv training-1.csv", "- -"),
    # Words within others, or several of them.
    ("contest.csv trainer.csv latest.csv devices.csv", "- - - -"),
    ("train_test.csv trainval.csv", "- -"),
    ("part-00000-of-00002.parquet part-00001-of-00002.parquet", "- -"),
    ("cat/a.csv dog/b.csv", "- -"),
]


@pytest.mark.parametrize(("paths", "expected"), SPLITS)
def test_names_tell_splits(paths: str, expected: str) -> None:
    assert splits_of(paths) == expected
    assert set(splits_of(paths, NONE).split()) == {"-"}


def test_the_folder_at_a_level_is_the_split() -> None:
    paths = "a/train/x.csv b/test/x.csv"
    assert splits_of(paths, "1") == "a b"
    assert splits_of(paths, "2") == "train test"
    assert splits_of(paths, "0") == "in in"
    files = [*listed("a/x.csv", "a"), *listed("b/c/x.csv", "b")]
    rule = FileSplits("0").find_rule(files)
    assert [*map(rule.split_of, files)] == ["a", "b"]


ASKED = [
    (
        "train.csv test.csv extra.csv",
        r"2 files in splits by their names \(test.csv: test, train.csv: train\), but "
        r"1 file in no split \(extra.csv\).*`exclude=/extra.csv`.*`split_from=none`",
    ),
    (
        "train/a.csv test/a.csv b.csv c.csv",
        r"2 files in no split \(b.csv, c.csv\).*`exclude`,",
    ),
    (
        "train.csv holdout.csv",
        r"1 file in splits by their names \(train.csv: train\), but 1 file in no split "
        r"\(holdout.csv\)",
    ),
    (
        "train/a.csv train/b.csv c.csv",
        r"1 file in no split \(c.csv\).*`exclude=/c.csv`",
    ),
    (
        "train/test_a.csv test/train_a.csv",
        "in the split test by its name, and in train",
    ),
    (
        "split=a/x.csv split=__HIVE_DEFAULT_PARTITION__/y.csv",
        r"1 file in no split \(split=__HIVE",
    ),
    ("split=a%20b/x.csv split=c/x.csv", "the split 'a b' of its folder is not a valid"),
]


@pytest.mark.parametrize(("paths", "message"), ASKED)
def test_what_is_asked_for(paths: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        splits_of(paths)


def test_too_many_splits() -> None:
    paths = " ".join(f"{number}/a.csv" for number in range(300))
    with pytest.raises(
        InputError, match="in 300 splits by their names, expected at most"
    ):
        splits_of(paths, "1")


def test_files_in_no_split_may_be_beside_others_where_a_job_divides_them() -> None:
    files = listed("a.csv b.csv test.csv")
    rule = FileSplits(AUTO, may_mix=True).find_rule(files)
    assert rule.report_lines == (
        ("splits by file", "test 1 file, 2 files in no split"),
    )
    assert rule.names == ()


def test_what_is_told() -> None:
    rule = FileSplits(AUTO).find_rule(listed("val.csv train-1.csv train-2.csv"))
    assert rule.report_lines == (("splits by file", "train 2 files, val 1 file"),)
    assert rule.names == ("train", "val")
    assert FileSplits(AUTO).find_rule(listed("a.csv")).report_lines == ()


APPENDED = [
    ("train.csv", "test.csv", "test"),
    ("train.csv test.csv", "train-2.csv", "train"),
    ("a.csv b.csv", "c.csv", "-"),
    ("train.csv", "more.csv", "-"),
    ("train/a.csv test/a.csv", "test/b.csv", "test"),
]


@pytest.mark.parametrize(("before", "new", "expected"), APPENDED)
def test_appended_files_have_their_own_split(
    before: str, new: str, expected: str
) -> None:
    files = listed(new)
    rule = FileSplits(AUTO).find_rule(files, listed(before))
    assert " ".join(rule.split_of(file) or "-" for file in files) == expected
    assert rule.names == (() if expected == "-" else (expected,))


@pytest.mark.parametrize(
    ("before", "new", "message"),
    [
        (
            "test.csv",
            "train.csv",
            "test.csv: is in the split train, but together with the new",
        ),
        (
            "a.csv",
            "test.csv",
            "in no split .*again, without `append`, with `split_from=none`",
        ),
    ],
)
def test_what_cannot_be_appended(before: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FileSplits(AUTO).find_rule(listed(new), listed(before))


def test_the_reading_changes_where_splits_are_found_and_how() -> None:
    found = [
        FileSplits(asked).rule_checksum(listed(paths, given))
        for paths, asked, given in (
            ("train.csv test.csv", AUTO, ""),
            ("a/x.csv b/x.csv", "1", ""),
            ("a/x.csv b/x.csv", "0", ""),
        )
    ]
    assert len({*found}) == len(found)
    assert "" not in found
    for paths, asked in zip(("a.csv", "train.csv test.csv"), (AUTO, NONE), strict=True):
        assert FileSplits(asked).rule_checksum(listed(paths)) == ""


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["test/a.parquet"], ["test"]),
        (["split=test/a.parquet"], ["test"]),
        (["test.csv"], [""]),
        (["env=dev/a.csv", "env=test/b.csv"], ["", ""]),
        (["train/train.csv", "validation/val.csv"], ["train", "val"]),
        (["Train/x_train.csv", "Test/x_test.csv"], ["train", "test"]),
    ],
)
def test_folders_of_one_file_of_keys_and_of_words_that_mean_the_same(
    paths: list[str], expected: list[str]
) -> None:
    files = [InputFile(path, f"/in/{path}", 1) for path in paths]
    rule = FileSplits("auto").find_rule(files)
    assert [rule.split_of(file) for file in files] == expected
