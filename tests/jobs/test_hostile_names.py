"""Names with control characters, line ends and bidi marks neither steer nor forge lines."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from job_tools import SAMPLES, Ran, recordmill

from recordmill.beam_jobs.report.progress import Bars, PlainLines, View
from recordmill.beam_jobs.report.terminal import make_console
from recordmill.schemas.input_summary import InputReport, InputWarning
from recordmill.schemas.schema_file import load_schema
from recordmill.schemas.text import (
    escape_json,
    escape_lines,
    escape_message,
    escape_unprintable,
)
from recordmill.schemas.yaml_lines import write_yaml

FORGED = "warning: forged"
# Clears the screen, rings, forges a line, turns the direction, colours (C1), links
# (OSC 8), has no width. All of it can be a file's name.
HOSTILE = (
    f"a\x1b[2J\x07\n{FORGED}\u202e\x9b31m\x1b]8;;x:y\x07\u200b\u2066\u061c\x85"
    "\u2028\N{LANGUAGE TAG}z"
)
TABLE = f"{HOSTILE}-in/{HOSTILE}.csv"
NUL = f"{HOSTILE}\0"


def assert_shown(text: str) -> None:
    """Fails if text steers a terminal, or has a line that a name forged."""
    odd = {c for c in text if not (c.isprintable() or c == "\n")}
    assert odd == set(), text
    forged = [line for line in text.split("\n") if line.lstrip().startswith(FORGED)]
    assert forged == []


@pytest.mark.parametrize("name", [HOSTILE, NUL, "\ud800", "\x7f", "e\u0301 日本 😀"])
def test_escapes_decode_to_the_same_text(name: str) -> None:
    for shown in (escape_unprintable(name), escape_lines(name), escape_message(name)):
        assert all(c.isprintable() or c == "\n" for c in shown)
    for text in (
        json.dumps({name: name}, ensure_ascii=False),
        json.dumps({name: name}),
    ):
        escaped = escape_json(text)
        assert escaped.isprintable()
        assert json.loads(escaped) == {name: name}


def test_what_can_be_read_stays() -> None:
    for text in ("e\u0301", "日本", "שלום", "مرحبا", "😀", "naïve"):
        assert escape_unprintable(text) == escape_json(text) == text
    message = escape_message("one:\n  two\nThree\nfour: five")
    assert message == "one:\n  two\n  Three\\nfour: five"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table whose names and cells are hostile, and a schema for it."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / TABLE).parent.mkdir()
    with (folder / TABLE).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["x", HOSTILE, "label"])
        rows.writerows(
            [i, f"{HOSTILE}{i}", HOSTILE if i % 2 else "b"] for i in range(6)
        )
        rows.writerow([NUL, "1", "b"])  # a reject
        rows.writerow([7, NUL, "no class \x1b[2J"])  # another one
    features = {
        "x": "int64",
        HOSTILE: "string",
        "label": {"dtype": "int64", "classes": ["b", HOSTILE]},
    }
    (folder / "schema.yaml").write_text(write_yaml({"features": features}, flow=False))
    return folder


def convert_words(folder: Path, output: str) -> list[str | Path]:
    table = folder / TABLE
    options = ("--schema", folder / "schema.yaml", "--max-rejects", "2")
    return ["convert", "csv", table, folder / output, *options]


@pytest.fixture(scope="module")
def converted(folder: Path) -> Ran:
    return recordmill(*convert_words(folder, HOSTILE))


@pytest.fixture(scope="module")
def dataset(folder: Path, converted: Ran) -> Path:
    assert converted.status == 0, converted.err
    return folder / HOSTILE


def test_the_summary_shows_names_as_they_are(converted: Ran) -> None:
    assert_shown(converted.out + converted.err)
    assert escape_unprintable(HOSTILE) in converted.err
    assert "rejected" in converted.err


@pytest.mark.parametrize("form", ["--plan", "--plan --json", "--json"])
def test_plan_and_json_of_a_run(folder: Path, form: str) -> None:
    ran = recordmill(*convert_words(folder, f"{HOSTILE}-2"), *form.split())
    assert ran.status == 0, ran.err
    assert_shown(ran.out + ran.err)
    if "--json" in form:
        assert json.loads(ran.out)["output"] == str(folder / f"{HOSTILE}-2")


@pytest.mark.parametrize("form", ["json", "text"])
def test_log_lines(folder: Path, form: str) -> None:
    words = convert_words(folder, f"{HOSTILE}-{form}\x7f")
    ran = recordmill(*words, "--log-format", form, "--name", "logged")
    assert ran.status == 0, ran.err
    assert_shown(ran.out + ran.err)
    again = recordmill(*words, "--log-format", form, "--seed", 1)
    assert again.status == 73
    assert_shown(again.out + again.err)
    if form == "json":
        events = [json.loads(line) for line in (ran.err + again.err).splitlines()]
        assert events[-1]["message"].startswith(str(words[3]))


# What a command on a dataset shows, and the names that its JSON has to decode to.
COMMANDS = [
    ("inspect DATASET", ()),
    ("inspect DATASET --json", (HOSTILE, f"{HOSTILE}1")),
    ("inspect DATASET --tf", ()),
    ("inspect DATASET --tf --json", ()),
    ("inspect DATASET --where DATASET=DATASET", ()),
    ("rejects DATASET", ()),
    ("rejects DATASET --json", (f"{HOSTILE}.csv",)),
    ("verify DATASET", ()),
    ("verify DATASET --json", ()),
    ("diff DATASET DATASET", ()),
    ("diff DATASET DATASET --json", ()),
    ("clean DATASET", ()),
    ("clean DATASET --dry-run --json", ()),
    ("index DATASET", ()),
    ("index DATASET --json", ()),
    ("export tfds DATASET DATASET-tfds", ()),
    ("report DATASET -o DATASET.html", ()),
    ("report DATASET -o DATASET.html --json", (f"{HOSTILE}.html",)),
    ("schema infer csv TABLE", ()),
    ("schema infer csv TABLE --json", (HOSTILE,)),
    ("schema check DATASET", ()),
    ("convert csv DATASET DATASET", ()),
    ("convert csv DATASET/missing out", ()),
    ("convert DATASET out", ()),
    ("convert csv TABLE out --label DATASET --json", ()),
    ("convert csv TABLE out --split-column label", ()),
    ("convert csv TABLE out --name DATASET", ()),
    ("convert csv TABLE out --split DATASET=1", ()),
    ("convert csv TABLE out --map DATASET.py:f", ()),
    ("convert csv TABLE out --DATASET", ()),
    ("convert csv TABLE out --grace DATASET", ()),
    ("convert csv TABLE out --seed DATASET --json", ()),
    ("run DATASET", ()),
    ("DATASET", ()),
]


def texts_in(value: object) -> Iterator[str]:
    """Yields every text in decoded JSON, keys too."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize(
    ("line", "names"), COMMANDS, ids=[line for line, _ in COMMANDS]
)
def test_a_command_shows_names_as_they_are(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, line: str, names: tuple[str, ...]
) -> None:
    monkeypatch.chdir(dataset.parent)
    places = {"DATASET": HOSTILE, "TABLE": TABLE}
    words = [
        re.sub("DATASET|TABLE", lambda found: places[found[0]], word)
        for word in shlex.split(line)
    ]
    ran = recordmill(*words)
    assert_shown(ran.out + ran.err)
    assert ran.out + ran.err
    if "--json" in line:
        assert set(names) <= {*texts_in(json.loads(ran.out))}


