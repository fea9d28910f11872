"""Shards that are cut between samples: the rows are those of the whole shard."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from archive_tools import tar_of
from source_tools import read

from recordmill.schemas.input_files import InputFile
from recordmill.transforms.sources.webdataset import samples
from recordmill.transforms.sources.webdataset.source import WebDatasetSource

FORMATS = {
    "ustar": tarfile.USTAR_FORMAT,
    "gnu": tarfile.GNU_FORMAT,
    "pax": tarfile.PAX_FORMAT,
}


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
def test_rows_of_ranges_are_those_of_the_whole(form: str, tmp_path: Path) -> None:
    for seed in range(3):
        (tmp_path / "0.tar").write_bytes(shard_of(FORMATS[form], seed))
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
            if size == 1:  # each sample alone
                samples = len(whole.rows) + len(whole.rejects)
                assert samples - 1 <= len(found.ranges) <= samples


def with_member(shard: bytes, kind: bytes) -> bytes:
    """A shard with an odd member in its middle: a device, or a header for all files."""
    data = b"20 comment=12345678\n" if kind == tarfile.XGLTYPE else b""
    info = tarfile.TarInfo("odd.txt")
    info.type, info.size = kind, len(data)
    odd = info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)
    return shard[: 5 * 1536] + odd + shard[5 * 1536 :]


def test_what_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"{n}.txt": b"x" * 600 for n in range(9)}

    def cuts_of(data: bytes, files: int = 1) -> list[int]:
        path = tmp_path / "x.tar"
        path.write_bytes(data)
        file = InputFile("x.tar", str(path), len(data))
        found = samples.cut_shards([file] * files, 2000)
        return [start for _, start, _, _ in found[: len(found) // files]]

    plain = tar_of(members)
    assert cuts_of(plain) == [0, 3072, 6144, 9216, 12288][: len(cuts_of(plain))]
    assert len(cuts_of(plain)) > 3
    assert cuts_of(gzip.compress(plain + bytes(9000), 0)) == [0]
    # A key that comes again is told of the whole shard.
    assert cuts_of(tar_of({**members, "0.cls": b"7"})) == [0]
    # Nobody knows which keys come behind a header that is not understood.
    damaged = bytearray(plain)
    damaged[5 * 1536 + 3] ^= 1
    assert cuts_of(bytes(damaged)) == [0]
    for kind in (tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.XGLTYPE):
        assert cuts_of(with_member(plain, kind)) == [0], kind
    monkeypatch.setattr(samples, "MAX_CUT_SHARDS", 1)
    assert cuts_of(plain, 2) == [0]


def test_a_shard_that_breaks_off_is_cut_before(tmp_path: Path) -> None:
    members = {f"{n}.txt": b"x" * 600 for n in range(9)}
    (tmp_path / "0.tar").write_bytes(tar_of(members)[: 6 * 1536 + 700])
    whole = read(WebDatasetSource(), tmp_path)
    found = read(replace(WebDatasetSource(), range_bytes=2000), tmp_path)
    assert len(found.ranges) > 2
    assert found.rows == whole.rows
    assert found.rejects == whole.rejects
    assert len(found.rejects) == 1


@pytest.mark.parametrize("size", [4 * 1536, 4 * 1536 + 100], ids=["whole", "part"])
def test_a_shard_that_became_shorter(size: int, tmp_path: Path) -> None:
    """Who reads it tells that it changed, with a way out; it is not cut."""
    path, data = tmp_path / "x.tar", tar_of({f"{n}.txt": b"x" * 600 for n in range(9)})
    path.write_bytes(data[:size])
    found = samples.cut_shards([InputFile("x.tar", str(path), len(data))], 2000)
    assert [start for _, start, _, _ in found] == [0]
