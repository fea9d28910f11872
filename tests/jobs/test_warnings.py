"""Warnings have codes that programs can rely on, and `strict` lets none pass."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from archive_tools import tar_of
from job_tools import (
    SAMPLES,
    Argument,
    Ran,
    assert_unpublished,
    assert_whole,
    codes_of,
    contents,
    convert,
    recordmill,
)
from killed_runs import failing
from pixel_zoo import IMAGES

from recordmill.beam_jobs.pipelines.convert import convert_one_range
from recordmill.beam_jobs.service import prepare
from recordmill.beam_jobs.service.prepare import prepare_run
from recordmill.beam_jobs.service.resolve import resolve_run
from recordmill.beam_jobs.service.run import make_run_metadata, prepare_launch
from recordmill.schemas.errors import InputError
from recordmill.schemas.input_summary import InputReport, InputWarning, WarningCode
from recordmill.schemas.job import JobSpec, RunOptions
from recordmill.schemas.ranges import RejectCode
from recordmill.transforms.sources.csv.source import CsvSource

pytestmark = pytest.mark.usefixtures("without_beam")

CODES = get_args(WarningCode)
JPEG = IMAGES["rgb.jpg"][0]
WEBP = IMAGES["lossy.webp"][0]
WAV = (SAMPLES / "sounds/tone/0.wav").read_bytes()
SHARES = ("--split", "train=0.5", "--split", "test=0.5")
ODD = "id,price\n" + "".join(f"{n},{n}.5\n" for n in range(11)) + "11,12.5o\n"
TABLE = "file,label\na.jpg,cat\nb.jpg,dog\n"
AS_TABLE = ("--label-table", "labels.csv")

Case = Callable[[Path], list[Argument]]


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


def given(source: str, files: Mapping[str, str | bytes], *options: Argument) -> Case:
    """Returns what writes the input, and returns the arguments but for the output."""

    def make(folder: Path) -> list[Argument]:
        write(folder / "in", files)
        return [source, folder / "in", *options]

    return make


def table(text: str, *options: Argument) -> Case:
    return given("csv", {"a.csv": text}, *options)


def images(
    *names: str, more: Mapping[str, str | bytes] = {}, options: str = ""
) -> Case:
    found = {name: JPEG + bytes([n]) for n, name in enumerate(names)}  # all differ
    return given("images", {**found, **more}, *options.split())


def labelled(text: str, *options: Argument, more: Mapping[str, str] = {}) -> Case:
    files = {"a.jpg": JPEG + b"1", "b.jpg": JPEG + b"2", "labels.csv": text, **more}
    return given("images", files, *AS_TABLE, *options)


def with_link(folder: Path) -> list[Argument]:
    arguments = images("cat/1.jpg", "dog/1.jpg")(folder)
    (folder / "in/again").symlink_to(folder / "in/cat")
    return arguments


def with_output_inside(folder: Path) -> list[Argument]:
    write(folder, {"a.csv": "a,b\n1,2\n"})
    convert("csv", folder, folder / "out")
    return ["csv", folder, "--seed", 1, "--overwrite"]


def with_empty_folder(folder: Path) -> list[Argument]:
    arguments = images("train/cat/1.jpg", "train/dog/1.jpg", "test/cat/1.jpg")(folder)
    (folder / "in/val").mkdir()
    return arguments


def with_wrong_features(folder: Path) -> list[Argument]:
    """Records whose features.json says that numbers are text."""
    write(folder, {"a.csv": "a,b\n1,x\n2,y\n"})
    convert("csv", folder / "a.csv", folder / "made", "--name", "made")
    (folder / "in").mkdir()
    for name in (
        "dataset_info.json",
        *(p.name for p in folder.glob("made/*tfrecord*")),
    ):
        shutil.copy(folder / "made" / name, folder / "in")
    text = (folder / "made/features.json").read_text()
    assert '"int64"' in text
    (folder / "in/features.json").write_text(text.replace('"int64"', '"string"'))
    return ["tfrecord", folder / "in"]


def with_unused_metadata(folder: Path) -> list[Argument]:
    told = json.dumps({"info": {"features": {"a": {"_type": "Hologram"}}}})
    schema = pa.schema([("a", pa.int64())], {"huggingface": told})
    pq.write_table(pa.table({"a": [1, 2]}, schema=schema), folder / "a.parquet")
    return ["parquet", folder / "a.parquet"]


RUNS: dict[str, Case] = {
    "skipped-link": with_link,
    "unused-exclude": table("a,b\n1,2\n", "--exclude", "nothing"),
    "output-in-input": with_output_inside,
    "doubtful-header": table("1,2,3\n4,5,6\n"),
    "comment-header": table("#a\n#b\nc,d\n1,2\n", "--max-rejects", 9),
    "single-column": table("a;b\n1;2\n3;4\n", "--delimiter", "comma"),
    "other-widths": table("of,May\nby,us\nid,x,y\n1,2,3\n4,5,6\n", "--max-rejects", 9),
    "escaped-quotes": table('a,b\n1,"say \\"so\\""\n'),
    "odd-cells": table(ODD),
    "long-numbers": table("a,b\n1,16777217.5\n"),
    "number-marks": table('a,b\n1,"1,234"\n2,"5,678"\n'),
    "unused-metadata": with_unused_metadata,
    "renumbered-labels": labelled(TABLE.replace("cat", "3").replace("dog", "7")),
    "single-class": images("cat/1.jpg", "cat/2.jpg"),
    "unused-class": labelled(
        TABLE, "--label-map", "map.txt", more={"map.txt": "cat\ndog\ncow\n"}
    ),
    "classes-like-splits": images("train/1.jpg", "cat/2.jpg"),
    "classes-like-masks": images("left/cat/1.jpg", "right/cat/1.jpg"),
    "empty-folder": with_empty_folder,
    "no-class": images("cat/1.jpg", "dog/2.jpg", "3.jpg", options="--max-rejects 1"),
    "few-annotations": images(
        *("cat/1.jpg", "cat/2.jpg", "dog/3.jpg", "dog/4.jpg"),
        more={
            "cat/1.xml": b"<annotation><size><width>9</width><height>9</height></size>"
            b"</annotation>"
        },
    ),
    "unlisted-images": labelled("file,label\na.jpg,cat\n", "--max-rejects", 1),
    "unsupported-images": images(
        "cat/1.jpg", "dog/1.jpg", more={"cat/2.jp2": b"\0\0\0\x0cjP  \r\n\x87\n" * 9}
    ),
    "unlisted-audio": given(
        "audio",
        {"a.wav": WAV, "b.wav": WAV, "t.csv": b"file,label\na.wav,cat\n"},
        *("--label-table", "t.csv", "--max-rejects", 1),
    ),
    "unsupported-audio": given(
        "audio", {"cat/1.wav": WAV, "dog/1.wav": WAV, "dog/2.aiff": b"FORM....AIFF" * 9}
    ),
    "unlisted-text": given(
        "text",
        {"a.txt": b"a", "b.txt": b"b", "t.csv": b"file,label\na.txt,cat\n"},
        *("--whole-files", "--label-table", "t.csv", "--max-rejects", 1),
    ),
    "unsupported-text": given(
        "text",
        {"cat/1.txt": b"a", "dog/1.txt": b"b", "dog/2.htm": "c".encode("utf-16")},
        "--whole-files",
    ),
    "reserved-column": labelled("file,label,height\na.jpg,cat,1\nb.jpg,dog,2\n"),
    "undecodable-images": images("cat/1.jpg", "dog/1.jpg", more={"dog/2.webp": WEBP}),
    "partial-images": images(
        "cat/1.jpg",
        "dog/1.jpg",
        more={"dog/2.gif": IMAGES["animated.gif"][0]},
        options="--undecodable reencode",
    ),
    "other-features": with_wrong_features,
    "no-sample": given("webdataset", {"a.tar": tar_of({"1.txt": b"a", "none": b"b"})}),
    "repeated-key": given(
        "webdataset",
        {"a.tar": tar_of([("1.txt", b"a"), ("2.txt", b"b"), ("1.txt", b"c")])},
    ),
    "empty-split": table("a,b\n1,2\n", *SHARES),
    "duplicates": given(
        "images",
        {f"{split}/{n}/1.jpg": JPEG for split in ("train", "test") for n in "ab"},
        *("--duplicates", "report"),
    ),
}
PLANS: dict[str, Case] = {
    "reject-limit": table("a,b\n1,2\n3\n"),
    "full-disk": table("a,b\n1,2\n"),
}
AFTER_COMMIT = {"linked-version"}


def of(ran: Ran) -> set[str]:
    return set(codes_of(json.loads(ran.out)))


def published(folder: Path) -> dict[str, str]:
    """What readers of a folder see."""
    return {
        name: digest
        for name, digest in (contents(folder) if folder.exists() else {}).items()
        if not name.startswith(".recordmill")
    }


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_every_code_has_a_case() -> None:
    assert {*RUNS, *PLANS, *AFTER_COMMIT} == set(CODES)


def test_an_old_version_that_is_a_link_loses_the_link_alone(
    tmp_path: Path, out: Path
) -> None:
    """Known behind the commit only, so `--strict` cannot stop the run."""
    job = [*table("a,b\n1,2\n")(tmp_path), out, "--dataset-version", "auto"]
    assert recordmill("convert", *job).status == 0
    moved = (out / "1.0.0").rename(tmp_path / "other disk")
    (out / "1.0.0").symlink_to(moved)
    more: list[Argument] = ["--seed", 1, "--keep", 1, "--strict", "--json"]
    ran = recordmill("convert", *job, *more)
    assert (ran.status, of(ran)) == (0, {"linked-version"})
    assert sorted(path.name for path in out.iterdir()) == ["1.0.1", "latest.json"]
    assert_whole(moved)


@pytest.mark.parametrize("code", RUNS)
def test_every_code_is_in_all_reports_and_is_fatal_if_strict(
    code: str, tmp_path: Path, out: Path
) -> None:
    arguments = [*RUNS[code](tmp_path), out]
    before = published(out)
    stopped = recordmill("convert", *arguments, "--strict")
    assert stopped.status == 65
    assert f"[{code}]" in stopped.err
    assert "and --strict allows none:" in stopped.err
    assert published(out) == before
    ran = recordmill("convert", *arguments, "--json")  # the way out that it names
    assert ran.status == 0, ran.err
    assert code in of(ran)
    assert of(ran) == set(codes_of(json.loads((out / "run.json").read_bytes())))
    assert of(ran) <= set(CODES)


@pytest.mark.parametrize("code", PLANS)
def test_plan_warns_of_what_ends_a_run(
    code: str, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=0 if code == "full-disk" else 1 << 40)
    monkeypatch.setattr(prepare.shutil, "disk_usage", lambda _: usage)
    arguments = ["convert", *PLANS[code](tmp_path), out, "--plan"]
    ran = recordmill(*arguments, "--json")
    assert (ran.status, of(ran)) == (0, {code})
    refused = recordmill(*arguments, "--json", "--strict")
    facts = json.loads(refused.out)
    assert refused.status == 65
    assert (facts["verdict"], facts["kind"]) == ("refused", "data")
    assert f"1 warning ({code}), and --strict allows none:" in facts["reason"]
    assert not out.exists()


def test_what_is_known_before_rows_are_read_stops_a_run_there(
    tmp_path: Path, out: Path
) -> None:
    job = ["convert", *RUNS["unused-exclude"](tmp_path), out]
    assert recordmill(*job, "--strict").status == 65
    assert not out.exists()
    assert recordmill(*job, "--strict", "--plan").status == 65
    assert recordmill(*job).status == 0
    unchanged = recordmill(*job, "--strict", "--json")  # nothing is to be published
    assert (unchanged.status, of(unchanged)) == (0, {"unused-exclude"})


def test_the_run_without_it_publishes_what_is_finished(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option is not part of what makes two runs the same."""
    job = ["convert", *RUNS["long-numbers"](tmp_path), out, "--memory", 0]
    stopped = recordmill(*job, "--strict")
    assert stopped.err.count("[long-numbers]") == 1
    assert "Error: 1 warning (long-numbers), and --strict allows none:" in stopped.err
    assert "Nothing was published." in stopped.err.splitlines()[-1]
    assert_unpublished(out)
    monkeypatch.setattr(CsvSource, "read", None)  # nothing is read again
    assert recordmill(*job).status == 0
    assert_whole(out)
    assert recordmill(*job, "--strict").status == 0


