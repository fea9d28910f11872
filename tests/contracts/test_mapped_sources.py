"""The contract of a function between a source and its records, for every source."""

from __future__ import annotations

import pickle
from functools import reduce
from pathlib import Path

import pytest
from source_cases import CASES
from source_tools import read, read_one

from recordmill.schemas.job import MapFunction
from recordmill.schemas.ranges import merge_type_flags
from recordmill.transforms.sources.base import _OF_INNER, Source, SourceOnSource
from recordmill.transforms.sources.images import source as images_source
from recordmill.transforms.sources.map import MappedSource

SAME = "def same(batch): return batch"


# Rows that a function makes have no size before, and roles are given to the input.
NOT_THE_OTHER_S = {
    "supports_references",
    "lists_rows",
    "sizes_known_upfront",
    "sizes_unknown",
}
NOT_THE_OTHER_S |= {"reference_rate", "prefers_reference", "list_references"}
NOT_THE_OTHER_S |= {
    "read_references",
    "read_windows",
    "expecting",
    "making",
    "role_options",
}


def test_all_that_a_source_offers_is_passed_on() -> None:
    """What is added to the base class is passed on by MappedSource, or named above."""
    offered = {*vars(Source), *Source.__annotations__}
    offered = {name for name in offered if not name.startswith("_")}
    kinds = (MappedSource, SourceOnSource)
    fields = {name for kind in kinds for name in (*vars(kind), *kind.__annotations__)}
    assert offered - NOT_THE_OTHER_S <= fields | {*_OF_INNER}


def mapped(source: Source) -> Source:
    named = MapFunction(function="same", text=SAME, file="a.py")
    return MappedSource(source, named, as_declared=False)


@pytest.mark.parametrize("name", CASES)
def test_a_function_that_changes_nothing_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, keys, rejects and where they stand; also when the source was pickled."""
    monkeypatch.setattr(images_source, "FILES_PER_RANGE", 2)
    case = CASES[name]
    if getattr(case.source, "records", "") == "keep":
        return  # there are no columns; the command says so
    case.make(tmp_path)
    path, size = case.cut_short
    if case.unit == "byte" and case.pack is bytes:  # with a reject
        (tmp_path / path).write_bytes((tmp_path / path).read_bytes()[:size])
    plain = read(case.source, tmp_path)
    found = read(mapped(case.source), tmp_path)
    assert found.ranges == plain.ranges
    types = reduce(merge_type_flags, (part.observed for part in found.parts))
    assert found.source.schema(types) == plain.source.schema(types)
    assert not found.source.supports_references
    restored = pickle.loads(pickle.dumps(found.source))
    for input_range, one, other in zip(
        plain.ranges, plain.parts, found.parts, strict=True
    ):
        one.observed = other.observed  # of the first rows, too
        if not one.nulls:  # not counted, as there can be none
            assert not any(other.nulls)
            one.nulls = other.nulls
        assert other == one
        assert read_one(restored, input_range).rows == one.rows
