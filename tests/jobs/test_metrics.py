"""A run's accounts: metrics, log lines, live progress and the report page."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_tools import IRIS, command, convert, manifest_of, recordmill, shards_of
from store_servers import Place
from store_tools import options_of, to_store
from terminal import shown_on

from recordmill.beam_jobs.cli.main import run
from recordmill.beam_jobs.report.monitoring import MAX_REASONS, LogLines, count_reasons
from recordmill.schemas.errors import KINDS, OutputError
from recordmill.schemas.ranges import InputRange, Reject
from recordmill.transforms.storage import LocalStore
from recordmill.transforms.tasks import workspace as files
from recordmill.transforms.tasks.progress_reader import (
    TaskMonitor,
    read_live_counts,
    run_progress,
)
from recordmill.transforms.tasks.rejects import (
    count_kinds,
    first_reject_line,
    reason_kind,
)
from recordmill.transforms.tasks.workspace import LiveCounts, Workspace

_SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)')


def samples(file: Path) -> dict[tuple[str, ...], float]:
    """{(name, label values but the dataset...): value}, the format checked by the way."""
    found: dict[tuple[str, ...], float] = {}
    family = ""
    for line in file.read_text().splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            continue
        if line.startswith("# TYPE "):
            assert line == f"# TYPE {family} gauge"
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] == family
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2]))
        key = (match[1].removeprefix("recordmill_"), *list(labels.values())[1:])
        assert key not in found
        found[key] = float(match[3])
    return found


def test_metrics_of_a_run(tmp_path: Path) -> None:
    file, output = tmp_path / "iris.prom", tmp_path / "iris"
    options = ["--split", "train=0.8", "--split", "test=0.2", "--shards", "2"]
    before = time.time()
    convert("csv", IRIS, output, *options, "--metrics-file", file)
    found = samples(file)
    manifest = manifest_of(output)
    assert file.read_text().count('dataset="iris"') == len(found)
    assert found[("last_run_success",)] == 1
    assert found[("last_run_status", "done")] == 1
    assert before < found[("last_run_timestamp_seconds",)] < time.time()
    assert (
        found[("last_success_timestamp_seconds",)]
        == (found[("last_run_timestamp_seconds",)])
    )
    stages = {k[1]: v for k, v in found.items() if k[0] == "last_run_stage_seconds"}
    assert list(stages) == ["prepare", "read", "write", "publish"]
    assert min(stages.values()) >= 0
    assert stages["read"] > 0
    assert sum(stages.values()) == pytest.approx(
        found[("last_run_seconds",)], abs=0.5, rel=0.5
    )
    assert found[("dataset_info", "1.0.0", manifest["fingerprint"])] == 1
    assert (found[("rows_read",)], found[("rows_rejected",)]) == (150, 0)
    for name, split in manifest["splits"].items():
        sizes = [shard.stat().st_size for shard in shards_of(output, name)]
        assert found[("rows_written", name)] == split["records"]
        assert found[("bytes", name)] == sum(sizes)
        assert found[("shards", name)] == 2
        assert found[("shard_skew", name)] == max(sizes) / min(sizes)


def test_rejects_by_reason(tmp_path: Path) -> None:
    source, file = tmp_path / "in.csv", tmp_path / "m.prom"
    source.write_text("a,b\n1,2\n3\n4,5,6\n7\n8,9\n")
    options = ["--max-rejects", "3", "--metrics-file", file]
    convert("csv", source, tmp_path / "out", *options)
    expected = {
        ("rows_rejected",): 3,
        ("rows_rejected_by_reason", "expected # columns, found #"): 3,
        ("rows_read",): 5,
        ("rows_written", "train"): 2,
    }
    assert expected.items() <= samples(file).items()
    assert samples(file)[("last_run_rows_rejected",)] == 3
    convert("csv", source, tmp_path / "out", *options)
    found = samples(file)
    assert found[("last_run_status", "unchanged")] == 1
    assert found[("last_run_rows_rejected",)] == 0
    assert expected.items() <= found.items()


def test_rejects_of_an_appending_run(tmp_path: Path) -> None:
    """Those of the night, where the dataset has those of all nights."""
    folder, file = tmp_path / "in", tmp_path / "m.prom"
    folder.mkdir()
    options = ["--max-rejects", "9", "--append", "--metrics-file", file]
    for night, (rows, all_rejects, rejects) in enumerate(
        [("1\n2\n", 2, 2), ("3\n", 3, 1)]
    ):
        (folder / f"{night}.csv").write_text(f"a,b\n1,2\n{rows}")
        convert("csv", folder, tmp_path / "out", *options)
        assert samples(file)[("rows_rejected",)] == all_rejects
        assert samples(file)[("last_run_rows_rejected",)] == rejects


def test_rejects_by_reason_are_those_of_the_dataset(tmp_path: Path) -> None:
    """In a store, and where those of the replaced dataset are kept for its readers."""
    source, file = tmp_path / "in.csv", tmp_path / "m.prom"
    options = ["--max-rejects", "3", "--metrics-file", file]
    for output in (f"memory://metrics-{uuid4().hex}/out", tmp_path / "out"):
        source.write_text("a,b\n1,2\n3\n4,5,6\n")
        convert("csv", source, output, *options)
        source.write_text("a,b\n1,2\n3\n4,5\n")
        convert("csv", source, output, *options, "--overwrite")
        reason = ("rows_rejected_by_reason", "expected # columns, found #")
        assert samples(file)[reason] == 1


def test_metrics_of_a_failure(tmp_path: Path) -> None:
    """The last good run stays known, so that an alert can count the days."""
    source, file = tmp_path / "in.csv", tmp_path / "m.prom"
    options = ["--metrics-file", file]
    source.write_text("a,b\n1\n")
    assert recordmill("convert", "csv", source, tmp_path / "out", *options).status == 65
    found = samples(file)
    assert found[("last_run_success",)] == 0
    states = {key[1]: n for key, n in found.items() if key[0] == "last_run_status"}
    others = dict.fromkeys(["done", "unchanged", "described"], 0)
    assert states == others | {"failed": 1}
    failures = {key[1]: n for key, n in found.items() if key[0] == "last_run_failure"}
    assert failures == dict.fromkeys(KINDS, 0) | {"data": 1}
    assert ("last_success_timestamp_seconds",) not in found
    assert found[("last_run_stage_seconds", "read")] > 0
    convert("csv", IRIS, tmp_path / "iris", *options)
    good = samples(file)[("last_success_timestamp_seconds",)]
    no_input = recordmill("convert", "csv", tmp_path / "no", tmp_path / "o", *options)
    assert no_input.status == 65
    found = samples(file)
    assert found[("last_run_success",)] == 0
    assert found[("last_success_timestamp_seconds",)] == good
    assert ("rows_read",) not in found


def test_no_place_for_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before the run, not behind it."""
    monkeypatch.chdir(tmp_path)
    for file, message in {
        "no/m.prom": "no such folder",
        "gs://bucket/m.prom": "is not a local file",
    }.items():
        ran = recordmill("convert", "csv", IRIS, "out", "--metrics-file", file)
        assert ran.status == 2
        assert message in ran.err
        assert not Path("out").exists()


