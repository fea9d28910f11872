"""Parquet and Arrow IPC by the command: the rows of a table, rejects, schema files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_tools import IRIS, SAMPLES, convert, manifest_of, recordmill

from recordmill import open_dataset


def rows_of(folder: Path, split: str = "train") -> list[dict[str, object]]:
    return [dict(row) for row in open_dataset(str(folder), split)]


def test_samples_become_the_records_of_their_csv(tmp_path: Path) -> None:
    job = ["--no-shuffle", "--name", "iris"]
    convert("csv", IRIS, tmp_path / "csv", *job)
    text = rows_of(tmp_path / "csv")
    assert len(text) == 150
    for kind in ("parquet", "arrow", "jsonl"):
        convert(kind, SAMPLES / "typed" / f"iris.{kind}", tmp_path / kind, *job)
        assert rows_of(tmp_path / kind) == text
        features = [manifest_of(tmp_path / name)["features"] for name in (kind, "csv")]
        assert features[0] == features[1]


@pytest.mark.parametrize("exchange", ["scratch", "engine"])
def test_bad_rows_cost_themselves_only(exchange: str, tmp_path: Path) -> None:
    text = pa.array([b"ok", b"\xfe", b"z", b"y"]).view(pa.string())
    table = pa.table({"t": text, "l": [[1], [2], [None], [4]]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    ran = convert(
        *("parquet", tmp_path / "a.parquet", tmp_path / "out", "--no-shuffle"),
        *("--max-rejects", 2, "--exchange", exchange),
    )
    assert [row["t"] for row in rows_of(tmp_path / "out")] == ["ok", "y"]
    assert "a.parquet row 1" in ran.err
    ran = recordmill("convert", "parquet", tmp_path / "a.parquet", tmp_path / "none")
    assert ran.status != 0
    assert r'{"t": "\\xfe", "l": [2]}' in ran.err


def test_a_schema_takes_what_can_be_no_feature_by_itself(tmp_path: Path) -> None:
    """Leaves out a map, and keeps all digits of a decimal: what the messages say."""
    table = pa.table(
        {
            "d": [Decimal("1234567890.12")],
            "f": [0.1],
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    ran = recordmill("convert", "parquet", tmp_path / "a.parquet", tmp_path / "out")
    assert "column 'm' of type map<string, int64" in ran.err
    assert "(--schema)" in ran.err
    schema = tmp_path / "s.yaml"
    schema.write_text("features:\n  d: string\n  f: {dtype: float64, stored: tensor}\n")
    convert("parquet", tmp_path / "a.parquet", tmp_path / "out", "--schema", schema)
    (row,) = rows_of(tmp_path / "out")
    assert (row["d"], float(row["f"])) == ("1234567890.12", 0.1)  # type: ignore[arg-type]


def test_an_inferred_schema_takes_the_rows_it_was_made_of(tmp_path: Path) -> None:
    """Also where values and lists are missing."""
    table = pa.table({"a": [1, None], "l": [None, [1.5]], "s": [{"x": "k"}, None]})
    pq.write_table(table, tmp_path / "a.parquet")
    ran = recordmill("schema", "infer", "parquet", tmp_path / "a.parquet")
    assert ran.status == 0, ran.err
    (tmp_path / "s.yaml").write_text(ran.out)
    job = [tmp_path / "a.parquet", tmp_path / "out", "--no-shuffle"]
    convert("parquet", *job, "--schema", tmp_path / "s.yaml")
    assert len(rows_of(tmp_path / "out")) == 2
    planned = recordmill("convert", "parquet", *job, "--plan", "--overwrite", "--json")
    assert json.loads(planned.out)["rows"] == 2
