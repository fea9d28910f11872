"""How often a table in a store is asked for: twice for each range, and little before."""

from __future__ import annotations

from typing import Any

import pytest
from flaky_store import Flaky
from source_tools import read_one

from recordmill.transforms.sources.csv import rows as range_rows
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.source import TAIL_BYTES, CsvSource
from recordmill.transforms.sources.listing import list_inputs
from recordmill.transforms.storage import open_store
from recordmill.transforms.storage.clouds import filesystem_of
from recordmill.transforms.storage.reading import read_range

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
    before = flaky.proxy.requests
    for each in ranges:
        assert source.sample(each)
    assert flaky.proxy.requests - before == len(ranges) - 1  # the first rows are known


def test_a_table_without_quotes_by_declaration_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last byte of a block tells the state behind it."""
    store = open_store("memory://read_once")
    store.put_bytes(b"id,text\n" + PLAIN.encode(), "in.csv")
    asked = Dialect(quote=b"")
    source = CsvSource(range_bytes=RANGE_BYTES, asked=asked)
    _, files = list_inputs(["memory://read_once/in.csv"])
    source = source.prepare(files)
    ranges = source.cut(files)
    sizes = []

    def read(*args: Any, **options: Any) -> bytes:
        data = read_range(*args, **options)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(range_rows, "read_range", read)
    surveys = [source.survey(each) for each in ranges]
    assert max(sizes) <= TAIL_BYTES
    assert len(sizes) == len(ranges)
    rows = sum(
        len(read_one(source, each).rows)
        for each in source.resolve_ranges(ranges, surveys)
    )
    assert rows == PLAIN.count("\n")
