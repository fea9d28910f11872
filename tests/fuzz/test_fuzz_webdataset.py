"""Damaged WebDataset shards: each sample is a row or a reject, or the shard is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import numpy as np
import pytest
from archive_tools import tar_of
from example_counts import FUZZ
from mutations import damaged, try_all
from pixel_zoo import IMAGES
from source_tools import read
from webdataset_tools import npy

from recordmill.transforms.sources.webdataset import source as shard_bytes
from recordmill.transforms.sources.webdataset.source import WebDatasetSource

pytestmark = pytest.mark.fuzz

JPEG = IMAGES["gray.jpg"][0]


def sample(n: int, random: Random) -> dict[str, bytes]:
    """The files of a sample; one of them is perhaps damaged."""
    files = {
        f"{n}.jpg": JPEG,
        f"{n}.cls": b"%d" % n,
        f"{n}.txt": f"caf\xe9 {n}".encode(),
        f"{n}.json": b'{"n": %d, "o": {"x": [0.5, null]}}' % n,
        f"{n}.npy": npy(np.arange(4, dtype="<f4").reshape(2, 2)),
        f"{n}.pth": b"\0\xff",
    }
    if random.random() < 0.3:
        name = random.choice([*files])
        files[name] = damaged(files[name], random.randrange(1 << 30))
    if random.random() < 0.1:
        del files[random.choice([*files])]
    return files


def test_damaged_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejected = []

    def attempt(number: int) -> bool:
        random = Random(number)
        monkeypatch.setattr(shard_bytes, "STEP_BYTES", random.choice([700, 4 << 20]))
        samples = [sample(n, random) for n in range(random.randrange(1, 5))]
        data = tar_of({name: d for each in samples for name, d in each.items()})
        is_whole = random.random() < 0.5
        data = data if is_whole else damaged(data, number)
        is_packed = random.random() < 0.2
        for path in tmp_path.iterdir():
            path.unlink()
        path = tmp_path / ("a.tar.gz" if is_packed else "a.tar")
        path.write_bytes(gzip.compress(data, 1) if is_packed else data)
        reading = read(WebDatasetSource(), tmp_path)
        found = sorted(
            [raw for part in reading.parts for raw in part.raws]
            + [(each.position, each.raw) for each in reading.rejects]
        )
        assert all(data[at:].startswith(raw) for at, raw in found)
        assert all(each.reason.encode() for each in reading.rejects)
        assert not is_whole or len(found) == len(samples)
        ends = [at + len(raw) for at, raw in found]
        assert all(a <= b for a, (b, _) in zip(ends, found[1:], strict=False))
        rejected.append(len(reading.rejects) > 0)
        return len(reading.rows) > 0

    try_all(attempt, "a.tar")
    assert sum(rejected) > FUZZ / 20