def test_the_page_shows_names_as_they_are(dataset: Path, tmp_path: Path) -> None:
    ran = recordmill("report", dataset, "-o", tmp_path / "page.html")
    assert ran.status == 0, ran.err
    page = (tmp_path / "page.html").read_text()
    assert_shown(page)
    assert "\\x1b[2J\\x07\\n" in page


def test_a_damaged_dataset_with_hostile_names(dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / HOSTILE
    shutil.copytree(dataset, copy)
    (copy / f"{HOSTILE}.tfrecord-00000-of-00001").write_bytes(b"")
    shard = next(copy.glob("*train*tfrecord-*"))
    shard.write_bytes(shard.read_bytes()[:-1])
    manifest = (copy / "manifest.json").read_text()
    for form in ((), ("--json",)):
        ran = recordmill("verify", copy, *form)
        assert ran.status == 1
        assert_shown(ran.out + ran.err)
    odd = json.dumps(HOSTILE)[1:-1]
    (copy / "manifest.json").write_text(manifest.replace('"label"', f'"{odd}l"'))
    for command in ("inspect", "verify", "diff"):
        others = [dataset] if command == "diff" else []
        ran = recordmill(command, copy, *others)
        assert_shown(ran.out + ran.err)


def test_a_schema_that_was_inferred_has_the_same_names(
    dataset: Path, tmp_path: Path
) -> None:
    table = dataset.parent / TABLE
    ran = recordmill("schema", "infer", "csv", table, "-o", tmp_path / "new.yaml")
    assert ran.status == 0, ran.err
    text = (tmp_path / "new.yaml").read_bytes()
    assert_shown(text.decode())
    assert HOSTILE in load_schema(text, "new.yaml").features


def test_folders_of_images_with_hostile_names(tmp_path: Path) -> None:
    images = tmp_path / "images"
    for number, path in enumerate(sorted((SAMPLES / "images").rglob("*.jpg"))):
        target = images / f"{HOSTILE}{number % 2}" / f"{HOSTILE}{number}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (images / f"{HOSTILE}0" / f"{HOSTILE}.jpg").write_bytes(b"\x1b[2J")
    words = ["images", images, tmp_path / HOSTILE, "--max-rejects", 1]
    for form in (["--plan"], [], ["--overwrite", "--seed", 1, "--strict"]):
        ran = recordmill("convert", *words, *form)
        assert_shown(ran.out + ran.err)
    ran = recordmill("inspect", tmp_path / HOSTILE, "--json")
    assert_shown(ran.out)


class Terminal(StringIO):
    """A terminal that keeps what was written."""

    def isatty(self) -> bool:
        return True


def assert_shown_on_a_terminal(text: str) -> None:
    """Fails if there is a control sequence that bars do not write."""
    assert not re.search(r"\x1b\[2J|\x1b\]|[\x07\x7f-\x9f\u202e\u2066\u200b]", text)
    assert_shown(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", text))


def test_bars_show_names_as_they_are() -> None:
    terminal = Terminal()
    bars = Bars(make_console(terminal))
    bars.first_reject = f"rejected: {HOSTILE}"
    with bars:
        bars.show_activity("read", HOSTILE)
        warning = InputWarning("no-class", HOSTILE)
        bars.report_input(InputReport((("label", HOSTILE),), (warning,)))
        bars.refresh()
    text = terminal.getvalue()
    assert "\x1b[2K" in text  # its own sequences
    assert_shown_on_a_terminal(text)
    assert escape_unprintable(FORGED) in text


def test_plain_lines_show_names_as_they_are() -> None:
    stream = StringIO()
    lines = PlainLines(stream, clock=iter(range(0, 10_000, 100)).__next__)
    lines.first_reject = f"rejected: {HOSTILE}"
    lines.set_view(View("read", HOSTILE))
    lines.write()
    lines.report_input(InputReport((), (InputWarning("no-class", HOSTILE),)))
    assert_shown(stream.getvalue())
    assert stream.getvalue().count(escape_unprintable(HOSTILE)) == 3
