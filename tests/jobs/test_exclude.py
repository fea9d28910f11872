"""`exclude`: a dataset is that of the files that are left, whoever leaves out the others."""

from __future__ import annotations

import shutil
from pathlib import Path

from job_tools import Ran, convert, manifest_of, recordmill


def test_what_is_left_is_converted(tmp_path: Path) -> None:
    """Also where the others would be errors: other columns, and a link to nothing."""
    folder, out, job = tmp_path / "in", tmp_path / "out", tmp_path / "job.yaml"
    for name, text in {
        "parts/a.csv": "n,x\n1,2\n",
        "parts/b.csv": "n,x\n3,4\n",
        "old/c.csv": "other\n7\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "parts" / "d.tmp").symlink_to("nowhere")

    def run(exclude: str, more: str = "") -> Ran:
        job.write_text(
            f"source: csv\ninputs: {folder}\noutput: {out}\nexclude: {exclude}\n{more}"
        )
        return recordmill("run", job)

    both = ("--exclude", "old", "--exclude", "*.tmp")
    ran = convert("csv", folder, out, *both)
    assert "left out: 2 files, by exclude: old, *.tmp" in ran.err
    assert "already there" in run("[old, d.tmp]").err
    ran = run("'*.*'")
    assert ran.status == 65
    assert "exclude: *.*: leaves out all input files (4 files, such as old" in ran.err
    ran = recordmill("schema", "infer", "csv", folder, *both)
    assert "2 features, 2 rows" in ran.err
    (folder / "parts" / "e.csv").write_text("n,x\n5,6\n")
    assert run("[old, d.tmp]", "append: true\n").status == 0
    assert manifest_of(out)["splits"]["train"]["records"] == 3
    ran = run("[old, d.tmp, a.csv]", "append: true\n")
    assert "1 left out by exclude: (parts/a.csv)" in ran.err  # its records are there
    assert "name fewer files in exclude:, so that they are inputs again" in ran.err
    assert run("[old, d.tmp]", "append: true\n").status == 0
    assert run("[old, d.tmp, a.csv]", "overwrite: true\n").status == 0
    assert manifest_of(out)["splits"]["train"]["records"] == 2
    assert run("[old, d.tmp]", "overwrite: true\n").status == 0
    shutil.rmtree(folder / "old")
    (folder / "parts" / "d.tmp").unlink()
    assert "already there" in convert("csv", folder, out, "--append").err
