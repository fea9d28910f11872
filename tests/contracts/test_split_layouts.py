"""The contract of every source: names of files and folders tell their splits."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from job_tools import assert_whole, convert, examples_of, manifest_of, recordmill
from plain_runner import without_beam
from split_layouts import LAYOUTS, OPTIONS, SOURCES, write_ids, write_layout

from recordmill.transforms.sources.file_splits import NO_SPLITS, FileSplits


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def rows_of(folder: Path) -> set[tuple[str, int]]:
    """Split and id of each record."""
    return {
        (split, found.int64_list.value[0])
        for split in manifest_of(folder)["splits"]
        for example in examples_of(folder, split)
        for name, found in example.features.feature.items()
        if name in ("id", "json/id")
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_in_the_split_of_their_file(
    source: str, layout: str, tmp_path: Path
) -> None:
    """Told in plan, summary and run.json; not where they are asked not to be."""
    given, output = tmp_path / "in", tmp_path / "out"
    rows = write_layout(given, source, layout)
    job = source, given, output, *OPTIONS.get(source, ())
    with without_beam():
        planned = convert(*job, "--plan")
        ran = convert(*job)
        assert rows_of(output) == rows
        assert_whole(output)
        convert(source, given, tmp_path / "none", *job[3:], "--split-from", "none")
        assert rows_of(tmp_path / "none") == {("train", row) for _, row in rows}
    stored = json.loads((output / "run.json").read_text())
    for told in (planned.out + planned.err, ran.out + ran.err, str(stored)):
        assert ("by file" in told) == (layout != "no splits")
    if source not in ("numpy", "binary") and layout != "no splits":
        files = Counter(LAYOUTS[layout].values())
        fact = stored["understood"]["facts"]["splits by file"]
        told = {part.split()[0]: int(part.split()[1]) for part in fact.split(", ")}
        assert told == files


def test_appended_files_are_in_their_own_split(source: str, tmp_path: Path) -> None:
    given, output = tmp_path / "in", tmp_path / "out"
    job = source, given, output, *OPTIONS.get(source, ())
    rows = write_layout(given, source, "folders")
    with without_beam():
        convert(*job)
        write_ids(given / "test" / "c", source, [100, 101])
        convert(*job, "--append")
        assert rows_of(output) == rows | {("test", 100), ("test", 101)}
        write_ids(given / "val" / "c", source, [102])
        convert(*job, "--append")
        assert rows_of(output) == rows | {("test", 100), ("test", 101), ("val", 102)}
        assert_whole(output)


def test_a_dataset_of_train_alone_takes_files_of_any_name(
    source: str, tmp_path: Path
) -> None:
    """For new runs, files of such names in no split and asked about."""
    given, output = tmp_path / "in", tmp_path / "out"
    job = source, given, output, *OPTIONS.get(source, ())
    with without_beam():
        for number, name in enumerate(("train", "holdout", "more")):
            write_ids(given / name, source, [number])
            convert(*job, "--append")
        assert rows_of(output) == {("train", 0), ("train", 1), ("train", 2)}
        assert recordmill("convert", *job[:2], tmp_path / "new", *job[3:]).status == 65


def test_files_in_no_split_beside_others_are_asked_for(
    source: str, tmp_path: Path
) -> None:
    """Each way out works; and a job with splits of its own divides such files."""
    given, options = tmp_path / "in", OPTIONS.get(source, ())
    for number, name in enumerate(("train", "test", "extra")):
        write_ids(given / name, source, [number])
    [extra] = given.glob("extra.*")
    halves = ("--split", "train=0.5", "--split", "more=0.5")
    with without_beam():
        ran = recordmill("convert", source, given, tmp_path / "out", *options)
        assert ran.status == 65
        assert f"but 1 file in no split ({extra.name})" in ran.err
        assert f"--exclude /{extra.name}, or" in ran.err
        assert "use --split-from none" in ran.err
        for way, expected in (
            (("--exclude", f"/{extra.name}"), {("train", 0), ("test", 1)}),
            (("--split-from", "none"), {("train", 0), ("train", 1), ("train", 2)}),
            (halves, {("test", 1)}),
        ):
            output = tmp_path / way[1].strip("/")
            convert(source, given, output, *options, *way)
            found = rows_of(output)
            if way == halves:
                assert len(found) == 3
                found = {row for row in found if row[0] == "test"}
            assert found == expected


def test_a_dataset_of_before_is_another_one(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What did not read names is neither taken for the same nor gone on with."""
    given, output = tmp_path / "in", tmp_path / "out"
    job = source, given, output, *OPTIONS.get(source, ())
    write_layout(given, source, "deeper folders")
    with without_beam():
        with monkeypatch.context() as before:
            before.setattr(FileSplits, "find_rule", lambda self, *_, **__: NO_SPLITS)
            before.setattr(FileSplits, "rule_checksum", lambda *_: "")
            convert(*job)
            assert "already exists" in convert(*job).err
        ran = recordmill("convert", *job)
    assert ran.status != 0
    assert "which folders are read as splits" in ran.err
