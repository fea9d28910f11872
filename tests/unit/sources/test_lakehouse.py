"""Files of a Delta or Iceberg table are never read without its metadata."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import InputError
from recordmill.schemas.storage_options import NO_OPTIONS
from recordmill.transforms.sources.lakehouse import select_current_files
from recordmill.transforms.sources.listing import list_inputs

METADATA = {
    "Delta": ("_delta_log/00000000000000000000.json", "day=a/part-0.parquet"),
    "Iceberg": ("metadata/00000-12ab.metadata.json", "data/day=a/0.parquet"),
}


@pytest.fixture(params=METADATA)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """The kind of a table, and its folder."""
    metadata, rows = METADATA[request.param]
    for name in (metadata, rows):
        (tmp_path / "sales" / name).parent.mkdir(parents=True)
    (tmp_path / "sales" / metadata).write_text("{}\n")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "sales" / rows)
    return request.param, tmp_path / "sales"


@pytest.mark.parametrize("below", ["**/*.parquet", "d*/*", "*/day=a", "*/day=a/*"])
def test_files_of_a_table_are_not_read_apart(
    table: tuple[str, Path], below: str
) -> None:
    kind, folder = table
    if not list(folder.glob(below)):
        below = "day=a"
    _, files = list_inputs([str(folder / below)])
    assert any(file.path.endswith(".parquet") for file in files)
    told = f"of the {kind} table .* Name the table in place of its files: {folder}"
    with pytest.raises(InputError, match=told):
        select_current_files(files, NO_OPTIONS)


def test_a_table_needs_the_package_that_reads_its_metadata(
    table: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the integration tests they are there, and read what they have written."""
    for package in ("deltalake", "pyiceberg", "pyiceberg.table"):
        monkeypatch.setitem(sys.modules, package, None)
    kind, folder = table
    _, files = list_inputs([str(folder)])
    package = {"Delta": "deltalake", "Iceberg": "pyiceberg"}[kind]
    with pytest.raises(InputError, match=f"pip install {package}$"):
        select_current_files(files, NO_OPTIONS)


def test_other_folders_stay_as_they_are(tmp_path: Path) -> None:
    """Also one named metadata that holds none of Iceberg's."""
    for name in ("data/a.parquet", "metadata/notes.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("{}")
    for given in (tmp_path, tmp_path / "data", tmp_path / "data" / "*"):
        _, files = list_inputs([str(given)])
        assert select_current_files(files, NO_OPTIONS)[::2] == (files, {})
