"""Features whose labels would stand in one file."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_tools import recordmill

SCHEMA = """features:
  %s: {column: a, classes: [cat, dog]}
  %s: {column: b, classes: [%s]}
"""


@pytest.mark.parametrize(
    ("names", "classes", "status"),
    [
        (("x/y", "x.y"), "red, blue", 65),
        (("x/y", "x.z"), "red, blue", 0),  # the way out: one is renamed
        (("x/y", "x.y"), "cat, dog", 0),  # the same file
    ],
)
def test_two_features_with_one_labels_file(
    tmp_path: Path, names: tuple[str, str], classes: str, status: int
) -> None:
    table, schema, output = (tmp_path / name for name in ("t.csv", "s.yaml", "out"))
    last = classes.split(", ")[1]
    table.write_text(f"a,b\ncat,{last}\ndog,{last}\n")
    schema.write_text(SCHEMA % (*names, classes))
    ran = recordmill("convert", "csv", table, output, "--schema", schema)
    assert ran.status == status, ran.err
    if status:
        assert "x.y.labels.txt: rename one of them" in ran.err
        assert not output.exists()
        return
    found = (output / f"{names[1].replace('/', '.')}.labels.txt").read_text()
    assert found.split() == classes.split(", ")
