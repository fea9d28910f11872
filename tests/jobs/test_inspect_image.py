"""`recordmill inspect --image` draws pictures, and `--counts` counts classes."""

from __future__ import annotations

import base64
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_tools import convert, recordmill
from PIL import Image
from small_dataset import PICTURES, write_dataset

from recordmill.beam_jobs.report.dataset_report import show_inspect
from recordmill.schemas.errors import UsageError
from recordmill.schemas.feature_spec import FeatureSpec, Kind
from recordmill.schemas.manifest import Manifest
from recordmill.transforms.dataset import count_classes as counting
from recordmill.transforms.dataset import reader

CELL = re.compile(r"\x1b\[38;2;(\d+);(\d+);(\d+)(?:;48;2;(\d+);(\d+);(\d+))?m▀\x1b\[0m")
TEXT = FeatureSpec("text", Kind.BYTES, dtype="string")
ENVIRONMENT = ("TMUX", "TERM_PROGRAM", "LC_TERMINAL", "COLORTERM", "NO_COLOR")


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (*ENVIRONMENT, "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    write_dataset(tmp_path / "zoo")
    return tmp_path / "zoo"


def drawn(dataset: Path, first: int) -> str:
    stream = Terminal()
    show_inspect(str(dataset), num_examples=1, first=first, image=True, stream=stream)
    return stream.getvalue()


def test_half_blocks_are_the_pixels(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    text = drawn(dataset, 4)  # PNG of red, green and blue, without transparency
    cells = [
        [int(part or -1) for part in cell.groups()] for cell in CELL.finditer(text)
    ]
    picture = np.array([cell for cell in cells if cell[3] >= 0][:24]).reshape(
        4, 6, 2, 3
    )
    shown = picture.transpose(0, 2, 1, 3).reshape(8, 6, 3)
    assert (shown == np.asarray(Image.open(io.BytesIO(PICTURES[4])))).all()


def test_terminals_with_256_colours(dataset: Path) -> None:
    text = drawn(dataset, 4)
    assert "38;2;" not in text
    assert text.count("▀") == 24 + 3  # and the array of 2 x 3
    assert "\x1b[38;5;" in text


def test_a_terminal_with_a_protocol(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-kitty")
    text = drawn(dataset, 0)
    assert text.count("\x1b_Ga=T,") == 2
    assert "▀" not in text


def test_where_nothing_can_be_drawn(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file, a pipe and a terminal without colours."""
    ran = recordmill("inspect", dataset, "--image")
    assert (ran.status, "▀" in ran.out, "\x1b" in ran.out) == (0, False, False)
    assert ran.out == recordmill("inspect", dataset).out
    assert ran.err.startswith(
        "--image draws in a terminal with colours, and the output"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    assert "▀" not in drawn(dataset, 0)


def test_json_has_small_pictures(dataset: Path) -> None:
    ran = recordmill("inspect", dataset, "--image", "--json", "--index", 4)
    assert (ran.status, ran.err) == (0, "")
    (example,) = json.loads(ran.out)["examples"]
    (picture,) = example["pictures"]["image/encoded"]
    assert (picture["height"], picture["width"]) == (8, 6)
    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["png"]))))
    assert (shown == np.asarray(Image.open(io.BytesIO(PICTURES[4])))).all()
    assert (
        "pictures"
        not in json.loads(recordmill("inspect", dataset, "--json").out)["examples"][0]
    )


def test_a_dataset_without_pictures(dataset: Path) -> None:
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    manifest["features"] = [f for f in manifest["features"] if f["name"] == "count"]
    (dataset / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match="shows pictures, and no feature holds any"):
        drawn(dataset, 0)


def test_classes_are_counted(dataset: Path) -> None:
    """Of labels all classes; of texts, if there are few different ones."""
    classes = json.loads(recordmill("inspect", dataset, "--json").out)["classes"]
    assert classes["image/class/label"] == {
        "train": {"cat": 4, "dog [red]": 3},
        "test": {"cat": 1, "dog [red]": 1},
    }
    assert classes["sure"] == {
        "train": {"false": 4, "true": 3},
        "test": {"false": 1, "true": 1},
    }
    assert classes["note"] == {"train": {"ok": 3}, "test": {"ok": 1}}
    # Not "text": each is there once.
    assert set(classes) == {"image/class/label", "sure", "note"}
    shown = recordmill("inspect", dataset).out
    assert re.search(r"dog \[red\] +3 +1 +4\b", shown)


def test_large_datasets_are_counted_if_asked(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting.counts_if_small, "__defaults__", (100,))
    monkeypatch.setattr(counting, "MAX_TEXTS", 3)
    assert json.loads(recordmill("inspect", dataset, "--json").out)["classes"] is None
    assert "--counts reads the whole dataset" in recordmill("inspect", dataset).out
    facts = json.loads(recordmill("inspect", dataset, "--json", "--counts").out)
    assert set(facts["classes"]) == {"image/class/label", "sure", "note"}


def test_counting_takes_little_memory(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that turns out to be no label is given up with the window that shows it."""
    wanted: list[set[str]] = []
    columns = counting._columns

    def noted(records: Any, manifest: Manifest, names: list[str]) -> Any:
        wanted.append(set(names))
        return columns(records, manifest, names)

    monkeypatch.setattr(counting, "_columns", noted)
    monkeypatch.setattr(counting, "MAX_TEXTS", 2)
    monkeypatch.setattr(reader, "WINDOW_RECORDS", 1)
    monkeypatch.setattr(counting, "MAX_TEXT_FEATURES", 3)
    recordmill("inspect", dataset, "--counts")
    label = {"image/class/label"}
    assert wanted[0] == label | {"sure", "text", "note"}
    assert wanted[3:] == [label | {"sure", "note"}] * 6
    monkeypatch.setattr(counting, "counted_features", lambda _: [TEXT])
    monkeypatch.setattr(counting, "MAX_TEXTS", 1)
    del wanted[:]
    assert recordmill("inspect", dataset, "--counts").status == 0
    assert wanted == [{"text"}] * 2, "there is nothing to count any more"
    monkeypatch.undo()
    monkeypatch.setattr(counting, "_columns", noted)
    del wanted[:]
    monkeypatch.setattr(reader, "WINDOW_RECORDS", 1)
    monkeypatch.setattr(counting, "MAX_TEXT_FEATURES", 2)
    recordmill("inspect", dataset, "--counts")
    assert wanted == [label] * 9


def test_a_damaged_dataset_is_shown_without_counts(dataset: Path) -> None:
    manifest = Manifest.from_bytes((dataset / "manifest.json").read_bytes(), "")
    shard = dataset / manifest.splits["test"].shards[0].file
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert json.loads(recordmill("inspect", dataset, "--json").out)["classes"] is None
    assert recordmill("inspect", dataset, "--counts").status == 1


def test_the_lines_of_the_end_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder whose name a shell would cut in two, and Python would not take."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("kind,size\n" + "cat,1\ndog,2\n" * 5)
    ran = convert(
        "csv", "rows.csv", "it's here/my rows", "--split", "a=0.5", "--split", "b=0.5"
    )
    lines = ran.err.splitlines()
    assert any(line.startswith("  time: prepare ") for line in lines)
    assert "  classes of kind: cat 5, dog 5" in lines
    typed = [line.partition(": ")[2] for line in lines if ": recordmill " in line]
    commands = [line.split()[1] for line in typed]
    assert commands == ["inspect", "report", "inspect"]
    for line in typed:
        words = line.partition(" > ")[0]
        shown = recordmill(*shlex.split(words)[1:])
        assert shown.status == 0, shown.err
    code = "\n".join(line[4:] for line in lines if line.startswith("    "))
    rows: list[object] = []
    exec(code, {"print": rows.append})
    assert 0 < len(rows) < 10


def test_names_that_come_once_are_no_classes(tmp_path: Path) -> None:
    table = tmp_path / "people.csv"
    table.write_text("name,kind\nAnna,cat\nBen,dog\nCleo,cat\nDan,cat\n")
    ran = convert("csv", table, tmp_path / "out")
    assert [line for line in ran.err.splitlines() if "classes of" in line] == [
        "  classes of kind: cat 3, dog 1"
    ]


def test_pictures_of_the_examples_that_are_selected(dataset: Path) -> None:
    options = ["--split", "train", "--where", "sure=true", "--head", 2]
    ran = recordmill("inspect", dataset, "--image", "--json", *options)
    examples = json.loads(ran.out)["examples"]
    pngs = [example["pictures"]["image/encoded"][0]["png"] for example in examples]
    shown = [np.asarray(Image.open(io.BytesIO(base64.b64decode(png)))) for png in pngs]
    gray = np.asarray(Image.open(io.BytesIO(PICTURES[3])).convert("RGB"))
    assert len(shown) == 2
    assert (shown[1] == gray).all()
