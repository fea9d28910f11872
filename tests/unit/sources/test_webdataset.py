"""Samples of WebDataset shards: keys, arrays of any shape, what is told of odd ones."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive_tools import tar_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pixel_zoo import IMAGES
from source_tools import Reading, prepare, read
from webdataset_tools import npy

from recordmill.schemas.errors import InputError
from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources import json_lines
from recordmill.transforms.sources.base import InputFindings
from recordmill.transforms.sources.json_lines import (
    array_column,
    array_type,
    describe_misfit,
)
from recordmill.transforms.sources.webdataset import source as shards
from recordmill.transforms.sources.webdataset.source import WebDatasetSource

WEBP = IMAGES["lossy.webp"][0]
FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def read_shard(folder: Path, data: bytes) -> Reading:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/a.tar").write_bytes(data)
    return read(WebDatasetSource(), folder / "in")


@pytest.mark.parametrize("style", FORMATS)
def test_keys_end_at_the_first_dot_of_the_base_name(tmp_path: Path, style: int) -> None:
    """As `webdataset` has it; what has no key is told."""
    long = "a" * 90 + "/" + "b" * 90
    names = ["v1.0/x.TXT", "./y.txt", f"{long}.txt", "no-ending", "a/.txt", "__m__"]
    members = [(name, name.encode()) for name in names]
    reading = read_shard(tmp_path, tar_of(members, style))
    rows = [(row["key"], row["txt"]) for row in reading.rows]
    assert rows == [("v1.0/x", "v1.0/x.TXT"), ("./y", "./y.txt"), (long, f"{long}.txt")]
    (odd,) = [each for part in reading.parts for each in part.issues]
    assert (odd.count, odd.example) == (3, "a.tar!/no-ending")
    told = reading.source.input_report(InputFindings(reading.source.schema(), (odd,)))
    (warning,) = told.warnings
    assert warning.code == "no-sample"
    assert warning.message.startswith("3 files in shards skipped, such as a.tar!/no-")


def test_odd_samples_are_told(tmp_path: Path) -> None:
    """A file twice, a key again, a link, a name that is a feature's, half an image."""
    link = tarfile.TarInfo("7.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "1.txt"
    members = [
        *(("1.txt", b"a"), ("1.txt", b"b")),
        *(("2.txt", b"c"), ("3.txt", b"d"), ("2.txt", b"e")),
        *(("4.txt", b"f"), ("4.key", b"g")),
        *(("5.txt", b"h"), ("5.webp", WEBP), ("6.webp", WEBP[:20])),
    ]
    data = tar_of(members)
    blocks = len(data) // 512 * 512 - tarfile.RECORDSIZE
    end = blocks + data[blocks:].rstrip(b"\0").__len__()
    end = -(-end // 512) * 512
    reading = read_shard(tmp_path, data[:end] + link.tobuf() + bytes(1024))
    assert [row["key"] for row in reading.rows] == ["2", "3", "2", "5"]
    reasons = {each.raw[:1]: each.reason for each in reading.rejects}
    assert reasons[b"a"] == "contains two files 'txt'"
    assert "a file has the extension 'key'" in reasons[b"f"]
    assert reasons[b"R"].startswith("webp: ")
    assert reasons[b""].startswith("'7.txt' is a link to 1.txt")
    odd = [each for part in reading.parts for each in part.issues]
    assert [(o.code, o.column, o.count, o.example) for o in odd] == [
        ("repeated key", "", 1, "a.tar: 2"),
        ("undecodable", "webp", 1, "a.tar: 5"),
    ]
    observed = reading.parts[0].observed
    schema = reading.source.schema(observed)
    told = reading.source.input_report(InputFindings(schema, tuple(odd), observed))
    assert [each.code for each in told.warnings] == [
        "undecodable-images",
        "repeated-key",
    ]


def test_members_of_later_samples_alone_are_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WebDatasetSource, "min_sample_bytes", 512)
    monkeypatch.setattr(json_lines, "SAMPLE_BYTES", 512)
    texts = [(f"{n}.json", b'{"a": %d}' % n) for n in range(4)]
    data = tar_of([*texts, ("8.mp4", b"x"), ("9.json", b'{"b": 1}')])
    reading = read_shard(tmp_path, data)
    assert [row["json/a"] for row in reading.rows] == [0, 1, 2, 3]
    assert [each.reason.split(":")[0] for each in reading.rejects] == [
        "'mp4'",
        "'json/b'",
    ]


def test_a_sample_larger_than_a_record_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "MAX_CELL_BYTES", 5000)
    monkeypatch.setattr(shards, "BATCH_BYTES", 1000)
    small = [(f"{n}.bin", b"%d" % n * 900) for n in range(4)]
    large = [("8.txt", b"x"), ("8.bin", b"y" * 9000), ("8.cls", b"1")]
    reading = read_shard(tmp_path, tar_of([*small[:2], *large, *small[2:]]))
    assert [row["key"] for row in reading.rows] == ["0", "1", "2", "3"]
    (reject,) = reading.rejects
    assert reject.reason == "has more bytes than a record can hold (5,000)"
    assert len(reject.raw) < 2000


