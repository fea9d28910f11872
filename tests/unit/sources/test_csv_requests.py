"""How often a table in a store is asked for: twice for each range, and little before."""

from __future__ import annotations

import pytest
from flaky_store import Flaky
from source_tools import read_one

from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage.filesystems import filesystem_of

RANGE_BYTES = 200_000
PLAIN = "".join(f"{n},text {n}\n" for n in range(60_000))
QUOTED = "".join(f'{n},"text, {n}"\n' for n in range(50_000))


@pytest.mark.parametrize("text", [PLAIN, QUOTED], ids=["plain", "quoted"])
def test_two_requests_for_each_range(flaky: Flaky, text: str) -> None:
    flaky.direct.put_bytes(b"id,text\n" + text.encode(), "in.csv")
    filesystem_of(flaky.store.url, flaky.options)[0].connect()
    source = CsvSource(range_bytes=RANGE_BYTES, storage=flaky.options)
    _, files = list_inputs([f"{flaky.store.url}/in.csv"], flaky.options)
    before = flaky.proxy.requests
    source = source.prepare(files)
    prepared = flaky.proxy.requests
    ranges = source.cut(files)
    ranges = source.resolve_ranges(ranges, [source.survey(each) for each in ranges])
    surveyed = flaky.proxy.requests
    rows = sum(len(read_one(source, each).rows) for each in ranges)
    assert rows == text.count("\n")
    assert len(ranges) >= 4
    assert surveyed - prepared == len(ranges)
    assert flaky.proxy.requests - surveyed == len(ranges)
    assert prepared - before == 1  # for all that is found in the first rows
