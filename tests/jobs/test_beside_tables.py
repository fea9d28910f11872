"""README.md, LICENSE and .json files that lie beside tables are listed, not read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from job_tools import Ran, convert, manifest_of, recordmill

from recordmill.transforms.sources.globs import expand_braces

pytestmark = pytest.mark.usefixtures("without_beam")

ROWS = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def _csv(path: Path) -> None:
    path.write_text("id,name\n1,a\n2,b\n")


def _parquet(path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), path)


def _arrow(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


def _jsonl(path: Path) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))


WRITERS: dict[str, Any] = {
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
    "jsonl": _jsonl,
}
DOCUMENTS = {
    "LICENSE": "Free, for all\n",
    "README.md": "# Two rows\n\nid, name\n",
    "more/Readme.txt": "one word\n",
    "info.json": '{\n  "rows": 2\n}\n',
}


@pytest.fixture(params=WRITERS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "in" / "more").mkdir(parents=True)
    WRITERS[request.param](tmp_path / "in" / f"b.{request.param}")
    for name, text in DOCUMENTS.items():
        (tmp_path / "in" / name).write_text(text)
    return str(request.param)


def left_out(ran: Ran) -> str:
    lines = [line.strip() for line in ran.err.splitlines()]
    (line,) = [line for line in lines if line.startswith("left out, no tables: ")]
    return line.partition(": ")[2]


def test_they_are_left_out_and_listed(source: str, tmp_path: Path) -> None:
    ran = convert(source, tmp_path / "in", tmp_path / "out")
    assert manifest_of(tmp_path / "out")["rows_read"] == 2
    assert all(name in left_out(ran) for name in DOCUMENTS if "/" not in name)
    plan = recordmill("convert", source, tmp_path / "in", tmp_path / "new", "--plan")
    assert "README.md" in plan.out
    assert recordmill("schema", "infer", source, tmp_path / "in").status == 0


def test_json_files_of_lines_are_data(tmp_path: Path) -> None:
    """Beside .jsonl files if they hold lines; alone whatever they hold."""
    for name in ("a.jsonl", "b.json"):
        _jsonl(tmp_path / name)
    convert("jsonl", tmp_path / "*.json*", tmp_path / "out")
    assert manifest_of(tmp_path / "out")["rows_read"] == 4
    convert("jsonl", tmp_path / "b.json", tmp_path / "one")
    assert manifest_of(tmp_path / "one")["rows_read"] == 2


def test_a_table_of_such_a_name_is_read_alone(tmp_path: Path) -> None:
    _csv(tmp_path / "readme.txt")
    convert("csv", tmp_path / "readme.txt", tmp_path / "out")
    assert manifest_of(tmp_path / "out")["rows_read"] == 2


def test_an_empty_table_among_others_is_listed(source: str, tmp_path: Path) -> None:
    (tmp_path / "in" / f"z.{source}").touch()
    ran = convert(source, tmp_path / "in", tmp_path / "out")
    (line,) = [line for line in ran.err.splitlines() if f"z.{source}" in line]
    assert "empty" in line


@pytest.mark.parametrize("source", ["csv", "parquet", "arrow"])
def test_tables_without_rows_are_listed(tmp_path: Path, source: str) -> None:
    WRITERS[source](tmp_path / f"b.{source}")
    (tmp_path / f"c.{source}").write_bytes(b"")
    if source == "csv":
        (tmp_path / "d.csv").write_text("name,id\r\n")
    else:
        nothing = pa.Table.from_pylist(ROWS).slice(0, 0)
        path = tmp_path / f"d.{source}"
        if source == "parquet":
            pq.write_table(nothing, path)
        else:
            with pa.OSFile(str(path), "wb") as file:
                pa.ipc.new_file(file, nothing.schema).close()
    files = [tmp_path / f"{name}.{source}" for name in "bcd"]
    ran = convert(source, *files, tmp_path / "out")
    assert manifest_of(tmp_path / "out")["rows_read"] == 2
    assert f"skipped: 1 file (empty), such as c.{source}" in ran.err
    assert f"skipped: 1 file (no rows), such as d.{source}" in ran.err


CONFIGURED = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: a.*}
  - {split: test, path: [b.*, more/*]}
---
"""


