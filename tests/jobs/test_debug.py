"""`--debug` shows where an error comes from; without it, it is told in plain words."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import Argument, recordmill


@pytest.mark.parametrize(
    ("arguments", "origin"),
    [
        (["verify", "no/such"], "read_manifest"),
        (["convert", "csv", "rows.csv", "out"], "RejectLimitError"),
        (["convert", "csv", "rows.csv", "out", "--log-format", "text"], "RejectLimit"),
    ],
)
def test_debug(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[Argument],
    origin: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("a,b\n1\n")
    plain = recordmill(*arguments)
    shown = recordmill(*arguments, "--debug")
    assert shown.status == plain.status
    assert "Traceback" not in plain.err
    assert "Traceback" in shown.err
    assert origin in shown.err
    # The last lines are those that people read.
    if "--log-format" not in arguments:
        assert shown.err.endswith(plain.err[plain.err.index("Error: ") :])
