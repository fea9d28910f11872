"""Damaged tables whose columns have roles: the census and the reading see the same."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from pathlib import Path
from random import Random

import pytest
from mutations import damaged, try_all
from source_tools import prepare

from recordmill.schemas.ranges import TypeFlags, merge_type_flags
from recordmill.transforms.exchange.keys import text_hash
from recordmill.transforms.sources.base import RangeFindings
from recordmill.transforms.sources.csv.quotes import Dialect
from recordmill.transforms.sources.csv.source import CsvSource
from recordmill.transforms.sources.label_split import (
    LabelRole,
    LabelSplitRows,
    class_hashes,
    find_class_keys,
)
from recordmill.transforms.statistics.input_statistics import count_rows

pytestmark = pytest.mark.fuzz
CELLS = ["a", "b", "", "NA", "7", "07", "7.5", "true", " a", "é"]
CELLS += ['"1,5"', '"1.234,5"', '"x, y"', '"a\nb"']


def table(random: Random) -> bytes:
    kinds = random.sample(CELLS, 3)
    rows = [f"{n},{random.choice(kinds)}" for n in range(random.randrange(2, 12))]
    return "\n".join(["id,kind", *rows, ""]).encode()


def test_damaged_tables_with_roles(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"

    def attempt(number: int) -> bool:
        random = Random(number)
        path.write_bytes(damaged(table(random), number))
        dialect = Dialect(
            decimal=random.choice([".", ","]),
            null_values=random.choice([(), ("NA", "7")]),
        )
        size = random.choice([20, 1 << 20])
        source = CsvSource(requested_dialect=dialect, range_bytes=size)
        reading = prepare(source, [path])
        plain, ranges = reading.source, reading.ranges
        if "kind" not in plain.columns().names:
            return False
        comma = plain.decimal_comma
        found = count_rows(plain, ranges, "kind", "", workers=1)
        keys = partial(find_class_keys, decimal_comma=comma)
        by_key = count_rows(plain, ranges, "kind", "", workers=1, values_of=keys)
        ranges = plain.input_source.with_boundaries(ranges)
        names = tuple(sorted(text for text in found if text))[:2]
        types: TypeFlags = ()
        for input_range in ranges:
            sink = RangeFindings()
            deque(plain.read(input_range, types, sink), maxlen=0)
            types = merge_type_flags(types, sink.type_flags)
        roles = LabelSplitRows(plain, LabelRole("kind", names))
        classes: Counter[int] = Counter()
        rows_in, rows_out, labels = 0, 0, Counter[int]()
        for input_range in ranges:
            before, behind = RangeFindings(), RangeFindings()
            for rows in plain.read(input_range, types, before):
                rows_in += rows.batch.num_rows
                if rows.batch.num_rows:
                    kinds = rows.batch.column("kind")
                    hashes = class_hashes(kinds, decimal_comma=comma)
                    classes.update(hashes.tolist())
            for rows in roles.read(input_range, types, behind):
                assert len(rows.origins) == len(rows.positions) == rows.batch.num_rows
                rows_out += rows.batch.num_rows
                if rows.batch.num_rows:
                    labels.update(rows.batch.column("kind").to_pylist())
            rows_in += len(before.rejects)
            rows_out += len(behind.rejects)
        assert classes == {
            text_hash(str(key)): sketch.count for key, sketch in by_key.items()
        }
        assert rows_in == rows_out
        assert labels == {index: found[name].count for index, name in enumerate(names)}
        return True

    try_all(attempt)
