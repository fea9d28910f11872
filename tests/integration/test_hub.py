"""Datasets of the Hugging Face Hub are inputs, by the fsspec package of huggingface_hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import hub
from job_tools import command, examples_of

SPLITS = {"train": 100, "test": 20, "validation": 10}


def fill(folder: Path, first: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    for split, rows in SPLITS.items():
        numbers = pa.array(range(first, first + rows))
        table = pa.table(
            {"number": numbers, "text": [f"{split} {n:05}" for n in range(rows)]}
        )
        name = f"{split}-00000-of-00001.parquet"
        pq.write_table(table, folder / name, use_dictionary=False, compression="none")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "repository"
    root.mkdir()
    (root / "README.md").write_text("# Things\n")
    fill(root / "data")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with hub({"some-owner/things": root}) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield root


@pytest.mark.parametrize("below", ["", "/data", "@main/data/*.parquet"])
def test_a_dataset_is_that_of_its_files(
    repository: Path, tmp_path: Path, below: str
) -> None:
    local, remote = tmp_path / "local", tmp_path / "remote"
    url = f"hf://datasets/some-owner/things{below}"
    for source, out in ((repository / "data", local), (url, remote)):
        ran = command("convert", "parquet", source, out)
        assert ran.status == 0, ran.err
    for split, rows in SPLITS.items():
        expected, found = (
            sorted(each.SerializeToString() for each in examples_of(out, split))
            for out in (local, remote)
        )
        assert found == expected
        assert len(found) == rows


def test_a_file_of_the_same_size_is_another_one(
    repository: Path, tmp_path: Path
) -> None:
    """The hub tells no time of its files, but what git calls their content."""
    url, out = "hf://datasets/some-owner/things/data", tmp_path / "out"
    sizes = [each.stat().st_size for each in sorted((repository / "data").iterdir())]
    ran = [command("convert", "parquet", url, out) for _ in range(2)]
    assert [each.status for each in ran] == [0, 0], ran
    assert "already exists; nothing to do" in ran[1].err
    fill(repository / "data", first=1)
    assert sizes == [
        each.stat().st_size for each in sorted((repository / "data").iterdir())
    ]
    again = command("convert", "parquet", url, out)
    assert again.status != 0
    assert "contains another dataset" in again.err


def test_what_is_not_there_is_told(repository: Path, tmp_path: Path) -> None:
    for name, told in (
        ("nothing/data", "no such file or folder"),
        ("things/dat", "hf://datasets/some-owner/things holds README.md, data/"),
    ):
        url = f"hf://datasets/some-owner/{name}"
        ran = command("convert", "parquet", url, tmp_path / "out")
        assert ran.status == 65
        assert told in ran.err


@pytest.mark.parametrize(
    "refusal",
    [
        (401, {"X_Error_Message": "Invalid username or password."}),
        (401, {"X_Error_Code": "GatedRepo", "X_Error_Message": "is restricted"}),
        (404, {"X_Error_Code": "RepoNotFound"}),
    ],
)
def test_a_private_dataset_asks_for_a_token(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: tuple[int, dict[str, str]],
) -> None:
    url = "hf://datasets/some-owner/private/data"
    with hub({"some-owner/private": repository}, "hf_secret", refusal) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        ran = command("convert", "parquet", url, tmp_path / "out")
        assert ran.status != 0
        assert "set HF_TOKEN, or log in with `hf auth login`" in ran.err
        monkeypatch.setenv("HF_TOKEN", "hf_secret")  # the way out
        ran = command("convert", "parquet", url, tmp_path / "out")
        assert ran.status == 0, ran.err


def test_a_hub_that_cannot_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    url = "hf://datasets/some-owner/things"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ran = command("convert", "parquet", url, tmp_path / "out")
    assert ran.status != 0
    assert "unset the `HF_HUB_OFFLINE` environment variable" in ran.err
    assert "tried" not in ran.err
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ran = command("convert", "parquet", url, tmp_path / "out")
    assert ran.status != 0
    assert "the network or the store is down or slow: run again later" in ran.err
