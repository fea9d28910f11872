"""Folders of many small tables: few tasks, and the dataset of one task for each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from job_tools import Argument, contents, convert, ints, recordmill

from recordmill.beam_jobs.pipelines import convert as pipeline
from recordmill.schemas.ranges import InputRange
from recordmill.transforms.sources.csv import source
from recordmill.transforms.tasks import convert_range, workspace
from recordmill.transforms.tasks.context import RunContext

FILES = 12
PER_RANGE = 4
OPTIONS: list[Argument] = ["--name", "t", "--shards", 2]


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "FILES_PER_RANGE", PER_RANGE)
    monkeypatch.setattr(source, "RANGES_KEPT", 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rows in each file; a decimal in the last one."""
    made = tmp_path / "in"
    made.mkdir()
    for index in range(FILES):
        b = "1.5" if index == FILES - 1 else "2"
        text = f"a,b\n{2 * index},{b}\n{2 * index + 1},3\n"
        (made / f"{index:02d}.csv").write_text(text)
    return made


@pytest.fixture
def ranges_read(monkeypatch: pytest.MonkeyPatch) -> list[InputRange]:
    """Fills with the ranges that tasks read."""
    found = []
    read_whole = convert_range._read_whole

    def note(
        context: RunContext, input_range: InputRange, *more: Any, **named: Any
    ) -> object:
        found.append(input_range)
        return read_whole(context, input_range, *more, **named)

    monkeypatch.setattr(convert_range, "_read_whole", note)
    return found


@pytest.mark.parametrize(
    ("options", "exchange"),
    [
        (("--no-shuffle",), "scratch"),
        (("--split", "train=0.5", "--split", "test=0.5"), "scratch"),
        ((), "engine"),
    ],
    ids=["in order", "splits", "engine"],
)
def test_the_bytes_of_a_range_for_each(
    tmp_path: Path, folder: Path, options: tuple[str, ...], exchange: str
) -> None:
    job: list[Argument] = [folder, *OPTIONS, *options]
    convert("csv", *job[:1], tmp_path / "joined", *job[1:], "--exchange", exchange)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "join_small_files", lambda source, _: list(source))
        convert("csv", *job[:1], tmp_path / "alone", *job[1:])
    assert contents(tmp_path / "joined") == contents(tmp_path / "alone")


def test_a_reject_is_told_with_its_own_file(
    tmp_path: Path, folder: Path, ranges_read: list[InputRange]
) -> None:
    (folder / "05.csv").write_text('a,b\n100,7\n8,9,10\n"no end\n')
    output = tmp_path / "out"
    ran = convert("csv", folder, output, *OPTIONS, "--max-rejects", 2)
    assert [len(each.files) for each in ranges_read] == [PER_RANGE] * 3
    assert "1 x expected 2 columns, found 3; first at 05.csv line 3: " in ran.err
    assert "it opens at line 4; first at 05.csv line 4: " in ran.err
    [file] = (output / "rejects").iterdir()
    rejects = [json.loads(line) for line in file.read_bytes().splitlines()]
    places = [(each["uri"], each["position"]) for each in rejects]
    assert places == [("05.csv", 10), ("05.csv", 17)]
    assert sorted(ints(output, "a")) == [*range(10), *range(12, 24), 100]


def test_a_value_that_does_not_fit_is_told_with_its_own_file(
    tmp_path: Path, folder: Path
) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("features: {a: {dtype: int64}, b: {dtype: int64}}\n")
    options = ["--schema", schema, "--max-rejects", 1]
    ran = convert("csv", folder, tmp_path / "out", *OPTIONS, *options)
    assert "first at 11.csv line 2: " in ran.err


def test_goes_on_from_finished_ranges(
    tmp_path: Path,
    folder: Path,
    ranges_read: list[InputRange],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the power went")

    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("recordmill.beam_jobs.pipelines.convert.stage", broken)
        on_disk: list[Argument] = [*OPTIONS, "--memory", 0]
        assert recordmill("convert", "csv", folder, output, *on_disk).status == 1
    # As if the second range and the shards had never been finished.
    for name in ("range-scratch-000001", "shard-*"):
        for gone in output.glob(f".recordmill/*/facts/{name}.json"):
            gone.unlink()
    ranges_read.clear()
    convert("csv", folder, output, *on_disk)
    assert [each.index for each in ranges_read] == [1]
    assert sorted(ints(output, "a")) == [*range(2 * FILES)]


def test_a_run_of_a_version_that_joined_no_files(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranges and rejects are of other files than ours of the same number."""
    output = tmp_path / "out"
    job: list[Argument] = [folder, output, *OPTIONS, "--max-rejects"]
    (folder / "11.csv").write_text("a,b\n22\n23,3\n")
    with monkeypatch.context() as patch:
        patch.setattr(source, "join_small_files", lambda source, _: list(source))
        patch.setattr(workspace, "_LAYOUT", 0)
        assert recordmill("convert", "csv", *job, 0).status == 65
    [kept] = output.glob(".recordmill/*/rejects/range-scratch-*.jsonl")
    assert kept.stem == "range-scratch-000011"
    convert("csv", *job, 1)
    assert len([*(output / "rejects").iterdir()]) == 1
    assert recordmill("verify", output).status == 0


def test_other_bytes_when_the_engine_reads_again(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same size and time, and as many rows: only the checksum tells."""
    monkeypatch.setattr(source, "FILES_PER_RANGE", FILES)
    send_range = pipeline.send_range

    def changing(*arguments: Any) -> object:
        file = folder / "05.csv"
        before = file.stat().st_mtime_ns
        file.write_bytes(file.read_bytes().replace(b"3", b"4"))
        os.utime(file, ns=(before, before))
        return send_range(*arguments)

    monkeypatch.setattr(pipeline, "send_range", changing)
    job = [folder, tmp_path / "out", *OPTIONS, "--exchange", "engine"]
    ran = recordmill("convert", "csv", *job)
    assert ran.status == 75
    assert (
        "00.csv (or one of the 11 files after it) changed during the run: other bytes "
        "than before" in ran.err
    )