def test_splits_that_only_the_readme_tells_are_asked_for(
    source: str, tmp_path: Path
) -> None:
    """Else the rows of test would be in train."""
    given = tmp_path / "in"
    WRITERS[source](given / f"a.{source}")
    (given / "README.md").write_text(CONFIGURED)
    ran = recordmill("convert", source, given, tmp_path / "out")
    assert ran.status == 65
    assert f"README.md: puts b.{source} into the split test, but the" in ran.err
    # The ways out.
    convert(source, given, tmp_path / "one", "--split-from", "none")
    # The job divides the rows by itself; and to know the columns nobody needs splits.
    halves = ("--split", "train=0.5", "--split", "test=0.5")
    convert(source, given, tmp_path / "halves", *halves)
    assert recordmill("schema", "infer", source, given).status == 0
    for split, name in (("train", "a"), ("test", "b")):
        (given / split).mkdir()
        (given / f"{name}.{source}").rename(given / split / f"{name}.{source}")
    convert(source, given, tmp_path / "out", "--split-from", "1")
    assert sorted(manifest_of(tmp_path / "out")["splits"]) == ["test", "train"]


def test_a_dataset_keeps_its_splits_whatever_a_readme_says(
    source: str, tmp_path: Path
) -> None:
    """One that is older than its README.md, or than the check of it."""
    given, output = tmp_path / "in", tmp_path / "out"
    WRITERS[source](given / f"a.{source}")
    convert(source, given, output)
    (given / "README.md").write_text(CONFIGURED)
    assert "already exists" in convert(source, given, output).err
    WRITERS[source](given / f"c.{source}")
    convert(source, given, output, "--append")
    assert manifest_of(output)["splits"]["train"]["records"] == 6
    # Without a dataset, an append is a run as others.
    ran = recordmill("convert", source, given, tmp_path / "new", "--append")
    assert ran.status == 65
    assert "README.md: puts" in ran.err


def _configured(folder: Path, paths: Mapping[str, str], files: Iterable[str]) -> Path:
    """Writes a dataset of the hub, of one configuration with these paths by split."""
    lines = [f"  - {{split: {s}, path: {json.dumps(p)}}}" for s, p in paths.items()]
    head = CONFIGURED.partition("  - ")[0]
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _csv(folder / name)
    (folder / "README.md").write_text("\n".join([head.rstrip(), *lines, "---\n"]))
    return folder