def test_what_is_no_shard_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(InputError, match=r"a\.txt: is not a tar archive"):
        prepare(WebDatasetSource(), [tmp_path])
    (tmp_path / "b.txt").write_text("x")
    with pytest.raises(InputError, match=r"no tar archive among 2 input files"):
        prepare(WebDatasetSource(), [tmp_path])
    (tmp_path / "a.tar").write_text("x" * 600)
    with pytest.raises(InputError, match=r"a\.tar: is not a tar archive"):
        prepare(WebDatasetSource(), [tmp_path])
    (tmp_path / "a.tar").write_bytes(tar_of({"1.cls": b"x"}))
    with pytest.raises(InputError, match=r"no sample can be read .* b'x'"):
        prepare(WebDatasetSource(), [tmp_path])
    whole = tar_of({"1.cls": b"1", "2.cls": b"2"})
    with pytest.raises(InputError, match="no member header at byte 1,024"):
        read_shard(tmp_path, whole[:1024] + b"x" + whole[1025:])
    with pytest.raises(InputError, match="continues after its end at byte 2,048"):
        read_shard(tmp_path, whole + whole)


@given(
    shapes=st.lists(
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    ),
    same=st.booleans(),
    dtype=st.sampled_from(["?", "i8", "u8", "f4", "f8"]),
    missing=st.sets(st.integers(0, 5)),
)
@settings(max_examples=50)
def test_columns_of_arrays_are_the_arrays(
    shapes: list[tuple[int, ...]], same: bool, dtype: str, missing: set[int]
) -> None:
    found: list[Any] = []
    for n, shape in enumerate(shapes):
        size = shapes[0] if same else shape
        found.append((np.arange(np.prod(size)) + n).astype(dtype).reshape(size))
    if not found:
        return
    arrow_type = array_type(found)
    fitting = [None if describe_misfit(value, arrow_type) else value for value in found]
    values = [None if n in missing else value for n, value in enumerate(fitting)]
    column = array_column(values, arrow_type)
    column.validate(full=True)
    assert column.type == arrow_type
    assert column.to_pylist() == [
        None if value is None else value.tolist() for value in values
    ]


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    """As standard input has."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/stdin").write_bytes(tar_of({"1.cls": b"7"}))
    reading = read(WebDatasetSource(), tmp_path / "in/stdin")
    assert reading.rows == [{"key": "1", "cls": 7}]


def test_arrays_that_cannot_be_values_are_rejects(tmp_path: Path) -> None:
    good = npy(np.ones((2, 3), "f4"))
    members = {f"{n}.npy": good for n in range(3)}
    members["3.npy"] = npy(np.ones((3, 2), "f4"))
    members["4.npy"] = npy(np.array(["text"]))
    members["5.npy"] = good[:-1]
    members["6.npy"] = b"\x93NUMPY\1\0\x05\0{'a'}"
    reading = read_shard(tmp_path, tar_of(members))
    reasons = [each.reason for each in reading.rejects]
    assert len(reading.rows) + len(reasons) == 7
    assert "is an array of <U4, expected numbers" in reasons[-3]
    assert "24 bytes of values, but 23 follow" in reasons[-2]
    assert "its header is not valid" in reasons[-1]


NINE = tar_of({f"{n}.txt": b"x" * 600 for n in range(9)})


def shard_of(form: int, seed: int) -> bytes:
    """A shard with all that archives have: folders, links, long names, odd files."""
    draw = random.Random(seed)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as tar:

        def add(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE) -> None:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(data), kind
            info.mtime = 1.5 if form == tarfile.PAX_FORMAT else 1
            info.linkname = "x" if kind == tarfile.SYMTYPE else ""
            tar.addfile(info, io.BytesIO(data))

        for number in range(30):
            folder = draw.choice(["", "a/", "ü/" * 9, "long/" * 15])
            deep = "l" * 120 if form != tarfile.USTAR_FORMAT else "l" * 70
            stem = f"{folder}{draw.choice(['', deep])}{number}"
            for ending in draw.sample(["txt", "cls", "left.json"], draw.randint(1, 3)):
                data = b"7" * draw.randint(1, 1200) if ending == "txt" else b"7"
                add(f"{stem}.{ending}", data)
                if draw.random() < 0.2:
                    add(draw.choice(["a/.hidden", "__meta__", "README"]), b"x" * 600)
            if draw.random() < 0.2:
                add(draw.choice(["folder", "other.d"]), kind=tarfile.DIRTYPE)
            if draw.random() < 0.1:
                add(f"link{number}.txt", kind=tarfile.SYMTYPE)
    return buffer.getvalue()


@pytest.mark.parametrize("form", FORMATS)
def test_rows_of_ranges_are_those_of_the_whole(form: int, tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / "0.tar").write_bytes(shard_of(form, seed))
        whole = read(WebDatasetSource(), tmp_path)
        assert len(whole.ranges) == 1
        for size in (1, 3000, 12_000):
            source = WebDatasetSource(range_bytes=size)
            found = read(source, tmp_path)
            assert len(found.ranges) > 2
            assert found.rows == whole.rows
            assert found.origins == whole.origins
            assert found.rejects == whole.rejects
            keys = [key for part in found.parts for key in part.keys]
            assert keys == [key for part in whole.parts for key in part.keys]
            samples = len(whole.rows) + len(whole.rejects)
            if size == 1:  # each sample alone
                assert samples - 1 <= len(found.ranges) <= samples


def with_member(shard: bytes, kind: bytes) -> bytes:
    """A shard with an odd member in its middle: a device, or a header for all files."""
    data = b"20 comment=12345678\n" if kind == tarfile.XGLTYPE else b""
    info = tarfile.TarInfo("odd.txt")
    info.type, info.size = kind, len(data)
    odd = info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)
    return shard[: 5 * 1536] + odd + shard[5 * 1536 :]


def test_what_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cuts_of(data: bytes, files: int = 1) -> list[int]:
        path = tmp_path / "x.tar"
        path.write_bytes(data)
        file = InputFile("x.tar", str(path), len(data))
        found = shards.cut_shards([file] * files, 2000)
        return [start for _, start, _ in found[: len(found) // files]]

    assert cuts_of(NINE) == [0, 3072, 6144, 9216, 12288][: len(cuts_of(NINE))]
    assert len(cuts_of(NINE)) > 3
    assert cuts_of(gzip.compress(NINE + bytes(9000), 0)) == [0]
    # A key that comes again is told of the whole shard.
    again = {"0.txt": b"x" * 600, "1.txt": b"x" * 6000, "0.cls": b"7"}
    assert cuts_of(tar_of(again)) == [0]
    # Nobody knows which keys come behind a header that is not understood.
    damaged = bytearray(NINE)
    damaged[5 * 1536 + 3] ^= 1
    assert cuts_of(bytes(damaged)) == [0]
    assert cuts_of(with_member(NINE, tarfile.XGLTYPE)) == [0]
    assert len(cuts_of(with_member(NINE, tarfile.FIFOTYPE))) > 3
    assert cuts_of(NINE[: 6 * 1536 + 700]) == [0]  # breaks off
    monkeypatch.setattr(shards, "MAX_CUT_SHARDS", 1)
    assert cuts_of(NINE, 2) == [0]


@pytest.mark.parametrize("size", [4 * 1536, 4 * 1536 + 100], ids=["whole", "part"])
def test_a_shard_that_became_shorter(size: int, tmp_path: Path) -> None:
    """Who reads it tells that it changed, with a way out; it is not cut."""
    path = tmp_path / "x.tar"
    path.write_bytes(NINE[:size])
    found = shards.cut_shards([InputFile("x.tar", str(path), len(NINE))], 2000)
    assert [start for _, start, _ in found] == [0]
