"""The command `recordmill schema`: what it prints, writes and refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from job_tools import COMMAND, HANG_SECONDS, IRIS, SAMPLES, command, recordmill
from terminal import plain_text

from recordmill.schemas.schema_file import load_schema

IRIS_YAML = """\
# Inferred from the whole input; rows: 150
features:
  # 4.3 to 7.9, 35 distinct
  sepal_length_cm: float32
  # 2.0 to 4.4, 23 distinct
  sepal_width_cm: float32
  # 1.0 to 6.9, 43 distinct
  petal_length_cm: float32
  # 0.1 to 2.5, 22 distinct
  petal_width_cm: float32
  # 6 to 10 bytes, 3 distinct
  # perhaps classes: [setosa, versicolor, virginica]
  # rows of each: {setosa: 50, versicolor: 50, virginica: 50}
  species: string
"""


def test_yaml_is_all_on_stdout() -> None:
    ran = command("schema", "infer", "csv", IRIS)
    assert (ran.status, ran.out) == (0, IRIS_YAML)
    assert re.fullmatch(r"5 features, 150 rows, \d+\.\d s\n", ran.err)


@pytest.mark.parametrize("option", ["-o", "--output"])
def test_yaml_in_a_file(tmp_path: Path, option: str) -> None:
    path = tmp_path / "iris.yaml"
    ran = recordmill("schema", "infer", "csv", IRIS, option, path)
    assert (ran.status, ran.out) == (0, "")
    assert ran.err.startswith(f"{path}: 5 features, 150 rows, ")
    assert path.read_text() == IRIS_YAML
    assert list(tmp_path.iterdir()) == [path]


def test_existing_file_is_kept_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "iris.yaml"
    path.write_text("mine")
    ran = recordmill("schema", "infer", "csv", IRIS, "-o", path)
    assert (ran.status, ran.out) == (1, "")
    assert (
        ran.err
        == f"Error: {path}: already exists; choose another file, or replace it with --overwrite\n"
    )
    assert path.read_text() == "mine"
    ran = recordmill("schema", "infer", "csv", IRIS, "-o", path, "--overwrite")
    assert ran.status == 0
    assert path.read_text() == IRIS_YAML


def test_json_is_all_on_stdout(tmp_path: Path) -> None:
    path = tmp_path / "iris.yaml"
    ran = recordmill("schema", "infer", "csv", IRIS, "--json", "-o", path)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.count("\n") == 1
    facts = json.loads(ran.out)
    assert facts["seconds"] > 0
    assert facts["rows"] == 150
    assert facts["columns"]["sepal_length_cm"]["min"] == 4.3
    schema = load_schema(path.read_bytes(), str(path))
    assert facts["schema"] == schema.model_dump(mode="json", exclude_defaults=True)


def test_json_has_no_infinity(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a\n-inf\n1.5\nnan\n")
    ran = recordmill("schema", "infer", "csv", tmp_path, "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    facts = json.loads(ran.out, parse_constant=refuse)
    assert (facts["columns"]["a"]["min"], facts["columns"]["a"]["max"]) == ("-inf", 1.5)


@pytest.mark.parametrize(
    ("typed", "features"),
    [
        (
            f"images {SAMPLES}/images --workers 1",
            ["depth", "filename", "height", "image"],
        ),
        (
            f"images {SAMPLES}/images --feature-names imagenet --workers 2",
            ["image/channels", "image/class/label", "image/class/text"],
        ),
        (f"cifar {SAMPLES}/cifar", ["depth", "height", "image", "label"]),
        (
            f"cifar {SAMPLES}/cifar --variant cifar10 --workers 2",
            ["depth", "height", "image", "label"],
        ),
    ],
)
def test_sources(typed: str, features: list[str]) -> None:
    ran = recordmill("schema", "infer", *typed.split())
    assert ran.status == 0, ran.err
    schema = load_schema(ran.out.encode(), "stdout")
    assert list(schema.features)[: len(features)] == features


def test_rows_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a,b\n1,2\n3\n")
    ran = recordmill("schema", "infer", "csv", tmp_path)
    assert ran.status == 0
    told = [
        "Rows that cannot be read (convert rejects them): 1",
        "  in.csv, byte 8: expected 2 columns, found 1",
    ]
    assert ran.err.splitlines()[1:] == told
    assert ran.out.splitlines()[1:3] == [f"# {line}" for line in told]


WRONG = {  # what is typed behind `schema`: status, and what is told
    "infer": (2, "Usage: recordmill schema infer"),
    "infer csv": (2, "Missing argument 'INPUT...'"),
    "infer xml in": (2, "expected a format, found 'xml'"),
    f"infer csv {IRIS} --workers -1": (2, "-1 is not in the"),
    f"infer csv {IRIS} -- --runner=x": (2, "accept arguments after"),
    "infer csv nothing.csv": (65, "nothing.csv: no such file"),
    f"infer images {IRIS}": (65, "is text with delimiters, not images"),
    f"infer csv {IRIS} -o .": (1, ".: is a folder"),
    f"infer csv {IRIS} -o no/it.yaml": (1, "no such folder:"),
    f"infer csv {IRIS} -o s3://b/it": (1, "no such folder:"),
    "check": (2, "Missing argument 'FILE'"),
    "check nothing.yaml": (2, "'nothing.yaml' does not exist"),
}


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for typed, (status, message) in WRONG.items():
        ran = recordmill("schema", *typed.split())
        assert (ran.status, ran.out) == (status, ""), typed
        assert message in ran.err
        assert list(tmp_path.iterdir()) == []


def test_check(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(IRIS_YAML)
    ran = recordmill("schema", "check", path)
    assert (ran.status, ran.out) == (0, "")
    assert ran.err == f"{path}: valid, 5 features\n"
    ran = recordmill("schema", "check", path, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert json.loads(ran.out)["features"][0] == "sepal_length_cm"
    path.write_text(IRIS_YAML.replace("species: string", "species: strings"))
    ran = recordmill("schema", "check", path)
    assert (ran.status, ran.out) == (65, "")
    assert ran.err.startswith(f"Error: {path}: line 14: feature 'species'")


def test_help() -> None:
    for typed, message in {
        "schema --help": "infer",
        "schema infer --help": "csv",
        "schema infer csv -h": "--overwrite",
        "schema infer images --help": "--feature-names",
        "schema infer cifar --help": "--variant",
        "schema check --help": "FILE",
    }.items():
        assert message in recordmill(*typed.split()).out


def test_progress_on_a_terminal() -> None:
    """People at a terminal see a bar; the schema on stdout stays clean."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [COMMAND, "schema", "infer", "csv", IRIS],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    text = plain_text(ours)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out.decode()) == (0, IRIS_YAML)
    assert "read: 100 %, 1 of 1 range" in text
    assert "5 features, 150 rows" in text