SHARDS = {
    name: f"data/{name}-00000-of-00001.csv"
    for name in ("train_sft", "train_gen", "test_sft", "test_gen")
}
MERGED: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "ultrachat": (SHARDS, tuple(SHARDS.values())),
    "more of train": ({"train": "x.csv", "train_extra": "y.csv"}, ("x.csv", "y.csv")),
    "only test": ({"test": "data/*"}, ("data/x.csv", "data/y.csv")),
    "one file": ({"test": "x.csv"}, ("x.csv",)),
    "all in train": ({"train": "data/*"}, ("data/train.csv", "data/test.csv")),
    "swapped": ({"train": "test.csv", "test": "train.csv"}, ("train.csv", "test.csv")),
    "dots": ({"train": "./data/x.csv", "test": "./y.csv"}, ("data/x.csv", "y.csv")),
    "any folders": ({"train": "**/x.csv", "test": "**/y.csv"}, ("x.csv", "y.csv")),
    "braces": (
        {"train": "data/{x,z}.csv", "test": "data/y.csv"},
        ("data/x.csv", "data/y.csv", "data/z.csv"),
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_splits_of_the_readme_are_not_merged(tmp_path: Path, case: str) -> None:
    paths, files = MERGED[case]
    given = _configured(tmp_path / "hub", paths, files)
    ran = recordmill("convert", "csv", given, tmp_path / "out")
    assert ran.status == 65
    assert re.search(r"README\.md: puts \S+\.csv into the split ", ran.err)
    # The ways out.
    convert("csv", given, tmp_path / "one", "--split-from", "none")
    assert manifest_of(tmp_path / "one")["rows_read"] == 2 * len(files)
    for split, pattern in paths.items():
        (given / split).mkdir()
        for path in [p for each in expand_braces(pattern) for p in given.glob(each)]:
            path.rename(given / split / path.name)
    assert f"such as {given}/" in ran.err
    assert f"convert {given} with --split-from 1;" in ran.err
    convert("csv", given, tmp_path / "out", "--split-from", "1")
    assert {*manifest_of(tmp_path / "out")["splits"]} == {*paths}


def test_the_file_of_another_split_is_named(tmp_path: Path) -> None:
    given = _configured(tmp_path, SHARDS, SHARDS.values())
    assert (
        f"puts {SHARDS['test_sft']} into the split test_sft, but the names of files "
        f"and folders put it into test, next to {SHARDS['test_gen']} of the split "
        "test_gen. Move"
    ) in recordmill("convert", "csv", given, tmp_path / "out").err


def test_names_that_say_what_the_readme_says_are_read(
    source: str, tmp_path: Path
) -> None:
    given = tmp_path / "hub/data"
    given.mkdir(parents=True)
    for split in ("train", "validation"):
        WRITERS[source](given / f"{split}-00000-of-00001.{source}")
    text = CONFIGURED.replace("a.*", "data/train-*")
    text = text.replace("test, path: [b.*, more/*]", "val, path: data/valid*")
    (given.parent / "README.md").write_text(text)
    ran = convert(source, given.parent, tmp_path / "out")
    assert "splits by file: train 1 file, validation 1 file" in ran.err


OF_MNLI = ("train", "validation_matched", "validation_mismatched")


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (
            {name: f"data/{name}-*" for name in OF_MNLI},
            [f"data/{name}-00000-of-00001.csv" for name in OF_MNLI],
        ),
        (
            {"train": "train/*", "test": "test/**", "dev": "./{validation,valid}/*"},
            ["train/a.csv", "test/a.csv", "validation/a.csv"],
        ),
        ({"train": "**/x-*"}, ["data/x-1.csv", "data/x-2.csv"]),
        ({"test": "data/test-*"}, ["data/test-00000-of-00001.csv"]),
    ],
)
def test_splits_of_names_and_readme_that_agree(
    tmp_path: Path, paths: dict[str, str], files: list[str]
) -> None:
    given = _configured(tmp_path / "hub", paths, files)
    convert("csv", given, tmp_path / "out")
    expected = {"validation" if split == "dev" else split for split in paths}
    assert {*manifest_of(tmp_path / "out")["splits"]} == expected


def test_caches_of_datasets_are_no_tables(tmp_path: Path) -> None:
    """A glob takes them, and not the state.json that leaves them out."""
    for name in ("data-00000-of-00001", "cache-0123456789abcdef"):
        _arrow(tmp_path / f"{name}.arrow")
    ran = convert("arrow", tmp_path / "*.arrow", tmp_path / "out")
    assert left_out(ran) == "cache-0123456789abcdef.arrow"
    assert manifest_of(tmp_path / "out")["rows_read"] == 2
    convert("arrow", tmp_path / "cache-0123456789abcdef.arrow", tmp_path / "alone")


FORMS = {  # as the hub's documentation has them
    "paths": """\
configs:
- config_name: en
  data_files: en/*
- config_name: de
  data_files:
  - split: train
    path: ["de/train-*", "de/more-*"]
""",
    "folders": """\
license: mit
configs:
- {config_name: en, data_dir: en}
- {config_name: de, data_dir: de}
""",
}


@pytest.mark.parametrize("form", FORMS)
def test_several_configurations_are_asked_for(
    source: str, form: str, tmp_path: Path
) -> None:
    """Two datasets in one folder of the hub; one of them, or all as one."""
    given = tmp_path / "several"
    for language in ("en", "de"):
        (given / language).mkdir(parents=True)
        WRITERS[source](given / language / f"train-0.{source}")
    (given / "README.md").write_text(f"---\n{FORMS[form]}---\n# Words\n")
    ran = recordmill("convert", source, given, tmp_path / "out")
    assert ran.status == 65
    assert "the files belong to 2 configurations: en (en/" in ran.err
    convert(source, given / "en", tmp_path / "one")
    convert(source, given, tmp_path / "all", "--exclude", "README.md")
    rows = [manifest_of(tmp_path / name)["rows_read"] for name in ("one", "all")]
    assert rows == [2, 4]


