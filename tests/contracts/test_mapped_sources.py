"""The contract of a function between a source and its records, for every source."""

from __future__ import annotations

import pickle
from functools import reduce
from pathlib import Path

import pytest
from source_cases import CASES
from source_tools import read, read_one, read_ranges

from recordmill.schemas.job import MapFunction
from recordmill.schemas.ranges import merge_type_flags
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.sources.map import map_rows

SAME = "def same(batch): return batch"


# Records that are kept have no columns; the command says so.
@pytest.mark.parametrize(
    "name", [n for n, c in CASES.items() if getattr(c.source, "records", "") != "keep"]
)
def test_a_function_that_changes_nothing_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, keys, rejects and where they stand; also when the source was pickled."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    case = CASES[name]
    case.make(tmp_path)
    path, size = case.cut_short
    if case.unit == "byte" and case.pack is bytes:  # with a reject
        (tmp_path / path).write_bytes((tmp_path / path).read_bytes()[:size])
    plain = read(case.source, tmp_path)
    named = MapFunction(function="same", text=SAME, file="a.py")
    mapped = map_rows(plain.source, plain.files, named, as_declared=False)
    found = read_ranges(mapped, plain.ranges)
    types = reduce(merge_type_flags, (part.observed for part in found))
    assert mapped.schema(types) == plain.source.schema(types)
    assert not mapped.supports_references
    restored = pickle.loads(pickle.dumps(mapped))
    for input_range, one, other in zip(plain.ranges, plain.parts, found, strict=True):
        one.observed = other.observed  # of the first rows, too
        if not one.nulls:  # not counted, as there can be none
            assert not any(other.nulls)
            one.nulls = other.nulls
        assert other == one
        assert read_one(restored, input_range).rows == one.rows
