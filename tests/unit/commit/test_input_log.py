"""The inventory that a dataset keeps, and the names of its parts."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pyarrow as pa
import pytest
from content_tools import dump_inputs, kept_files
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import InputError, OutputError
from recordmill.schemas.input_files import InputFile
from recordmill.schemas.job import JobSpec
from recordmill.schemas.names import (
    inputs_file_name,
    parse_part,
    rejects_prefix,
    run_metadata_name,
    shard_file_name,
)
from recordmill.transforms.commit.inputs import (
    ContentComparison,
    ConvertedFile,
    dump_part_inputs,
    new_files,
    parse_inputs,
)
from recordmill.transforms.inventory import Inventory
from recordmill.transforms.tfrecord import crc32c

JOB = JobSpec(source="csv", name="data")
CHECK = ContentComparison()


def file(path: str, size: int = 1, version: str = "v") -> InputFile:
    return InputFile(path, f"/in/{path}", size, version)


@given(
    st.lists(
        st.builds(
            file,
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
            st.integers(0, 1 << 62),
            st.text(st.characters(exclude_categories=["Cs"])),
        ),
        unique_by=lambda each: each.path,
    ),
    st.integers(0, 3),
)
def test_round_trip(files: list[InputFile], num_side: int) -> None:
    """Any name that a file can have, line ends and quotes among them."""
    side, inputs = files[:num_side], files[num_side:]
    both = Inventory.from_files([*inputs, *side])  # listed as both
    data = dump_inputs("ff", JOB, Inventory.from_files(inputs), both)
    assert data == dump_inputs("ff", JOB, Inventory.from_files(inputs), both)
    assert data[4:8] == bytes(4)  # no clock
    kept = parse_inputs(data, "x")
    assert kept.fingerprint == "ff"
    assert kept.job["name"] == "data"
    assert "max_rejects" not in kept.job
    assert dict(kept.files) == {
        each.path: ConvertedFile(each.size, each.version, each in side)
        for each in files
    }


def listed(run_key: str = "", *, by_content: bool = False) -> bytes:
    contents = {"a": "crc32c:00000001", "b": "crc32c:00000002"}
    files = [file("a", 1, contents["a"]), file("b", 2, contents["b"])]
    data = dump_inputs("ff", JOB, Inventory.from_files(files), run_key=run_key)
    if by_content:
        kept = parse_inputs(data, "x")
        read = kept.files.with_column("content", pa.array(contents.values()))
        data = dump_part_inputs(replace(kept, files=read, by_content=True))
    return data


def test_by_content_or_as_listed() -> None:
    kept = parse_inputs(listed(by_content=True), "x")
    assert (kept.by_content, kept.run_key) == (True, "")
    assert dict(kept.files)["a"] == ConvertedFile(
        1, None, is_sidecar=False, content="crc32c:00000001"
    )
    kept = parse_inputs(listed(run_key="k"), "x")
    assert (kept.by_content, kept.run_key) == (False, "k")
    assert dict(kept.files)["a"] == ConvertedFile(
        1, "crc32c:00000001", is_sidecar=False
    )


@pytest.mark.parametrize("content", ["5", "null", '"crc32c:1"', '"v"', "[]"])
def test_a_content_that_is_none(content: str) -> None:
    head, *lines = gzip.decompress(listed(by_content=True)).decode().splitlines()
    lines = [line.replace('"crc32c:00000002"', content) for line in lines]
    data = gzip.compress("".join(f"{line}\n" for line in [head, *lines]).encode())
    with pytest.raises(OutputError, match="x: not a valid inventory of inputs"):
        parse_inputs(data, "x")


def test_what_could_not_be_read() -> None:
    broken = InputFile("a", "/in/a", 0, "", problem="a link to nothing")
    files = parse_inputs(
        dump_inputs(
            "ff", JOB, Inventory.from_files([broken]), Inventory.from_files([file("b")])
        ),
        "x",
    ).files
    assert dict(files) == {
        "a": ConvertedFile(0, "", is_sidecar=False, is_unreadable=True),
        "b": ConvertedFile(1, "v", is_sidecar=True),
    }


def test_the_same_bytes_on_every_machine() -> None:
    """They are files of the dataset, whose bytes must not change."""
    files = [
        file(f"2026/{n * n % 97}/{n:05d}.jpg", n * n, f"{n:x}") for n in range(2000)
    ]
    assert (
        f"{crc32c(dump_inputs('ff', JOB, Inventory.from_files(files))):08x}"
        == "553fb569"
    )


def test_it_is_small() -> None:
    files = [file(f"2026/11/{n:07d}.jpg", n, f"17{n:017d}") for n in range(100_000)]
    assert len(dump_inputs("ff", JOB, Inventory.from_files(files))) < 1_500_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        gzip.compress(
            b'{"recordmill": 1, "fingerprint": "", "job": {}}\n["a", 1\n', mtime=0
        ),
        dump_inputs("ff", JOB, Inventory.from_files([file("a")]))[:-1],
    ],
)
def test_damaged(data: bytes) -> None:
    with pytest.raises(OutputError, match="x: not a valid inventory of inputs"):
        parse_inputs(data, "x")


def test_what_is_new() -> None:
    """A file that cells could name may become an input; then it is new as that."""
    kept = kept_files(
        {
            "a": ConvertedFile(1, "v", is_sidecar=False),
            "b": ConvertedFile(1, "v", is_sidecar=True),
            "c": ConvertedFile(1, "v", is_sidecar=True),
        }
    )

    def new(*files: list[InputFile]) -> tuple[Inventory, Inventory]:
        return new_files(kept, *map(Inventory.from_files, files), "x", CHECK)

    a, b, c, d, e = map(file, "abcde")
    assert new([a, b, d], [a, b, c, d, e]) == ([b, d], [e])
    assert new([a], [a, b, c, e]) == ([], [e])
    with pytest.raises(InputError, match=r"1 is missing \(a\)"):
        new([b], [a, b, c])  # a is there, but no input any more
    with pytest.raises(InputError, match=r"1 is missing \(c\)"):
        new([a], [a, b])
    changed = file("b", version="w")
    with pytest.raises(InputError, match=r"1 changed \(b\)"):
        new([a], [a, changed, c])


@given(
    st.sampled_from(["none", "gzip"]),
    st.lists(st.tuples(st.integers(0, 99_999), st.integers(0, 99_998)), min_size=1),
    st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
)
def test_names_sort_as_parts_and_shards_do(
    compression: str, places: list[tuple[int, int]], split: str
) -> None:
    def name(part: int, index: int) -> str:
        return shard_file_name("d", split, index, 99_999, compression, part)

    assert sorted(name(*place) for place in places) == [
        name(*place) for place in sorted(places)
    ]
    assert [parse_part(name(*place)) for place in places] == [p for p, _ in places]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_no_split_can_be_called_like_a_part(compression: str) -> None:
    names = {
        shard_file_name("d", split, 0, 1, compression, part)
        for split in ("train", "train-a00001", "a00001", "train_a00001-00000")
        for part in (0, 1, 2)
    }
    assert len(names) == 12


def test_names_beside_the_shards() -> None:
    assert [inputs_file_name(part) for part in (0, 3)] == [
        "inputs.jsonl.gz",
        "inputs-a00003.jsonl.gz",
    ]
    assert run_metadata_name(3) == "run-a00003.json"
    assert rejects_prefix(0) == ""