def test_warnings_of_a_killed_run_are_not_published(tmp_path: Path, out: Path) -> None:
    """Only the commit is left to do, and its inputs are not looked at again."""
    job = ["convert", *RUNS["long-numbers"](tmp_path), out]
    with failing("commit"):
        assert recordmill(*job).status == 1
    assert "would publish" in recordmill(*job, "--plan").out
    for more in ((), ("--plan",)):
        stopped = recordmill(*job, "--strict", *more)
        assert stopped.status == 65
        assert "[long-numbers]" in stopped.err + stopped.out
    assert_unpublished(out)
    assert recordmill(*job).status == 0


def test_a_detached_job_publishes_no_warnings(tmp_path: Path, out: Path) -> None:
    """Its last step finds what its launcher cannot know."""
    _, folder = RUNS["long-numbers"](tmp_path)

    def work(*, strict: bool) -> None:
        options = RunOptions((str(folder),), str(out), strict=strict)
        prepared = prepare_run(
            run := resolve_run(JobSpec(source="csv", name="out"), options)
        )
        context = prepare_launch(run, prepared)
        facts = make_run_metadata(
            context, PipelineOptions([]), 0.0, prepared.input_report
        )
        list(convert_one_range(b"", prepared.ranges[0], context, facts))

    with pytest.raises(InputError, match=r"1 warning \(long-numbers"):
        work(strict=True)
    assert_unpublished(out)
    work(strict=False)
    assert (out / "manifest.json").exists()


