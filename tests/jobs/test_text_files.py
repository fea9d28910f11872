"""A record for each text file, with its folder as the class."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import Argument, assert_whole, convert, examples_of, recordmill
from plain_runner import without_beam

from recordmill import open_dataset
from recordmill.transforms.sources.images import source as images_source

TEXTS = {
    "train/pos/0.txt": "good\nvery gr\u00fcn",
    "train/pos/1.txt": "\ufeffmarked",
    "train/neg/0.txt": "",
    "train/neg/1": "no ending\n",
    "test/neg/2.txt": "bad",
    "test/pos/2.txt": "fine",
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def rows_of(folder: Path, split: str) -> dict[str, tuple[str, list[int]]]:
    found = {}
    for example in examples_of(folder, split):
        has = example.features.feature
        name, text = (has[n].bytes_list.value[0].decode() for n in ("filename", "text"))
        found[name] = text, list(has["label"].int64_list.value)
    return found


@pytest.mark.parametrize("exchange", ["auto", "engine"])
def test_folders_are_splits_and_classes(
    texts: Path, tmp_path: Path, exchange: str
) -> None:
    out = tmp_path / "out"
    convert("text", texts, out, "--whole-files", "--exchange", exchange)
    assert (out / "label.labels.txt").read_text() == "neg\npos\n"
    for split in ("train", "test"):
        assert rows_of(out, split) == {
            name: (text.removeprefix("\ufeff"), [int("pos" in name)])
            for name, text in TEXTS.items()
            if name.startswith(split)
        }
    assert_whole(out)


def test_what_is_no_text_is_rejected_or_told(texts: Path, tmp_path: Path) -> None:
    (texts / "train/pos/bad.txt").write_bytes(b"gr\xfcn")
    (texts / "train/pos/wide.html").write_bytes("<p>".encode("utf-16"))
    (texts / "train/pos/data.bin").write_bytes(bytes(100))
    (texts / "README.md").write_text("# Texts")
    job: list[Argument] = ["text", texts, tmp_path / "out", "--whole-files"]
    ran = recordmill("convert", *job)
    assert ran.status == 65
    ran = convert(*job, "--max-rejects", 1)
    assert "UTF-16 is not supported; save them as UTF-8" in ran.err
    assert "1 file (.bin, no text file content)" in ran.err
    assert "left out, no texts: README.md" in ran.err
    told = recordmill("rejects", tmp_path / "out").out
    assert "is not UTF-8: b" in told
    assert "at byte 2 of the file" in told


def test_files_are_appended(texts: Path, tmp_path: Path) -> None:
    job: list[Argument] = ["text", texts, tmp_path / "out", "--whole-files"]
    convert(*job)
    (texts / "train/pos/3.txt").write_text("new")
    convert(*job, "--append")
    assert rows_of(tmp_path / "out", "train")["train/pos/3.txt"] == ("new", [1])


def test_options_of_lines_and_of_files_exclude_each_other(
    texts: Path, tmp_path: Path
) -> None:
    job: list[Argument] = ["convert", "text", texts, tmp_path / "out"]
    ran = recordmill(*job, "--whole-files", "--blank-lines", "skip")
    assert "--blank-lines: with --whole-files each file is a record" in ran.err
    ran = recordmill(*job, "--label-from", "none")
    assert "use --whole-files, which has labels" in ran.err
    ran = recordmill(*job, "--label-table", "labels.csv")
    assert "--label-table: each line is a record: use --whole-files" in ran.err
    convert(*job[1:], "--whole-files", "--label-from", "none")
    found = [
        dict(each.features.feature) for each in examples_of(tmp_path / "out", "test")
    ]
    assert sorted(each["text"].bytes_list.value[0] for each in found) == [
        b"bad",
        b"fine",
    ]
    assert all("label" not in each for each in found)


@pytest.mark.parametrize("exchange", ["auto", "engine"])
def test_a_table_has_labels_splits_and_features(
    texts: Path, tmp_path: Path, exchange: str
) -> None:
    """As of images: pandas wrote it, with a column of its own."""
    lines = [
        f"{name},{len(text)},{'xy'[len(text) > 4]},dev" for name, text in TEXTS.items()
    ]
    (texts / "rated.csv").write_text("file,stars,label,split\n" + "\n".join(lines[1:]))
    job = ("--whole-files", "--label-table", "rated.csv", "--exchange", exchange)
    job += ("--split-from", "none")  # but by the table
    with without_beam():
        convert("text", texts, tmp_path / "out", *job, "--unlisted", "leave_out")
    assert (tmp_path / "out/label.labels.txt").read_text() == "x\ny\n"
    found = {
        row["filename"]: (row["text"], row["label"], row["stars"])
        for row in open_dataset(tmp_path / "out", "dev")
    }
    assert found == {
        name: (text.removeprefix("\ufeff"), int(len(text) > 4), len(text))
        for name, text in [*TEXTS.items()][1:]
    }


def test_a_schema_names_a_column_of_the_table(texts: Path, tmp_path: Path) -> None:
    lines = [f"{name},{number}" for number, name in enumerate(TEXTS)]
    (texts / "rated.csv").write_text("file,stars\n" + "\n".join(lines))
    (tmp_path / "s.yaml").write_text("features:\n  text: string\n  stars: int64\n")
    job = ("--whole-files", "--label-table", "rated.csv", "--label-column", "none")
    with without_beam():
        convert("text", texts, tmp_path / "out", *job, "--schema", tmp_path / "s.yaml")
    found = {
        row["stars"]: row["text"] for row in open_dataset(tmp_path / "out", "test")
    }
    assert found == {4: "bad", 5: "fine"}


def test_a_large_file_is_read_to_its_end(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its first bytes are: of other kinds of files these tell what it is."""
    text = "\x1b[1m" + "a line of many\n" * 100
    (texts / "train/pos/large.txt").write_text(text)
    monkeypatch.setattr(images_source, "LARGE_BYTES", 200)
    monkeypatch.setattr(images_source, "HEAD_BYTES", 100)
    convert("text", texts, tmp_path / "out", "--whole-files")
    rows = rows_of(tmp_path / "out", "train")
    assert rows["train/pos/large.txt"] == (text, [1])
