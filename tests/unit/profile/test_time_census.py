"""Splits by shares of all rows: exact, however many boundaries, and however little is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_tools import prepare

from recordmill.schemas.job.split_times import parse_split_times
from recordmill.transforms.exchange.pair_ranks import PairSketch, Window
from recordmill.transforms.profile import time_census
from recordmill.transforms.sources.csv.source import CsvSource

ROWS = 6_000


def test_many_boundaries_hold_no_more_than_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each fewer pairs are kept then, and the limits are the same."""
    kept: list[int] = []

    def noted(window: Window, max_kept: int) -> PairSketch:
        kept.append(max_kept)
        return PairSketch(window, max_kept)

    monkeypatch.setattr(time_census, "PairSketch", noted)
    values = [(7 * n) % ROWS for n in range(ROWS)]
    (tmp_path / "a.csv").write_text("\n".join(["n,x", *(f"{v},1" for v in values)]))
    shares = ",".join(f"{n}%,s{n}" for n in range(5, 100, 5))
    times = parse_split_times(f"n=s0,{shares}")
    reading = prepare(CsvSource(), [tmp_path])
    found = [
        time_census.rank_times(
            reading.source,
            reading.ranges,
            times.column,
            times.fractions,
            workers=1,
            max_kept=max_kept,
        )
        for max_kept in (ROWS, 500)
    ]
    assert found[0].records == found[1].records == (ROWS // 20,) * 20
    assert found[0].limits.values.tolist() == found[1].limits.values.tolist()
    assert min(kept) == 8 * 500 // 19