def test_a_job_file_takes_it(tmp_path: Path, out: Path) -> None:
    _, folder = RUNS["long-numbers"](tmp_path)
    job = tmp_path / "job.yaml"
    job.write_text(f"source: csv\ninputs: {folder}\noutput: {out}\nstrict: true\n")
    stopped = recordmill("run", job)
    assert stopped.status == 65
    assert "and strict: true allows none:" in stopped.err
    assert recordmill("plan", job).status == 65
    job.write_text(job.read_text().replace("strict: true", ""))
    assert recordmill("run", job).status == 0


def test_a_warning_is_told_once_in_each_form(tmp_path: Path, out: Path) -> None:
    job = ["convert", *RUNS["unused-exclude"](tmp_path), out]
    plain = recordmill(*job).err
    head, _, tail = plain.partition(" record in ")
    assert (
        head.count(
            "Warning: --exclude nothing: no input file or folder has such a name"
        )
        == 1
    )
    assert [line[-16:] for line in tail.splitlines() if "warning: " in line] == [
        "[unused-exclude]"
    ]
    ran = recordmill(*job, "--overwrite", "--seed", 1, "--log-format", "json")
    events = [json.loads(line) for line in ran.err.splitlines()]
    (warned,) = [each for each in events if each["level"] == "warning"]
    assert (warned["event"], warned["code"]) == ("input_warning", "unused-exclude")
    assert warned["message"].startswith("--exclude nothing: no input file")


