"""Damaged archives: each member is read as it was, or the archive is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from archive_tools import ARCHIVES
from example_counts import FUZZ
from mutations import damaged, try_all

from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage.read_member import UNPACKED
from recordmill.transforms.storage.reading import read_file

pytestmark = pytest.mark.fuzz


def test_damaged_archives(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def attempt(number: int) -> int:
        random = Random(number)
        kind = random.choice([*ARCHIVES])
        members = {
            f"{random.choice('ab')}/{n}.csv": random.randbytes(random.randrange(99))
            * random.randrange(30)
            for n in range(random.randrange(1, 5))
        }
        path = folder / kind
        path.write_bytes(damaged(ARCHIVES[kind](members), number))
        try:
            _, files = list_inputs([str(path)], keep_unreadable=True)
            whole = [file for file in files if not file.problem]
            for file in whole:
                data = read_file(file.uri, stat=file.stat)
                assert len(data) == file.size
                # Tar archives have a checksum of headers alone, bzip2 and gzip of all.
                assert data in members.values() or kind in ("in.tar", "in.tar.zst")
        finally:
            path.unlink()
        assert [*tmp_path.rglob("*")] == [folder]
        if number % 50 == 49:
            UNPACKED.close()
        return len(whole)

    assert len(try_all(attempt, str(folder))) > FUZZ / 4