def test_metrics_that_cannot_be_written(tmp_path: Path) -> None:
    """The dataset is published, so the run succeeded; a warning tells the rest."""
    file = tmp_path / "m.prom"
    file.mkdir()
    ran = recordmill("convert", "csv", IRIS, tmp_path / "out", "--metrics-file", file)
    assert ran.status == 0
    assert f"Warning: {file}: cannot write the metrics: Is a directory" in ran.err
    assert "150 records" in ran.err  # the summary too
    assert (tmp_path / "out" / "manifest.json").exists()


BEGUN = ["input_understood", "run_started"]


def test_metrics_problems_are_in_the_log(tmp_path: Path) -> None:
    """Nothing but JSON on stderr, whatever goes wrong."""
    (tmp_path / "m.prom").mkdir()
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1\n")
    cases = [
        (IRIS, "m.prom", [*BEGUN, "metrics_failed", "run_done"]),
        (source, "m.prom", [*BEGUN, "metrics_failed", "run_failed"]),
        (IRIS, "no/m.prom", ["run_failed"]),
    ]
    for number, (inputs, file, events) in enumerate(cases):
        options = ["--log-format", "json", "--metrics-file", tmp_path / file]
        ran = recordmill("convert", "csv", inputs, tmp_path / str(number), *options)
        assert ran.status == (2 if "no/" in file else 65 if inputs == source else 0)
        found = [json.loads(line)["event"] for line in ran.err.splitlines()]
        assert found == events


