"""read_batches and read_rows: a dataset in plain Python, without Beam."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from job_tools import convert

from recordmill import read_batches, read_rows
from recordmill.schemas.errors import OutputError, UsageError

SAMPLES = Path(__file__).parents[2] / "samples"


def test_batches_hold_all_rows_as_columns(iris: Path) -> None:
    batches = list(read_batches(iris, "train"))
    lengths = np.concatenate([batch["petal_length_cm"].to_numpy() for batch in batches])
    assert lengths.dtype == np.float32
    assert len(lengths) == 150
    assert batches[0].schema.names == [
        *("petal_length_cm", "petal_width_cm", "sepal_length_cm", "sepal_width_cm"),
        "species",
    ]


def test_rows_are_dicts_of_plain_values(iris: Path) -> None:
    rows = list(read_rows(iris))
    assert len(rows) == 150
    assert {row["species"] for row in rows} == {"setosa", "versicolor", "virginica"}


def test_values_with_a_shape_are_arrays(tmp_path: Path) -> None:
    convert("cifar", SAMPLES / "cifar", tmp_path / "out")
    row = next(read_rows(tmp_path / "out", "test"))
    assert row["image"].shape == (32, 32, 3)
    assert row["image"].dtype == np.uint8


def test_readers_share_the_shards(iris: Path) -> None:
    parts = [list(read_rows(iris, reader_index=i, num_readers=2)) for i in (0, 1)]
    assert all(parts)
    assert parts[0] + parts[1] == list(read_rows(iris))


def test_more_readers_than_shards_leave_some_without(iris: Path) -> None:
    assert list(read_rows(iris, reader_index=2, num_readers=3)) == []


@pytest.mark.parametrize(("index", "count"), [(2, 2), (0, 0)])
def test_a_reader_that_cannot_be_is_told(iris: Path, index: int, count: int) -> None:
    with pytest.raises(UsageError, match=f"reader_index={index} of num_readers"):
        next(read_batches(iris, reader_index=index, num_readers=count))
    with pytest.raises(UsageError, match="reader_index=-1: expected a whole number"):
        next(read_batches(iris, reader_index=-1, num_readers=2))


def test_a_folder_without_a_dataset_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"manifest\.json"):
        next(read_rows(tmp_path))


def test_neither_beam_nor_tensorflow_is_imported(iris: Path) -> None:
    code = (
        "import sys; from recordmill import read_rows; "
        f"assert len(list(read_rows({str(iris)!r}))) == 150; "
        "assert not {'apache_beam', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_manifest_cannot_name_files_elsewhere(iris: Path, tmp_path: Path) -> None:
    """SECURITY.md says so: a dataset from somewhere else is not trusted."""
    folder = shutil.copytree(iris, tmp_path / "copy")
    manifest = folder / "manifest.json"
    text = manifest.read_text().replace('"iris-train', f'"../{iris.name}/iris-train')
    manifest.write_text(text)
    with pytest.raises(
        OutputError, match="expected the name of a file without a folder"
    ):
        next(read_rows(folder))
