"""docs/jobs.md tells of all that is there: fields, series and events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from option_table import with_tables

from recordmill.beam_jobs.cli.main import run
from recordmill.schemas.input_summary import WarningCode
from recordmill.schemas.ranges import RejectCode

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "jobs.md").read_text()


@pytest.mark.parametrize("page", ["options.md", "jobs.md"])
def test_option_tables_are_up_to_date(page: str) -> None:
    """If not: python tests/helpers/option_table.py docs/*.md"""
    text = (DOCS / page).read_text()
    assert "<!-- option_table" in text
    assert with_tables(text) == text


def test_every_series_is_told(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1,2\n3\n")
    file = tmp_path / "m.prom"
    more = ["--max-rejects", "1", "--metrics-file", str(file)]
    assert run(["convert", "csv", str(source), str(tmp_path / "out"), *more]) == 0
    made = set(re.findall(r"^# TYPE (\w+)", file.read_text(), re.MULTILINE))
    page = (DOCS / "monitoring.md").read_text()
    assert set(re.findall(r"recordmill_\w+", page)) == made


def test_every_code_is_told() -> None:
    for head, codes in {
        "| code | what it warns of |": get_args(WarningCode),
        "| code | what is wrong |": (*get_args(RejectCode), "other"),
    }.items():
        table = TEXT.partition(head)[2].partition("\n\n")[0]
        assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == [*codes]


def test_every_event_is_told() -> None:
    code = Path(__file__).parents[2] / "beam_jobs"
    text = "".join(path.read_text() for path in code.rglob("*.py"))
    made = set(re.findall(r'event\(\s*f?"(\w+)[{"]', text)) - {"run_"}
    made |= set(re.findall(r'"(\w+_failed)"', text))
    report_options = TEXT[
        TEXT.index("- `--log-format") : TEXT.index("- `--metrics-file")
    ]
    told = set(re.findall(r"`([a-z]+_[a-z]+)`", report_options))
    handed_over = {"run_translated", "run_submitted"}
    assert told == made | {"run_done", "run_unchanged", "run_described"} | handed_over
