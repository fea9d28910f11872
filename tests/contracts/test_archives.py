"""Every source reads an archive as it reads the folder that is packed in it."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest
from archive_tools import ARCHIVES, files_in
from source_cases import CASES, Case
from source_tools import Reading, read

from recordmill.schemas.errors import ChangedInputError
from recordmill.transforms.sources.base import REFERENCE
from recordmill.transforms.sources.cifar import source as fixed_length
from recordmill.transforms.sources.images import cut_pictures
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import read_member
from recordmill.transforms.storage.reading import read_file

KINDS = [*ARCHIVES, "large.zip"]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(cut_pictures, "FILES_PER_RANGE", 2)
    monkeypatch.setattr(fixed_length, "RANGE_BYTES", 7000)
    return CASES[request.param]


def found_in(reading: Reading, above: str) -> list[object]:
    """All that a source says of its rows, with paths below the folder or archive."""
    rows = [
        {name: str(value).removeprefix(above) for name, value in row.items()}
        for row in reading.rows
    ]
    parts = [
        (
            part.input_range.path.removeprefix(above),
            part.raws,
            part.positions,
            part.keys,
            part.observed,
            [
                (reject.path.removeprefix(above), reject.position, reject.reason)
                for reject in part.rejects
            ],
            [(each.path.removeprefix(above), *each[1:]) for each in part.checksums],
        )
        for part in reading.parts
    ]
    return [rows, parts, reading.source.schema(), fetched(reading, above)]


def fetched(reading: Reading, above: str) -> list[object]:
    """The rows that are read by reference, with paths below the folder or archive."""
    if not reading.source.supports_references:
        return []
    return [
        {name: str(value).removeprefix(above) for name, value in row.items()}
        for input_range in reading.ranges
        for referred in reading.source.list_references(input_range)
        for row in reading.source.read_references(
            referred.batch[REFERENCE]
        ).batch.to_pylist()
    ]


@pytest.mark.parametrize("store", ["local", "memory"])
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
    for kind in KINDS:
        name = kind
        if kind == "large.zip":
            name, kind = kind, "in.zip"
            monkeypatch.setattr(read_member, "INFLATED_BYTES", 0)
        system.pipe_file(f"{root}/{name}", ARCHIVES[kind](members))
        found = read(case.source, f"{root}/{name}")
        assert found_in(found, f"{name}!/") == expected, name


@pytest.mark.parametrize("kind", ["in.tar", "in.zip", "stored.zip"])
def test_what_was_listed_is_read_or_nothing(tmp_path: Path, kind: str) -> None:
    members = {"a/1.csv": b"x\n1\n", "b.csv": b"x\n2\n"}
    path = tmp_path / kind
    path.write_bytes(ARCHIVES[kind](members))
    _, files = list_inputs([str(path)])
    assert [read_file(file.uri, seen=file.seen) for file in files] == [
        *members.values()
    ]
    path.write_bytes(ARCHIVES[kind](dict.fromkeys(members, b"x\n3\n")))
    for file in files:
        with pytest.raises(ChangedInputError, match=f"{kind}: (has|was written again)"):
            read_file(file.uri, seen=file.seen)
