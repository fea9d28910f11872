from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_dataset import write_dataset

from recordmill.schemas.errors import OutputError
from recordmill.schemas.manifest import MANIFEST_NAME, Manifest
from recordmill.transforms.dataset.files import open_file, read_manifest
from recordmill.transforms.dataset.verify import Problem, VerifyResult, verify_dataset
from recordmill.transforms.storage import Store, open_store
from recordmill.transforms.tfrecord import crc32c as checksum
from recordmill.transforms.tfrecord import mask

FIRST = "zoo-train.tfrecord-00000-of-00002"
SECOND = "zoo-train.tfrecord-00001-of-00002"
TEST = "zoo-test.tfrecord-00000-of-00001"
GZIP_FIRST = "zoo-train-00000-of-00002.tfrecord.gz"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "zoo")
    return tmp_path / "zoo"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "packed", "gzip")
    return tmp_path / "packed"


def frames(data: bytes) -> list[int]:
    """Offset of every record, and of the end."""
    offsets = [0]
    while offsets[-1] < len(data):
        (length,) = struct.unpack_from("<Q", data, offsets[-1])
        offsets.append(offsets[-1] + length + 16)
    return offsets


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / MANIFEST_NAME
    facts = json.loads(path.read_bytes())
    change(facts)
    path.write_text(json.dumps(facts))


def only_problem(folder: Path, **options: Any) -> Problem:
    (problem,) = verify_dataset(str(folder), **options).problems
    return problem


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_whole_dataset(tmp_path: Path, compression: str, full: bool) -> None:
    manifest = write_dataset(tmp_path / "zoo", compression)
    result = verify_dataset(str(tmp_path / "zoo"), full=full)
    assert result.is_undamaged
    assert result == VerifyResult(
        output=str(tmp_path / "zoo"),
        name="zoo",
        full=full,
        deep=False,
        stored_checksums=0,
        shards=3,
        records=9,
        bytes=manifest.num_bytes,
        duplicates="",
        metadata_files=len(manifest.files),
        problems=(),
    )


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_progress_adds_up_to_the_bytes(tmp_path: Path, compression: str) -> None:
    manifest = write_dataset(tmp_path / "zoo", compression)
    told: list[int] = []
    verify_dataset(str(tmp_path / "zoo"), on_progress=told.append, workers=3)
    assert sum(told) == manifest.num_bytes


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (0, "length"),  # lowest byte of the length
        (7, "length"),  # highest byte of the length
        (8, "length"),  # first byte of its checksum
        (11, "length"),  # last byte of its checksum
        (12, r"\d+ bytes"),  # first byte of the example
        (-5, r"\d+ bytes"),  # last byte of the example
        (-4, r"\d+ bytes"),  # first byte of its checksum
        (-1, r"\d+ bytes"),  # last byte of its checksum
    ],
)
@pytest.mark.parametrize("record", [0, 1, 2])
def test_flipped_bit(dataset: Path, record: int, place: int, what: str) -> None:
    offsets = frames((dataset / FIRST).read_bytes())
    start, stop = offsets[record : record + 2]
    flip(dataset / FIRST, start + place if place >= 0 else stop + place)
    problem = only_problem(dataset)
    assert problem.file == FIRST
    assert re.fullmatch(
        rf"record {record} at byte {start}: the checksum of the record's {what} is wrong"
        r"(: they are damaged)?",
        problem.message,
    )
    assert verify_dataset(
        str(dataset), full=False
    ).is_undamaged  # sizes and names are right


def test_other_shards_are_still_read(dataset: Path) -> None:
    flip(dataset / FIRST, 0)
    flip(dataset / TEST, 12)
    result = verify_dataset(str(dataset), workers=1)
    assert [problem.file for problem in result.problems] == [FIRST, TEST]
    assert result.records == 4  # those of the second shard
    assert result.shards == 3