def test_kinds_of_reasons() -> None:
    for reason, expected in {
        "expected 2 columns, found 3": "expected # columns, found #",
        "labels [12, 3] for label": "labels # for label",
        "never closed; it opens at line 7": "never closed; it opens at line #",
        "not UTF-8 at byte 17: b'\\xff\\'a'": "not UTF-# at byte #: #",
        "class 'it\\'s' is unknown": "class # is unknown",
        "-1.5e3 is below 0": "#e# is below #",
    }.items():
        assert reason_kind(reason) == expected.replace("UTF-#", reason_kind("UTF-8"))


def test_rare_reasons_are_one() -> None:
    words = [chr(97 + n) * 3 for n in range(MAX_REASONS + 5)]
    rows = [word for n, word in enumerate(words) for _ in range(100 - n)]
    rejects = (Reject("x", 0, word, b"") for word in rows)
    counts = count_reasons(count_kinds(rejects))
    assert sum(counts.values()) == len(rows)
    assert list(counts.items())[:2] == [("aaa", 100), ("bbb", 99)]
    assert len(counts) == MAX_REASONS + 1
    assert counts["other"] == sum(100 - n for n in range(MAX_REASONS, len(words)))


# --- log lines ---


def test_json_log_is_all_on_stderr(tmp_path: Path) -> None:
    ran = command("convert", "csv", IRIS, tmp_path / "iris", "--log-format", "json")
    assert (ran.status, ran.out) == (0, "")
    _, begun, done = (json.loads(line) for line in ran.err.splitlines())
    assert (begun["event"], begun["level"]) == ("run_started", "info")
    assert (begun["dataset"], begun["ranges"]) == ("iris", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", begun["time"])
    assert (done["event"], done["records"], done["shards"]) == ("run_done", 150, 1)
    assert list(done["stages"]) == ["prepare", "read", "write", "publish"]
    job = ("convert", "csv", IRIS, tmp_path / "iris", "--log-format", "json")
    again = recordmill(*job, "--json")
    assert json.loads(again.err)["event"] == "run_unchanged"
    assert json.loads(again.out)["status"] == "unchanged"


def test_failure_in_the_log(tmp_path: Path) -> None:
    """One line, and nothing that is no JSON beside it."""
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1\n")
    options = ["--log-format", "json"]
    ran = command("convert", "csv", source, tmp_path / "out", *options)
    assert (ran.status, ran.out) == (65, "")
    *_, failed = (json.loads(line) for line in ran.err.splitlines())
    assert (failed["event"], failed["level"]) == ("run_failed", "error")
    assert failed["message"].startswith("1 of 1 row rejected (limit 0)")
    elsewhere = ["--scratch", "gs://bucket/scratch"]
    wrong = recordmill("convert", "csv", source, tmp_path / "b", *elsewhere, *options)
    assert wrong.status == 2
    assert json.loads(wrong.err)["kind"] == "usage"


def test_rejects_are_a_warning(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1,2\n3\n")
    options = ["--max-rejects", "1", "--log-format", "text"]
    ran = convert("csv", source, tmp_path / "out", *options)
    lines = ran.err.splitlines()
    assert [line.split()[1:3] for line in lines] == [
        ["INFO", "input_understood"],
        ["INFO", "run_started"],
        ["WARNING", "rows_rejected"],
        ["INFO", "run_done"],
    ]
    assert f"rows=1 kept={tmp_path}/out/rejects" in lines[2]


@given(st.dictionaries(st.from_regex(r"x[a-z]*", fullmatch=True), st.text()))
def test_an_event_is_one_line(facts: dict[str, str]) -> None:
    for form in ("json", "text"):
        stream = io.StringIO()
        LogLines(form, stream).write_event("thing", **facts)  # type: ignore[arg-type]
        text = stream.getvalue()
        assert text.endswith("\n")
        assert len(text.splitlines()) == 1
        if form == "json":
            assert facts.items() <= json.loads(text).items()


ROWS = 300


def refused(*_: object) -> NoReturn:
    raise OutputError("the run ends here, and leaves what it had")


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_counts_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: str
) -> None:
    """The last counts of tasks at work are those of their checkpoints."""
    table = tmp_path / "in.csv"
    with table.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["id", "name"])
        lines.writerows([at, f"n{at}"] for at in range(ROWS))
        lines.writerow(["too", "many", "cells"])
    monkeypatch.setattr("recordmill.beam_jobs.pipelines.convert.stage", refused)
    monkeypatch.setattr(files, "SECONDS_BETWEEN_NOTES", 0.0)
    monkeypatch.setattr(LiveCounts, "close", lambda _: None)
    output = tmp_path / "out"
    job = ["convert", "csv", table, output, "--max-rejects", "1"]
    assert recordmill(*job, "--exchange", exchange).status == 1
    [folder] = output.glob(".recordmill/[0-9a-f]*")
    workspace = Workspace.for_run(LocalStore(str(output)), folder.name)

    line = first_reject_line(workspace)
    assert line.startswith("rejected: in.csv byte ")
    assert "expected 2 columns, found 3 (all so far: recordmill rejects " in line
    shown = shlex.split(line.partition(" (all so far: ")[2].rstrip(")"))
    assert "expected 2 columns, found 3" in recordmill(*shown[1:]).out

    live = read_live_counts(workspace)
    readings = 2 if exchange == "engine" else 1
    ranges = [counts for name, counts in live.items() if name.startswith("range-")]
    [shard] = [counts for name, counts in live.items() if name.startswith("shard-")]
    assert [(c.rows, c.rejected) for c in ranges] == [(ROWS + 1, 1)] * readings
    size = table.stat().st_size
    assert all(0.9 * size < counts.positions <= size for counts in ranges)
    assert shard.rows == ROWS

    finished = TaskMonitor(workspace)
    finished.poll(at_once=True)
    whole = InputRange(0, "in.csv", str(table), 0, size, 0, size)
    position = run_progress(finished, [whole], readings)
    assert position.num_read_ranges == readings
    assert position.read_counts.positions == size * readings
    assert (position.read_counts.rows, position.read_counts.rejected) == (ROWS + 1, 1)
    assert position.plan_totals is not None
    assert (position.num_written_shards, position.plan_totals.shards) == (1, 1)
    assert position.written_counts.rows == position.plan_totals.records == ROWS
    assert position.written_counts.bytes == position.plan_totals.bytes == shard.bytes


