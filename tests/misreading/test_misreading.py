"""Tables with a known truth are read right or not at all; README.md has the figures."""

from __future__ import annotations

from pathlib import Path

import measure_formats
import measure_json_lines
import misread_tables
import pytest
from measure_misreading import read_by_command, read_by_plan

pytestmark = pytest.mark.usefixtures("without_beam")


@pytest.mark.parametrize("first", range(7_000_000, 7_000_120, 20))
def test_nothing_is_misread_in_silence(tmp_path: Path, first: int) -> None:
    found = {}
    for number in range(first, first + 20):
        table = misread_tables.make_table(number)
        if not table.is_undecidable:
            found[number] = read_by_plan(table, tmp_path / "table.csv")
    bad = {n: why for n, (how, why) in found.items() if how in ("wrong", "refused")}
    assert not bad


def test_the_command_reads_the_same(tmp_path: Path) -> None:
    for number in range(7_000_200, 7_000_206):
        table = misread_tables.make_table(number)
        planned, _ = read_by_plan(table, tmp_path / "table.csv")
        ran, why = read_by_command(table, tmp_path / "table.csv")
        assert ran == planned.replace("led", "asked"), why


@pytest.mark.parametrize("command", measure_formats.COMMANDS)
def test_nothing_of_another_format_is_read(tmp_path: Path, command: str) -> None:
    found = {}
    for kind, (own, ending, _) in measure_formats.KINDS.items():
        folder = tmp_path / kind.replace(" ", "-")
        name = f"a.{ending}"
        found[kind], _ = measure_formats.convert(kind, command, 7, name, folder)
        assert (found[kind] == "read") == (own == command), kind
    assert not {"told", "wrong"} & {*found.values()}, found


def test_types_of_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    for number in range(7_000_000, 7_000_040):
        table = misread_tables.make_table(number)
        path.write_bytes(measure_json_lines.json_lines(table))
        is_odd = any(column.odd for column in table.columns)
        outcome, why = measure_json_lines.read(table, path)
        assert outcome == ("asked" if is_odd else "right"), why