@pytest.mark.parametrize("full", [True, False])
def test_missing_shard(dataset: Path, full: bool) -> None:
    size = (dataset / SECOND).stat().st_size
    (dataset / SECOND).unlink()
    assert only_problem(dataset, full=full) == Problem(
        SECOND, f"missing: expected 4 records in {size} bytes"
    )


EMPTY = bytes(8) + struct.pack("<II", mask(checksum(bytes(8))), mask(0))  # a record


@pytest.mark.parametrize(
    ("change", "size", "damage"),
    [
        (lambda data, _: data[:-1], -1, "record 2 at byte {2}: the file ends"),
        (lambda data, at: data[: at[2]], "{2}", "2 records and CRC-32C "),
        (lambda data, _: data + EMPTY, 16, "4 records and CRC-32C "),
        (lambda data, _: data + b"\0", 1, "record 3 at byte {3}: the file ends 1 byte"),
        (
            lambda data, at: data[at[1] : at[2]] + data[: at[1]] + data[at[2] :],
            0,
            "3 records and CRC-32C ",
        ),
    ],
)
def test_a_shard_that_was_changed(
    dataset: Path,
    change: Callable[[bytes, list[int]], bytes],
    size: int | str,
    damage: str,
) -> None:
    data = (dataset / FIRST).read_bytes()
    at = frames(data)
    (dataset / FIRST).write_bytes(change(data, at))
    found = verify_dataset(str(dataset)).problems
    assert {problem.file for problem in found} == {FIRST}
    assert found[-1].message.startswith(damage.format(*at))
    if size:
        now = size.format(*at) if isinstance(size, str) else f"{len(data) + size}"
        assert found[0] == Problem(FIRST, f"{now} bytes, expected {len(data)}")
        assert only_problem(dataset, full=False) == found[0]
    assert len(found) == 1 + bool(size)


@pytest.mark.parametrize(
    "name",
    ["zoo-train.tfrecord-00002-of-00003", "zoo-train-00000-of-00001.tfrecord.gz"],
)
def test_leftover_shard(dataset: Path, name: str) -> None:
    (dataset / name).write_bytes(b"")
    (dataset / "notes.txt").write_bytes(b"")  # anything else may lie there
    (dataset / ".recordmill").mkdir()
    problem = only_problem(dataset, full=False)
    assert problem.file == name
    assert problem.message.startswith("not in the manifest")


def repacked(data: bytes) -> bytes:
    """A gzip file whose second record is damaged."""
    records = bytearray(gzip.decompress(data))
    records[frames(bytes(records))[1] + 12] ^= 1
    return gzip.compress(bytes(records), mtime=0)


