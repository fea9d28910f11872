"""TorchRows continues at the very next row: after a kill, and by a loader with state."""

from __future__ import annotations

import json
import re
from pathlib import Path

from job_tools import Argument, convert
from reader_tools import run_reader

SCRIPTS = Path(__file__).with_name("torch_state")
ROWS = 250


def table(folder: Path, start: int, rows: int, *options: Argument) -> Path:
    folder.mkdir()
    lines = ["id", *map(str, range(start, start + rows))]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    job: list[Argument] = [folder / "rows.csv", folder / "out", "--shards", 5]
    convert("csv", *job, *options)
    return folder / "out"


def test_each_row_once_in_100_kills(tmp_path: Path) -> None:
    """Each life of the reader has another number of workers."""
    one, other = table(tmp_path / "a", 0, 200), table(tmp_path / "b", 1000, 100)
    script = SCRIPTS / "killed_reader.py"
    found = json.loads(run_reader(tmp_path, script, one, other, tmp_path, 100))
    seen, expected = found["seen"], found["expected"]
    assert len(seen) > 100
    assert seen == expected[: len(seen)]
    everything = [*range(200), *range(1000, 1100)]
    for first in range(0, len(expected), 300):
        assert sorted(expected[first : first + 300]) == everything


def test_continued_by_either_state(tmp_path: Path) -> None:
    plain = table(tmp_path / "plain", 0, ROWS)
    zipped = table(tmp_path / "zipped", 0, ROWS, "--compression", "gzip")
    *told, refused = map(
        json.loads,
        run_reader(tmp_path, SCRIPTS / "continued.py", plain, zipped).splitlines(),
    )
    assert len({way for way, *_ in told}) == 15
    for way, stop, before, after, whole in told:
        assert (way, stop, before + after) == (way, stop, whole)
        assert sorted(whole) == list(range(ROWS))
    expected = (
        "'seed' is 4, expected 3; open the same dataset, with the same seed",
        "'num_workers' is 2, expected 1; .*works with any number of workers",
        "'data' is",
        "start=16: compressed shards .* StatefulDataLoader of torchdata, or convert with",
        *["state after 9 rows: expected whole batches of `batch_size=16` rows, as"] * 2,
        "rows_consumed=-9: expected a whole number, 0 or more",
        "pass the `batch_size` of the loader to TorchRows",
        "lacks 'data', 'seed', 'epoch', 'start'; expected what `state.rows_consumed",
        "'buffer' is 10000, expected 7; .* with the same seed, buffer",
        "started from a state of StatefulDataLoader; get the next",
    )
    for text, pattern in zip(refused, expected, strict=True):
        assert re.search(pattern, text), text
