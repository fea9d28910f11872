"""Inputs are read in the version that was listed, or not at all, on each kind of store."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from archive_tools import ARCHIVES
from store_servers import Place

from recordmill.schemas.errors import ChangedInputError, InputError
from recordmill.schemas.input_files import FileStat, InputFile
from recordmill.transforms.sources.images.source import (
    encode_references,
    parse_references,
)
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage.clouds import can_read_version
from recordmill.transforms.storage.read_member import UNPACKED
from recordmill.transforms.storage.reading import (
    is_local,
    open_input,
    read_file,
    read_range,
)

# Its listings name no files that can be opened.
pytestmark = pytest.mark.not_on("folders")

DATA = bytes(range(251)) * 40
# What is known of an image that nothing is known of.
UNKNOWN = pa.table({"rejected": [""], "at": [0], "raw": [None]})

Read = Callable[[Place, InputFile], bytes]


def rows_of(place: Place, file: InputFile) -> bytes:
    """The whole file as rows of 40 bytes, read by their offsets."""
    target = np.zeros((251, 40), np.uint8)
    rows = np.arange(251)
    found = open_input(file.uri, place.options, file.stat)
    found.read_rows(rows * 40, target, rows)
    return target.tobytes()


@pytest.fixture
def listed(store_place: Place) -> InputFile:
    store_place.store.put_bytes(DATA, "in/odd &+ %41 é")
    (file,) = list_inputs([f"{store_place.root}/in"], store_place.options)[1]
    return file


READS: dict[str, Read] = {
    "all": lambda place, file: read_file(file.uri, place.options, file.stat),
    "a part": lambda place, file: read_range(
        file.uri, 10, 20, place.options, file.stat
    ),
    "by reference": lambda place, file: read_file(
        file.uri,
        place.options,
        parse_references(pa.array(encode_references([file], UNKNOWN, {}, list)))[
            0
        ].stat,
    ),
    "rows by reference": rows_of,
}


def test_each_kind_is_asked_for_a_version(listed: InputFile) -> None:
    assert is_local(listed.uri) or can_read_version(listed.uri, listed.stat)
    assert not can_read_version("sftp://host/a", listed.stat)
    assert not can_read_version(listed.uri, FileStat(listed.size, ""))
    assert not can_read_version("s3://b/a", FileStat(1, "2026-01-01 12:00:00+00:00"))


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 1),
        (0, len(DATA)),
        (7, 7),
        (9_000, 99_999),
        (len(DATA), 99_999),
        (20_000, 20_001),
    ],
)
def test_the_version_that_was_listed(
    store_place: Place, listed: InputFile, start: int, stop: int
) -> None:
    place = store_place
    found = read_range(listed.uri, start, stop, place.options, listed.stat)
    assert found == DATA[start:stop]
    assert READS["all"](place, listed) == READS["by reference"](place, listed) == DATA
    assert READS["rows by reference"](place, listed) == DATA


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("data", [DATA[::-1], DATA[:5], DATA * 2], ids=len)
def test_another_version(
    store_place: Place, listed: InputFile, data: bytes, read: Read
) -> None:
    store_place.store.put_bytes(data, "in/odd &+ %41 é")
    with pytest.raises(ChangedInputError) as raised:
        read(store_place, listed)
    message = str(raised.value)
    assert message.startswith(f"{listed.uri}: ")
    assert "was written again" in message or f"has {len(data)} bytes, but" in message


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_no_file_any_more(store_place: Place, listed: InputFile, read: Read) -> None:
    store_place.store.delete(["in/odd &+ %41 é"])
    with pytest.raises(InputError, match=r"cannot be read: |again or removed"):
        read(store_place, listed)


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("in/**/*.csv", ["a.csv", "x/a.csv", "x/y/b.csv"]),
        ("in/{x,z}/*", ["x/a.csv", "x/y/b.csv", "z/1"]),
        ("in/*/**/[b-z].csv", ["x/y/b.csv"]),
    ],
)
def test_globs(store_place: Place, glob: str, expected: list[str]) -> None:
    for name in ("a.csv", "x/a.csv", "x/y/b.csv", "z/1", "z/.hidden"):
        store_place.store.put_bytes(b"1", f"in/{name}")
    _, files = list_inputs([f"{store_place.root}/{glob}"], store_place.options)
    assert [file.path for file in files] == expected


@pytest.mark.parametrize("name", ["in.tar", "in.tar.gz", "in.zip", "stored.zip"])
def test_members_of_the_version_that_was_listed(store_place: Place, name: str) -> None:
    place = store_place
    members = {"a/odd &+ %41 é": DATA, "b": DATA[:7]}
    place.store.put_bytes(ARCHIVES[name](members), name)
    one, two = list_inputs([f"{place.root}/{name}"], place.options)[1]
    assert [each(place, one) for each in READS.values()] == [
        *(DATA, DATA[10:20], DATA, DATA)
    ]
    assert read_file(two.uri, place.options, two.stat) == DATA[:7]
    UNPACKED.close()  # as in another process
    place.store.put_bytes(ARCHIVES[name](members | {"b": DATA[:9]}), name)
    for read in READS.values():
        with pytest.raises(
            ChangedInputError, match=r"was written again|bytes, but had"
        ):
            read(place, one)