@pytest.mark.parametrize(
    "text",
    [
        "configs: [{config_name: en (US), data_files: [{split: train, path: b.*}]}]",
        "configs: [{config_name: en, data_files: [{split: test, path: c.*}]}]",
        "configs: [{config_name: en, data_files: [{split: test, path: [1, null]}]}]",
        "config_name: [", "config_name: 1", "configs: [{config_name: 1}, 2]",
        "configs: [{config_name: en, data_dir: en}, {config_name: de, data_dir: de}]",
    ],
)  # fmt: skip
def test_one_configuration_is_not(source: str, tmp_path: Path, text: str) -> None:
    (tmp_path / "in" / "README.md").write_text(f"---\n{text}\n---\n")
    convert(source, tmp_path / "in", tmp_path / "out")


UNREADABLE = {  # front matter of README.md, and what the warning names
    "date: 2024-99-99\n": None,  # text, as every date
    "size: " + "9" * 5000: None,
    "size: !!int abc": None,
    "tags: " + "[" * 2000 + "]" * 2000: "README.md: line 2, column 106: not valid YAML",
    "tags: [a\nlicense: mit": "README.md: line 3, column 8: not valid YAML",
    "license: mit\nlicense: mit": "README.md: line 3: 'license' is given twice",
    'tags: "\\UFFFFFFFF"': "README.md: not valid YAML",
    "configs: {config_name: a}": "found a value that is not a list",
    "configs: [{config_name: {a: b}}]": "an entry of configs has no config_name",
    "configs: [{config_name: a, data_files: [{path: 5, split: [1]}]}]": "no path as text",
    "configs: [{config_name: a, data_dir: [b]}]": "data_dir is not the name of a folder",
    'configs: [{config_name: "\\ud800", data_dir: b}]': "an unpaired surrogate",
}


@pytest.mark.parametrize("text", UNREADABLE, ids=lambda text: text[:30])
def test_a_readme_that_cannot_be_read_is_a_warning(text: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _csv(folder / "t.csv")
    more = "" if "configs" in text else "configs: [{config_name: x, data_files: t.csv}]"
    (folder / "README.md").write_text(f"---\n{text}\n{more}\n---\n")
    ran = convert("csv", folder, tmp_path / "out")
    assert manifest_of(tmp_path / "out")["rows_read"] == 2
    warning = UNREADABLE[text]
    assert ("is not used [unused-metadata]" in ran.err) == (warning is not None)
    assert warning is None or warning in ran.err


def test_globs_of_a_readme_take_no_time(tmp_path: Path) -> None:
    """Matched by trying all combinations, these would take years."""
    folder = tmp_path / "in"
    (deep := folder / "/".join("a" * 40)).mkdir(parents=True)
    _csv(deep / "t.csv")
    globs = [["**/a/" * 20 + "b", "**/" * 3000 + "t.csv"], "**/**/*"]
    configs = [{"config_name": "x", "data_files": [{"path": path} for path in globs]}]
    head = json.dumps({"configs": configs})
    (folder / "README.md").write_text(f"---\n{head}\n---\n")
    assert "unused-metadata" not in convert("csv", folder, tmp_path / "out").err


def test_a_state_json_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    _arrow(folder / "t.arrow")
    for number, text in enumerate(
        (
            "{",
            "[]",
            '{"_data_files": [1]}',
            "[" * 100_000,
            '{"a": 1, "a": 2}',
            "9" * 5000,
        )
    ):
        (folder / "state.json").write_text(text)
        ran = convert("arrow", folder, tmp_path / str(number))
        assert "state.json: " in ran.err
        assert "is not used; all tables are read [unused-metadata]" in ran.err
