"""JSON Lines by the command: rejects with their line, schema files, both exchanges."""

from __future__ import annotations

from pathlib import Path

from job_tools import Argument, convert, recordmill

from recordmill import open_dataset


def test_bad_lines_cost_themselves_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "l": [1]}\nnull\n{"a": 2, "l": [null]}\n{"a": 3}\n')
    job: list[Argument] = [path, tmp_path / "out", "--no-shuffle", "--max-rejects", 2]
    ran = convert("jsonl", *job)
    rows = open_dataset(str(tmp_path / "out"), "train")
    assert [int(row["a"]) for row in rows] == [1, 3]
    assert "a.jsonl line 2" in ran.err
    ran = recordmill("convert", "jsonl", path, tmp_path / "none")
    assert ran.status != 0
    assert "expected a JSON object, found None" in ran.err


def test_a_schema_takes_what_rejects_ask_for(tmp_path: Path) -> None:
    """The keys to use, where others come; what can be no feature is left out."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1, "o": [{"x": 1}]}\n{"a": 2.5, "b": "new"}\n')
    ran = recordmill("convert", "jsonl", path, tmp_path / "out")
    assert "'o': lists of objects" in ran.err
    assert "(--schema)" in ran.err
    (tmp_path / "s.yaml").write_text("features:\n  a: float32\n")
    job = [path, tmp_path / "out", "--no-shuffle", "--schema", tmp_path / "s.yaml"]
    convert("jsonl", *job)
    rows = open_dataset(str(tmp_path / "out"), "train")
    assert [float(row["a"]) for row in rows] == [1.0, 2.5]


def test_an_inferred_schema_takes_the_rows_it_was_made_of(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": "1", "l": [1]}\n{"b": 2.5, "o": {"x": true}}\n')
    ran = recordmill("schema", "infer", "jsonl", path)
    assert ran.status == 0, ran.err
    (tmp_path / "s.yaml").write_text(ran.out)
    convert("jsonl", path, tmp_path / "out", "--schema", tmp_path / "s.yaml")
    assert sum(1 for _ in open_dataset(str(tmp_path / "out"), "train")) == 2