@pytest.mark.parametrize("command", ["verify", "plan"])
def test_commands_without_a_pipeline(tmp_path: Path, command: str) -> None:
    """On a terminal they show what they do; stdout has the result alone."""
    output = tmp_path / "out"
    convert("csv", IRIS, output)
    arguments = ["verify", output]
    if command == "plan":
        arguments = ["convert", "csv", IRIS, tmp_path / "other", "--plan"]
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(terminal):
            assert run([str(argument) for argument in arguments]) == 0
    shown = shown_on(ours)
    os.close(ours)
    assert f"{command}: " in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "\x1b" not in out.getvalue()


def test_a_page_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, iris: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = recordmill("report", iris)
    assert ran.status == 0, ran.err
    assert ran.out.startswith("report.html: ")
    first = (tmp_path / "report.html").read_bytes()
    assert b"<h1>iris 1.0.0</h1>" in first
    assert recordmill("report", iris).status == 0  # it may be replaced
    assert (tmp_path / "report.html").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_json(tmp_path: Path, iris: Path) -> None:
    ran = recordmill("report", iris, "--output", tmp_path / "page.html", "--json")
    assert json.loads(ran.out) == {
        "file": str(tmp_path / "page.html"),
        "bytes": (tmp_path / "page.html").stat().st_size,
    }
    assert ran.err == ""


