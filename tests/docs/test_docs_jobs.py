"""docs/jobs.md tells of all that is there: fields, series and events."""

from __future__ import annotations

import re
from pathlib import Path

from recordmill.beam_jobs.cli.main import run
from recordmill.schemas.job.job_file import JobFile
from recordmill.transforms.sources.registry import BUILT_IN

TEXT = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()


def test_every_field_is_told() -> None:
    table = TEXT[TEXT.index("## Fields") : TEXT.index("## Parameters")]
    first_cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    told = re.findall(r"`(\w+)`", " ".join(first_cells))
    names = {field.alias or name for name, field in JobFile.model_fields.items()}
    assert sorted(told) == sorted([*names, *BUILT_IN])


def test_every_series_is_told(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1,2\n3\n")
    file = tmp_path / "m.prom"
    more = ["--max-rejects", "1", "--metrics-file", str(file)]
    assert run(["convert", "csv", str(source), str(tmp_path / "out"), *more]) == 0
    made = set(re.findall(r"^# TYPE (\w+)", file.read_text(), re.MULTILINE))
    assert set(re.findall(r"recordmill_\w+", TEXT)) == made


def test_every_event_is_told() -> None:
    code = Path(__file__).parents[2] / "beam_jobs"
    text = "".join(path.read_text() for path in code.rglob("*.py"))
    made = set(re.findall(r'event\(\s*f?"(\w+)[{"]', text)) - {"run_"}
    report_options = TEXT[
        TEXT.index("- `--log-format") : TEXT.index("- `--metrics-file")
    ]
    told = set(re.findall(r"`([a-z]+_[a-z]+)`", report_options))
    handed_over = {"run_translated", "run_submitted"}
    assert told == made | {"run_done", "run_unchanged"} | handed_over
