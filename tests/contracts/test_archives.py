"""Every source reads an archive as it reads the folder that is packed in it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from archive_tools import ARCHIVES, files_in
from content_tools import contents_of
from source_cases import CASES, Case
from source_tools import Reading, read

from recordmill.transforms.sources.base import REFERENCE, RangeFindings
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.storage import reading as storage_reading

KINDS = {
    "local": ("in.tar", "in.tar.gz", "in.zip", "stored.zip", "large.zip"),
    "memory": ("in.tar", "in.tar.zst", "in.zip", "stored.zip"),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    return CASES[request.param]


def found_in(reading: Reading, above: str) -> list[object]:
    """All that a source says of its rows, with paths below the folder or archive."""
    rows = below(reading.rows, above)
    if reading.source.supports_references:
        assert below(fetched(reading), above) == rows
    raws = [
        (part.input_range.path.removeprefix(above), raw)
        for part in reading.parts
        for _, raw in part.raws
    ]
    rejects = [(each.path.removeprefix(above), each.reason) for each in reading.rejects]
    checksums = [each for part in reading.parts for each in part.checksums]
    found = contents_of(checksums, {file.path: file.size for file in reading.files})
    by_path = {path.removeprefix(above): content for path, content in found.items()}
    return [rows, raws, rejects, by_path, reading.source.schema()]


def below(rows: list[dict[str, Any]], above: str) -> list[dict[str, str]]:
    """Rows as text, without what comes before their paths."""
    return [
        {name: str(value).removeprefix(above) for name, value in row.items()}
        for row in rows
    ]


def fetched(reading: Reading) -> list[dict[str, Any]]:
    """The rows that are read by reference."""
    return [
        row
        for input_range in reading.ranges
        for referred in reading.source.list_references(input_range, RangeFindings())
        for found in reading.source.read_windows(
            [referred.batch[REFERENCE]], RangeFindings()
        )
        for row in found.batch.to_pylist()
    ]


@pytest.mark.parametrize("store", KINDS)
def test_the_rows_are_those_of_the_folder(
    case: Case, tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    case.make(folder)
    if case.unit != "row" and case.pack is bytes:  # others are errors if cut
        name, size = case.cut_short
        (folder / name).write_bytes((folder / name).read_bytes()[:size])
    expected = found_in(read(case.source, folder), "")
    assert expected[0]
    members = files_in(folder)
    root = str(tmp_path) if store == "local" else f"memory://{uuid.uuid4().hex}"
    system, _ = fsspec.core.url_to_fs(root)
    for kind in KINDS[store]:
        name = kind
        if kind == "large.zip":
            name, kind = kind, "in.zip"
            monkeypatch.setattr(storage_reading, "INFLATED_BYTES", 0)
        system.pipe_file(f"{root}/{name}", ARCHIVES[kind](members))
        found = read(case.source, f"{root}/{name}")
        assert found_in(found, f"{name}!/") == expected, name