@pytest.mark.parametrize("remedy", ["another", "remove"])
def test_no_other_file_is_replaced(tmp_path: Path, iris: Path, remedy: str) -> None:
    page = tmp_path / "index.html"
    page.write_text("<html>mine</html>")
    ran = recordmill("report", iris, "-o", page)
    assert ran.status == 2
    assert f"{page}: already exists" in ran.err
    assert "Choose another file with -o, or remove it" in ran.err
    assert page.read_text() == "<html>mine</html>"
    if remedy == "remove":
        page.unlink()
    else:
        page = tmp_path / "other.html"
    assert recordmill("report", iris, "-o", page).status == 0


def test_places_that_no_page_can_have(tmp_path: Path, iris: Path) -> None:
    ran = recordmill("report", iris, "-o", tmp_path / "none" / "page.html")
    assert ran.status == 2
    assert f"no such folder: '{tmp_path / 'none'}'" in ran.err
    ran = recordmill("report", iris, "-o", "s3://bucket/page.html")
    assert ran.status == 2
    assert "is a URL; expected a local file" in ran.err
    assert recordmill("report", iris, "-o", tmp_path).status == 2


def test_what_is_no_dataset_and_a_damaged_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ran = recordmill("report", tmp_path, "-o", page)
    assert ran.status == 65
    assert "no manifest.json" in ran.err
    convert("csv", IRIS, tmp_path / "iris")
    (shard,) = shards_of(tmp_path / "iris")
    data = bytearray(shard.read_bytes())
    data[-10] ^= 1
    shard.write_bytes(data)
    ran = recordmill("report", tmp_path / "iris", "-o", page)
    assert ran.status == 1
    assert shard.name in ran.err
    assert not page.exists()


def test_the_code_on_the_page_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from recordmill.beam_jobs.report.page import build_loading_snippets
    from recordmill.transforms.dataset.files import class_names, read_manifest
    from recordmill.transforms.storage import open_store

    snippets_of = {"none": 3, "gzip": 2, "array_record": 2}
    for kind, expected in snippets_of.items():
        folder = tmp_path / f'it\'s "{kind}"'
        option = "--container" if kind == "array_record" else "--compression"
        options = ["--name", "iris", option, kind]
        convert("csv", IRIS, folder, *options)
        store = open_store(str(folder))
        manifest = read_manifest(store)
        names = class_names(store, manifest)
        first, *others = build_loading_snippets(manifest, names, str(folder)).items()
        exec(compile(first[1], "page", "exec"), {})
        assert "species" in capsys.readouterr().out
        for snippet in others:  # that of tf.data runs in the tests of inspect
            compile(snippet[1], snippet[0], "exec")
        assert len(others) == expected - 1
        ran = recordmill("report", folder, "-o", tmp_path / "page.html")
        assert ran.status == 0, ran.err


@pytest.mark.parametrize("store_place", ["s3"], indirect=True)
@pytest.mark.usefixtures("cache")
def test_a_dataset_in_a_store(store_place: Place, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("a,b\n1,x\n2,y\n3\n4,z\n")
    job = ["--shards", 2, "--max-rejects", 1, "--name", "rows"]
    assert to_store(store_place, "csv", rows, job).status == 0
    page = tmp_path / "page.html"
    reach = options_of(store_place.options)
    root = ("--input-root", tmp_path)
    ran = recordmill("report", store_place.root, "-o", page, *root, *reach)
    assert ran.status == 0, ran.err
    assert store_place.root in page.read_text()
    assert "rows.csv line 4" in page.read_text()
