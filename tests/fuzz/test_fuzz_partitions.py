"""Odd names of hive partitions: columns have what the folders say, or names are refused."""

from __future__ import annotations

from pathlib import Path
from random import Random
from shutil import rmtree
from urllib.parse import quote, unquote

import pytest
from mutations import ODD_WORDS, try_all
from source_tools import read
from tables_in_formats import FORMATS, write_table

from recordmill.schemas.job import JobSpec
from recordmill.transforms.sources.registry import SourceRequest, load_format

pytestmark = pytest.mark.fuzz

VALUES = [word for word in ODD_WORDS if len(word) < 50]
VALUES += ["7", "007", "-0", "1.5", "1.50", "9" * 18, "9" * 19, "true", "2026-01-01"]
VALUES += ["a/b", "a=b", "%", "%zz", "%41", "\xe9", "a\nb", "train", "test", "\0"]
MISSING = "__HIVE_DEFAULT_PARTITION__"
KEYS = ["year", "split", "a b", "x=y", "\xe9", "id", ""]


def folder(random: Random, key: str) -> str:
    value = random.choice(VALUES)
    # As Spark writes it, by hand, or missing.
    way = random.randrange(5)
    value = MISSING if way == 0 else quote(value, "") if way < 4 else value
    value = value.replace("/", "").replace("\0", "")
    return f"{quote(key) if way < 4 else key}={value}"


def test_odd_partitions(tmp_path: Path) -> None:
    def attempt(number: int) -> bool:
        random = Random(number)
        keys = random.sample(KEYS, random.choice((1, 1, 2)))
        root, kind = tmp_path / "in", random.choice(FORMATS)
        expected: dict[int, dict[str, str | None]] = {}
        for n in range(random.randrange(1, 5)):
            own = keys if random.random() < 0.97 else keys[1:]
            names = [folder(random, key) for key in own]
            write_table(root.joinpath(*names, str(n)), kind, {"n": [n], "t": ["x"]})
            pairs = [name.partition("=") for name in names]
            expected[n] = {
                unquote(key): None if value == MISSING else unquote(value)
                for key, _, value in pairs
                if key
            }
        source = load_format(kind).make_source(
            load_format(kind).options(),
            SourceRequest(job=JobSpec(name="a", source=kind)),
        )
        try:
            reading = read(source, root)
        finally:
            rmtree(root)
        assert sorted(row["n"] for row in reading.rows) == sorted(expected)
        splits = [file.split for file in reading.ranges]
        for row in reading.rows:
            known = expected[row["n"]]
            for key, text in known.items():
                if key not in row:  # it is the split
                    assert key == "split", (key, row)
                    assert (text or "") in splits
                elif isinstance(row[key], int) and text is not None:
                    assert str(row[key]) == text or text == "-0"
                elif isinstance(row[key], float) and text is not None:
                    assert float(text) == row[key]
                else:
                    assert row[key] == text
            assert row.keys() <= {"n", "t", *known}
        return True

    try_all(attempt)