def test_an_error_lists_ten_warnings() -> None:
    told = [InputWarning("long-numbers", str(number)) for number in range(12)]
    with pytest.raises(InputError) as error:
        InputReport(
            warnings=(*told, InputWarning("odd-cells", "x"))
        ).require_no_warnings()
    head, *lines, more, way_out = str(error.value).splitlines()
    assert (
        head == "13 warnings (12 x long-numbers, odd-cells), and `strict` allows none:"
    )
    assert lines == [f"  {number} [long-numbers]" for number in range(10)]
    assert (more, way_out[:6]) == ("  and 3 more", "Fix th")


REJECTED: dict[str, Case] = {
    "row": table("a,b\n1,2\n3\n"),
    "value": table("a\n1\nx\n" + "2\n" * 200, "--odd-cells", "reject"),
    "label": images("cat/1.jpg", "dog/2.jpg", "3.jpg"),
    "map": given("jsonl", {"a.jsonl": '{"a": 1}\n{"a": 2}\n'}, "--map", "FUNCTION"),
}


def test_every_code_of_rejects_has_a_case() -> None:
    assert {*REJECTED} == {*get_args(RejectCode)}


@pytest.mark.parametrize("exchange", ["auto", "engine"])
@pytest.mark.parametrize("code", REJECTED)
def test_rejects_have_codes_in_all_reports(
    code: str, exchange: str, tmp_path: Path, out: Path
) -> None:
    arguments = REJECTED[code](tmp_path)
    function = tmp_path / "odd.py"
    function.write_text(
        "def some(rows):\n    if 2 in rows['a'].to_pylist():\n"
        "        raise ValueError('no')\n    return rows\n"
    )
    if code == "map":
        arguments[-1] = f"{function}:some"
    metrics = tmp_path / "m.prom"
    more = ("--max-rejects", 1, "--exchange", exchange, "--metrics-file", metrics)
    ran = recordmill("convert", *arguments, out, *more, "--json")
    assert ran.status == 0, ran.err
    assert [each["code"] for each in json.loads(ran.out)["reasons"]] == [code]
    assert re.search(rf'_by_code{{.*code="{code}"}} 1\n', metrics.read_text())
    found = json.loads(recordmill("rejects", out, "--json").out)
    assert [each["code"] for each in (*found["reasons"], *found["rows"])] == [code] * 2