@pytest.mark.parametrize(
    ("change", "damage"),
    [
        (
            lambda data: data[: len(data) // 2] + bytes(8) + data[len(data) // 2 + 8 :],
            r"record \d at byte \d+: ",
        ),
        (lambda data: data[:-9], "record . at byte .*cannot be decompressed as gzip"),
        (repacked, r"record 1 at byte \d+: the checksum of the record's "),
        # The time stamp: no record is touched.
        (
            lambda data: data[:4] + b"\x10" + data[5:],
            ".* records and CRC-32C .*: no record is damaged",
        ),
    ],
)
def test_a_gzip_shard_that_was_changed(
    packed: Path, change: Callable[[bytes], bytes], damage: str
) -> None:
    data = (packed / GZIP_FIRST).read_bytes()
    changed = change(data)
    (packed / GZIP_FIRST).write_bytes(changed)
    *sizes, found = verify_dataset(str(packed)).problems
    assert found.file == GZIP_FIRST
    assert re.match(damage, found.message)
    expected = f"{len(changed)} bytes, expected {len(data)}"
    assert [problem.message for problem in sizes] == (
        [expected] if len(changed) != len(data) else []
    )


@pytest.mark.parametrize(
    ("change", "file", "message"),
    [
        (
            lambda facts: facts["splits"]["train"]["shards"][0].update(records=4),
            MANIFEST_NAME,
            "split train has 7 records, its shards have 8",
        ),
        (
            lambda facts: facts["splits"]["train"]["shards"][0].update(records=4),
            FIRST,
            "3 records and CRC-32C ",
        ),
        (
            lambda facts: facts["splits"]["test"].update(bytes=1),
            MANIFEST_NAME,
            "split test has 1 bytes, its shards have ",
        ),
        (
            lambda facts: facts.update(rows_rejected=0),
            MANIFEST_NAME,
            "10 rows read, but 9 records and 0 rejects make 9",
        ),
        (
            lambda facts: facts["splits"]["test"]["shards"][0].update(crc32c="0" * 8),
            TEST,
            "2 records and CRC-32C ",
        ),
        (
            lambda facts: facts["splits"]["train"]["shards"].reverse(),
            MANIFEST_NAME,
            f"shard 0 of split train is {SECOND}, expected {FIRST}",
        ),
        (
            lambda facts: facts["splits"]["train"]["shards"][1].update(file=FIRST),
            FIRST,
            "named 2 times by the manifest, expected once",
        ),
    ],
)
def test_manifest_that_does_not_fit(
    dataset: Path, change: Callable[[dict[str, Any]], object], file: str, message: str
) -> None:
    change_manifest(dataset, change)
    problems = verify_dataset(str(dataset)).problems
    assert any(
        problem.file == file and problem.message.startswith(message)
        for problem in problems
    ), problems


def test_a_manifest_that_leads_out_of_the_folder(dataset: Path) -> None:
    outside = "../zoo/" + TEST
    change_manifest(
        dataset, lambda facts: facts["splits"]["test"]["shards"][0].update(file=outside)
    )
    with pytest.raises(OutputError, match=r"shards\.0\.file: name '\.\./zoo/"):
        verify_dataset(str(dataset))


def test_problems_in_the_manifests_order(dataset: Path) -> None:
    (dataset / "a.tfrecord").write_bytes(b"")
    flip(dataset / FIRST, 0)
    (dataset / TEST).unlink()
    change_manifest(dataset, lambda facts: facts.update(rows_read=0))
    files = [problem.file for problem in verify_dataset(str(dataset)).problems]
    assert files == [MANIFEST_NAME, FIRST, TEST, "a.tfrecord"]


def test_shard_that_cannot_be_read(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: Store, name: str, *how: Any) -> Any:
        if name == FIRST:
            raise PermissionError(13, "Permission denied", name)
        return open_file(store, name, *how)

    monkeypatch.setattr("recordmill.transforms.dataset.reader.open_file", refuse)
    assert only_problem(dataset).message.startswith("cannot be read: ")


def test_read_manifest(dataset: Path) -> None:
    manifest = read_manifest(open_store(str(dataset)))
    assert isinstance(manifest, Manifest)
    assert manifest == read_manifest(open_store(f"file://{dataset}"))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (Path.exists, r"zoo: no such folder; expected the output folder"),
        (lambda path: path.write_bytes(b""), r"zoo: is a file; expected the output"),
        (lambda path: path.mkdir(), r"zoo: no manifest\.json, so this is not a fin"),
        (lambda path: (path / MANIFEST_NAME).mkdir(parents=True), r"manifest\.json"),
    ],
)
def test_no_dataset(
    tmp_path: Path, prepare: Callable[[Path], object], message: str
) -> None:
    prepare(tmp_path / "zoo")
    folder = str(tmp_path / "zoo")
    with pytest.raises(OutputError, match=message):
        read_manifest(open_store(folder))
    with pytest.raises(OutputError, match=message):
        verify_dataset(folder)


def test_manifest_of_another_kind(dataset: Path) -> None:
    change_manifest(dataset, lambda facts: facts.update(manifest_version=2))
    with pytest.raises(OutputError, match="manifest_version"):
        read_manifest(open_store(str(dataset)))
