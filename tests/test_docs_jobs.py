"""docs/jobs.md shows only what is there: its commands run, its fields and series exist."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from job_tools import IRIS

from beam_jobs.cli import run
from schemas.job_file import JobFile

TEXT = (Path(__file__).parent.parent / "docs" / "jobs.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (yaml,) = blocks("yaml")
    Path("iris.yaml").write_text(yaml)
    Path("raw/2026-11-20").mkdir(parents=True)
    shutil.copy(IRIS, "raw/2026-11-20")
    (commands,) = blocks("sh")
    lines = commands.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert run(shlex.split(line)[1:]) == 0, line
    assert sorted(path.name for path in Path("sets/iris").iterdir()) == [
        "1.0.0",
        "1.0.1",
        "latest.json",
    ]


def test_every_field_is_told() -> None:
    table = TEXT[TEXT.index("## Fields") : TEXT.index("## Parameters")]
    first_cells = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    told = re.findall(r"`(\w+)`", " ".join(first_cells))
    names = {field.alias or name for name, field in JobFile.model_fields.items()}
    assert sorted(told) == sorted(names)


def test_every_series_is_told(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("a,b\n1,2\n3\n")
    file = tmp_path / "m.prom"
    more = ["--max-rejects", "1", "--metrics-file", str(file)]
    assert run(["convert", "csv", str(source), str(tmp_path / "out"), *more]) == 0
    made = set(re.findall(r"^# TYPE (\w+)", file.read_text(), re.MULTILINE))
    assert set(re.findall(r"recordmill_\w+", TEXT)) == made


def test_every_event_is_told(tmp_path: Path) -> None:
    code = Path(__file__).parent.parent / "beam_jobs"
    text = "".join((code / name).read_text() for name in ("logs.py", "execute.py"))
    names = set(re.findall(r'"(r\w+_(?:started|progress|failed|rejected))"', text))
    told = set(re.findall(r"`(r\w+s?_(?:\w+))`", TEXT[TEXT.index("## Accounts") :]))
    assert names | {"run_done", "run_unchanged"} == {
        name for name in told if not name.startswith("recordmill")
    }
